"""Keys over the native API, and what whoever shows one gets on each face."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.faces.clients import Sqs
from tests.faces.connections import Answer, Connection, request_bytes
from tests.faces.rest.client import Rest
from tests.faces.servers import Server
from tests.waiting import until


@pytest.fixture
def rest(server: Server) -> Iterator[Rest]:
    with Rest(server.url) as client:
        yield client


def ask(url: str, method: str, target: str, headers: dict[str, str], body: bytes = b"") -> Answer:
    """One request with these headers."""
    with Connection(url) as connection:
        connection.send(request_bytes(method, target, {"Host": connection.host, **headers}, body))
        return connection.answer()


def test_a_key_is_shown_once(rest: Rest) -> None:
    made = rest.ask("POST", "/v1/keys", {"name": "shop", "rate_limit": {"requests": 5}})
    assert made.status == 201
    key = json.loads(made.body)
    assert made.headers["location"] == f"/v1/keys/{key['id']}"
    assert made.headers["cache-control"] == "no-store"
    assert key.pop("key").startswith(f"qg_{key['id']}_")
    assert key["rate_limit"] == {"requests": 5, "window_seconds": 1}
    assert key["account_id"] == rest.account
    assert rest.call("GET", "/v1/keys") == [key]
    assert rest.call("GET", f"/v1/keys/{key['id']}") == key


def test_it_names_its_account_on_every_face(rest: Rest) -> None:
    rest.create("jobs")
    key = rest.call("POST", "/v1/keys", {"name": "shop"}, status=201)["key"]
    for headers in (
        {"X-Api-Key": key},
        {"Api-Key": key},
        {"Authorization": f"Bearer {key}"},
        {"Authorization": "Basic of-a-proxy", "X-Api-Key": key},
    ):
        listed = ask(rest.url, "GET", "/v1/queues", headers)
        assert [queue["name"] for queue in json.loads(listed.body)] == ["jobs"]
        found = ask(rest.url, "GET", "/?Action=GetQueueUrl&QueueName=jobs", headers)
        assert f"/{rest.account}/jobs" in found.text


def test_a_revoked_key_is_refused_on_every_face(rest: Rest) -> None:
    key = rest.call("POST", "/v1/keys", {"name": "shop"}, status=201)
    for _ in range(2):
        rest.call("DELETE", f"/v1/keys/{key['id']}", status=204)
    shown = {"X-Api-Key": key["key"]}
    for path in ("/v1/queues", "/api/queues", "/v1/messages/poll?channel=x", "/_admin/outbox"):
        refused = ask(rest.url, "GET", path, shown)
        assert (refused.status, "wrong, revoked or expired" in refused.text) == (403, True), path
    refused = ask(rest.url, "GET", "/?Action=ListQueues", shown)
    assert (refused.status, "<Code>InvalidClientTokenId</Code>" in refused.text) == (403, True)
    assert rest.call("GET", "/v1/keys") == []
    [revoked] = rest.call("GET", "/v1/keys?revoked=true")
    assert revoked["revoked_at"] is not None


def test_pages_of_keys(rest: Rest) -> None:
    made = [rest.call("POST", "/v1/keys", {"name": name}, status=201)["id"] for name in "abc"]
    page = rest.ask("GET", "/v1/keys?limit=2")
    assert [key["id"] for key in json.loads(page.body)] == made[:2]
    target = page.headers["link"].partition(">")[0].removeprefix("<")
    assert [key["id"] for key in rest.call("GET", target)] == made[2:]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"name": ""}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": "a", "rate_limit": {"requests": 0}}, "requests"),
        ({"name": "a", "rate_limit": {"requests": 1, "window_seconds": 86_401}}, "window_seconds"),
        ({"name": "a", "expires_at": "2001-01-01T00:00:00Z"}, "expired already"),
        ({"name": "a", "expires_at": "2030-01-01T00:00:00"}, "expires_at"),
        ({"name": "a", "key": "qg_1_mine"}, "key"),
    ],
)
def test_what_is_no_key_is_refused(rest: Rest, body: dict[str, object], text: str) -> None:
    assert text in rest.refusal("POST", "/v1/keys", body)


def test_refusals_of_keys(rest: Rest) -> None:
    rest.call("POST", "/v1/keys", {"name": "shop"}, status=201)
    assert "shop" in rest.refusal("POST", "/v1/keys", {"name": "shop"}, status=409)
    absent = 9223372036854775806
    text = rest.refusal("GET", f"/v1/keys/{absent}", status=404)
    assert text == f"There is no key {absent}."
    assert rest.refusal("DELETE", "/v1/keys/9223372036854775807", status=404)
    rest.refusal("DELETE", "/v1/keys/9223372036854775808", status=400)


def test_a_limit_holds_and_says_when_to_come_back(server: Server, rest: Rest) -> None:
    limit = {"requests": 3, "window_seconds": 3600}
    made = rest.call("POST", "/v1/keys", {"name": "shop", "rate_limit": limit}, status=201)
    body = json.dumps({"channel": "alerts", "payload": 1}).encode()
    shown = {"X-Api-Key": made["key"]}
    answers = [ask(server.url, "POST", "/v1/messages", shown, body) for _ in range(5)]
    assert [one.status for one in answers] == [201, 201, 201, 429, 429]
    assert 3500 < int(answers[-1].headers["retry-after"]) <= 3700
    assert "rate limit" in answers[-1].text
    labels = f'account="{rest.account}",key="shop"'
    assert server.metric(f"queuegate_requests_throttled_total{{{labels}}}") == 2
    messages = [{"channel": "alerts", "payload": number} for number in range(4)]
    bulk = ask(server.url, "POST", "/v1/messages/bulk", shown, json.dumps(messages).encode())
    assert bulk.status == 429


def test_a_signature_comes_before_a_key(rest: Rest) -> None:
    """The fast path looks at nothing else; so no path does."""
    headers = {"X-Api-Key": "qg_1_wrong"}
    rest.create("jobs")
    assert rest.ask("GET", "/v1/queues/jobs", headers=headers).status == 200
    with Sqs("json", rest.url, rest.account) as sqs:
        url = sqs.call("GetQueueUrl", QueueName="jobs")["QueueUrl"]
        assert sqs.ask("SendMessage", {"QueueUrl": url, "MessageBody": "x"}).status == 200


def test_processes_on_one_database_know_a_key_at_once(server: Server) -> None:
    with Server(dsn=server.dsn) as second, Rest(server.url) as rest, Rest(second.url) as other:
        until(lambda: other.ask("GET", "/readyz").status, lambda status: status == 200)
        for number in range(5):
            made = rest.call("POST", "/v1/keys", {"name": f"shop-{number}"}, status=201)
            shown = {"X-Api-Key": made["key"]}
            assert ask(second.url, "GET", "/v1/queues", shown).status == 200
            rest.call("DELETE", f"/v1/keys/{made['id']}", status=204)
            assert ask(second.url, "GET", "/v1/queues", shown).status == 403

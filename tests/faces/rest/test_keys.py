"""Keys over the native API, and what whoever shows one gets on each face."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.faces.clients import Sqs
from tests.faces.connections import Answer, Connection, request_bytes
from tests.faces.rest.client import Rest
from tests.faces.servers import Server
from tests.waiting import until


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


def test_nobody_makes_an_administrator_whom_nobody_verified(rest: Rest) -> None:
    for more in ({"kind": "access"}, {"administrator": True}, {"account_id": "123123123123"}):
        text = rest.refusal("POST", "/v1/keys", {"name": "more", **more}, status=403)
        assert "administrator" in text
    assert "administrator" in rest.refusal("GET", "/v1/keys?account=123123123123", status=403)


def test_a_key_that_is_disabled_is_not_taken(rest: Rest) -> None:
    key = rest.call("POST", "/v1/keys", {"name": "shop"}, status=201)
    place, shown = f"/v1/keys/{key['id']}", {"X-Api-Key": key["key"]}
    assert rest.call("PATCH", place, {"disabled": True})["disabled_at"] is not None
    assert ask(rest.url, "GET", "/v1/queues", shown).status == 403
    rest.call("PATCH", place, {"disabled": False})
    assert ask(rest.url, "GET", "/v1/queues", shown).status == 200
    assert "does not sign" in rest.refusal("POST", f"{place}/rotations", status=400)


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


SENDS = {
    "aws": ("/?Action=SendMessage&MessageBody=x&QueueUrl=/{account}/jobs", b""),
    "aws publish": ("/?Action=Publish&Message=x&TopicArn={topic}", b""),
    "rest": ("/v1/queues/jobs/messages", b'{"message": 1}'),
    "event": ("/v1/events/a.b", b'{"message": 1}'),
    "simple": ("/api/queues/{queue}/messages", b'{"data": "x"}'),
    "text": ("/queue?group-id=x", b"x"),
    "channels": ("/v1/messages", b'{"channel": "jobs", "payload": 1}'),
    "logs": ("/v1/logs/jobs/records", b'{"records": [{"key": "a", "payload": "x"}]}'),
}


@pytest.fixture(scope="module")
def limited(server: Server) -> Iterator[tuple[str, dict[str, str]]]:
    """A key of two messages in an hour that were sent, and what its account has."""
    with Rest(server.url) as rest:
        rest.create("jobs")
        limit = {"requests": 2, "window_seconds": 3600}
        made = rest.call("POST", "/v1/keys", {"name": "all", "rate_limit": limit}, status=201)
        shown = {"X-Api-Key": made["key"]}
        topic = ask(server.url, "GET", "/?Action=CreateTopic&Name=news", shown).text
        listed = json.loads(ask(server.url, "GET", "/api/queues", shown).body)
        for _ in range(2):
            ask(server.url, "POST", "/v1/queues/jobs/messages", shown, b'{"message": 1}')
        yield (
            made["key"],
            {
                "account": rest.account,
                "topic": topic.partition("<TopicArn>")[2].partition("<")[0],
                "queue": listed["queues"][0]["queue_id"],
            },
        )


@pytest.mark.parametrize("face", SENDS)
def test_the_limit_of_a_key_holds_on_every_face(
    server: Server, limited: tuple[str, dict[str, str]], face: str
) -> None:
    key, things = limited
    target, body = SENDS[face]
    refused = ask(server.url, "POST", target.format(**things), {"X-Api-Key": key}, body)
    status, word = {
        "aws": (403, "<Code>RequestThrottled</Code>"),
        "aws publish": (429, "<Code>Throttled</Code>"),
    }.get(face, (429, "rate limit"))
    assert (refused.status, word in refused.text) == (status, True), refused.text
    assert int(refused.headers["retry-after"]) > 3000
    assert ask(server.url, "GET", "/v1/queues", {"X-Api-Key": key}).status == 200, "it reads on"


def test_a_signature_comes_before_a_key(rest: Rest) -> None:
    """The fast path looks at nothing else; so no path does."""
    headers = {"X-Api-Key": "qg_1_wrong"}
    rest.create("jobs")
    assert rest.ask("GET", "/v1/queues/jobs", headers=headers).status == 200
    with Sqs("json", rest.url, rest.account) as sqs:
        url = sqs.url_of("jobs")
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


class Logged(Server):
    """A gateway that logs all it can, into this file."""

    def __init__(self, log: IO[str]) -> None:
        self.log = log
        super().__init__("--access-log", QUEUEGATE_LOG_LEVEL="debug", QUEUEGATE_LOG_FORMAT="json")


ODD = {
    "long": "qg_1_" + "x" * 8_000,
    "longer": "qg_" + "9" * 8_000 + "_x",
    "bytes": "qg_1_\xff\xfe",
    "nothing": "qg_",
    "spaces": "qg_1_ x",
    "quotes": "qg_1_\"'; DROP TABLE keys; --",
}


@pytest.mark.parametrize("key", ODD.values(), ids=ODD)
def test_odd_keys_are_refused_and_no_more(server: Server, key: str) -> None:
    for headers in ({"X-Api-Key": key}, {"Authorization": f"Bearer {key}"}):
        for path in ("/v1/queues", "/api/queues", "/queue", "/v1/messages/poll?channel=x", "/x"):
            assert ask(server.url, "GET", path, headers).status in (401, 403)


def test_producers_are_not_told_apart_in_metrics_without_a_key(server: Server) -> None:
    """A client that invents a new name for each request creates no new series."""
    body = json.dumps({"channel": "names", "payload": 1}).encode()
    for number in range(20):
        shown = {"X-Api-Key": f"drawn-name-{number}"}
        assert ask(server.url, "POST", "/v1/messages", shown, body).status == 201
    assert "drawn-name" not in server.metrics()


def test_what_clients_show_is_in_no_log(tmp_path: Path) -> None:
    """Not in that of requests either, nor in what is said of bad ones, nor where it is in a URL."""
    path = tmp_path / "log"
    with path.open("w") as log, Logged(log) as server, Rest(server.url) as rest:
        made = rest.call("POST", "/v1/keys", {"name": "shop"}, status=201)
        poll = "/v1/messages/poll?channel=x&wait=0"
        secrets = [made["key"].split("_", 2)[2], "qg_1_wrongsecret", "othersecret"]
        for secret in (made["key"], *secrets):
            for target in (poll, "/v1/nowhere", "/queue", "/", "/x/y"):
                with_key = f"{target}{'&' if '?' in target else '?'}api_key={secret}"
                ask(server.url, "GET", with_key, {})
                ask(server.url, "POST", target, {"X-Api-Key": secret}, b"{bad")
                ask(server.url, "GET", target, {"Authorization": f"Bearer {secret}"})
        server.read_on()
    text = path.read_text()
    assert text.count('"request"') > 50
    assert [secret for secret in secrets if secret in text] == []

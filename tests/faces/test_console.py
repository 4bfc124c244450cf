"""The web console at /console: its files, and sessions of a key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faces.connections import Answer, Connection, fetch, request_bytes
from tests.faces.servers import Server
from tests.faces.signing import Verifying
from tests.waiting import until

ACCOUNT = "111122223333"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verifying]:
    with Verifying(tmp_path_factory.mktemp("console")) as running:
        yield running


@pytest.fixture(scope="module")
def key(gateway: Verifying) -> dict[str, Any]:
    """A key of an account, which the gateway knows."""
    made: dict[str, Any] = json.loads(gateway.keys("create", "web", "--account", ACCOUNT, "--json"))
    until(lambda: sign_in(gateway, made["key"]).status, lambda found: found == 200)
    return made


def ask(
    server: Server, target: str, headers: dict[str, str], method: str = "GET", body: bytes = b""
) -> Answer:
    with Connection(server.url) as connection:
        own = {"Host": connection.host} | headers
        connection.send(request_bytes(method, target, own, body))
        return connection.answer()


def sign_in(server: Server, key: object, secret: str = "") -> Answer:
    body = json.dumps({"key": key, "secret": secret}).encode()
    return fetch(server.url, "/console/session", "POST", body, **JSON)


def session_of(server: Server, key: object, secret: str = "") -> dict[str, str]:
    """Headers of a page that has signed in."""
    answer = sign_in(server, key, secret)
    assert answer.status == 200
    cookie = answer.headers["set-cookie"].partition(";")[0]
    return {"Cookie": f"other=1; {cookie}", "X-CSRF-Token": json.loads(answer.body)["csrf"]}


def create(server: Server, name: str, headers: dict[str, str]) -> Answer:
    body = json.dumps({"name": name}).encode()
    return fetch(server.url, "/v1/queues", "POST", body, **JSON, **headers)


def test_files_are_public_and_may_load_nothing_from_elsewhere(gateway: Verifying) -> None:
    assert fetch(gateway.url, "/console").headers["location"] == "/console/"
    views = [fetch(gateway.url, f"/console/{view}") for view in ("", "queues/a%2Fb", "topics")]
    assert {(one.status, one.body) for one in views} == {(200, views[0].body)}
    assert b"/console/assets/console.js" in views[0].body
    script = fetch(gateway.url, "/console/assets/console.js")
    assert script.headers["content-type"].startswith("text/javascript")
    for one in (*views, script):
        rules = one.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'" in rules
        assert "unsafe" not in rules


@pytest.mark.parametrize(
    "name", ["absent.js", "../console_pages.py", "%2e%2e/console_pages.py", "%00"]
)
def test_other_files_are_not_served(gateway: Verifying, name: str) -> None:
    assert fetch(gateway.url, f"/console/assets/{name}").status in (400, 404)


def test_a_gateway_without_keys_describes_itself(server: Server) -> None:
    answer = json.loads(fetch(server.url, "/console/session").body)
    assert (answer["needs_key"], answer["account"], answer["csrf"]) == (False, "000000000000", None)
    create(server, "seen", {"Authorization": "Bearer 000000000001"})
    assert "000000000001" in json.loads(fetch(server.url, "/console/session").body)["accounts"]


def test_a_session_has_the_rights_of_its_key(gateway: Verifying, key: dict[str, Any]) -> None:
    unknown = json.loads(fetch(gateway.url, "/console/session").body)
    assert (unknown["needs_key"], unknown["account"], unknown["accounts"]) == (True, None, {})
    answer = sign_in(gateway, key["key"])
    flags = answer.headers["set-cookie"].lower()
    assert all(flag in flags for flag in ("httponly", "samesite=strict", "path=/"))
    assert key["key"] not in answer.headers["set-cookie"]
    headers = session_of(gateway, key["key"])
    shown = json.loads(ask(gateway, "/console/session", headers).body)
    assert (shown["account"], shown["administrator"]) == (ACCOUNT, False)
    assert create(gateway, "by-console", headers).status == 201
    listed = ask(gateway, "/v1/queues", headers)
    assert "by-console" in [one["name"] for one in json.loads(listed.body)]
    # AWS's own API takes the session, too.
    members = b'{"QueueNamePrefix": "by-"}'
    asked = JSON | {
        "X-Amz-Target": "AmazonSQS.ListQueues",
        "Content-Type": "application/x-amz-json-1.0",
    }
    assert b"by-console" in fetch(gateway.url, "/", "POST", members, **asked | headers).body


def test_changes_need_the_token_of_the_session(gateway: Verifying, key: dict[str, Any]) -> None:
    headers = session_of(gateway, key["key"])
    for token in ("", "0" * 32, "é"):
        assert create(gateway, "by-nobody", headers | {"X-CSRF-Token": token}).status == 403
    stranger = headers | {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert create(gateway, "by-nobody", stranger).status == 403
    assert ask(gateway, "/v1/queues/by-nobody", headers).status == 404


def test_a_get_needs_the_token_too(gateway: Verifying, key: dict[str, Any]) -> None:
    """A page on another port of the host makes the browser send the cookie with an image."""
    headers = session_of(gateway, key["key"])
    assert create(gateway, "stays", headers).status == 201
    cookie = {"Cookie": headers["Cookie"]}
    for target in ("/?Action=DeleteQueue&QueueUrl=stays", "/v1/queues/stays/messages"):
        assert ask(gateway, target, cookie).status == 403
    assert ask(gateway, "/v1/queues/stays", headers).status == 200
    assert json.loads(ask(gateway, "/console/session", cookie).body)["account"] == ACCOUNT


def test_cookies_that_are_not_ours_sign_nobody_in(gateway: Verifying, key: dict[str, Any]) -> None:
    cookie = session_of(gateway, key["key"])["Cookie"]
    for wrong in (
        cookie[:-3],
        cookie.replace("gAAAA", "gAAAB"),
        "queuegate_session=",
        "queuegate_session=é;",
    ):
        assert fetch(gateway.url, "/v1/queues", Cookie=wrong).status == 403
    assert (
        fetch(gateway.url, "/v1/queues", Cookie=cookie, Authorization="Bearer other").status == 400
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"key": 1}',
        b'{"key": "a b"}',
        b'{"key": "\xff"}',
        b'{"key": "' + b"k" * 300 + b'"}',
    ],
)
def test_a_key_is_a_short_text(gateway: Verifying, body: bytes) -> None:
    answer = fetch(gateway.url, "/console/session", "POST", body, **JSON)
    assert (answer.status, "error" in json.loads(answer.body)) == (400, True)


def test_unknown_keys_and_those_that_were_revoked(gateway: Verifying, key: dict[str, Any]) -> None:
    assert sign_in(gateway, "any").status == 403
    made = json.loads(gateway.keys("create", "leaver", "--account", ACCOUNT, "--json"))
    until(lambda: sign_in(gateway, made["key"]).status, lambda found: found == 200)
    headers = session_of(gateway, made["key"])
    gateway.keys("revoke", str(made["id"]))
    until(lambda: ask(gateway, "/v1/queues", headers).status, lambda found: found == 403)
    gone = ask(gateway, "/console/session", headers, "DELETE")
    assert (gone.status, "max-age=0" in gone.headers["set-cookie"].lower()) == (204, True)


def test_only_administrators_operate(gateway: Verifying, key: dict[str, Any]) -> None:
    """The view of operators asks these pages."""
    headers = session_of(gateway, key["key"])
    create(gateway, "operated", headers)
    health = json.loads(gateway.first.ask("GET", "/_admin/health").body)
    assert health["database"]["is_up"]
    assert (health["processes"], health["audit"]) == (1, "off")
    tables = [one["name"] for one in health["database"]["statistics"]["tables"]]
    assert "messages" in tables
    page = "/metrics?names=new&name[]=queuegate_queue_depth"
    assert "queue=" not in ask(gateway, page, headers).text
    assert ask(gateway, "/_admin/health", headers).status == 403
    assert ask(gateway, "/_admin/health", {}).status == 403


def test_it_can_be_read_only_or_off(tmp_path: Any) -> None:
    with Verifying(tmp_path, QUEUEGATE_CONSOLE="read-only") as reading:
        made = json.loads(reading.keys("create", "web", "--account", ACCOUNT, "--json"))
        until(lambda: sign_in(reading, made["key"]).status, lambda found: found == 200)
        headers = session_of(reading, made["key"])
        assert ask(reading, "/v1/queues", headers).status == 200
        assert create(reading, "by-reader", headers).status == 403
        assert create(reading, "by-key", {"Authorization": f"Bearer {made['key']}"}).status == 201
        for changing in (
            "/?Action=SendMessage&MessageBody=a&QueueUrl=by-key",
            "/?Action=DeleteQueue&QueueUrl=by-key",
            "/?Action=GetSessionToken&Version=2011-06-15",
            "/v1/queues/by-key/messages",
            "/v1/messages/poll?channel=by-key",
        ):
            assert ask(reading, changing, headers).status == 403
        assert ask(reading, "/v1/queues/by-key/browse", headers).status == 200
        # A view of the console reads by POST, too.
        members = b'{"QueueUrl": "by-key", "AttributeNames": ["All"]}'
        target = {"X-Amz-Target": "AmazonSQS.GetQueueAttributes"}
        json_wire = {"Content-Type": "application/x-amz-json-1.0"}
        found = fetch(reading.url, "/", "POST", members, **headers, **target, **json_wire)
        assert found.status == 200
        topic = "/v1/topics/none"
        sample = b'{"message": 1}'
        tried = fetch(reading.url, f"{topic}/trials", "POST", sample, **JSON, **headers)
        assert tried.status == 404
        redrive = f"{topic}/deliveries/redrive"
        refused = fetch(reading.url, redrive, "POST", b'{"ids": "all"}', **JSON, **headers)
        assert refused.status == 403
    with Server(QUEUEGATE_CONSOLE="off") as without:
        assert fetch(without.url, "/console/").status == 404

"""Origins of requests: headers count only if a trusted proxy sends them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from queuegate.gateway.configuration.settings import BadSetting, Settings
from queuegate.gateway.configuration.values import parse_networks
from queuegate.gateway.http.admission import Origins
from queuegate.gateway.operations.access.caller import RequestOrigin
from tests.faces.connections import Answer, Connection, request_bytes
from tests.faces.servers import Server

PROXIES = "127.0.0.2,10.0.0.0/8,2001:db8::/32"
PROXY = "10.0.0.1"
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")


def origin(peer: str = PROXY, scheme: str = "http", **headers: str) -> RequestOrigin:
    named = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
    return Origins(parse_networks(PROXIES)).of((peer, 1), scheme, named)


@pytest.mark.parametrize(
    ("told", "address"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("203.0.113.9:4711", "203.0.113.9"),
        ("[2001:db9::1]:4711", "2001:db9::1"),
        ("2001:DB9::1", "2001:db9::1"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("fe80::1%eth0", "fe80::1"),
        # Whatever the client wrote itself stands left of what the proxies added.
        ("127.0.0.1, 203.0.113.9", "203.0.113.9"),
        ("127.0.0.1,203.0.113.9 , 10.1.2.3,[2001:db8::7]", "203.0.113.9"),
        ("10.9.9.9, 10.1.2.3", "10.9.9.9"),
        ("unknown", ""),
        ("", ""),
        ("203.0.113.9, nonsense", ""),
        ("203.0.113.9, nonsense, 10.1.2.3", ""),
        ("nonsense, 203.0.113.9", "203.0.113.9"),
        ("127.0.0.1," + "10.0.0.1," * 5000 + "10.0.0.1", "10.0.0.1"),
    ],
)
def test_the_last_address_that_is_no_proxys_is_the_clients(told: str, address: str) -> None:
    assert origin(x_forwarded_for=told).address == address
    assert origin("192.0.2.1", x_forwarded_for=told).address == "192.0.2.1"
    quoted = ",".join(f'for="{one.strip()}"' for one in told.split(","))
    assert origin(forwarded=quoted).address == address


def test_without_headers_it_is_the_peer() -> None:
    assert origin("10.0.0.1", "https") == RequestOrigin("10.0.0.1", "https")
    assert origin("::ffff:10.0.0.1").address == "10.0.0.1"
    assert Origins().of(None, "http", []) == RequestOrigin("", "http")


@pytest.mark.parametrize(
    ("headers", "scheme", "host"),
    [
        ({"x_forwarded_proto": "HTTPS"}, "https", ""),
        ({"x_forwarded_proto": "javascript"}, "http", ""),
        ({"x_forwarded_host": "a.example:81"}, "http", "a.example:81"),
        ({"x_forwarded_host": "a.example/../b"}, "http", ""),
        ({"x_forwarded_host": 'a"b'}, "http", ""),
        ({"x_forwarded_host": "e.example, a.example"}, "http", "a.example"),
        # One that its client wrote, and one by the proxy that heard it.
        ({"x_forwarded_proto": "https, http"}, "http", ""),
        # Two proxies, and both of them wrote all lists.
        (
            {"x_forwarded_for": "203.0.113.9, 10.0.0.2", "x_forwarded_proto": "https, http"},
            "https",
            "",
        ),
        ({"forwarded": "for=203.0.113.9;proto=https;host=a.example"}, "https", "a.example"),
        ({"forwarded": 'For="203.0.113.9" ; Host="a.example:1"'}, "http", "a.example:1"),
        ({"forwarded": "for=x;proto=https;host=a.example"}, "http", ""),
        ({"forwarded": 'for="1.2.3.4;proto=https'}, "http", ""),
    ],
)
def test_scheme_and_host_are_what_the_proxy_heard(
    headers: dict[str, str], scheme: str, host: str
) -> None:
    found = origin(**headers)
    assert (found.scheme, found.host) == (scheme, host)
    assert origin("192.0.2.1", "https", **headers) == RequestOrigin("192.0.2.1", "https")


def test_two_kinds_of_headers_that_differ_are_both_disbelieved() -> None:
    """A proxy writes one of them, and lets pass what its client wrote into the other."""
    differ = origin(
        x_forwarded_for="203.0.113.9",
        x_forwarded_proto="https",
        x_forwarded_host="a.example",
        forwarded="for=127.0.0.1;proto=http;host=b.example",
    )
    assert differ == RequestOrigin("", "http", "")
    agree = origin(x_forwarded_for="203.0.113.9", forwarded="for=203.0.113.9;proto=https")
    assert agree == RequestOrigin("203.0.113.9", "https")


@pytest.mark.parametrize(
    ("peer", "headers", "is_local"),
    [
        ("127.0.0.1", {}, True),
        ("::1", {}, True),
        ("::ffff:127.0.0.1", {}, True),
        ("127.0.0.1", {"host": "[::1]:9324"}, True),
        ("127.0.0.1", {"host": "sqs.us-east-1.localhost"}, True),
        ("192.0.2.1", {}, False),
        ("10.0.0.1", {"x_forwarded_for": "127.0.0.1"}, False),
        # A page of the web whose name was pointed at this machine, or a proxy that kept the name.
        ("127.0.0.1", {"host": "queues.example"}, False),
        # A proxy that nobody said is one: for whom it asks is not known.
        ("127.0.0.1", {"x_forwarded_for": "127.0.0.1"}, False),
        ("127.0.0.1", {"forwarded": "for=127.0.0.1"}, False),
        ("127.0.0.1", {"x_forwarded_proto": "https"}, False),
        ("127.0.0.1", {"via": "1.1 proxy"}, False),
        ("127.0.0.1", {"x_real_ip": "127.0.0.1"}, False),
        # A web hook of our own.
        ("127.0.0.1", {"x_amz_sns_message_type": "Notification"}, False),
        # One that somebody said is one.
        ("127.0.0.2", {}, True),
        ("127.0.0.2", {"x_forwarded_for": "127.0.0.1", "via": "1.1 proxy"}, True),
        ("127.0.0.2", {"x_forwarded_for": "203.0.113.9"}, False),
        ("127.0.0.2", {"x_forwarded_for": "127.0.0.1, 203.0.113.9"}, False),
        ("127.0.0.2", {"x_forwarded_for": "unknown"}, False),
        ("127.0.0.2", {"via": "1.1 proxy"}, False),
        ("127.0.0.2", {"x_forwarded_proto": "https"}, False),
    ],
)
def test_who_is_on_this_machine(peer: str, headers: dict[str, str], is_local: bool) -> None:
    given = {"host": "localhost:9324"} | headers
    named = [(name.replace("_", "-").encode(), text.encode()) for name, text in given.items()]
    assert Origins(parse_networks(PROXIES)).is_local((peer, 1), named) is is_local


@pytest.mark.parametrize("text", ["10.0.0.1/8", "proxy.example", "10.0.0.0/33", "10.0.0.1,", ""])
def test_what_is_no_network_is_told(text: str) -> None:
    if not text:
        assert Settings.from_env({"QUEUEGATE_TRUSTED_PROXIES": text}).trusted_proxies == ()
        return
    with pytest.raises(BadSetting, match="QUEUEGATE_TRUSTED_PROXIES"):
        Settings.from_env({"QUEUEGATE_TRUSTED_PROXIES": text})


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A gateway that trusts 127.0.0.2, with an access log."""
    path = tmp_path_factory.mktemp("trusting") / "log"
    with path.open("w") as log:
        logged = type("Logged", (Server,), {"log": log})
        with logged("--access-log", QUEUEGATE_TRUSTED_PROXIES=PROXIES) as server:
            yield server


def ask(
    server: Server, peer: str, method: str, target: str, headers: dict[str, str], body: bytes = b""
) -> Answer:
    with Connection(server.url, source=peer) as connection:
        given = {"Host": "localhost", "Authorization": "any"} | headers
        connection.send(request_bytes(method, target, given, body))
        return connection.answer()


HEARD = {
    "X-Forwarded-For": "127.0.0.1, 203.0.113.9",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "queues.example",
}
JSON = {"Content-Type": "application/x-amz-json-1.0"}


@linux_only
@pytest.mark.parametrize(
    ("peer", "base"), [("127.0.0.1", "http://localhost"), ("127.0.0.2", "https://queues.example")]
)
def test_urls_and_the_access_log_follow_a_trusted_proxy(
    trusting: Server, peer: str, base: str
) -> None:
    """On the fast, the short and the long way."""
    create = {**JSON, "X-Amz-Target": "AmazonSQS.CreateQueue"}
    answer = ask(trusting, peer, "POST", "/", HEARD | create, b'{"QueueName": "orders"}')
    assert json.loads(answer.body)["QueueUrl"] == f"{base}/000000000000/orders"
    document = ask(trusting, peer, "GET", "/v1/openapi.json", HEARD)
    assert json.loads(document.body)["servers"] == [{"url": base}]
    assert _links(trusting, peer) == {urlsplit(base).netloc}
    asked = _asked_from(trusting)
    address = "203.0.113.9" if peer == "127.0.0.2" else "127.0.0.1"
    assert {(address, action) for action in ("CreateQueue", "Subscribe", "Publish")} <= asked


def _links(server: Server, peer: str) -> set[str]:
    """Publish a message each way and return the targets of the links in it."""
    sns = {"Content-Type": "application/x-www-form-urlencoded"}

    def sns_call(**members: str) -> Answer:
        form = "&".join(f"{name}={text}" for name, text in members.items()).encode()
        return ask(server, peer, "POST", "/", HEARD | sns, form + b"&Version=2010-03-31")

    arn = "arn:aws:sns:us-east-1:000000000000:news"
    sns_call(Action="CreateTopic", Name="news")
    queue = arn.replace(":sns:", ":sqs:").replace("news", "orders")
    sns_call(Action="Subscribe", TopicArn=arn, Protocol="sqs", Endpoint=queue)
    for text in ("long", "fast"):
        assert sns_call(Action="Publish", TopicArn=arn, Message=text).status == 200
    found: set[str] = set()
    url = "http://localhost/000000000000/orders"
    receive = {**JSON, "X-Amz-Target": "AmazonSQS.ReceiveMessage"}
    body = json.dumps({"QueueUrl": url, "MaxNumberOfMessages": 10}).encode()
    messages: list[dict[str, Any]] = []
    while len(messages) < 2:
        got = json.loads(ask(server, "127.0.0.1", "POST", "/", receive, body).body)
        messages += got.get("Messages", [])
    for message in messages:
        found.add(urlsplit(json.loads(message["Body"])["UnsubscribeURL"]).netloc)
    return found


def _asked_from(server: Server) -> set[tuple[str, str]]:
    """Addresses and actions of the access log."""
    assert server.log is not None
    lines = [json.loads(line) for line in Path(server.log.name).read_text().splitlines()]
    return {(line["address"], line["action"]) for line in lines if line["message"] == "request"}


PAGES = (
    ("GET", "/_admin/clock", b""),
    ("POST", "/_admin/clock", b'{"advance": "5m"}'),
    ("GET", "/_admin/outbox", b""),
    ("DELETE", "/_admin/outbox", b""),
    ("PUT", "/_admin/sms/opted-out/15550100", b""),
    ("GET", "/_admin/nothing", b""),
    ("GET", "/_aws/nothing", b""),
)


@pytest.mark.parametrize(("method", "path", "body"), PAGES)
@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "203.0.113.9"},
        {"X-Forwarded-For": "127.0.0.1"},
        {"Via": "1.1 proxy"},
        {"Host": "localhost.queues.example"},
        {"X-Amz-Sns-Message-Type": "Notification"},
    ],
)
def test_pages_that_tell_or_change_are_for_who_is_here(
    server: Server, method: str, path: str, body: bytes, headers: dict[str, str]
) -> None:
    before = server.now()
    # Beyond loopback a Host is nobody's: here it is refused before.
    refused = ask(server, "", method, path, headers, body)
    assert refused.status == 403
    if "Host" not in headers:
        assert refused.text.count(". ") == 0
        assert "ask it there at 127.0.0.1" in json.loads(refused.body)["error"]
    passed = datetime.fromisoformat(server.now()) - datetime.fromisoformat(before)
    assert passed < timedelta(minutes=2)
    assert ask(server, "", "GET", path, {}).status in (200, 404, 405)
    assert ask(server, "", "GET", "/livez", headers).status == (403 if "Host" in headers else 200)


@linux_only
def test_behind_a_trusted_proxy_the_client_counts(trusting: Server) -> None:
    for told, status in (("127.0.0.1", 200), ("203.0.113.9", 403), ("127.0.0.1, 203.0.113.9", 403)):
        headers = {"X-Forwarded-For": told}
        assert ask(trusting, "127.0.0.2", "GET", "/_admin/clock", headers).status == status

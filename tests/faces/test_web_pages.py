"""What a web page on the same machine can make a browser send, and what stops it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote, urlencode

import pytest

from gateway.admission import Admission
from tests.faces.clients import Sqs, authorization
from tests.faces.connections import Answer, Connection, request_bytes
from tests.faces.servers import Server
from tests.faces.sns_client import Sns

PAGE = "https://evil.example"
CONSOLE = "https://console.example"
PRESIGNED = {
    "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
    "X-Amz-Date": "20260101T000000Z",
    "X-Amz-Expires": "60",
    "X-Amz-SignedHeaders": "host",
    "X-Amz-Signature": "0" * 64,
}
IMAGE = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.fixture(scope="module")
def open_server() -> Iterator[Server]:
    """A gateway that a console may ask, and that answers to one more name."""
    more = {
        "QUEUEGATE_ALLOWED_ORIGINS": f"{CONSOLE}, http://localhost:3000",
        "QUEUEGATE_ALLOWED_HOSTS": "queues.example",
    }
    with Server(**more) as running:
        yield running


def ask(
    server: Server,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes = b"",
    *,
    host: str = "",
) -> Answer:
    with Connection(server.url) as connection:
        own = {"Host": host or connection.host}
        connection.send(request_bytes(method, target, own | dict(headers), body))
        return connection.answer(to_head=method == "HEAD")


def presigned(action: str, sqs: Sqs, **members: str) -> str:
    scope = f"{sqs.account}/20260101/us-east-1/sqs/aws4_request"
    return "/?" + urlencode({"Action": action, **members, **PRESIGNED, "X-Amz-Credential": scope})


def test_an_image_purges_no_queue(server: Server, query_sqs: Sqs) -> None:
    url = query_sqs.create()
    query_sqs.send(url, "there")
    target = presigned("PurgeQueue", query_sqs, QueueUrl=url)
    for headers in (IMAGE, IMAGE | {"Sec-Fetch-Site": "same-site"}, LINK):
        answer = ask(server, "GET", target, headers)
        assert (answer.status, "<Code>AccessDenied</Code>" in answer.text) == (403, True)
    assert query_sqs.bodies(url) == ["there"]
    # Whoever is no page uses GET as ever.
    assert (
        ask(server, "GET", presigned("GetQueueUrl", query_sqs, QueueName="none"), {}).status == 400
    )
    assert ask(server, "GET", target, {"Sec-Fetch-Site": "none"}).status == 200


def test_half_a_presigned_query_is_no_credentials(server: Server, query_sqs: Sqs) -> None:
    url = query_sqs.create()
    query_sqs.send(url, "there")
    path = url.removeprefix(server.url)
    for part in ("X-Amz-Signature=1", "X-Amz-Algorithm=AWS4-HMAC-SHA256", "X-Amz-Credential=x"):
        answer = ask(server, "GET", f"{path}?Action=PurgeQueue&{part}", {})
        assert answer.status in (400, 403)
    assert query_sqs.bodies(url) == ["there"]


@pytest.mark.parametrize("origin", [PAGE, "null", "http://localhost:1", "https://localhost", ""])
def test_a_form_subscribes_nobody(server: Server, query_sns: Sns, origin: str) -> None:
    topic = query_sns.create()
    form = {"Action": "Subscribe", "TopicArn": topic, "Protocol": "http", "Endpoint": server.url}
    headers = {
        "Origin": origin,
        "Content-Type": "application/x-www-form-urlencoded",
        "Authorization": authorization(query_sns.account, service="sns"),
    }
    assert ask(server, "POST", "/", headers, urlencode(form).encode()).status == 403
    assert not query_sns.call("ListSubscriptionsByTopic", TopicArn=topic).get("Subscriptions")


PATHS = ("/", "/000000000000/q", "/v1/queues", "/_admin/clock", "/metrics", "/schedules", "/livez")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_every_path_asks_where_a_request_comes_from(server: Server, path: str, method: str) -> None:
    for headers, host in (
        ({"Origin": PAGE}, ""),
        ({"Origin": PAGE, "Access-Control-Request-Method": "POST"}, ""),
        (IMAGE, ""),
        ({}, "evil.example"),
        ({}, f"evil.example:{server.port}"),
        ({}, "notlocalhost"),
        ({}, "localhost.evil.example"),
    ):
        answer = ask(server, method, path, headers, host=host)
        assert answer.status == 403
        assert "QUEUEGATE_ALLOWED_" in answer.text
        assert "access-control-allow-origin" not in answer.headers


def test_a_refused_page_changes_no_clock(server: Server) -> None:
    before = server.now()
    body = b'{"advance_seconds": 86400}'
    assert ask(server, "POST", "/_admin/clock", {"Origin": PAGE}, body).status == 403
    assert server.now()[:10] == before[:10]


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:9", "sqs.us-east-1.localhost", "localhost.",
     "host.docker.internal:9324", "a.host.docker.internal"],
)  # fmt: skip
def test_names_of_this_machine_are_ours(server: Server, host: str) -> None:
    assert ask(server, "GET", "/livez", {}, host=host).status == 200


def test_configured_names_are_ours(open_server: Server) -> None:
    for host in ("queues.example", "sqs.queues.example:80"):
        assert ask(open_server, "GET", "/livez", {}, host=host).status == 200
    assert ask(open_server, "GET", "/livez", {}, host="other.example").status == 403


def test_the_gateways_own_pages_may_ask(server: Server) -> None:
    headers = {"Origin": server.url, "Sec-Fetch-Site": "same-origin"}
    assert ask(server, "GET", "/_admin/clock", headers).status == 200


def test_the_base_url_is_ours() -> None:
    """Its host behind a proxy that keeps it, its origin behind one that does not."""
    admission = Admission(host="127.0.0.1", base_url="https://base.example:8443")
    for host, origin, is_let_in in (
        (b"base.example:8443", b"https://base.example:8443", True),
        (b"127.0.0.1:9324", b"https://base.example:8443", True),
        (b"127.0.0.1:9324", b"https://other.example:8443", False),
        (b"other.example", b"https://base.example:8443", False),
    ):
        headers = [(b"host", host), (b"origin", origin)]
        scope = {"method": "GET", "raw_path": b"/", "query_string": b"", "headers": headers}
        assert (admission.judge(scope).reason == "") == is_let_in


def test_a_listed_page_is_told_that_it_may_ask(open_server: Server) -> None:
    preflight = {
        "Origin": CONSOLE,
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "cors",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,x-amz-target",
        "Access-Control-Request-Private-Network": "true",
    }
    for path in PATHS:
        answer = ask(open_server, "OPTIONS", path, preflight)
        assert (answer.status, answer.body) == (204, b"")
        assert answer.headers["access-control-allow-origin"] == CONSOLE
        assert "POST" in answer.headers["access-control-allow-methods"]
        allowed = answer.headers["access-control-allow-headers"]
        assert allowed == "authorization,content-type,x-amz-target"
        assert answer.headers["access-control-allow-private-network"] == "true"


def test_a_listed_page_reads_answers_and_refusals(open_server: Server) -> None:
    with Sqs("json", open_server.url) as sqs:
        for action, status in (("ListQueues", 200), ("Nothing", 400)):
            headers = {
                "Origin": CONSOLE,
                "X-Amz-Target": f"AmazonSQS.{action}",
                "Content-Type": "application/x-amz-json-1.0",
                "Authorization": authorization(sqs.account),
            }
            answer = ask(open_server, "POST", "/", headers, b"{}")
            assert answer.status == status
            assert answer.headers["access-control-allow-origin"] == CONSOLE
            assert answer.headers["vary"] == "origin"
            assert "x-amzn-requestid" in answer.headers["access-control-expose-headers"]


@pytest.mark.parametrize("wire", ["json", "query"])
def test_a_page_asks_on_the_fast_path_no_more_than_elsewhere(server: Server, wire: str) -> None:
    """What the fast path takes all day is refused with one more header."""
    with Sqs(wire, server.url) as sqs:
        url = sqs.create()
        for _ in range(3):
            sqs.send(url, "b")
        body = {"QueueUrl": url, "MessageBody": "b"}
        for headers in ({"Origin": PAGE}, IMAGE, {"Host": "evil.example"}):
            assert sqs.ask("SendMessage", body, headers=headers).status == 403
        assert len(sqs.bodies(url, 10)) == 3


@pytest.mark.parametrize("path", ["/livez", "/metrics", "/_admin/clock", "/v1/openapi.json"])
def test_a_link_to_what_only_shows_something_may_be_followed(server: Server, path: str) -> None:
    assert ask(server, "GET", path, LINK).status == 200
    assert ask(server, "GET", path, LINK | {"Sec-Fetch-Dest": "iframe"}).status == 403
    assert ask(server, "POST", path, LINK).status == 403


def test_links_in_messages_of_sns_may_be_followed(server: Server, query_sns: Sns) -> None:
    topic = query_sns.create()
    arn = quote(topic)
    answer = ask(server, "GET", f"/?Action=ConfirmSubscription&TopicArn={arn}&Token=x", LINK)
    assert (answer.status, "InvalidParameter" in answer.text) == (400, True)
    answer = ask(server, "GET", f"/?Action=Unsubscribe&SubscriptionArn={arn}:x", LINK)
    assert (answer.status, "AccessDenied" in answer.text) == (400, False)
    twice = f"/?Action=Publish&Action=Unsubscribe&TopicArn={arn}&Message=x"
    assert ask(server, "GET", twice, LINK).status == 403
    assert ask(server, "POST", "/?Action=Unsubscribe", LINK).status == 403


def test_beyond_loopback_any_name_is_ours_and_pages_are_not() -> None:
    with Server("--host", "0.0.0.0") as server:
        assert ask(server, "GET", "/livez", {}, host="anything.example").status == 200
        assert ask(server, "GET", "/livez", {"Origin": PAGE}).status == 403
        with Sns("query", server.url) as sns:
            topic = sns.create()
            with Sqs("json", server.url, sns.account) as sqs:
                queue = sqs.create()
                sns.call("Subscribe", TopicArn=topic, Protocol="sqs", Endpoint=sqs.arn(queue))
                for _ in range(2):
                    answer = sns.ask(
                        "Publish",
                        {"TopicArn": topic, "Message": "m"},
                        headers={"Host": "evil.example"},
                    )
                    assert answer.status == 200
                bodies = sqs.bodies(queue, 10)
    assert len(bodies) == 2
    for body in bodies:
        assert "evil.example" not in body
        assert re.search(r'"UnsubscribeURL" : "http://[^/"]+:\d+/', body)

"""Requests that a web page can make a browser on the same machine send, and their refusal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import quote, urlencode

import pytest

from queuegate.gateway.faces.interface import Request
from queuegate.gateway.http.admission import Admission
from tests.faces.clients import Sqs, authorization, read_xml
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
        assert (answer.status, read_xml(answer.body)["Error"]["Code"]) == (403, "AccessDenied")
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
    admission = Admission(listens_on=["127.0.0.1"], base_url="https://base.example:8443")
    for host, origin, is_let_in in (
        ("base.example:8443", "https://base.example:8443", True),
        ("127.0.0.1:9324", "https://base.example:8443", True),
        ("127.0.0.1:9324", "https://other.example:8443", False),
        ("other.example", "https://base.example:8443", False),
    ):
        request = Request("GET", "/", b"", {"host": host, "origin": origin}, b"", "", "", "1")
        assert (admission.judge(request).reason == "") == is_let_in


@pytest.mark.parametrize(
    ("listens_on", "is_let_in"),
    [
        (["localhost"], False),
        (["127.0.0.1", "::1"], False),
        (["localhost", "10.0.0.7"], True),
        (["10.0.0.7", "::1"], True),
    ],
)
def test_every_address_is_one_of_loopback_or_any_host_is_ours(
    listens_on: list[str], is_let_in: bool
) -> None:
    request = Request("GET", "/", b"", {"host": "other.example"}, b"", "", "", "1")
    assert (Admission(listens_on=listens_on).judge(request).reason == "") == is_let_in


OF_THE_SDK = (
    "amz-sdk-invocation-id,amz-sdk-request,authorization,content-type,x-amz-content-sha256,"
    "x-amz-date,x-amz-security-token,x-amz-target,x-amz-user-agent,x-amzn-trace-id,x-my-own"
)
"""Names of headers, as a browser asks for them."""


@pytest.mark.parametrize("host", ["", "evil.example"])
@pytest.mark.parametrize("path", [*PATHS, "/v1/queues/q/messages", "/schedules/s"])
def test_a_listed_page_is_told_that_it_may_ask(open_server: Server, path: str, host: str) -> None:
    """Under an unknown name too: it is the request that is refused, in words that it can read."""
    preflight = {
        "Origin": CONSOLE,
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "cors",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": OF_THE_SDK,
        "Access-Control-Request-Private-Network": "true",
    }
    answer = ask(open_server, "OPTIONS", path, preflight, host=host)
    assert (answer.status, answer.body) == (204, b"")
    methods = answer.headers["access-control-allow-methods"]
    assert {*methods.split(", ")} >= {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}
    told = {name: value for name, value in answer.headers.items() if name.startswith("access-")}
    assert told == {
        "access-control-allow-origin": CONSOLE,
        "access-control-allow-methods": methods,
        "access-control-allow-headers": OF_THE_SDK,
        "access-control-allow-private-network": "true",
        "access-control-max-age": "7200",
    }
    assert answer.headers["vary"] == "origin"


def test_a_preflight_is_told_what_it_asks_and_no_more(open_server: Server) -> None:
    preflight = {"Origin": CONSOLE, "Access-Control-Request-Method": "GET"}
    answer = ask(open_server, "OPTIONS", "/livez", preflight)
    assert "access-control-allow-headers" not in answer.headers
    assert "access-control-allow-private-network" not in answer.headers
    # Without its method it is any request.
    assert ask(open_server, "OPTIONS", "/livez", {"Origin": CONSOLE}).status == 405


SIMPLE = {
    "date", "content-type", "content-length", "vary", "connection",
    "access-control-allow-origin", "access-control-expose-headers",
}  # fmt: skip
"""What a page may read anyway, or need not."""


def assert_a_page_can_read(answer: Answer, origin: str = CONSOLE) -> None:
    """All of it, headers too; and it was asked without cookies."""
    assert answer.headers["access-control-allow-origin"] == origin
    assert answer.headers["vary"] == "origin"
    shown = answer.headers["access-control-expose-headers"].split(", ")
    assert {*answer.headers} - SIMPLE <= {*shown}
    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize(
    ("method", "target", "headers", "body", "status"),
    [
        ("POST", "/", {}, b"", 403),
        ("POST", "/000000000000/none", {"Authorization": "any"}, b"Action=PurgeQueue", 400),
        ("GET", "/000000000000/none?Action=PurgeQueue", {"Authorization": "any"}, b"", 400),
        ("POST", "/", {"Authorization": "any", "Content-Length": "99999999"}, b"", 413),
        ("POST", "/", {"Authorization": "any"}, b"x" * 9_000_000, 413),
        ("POST", "/v1/queues", {"Authorization": "any", "Content-Length": "99999999"}, b"", 413),
        ("POST", "/v1/queues", {}, b"{}", 403),
        ("POST", "/v1/queues", {"Authorization": "any"}, b"{}", 400),
        ("POST", "/v1/queues", {"Authorization": "any"}, b'{"name": "of-a-page"}', 201),
        ("TRACE", "/v1/queues", {"Authorization": "any"}, b"", 405),
        ("GET", "/v1/queues/none/messages", {"Authorization": "any"}, b"", 404),
        ("GET", "/v1/openapi.json", {}, b"", 200),
        ("POST", "/schedules/s", {}, b"{}", 403),
        ("GET", "/livez", {}, b"", 200),
        ("HEAD", "/livez", {}, b"", 200),
        ("POST", "/livez", {}, b"", 405),
        ("GET", "/_admin/none", {}, b"", 404),
        ("GET", "/_admin/outbox", {}, b"", 403),
        ("GET", "/livez", {"Host": "evil.example"}, b"", 403),
        ("POST", "/", {"Host": "evil.example", "Authorization": "any"}, b"", 403),
        ("GET", "/v1/queues", {"Host": "evil.example"}, b"", 403),
    ],
)  # fmt: skip
def test_a_listed_page_reads_every_answer(
    open_server: Server, method: str, target: str, headers: dict[str, str], body: bytes, status: int
) -> None:
    asked = {"Origin": CONSOLE, "Sec-Fetch-Site": "cross-site", **headers}
    answer = ask(open_server, method, target, asked, body)
    assert answer.status == status
    assert_a_page_can_read(answer)


@pytest.mark.parametrize("at_queue_url", [False, True])
@pytest.mark.parametrize("wire", ["json", "query"])
def test_a_listed_page_sends_and_receives(
    open_server: Server, wire: str, at_queue_url: bool
) -> None:
    """The fast path gives a page its usual answers, with the headers that share them."""
    with Sqs(wire, open_server.url) as sqs:
        url = sqs.create()
        path = url.removeprefix(open_server.url) if at_queue_url else "/"
        for action, members, status in (
            ("SendMessage", {"MessageBody": "from a page"}, 200),
            ("ReceiveMessage", {}, 200),
            ("ReceiveMessage", {"MaxNumberOfMessages": 11}, 400),
        ):
            asked = {"QueueUrl": url, **members}
            page = {"Origin": CONSOLE, "Sec-Fetch-Site": "cross-site"}
            shared = sqs.ask(action, asked, path=path, headers=page)
            assert shared.status == status
            assert_a_page_can_read(shared)
            other = sqs.ask(action, asked)
            assert other.status == status
            assert {*shared.headers} - {*other.headers} == {
                "vary",
                "access-control-allow-origin",
                "access-control-expose-headers",
            }
        assert len(sqs.bodies(url, 10)) == 0


@pytest.mark.parametrize("path", ["/", "/livez", "/v1/openapi.json", "/v1/cert", "/v1/queues"])
def test_caches_keep_answers_to_pages_apart(open_server: Server, server: Server, path: str) -> None:
    """A cache must not give a page the answer to another client: the page could not read it."""
    for headers in ({}, {"Origin": open_server.url}, LINK, {"Accept": "text/html"}):
        answer = ask(open_server, "GET", path, headers)
        assert answer.headers["vary"] == "origin"
        assert "access-control-allow-origin" not in answer.headers
        # Where no page may ask there is nothing to keep apart.
        assert "vary" not in ask(server, "GET", path, headers).headers


def test_all_origins_may_be_let_in() -> None:
    """Still without cookies, and on loopback under names of ours only."""
    with Server(QUEUEGATE_ALLOWED_ORIGINS="*") as server:
        for origin in (PAGE, "null", "http://localhost:3000", "HTTPS://Mixed.Example"):
            answer = ask(server, "GET", "/livez", {"Origin": origin} | IMAGE)
            assert answer.status == 200
            assert_a_page_can_read(answer, origin)
            preflight = {"Origin": origin, "Access-Control-Request-Method": "POST"}
            answer = ask(server, "OPTIONS", "/", preflight)
            assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, origin)
        answer = ask(server, "GET", "/livez", {"Origin": PAGE}, host="evil.example")
        assert (answer.status, "QUEUEGATE_ALLOWED_HOSTS" in answer.text) == (403, True)
        # An image tells no origin, and what it loads cannot be read.
        assert ask(server, "GET", "/v1/queues", IMAGE).status == 403


@pytest.mark.parametrize(
    "origin",
    ["https://console.example.evil.example", "https://console.example:444", "http://console.example",
     "https://evil.console.example", "null", "*", "https://console.example, http://localhost:3000"],
)  # fmt: skip
def test_origins_are_compared_whole(open_server: Server, origin: str) -> None:
    for method in ("POST", "OPTIONS"):
        headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        answer = ask(open_server, method, "/", headers)
        assert answer.status == 403
        assert not any(name.startswith("access-control-") for name in answer.headers)


def test_a_refusal_says_what_to_do(server: Server) -> None:
    answer = ask(server, "GET", "/", {"Origin": "http://localhost:5173" + "x" * 9000})
    assert "http://localhost:5173" in answer.text
    assert len(answer.text) < 1000
    # A sandboxed frame of any site says the same: it cannot be let in alone.
    assert "has no origin" in ask(server, "GET", "/", {"Origin": "null"}).text


@pytest.mark.parametrize("wire", ["json", "query"])
def test_a_page_asks_on_the_fast_path_no_more_than_elsewhere(server: Server, wire: str) -> None:
    """The fast path refuses a page's common request, with one more header."""
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

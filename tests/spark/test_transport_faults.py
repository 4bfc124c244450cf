"""Endpoints that fail, hang, lie and hang up: what is repeated, and what a call ends with."""

from __future__ import annotations

import hashlib
import json
import logging
import multiprocessing
import select
import socket
import socketserver
import ssl
import threading
import time
import traceback
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from spark_connectors.endpoints import Connection, StaticCredentials
from spark_connectors.errors import ConnectorError, Fault, NotNow, Refused
from spark_connectors.signed_service import configured, open_session
from spark_connectors.source.queue_batch_reader import BrowseRange, QueueBrowser
from spark_connectors.transport import MessageEntry, Transport, open_transport
from tests.spark.scripted_endpoint import HANG, HANG_UP, ScriptedEndpoint, answer, refusal
from tests.spark.waiting import wait_for

QUEUE = "http://localhost/000000000000/q"
TOPIC = "arn:aws:sns:us-east-1:000000000000:t"
SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
AWS_HOST = "sqs.eu-west-1.amazonaws.com"
TOKEN = "IQoJb3JpZ2luX2VjEXAMPLETOKEN"


def message(body: str = "a", **other: Any) -> dict[str, Any]:
    digest = hashlib.md5(body.encode(), usedforsecurity=False).hexdigest()
    return {"MessageId": "m", "ReceiptHandle": "r", "Body": body, "MD5OfBody": digest, **other}


ONE = answer({"Messages": [message()]})


@pytest.fixture
def server() -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint(ONE) as endpoint:
        yield endpoint


def opened(url: str, *, max_retries: int = 2) -> Transport:
    static = StaticCredentials("AKID", SECRET, TOKEN)
    return open_transport(Connection(url, "eu-west-1", static=static, max_retries=max_retries))


@pytest.mark.parametrize(
    "failure",
    [
        answer(b"", "500 Internal Server Error"),
        answer(b"<html>bad gateway</html>", "502 Bad Gateway", Content_Type="text/html"),
        refusal("ServiceUnavailable", status="503 Service Unavailable"),
        refusal("com.amazonaws.sqs#RequestThrottled", status="403 Forbidden"),
        refusal("com.amazon.coral.service#ThrottlingException"),
        answer({}, "429 Too Many Requests"),
        HANG_UP,
    ],
)
def test_a_passing_failure_is_repeated(server: ScriptedEndpoint, failure: bytes) -> None:
    server.then(failure, ONE)
    assert opened(server.url).receive(QUEUE, attempt_id="t") == [message()]
    first, second = server.requests
    assert first.body == second.body


@pytest.mark.parametrize("part", [b"HTTP/1.1 200 OK\r\nContent-Le", ONE[:-5], b"SSH-2.0\r\n\r\n"])
def test_half_an_answer_is_repeated(server: ScriptedEndpoint, part: bytes) -> None:
    server.then(part + HANG_UP, ONE)
    assert opened(server.url).receive(QUEUE) == [message()]
    assert len(server.requests) == 2


def test_a_failure_that_stays_is_told_with_place_action_and_cause(server: ScriptedEndpoint) -> None:
    server.then(refusal("ServiceUnavailable", "come back", status="503 Service Unavailable"))
    with pytest.raises(NotNow) as failed:
        opened(server.url).delete(QUEUE, ["r"])
    for part in ("DeleteMessageBatch", server.url, "3 times", "ServiceUnavailable", "come back"):
        assert part in str(failed.value)
    assert len(server.requests) == 3


def test_without_retries_a_call_is_made_once(server: ScriptedEndpoint) -> None:
    server.then(answer({}, "500 Internal Server Error"))
    with pytest.raises(NotNow, match="once"):
        opened(server.url, max_retries=0).figures(QUEUE)
    assert len(server.requests) == 1


def test_an_endpoint_that_is_not_there() -> None:
    with ScriptedEndpoint(ONE) as gone:
        url = gone.url
    with pytest.raises(NotNow, match=url):
        opened(url, max_retries=1).receive(QUEUE)


def test_an_endpoint_that_hangs(server: ScriptedEndpoint) -> None:
    server.then(HANG)
    connection = Connection(server.url)
    session = open_session(connection)
    session.set_config_variable("region", "eu-west-1")
    transport = Transport(session, configured(connection, session), 1, read_seconds=0.1)
    with pytest.raises(NotNow, match="no answer in time"):
        transport.receive(QUEUE)
    wait_for(lambda: len(server.requests) == server.connections == 2)


@pytest.mark.parametrize("nonsense", [answer(b"<html>hello</html>"), answer([1, 2])])
def test_an_answer_that_is_not_of_sqs(server: ScriptedEndpoint, nonsense: bytes) -> None:
    # botocore takes it for an empty queue.
    server.then(nonsense)
    with pytest.raises(NotNow, match="JSON"):
        opened(server.url, max_retries=0).receive(QUEUE)


def test_an_answer_without_our_entry_does_not_pass_for_success(server: ScriptedEndpoint) -> None:
    server.then(answer({"Successful": [{"Id": "1", "MessageId": "m"}]}))
    first, second = opened(server.url).send(QUEUE, [MessageEntry("a"), MessageEntry("b")])
    assert isinstance(first, Fault)
    assert not first.is_senders
    assert second is None


def test_a_damaged_body_is_received_again(server: ScriptedEndpoint) -> None:
    damaged = answer({"Messages": [message() | {"Body": "b"}]})
    server.then(damaged, ONE)
    assert opened(server.url).receive(QUEUE) == [message()]
    server.then(damaged)
    with pytest.raises(NotNow, match="MD5"):
        opened(server.url, max_retries=1).receive(QUEUE)


@pytest.mark.parametrize(
    ("name", "query_name", "code"),
    [
        ("com.amazonaws.sqs#QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", None),
        ("com.amazonaws.sqs#OverLimit", "OverLimit", "OverLimit"),
        ("AWS.SimpleQueueService.NonExistentQueue", None, "QueueDoesNotExist"),
        ("QueueAlreadyExists", None, "QueueNameExists"),
        ("AWS.SimpleQueueService.TooManyEntriesInBatchRequest", None, None),
        ("com.amazon.coral.service#AccessDeniedException", "AccessDenied", "AccessDenied"),
        ("InvalidParameterValueException:http://x#y", None, "InvalidParameterValue"),
        ("com.amazonaws.sqs#ReceiptHandleIsInvalid:", None, "ReceiptHandleIsInvalid"),
    ],
)
def test_a_refusal_has_one_code(
    server: ScriptedEndpoint, name: str, query_name: str | None, code: str | None
) -> None:
    headers = {"x_amzn_query_error": f"{query_name};Sender"} if query_name else {}
    server.then(refusal(name, "the reason", **headers))
    with pytest.raises(Refused) as refused:
        opened(server.url).receive(QUEUE)
    short = name.rpartition("#")[2].rpartition(".")[2]
    assert refused.value.code == (code or short)
    assert refused.value.message == "the reason"
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", ["403 Forbidden", "404 Not Found", "308 Permanent Redirect"])
def test_a_refusal_that_is_not_of_sqs(server: ScriptedEndpoint, status: str) -> None:
    server.then(answer(b"<html>go away</html>", status, Content_Type="text/html"))
    with pytest.raises(Refused) as refused:
        opened(server.url).receive(QUEUE)
    assert refused.value.code == status[:3]


def test_a_refusal_of_sns(server: ScriptedEndpoint) -> None:
    xml = (
        b'<ErrorResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><Error><Type>Sender'
        b"</Type><Code>NotFound</Code><Message>Topic &lt;x&gt;</Message></Error></ErrorResponse>"
    )
    server.then(answer(xml, "404 Not Found", Content_Type="text/xml"))
    with pytest.raises(Refused) as refused:
        opened(server.url).publish(TOPIC, [MessageEntry("a")])
    assert (refused.value.code, refused.value.message) == ("NotFound", "Topic <x>")
    server.then(answer(xml.replace(b"NotFound", b"Throttled"), "429 Too Many Requests"))
    with pytest.raises(NotNow, match="PublishBatch"):
        opened(server.url, max_retries=1).publish(TOPIC, [MessageEntry("a")])


@pytest.mark.parametrize(
    "text", [b"{}", b"<Other/>", b"<!DOCTYPE x [<!ENTITY a 'b'>]><PublishBatchResponse/>"]
)
def test_an_answer_that_is_not_of_sns(server: ScriptedEndpoint, text: bytes) -> None:
    server.then(answer(text))
    with pytest.raises(NotNow):
        opened(server.url, max_retries=0).publish(TOPIC, [MessageEntry("a")])


def test_a_connection_is_kept_open(server: ScriptedEndpoint) -> None:
    transport = opened(server.url)
    for _ in range(5):
        transport.receive(QUEUE)
    assert server.connections == 1


def test_a_kept_connection_that_was_closed_is_replaced_before_it_is_used(
    server: ScriptedEndpoint,
) -> None:
    transport = opened(server.url, max_retries=0)
    for number in range(1, 4):
        server.then(answer({}))
        transport.receive(QUEUE)
        server.hang_up()
        assert transport.receive(QUEUE) == []
        assert len(server.requests) == 2 * number


def test_a_request_that_a_closing_server_did_not_answer_is_sent_again(
    server: ScriptedEndpoint,
) -> None:
    server.then(ONE, HANG_UP, ONE)
    transport = opened(server.url, max_retries=0)
    transport.receive(QUEUE)
    assert transport.receive(QUEUE) == [message()]
    assert (len(server.requests), server.connections) == (3, 2)


@pytest.mark.parametrize("closing", [ONE.replace(b"1.1", b"1.0"), answer({}, Connection="close")])
def test_a_connection_is_not_kept_against_the_servers_will(
    server: ScriptedEndpoint, closing: bytes
) -> None:
    server.then(closing)
    transport = opened(server.url, max_retries=0)
    transport.receive(QUEUE)
    transport.receive(QUEUE)
    assert server.connections == 2


def test_what_follows_an_answer_is_never_taken_for_the_next(server: ScriptedEndpoint) -> None:
    server.then(ONE + answer({"Messages": [message("not asked for")]}), answer({}))
    transport = opened(server.url, max_retries=0)
    assert transport.receive(QUEUE) == [message()]
    assert transport.receive(QUEUE) == []


@pytest.mark.parametrize(
    "form",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n" + ONE,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b'5\r\n{"Mes\r\n8;x=y\r\nsages":[\r\n2\r\n]}\r\n0\r\nTrailer: x\r\n\r\n',
        b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"Messages":[]}',
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-LENGTH:2\r\nX: a:b\r\n\r\n{}",
    ],
)
def test_every_form_of_answer_is_read(server: ScriptedEndpoint, form: bytes) -> None:
    server.then(form)
    transport = opened(server.url, max_retries=0)
    expected = [message()] if form.endswith(ONE) else []
    assert transport.receive(QUEUE) == expected
    assert transport.receive(QUEUE) == expected


@pytest.mark.parametrize("length", [b"-1", b"x", b"9999999999"])
def test_a_length_out_of_range_is_no_answer(server: ScriptedEndpoint, length: bytes) -> None:
    server.then(b"HTTP/1.1 200 OK\r\nContent-Length: " + length + b"\r\n\r\n{}")
    with pytest.raises(NotNow, match="Garbled"):
        opened(server.url, max_retries=0).receive(QUEUE)


def test_a_fork_does_not_use_its_parents_connection(server: ScriptedEndpoint) -> None:
    transport = opened(server.url)
    transport.receive(QUEUE)
    fork = multiprocessing.get_context("fork").Process
    child = fork(target=transport.receive, args=(QUEUE,), daemon=True)
    child.start()
    try:
        child.join(30)
        assert child.exitcode == 0
    finally:
        child.kill()
    assert transport.receive(QUEUE) == [message()]
    assert (len(server.requests), server.connections) == (3, 2)


def test_a_wrong_clock_is_corrected_by_the_servers(server: ScriptedEndpoint) -> None:
    there = time.time() + 3600
    server.then(refusal("SignatureDoesNotMatch", Date=formatdate(there, usegmt=True)), ONE)
    opened(server.url).receive(QUEUE)
    corrected = time.strptime(server.requests[1].headers["x-amz-date"], "%Y%m%dT%H%M%SZ")
    hour = time.strptime(server.requests[0].headers["x-amz-date"], "%Y%m%dT%H%M%SZ")
    assert 3500 < time.mktime(corrected) - time.mktime(hour) < 3700


@pytest.mark.parametrize("date", ["missing", "rubbish", "now"])
def test_a_wrong_signature_is_refused_when_clocks_agree(
    server: ScriptedEndpoint, date: str
) -> None:
    # Of this moment: half an hour of tests may lie between here and the line above.
    told = formatdate(usegmt=True) if date == "now" else date
    server.then(refusal("SignatureDoesNotMatch", **({} if date == "missing" else {"Date": told})))
    with pytest.raises(Refused):
        opened(server.url).receive(QUEUE)
    assert len(server.requests) == 1


def test_no_secret_is_in_errors_or_logs(
    server: ScriptedEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "spark_connectors")
    echoed = f"The Canonical String should have been x-amz-security-token:{TOKEN} {SECRET}"
    server.then(refusal("InvalidSignatureException", echoed))
    with pytest.raises(Refused) as refused:
        opened(server.url).receive(QUEUE)
    server.then(refusal("Throttling", echoed))
    with pytest.raises(NotNow) as failed:
        opened(server.url, max_retries=1).receive(QUEUE)
    texts = ["".join(traceback.format_exception(each.value)) for each in (refused, failed)]
    own = [each.getMessage() for each in caplog.records if each.name.startswith("spark_")]
    assert "Canonical" in texts[0]
    assert not [text for text in texts + own if SECRET in text or TOKEN in text]


def test_a_certificate_must_be_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with ScriptedEndpoint(ONE, context=context) as server:
        with pytest.raises(ConnectorError, match="AWS_CA_BUNDLE"):
            opened(server.url).receive(QUEUE)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
        transport = opened(server.url)
        assert [transport.receive(QUEUE) for _ in range(3)] == [[message()]] * 3
        wait_for(lambda: server.connections == 2)


def self_signed(directory: Path) -> Path:
    """A certificate for 127.0.0.1 and AWS's host, with its key."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "endpoint")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName(AWS_HOST)]
            ),
            False,
        )
        .sign(key, hashes.SHA256())
    )
    path = directory / "certificate.pem"
    pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
    path.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, none)
        + certificate.public_bytes(pem)
    )
    return path


def test_a_proxy_relays_plain_requests(
    server: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.url.replace("://", "://user:p%40ss@"))
    monkeypatch.setenv("NO_PROXY", "other.example")
    assert opened("http://queues.example:9324/sqs").receive(QUEUE) == [message()]
    [request] = server.requests
    assert request.line == "POST http://queues.example:9324/sqs HTTP/1.1"
    assert request.headers["host"] == "queues.example:9324"
    assert request.headers["proxy-authorization"] == "Basic dXNlcjpwQHNz"


def test_a_proxy_tunnels_tls(server: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    server.then(answer(b"", "407 Proxy Authentication Required", Connection="close"))
    monkeypatch.setenv("HTTPS_PROXY", server.url.replace("://", "://user:p%40ss@"))
    monkeypatch.setenv("NO_PROXY", "")
    with pytest.raises(NotNow, match="407") as failed:
        opened("https://queues.example", max_retries=0).receive(QUEUE)
    assert "p@ss" not in str(failed.value)
    [request] = server.requests
    assert request.line.startswith("CONNECT queues.example:443 ")
    assert request.headers["proxy-authorization"] == "Basic dXNlcjpwQHNz"


class Tunnel(socketserver.StreamRequestHandler):
    """A proxy's connection that tunnels every requested host to ``behind``."""

    behind: tuple[str, int]
    asked: list[list[str]]

    def handle(self) -> None:
        self.asked.append([line.decode() for line in iter(self.rfile.readline, b"\r\n")])
        self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        with socket.create_connection(self.behind) as server:
            other = {self.connection: server, server: self.connection}
            while True:
                for source in select.select(list(other), [], [])[0]:
                    data = source.recv(65_536)
                    if not data:
                        return
                    other[source].sendall(data)


def test_a_proxy_tunnels_calls_to_aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS's own endpoint, as botocore names it, verified by its certificate within the tunnel."""
    certificate = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with ScriptedEndpoint(ONE, context=context) as server:
        Tunnel.behind, Tunnel.asked = ("127.0.0.1", int(server.url.rpartition(":")[2])), []
        with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Tunnel) as proxy:
            proxy.daemon_threads = True
            threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True).start()
            monkeypatch.setenv("HTTPS_PROXY", f"http://user:pw@127.0.0.1:{proxy.server_address[1]}")
            monkeypatch.setenv("NO_PROXY", "")
            monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
            static = StaticCredentials("AKID", SECRET)
            transport = open_transport(Connection(region="eu-west-1", static=static, max_retries=0))
            try:
                assert [transport.receive(QUEUE) for _ in range(2)] == [[message()]] * 2
            finally:
                transport.close()
                proxy.shutdown()
    [asked] = Tunnel.asked
    assert asked[0].startswith(f"CONNECT {AWS_HOST}:443 ")
    assert "Proxy-Authorization: Basic dXNlcjpwdw==\r\n" in asked
    assert [request.headers["host"] for request in server.requests] == [AWS_HOST] * 2
    assert "proxy-authorization" not in server.requests[0].headers


def test_browsing_goes_the_way_of_calls(
    server: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.url)
    monkeypatch.setenv("NO_PROXY", "other.example")
    ranges = answer({"as_of": "t", "ranges": [{"after": None, "until": None}]})
    server.then(answer(b"", "503 Service Unavailable"), ranges)
    static = StaticCredentials("AKID", SECRET)
    browser = QueueBrowser(Connection("http://queues.example:9324/at", static=static), "a b")
    assert browser.split(2) == [BrowseRange(None, None, "t")]
    first, second = server.requests
    whole = "http://queues.example:9324/at/v1/queues/a%20b/browse/ranges?parts=2"
    assert first.line == second.line == f"GET {whole} HTTP/1.1"
    assert "Credential=AKID/" in second.headers["authorization"]


def test_no_proxy_is_honoured(server: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    assert opened(server.url).receive(QUEUE) == [message()]
    assert server.requests[0].line == "POST / HTTP/1.1"


def test_a_request_is_what_sqs_expects(server: ScriptedEndpoint) -> None:
    opened(server.url).receive(QUEUE, visibility_seconds=5, wait_seconds=1, attempt_id="x")
    [request] = server.requests
    assert request.headers["x-amz-target"] == "AmazonSQS.ReceiveMessage"
    assert request.headers["content-type"] == "application/x-amz-json-1.0"
    assert json.loads(request.body) == {
        "QueueUrl": QUEUE,
        "AttributeNames": ["All"],
        "MessageSystemAttributeNames": ["All"],
        "MessageAttributeNames": ["All"],
        "MaxNumberOfMessages": 10,
        "VisibilityTimeout": 5,
        "WaitTimeSeconds": 1,
        "ReceiveRequestAttemptId": "x",
    }

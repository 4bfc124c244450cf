"""Bytes are shared: answers that one account leaves unread, and bodies, make no other one fail."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlencode

import pytest
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import ClientError  # type: ignore[import-untyped]
from botocore.session import Session  # type: ignore[import-untyped]

from tests.faces.clients import Sqs, authorization, new_account
from tests.faces.connections import Answer, Connection, request_bytes
from tests.faces.servers import Server
from tests.faces.signing import FORM, JSON, Signer, Verifying
from tests.waiting import until

MOST_BYTES = 67_108_864
LONG_BYTES = 1_000_000
HELD = "queuegate_buffered_bytes"

Ask = tuple[str, str, Mapping[str, str]]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(QUEUEGATE_MAX_BUFFERED_BYTES=str(MOST_BYTES)) as running:
        yield running


def _post(server: Server, account: str, action: str, members: Mapping[str, object]) -> bytes:
    headers = {
        **JSON,
        "Host": server.url.partition("://")[2],
        "X-Amz-Target": f"AmazonSQS.{action}",
        "Authorization": authorization(account),
    }
    return request_bytes("POST", "/", headers, json.dumps(members).encode())


def _account_holds(server: Server, account: str) -> float:
    return server.metric(f'queuegate_account_buffered_bytes{{account="{account}"}}')


def test_unread_answers_of_a_neighbour_make_nobody_fail(server: Server) -> None:
    with Sqs("json", server.url) as noisy, Sqs("json", server.url) as calm:
        queue, own = noisy.create(), calm.create()
        for _ in range(10):
            noisy.send(queue, "b" * LONG_BYTES)
        members = {"QueueUrl": queue, "MaxNumberOfMessages": 10, "VisibilityTimeout": 0}
        receive = _post(server, noisy.account, "ReceiveMessage", members)
        with contextlib.ExitStack() as stack:
            for _ in range(12):
                stack.enter_context(Connection(server.url)).send(receive)
                # One after the other: those of a burst start before the first of them counts.
                until(lambda: _account_holds(server, noisy.account))
                calm.send(own, "b" * LONG_BYTES)
            assert MOST_BYTES / 4 < _account_holds(server, noisy.account) < MOST_BYTES / 2 + 1e7
            for _ in range(12):
                assert len(calm.bodies(own, 1)) == 1
        server.until(HELD, 0)


@pytest.mark.parametrize("kind", ["of an account", "of nobody"])
def test_unfinished_bodies_of_a_neighbour_make_nobody_fail(server: Server, kind: str) -> None:
    account = new_account()
    members = {"QueueUrl": "x", "MessageBody": "b" * LONG_BYTES}
    unfinished = _post(server, account, "SendMessage", members)[:-1]
    if kind == "of nobody":
        unfinished = re.sub(rb"Authorization: [^\r]*\r\n", b"", unfinished)
    with Sqs("json", server.url) as calm, contextlib.ExitStack() as stack:
        queue = calm.create()
        for _ in range(80):
            connection = stack.enter_context(Connection(server.url))
            with contextlib.suppress(ConnectionError):
                connection.send(unfinished)
        server.read_on()
        for _ in range(10):
            calm.send(queue, "b" * LONG_BYTES)
        assert server.metric(HELD) < MOST_BYTES * 0.6
        stack.close()
        server.until(HELD, 0)


# Heads that cannot authenticate


@pytest.fixture(scope="module")
def verifying(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verifying]:
    with Verifying(tmp_path_factory.mktemp("fair")) as running:
        yield running


TARGET = {**JSON, "X-Amz-Target": "AmazonSQS.SendMessage"}
FORM_START = urlencode({"Action": "Publish", "Version": "2010-03-31", "Message": "m"}) + "&x="
ASKED: dict[str, tuple[str, str, dict[str, str], str]] = {
    "json": ("POST", "/", TARGET, '{"x": "'),
    "form": ("POST", "/", FORM, FORM_START),
    "queue": ("POST", "/000000000000/q", FORM, "Action=SendMessage&MessageBody="),
    "scheduler": ("POST", "/schedules/s", JSON, '{"x": "'),
    "rest": ("POST", "/v1/queues/q/messages", {"Content-Type": "application/json"}, '{"x": "'),
    "logs": ("POST", "/v1/logs/q/records", {"Content-Type": "application/json"}, '{"x": "'),
    "simple": ("POST", "/api/queues", {"Content-Type": "application/json"}, '{"x": "'),
    "channels": ("POST", "/v1/messages", {"Content-Type": "application/json"}, '{"x": "'),
    "text": ("POST", "/queue?queue=q&group-id=g", {"Content-Type": "text/plain"}, "x"),
}


def _headers(verifying: Verifying, who: str, asked: str) -> dict[str, str]:
    method, path, headers, _ = ASKED[asked]
    signer: Signer = verifying.first
    if asked == "scheduler":
        signer = signer.other(service="scheduler")
    if who == "an unknown key":
        signer = signer.other(access_key="AKIAUNKNOWN000000000")
    elif who == "an old date":
        signer = signer.other(late_seconds=3600.0)
    elif who == "no credentials":
        return {**headers, "Host": verifying.url.partition("://")[2]}
    return signer.sign(method, path, headers)


def _shown(answer: Answer) -> tuple[object, ...]:
    """The parts that all requests share."""
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9]{8}T[0-9]{6}Z", "?", answer.text)
    return answer.status, answer.headers.get("x-amzn-query-error"), text


@pytest.mark.parametrize("who", ["no credentials", "an unknown key", "an old date"])
@pytest.mark.parametrize("asked", ASKED)
def test_a_stranger_is_refused_before_its_body(verifying: Verifying, asked: str, who: str) -> None:
    method, path, _, start = ASKED[asked]
    headers = _headers(verifying, who, asked)
    with Connection(verifying.url) as short, Connection(verifying.url) as long:
        short.send(request_bytes(method, path, headers, start.encode()))
        expected = short.answer()
        assert 400 <= expected.status < 500
        # The service of a form is in its first parameters.
        begun = start.encode() + b"x" * 70_000
        head = request_bytes(method, path, headers | {"Content-Length": "900000"})
        long.send(head + begun)
        answer = long.answer()
        assert _shown(answer) == _shown(expected)
        assert answer.headers["connection"] == "close"
        with contextlib.suppress(ConnectionError):
            for _ in range(1000):
                long.send(b"x" * 65_536)
        assert long.ends()
    verifying.until(HELD, 0)


@pytest.mark.parametrize("length", ["900000", "900"])
def test_json_of_a_stranger_is_not_waited_for(verifying: Verifying, length: str) -> None:
    headers = {**TARGET, "Host": verifying.url.partition("://")[2], "Content-Length": length}
    with Connection(verifying.url) as connection:
        connection.send(request_bytes("POST", "/", headers))
        answer = connection.answer()
        assert (answer.status, "AccessDenied" in answer.text) == (403, True)
        assert connection.ends()


def test_without_credentials_presence_refuses_too(server: Server) -> None:
    headers = {**TARGET, "Host": server.url.partition("://")[2], "Content-Length": "900000"}
    with Connection(server.url) as connection:
        connection.send(request_bytes("POST", "/", headers))
        answer = connection.answer()
    assert (answer.status, "AccessDenied" in answer.text) == (403, True)


def test_a_client_that_sends_all_before_it_reads_sees_the_answer(verifying: Verifying) -> None:
    """A reset is faster than an answer that nobody has read yet."""
    head = request_bytes("POST", "/", _headers(verifying, "an unknown key", "json"))
    head = head.replace(b"Content-Length: 0", b"Content-Length: 1000000")
    for _ in range(20):
        with Connection(verifying.url) as connection:
            with contextlib.suppress(ConnectionError):
                connection.send(head + b" " * 1_000_000)
            assert connection.answer().status == 403


def test_an_sdk_with_an_unknown_key_reads_why(verifying: Verifying) -> None:
    client = Session().create_client(
        "sqs",
        endpoint_url=verifying.url,
        region_name="us-east-1",
        aws_access_key_id="AKIAUNKNOWN000000000",
        aws_secret_access_key="x",
        config=Config(retries={"total_max_attempts": 1}),
    )
    with contextlib.closing(client):
        for _ in range(10):
            with pytest.raises(ClientError, match="security token"):
                client.send_message(QueueUrl=f"{verifying.url}/1/q", MessageBody="b" * 1_000_000)


def test_who_has_a_key_is_read(verifying: Verifying) -> None:
    """The same heads with a good signature, and what needs no credentials."""
    owner = verifying.first
    url = json.loads(owner.sqs("CreateQueue", QueueName="long").body)["QueueUrl"]
    assert owner.sqs("SendMessage", QueueUrl=url, MessageBody="b" * LONG_BYTES).status == 200
    sent = owner.form(
        "sqs",
        Action="SendMessage",
        QueueUrl=url,
        MessageBody="b" * LONG_BYTES,
        Version="2012-11-05",
    )
    assert sent.status == 200
    with Connection(verifying.url) as connection:
        body = b"Action=Unsubscribe&Version=2010-03-31&SubscriptionArn=x"
        headers = {**FORM, "Host": connection.host, "Content-Length": str(len(body))}
        connection.send(request_bytes("POST", "/", headers) + body[:20])
        verifying.read_on()
        connection.send(body[20:])
        assert "InvalidParameter" in connection.answer().text

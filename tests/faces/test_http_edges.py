"""Connections that no SDK opens: odd heads, silence, floods and half-closing."""

from __future__ import annotations

import contextlib
import json
from urllib.parse import urlencode

import pytest

from tests.faces.clients import Raw, Sqs, authorization
from tests.faces.connections import Answer, Closed, Connection, fetch, request_bytes
from tests.faces.servers import Server

ODD_LINES = {
    "none": b"",
    "bare line feed": b"X-A: 1\nX-B: 2\r\n",
    "bare carriage return": b"X-A: 1\rX-B: 2\r\n",
    "carriage return before the end": b"X-A: 1\r\r\n",
    "nul": b"X-A: a\x00b\r\n",
    "escape": b"X-A: a\x1bb\r\n",
    "delete": b"X-A: a\x7fb\r\n",
    "vertical tab around a value": b"X-A: \x0bv\x0c\r\n",
    "tab": b"X-A: a\tb\r\n",
    "text that is not ASCII": b"X-A: \xc3\xa9\xff\r\n",
    "no token": b"X[]@ y: v\r\n",
    "space before the colon": b"X-A : v\r\n",
    "name that is not ASCII": b"X-\xe9: v\r\n",
    "nul in a name": b"X-\x00: v\r\n",
    "no name": b": v\r\n",
    "no colon": b"X-A\r\n",
    "folded": b"X-A: a\r\n b\r\n",
    "folded by a tab": b"X-A: a\r\n\tX-B: b\r\n",
    "all kinds of tokens": b"!#$%&'*+-.^_`|~09azAZ: v\r\n",
    "a long name": b"X" * 3000 + b": v\r\n",
    "17 KB": b"".join(b"X-%d: %b\r\n" % (n, b"v" * 1000) for n in range(17)),
    "second host": b"Host: elsewhere\r\n",
}


def _status(raw: Raw, data: bytes, server: Server | None) -> int | str:
    """Of a request on a connection of its own; in two pieces when a server is given to ask in
    between."""
    with Connection(raw.sqs.url) as connection:
        try:
            if server is not None:
                connection.send(data[:10])
                server.read_on()
                data = data[10:]
            connection.send(data)
            return connection.answer().status
        except (Closed, ConnectionError):
            return "closed"


@pytest.mark.parametrize("kind", ODD_LINES)
def test_odd_heads_mean_the_same_on_both_paths(raw: Raw, server: Server, kind: str) -> None:
    first, _, rest = raw.request().partition(b"\r\n")
    data = first + b"\r\n" + ODD_LINES[kind] + rest
    assert _status(raw, data, None) == _status(raw, data, server)


def test_no_host_means_the_same_on_both_paths(raw: Raw, server: Server) -> None:
    del raw.headers["Host"]
    data = raw.request()
    assert _status(raw, data, None) == _status(raw, data, server)


@pytest.mark.parametrize("digits", [11, 30, 4301, 9000])
def test_lengths_of_many_digits(raw: Raw, server: Server, digits: int) -> None:
    for length in ("9" * digits, "0" * digits + str(len(raw.body()))):
        data = raw.request(**{"Content-Length": length}) + b"\r\n"
        if length.startswith("0"):
            assert _status(raw, data, None) == _status(raw, data, server)
        elif digits > 20:
            assert _status(raw, data, None) == 400
    raw.connection.send(raw.request())
    assert raw.answer().status == 200


ODD_SCOPES = {
    "nul in the key": ("a\x00b", "us-east-1"),
    "nul in the region": ("key", "us\x00"),
    "spaces": ("a b", "us east"),
    "not ASCII": ("kéy", "régión"),
    "long": ("k" * 1000, "r" * 1000),
    "quotes": ("'\"", "'; --"),
}


@pytest.mark.parametrize("kind", ODD_SCOPES)
def test_odd_credentials_are_refused(server: Server, kind: str) -> None:
    key, region = ODD_SCOPES[kind]
    presigned = {
        "Action": "ListQueues",
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{key}/20260101/{region}/sqs/aws4_request",
        "X-Amz-Date": "20260101T000000Z",
        "X-Amz-Expires": "60",
        "X-Amz-SignedHeaders": "host",
        "X-Amz-Signature": "0" * 64,
    }
    answer = fetch(server.url, "/?" + urlencode(presigned))
    assert (answer.status, "IncompleteSignature" in answer.text) == (400, True)
    if "\x00" in key + region:
        return
    with Connection(server.url) as connection:
        headers = {
            "Host": connection.host,
            "X-Amz-Target": "AmazonSQS.ListQueues",
            "Content-Type": "application/x-amz-json-1.0",
            "Authorization": authorization(key, region),
        }
        connection.send(request_bytes("POST", "/", headers, b"{}"))
        answer = connection.answer()
        assert (answer.status, "IncompleteSignature" in answer.text) == (400, True)


# Behind a poll


@pytest.mark.parametrize("long_way", [False, True])
@pytest.mark.parametrize("count", [1, 3, 10])
def test_a_client_that_leaves_something_behind_a_poll_takes_no_message(
    raw: Raw, server: Server, long_way: bool, count: int
) -> None:
    if long_way:
        raw.headers["TE"] = "trailers"
    # On the long way nobody reads on before the poll is answered, so it waits to its end.
    raw.connection.send(raw.receive(2 if long_way else 20))
    server.until_parked(1)
    raw.connection.send_pieces(raw.request("x" * 50_000) for _ in range(count))
    server.read_on()
    raw.connection.close()
    server.until_parked(0)
    raw.sqs.send(raw.queue, "b")
    [message] = raw.sqs.receive(raw.queue, AttributeNames=["All"])
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"


def test_a_pipeline_on_the_long_way(raw: Raw, server: Server) -> None:
    raw.headers["TE"] = "trailers"
    raw.connection.send(raw.receive(20))
    server.until_parked(1)
    raw.connection.send_pieces(raw.request("x" * 30_000) for _ in range(10))
    raw.sqs.send(raw.queue, "first")
    assert json.loads(raw.answer().body)["Messages"][0]["Body"] == "first"
    assert [raw.answer().status for _ in range(10)] == [200] * 10


def test_a_flood_behind_a_poll_ends_it(raw: Raw, server: Server) -> None:
    raw.connection.send(raw.receive(20))
    server.until_parked(1)
    with contextlib.suppress(ConnectionError):
        raw.connection.send(b"x" * 3_000_000)
    with pytest.raises((Closed, ConnectionError)):
        raw.answer()
    server.until_parked(0)
    raw.sqs.send(raw.queue, "b")
    assert raw.texts() == ["b"]


@pytest.mark.parametrize("long_way", [False, True])
def test_large_messages_in_a_pipeline(raw: Raw, long_way: bool) -> None:
    """Behind a send the client is made to wait."""
    if long_way:
        raw.headers["TE"] = "trailers"
    raw.connection.send_pieces(raw.request("x" * 1_000_000) for _ in range(4))
    assert [raw.answer().status for _ in range(4)] == [200] * 4


# A client that sends no more


def test_a_client_that_ends_its_sending_is_answered(raw: Raw) -> None:
    for number in range(20):
        with Connection(raw.sqs.url) as connection:
            connection.send(raw.request(str(number)))
            connection.end_sending()
            assert connection.answer().status == 200
            assert connection.ends()
    assert len(raw.texts()) == 20


def test_a_poll_ends_when_its_client_ends_its_sending(raw: Raw, server: Server) -> None:
    """Nobody can tell it from a client that goes away."""
    raw.connection.send(raw.receive(20))
    server.until_parked(1)
    raw.connection.end_sending()
    assert raw.connection.ends()
    server.until_parked(0)


# Bodies


@pytest.mark.parametrize("chunked", [False, True])
def test_the_clock_page_reads_no_large_body(server: Server, chunked: bool) -> None:
    body = b'{"advance_seconds":' + b" " * 5000 + b"1}"
    with Connection(server.url) as connection:
        headers = {"Host": connection.host}
        if chunked:
            headers["Transfer-Encoding"] = "chunked"
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        connection.send(request_bytes("POST", "/_admin/clock", headers, body))
        answer: Answer = connection.answer()
        assert answer.status == 413
        assert connection.ends()


@pytest.mark.parametrize("count", [11, 1001, 4000])
def test_a_batch_of_far_too_many(json_sqs: Sqs, count: int) -> None:
    refused = json_sqs.refusal(
        "SendMessageBatch",
        QueueUrl=json_sqs.create(),
        Entries=[{"Id": "a", "MessageBody": "b"}] * count,
    )
    assert refused.code == "AWS.SimpleQueueService.TooManyEntriesInBatchRequest"
    assert refused.text.endswith(f"You have sent {count}.")

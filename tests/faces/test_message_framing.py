"""The end of a request and its meaning: the same for the gateway and for a proxy in front."""

from __future__ import annotations

import http.client
import json

import pytest

from tests.faces.clients import Raw, authorization
from tests.faces.connections import Answer, Closed, Connection, request_bytes
from tests.faces.servers import Server


def purge(raw: Raw) -> bytes:
    """A request that must not be found in another one's body."""
    headers = raw.headers | {"X-Amz-Target": "AmazonSQS.PurgeQueue"}
    return request_bytes("POST", "/", headers, json.dumps({"QueueUrl": raw.queue}).encode())


def statuses(raw: Raw, *pieces: bytes) -> list[int]:
    """Of everything that is answered to these pieces, until the gateway hangs up or is silent."""
    found = []
    with Connection(raw.sqs.url) as connection:
        for piece in pieces:
            connection.send(piece)
        connection.end_sending()
        try:
            while True:
                found.append(connection.answer().status)
        except (Closed, ConnectionError):
            return found


# Upgrade

UPGRADES = {
    "h2c": {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMA"},
    "websocket": {"Connection": "upgrade", "Upgrade": "websocket"},
    "anything": {"Connection": "Upgrade", "Upgrade": "x"},
}


@pytest.mark.parametrize("kind", UPGRADES)
@pytest.mark.parametrize("chunked", [False, True])
def test_a_request_that_offers_another_protocol_keeps_its_body(
    raw: Raw, kind: str, chunked: bool
) -> None:
    data = raw.request("kept", **UPGRADES[kind])
    if chunked:
        head, _, body = data.partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
        lines.append(b"Transfer-Encoding: chunked")
        data = b"\r\n".join(lines) + b"\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    raw.connection.send(data)
    assert raw.answer().status == 200
    assert raw.texts() == ["kept"]


@pytest.mark.parametrize("kind", UPGRADES)
def test_a_body_is_never_the_next_request(raw: Raw, server: Server, kind: str) -> None:
    raw.sqs.send(raw.queue, "there")
    inner = purge(raw)
    head = request_bytes("POST", "/", raw.headers | UPGRADES[kind])
    head = head.replace(b"Content-Length: 0", b"Content-Length: %d" % len(inner))
    raw.connection.send(head)
    server.read_on()
    raw.connection.send(inner)
    assert raw.answer().status == 400
    raw.connection.send(raw.request("next"))
    assert raw.answer().status == 200
    assert raw.texts() == ["there", "next"]


# Trailers


def chunked(raw: Raw, action: str, trailers: bytes, **changes: str) -> bytes:
    headers = raw.headers | {"X-Amz-Target": f"AmazonSQS.{action}", "Transfer-Encoding": "chunked"}
    body = json.dumps({"QueueUrl": raw.queue}).encode()
    head = request_bytes("POST", "/", headers | changes)
    return head + b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(body), body, trailers)


@pytest.mark.parametrize("name", ["X-Amz-Target", "x-amz-target"])
def test_trailers_do_not_say_what_is_asked(raw: Raw, name: str) -> None:
    raw.sqs.send(raw.queue, "there")
    trailer = f"{name}: AmazonSQS.PurgeQueue\r\n".encode()
    raw.connection.send(chunked(raw, "GetQueueAttributes", trailer))
    assert raw.answer().status == 200
    assert raw.texts() == ["there"]


def test_trailers_do_not_say_who_asks(raw: Raw) -> None:
    """An account that may not see the queue does not get it by a trailer of one that may."""
    raw.sqs.send(raw.queue, "there")
    trailer = f"Authorization: {authorization(raw.sqs.account)}\r\n".encode()
    stranger = {"Authorization": authorization("999999999999")}
    body = {"QueueName": raw.queue.rpartition("/")[2]}
    data = chunked(raw, "GetQueueUrl", trailer, **stranger)
    old = json.dumps({"QueueUrl": raw.queue}).encode()
    new = json.dumps(body).encode()
    raw.connection.send(data.replace(b"%x\r\n%b" % (len(old), old), b"%x\r\n%b" % (len(new), new)))
    assert raw.answer().status == 400


def test_many_trailers_end_the_connection(raw: Raw) -> None:
    trailers = b"".join(b"x-%d: %b\r\n" % (n, b"v" * 100) for n in range(1000))
    assert statuses(raw, chunked(raw, "GetQueueAttributes", trailers)) == [431]


@pytest.mark.parametrize(
    "trailer", [b"no header\r\n", b"a: b\x00\r\n", b"a: b\nc: d\r\n", b" folded: x\r\n"]
)
def test_odd_trailers_change_nothing(raw: Raw, trailer: bytes) -> None:
    found = statuses(raw, chunked(raw, "GetQueueAttributes", trailer), raw.request("behind"))
    assert found in ([400], [200, 200])


# Chunks

BAD_CHUNKS = {
    "no size": b"\r\nabc\r\n0\r\n\r\n",
    "a sign": b"+3\r\nabc\r\n0\r\n\r\n",
    "an underscore": b"0_3\r\nabc\r\n0\r\n\r\n",
    "a prefix": b"0x3\r\nabc\r\n0\r\n\r\n",
    "a blank": b"3 \r\nabc\r\n0\r\n\r\n",
    "a bare line feed": b"3\nabc\r\n0\r\n\r\n",
    "more than its size": b"3\r\nabcd\r\n0\r\n\r\n",
    "a size beyond all": b"f" * 17 + b"\r\nabc\r\n0\r\n\r\n",
    "a long extension": b"3;" + b"x" * 5000 + b"\r\nabc\r\n0\r\n\r\n",
    "a control in an extension": b"3;a\x00\r\nabc\r\n0\r\n\r\n",
    "a line feed in an extension": b"3;a\nb\r\nabc\r\n0\r\n\r\n",
    "chunks of a byte each": b"1\r\nx\r\n" * 100_000 + b"0\r\n\r\n",
}


@pytest.mark.parametrize("kind", BAD_CHUNKS)
def test_chunks_that_can_be_read_in_two_ways(raw: Raw, kind: str) -> None:
    headers = raw.headers | {"Transfer-Encoding": "chunked"}
    data = request_bytes("POST", "/", headers) + BAD_CHUNKS[kind] + purge(raw)
    raw.sqs.send(raw.queue, "there")
    assert statuses(raw, data) == [400]
    assert raw.texts() == ["there"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_chunks_in_pieces_of_any_size(raw: Raw, size: int) -> None:
    body = raw.body("x" * 5000)
    chunks = b"".join(
        b"%x;name=value\r\n%b\r\n" % (len(body[at : at + 500]), body[at : at + 500])
        for at in range(0, len(body), 500)
    )
    head = request_bytes("POST", "/", raw.headers | {"Transfer-Encoding": "chunked"})
    data = (head + chunks + b"0\r\nx: y\r\n\r\n") * 2
    raw.connection.send_pieces(data[at : at + size] for at in range(0, len(data), size))
    assert [raw.answer().status, raw.answer().status] == [200, 200]
    assert raw.texts() == ["x" * 5000] * 2


# Heads

TWO_WAYS = {
    "two lengths": {"Content-Length": "3\r\nContent-Length: 30"},
    "a length twice": {"Content-Length": "3\r\nContent-Length: 3"},
    "lengths in a list": {"Content-Length": "3, 3"},
    "a signed length": {"Content-Length": "+3"},
    "length and chunks": {"Content-Length": "3", "Transfer-Encoding": "chunked"},
    "chunks twice": {"Transfer-Encoding": "chunked, chunked"},
    "another coding": {"Transfer-Encoding": "gzip, chunked"},
    "a coding in disguise": {"Transfer-Encoding": "\x0bchunked"},
    "coding in two lines": {"Transfer-Encoding": "chunked\r\nTransfer-Encoding: identity"},
    "a control character in a value": {"X-Other": "a\x0bb"},
    "a control character in a name": {"X-\x0bOther": "a"},
    "two targets": {"X-Amz-Target": "AmazonSQS.ListQueues\r\nX-Amz-Target: AmazonSQS.PurgeQueue"},
    "two credentials": {"Authorization": "a\r\nAuthorization: b"},
    "two hosts": {"Host": "localhost\r\nHost: 127.0.0.1"},
    "no name for a host": {"Host": "a b"},
    "a path for a host": {"Host": "localhost/x"},
    "a user in the host": {"Host": "me@localhost"},
}


@pytest.mark.parametrize("kind", TWO_WAYS)
@pytest.mark.parametrize("pieces", [1, 2])
def test_heads_that_can_be_read_in_two_ways(raw: Raw, kind: str, pieces: int) -> None:
    data = request_bytes("POST", "/", raw.headers | TWO_WAYS[kind], b"abc") + purge(raw)
    raw.sqs.send(raw.queue, "there")
    sent = [data] if pieces == 1 else [data[:20], data[20:]]
    assert statuses(raw, *sent) == [400]
    assert raw.texts() == ["there"]


@pytest.mark.parametrize("pieces", [1, 2])
@pytest.mark.parametrize("names", ["the body", "the content"])
def test_a_length_beside_good_chunks_is_refused(raw: Raw, pieces: int, names: str) -> None:
    """Either header alone would make it a send that is taken."""
    head, _, body = raw.request("smuggled").partition(b"\r\n\r\n")
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    length = len(chunks) if names == "the body" else len(body)
    lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
    lines += [b"Content-Length: %d" % length, b"Transfer-Encoding: chunked"]
    data = b"\r\n".join(lines) + b"\r\n\r\n" + chunks
    sent = [data] if pieces == 1 else [data[:20], data[20:]]
    assert statuses(raw, *sent) == [400]
    assert raw.texts() == []


FIRST_LINES = {
    "HTTP/2.0": b"POST / HTTP/2.0",
    "HTTP/1.2": b"POST / HTTP/1.2",
    "HTTP/0.9": b"POST /",
    "lower case": b"post / HTTP/1.1",
    "an unknown method": b"PURGE / HTTP/1.1",
    "connect": b"CONNECT localhost:1 HTTP/1.1",
    "two blanks": b"POST  / HTTP/1.1",
    "a tab": b"POST\t/ HTTP/1.1",
    "a blank behind": b"POST / HTTP/1.1 ",
    "no path": b"POST x HTTP/1.1",
    "not ASCII": b"POST /\xc3\xa9 HTTP/1.1",
    "another host": b"POST http://elsewhere/ HTTP/1.1",
    "the preface of HTTP/2": b"PRI * HTTP/2.0",
}


@pytest.mark.parametrize("kind", FIRST_LINES)
@pytest.mark.parametrize("pieces", [1, 2])
def test_first_lines_that_are_refused(raw: Raw, kind: str, pieces: int) -> None:
    data = raw.request().replace(b"POST / HTTP/1.1", FIRST_LINES[kind])
    sent = [data] if pieces == 1 else [data[:9], data[9:]]
    assert statuses(raw, *sent) == [400]
    assert raw.texts() == []


@pytest.mark.parametrize("pieces", [1, 2])
def test_a_request_without_a_host(raw: Raw, pieces: int) -> None:
    del raw.headers["Host"]
    data = raw.request()
    sent = [data] if pieces == 1 else [data[:9], data[9:]]
    assert statuses(raw, *sent) == [400]
    assert statuses(raw, data.replace(b"HTTP/1.1", b"HTTP/1.0")) == [200]


def test_what_is_not_http_is_refused_at_once(raw: Raw) -> None:
    """A TLS client that got the wrong port does not wait for a minute."""
    for data in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/1.1\nHost: x\n\n"):
        with Connection(raw.sqs.url) as connection:
            connection.send(data)
            assert connection.answer().status == 400
            assert connection.ends()


def test_blanks_behind_a_value_are_none_of_it(raw: Raw, server: Server) -> None:
    data = raw.request(Authorization=authorization(raw.sqs.account) + " \t ")
    assert statuses(raw, data) == [200]
    with Connection(raw.sqs.url) as connection:
        connection.send(data[:10])
        server.read_on()
        connection.send(data[10:])
        assert connection.answer().status == 200
    assert raw.texts() == ["b", "b"]


def test_an_encoded_page_is_no_page(raw: Raw) -> None:
    """A proxy's rule for a path must hold."""
    for target in ("/%5fadmin/clock", "/%6cetrics", "/%6d%65trics", "/v1%2fcert", "/%761/queues"):
        with Connection(raw.sqs.url) as connection:
            connection.send(request_bytes("GET", target, {"Host": connection.host}))
            answer = connection.answer()
            assert answer.status >= 400
            assert not answer.headers["content-type"].startswith("application/json")


# A client that ends its stream


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("long_way", [False, True])
def test_what_was_sent_before_the_end_is_answered(raw: Raw, count: int, long_way: bool) -> None:
    if long_way:
        raw.headers["TE"] = "trailers"
    pieces = [raw.request(str(number)) for number in range(count)]
    assert statuses(raw, *pieces) == [200] * count
    assert statuses(raw, b"".join(pieces)) == [200] * count
    assert len(raw.texts()) == 2 * count


@pytest.mark.parametrize("long_way", [False, True])
def test_a_poll_ends_with_its_clients_stream(raw: Raw, server: Server, long_way: bool) -> None:
    if long_way:
        raw.headers["TE"] = "trailers"
    for before in (b"", request_bytes("GET", "/livez", {"Host": raw.headers["Host"]})):
        with Connection(raw.sqs.url) as connection:
            connection.send(before + raw.receive(20))
            connection.end_sending()
            if before:
                assert connection.answer().status == 200
            assert connection.ends()
    server.until_parked(0)


# A body that is too large


@pytest.mark.parametrize("path", ["/", "/v1/queues", "/_admin/clock"])
@pytest.mark.parametrize("chunks", [False, True])
def test_every_client_reads_that_its_body_is_too_large(raw: Raw, path: str, chunks: bool) -> None:
    """Python's own client sends all of it before it reads."""
    host = raw.headers["Host"]
    for _ in range(5):
        client = http.client.HTTPConnection(host, timeout=40)
        body = b"x" * 20_000_000
        try:
            client.request(
                "POST",
                path,
                iter([body]) if chunks else body,
                {name: value for name, value in raw.headers.items() if name != "Host"},
                encode_chunked=chunks,
            )
            assert client.getresponse().status == 413
        finally:
            client.close()


def test_who_asks_first_is_told_before_it_sends(raw: Raw) -> None:
    headers = raw.headers | {"Content-Length": "8388609", "Expect": "100-continue"}
    raw.connection.send(request_bytes("POST", "/", headers))
    answer: Answer = raw.answer()
    assert answer.status == 413
    assert raw.connection.ends()

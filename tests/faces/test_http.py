"""The same request in every shape that HTTP allows, and in some that it does not.

Whatever comes whole in one read takes the fast path; the rest goes through uvicorn. Nobody must be
able to tell them apart.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.faces.clients import Raw, Refused, Sqs, authorization
from tests.faces.connections import Answer, Closed, Connection, fetch, request_bytes
from tests.faces.servers import Server


def _assert_sent(answer: Answer) -> None:
    assert answer.status == 200
    assert json.loads(answer.body).keys() == {"MessageId", "MD5OfMessageBody"}
    assert answer.headers["content-type"] == "application/x-amz-json-1.0"
    assert len(answer.headers["x-amzn-requestid"]) == 36


def _chunked(raw: Raw, sizes: int) -> bytes:
    body = raw.body()
    headers = raw.headers | {"Transfer-Encoding": "chunked"}
    head = request_bytes("POST", "/", headers)
    parts = [body[start : start + sizes] for start in range(0, len(body), sizes)]
    return head + b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"


def _renamed(raw: Raw, rename: Callable[[str], str]) -> bytes:
    headers = {rename(name): value for name, value in raw.headers.items()}
    return request_bytes("POST", "/", headers, raw.body())


SHAPES: dict[str, Callable[[Raw], bytes]] = {
    "in one piece": lambda raw: raw.request(),
    "chunked": lambda raw: _chunked(raw, 1000),
    "in chunks of seven bytes": lambda raw: _chunked(raw, 7),
    "keep-alive": lambda raw: raw.request(Connection="keep-alive"),
    "Keep-Alive": lambda raw: raw.request(Connection="Keep-Alive"),
    "lower-case names": lambda raw: _renamed(raw, str.lower),
    "upper-case names": lambda raw: _renamed(raw, str.upper),
    "absolute target": lambda raw: request_bytes(
        "POST", raw.sqs.url + "/", raw.headers, raw.body()
    ),
    "spaces around values": lambda raw: raw.request().replace(b": ", b":  \t", 4),
    "no spaces before values": lambda raw: raw.request().replace(b": ", b":", 4),
    "content type with a charset": lambda raw: raw.request(
        **{"Content-Type": "Application/X-Amz-JSON-1.0; charset=UTF-8"}
    ),
    "content type 1.1": lambda raw: raw.request(**{"Content-Type": "application/x-amz-json-1.1"}),
    "no content type": lambda raw: raw.request().replace(
        b"Content-Type: application/x-amz-json-1.0\r\n", b""
    ),
    "many headers": lambda raw: raw.request(**{f"X-{n}": "v" for n in range(90)}),
    "a long header": lambda raw: raw.request(**{"X-Long": "v" * 8000}),
    "a queue's path": lambda raw: raw.request().replace(b"POST / ", b"POST /000000000000/x "),
    "query mode": lambda raw: raw.request(**{"x-amzn-query-mode": "true"}),
    "an unknown member": lambda raw: request_bytes(
        "POST", "/", raw.headers, raw.body()[:-1] + b',"Unheard":[1],"DelaySeconds":null}'
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_of_the_same_request(raw: Raw, shape: str) -> None:
    raw.connection.send(SHAPES[shape](raw))
    _assert_sent(raw.answer())
    raw.connection.send(raw.request("after"))
    _assert_sent(raw.answer())
    assert raw.texts() == ["b", "after"]


@pytest.mark.parametrize("shape", ["in one piece", "in chunks of seven bytes"])
@pytest.mark.parametrize("size", [1, 3, 100])
def test_every_shape_in_many_pieces(raw: Raw, shape: str, size: int) -> None:
    data = SHAPES[shape](raw)
    raw.connection.send_pieces(data[n : n + size] for n in range(0, len(data), size))
    _assert_sent(raw.answer())
    assert raw.texts() == ["b"]


@pytest.mark.parametrize("cut", [1, 20, 100, -1, -10])
def test_a_request_in_two_pieces_seen_apart(raw: Raw, server: Server, cut: int) -> None:
    data = raw.request()
    raw.connection.send(data[:cut])
    server.read_on()
    raw.connection.send(data[cut:])
    _assert_sent(raw.answer())
    assert raw.texts() == ["b"]


@pytest.mark.parametrize("count", [2, 10])
def test_pipelined_requests_are_answered_in_order(raw: Raw, count: int) -> None:
    raw.connection.send(b"".join(raw.request(str(number)) for number in range(count)))
    for _ in range(count):
        _assert_sent(raw.answer())
    assert raw.texts() == [str(number) for number in range(count)]


@pytest.mark.parametrize("count", [2, 10])
def test_pipelined_requests_in_separate_writes(raw: Raw, count: int) -> None:
    raw.connection.send_pieces(raw.request(str(number)) for number in range(count))
    for _ in range(count):
        _assert_sent(raw.answer())
    assert raw.texts() == [str(number) for number in range(count)]


def test_pipelines_that_mix_paths_pages_and_refusals(raw: Raw) -> None:
    page = request_bytes("GET", "/livez", {"Host": raw.headers["Host"]})
    empty = request_bytes("POST", "/", raw.headers, b"{}")
    pieces = [raw.request("1"), page, empty, raw.receive(), raw.request("2", TE="trailers")]
    for order in (pieces, pieces[::-1]):
        raw.connection.send(b"".join(order))
        statuses = [raw.answer().status for _ in order]
        assert statuses == [400 if piece is empty else 200 for piece in order]


def test_a_request_behind_a_poll_waits_for_its_answer(raw: Raw, server: Server) -> None:
    raw.connection.send(raw.receive(20))
    server.until_parked()
    raw.connection.send(raw.request("behind"))
    raw.sqs.send(raw.queue, "first")
    assert json.loads(raw.answer().body)["Messages"][0]["Body"] == "first"
    _assert_sent(raw.answer())


def test_a_large_pipeline_behind_a_poll(raw: Raw, server: Server) -> None:
    raw.connection.send(raw.receive(20))
    server.until_parked()
    raw.connection.send(b"".join(raw.request("x" * 50_000) for _ in range(5)))
    raw.sqs.send(raw.queue, "first")
    assert json.loads(raw.answer().body)["Messages"][0]["Body"] == "first"
    for _ in range(5):
        _assert_sent(raw.answer())


def test_expect_100_continue(raw: Raw) -> None:
    data = raw.request(Expect="100-continue")
    head, _, body = data.partition(b"\r\n\r\n")
    raw.connection.send(head + b"\r\n\r\n")
    raw.connection.send(body)
    _assert_sent(raw.answer())
    assert raw.texts() == ["b"]


def test_connection_close(raw: Raw) -> None:
    raw.connection.send(raw.request(Connection="close"))
    answer = raw.answer()
    _assert_sent(answer)
    assert answer.headers["connection"] == "close"
    assert raw.connection.ends()


@pytest.mark.parametrize("keep", [False, True])
def test_http_1_0(raw: Raw, keep: bool) -> None:
    more = {"Connection": "keep-alive"} if keep else {}
    data = request_bytes("POST", "/", raw.headers | more, raw.body(), version="1.0")
    raw.connection.send(data)
    _assert_sent(raw.answer())
    if not keep:
        assert raw.connection.ends()


GARBAGE = {
    "no request": b"hello\r\n\r\n",
    "bytes": bytes(range(256)) + b"\r\n\r\n",
    "no version": b"POST /\r\n\r\n",
    "bad header": b"POST / HTTP/1.1\r\nno colon here\r\n\r\n",
    "negative length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "no number": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ten\r\n\r\n",
    "two lengths": (
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"
    ),
    "length and chunks": (
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n0\r\n\r\n"
    ),
    "bad chunk": b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 40,
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_is_refused_and_the_connection_closed(raw: Raw, kind: str) -> None:
    raw.connection.send(GARBAGE[kind])
    assert raw.answer().status in {400, 403}
    with Connection(raw.sqs.url) as other:
        other.send(raw.request())
        _assert_sent(other.answer())


@pytest.mark.parametrize("second", ["same", "other"])
def test_two_content_lengths_smuggle_nothing(raw: Raw, second: str) -> None:
    body = raw.body()
    length = len(body) if second == "same" else 2
    data = raw.request()
    head, _, _ = data.partition(b"\r\n\r\n")
    raw.connection.send(head + b"\r\nContent-Length: %d\r\n\r\n" % length + body)
    assert raw.answer().status == 400
    assert raw.texts() == []


def test_a_length_that_is_too_small_cuts_the_body(raw: Raw) -> None:
    data = raw.request(**{"Content-Length": "5"})
    raw.connection.send(data)
    assert raw.answer().status == 400
    assert raw.texts() == []


def test_a_length_that_is_too_large_waits_and_sends_nothing(raw: Raw) -> None:
    raw.connection.send(raw.request(**{"Content-Length": "500"}))
    raw.connection.close()
    assert raw.texts() == []


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("wire", ["json", "query"])
def test_a_body_above_the_limit(raw: Raw, wire: str, chunked: bool) -> None:
    """RequestTooLarge is 413 on either wire, and the next connection is served."""
    size = 8_388_609
    headers = dict(raw.headers)
    if wire == "query":
        del headers["X-Amz-Target"]
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    headers |= {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": str(size)}
    raw.connection.send(request_bytes("POST", "/", headers))
    try:
        if chunked:
            raw.connection.send(b"%x\r\n" % size)
        raw.connection.send(b"x" * size)
    except (BrokenPipeError, ConnectionResetError):
        pass
    answer = raw.answer()
    assert answer.status == 413
    text = "The request body is larger than the 6815744 bytes that this endpoint takes."
    refused = Refused(answer)
    assert (refused.code, refused.text) == ("InvalidParameterValue", text)
    assert answer.body.startswith(b"<" if wire == "query" else b"{")
    with Connection(raw.sqs.url) as other:
        other.send(raw.request())
        _assert_sent(other.answer())


def test_a_whole_batch_of_escaped_text_fits(json_sqs: Sqs) -> None:
    """A mebibyte of control characters is six as JSON."""
    url = json_sqs.create()
    body = json.dumps({"QueueUrl": url, "MessageBody": "\t" * 1_048_576})
    body = body.replace("\\t", "\\u0009")
    assert len(body) > 6_000_000
    with Connection(json_sqs.url) as connection:
        headers = {
            "Host": connection.host,
            "X-Amz-Target": "AmazonSQS.SendMessage",
            "Content-Type": "application/x-amz-json-1.0",
            "Authorization": authorization(json_sqs.account),
        }
        connection.send(request_bytes("POST", "/", headers, body.encode()))
        _assert_sent(connection.answer())


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "GET"])
@pytest.mark.parametrize("path", ["/", "/000000000000/orders", "/nothing/of/ours"])
def test_other_methods_are_refused_and_never_an_error_of_ours(
    raw: Raw, method: str, path: str
) -> None:
    headers = {"Host": raw.headers["Host"], "Authorization": raw.headers["Authorization"]}
    raw.connection.send(request_bytes(method, path, headers))
    answer = raw.connection.answer(to_head=method == "HEAD")
    assert 400 <= answer.status < 500
    raw.connection.send(raw.request())
    _assert_sent(raw.answer())


def test_head_of_a_page(server: Server) -> None:
    with Connection(server.url) as connection:
        connection.send(request_bytes("HEAD", "/livez", {"Host": connection.host}))
        assert connection.answer(to_head=True).status == 200
        connection.send(request_bytes("GET", "/livez", {"Host": connection.host}))
        assert connection.answer().status == 200


def test_the_clock_page_refuses_what_it_cannot_read(server: Server) -> None:
    for body in (b"", b"{", b"[]", b'{"advance_seconds":"x"}', b'{"advance_seconds":-99999999999}'):
        assert fetch(server.url, "/_admin/clock", "POST", body).status == 400
    assert fetch(server.url, "/_admin/nothing").status == 404


def test_a_connection_that_is_cut_in_the_middle_of_a_request(raw: Raw, server: Server) -> None:
    data = raw.request()
    raw.connection.send(data[: len(data) // 2])
    raw.connection.close()
    with pytest.raises((Closed, OSError)):
        raw.answer()
    assert raw.texts() == []
    assert server.metric("http_connections_active") <= 1

"""Limits on the number of parts of one request, checked before the work begins."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any
from urllib.parse import quote_plus

import pytest

from queuegate.protocol.json_wire import MOST_VALUES
from tests.faces.clients import Raw, Sqs
from tests.faces.connections import Connection, request_bytes
from tests.faces.servers import Server
from tests.waiting import until

REQUEST_BYTES = 262_144
MESSAGE_REQUEST_BYTES = 6_815_744
FILLER = "f" * 70_000
"""What is shorter than this needs no counting."""


def _answered(raw: Raw, action: str, body: bytes) -> tuple[int, dict[str, Any]]:
    headers = raw.headers | {"X-Amz-Target": f"AmazonSQS.{action}"}
    raw.connection.send(request_bytes("POST", "/", headers, body))
    answer = raw.answer()
    return answer.status, json.loads(answer.body or b"{}")


UNITS = {
    "numbers": b"1",
    "empty lists": b"[]",
    "texts": b'""',
    "texts of escapes": rb'"\\\""',
    "objects": b'{"a":1}',
}


@pytest.mark.parametrize("unit", UNITS)
def test_values_of_a_body_are_counted(raw: Raw, unit: str) -> None:
    """Commas outside of texts are; two are not in the list."""
    head = b'{"QueueUrl":"%b","MessageBody":"%b","X":[' % (raw.queue.encode(), FILLER.encode())

    def sent(commas: int) -> tuple[int, dict[str, Any]]:
        return _answered(raw, "SendMessage", head + b",".join([UNITS[unit]] * (commas - 1)) + b"]}")

    assert sent(MOST_VALUES)[0] == 200
    status, refused = sent(MOST_VALUES + 1)
    assert status == 400
    assert refused["message"] == f"The request body has more than {MOST_VALUES} values."


@pytest.mark.parametrize("size", [200_000, 262_143, 262_144, 262_145, 1_000_000])
@pytest.mark.parametrize("text", [",", '\\",', "\\\\,", '\\\\\\",', '\\",\\\\'])
def test_commas_in_texts_are_not_counted(raw: Raw, text: str, size: int) -> None:
    body = text * (size // len(text))
    members = b'{"QueueUrl":"%b","MessageBody":"%b"}' % (raw.queue.encode(), body.encode())
    assert _answered(raw, "SendMessage", members)[0] == 200
    [message] = raw.sqs.receive(raw.queue)
    assert message["Body"] == json.loads(f'"{body}"')


@pytest.mark.parametrize(
    "action",
    ["ReceiveMessage", "DeleteMessage", "TagQueue", "SetQueueAttributes", "ListQueues"],
)
@pytest.mark.parametrize("long_way", [False, True])
def test_a_request_without_a_message_is_small(raw: Raw, action: str, long_way: bool) -> None:
    if long_way:
        raw.headers["TE"] = "trailers"
    whole = {"QueueUrl": raw.queue, "X": ""}
    most = REQUEST_BYTES - len(json.dumps(whole))
    status, _ = _answered(raw, action, json.dumps(whole | {"X": "x" * most}).encode())
    assert status != 413
    status, refused = _answered(raw, action, json.dumps(whole | {"X": "x" * (most + 1)}).encode())
    assert status == 413
    assert str(REQUEST_BYTES) in refused["message"]


def test_a_request_with_a_message(raw: Raw) -> None:
    raw.connection.send(request_bytes("POST", "/", raw.headers, b" " * (MESSAGE_REQUEST_BYTES + 1)))
    assert raw.answer().status == 413


def test_a_form_without_a_message_is_small(query_sqs: Sqs) -> None:
    queue = query_sqs.create()
    request = query_sqs.encode("PurgeQueue", {"QueueUrl": queue})
    head, _, body = request.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length")]
    for size, status in ((REQUEST_BYTES, 200), (REQUEST_BYTES + 1, 413)):
        form = body + b"&X=" + b"x" * (size - len(body) - 3)
        with Connection(query_sqs.url) as connection:
            length = b"Content-Length: %d" % len(form)
            connection.send(b"\r\n".join([*lines, length]) + b"\r\n\r\n" + form)
            assert connection.answer().status == status


@pytest.mark.parametrize(
    "text", ["%", "%%", "é", "a b", "\r\n=", "100 %\n=3D", "x%2", "=", "+"], ids=repr
)
def test_long_forms_say_what_short_ones_do(json_sqs: Sqs, text: str) -> None:
    """They are decoded in pieces: no escape falls between two."""
    with Sqs("query", json_sqs.url, json_sqs.account) as query_sqs:
        queue = json_sqs.create()
        for shift in range(4):
            body = "s" * shift + text * (250_000 // len(text.encode()))
            sent = query_sqs.call("SendMessage", QueueUrl=queue, MessageBody=body)
            [message] = json_sqs.receive(queue)
            assert message["Body"] == body
            assert message["MD5OfBody"] == sent["MD5OfMessageBody"]
            json_sqs.delete(queue, message)


def test_stray_percent_signs_of_a_long_form(query_sqs: Sqs) -> None:
    queue = query_sqs.create()
    body = "%" * 200_000 + quote_plus("%é") + "%4" * 40_000
    headers = {"Host": query_sqs.url.partition("://")[2], "Authorization": "any"}
    headers["Content-Type"] = "application/x-www-form-urlencoded"
    form = f"Action=SendMessage&QueueUrl={quote_plus(queue)}&MessageBody={body}".encode()
    with Connection(query_sqs.url) as connection:
        connection.send(request_bytes("POST", "/", headers, form))
        assert connection.answer().status == 200
    [message] = query_sqs.receive(queue)
    assert message["Body"] == "%" * 200_000 + "%é" + "%4" * 40_000


def test_many_entries_are_refused_as_a_body(json_sqs: Sqs) -> None:
    """SQS says how many there are, up to here."""
    refused = json_sqs.refusal(
        "SendMessageBatch",
        QueueUrl=json_sqs.create(),
        Entries=[{"Id": "a", "MessageBody": "b"}] * MOST_VALUES,
    )
    assert refused.text == f"The request body has more than {MOST_VALUES} values."


def test_many_queues_are_counted_beside_requests() -> None:
    """While the text of their numbers is made, nobody waits for most of that time."""
    with Server() as server, Sqs("json", server.url) as sqs, ThreadPoolExecutor(1) as pool:
        for number in range(500):
            sqs.send(sqs.create(f"q{number}"), "b")

        def longest_share() -> float:
            """Of the time of a scrape, that of the slowest request beside it."""
            slowest = 0.0
            started = perf_counter()
            scrape = pool.submit(server.metrics)
            with Connection(server.url) as connection:
                while not scrape.done():
                    asked = perf_counter()
                    connection.send(request_bytes("GET", "/livez", {"Host": connection.host}))
                    assert connection.answer().status == 200
                    slowest = max(slowest, perf_counter() - asked)
            assert scrape.result().count("\nqueuegate_queue_messages_sent_total{") == 500
            return slowest / (perf_counter() - started)

        until(longest_share, lambda share: share < 0.3)

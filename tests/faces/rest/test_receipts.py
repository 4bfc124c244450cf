"""Many messages at once over the native API: what ReceiveMessage and batches do for ten of them."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.faces.clients import Sqs
from tests.faces.rest.client import Rest

PATH = "/v1/receipts"
ALL = {"attributes": ["All"], "message_attributes": ["All"]}
KINDS = pytest.mark.parametrize("fifo", [False, True])
# What a second receive of a message changes.
_MOVING = ("ReceiptHandle", "ApproximateReceiveCount", "ApproximateFirstReceiveTimestamp")


@pytest.fixture
def sqs(rest: Rest) -> Any:
    with Sqs("json", rest.url, rest.account) as client:
        yield client


def fill(rest: Rest, name: str, count: int, text: str = "x") -> None:
    """So many messages, on a FIFO queue in groups of ten."""
    own = {"message": text, "headers": {"tenant": "acme"}}
    for start in range(0, count, 500):
        numbers = range(start, min(start + 500, count))
        grouped = [
            {"group_id": str(n // 10), "deduplication_id": str(n)} if name.endswith(".fifo") else {}
            for n in numbers
        ]
        rest.call(
            "POST",
            f"/v1/queues/{name}/messages",
            [
                own | {"message": f"{n} {text}"} | one
                for n, one in zip(numbers, grouped, strict=True)
            ],
            status=201,
        )


def receive(rest: Rest, queue: str, **asked: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rest.call("POST", PATH, {"queue": queue} | asked)["messages"]
    return found


def handles(messages: list[dict[str, Any]]) -> list[str]:
    return [one["ReceiptHandle"] for one in messages]


def delete(rest: Rest, queue: str, receipts: list[str]) -> list[dict[str, Any]]:
    body = {"queue": queue, "receipt_handles": receipts}
    failed: list[dict[str, Any]] = rest.call("DELETE", PATH, body)["failed"]
    return failed


def number(message: dict[str, Any]) -> int:
    return int(message["Body"].strip('"').split()[0])


@KINDS
def test_a_thousand_come_and_go_by_one_request_each(rest: Rest, sqs: Sqs, fifo: bool) -> None:
    name = rest.create(fifo=fifo)
    url = sqs.url_of(name)
    fill(rest, name, 1_010)
    found = receive(rest, url, **ALL)
    assert len({one["MessageId"] for one in found}) == 1_000
    assert sqs.counts(url) == (10, 1_000, 0)
    if fifo:
        groups: dict[str, list[int]] = {}
        for one in found:
            groups.setdefault(one["Attributes"]["MessageGroupId"], []).append(number(one))
        assert all(numbers == sorted(numbers) for numbers in groups.values())
    assert delete(rest, url, handles(found)) == []
    assert sqs.counts(url) == (10, 0, 0)
    assert len(receive(rest, url)) == 10


@KINDS
def test_a_message_is_what_sqs_gives_member_for_member(rest: Rest, sqs: Sqs, fifo: bool) -> None:
    url = sqs.create_fifo() if fifo else sqs.create()
    attributes = {
        "text": {"DataType": "String.custom", "StringValue": "ü"},
        "number": {"DataType": "Number", "StringValue": "7"},
        "bytes": {"DataType": "Binary.gif", "BinaryValue": b"\x00\xff"},
    }
    system = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}}
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d"} if fifo else {}
    sqs.send(url, "ö", MessageAttributes=attributes, MessageSystemAttributes=system, **ids)
    [here] = receive(rest, url, visibility_timeout=0, **ALL)
    [there] = sqs.receive(url, AttributeNames=["All"], MessageAttributeNames=["All"])
    here["MessageAttributes"]["bytes"]["BinaryValue"] = base64.b64decode(
        here["MessageAttributes"]["bytes"]["BinaryValue"]
    )
    for one in (here, there):
        for name in _MOVING:
            one.pop(name, None)
            one["Attributes"].pop(name, None)
    assert here == there
    assert "AWSTraceHeader" in here["Attributes"]


def test_what_was_not_asked_for_is_left_out(rest: Rest) -> None:
    name = rest.create()
    fill(rest, name, 1)
    [found] = receive(rest, name, visibility_timeout=0, attributes=["SentTimestamp"])
    assert set(found) == {"MessageId", "ReceiptHandle", "MD5OfBody", "Body", "Attributes"}
    assert list(found["Attributes"]) == ["SentTimestamp"]
    [found] = receive(rest, name, message_attributes=["ten.*"])
    assert found["MessageAttributes"]["tenant"]["StringValue"] == "acme"


@KINDS
def test_long_messages_come_in_smaller_numbers_and_none_stays_hidden(
    rest: Rest, sqs: Sqs, fifo: bool
) -> None:
    """Short ones in front do not tell how long those behind them are."""
    name = rest.create(fifo=fifo)
    fill(rest, name, 20)
    url = sqs.url_of(name)
    ids = [{"MessageGroupId": f"g{n}", "MessageDeduplicationId": f"g{n}"} for n in range(40)]
    for one in ids:
        sqs.send(url, "x" * 900_000, **(one if fifo else {}))
    found = receive(rest, url)
    # 8 MiB, and ten more at most.
    assert sum(len(one["Body"]) for one in found) < (8 << 20) + 11 * 900_000
    seen = {one["MessageId"] for one in found}
    while found := receive(rest, url, wait=0):
        assert seen.isdisjoint(one["MessageId"] for one in found)
        seen |= {one["MessageId"] for one in found}
    assert len(seen) == 60


def test_an_attempt_gets_the_same_messages_again(rest: Rest) -> None:
    name = rest.create(fifo=True)
    fill(rest, name, 300)
    first = receive(rest, name, max=200, attempt_id="a")
    again = receive(rest, name, max=200, attempt_id="a")
    assert len(first) == 200
    assert [number(one) for one in again] == [number(one) for one in first]
    other = receive(rest, name, attempt_id="b")
    assert {number(one) for one in first}.isdisjoint(map(number, other))
    assert len(other) == 100


@KINDS
@pytest.mark.parametrize("attempt_id", ["a" * 129, "a b", ""])
def test_an_attempt_is_called_as_sqs_has_it(rest: Rest, attempt_id: str, *, fifo: bool) -> None:
    asked = {"queue": rest.create(fifo=fifo), "attempt_id": attempt_id}
    assert "attempt_id" in rest.refusal("POST", PATH, asked)


def test_each_receipt_is_refused_by_itself_as_in_a_batch_of_sqs(rest: Rest, sqs: Sqs) -> None:
    url = sqs.create_fifo()
    sqs.send(url, MessageGroupId="g", MessageDeduplicationId="1")
    [old] = receive(rest, url, visibility_timeout=0)
    [new] = receive(rest, url)
    asked = [old["ReceiptHandle"], "none", new["ReceiptHandle"]]
    entries = [{"Id": str(n), "ReceiptHandle": handle} for n, handle in enumerate(asked)]
    hidden = {"queue": url, "receipt_handles": asked, "visibility_timeout": 60}
    failed = rest.call("PATCH", PATH, hidden)["failed"]
    assert (
        failed
        == sqs.call(
            "ChangeMessageVisibilityBatch",
            QueueUrl=url,
            Entries=[one | {"VisibilityTimeout": 60} for one in entries],
        )["Failed"]
    )
    failed = delete(rest, url, asked[:2])
    assert failed == sqs.call("DeleteMessageBatch", QueueUrl=url, Entries=entries[:2])["Failed"]
    assert [one["Id"] for one in failed] == ["0", "1"]
    assert delete(rest, url, asked[2:]) == []
    assert sqs.counts(url) == (0, 0, 0)


def test_messages_are_shown_again(rest: Rest) -> None:
    name = rest.create()
    fill(rest, name, 30)
    asked = {"queue": name, "receipt_handles": handles(receive(rest, name))}
    assert rest.call("PATCH", PATH, asked | {"visibility_timeout": 0}) == {"failed": []}
    assert len(receive(rest, name)) == 30


def test_the_queue_is_that_of_its_url(rest: Rest) -> None:
    """Its account and region count, as on SQS: a queue of the same name is another one."""
    with Sqs("json", rest.url, rest.account) as here, Sqs("json", rest.url) as there:
        mine, other = here.create("same"), there.create("same")
        there.send(other, "theirs")
        assert receive(rest, mine) == receive(rest, "same") == []
        [found] = receive(rest, other)
        assert found["Body"] == "theirs"
        assert delete(rest, other, handles([found])) == []
        assert len(delete(rest, mine, handles([found]))) == 1
    elsewhere = f"{rest.url}/queue/eu-west-1/{rest.account}/same"
    assert "not exist" in rest.refusal("POST", PATH, {"queue": elsewhere}, status=404)


def test_a_thousand_are_the_most_and_so_it_is_announced(rest: Rest) -> None:
    name = rest.create()
    assert rest.ask("OPTIONS", PATH).headers["allow"] == "DELETE, OPTIONS, PATCH, POST"
    too_many = {"queue": name, "receipt_handles": ["x"] * 1_001}
    assert "1000" in rest.refusal("POST", PATH, {"queue": name, "max": 1_001})
    assert "1000" in rest.refusal("DELETE", PATH, too_many)
    assert "1000" in rest.refusal("PATCH", PATH, too_many | {"visibility_timeout": 0})
    assert rest.call("POST", PATH, {"queue": name}) == {"messages": []}

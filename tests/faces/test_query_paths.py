"""The ways of a form of SQS through the gateway: the same answers, but for ids.

It comes to `/` or to the queue's path, and is taken by the fast path or the ordinary one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faces.clients import Sqs
from tests.faces.connections import Answer, Connection
from tests.faces.servers import Server
from tests.faces.test_publish_paths import FAST, Recording

_ID = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![0-9])[0-9]{13,20}(?![0-9])")
_HANDLE = re.compile(rb"<ReceiptHandle>[^<]+<")
_BINARY = {"DataType": "Binary", "BinaryValue": b"\0"}
_TEXT = {"DataType": "String", "StringValue": "v"}


class Way:
    """A client with a queue of its own account, and whether the fast path answered."""

    def __init__(self, server: Server, *, is_fast: bool, is_path: bool, is_named: bool) -> None:
        self.sqs = Sqs("query" if is_fast else "query-long", server.url)
        self.is_fast = is_fast
        self.is_named = is_named
        """Whether the form names the queue."""
        self.url = self.sqs.create(VisibilityTimeout="43200")
        self.path = self.url.removeprefix(server.url) if is_path else "/"
        self.connection = Recording(server.url)
        self.call("ReceiveMessage", {})

    def call(self, action: str, members: dict[str, Any]) -> Answer:
        named = {"QueueUrl": self.url} if self.is_named else {}
        self.connection.send(self.sqs.encode(action, named | members, path=self.path))
        return self.connection.answer()

    def masked(self, action: str, members: dict[str, Any]) -> Any:
        answer = self.call(action, members)
        assert (FAST in self.connection.heads[-1]) == self.is_fast
        headers = {**answer.headers}
        assert headers.pop("x-amzn-requestid").encode() in answer.body
        headers.pop("date")
        headers.pop("content-length")
        return answer.status, headers, _HANDLE.sub(b"HANDLE", _ID.sub(b"ID", answer.body))

    def handle(self) -> str:
        self.sqs.send(self.url)
        handle: str = self.sqs.receive(self.url, 1)[0]["ReceiptHandle"]
        return handle


@pytest.fixture
def ways(server: Server) -> Iterator[list[Way]]:
    found = [
        Way(server, is_fast=is_fast, is_path=is_path, is_named=is_named)
        for is_fast in (True, False)
        for is_path, is_named in ((False, True), (True, True), (True, False))
    ]
    yield found
    for way in found:
        way.connection.close()
        way.sqs.close()


def _assert_alike(ways: list[Way], action: str, members: dict[str, Any]) -> int:
    """Ask the same on each way; the status."""
    first, *others = [way.masked(action, members) for way in ways]
    for other in others:
        assert other == first
    status: int = first[0]
    return status


@pytest.mark.parametrize(
    ("members", "status"),
    [
        ({"MessageBody": "x"}, 200),
        ({"MessageBody": " ü+%&=<\r\n\t>'\" 100 % \U0001f600"}, 200),
        ({"MessageBody": "x", "DelaySeconds": 0}, 200),
        ({"MessageBody": "x", "MessageAttributes": {"a": _TEXT}}, 200),
        ({"MessageBody": "x", "MessageAttributes": {"a": _BINARY}}, 200),
        ({"MessageBody": "x" * 20_000}, 200),
        ({"MessageBody": "\0"}, 400),
        ({"MessageBody": ""}, 400),
        ({}, 400),
        ({"MessageBody": "x", "DelaySeconds": 901}, 400),
        ({"MessageBody": "x", "MessageGroupId": "g" * 129}, 400),
        ({"MessageBody": "x", "MessageAttributes": {"a b": _TEXT}}, 400),
    ],
)  # fmt: skip
def test_a_send(ways: list[Way], members: dict[str, Any], status: int) -> None:
    assert _assert_alike(ways, "SendMessage", members) == status
    for _ in range(3):
        asked = {"MaxNumberOfMessages": 10, "AttributeNames": ["MD5OfBody"], "WaitTimeSeconds": 0}
        assert (
            _assert_alike(ways, "ReceiveMessage", asked | {"MessageAttributeNames": ["All"]}) == 200
        )


@pytest.mark.parametrize(
    ("members", "status"),
    [
        ({"MaxNumberOfMessages": 11}, 400),
        ({"MaxNumberOfMessages": 0}, 400),
        ({"WaitTimeSeconds": 21}, 400),
        ({"VisibilityTimeout": 43_201}, 400),
        ({"AttributeNames": ["All"]}, 200),
        ({"AttributeNames": []}, 200),
        ({"ReceiveRequestAttemptId": "x"}, 200),
    ],
)
def test_a_receive(ways: list[Way], members: dict[str, Any], status: int) -> None:
    assert _assert_alike(ways, "ReceiveMessage", members) == status


def test_batches(ways: list[Way]) -> None:
    good = {"Id": "a", "MessageBody": "x"}
    for entries, status in (
        ([good, {"Id": "b", "MessageBody": "\0"}, {"Id": "c", "MessageBody": "y"}], 200),
        ([good, good], 400),
        ([], 400),
        ([{"Id": "a b", "MessageBody": "x"}], 400),
        ([good | {"Id": str(number)} for number in range(11)], 400),
    ):
        assert _assert_alike(ways, "SendMessageBatch", {"Entries": entries}) == status


def test_receipts(ways: list[Way]) -> None:
    for action, more in (
        ("ChangeMessageVisibility", {"VisibilityTimeout": 60}),
        ("ChangeMessageVisibility", {"VisibilityTimeout": 43_201}),
        ("DeleteMessage", {}),
    ):
        answers = [way.masked(action, {"ReceiptHandle": way.handle()} | more) for way in ways]
        assert len({repr(answer) for answer in answers}) == 1
        refused = _assert_alike(ways, action, {"ReceiptHandle": "x"} | more)
        assert refused in (400, 404)
    for action, more in (
        ("ChangeMessageVisibilityBatch", {"VisibilityTimeout": 60}),
        ("DeleteMessageBatch", {}),
    ):
        answers = []
        for way in ways:
            entries = [
                {"Id": "a", "ReceiptHandle": way.handle()} | more,
                {"Id": "b", "ReceiptHandle": "x"} | more,
            ]
            answers.append(repr(way.masked(action, {"Entries": entries})))
        assert len({*answers}) == 1


def test_what_is_not_there(ways: list[Way], server: Server) -> None:
    sqs = ways[0].sqs
    for path in (
        "/queue/us-east-1/000000000000/none",
        f"/{sqs.account}/none",
        "/" + "9" * 13 + "/a",
    ):
        with Connection(server.url) as connection:
            connection.send(sqs.encode("SendMessage", {"MessageBody": "x"}, path=path))
            answer = connection.answer()
        assert answer.status == 400
        assert "AWS.SimpleQueueService.NonExistentQueue" in answer.text

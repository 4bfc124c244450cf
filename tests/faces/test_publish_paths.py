"""The two ways of a publish through the gateway: the same answer and copies, but for ids."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.faces.connections import Answer, Connection
from tests.faces.servers import Server
from tests.faces.sns_client import Sns
from tests.faces.test_publish import ODD_TEXTS, RAW, binary, text
from tests.faces.test_publish_refusals import ATTRIBUTES, FIFO_MEMBERS, INVALID_MEMBERS, short

_ID = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![0-9])[0-9]{20}(?![0-9])")
# What the fast path writes; the ordinary one writes header names in lower case.
FAST = b"x-amzn-RequestId:"

WIRES = pytest.mark.parametrize("wire", ["query", "json"])

GOOD: list[dict[str, Any]] = [
    {},
    *[{"Message": odd, "MessageAttributes": {"odd": text(odd)}} for odd in ODD_TEXTS],
    {"Subject": "\u00fc" * 100, "MessageAttributes": {"n.1_-": text("-1.50e3", "Number.x")}},
    {"MessageAttributes": {"a": text("[1]", "String.Array"), "b": binary(b"\0\xff")}},
    {"MessageStructure": "json", "Message": '{"default": "d", "sqs": "q", "http": 7}'},
    {"MessageStructure": ""},
    {"MessageAttributes": {f"a{number}": text("v") for number in range(11)}},
]
REFUSED = [members for members, _ in INVALID_MEMBERS + FIFO_MEMBERS] + [
    {"MessageAttributes": attributes} for attributes, _ in ATTRIBUTES
]


class Recording(Connection):
    """A connection that keeps the heads of answers as they were sent."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.heads: list[bytes] = []

    def until(self, mark: bytes) -> bytes:
        found = super().until(mark)
        if mark == b"\r\n\r\n":
            self.heads.append(found)
        return found


class Path:
    """One way: a client, a topic of its own account with two queues, and who answered."""

    def __init__(self, wire: str, server: Server, *, fifo: bool) -> None:
        self.sns = Sns(wire, server.url)
        suffix = ".fifo" if fifo else ""
        if fifo:
            self.topic = self.sns.create_fifo(ContentBasedDeduplication="false")
        else:
            self.topic = self.sns.create()
        self.urls = [
            self.sns.subscribe_queue(self.topic, f"plain{suffix}", **RAW),
            self.sns.subscribe_queue(self.topic, f"wrapped{suffix}"),
        ]
        self.sns.warm(self.topic)
        self.connection = Recording(server.url)

    def ask(self, action: str, members: dict[str, Any]) -> Answer:
        self.connection.send(self.sns.encode(action, {"TopicArn": self.topic} | members))
        return self.connection.answer()

    def assert_taken(self) -> None:
        """It was this way and not the other; but for what does not come in one read, and once
        again when the gateway hears of our own subscriptions late."""
        heads = self.connection.heads
        fast = sum(FAST in head for head in heads)
        if self.sns.wire.endswith("-long"):
            assert fast == 0
        else:
            assert fast > len(heads) * 0.8 or len(heads) < 30, (fast, len(heads))

    def masked(self, answer: Answer) -> Any:
        """Return the part of an answer that is the same on each path."""
        body = _ID.sub(b"ID", answer.body)
        headers = {**answer.headers}
        assert headers.pop("x-amzn-requestid")
        assert headers.pop("date")
        length = int(headers.pop("content-length"))
        assert length == len(answer.body)
        return answer.status, headers, body

    def copies(self) -> list[Any]:
        """Return the messages of the queues in order, without ids and times."""
        found: list[Any] = []
        sqs = self.sns.sqs()
        for url in self.urls:
            received = sqs.receive(url, MessageAttributeNames=["All"])
            sqs.delete(url, *received)
            for message in received:
                body = message["Body"]
                if url is self.urls[1]:
                    envelope = json.loads(body)
                    assert re.match(r"2\d{3}-", envelope.pop("Timestamp"))
                    for name in ("MessageId", "Signature", "SequenceNumber", "UnsubscribeURL"):
                        envelope.pop(name, None)
                    envelope["TopicArn"] = envelope["TopicArn"].rpartition(":")[2]
                    body = [*envelope.items()]
                found.append((body, message.get("MessageAttributes")))
        return found

    def close(self) -> None:
        self.connection.close()
        self.sns.close()


Both = Callable[[str, bool], list[Path]]


@pytest.fixture(scope="module")
def both(server: Server) -> Iterator[Both]:
    """``both(wire, fifo)``: the fast and the ordinary way of a wire, the same for all tests."""
    made: dict[tuple[str, bool], list[Path]] = {}

    def make(wire: str, fifo: bool) -> list[Path]:
        if (wire, fifo) not in made:
            wires = (wire, f"{wire}-long")
            made[wire, fifo] = [Path(each, server, fifo=fifo) for each in wires]
        return made[wire, fifo]

    yield make
    everything = [path for paths in made.values() for path in paths]
    for path in everything:
        path.close()
    for path in everything:
        path.assert_taken()


def _assert_alike(paths: list[Path], members: dict[str, Any]) -> int:
    """Ask the same on both ways; the status."""
    members = {"Message": "x"} | members
    entries = [{"Id": "a", **members}, {"Id": "b", "Message": ""}]
    statuses: set[int] = set()
    for action, asked in (
        ("Publish", members),
        ("PublishBatch", {"PublishBatchRequestEntries": entries}),
    ):
        answers = [path.masked(path.ask(action, asked)) for path in paths]
        assert answers[0] == answers[1]
        statuses.add(answers[0][0])
    assert paths[0].copies() == paths[1].copies()
    return max(statuses)


@WIRES
@pytest.mark.parametrize("fifo", [False, True])
def test_a_publish(both: Both, wire: str, fifo: bool) -> None:
    for number, members in enumerate(GOOD):
        ids = {"MessageGroupId": f"g{number}"}
        if fifo:
            ids["MessageDeduplicationId"] = str(number)
        assert _assert_alike(both(wire, fifo), members | ids) == 200


@WIRES
@pytest.mark.parametrize("members", REFUSED, ids=short)
def test_a_refusal(both: Both, wire: str, members: dict[str, Any]) -> None:
    for fifo in (False, True):
        _assert_alike(both(wire, fifo), members)


@WIRES
def test_what_is_wrong_with_a_batch(both: Both, wire: str) -> None:
    good = {"Id": "a", "Message": "x"}
    for entries in (
        [good] * 2,
        [good | {"Id": str(number)} for number in range(11)],
        [good, {"Id": "b"}],
        [{"Message": "x"}],
        [{"Id": "\0", "Message": "x"}],
        [{"Id": "i" * 81, "Message": "x"}],
    ):
        asked = {"PublishBatchRequestEntries": entries}
        answers = [path.masked(path.ask("PublishBatch", asked)) for path in both(wire, False)]
        assert answers[0] == answers[1]
        assert answers[0][0] == 400


@WIRES
def test_what_is_wrong_beside_the_message(both: Both, wire: str) -> None:
    for members in ({}, {"PhoneNumber": "", "Message": "x"}, {"Subject": "x"}):
        answers = [path.masked(path.ask("Publish", members)) for path in both(wire, False)]
        assert answers[0] == answers[1]

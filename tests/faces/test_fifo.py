"""FIFO queues over the wire: ids, deduplication, groups, attempts (docs/contract/sqs.md 2.7)."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import pytest

from tests.faces.clients import Sqs
from tests.faces.servers import Server
from tests.protocol import contract

CASES: list[dict[str, Any]] = contract.load("fifo_receive")["cases"]
# Recorded times are taken so many times, so that what requests take does not count.
_SLOWER = 10
CONTENT_BASED: list[dict[str, Any]] = contract.load("md5")["content_based_dedup"]


class Scenario:
    """One recorded scenario: messages are called by group and name."""

    def __init__(self, sqs: Sqs, server: Server, case: dict[str, Any]) -> None:
        self.sqs = sqs
        self.server = server
        self.case = case
        queue = {k: str(v * _SLOWER) for k, v in case.get("queue", {}).items()}
        self.url = sqs.create_fifo(**queue)
        self.handles: dict[str, str] = {}
        for number, (group, name) in enumerate(case["send"]):
            body = name if "queue" in case else f"{group}-{name}"
            sqs.send(self.url, body, MessageGroupId=group, MessageDeduplicationId=str(number))

    def receive(self, step: dict[str, Any]) -> None:
        """One receive, and what must come of it."""
        asked = step["receive"]
        more = {"VisibilityTimeout": asked["visibility"]} if "visibility" in asked else {}
        found = self.sqs.receive(self.url, asked["max"], **more)
        names = [message["Body"] for message in found]
        self.handles |= {message["Body"]: message["ReceiptHandle"] for message in found}
        if "expect_any_of" in step:
            assert names in step["expect_any_of"]
        elif "order of GROUPS" in step.get("note", ""):
            assert _by_group(names) == _by_group(step["expect"])
        else:
            assert names == step["expect"]

    def step(self, step: dict[str, Any]) -> None:
        """One step: time, changes and deletes come before the receive."""
        if "after" in step:
            self.server.advance(31)
        if "change_visibility" in step:
            self.change(*step["change_visibility"])
        for name in step.get("delete", ()):
            handle = self.handles[name]
            self.sqs.call("DeleteMessage", QueueUrl=self.url, ReceiptHandle=handle)
        if "change_visibility_index_seconds" in step:
            index, seconds = step["change_visibility_index_seconds"]
            self.change(list(self.handles)[index], seconds * _SLOWER)
            self.server.advance(step["sleep"] * _SLOWER)
        if "receive" in step:
            self.receive(step)

    def change(self, name: str, seconds: int) -> None:
        self.sqs.call(
            "ChangeMessageVisibility",
            QueueUrl=self.url,
            ReceiptHandle=self.handles[name],
            VisibilityTimeout=seconds,
        )


def _by_group(names: list[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.partition("-")[0], []).append(name)
    return groups


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_recorded_deliveries(sqs: Sqs, server: Server, case: dict[str, Any]) -> None:
    scenario = Scenario(sqs, server, case)
    for step in case["steps"]:
        scenario.step(step)


@pytest.mark.parametrize(("index", "left"), [(0, []), (1, ["foo"]), (2, ["foo", "bar"])])
def test_an_extension_hides_what_stands_behind_it(
    sqs: Sqs, server: Server, index: int, left: list[str]
) -> None:
    url = sqs.create_fifo(VisibilityTimeout="10")
    for body in ("foo", "bar", "baz"):
        sqs.send(url, body, MessageGroupId="1")
    handle = sqs.receive(url, 5)[index]["ReceiptHandle"]
    members = {"QueueUrl": url, "ReceiptHandle": handle, "VisibilityTimeout": 40}
    sqs.call("ChangeMessageVisibility", **members)
    server.advance(25)
    assert sqs.bodies(url, 5) == left


def test_what_a_fifo_message_shows(sqs: Sqs) -> None:
    url = sqs.create_fifo()
    sent = sqs.send(url, "b", MessageGroupId="g", MessageDeduplicationId="d")
    assert sent.keys() == {"MessageId", "MD5OfMessageBody", "SequenceNumber"}
    [message] = sqs.receive(url, AttributeNames=["All"])
    attributes = message["Attributes"]
    assert attributes["MessageGroupId"] == "g"
    assert attributes["MessageDeduplicationId"] == "d"
    assert attributes["SequenceNumber"] == sent["SequenceNumber"]
    # As recorded; that there are always twenty digits is inferred (docs/contract/sqs.md 2.7).
    assert re.fullmatch(r"18[0-9]{18}", sent["SequenceNumber"])


@pytest.mark.parametrize("case", CONTENT_BASED, ids=lambda case: repr(case["body"])[:30])
def test_the_content_based_id_is_recorded(sqs: Sqs, case: dict[str, Any]) -> None:
    url = sqs.create_fifo()
    sqs.send(url, case["body"], MessageGroupId="g")
    [message] = sqs.receive(url, AttributeNames=["All"])
    assert message["Attributes"]["MessageDeduplicationId"] == case["sha256_hex"]


def test_an_explicit_id_goes_before_the_content_and_attributes_do_not_count(sqs: Sqs) -> None:
    url = sqs.create_fifo()
    value = {"DataType": "String", "StringValue": "v"}
    sqs.send(url, "same", MessageGroupId="g")
    sqs.send(url, "same", MessageGroupId="g", MessageAttributes={"a": value})
    sqs.send(url, "same", MessageGroupId="g", MessageDeduplicationId="mine")
    found = sqs.receive(url, AttributeNames=["MessageDeduplicationId"])
    ids = [message["Attributes"]["MessageDeduplicationId"] for message in found]
    assert ids == [hashlib.sha256(b"same").hexdigest(), "mine"]


def test_sequence_numbers_rise(sqs: Sqs) -> None:
    url = sqs.create_fifo()
    numbers = [
        sqs.send(url, f"{group}{number}", MessageGroupId=group)["SequenceNumber"]
        for number in range(3)
        for group in ("a", "b")
    ]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) == 6
    # Tools that mask the default account in recorded answers leave the numbers alone.
    assert not any("0" * 12 in number for number in numbers)


def test_a_duplicate_gets_the_first_ones_ids_also_after_its_delete(
    sqs: Sqs, server: Server
) -> None:
    url = sqs.create_fifo()
    first = sqs.send(url, "one", MessageGroupId="g", MessageDeduplicationId="d")
    again = sqs.send(url, "two", MessageGroupId="other", MessageDeduplicationId="d")
    assert again["MessageId"] == first["MessageId"]
    assert again["SequenceNumber"] == first["SequenceNumber"]
    sqs.delete(url, *sqs.receive(url))
    third = sqs.send(url, "one", MessageGroupId="g", MessageDeduplicationId="d")
    assert third["MessageId"] == first["MessageId"]
    assert sqs.counts(url) == (0, 0, 0)
    server.advance(290)
    sqs.send(url, "one", MessageGroupId="g", MessageDeduplicationId="d")
    server.advance(11)
    later = sqs.send(url, "one", MessageGroupId="g", MessageDeduplicationId="d")
    assert later["MessageId"] != first["MessageId"]
    assert sqs.bodies(url) == ["one"]


def test_the_scope_of_deduplication(sqs: Sqs) -> None:
    per_queue = sqs.create_fifo("q.fifo")
    per_group = sqs.create_fifo("g.fifo", DeduplicationScope="messageGroup")
    for url, count in ((per_queue, 1), (per_group, 2)):
        for group in ("a", "b", "a"):
            sqs.send(url, "x", MessageGroupId=group, MessageDeduplicationId="d")
        assert len(sqs.receive(url)) == count


def test_a_purge_forgets_deduplication_ids(sqs: Sqs) -> None:
    url = sqs.create_fifo()
    first = sqs.send(url, "x", MessageGroupId="g")
    sqs.call("PurgeQueue", QueueUrl=url)
    assert sqs.send(url, "x", MessageGroupId="g")["MessageId"] != first["MessageId"]
    assert sqs.bodies(url) == ["x"]


def test_a_batch_keeps_its_order_and_has_sequence_numbers(sqs: Sqs) -> None:
    url = sqs.create_fifo()
    entries = [
        {"Id": f"e{number}", "MessageBody": str(number), "MessageGroupId": "g"}
        for number in range(10)
    ]
    sent = sqs.call("SendMessageBatch", QueueUrl=url, Entries=entries)["Successful"]
    numbers = [entry["SequenceNumber"] for entry in sent]
    assert numbers == sorted(numbers)
    assert sqs.bodies(url) == [str(number) for number in range(10)]


def test_duplicates_within_one_batch(sqs: Sqs) -> None:
    url = sqs.create_fifo()
    entries = [
        {"Id": name, "MessageBody": name, "MessageGroupId": "g", "MessageDeduplicationId": "d"}
        for name in ("a", "b")
    ]
    one, two = sqs.call("SendMessageBatch", QueueUrl=url, Entries=entries)["Successful"]
    assert one["MessageId"] == two["MessageId"]
    assert sqs.bodies(url) == ["a"]


def test_a_delay_per_message_is_refused_unless_zero(sqs: Sqs) -> None:
    url = sqs.create_fifo(DelaySeconds="20")
    ids = {"QueueUrl": url, "MessageGroupId": "g"}
    refused = sqs.refusal("SendMessage", MessageBody="a", DelaySeconds=5, **ids)
    assert refused.code == "InvalidParameterValue"
    sqs.call("SendMessage", MessageBody="b", DelaySeconds=0, **ids)
    assert sqs.counts(url) == (0, 0, 1)


def test_a_new_queue_delay_reaches_messages_that_are_there(sqs: Sqs, server: Server) -> None:
    url = sqs.create_fifo()
    sqs.send(url, "a", MessageGroupId="g")
    sqs.call("SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": "60"})
    assert sqs.bodies(url) == []
    server.advance(61)
    assert sqs.bodies(url) == ["a"]


def test_new_sends_do_not_unlock_a_group(sqs: Sqs) -> None:
    url = sqs.create_fifo()
    sqs.send(url, "a", MessageGroupId="g")
    [first] = sqs.receive(url)
    sqs.send(url, "b", MessageGroupId="g")
    assert sqs.bodies(url) == []
    sqs.delete(url, first)
    assert sqs.bodies(url) == ["b"]


def test_order_holds_after_an_expiry(sqs: Sqs, server: Server) -> None:
    url = sqs.create_fifo()
    for body in ("a", "b", "c"):
        sqs.send(url, body, MessageGroupId="g")
    assert sqs.bodies(url, 2) == ["a", "b"]
    server.advance(31)
    assert sqs.bodies(url, 10) == ["a", "b", "c"]


def test_the_same_attempt_gets_the_same_messages_and_handles(sqs: Sqs, server: Server) -> None:
    url = sqs.create_fifo()
    for body in ("a", "b"):
        sqs.send(url, body, MessageGroupId="g")
    attempt: dict[str, Any] = {"ReceiveRequestAttemptId": "one"}
    first = sqs.receive(url, 1, **attempt)
    again = sqs.receive(url, 1, **attempt)
    assert [m["Body"] for m in again] == ["a"]
    assert again[0]["MessageId"] == first[0]["MessageId"]
    assert sqs.receive(url, 1, ReceiveRequestAttemptId="two") == []
    sqs.delete(url, *again)
    assert sqs.bodies(url, 1, **attempt) == ["b"]
    server.advance(301)
    assert sqs.bodies(url, 1, **attempt) == ["b"]


@pytest.mark.parametrize("name", ["MessageGroupId", "MessageDeduplicationId"])
def test_every_printable_character_makes_an_id(sqs: Sqs, name: str) -> None:
    url = sqs.create_fifo()
    value = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~aZ0"
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d"} | {name: value}
    sqs.send(url, **ids)
    [message] = sqs.receive(url, AttributeNames=["All"])
    assert message["Attributes"][name] == value


def test_ids_of_128_characters(sqs: Sqs) -> None:
    url = sqs.create_fifo()
    sqs.send(url, MessageGroupId="g" * 128, MessageDeduplicationId="d" * 128)
    [message] = sqs.receive(url, AttributeNames=["All"])
    assert message["Attributes"]["MessageGroupId"] == "g" * 128
    assert len(message["ReceiptHandle"]) <= 1024
    members = {"QueueUrl": url, "MessageBody": "b", "MessageGroupId": "g"}
    refused = sqs.refusal("SendMessage", **members, MessageDeduplicationId="d" * 129)
    assert refused.code == "InvalidParameterValue"
    sqs.delete(url, message)
    assert sqs.counts(url) == (0, 0, 0)

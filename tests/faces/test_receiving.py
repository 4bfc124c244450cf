"""ReceiveMessage: what a message shows, in which order, and for how long it hides (2.5, 2.12)."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import pytest

from tests.faces.clients import Sqs
from tests.faces.servers import Server
from tests.protocol import contract

MD5: Mapping[str, list[dict[str, Any]]] = contract.with_bytes(contract.load("md5"))
STRING = {"DataType": "String", "StringValue": "v"}


def _attributes(case: dict[str, Any]) -> dict[str, Any]:
    """The vectors write binary values in base64; clients take bytes."""
    return {
        name: value | {"BinaryValue": base64.b64decode(value["BinaryValue"])}
        if "BinaryValue" in value
        else value
        for name, value in case["attributes"].items()
    }


def _is_system(case: dict[str, Any]) -> bool:
    return "AWSTraceHeader" in case["attributes"]


@pytest.mark.parametrize("case", MD5["attributes"], ids=lambda case: str(case["name"]))
def test_md5_of_attributes_and_the_attributes_themselves(sqs: Sqs, case: dict[str, Any]) -> None:
    url = sqs.create()
    values = _attributes(case)
    if _is_system(case):
        sent = sqs.send(url, MessageSystemAttributes=values)
        assert sent["MD5OfMessageSystemAttributes"] == case["md5"]
        assert "MD5OfMessageAttributes" not in sent
        return
    sent = sqs.send(url, MessageAttributes=values)
    [message] = sqs.receive(url, MessageAttributeNames=["All"])
    if values:
        assert sent["MD5OfMessageAttributes"] == case["md5"]
        assert message["MD5OfMessageAttributes"] == case["md5"]
        assert message["MessageAttributes"] == values
    else:
        assert "MD5OfMessageAttributes" not in sent | message
        assert "MessageAttributes" not in message


@pytest.mark.parametrize("case", MD5["bodies"], ids=lambda case: repr(case["body"])[:30])
def test_md5_of_body_and_the_body_itself(sqs: Sqs, case: dict[str, Any]) -> None:
    url = sqs.create()
    assert sqs.send(url, case["body"])["MD5OfMessageBody"] == case["md5"]
    [message] = sqs.receive(url)
    assert (message["Body"], message["MD5OfBody"]) == (case["body"], case["md5"])


@pytest.mark.parametrize(
    "body",
    [
        "a\rb\r\nc\n",
        "&quot;<x>&amp;\"'</x>",
        "ż😀\ud7ff\ue000\U0010ffff",
        "\t \n",
        "a+b%20c=d&e",
        "{}",
    ],
)
def test_bodies_come_back_as_they_were_sent(sqs: Sqs, body: str) -> None:
    url = sqs.create()
    value = {"DataType": "String", "StringValue": body}
    sent = sqs.send(url, body, MessageAttributes={"a": value})
    [message] = sqs.receive(url, MessageAttributeNames=["a"])
    assert message["Body"] == body
    assert message["MessageAttributes"]["a"] == value
    assert message["MD5OfBody"] == sent["MD5OfMessageBody"]
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]


@pytest.mark.parametrize("body", ["a\x00b", "a\x0bb", "\ufffe", "\uffff", "\x1f"])
def test_characters_outside_the_set_are_refused(sqs: Sqs, body: str) -> None:
    url = sqs.create()
    refused = sqs.refusal("SendMessage", QueueUrl=url, MessageBody=body)
    assert (refused.status, refused.code) == (400, "InvalidMessageContents")
    assert sqs.counts(url) == (0, 0, 0)


def test_a_message_of_one_mebibyte(sqs: Sqs) -> None:
    url = sqs.create()
    body = "ż" * 524_288
    sqs.send(url, body)
    [message] = sqs.receive(url)
    assert message["Body"] == body


def test_only_what_was_asked_for_is_shown(sqs: Sqs) -> None:
    url = sqs.create()
    sent = sqs.send(url, "b", MessageAttributes={"a": STRING})
    [message] = sqs.receive(url, VisibilityTimeout=0)
    assert message.keys() == {"MessageId", "ReceiptHandle", "MD5OfBody", "Body"}
    assert message["MessageId"] == sent["MessageId"]
    assert sent.keys() == {"MessageId", "MD5OfMessageBody", "MD5OfMessageAttributes"}


def test_all_system_attributes_of_a_plain_message(sqs: Sqs) -> None:
    url = sqs.create()
    sqs.send(url)
    [message] = sqs.receive(url, AttributeNames=["All"])
    attributes = message["Attributes"]
    assert attributes.keys() == {
        "SenderId",
        "SentTimestamp",
        "ApproximateReceiveCount",
        "ApproximateFirstReceiveTimestamp",
    }
    assert attributes["ApproximateReceiveCount"] == "1"
    assert len(attributes["SentTimestamp"]) == 13
    assert attributes["ApproximateFirstReceiveTimestamp"] >= attributes["SentTimestamp"]


@pytest.mark.parametrize("member", ["AttributeNames", "MessageSystemAttributeNames"])
@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["SentTimestamp"], {"SentTimestamp"}),
        (["SenderId", "ApproximateReceiveCount"], {"SenderId", "ApproximateReceiveCount"}),
        (["AWSTraceHeader", "MessageGroupId"], set()),
        (["SequenceNumber", "SenderId"], {"SenderId"}),
    ],
)
def test_system_attributes_by_name(
    sqs: Sqs, member: str, names: list[str], shown: set[str]
) -> None:
    url = sqs.create()
    sqs.send(url)
    wanted: dict[str, Any] = {member: names}
    [message] = sqs.receive(url, **wanted)
    assert set(message.get("Attributes", {})) == shown


def test_both_name_lists_unite_on_json_and_the_older_decides_on_query(sqs: Sqs) -> None:
    url = sqs.create()
    sqs.send(url)
    names: dict[str, Any] = {
        "AttributeNames": ["SenderId"],
        "MessageSystemAttributeNames": ["SentTimestamp"],
    }
    [message] = sqs.receive(url, **names)
    united = {"SenderId"} if sqs.is_query else {"SenderId", "SentTimestamp"}
    assert set(message["Attributes"]) == united


NAMED = dict.fromkeys(("Hello", "Help.Me", "General", "color", "colour.deep"), STRING)


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        (["All"], set(NAMED)),
        ([".*"], set(NAMED)),
        (["*"], set(NAMED)),
        (["Hello"], {"Hello"}),
        (["Hello", "nope"], {"Hello"}),
        (["Hel.*"], {"Hello", "Help.Me"}),
        (["col.*"], {"color", "colour.deep"}),
        (["Help.*"], {"Help.Me"}),
        (
            ["Hello!.*", "Hel.*", "Hello.*", "col.*", "zz.*"],
            {"Hello", "Help.Me", "color", "colour.deep"},
        ),
        (["nope"], set()),
        (["hello"], set()),
        (["no such, name!"], set()),
        (["Hel*"], set()),
        ([], set()),
    ],
)
def test_message_attributes_by_name(sqs: Sqs, wanted: list[str], shown: set[str]) -> None:
    url = sqs.create()
    sqs.send(url, MessageAttributes=NAMED)
    [message] = sqs.receive(url, MessageAttributeNames=wanted)
    assert set(message.get("MessageAttributes", {})) == shown
    assert ("MD5OfMessageAttributes" in message) == bool(shown)


def test_a_receive_may_name_any_number_of_attributes(sqs: Sqs) -> None:
    """No source has a limit (docs/contract/refusals.md 6.2)."""
    url = sqs.create()
    sqs.send(url, MessageAttributes=NAMED)
    others = [f"n{number}" for number in range(300)] + [f"{'p' * n}.*" for n in range(1, 300)]
    names: dict[str, Any] = {
        "MessageSystemAttributeNames": [*others, "SenderId"],
        "MessageAttributeNames": [*others, "color", "Hel.*"],
    }
    [message] = sqs.receive(url, **names)
    assert set(message["MessageAttributes"]) == {"color", "Hello", "Help.Me"}
    assert set(message["Attributes"]) == {"SenderId"}


def test_the_digest_covers_only_what_is_shown(sqs: Sqs) -> None:
    url = sqs.create()
    case = next(case for case in MD5["attributes"] if case["name"] == "filtered-prefix")
    everything = next(case for case in MD5["attributes"] if case["name"] == "three-strings")
    sqs.send(url, MessageAttributes=everything["attributes"])
    [message] = sqs.receive(url, MessageAttributeNames=["Hel.*"])
    assert message["MD5OfMessageAttributes"] == case["md5"]


def test_the_trace_header_comes_from_the_attribute_or_from_the_request(sqs: Sqs) -> None:
    url = sqs.create()
    given = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-given"}}
    header = {"X-Amzn-Trace-Id": "Root=1-header"}
    members = {"QueueUrl": url, "MessageBody": "b"}
    answer = sqs.ask("SendMessage", members, headers=header)
    assert "MD5OfMessageSystemAttributes" not in sqs.decode("SendMessage", answer)
    with_both = members | {"MessageSystemAttributes": given}
    sqs.decode("SendMessage", sqs.ask("SendMessage", with_both, headers=header))
    found = sqs.receive(url, AttributeNames=["AWSTraceHeader"])
    traces = [message["Attributes"]["AWSTraceHeader"] for message in found]
    assert traces == ["Root=1-header", "Root=1-given"]


def test_visibility_zero_hands_out_and_leaves_visible(sqs: Sqs) -> None:
    url = sqs.create()
    sqs.send(url)
    handles = set()
    for count in ("1", "2", "3"):
        [message] = sqs.receive(url, VisibilityTimeout=0, AttributeNames=["All"])
        assert message["Attributes"]["ApproximateReceiveCount"] == count
        handles.add(message["ReceiptHandle"])
    assert len(handles) == 3
    assert sqs.counts(url) == (1, 0, 0)


def test_messages_come_in_the_order_of_their_sends(sqs: Sqs) -> None:
    url = sqs.create()
    sent = [str(number) for number in range(12)]
    for body in sent:
        sqs.send(url, body)
    assert sqs.bodies(url, 10) + sqs.bodies(url, 10) == sent


def test_an_expired_message_comes_before_younger_ones(sqs: Sqs, server: Server) -> None:
    url = sqs.create(VisibilityTimeout="30")
    sqs.send(url, "old")
    [first] = sqs.receive(url, AttributeNames=["All"])
    sqs.send(url, "young")
    server.advance(31)
    again, young = sqs.receive(url, AttributeNames=["All"])
    assert (again["Body"], young["Body"]) == ("old", "young")
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"
    kept = ("SentTimestamp", "ApproximateFirstReceiveTimestamp", "SenderId")
    assert [again["Attributes"][k] for k in kept] == [first["Attributes"][k] for k in kept]


def test_visibility_of_the_request_goes_before_that_of_the_queue(sqs: Sqs, server: Server) -> None:
    url = sqs.create(VisibilityTimeout="30")
    sqs.send(url)
    assert len(sqs.receive(url, VisibilityTimeout=60)) == 1
    server.advance(31)
    assert sqs.receive(url) == []
    server.advance(31)
    assert len(sqs.receive(url)) == 1
    server.advance(31)
    assert len(sqs.receive(url)) == 1


def test_a_receive_without_a_number_takes_one(sqs: Sqs) -> None:
    url = sqs.create()
    for _ in range(3):
        sqs.send(url)
    assert len(sqs.call("ReceiveMessage", QueueUrl=url)["Messages"]) == 1


def test_delays_of_message_and_queue(sqs: Sqs, server: Server) -> None:
    url = sqs.create(DelaySeconds="20")
    sqs.send(url, "queue's")
    sqs.send(url, "own", DelaySeconds=10)
    sqs.send(url, "none", DelaySeconds=0)
    assert sqs.counts(url) == (1, 0, 2)
    assert sqs.bodies(url) == ["none"]
    server.advance(11)
    assert sqs.bodies(url) == ["own"]
    server.advance(10)
    assert sqs.bodies(url) == ["queue's"]


def test_a_new_queue_delay_leaves_messages_that_are_there(sqs: Sqs) -> None:
    url = sqs.create()
    sqs.send(url, "before")
    sqs.call("SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": "60"})
    sqs.send(url, "after")
    assert sqs.bodies(url) == ["before"]
    assert sqs.counts(url) == (0, 1, 1)


def test_messages_older_than_the_retention_are_gone(sqs: Sqs, server: Server) -> None:
    url = sqs.create(MessageRetentionPeriod="60")
    sqs.send(url)
    server.advance(50)
    sqs.send(url, "young")
    server.advance(11)
    assert sqs.bodies(url) == ["young"]


def test_a_group_id_on_a_standard_queue_is_kept_and_locks_nothing(sqs: Sqs) -> None:
    url = sqs.create()
    for body in ("a", "b"):
        sqs.send(url, body, MessageGroupId="g")
    for body in ("a", "b"):
        [message] = sqs.receive(url, 1, AttributeNames=["All"])
        assert (message["Body"], message["Attributes"]["MessageGroupId"]) == (body, "g")
        assert "SequenceNumber" not in message["Attributes"]


@pytest.mark.parametrize("kind", ["standard", "fifo"])
def test_the_counters_add_up_at_every_step(sqs: Sqs, server: Server, kind: str) -> None:
    url = sqs.create_fifo() if kind == "fifo" else sqs.create()
    ids = {"MessageGroupId": "g"} if kind == "fifo" else {}
    for number in range(5):
        sqs.send(url, str(number), **ids)
    assert sqs.counts(url) == (5, 0, 0)
    first, second = sqs.receive(url, 2, VisibilityTimeout=30)
    assert sqs.counts(url) == (3, 2, 0)
    sqs.delete(url, first)
    assert sqs.counts(url) == (3, 1, 0)
    sqs.call(
        "ChangeMessageVisibility",
        QueueUrl=url,
        ReceiptHandle=second["ReceiptHandle"],
        VisibilityTimeout=0,
    )
    assert sqs.counts(url) == (4, 0, 0)
    assert len(sqs.receive(url, 10, VisibilityTimeout=30)) == 4
    assert sqs.counts(url) == (0, 4, 0)
    server.advance(31)
    assert sqs.counts(url) == (4, 0, 0)

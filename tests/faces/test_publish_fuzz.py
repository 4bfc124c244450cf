"""Publishes that nobody would write: never an error of ours, and no trace of what was refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote_from_bytes, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.faces.fuzzing import FUZZ, FuzzTarget, encoded, sns_json, values
from tests.faces.servers import Server
from tests.faces.sns_client import Sns
from tests.faces.test_publish import RAW
from tests.protocol import oracle

ACTIONS = ("Publish", "PublishBatch")
SPECIAL = [
    "",
    "json",
    "x",
    "\x00",
    "\ufffe",
    "\U0001f4a5",
    "a" * 200,
    '{"default":"d"}',
    '{"default":"\\ud800"}',
    '{"default":"","sqs":""}',
    "[" * 3000,
    "String",
    "Number",
    "Binary",
    "1e400",
    "+15550100",
    "arn:aws:sns:us-east-1:111122223333:endpoint/GCM/a/b",
]
TEXT = st.text(max_size=20) | st.sampled_from([*SPECIAL, "\ud800"])
VALUES = values(TEXT)
ESCAPES = st.lists(
    st.binary(max_size=6).map(lambda raw: quote_from_bytes(raw).encode())
    | st.sampled_from([b"%", b"%4", b"%zz", b"%%", b"%00", b"%FF", b"+", b"=", b"&", b"\r\n", b"."])
    | st.binary(max_size=4),
    max_size=80,
).map(b"".join)
FORM = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}


class Target(FuzzTarget):
    """A standard and a FIFO topic with a queue each, on the fast path of both wires."""

    def __init__(self, server: Server) -> None:
        self.sns = Sns("query", server.url)
        self.topics = [self.sns.create(), self.sns.create_fifo()]
        names = ("orders", "orders.fifo")
        self.urls = [
            self.sns.subscribe_queue(topic, name, **RAW)
            for topic, name in zip(self.topics, names, strict=True)
        ]
        for topic in self.topics:
            self.sns.warm(topic)
        super().__init__(self.sns)

    def state(self) -> int:
        """Return the number of messages."""
        sqs = self.sns.sqs()
        return sum(sum(sqs.counts(url)) for url in self.urls)


@pytest.fixture(scope="module")
def target(server: Server) -> Iterator[Target]:
    target = Target(server)
    yield target
    target.close()


def _members(action: str, topics: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Members of the action, mostly good, each now and then of any other kind."""
    shape = oracle.model_of_query("sns").operation_model(action).input_shape
    arns = st.sampled_from(topics)
    optional = {
        name: oracle.values(member, TEXT) | VALUES
        for name, member in shape.members.items()
        if name != "TopicArn"
    }
    required = {"TopicArn": arns | arns | arns | TEXT}
    if action == "Publish":
        optional.pop("Message")
        required["Message"] = TEXT
        for name in ("PhoneNumber", "TargetArn"):
            optional.pop(name)
    else:
        optional.pop("PublishBatchRequestEntries")
        required["PublishBatchRequestEntries"] = _entries(shape)
    return st.fixed_dictionaries(required, optional=optional)


def _entries(shape: Any) -> st.SearchStrategy[Any]:
    entry = shape.members["PublishBatchRequestEntries"].member
    members = {name: oracle.values(member, TEXT) for name, member in entry.members.items()}
    whole = st.fixed_dictionaries(
        {"Id": st.sampled_from(["a", "b", "c"]) | TEXT, "Message": TEXT},
        optional={name: value for name, value in members.items() if name not in ("Id", "Message")},
    )
    return st.lists(whole, min_size=1, max_size=3) | st.lists(whole | VALUES, max_size=12) | VALUES


@FUZZ
@given(data=st.data())
def test_json_members_of_any_kind(target: Target, data: st.DataObject) -> None:
    action = data.draw(st.sampled_from(ACTIONS))
    members = data.draw(_members(action, target.topics))
    target.assert_sound(sns_json(action), json.dumps(encoded(members)).encode())


@FUZZ
@given(action=st.sampled_from(ACTIONS), body=st.binary(max_size=200) | VALUES.map(encoded))
def test_json_bodies_of_any_kind(target: Target, action: str, body: Any) -> None:
    target.assert_sound(
        sns_json(action), body if isinstance(body, bytes) else json.dumps(body).encode()
    )


def _flattened(value: Any, prefix: str = "") -> dict[str, str]:
    """Members as a form writes them: lists and maps as SNS wraps them."""
    flat: dict[str, str] = {}
    if isinstance(value, list):
        for number, item in enumerate(value, 1):
            flat |= _flattened(item, f"{prefix}.member.{number}")
    elif isinstance(value, dict) and prefix.endswith("MessageAttributes"):
        for number, (key, item) in enumerate(value.items(), 1):
            flat[f"{prefix}.entry.{number}.Name"] = str(key)
            flat |= _flattened(item, f"{prefix}.entry.{number}.Value")
    elif isinstance(value, dict):
        for key, item in value.items():
            flat |= _flattened(item, f"{prefix}.{key}" if prefix else str(key))
    else:
        flat[prefix] = str(value)
    return flat


@FUZZ
@given(data=st.data())
def test_forms_of_any_kind(target: Target, data: st.DataObject) -> None:
    action = data.draw(st.sampled_from(ACTIONS))
    members = data.draw(_members(action, target.topics))
    form = {"Action": action, "Version": "2010-03-31"} | _flattened(encoded(members))
    target.assert_sound(FORM, urlencode(form, errors="surrogatepass").encode())


@FUZZ
@given(
    action=st.sampled_from(ACTIONS),
    names=st.lists(
        st.sampled_from(
            [
                b"Message",
                b"Subject",
                b"MessageGroupId",
                b"MessageDeduplicationId",
                b"MessageStructure",
                b"MessageAttributes.entry.1.Name",
                b"MessageAttributes.entry.1.Value.DataType",
                b"MessageAttributes.entry.1.Value.StringValue",
                b"MessageAttributes.entry.1.Value.BinaryValue",
                b"MessageAttributes.entry.1",
                b"MessageAttributes",
                b"PublishBatchRequestEntries",
                b"PublishBatchRequestEntries.member.1",
                b"PublishBatchRequestEntries.member.1.Id",
                b"PublishBatchRequestEntries.member.1.Message",
                b"PublishBatchRequestEntries.member.99999999999.Message",
                b"PublishBatchRequestEntries.member.2.MessageAttributes.entry.1.Value",
                b"Action",
                b"Version",
                b"TopicArn",
                b"%54opicArn",
            ]
        ),
        max_size=6,
    ),
    values=st.lists(ESCAPES, min_size=6, max_size=6),
)
def test_raw_forms(target: Target, action: str, names: list[bytes], values: list[bytes]) -> None:
    body = f"Action={action}&Version=2010-03-31&TopicArn={target.topics[0]}".encode()
    for name, value in zip(names, values, strict=False):
        body += b"&" + name + b"=" + value
    target.assert_sound(FORM, body)


@FUZZ
@given(body=ESCAPES)
def test_forms_that_only_begin_like_a_publish(target: Target, body: bytes) -> None:
    target.assert_sound(FORM, b"Action=Publish" + body)


@FUZZ
@given(data=st.data())
def test_texts_come_back_as_they_were_published(target: Target, data: st.DataObject) -> None:
    """Whatever is taken arrives unchanged, however it was escaped."""
    message = data.draw(st.text(min_size=1, max_size=80))
    escaped = b"".join(
        b"%%%02X" % byte
        if not (0x30 <= byte <= 0x39 or 0x61 <= byte <= 0x7A) or data.draw(st.booleans())
        else bytes((byte,))
        for byte in message.encode(errors="surrogatepass")
    )
    body = f"Action=Publish&Version=2010-03-31&TopicArn={target.topics[0]}&Message=".encode()
    sqs, url = target.sns.sqs(), target.urls[0]
    sqs.delete(url, *sqs.receive(url))
    while sqs.counts(url)[0]:
        sqs.delete(url, *sqs.receive(url))
    answer = target.post(FORM, body + escaped)
    received = sqs.receive(url)
    assert [one["Body"] for one in received] == ([message] if answer.status == 200 else [])
    assert answer.status in (200, 400)
    sqs.delete(url, *received)

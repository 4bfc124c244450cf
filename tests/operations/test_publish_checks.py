"""Checks of published messages, each on its own, and any text at all."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuegate.gateway.faces.aws.aws_refusals import (
    InvalidParameter,
    ParameterValueInvalid,
    ValidationFailed,
)
from queuegate.gateway.faces.aws.sns import sns_publishing
from queuegate.gateway.operations.queues import json_messages
from queuegate.gateway.operations.topics import topic_publishing
from queuegate.protocol import names
from queuegate.storage.model import Topic
from queuegate.storage.storage_errors import InvalidParameterValue, Rejected

# Lone surrogates never come from a wire, but nothing here may break down over them.
ANY_TEXT = st.text(st.characters()) | st.text(
    st.sampled_from('\0\t\n\r\x7f\ud800\udfff\ufffe\uffff"\\{}:,def'), max_size=12
)
WIRE_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


def topic(*, fifo: bool = False, content_based: bool = False) -> Topic:
    return Topic(
        topic_id=1,
        account_id="111122223333",
        region="eu-west-1",
        name="news",
        arn="arn",
        is_fifo=fifo,
        attributes={},
        tags={},
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        subscriptions_deleted=0,
        signature_version="1",
        content_based_deduplication=content_based,
        deduplication_per_group=False,
        archive_days=0,
        maximum_message_bytes=262_144,
    )


@given(ANY_TEXT)
def test_messages_are_what_queues_can_keep(message: str) -> None:
    try:
        encoded = sns_publishing.check_message(message)
    except InvalidParameter:
        assert not message or names.invalid_characters(message)
    else:
        assert encoded == message.encode()
        assert message
        assert not names.invalid_characters(message)


@given(st.none() | ANY_TEXT)
def test_subjects_are_one_line(subject: str | None) -> None:
    try:
        sns_publishing.check_subject(subject)
    except InvalidParameter:
        assert subject is not None
    else:
        assert subject is None or (1 <= len(subject) <= 100 and len(subject.splitlines()) >= 1)
        assert not set(subject or "") & {*map(chr, range(32)), "\x7f", "\ufffe", "\uffff"}
        (subject or "").encode()


@pytest.mark.parametrize(("length", "is_good"), [(1, True), (100, True), (101, False)])
def test_a_subject_has_a_hundred_characters(length: int, is_good: bool) -> None:
    for character in ("s", "\u00fc", "\U0001f4a5"):
        try:
            sns_publishing.check_subject(character * length)
        except InvalidParameter:
            assert not is_good
        else:
            assert is_good


@given(ANY_TEXT | st.dictionaries(ANY_TEXT, ANY_TEXT | st.none() | st.integers()))
def test_a_structure_has_a_text_for_everybody(message: Any) -> None:
    text = message
    if isinstance(message, dict):
        try:
            text = orjson.dumps(message).decode()
        except TypeError:
            text = "{}"
    try:
        texts = sns_publishing.check_structure("json", text)
    except InvalidParameter:
        return
    assert texts is not None
    assert "default" in texts
    for each in texts.values():
        assert not names.invalid_characters(each)
    assert texts == {name: text for name, text in orjson.loads(text).items() if type(text) is str}


@pytest.mark.parametrize("structure", [None, ""])
def test_without_a_structure_a_message_is_a_text(structure: str | None) -> None:
    assert sns_publishing.check_structure(structure, "{") is None


@pytest.mark.parametrize("structure", ["JSON", "xml", "\0"])
def test_other_structures_are_refused(structure: str) -> None:
    with pytest.raises(InvalidParameter):
        sns_publishing.check_structure(structure, '{"default": "x"}')


@pytest.mark.parametrize(
    ("is_fifo", "content_based", "group_id", "deduplication_id", "is_good"),
    [
        (False, False, None, None, True),
        (False, False, "g", None, True),
        (False, False, "", None, False),
        (False, False, "g" * 128, None, True),
        (False, False, "g" * 129, None, False),
        (False, False, None, "d", False),
        (False, False, None, "", False),
        (True, False, "g", "d", True),
        (True, False, "g" * 128, "d" * 128, True),
        (True, False, "g", None, False),
        (True, True, "g", None, True),
        (True, True, "g", "", False),
        (True, True, None, "d", False),
        (True, True, "", "d", False),
        (True, True, "a b", "d", False),
        (True, True, "!~", "\x7f", False),
        (True, True, "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", "d", True),
    ],
)
def test_ids(
    is_fifo: bool,
    content_based: bool,
    group_id: str | None,
    deduplication_id: str | None,
    is_good: bool,
) -> None:
    kind = topic(fifo=is_fifo, content_based=content_based)
    try:
        topic_publishing.check_ids(kind, group_id, deduplication_id)
    except InvalidParameterValue:
        assert not is_good
    else:
        assert is_good


VALUES = st.fixed_dictionaries(
    {},
    optional={
        "DataType": st.sampled_from(["String", "Number", "Binary", "String.Array", "Number.x", ""])
        | ANY_TEXT,
        "StringValue": WIRE_TEXT | st.sampled_from(["1", "-1.5e3"]),
        "BinaryValue": st.binary(max_size=9),
    },
)
NAMES = st.sampled_from(["a", "a.b", "-_", "n" * 256, "n" * 257, "AWS.x"]) | ANY_TEXT


@given(st.dictionaries(NAMES, VALUES, max_size=3))
def test_any_attributes_are_refused_or_can_be_stored(values: dict[str, Any]) -> None:
    try:
        size = sns_publishing.check_attributes(values)
    except (ParameterValueInvalid, ValidationFailed):
        return
    assert size == sum(
        len(name.encode())
        + len(value["DataType"])
        + len(
            value["BinaryValue"]
            if value["DataType"].startswith("Binary")
            else value["StringValue"].encode()
        )
        for name, value in values.items()
    )
    stored = orjson.loads(json_messages.stored(values))
    assert stored.keys() == values.keys()


def test_the_field_that_does_not_count_cannot_break_what_is_stored() -> None:
    value = {"DataType": "Binary", "BinaryValue": b"x", "StringValue": "a\0\ufffe"}
    sns_publishing.check_attributes({"n": value})
    assert orjson.loads(json_messages.stored({"n": value}))


def test_a_name_is_counted_in_bytes() -> None:
    value = {"DataType": "String", "StringValue": "x"}
    assert sns_publishing.check_attributes({"n" * 256: value}) == 256 + 6 + 1
    with pytest.raises(Rejected, match="less than 256 bytes"):
        sns_publishing.check_attributes({"\u00fc" * 129: value})


def test_a_number_is_a_decimal_of_38_digits() -> None:
    for good in ("0", "-1", "+1.5", "1e126", "1E-128", "9" * 38, ".5", "5."):
        sns_publishing.check_attributes({"n": {"DataType": "Number", "StringValue": good}})
    for bad in ("1e127", "9" * 39, "1,5", "0x1", "inf", "\u0661", "1e99999", ".", "1" * 600):
        with pytest.raises(ParameterValueInvalid, match="value to number"):
            sns_publishing.check_attributes({"n": {"DataType": "Number", "StringValue": bad}})

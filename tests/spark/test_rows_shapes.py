"""Stored rows take the shape that a query asked for."""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any

import pyarrow as pa
import pytest

from spark_connectors import message_rows
from spark_connectors.message_rows import (
    KAFKA_COLUMNS,
    ROW_COLUMNS,
    RowShape,
    arrow_schema,
    kept_columns,
    received_of,
    shaped,
    spark_schema,
    stored_batch,
    system_names,
)

TOPIC = "arn:aws:sns:us-east-1:000000000000:news"
SHAPES = [
    RowShape(value_format, receipt, unwrap)
    for value_format, receipt, unwrap in itertools.product(
        ("sqs", "kafka"), (False, True), (False, True)
    )
]
KAFKA = RowShape("kafka")
UNWRAPPED = RowShape(unwrap_sns=True)


def envelope(**members: Any) -> str:
    return json.dumps(
        {"Type": "Notification", "MessageId": "m", "TopicArn": TOPIC, "Message": "news", **members}
    )


def stored(*messages: dict[str, Any]) -> pa.RecordBatch:
    whole = [{"MessageId": "i", "ReceiptHandle": "handle", "Body": "b", **m} for m in messages]
    return stored_batch("orders", [received_of(message, 1.5) for message in whole])


def rows(shape: RowShape, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = shaped(stored(*messages), shape).to_pylist()
    return found


MIXED: tuple[dict[str, Any], ...] = (
    {},
    {"Body": "", "MessageAttributes": {}},
    {
        "Attributes": {"SentTimestamp": "1000", "MessageGroupId": "g", "SequenceNumber": "1"},
        "MessageAttributes": {
            "b": {"DataType": "Binary", "BinaryValue": b"\xff"},
            "a": {"DataType": "Number", "StringValue": "1"},
        },
    },
    {"Body": envelope(Subject="s", MessageAttributes={"x": {"Type": "String", "Value": "y"}})},
    {"Body": None, "ReceiptHandle": None},
)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_batch_has_exactly_the_schema_of_its_shape(shape: RowShape) -> None:
    for batch in (stored(*MIXED), stored(), stored(*MIXED).slice(2, 2)):
        found = shaped(batch, shape)

        found.validate(full=True)
        assert found.schema.equals(arrow_schema(shape), check_metadata=True)
        assert found.num_rows == batch.num_rows


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_slice_has_the_rows_of_the_whole(shape: RowShape) -> None:
    whole = shaped(stored(*MIXED), shape).to_pylist()

    for start, end in ((0, 2), (2, 3), (3, 5)):
        part = shaped(stored(*MIXED).slice(start, end - start), shape)
        assert part.to_pylist() == whole[start:end]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_spark_makes_the_same_arrow_schema_of_its_own(shape: RowShape) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    theirs = to_arrow_schema(spark_schema(shape), timezone="UTC")

    assert theirs.equals(arrow_schema(shape))


def test_columns_are_added_behind_those_of_a_row() -> None:
    assert arrow_schema(RowShape()).names == list(ROW_COLUMNS)
    everything = arrow_schema(RowShape(include_receipt_handle=True, unwrap_sns=True)).names
    assert everything == [*ROW_COLUMNS, "receipt_handle", "topic_arn", "subject"]
    assert arrow_schema(RowShape("kafka", True, True)).names == list(KAFKA_COLUMNS)


def test_an_envelope_becomes_its_message() -> None:
    attributes = {
        "word": {"Type": "String", "Value": "y"},
        "bytes": {"Type": "Binary", "Value": base64.b64encode(b"\x00\x01").decode()},
        "list": {"Type": "String.Array", "Value": '["a"]'},
        "broken": {"Type": "Binary", "Value": "no base64!"},
    }

    [row] = rows(UNWRAPPED, {"Body": envelope(Subject="s", MessageAttributes=attributes)})

    assert (row["body"], row["topic_arn"], row["subject"]) == ("news", TOPIC, "s")
    assert {n: tuple(value.values()) for n, value in row["message_attributes"]} == {
        "word": ("String", "y", None),
        "bytes": ("Binary", None, b"\x00\x01"),
        "list": ("String.Array", '["a"]', None),
        "broken": ("Binary", "no base64!", None),
    }


def test_attributes_of_the_message_itself_win_over_the_envelope() -> None:
    own = {"own": {"DataType": "String", "StringValue": "1"}}
    body = envelope(MessageAttributes={"theirs": {"Type": "String", "Value": "2"}})

    found = rows(UNWRAPPED, {"Body": body, "MessageAttributes": own}, {"Body": body})

    names = [[name for name, _ in row["message_attributes"]] for row in found]
    assert names == [["own"], ["theirs"]]


@pytest.mark.parametrize(
    "body",
    [
        "",
        "plain",
        '{"Type": "Notification", "TopicArn": "t"',
        '["Notification", "TopicArn"]',
        '"Notification" "TopicArn"',
        '{"a": "Notification", "TopicArn": "t"}' + "[" * 100_000,
        '{"x": ' + "[" * 100_000 + '"Notification" "TopicArn"',
        envelope(Type="SubscriptionConfirmation", Subject='"Notification"'),
        envelope(Message={"an": "object"}),
        envelope(TopicArn=None),
    ],
    ids=lambda body: body[:40],
)
@pytest.mark.parametrize("parser", ["installed", "standard library's"])
def test_a_body_that_is_no_envelope_stays(
    body: str, parser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if parser != "installed":
        monkeypatch.setattr(message_rows, "json_value", json.loads)

    [row] = rows(UNWRAPPED, {"Body": body})

    assert (row["body"], row["topic_arn"], row["subject"]) == (body, None, None)


@pytest.mark.parametrize("odd", [None, 7, "text", ["list"], {"name": "text"}, {"name": {}}])
def test_odd_members_of_an_envelope_do_no_harm(odd: object) -> None:
    [row] = rows(UNWRAPPED, {"Body": envelope(Subject=odd, MessageAttributes=odd)})

    assert row["body"] == "news"
    assert row["subject"] == (odd if isinstance(odd, str) else None)


def test_nothing_is_unwrapped_unless_asked() -> None:
    body = envelope()

    assert rows(RowShape(), {"Body": body})[0]["body"] == body
    assert rows(KAFKA, {"Body": body})[0]["value"] == body.encode()


def test_kafka_has_group_body_queue_and_sorted_attributes() -> None:
    grouped, plain = rows(
        KAFKA,
        {
            "Body": "ä",
            "Attributes": {"MessageGroupId": "g", "SentTimestamp": "1500"},
            "MessageAttributes": {
                "z": {"DataType": "String", "StringValue": "ö"},
                "a": {"DataType": "Binary", "BinaryValue": b"\xff"},
                "n": {"DataType": "String"},
            },
        },
        {},
    )

    assert (grouped["key"], grouped["value"], grouped["topic"]) == (b"g", "ä".encode(), "orders")
    assert grouped["timestamp"].timestamp() == 1.5
    assert [(h["key"], h["value"]) for h in grouped["headers"]] == [
        ("a", b"\xff"),
        ("n", None),
        ("z", "ö".encode()),
    ]
    assert (plain["key"], plain["timestamp"], plain["headers"]) == (None, None, None)


def test_kafka_has_receipt_topic_and_subject_as_headers() -> None:
    wrapped, plain = rows(
        RowShape("kafka", include_receipt_handle=True, unwrap_sns=True),
        {"Body": envelope(Subject="s", MessageAttributes={"z": {"Type": "String", "Value": "1"}})},
        {},
    )

    assert wrapped["value"] == b"news"
    assert [(h["key"], h["value"]) for h in wrapped["headers"]] == [
        ("z", b"1"),
        ("topic_arn", TOPIC.encode()),
        ("subject", b"s"),
        ("receipt_handle", b"handle"),
    ]
    assert [(h["key"], h["value"]) for h in plain["headers"]] == [("receipt_handle", b"handle")]


@pytest.mark.parametrize("shape", SHAPES)
def test_some_columns_are_what_they_are_among_all(shape: RowShape) -> None:
    """Each alone, and all in another order: although the others are not kept."""
    whole = shaped(stored(*MIXED, {"Body": envelope(Subject="s")}), shape)
    received = [
        received_of({"MessageId": "i", "ReceiptHandle": "handle", "Body": "b", **message}, 1.5)
        for message in (*MIXED, {"Body": envelope(Subject="s")})
    ]
    for names in [*((name,) for name in whole.schema.names), tuple(whole.schema.names[::-1])]:
        some = shape._replace(columns=names)
        kept = kept_columns(some)
        batch = stored_batch("orders", received, kept)
        assert {n for n in batch.schema.names if batch.column(n).null_count < len(received)} <= kept
        assert {"message_id", "receipt_handle"} <= kept
        found = shaped(batch, some)
        assert found.schema == arrow_schema(some)
        assert found.schema.names == list(names)
        assert found == whole.select(list(names))


def test_only_what_is_needed_is_asked_for() -> None:
    assert system_names(RowShape()) == ("All",)
    assert system_names(RowShape(columns=("body", "sender_id"))) == (
        "ApproximateReceiveCount",
        "MessageGroupId",
        "SenderId",
        "SentTimestamp",
    )
    assert kept_columns(RowShape(columns=("body",))) == {"body", "message_id", "receipt_handle"}

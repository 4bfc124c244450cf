"""Messages become rows of the stored schema, whatever was left out or is broken."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_connectors.message_rows import (
    STORED_SCHEMA,
    message_key,
    packed,
    received_of,
    stored_batch,
)

ID = "3b241101-e2bb-4255-8caf-4136c566a962"
WHOLE: dict[str, Any] = {
    "MessageId": ID,
    "ReceiptHandle": "handle",
    "Body": "a body",
    "MD5OfBody": "0cc175b9c0f1b6a831c399e269772661",
    "Attributes": {
        "SenderId": "AIDA",
        "SentTimestamp": "1700000000123",
        "ApproximateFirstReceiveTimestamp": "1700000001000",
        "ApproximateReceiveCount": "3",
        "MessageGroupId": "group",
        "MessageDeduplicationId": "once",
        "SequenceNumber": "18870000000000000000",
        "AWSTraceHeader": "Root=1-2-3",
        "DeadLetterQueueSourceArn": "arn:aws:sqs:us-east-1:000000000000:source",
    },
    "MessageAttributes": {
        "kind": {"DataType": "String", "StringValue": "order"},
        "blob": {"DataType": "Binary.png", "BinaryValue": b"\x00\xff"},
    },
}


def row_of(message: dict[str, Any], received_at: float = 1700000002.5) -> dict[str, Any]:
    [row] = stored_batch("orders", [received_of(message, received_at)]).to_pylist()
    found: dict[str, Any] = row
    return found


def test_every_column_has_what_the_service_said() -> None:
    assert row_of(WHOLE) == {
        "queue": "orders",
        "message_id": ID,
        "body": "a body",
        "sent_timestamp": datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC),
        "first_receive_timestamp": datetime(2023, 11, 14, 22, 13, 21, tzinfo=UTC),
        "approximate_receive_count": 3,
        "message_group_id": "group",
        "message_deduplication_id": "once",
        "sequence_number": "18870000000000000000",
        "sender_id": "AIDA",
        "message_attributes": [
            ("kind", {"data_type": "String", "string_value": "order", "binary_value": None}),
            (
                "blob",
                {"data_type": "Binary.png", "string_value": None, "binary_value": b"\x00\xff"},
            ),
        ],
        "aws_trace_header": "Root=1-2-3",
        "dead_letter_source": "arn:aws:sqs:us-east-1:000000000000:source",
        "md5_of_body": "0cc175b9c0f1b6a831c399e269772661",
        "receive_timestamp": datetime(2023, 11, 14, 22, 13, 22, 500000, tzinfo=UTC),
        "receipt_handle": "handle",
    }


@pytest.mark.parametrize("absent", [{}, {"Attributes": {}}, {"Attributes": None}])
def test_what_the_service_did_not_say_is_null(absent: dict[str, Any]) -> None:
    row = row_of({"MessageId": ID, "ReceiptHandle": "handle", "Body": "", **absent})

    there = {n: value for n, value in row.items() if value is not None and value != []}
    assert sorted(there) == ["body", "message_id", "queue", "receipt_handle", "receive_timestamp"]
    assert row["message_attributes"] == []


@pytest.mark.parametrize("broken", ["", "soon", "-1", "1.5", "9" * 17, "9" * 30, "1e3", " 1"])
def test_a_number_that_is_none_is_null(broken: str) -> None:
    attributes = {
        "SentTimestamp": broken,
        "ApproximateFirstReceiveTimestamp": "1000",
        "ApproximateReceiveCount": broken,
    }

    row = row_of({**WHOLE, "Attributes": attributes})

    assert row["sent_timestamp"] is None
    assert row["approximate_receive_count"] is None
    assert row["first_receive_timestamp"] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


def test_half_a_surrogate_pair_becomes_the_replacement_character() -> None:
    row = row_of({**WHOLE, "Body": "a\ud83db \U0001f600"})

    assert row["body"] == "a\ufffdb \U0001f600"


def test_rows_keep_the_order_of_the_messages() -> None:
    messages = [received_of({**WHOLE, "Body": str(number)}, number) for number in range(100)]

    batch = stored_batch("orders", messages)

    assert batch.schema.equals(STORED_SCHEMA, check_metadata=True)
    assert batch.column("body").to_pylist() == [str(number) for number in range(100)]


def test_packed_messages_are_the_same_rows_in_any_order_beside_others() -> None:
    messages = [received_of({**WHOLE, "Body": str(number)}, number) for number in range(40)]
    first, second = (
        packed("orders", messages[at : at + 15], STORED_SCHEMA.names) for at in (0, 15)
    )
    mixed = [first[3], messages[30], messages[31], *second, first[14], first[2], messages[39]]

    assert all(one.content.num_rows == 15 for one in (*first, *second))
    batch = stored_batch("orders", mixed)

    rows = (3, 30, 31, *range(15, 30), 14, 2, 39)
    assert batch.equals(stored_batch("orders", [messages[one] for one in rows]))
    assert packed("orders", messages[:10], STORED_SCHEMA.names) == messages[:10]


def test_no_messages_are_an_empty_batch() -> None:
    batch = stored_batch("orders", [])

    assert batch.num_rows == 0
    assert batch.schema.equals(STORED_SCHEMA)


texts = st.none() | st.text(max_size=20)
values = st.fixed_dictionaries(
    {"DataType": texts}, optional={"StringValue": texts, "BinaryValue": st.binary(max_size=9)}
)
messages = st.fixed_dictionaries(
    {"MessageId": st.text(max_size=40), "ReceiptHandle": texts, "Body": texts},
    optional={
        "MD5OfBody": texts,
        "Attributes": st.dictionaries(
            st.sampled_from(sorted(WHOLE["Attributes"])), texts, max_size=9
        ),
        "MessageAttributes": st.dictionaries(st.text(max_size=9), values, max_size=4),
    },
)


@given(st.lists(messages, max_size=4))
def test_no_message_is_refused(given: list[dict[str, Any]]) -> None:
    batch = stored_batch("orders", [received_of(message, 0.0) for message in given])

    batch.validate(full=True)
    assert batch.column("body").to_pylist() == [m["Body"] for m in given]
    found = [dict(row) for row in batch.column("message_attributes").to_pylist()]
    assert [sorted(row) for row in found] == [sorted(m.get("MessageAttributes", {})) for m in given]


def test_the_key_of_a_uuid_is_its_bytes() -> None:
    assert message_key(ID) == uuid.UUID(ID).bytes


@pytest.mark.parametrize(
    "other", [ID.upper(), f"{{{ID}}}", ID.replace("-", ""), f"{ID}\n", "", "\ud800", "1-2-3"]
)
def test_the_key_of_any_other_id_is_of_the_text_as_it_is(other: str) -> None:
    key = message_key(other)

    assert len(key) == 16
    assert key != message_key(ID)

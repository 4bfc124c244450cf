"""A segment gives back what was put into it, or says that it is damaged."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from spark_connectors.errors import ConnectorError
from spark_connectors.rows.received import Received, received_of, stored_batch
from spark_connectors.rows.schema import STORED_SCHEMA
from spark_connectors.spool.segments import COMPRESSIONS, Damaged, Segment, encode, slots_of


def message(number: int, group: str | None = None) -> Received:
    attributes: dict[str, Any] = {"SentTimestamp": str(number)}
    if group is not None:
        attributes["MessageGroupId"] = group
    value = {
        "MessageId": f"id-{number}",
        "ReceiptHandle": f"handle-{number}",
        "Body": f"body {number} ä",
        "Attributes": attributes,
        "MessageAttributes": {"n": {"DataType": "Number", "StringValue": str(number)}},
    }
    return received_of(value, float(number))


def batch(*numbers: int) -> pa.RecordBatch:
    return stored_batch("orders", [message(number) for number in numbers])


SLOTS = [batch(1, 2, 3), batch(), batch(4)]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_segment_gives_back_its_slots(compression: str) -> None:
    segment = Segment(encode(SLOTS, compression, {"spool": "x"}))

    assert segment.slot_count == 3
    assert segment.row_count == 4
    assert segment.body_bytes == 4 * len("body 1 ä".encode())
    assert segment.metadata == {"spool": "x"}
    for number, slot in enumerate(SLOTS):
        found = segment.slot(number)
        assert found.schema.equals(STORED_SCHEMA, check_metadata=True)
        assert found.equals(slot)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_ids_and_receipts_come_in_the_order_of_the_slots(compression: str) -> None:
    segment = Segment(encode(SLOTS, compression))

    assert segment.message_ids() == ["id-1", "id-2", "id-3", "id-4"]
    assert segment.receipts() == ["handle-1", "handle-2", "handle-3", "handle-4"]


@pytest.mark.parametrize("slots", [[], [batch()], [batch(1).slice(1)]], ids=["none", "one", "cut"])
def test_a_segment_can_be_empty(slots: list[pa.RecordBatch]) -> None:
    segment = Segment(encode(slots, "zstd"))

    assert segment.slot_count == len(slots)
    assert (segment.row_count, segment.body_bytes) == (0, 0)
    assert segment.message_ids() == []


def test_a_segment_of_parts_of_one_batch_is_that_batch() -> None:
    whole = batch(*range(10))

    segment = Segment(encode([whole.slice(0, 4), whole.slice(4)], "zstd"))

    assert pa.Table.from_batches([segment.slot(0), segment.slot(1)]).to_pylist() == (
        whole.to_pylist()
    )


def test_a_segment_is_a_file_for_every_reader_of_arrow() -> None:
    data = encode(SLOTS, "none", {"spool": "x"})

    table = pa.ipc.open_file(pa.py_buffer(data)).read_all()

    assert table.column("message_id").to_pylist() == ["id-1", "id-2", "id-3", "id-4"]
    assert table.schema.metadata[b"queuegate.spool"] == b"x"


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_no_flipped_bit_goes_unnoticed(compression: str) -> None:
    data = encode(SLOTS, compression)
    seeded = random.Random(compression)

    for position in [*range(0, len(data), 7), *range(len(data) - 64, len(data))]:
        flipped = bytearray(data)
        flipped[position] ^= 1 << seeded.randrange(8)
        with pytest.raises(Damaged, match=r"segment segments/7 of the spool is damaged"):
            Segment(bytes(flipped), "segments/7")


def test_no_cut_goes_unnoticed() -> None:
    data = encode(SLOTS, "zstd")

    for length in [0, 1, 9, 10, 17, 18, *range(0, len(data), 13), len(data) - 1]:
        with pytest.raises(Damaged):
            Segment(data[:length])


def test_other_files_are_damaged_segments() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, STORED_SCHEMA) as writer:
        writer.write_batch(batch(1))

    for data in (sink.getvalue().to_pybytes(), bytes(1000), b"{}" * 500):
        with pytest.raises(Damaged):
            Segment(data)


def test_a_segment_of_another_version_is_not_called_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as newer:
        newer.setattr("spark_connectors.spool.segments._VERSION", "2")
        data = encode(SLOTS, "zstd")

    with pytest.raises(ConnectorError, match=r"seg-1 .* written by another version") as raised:
        Segment(data, "seg-1")
    assert not isinstance(raised.value, Damaged)


def test_a_slot_that_is_not_there_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="out of range"):
        Segment(encode(SLOTS, "zstd")).slot(3)


def test_an_unknown_compression_names_the_option() -> None:
    with pytest.raises(ConnectorError, match=r"spoolCompression is 'gzip'; .* zstd, lz4, none"):
        encode(SLOTS, "gzip")


def test_our_own_names_of_metadata_are_refused() -> None:
    with pytest.raises(ValueError, match="rows"):
        encode(SLOTS, "none", {"rows": "7"})


@pytest.mark.parametrize(("count", "slots"), [(0, 3), (1, 3), (3, 3), (10, 3), (7, 1), (1000, 7)])
def test_slots_of_a_standard_queue_are_even_runs(count: int, slots: int) -> None:
    messages = [message(number) for number in range(count)]

    found = slots_of(messages, slots, by_group=False)

    assert [one for slot in found for one in slot] == messages
    assert len(found) == slots
    assert max(map(len, found)) - min(map(len, found)) <= 1


def test_a_group_is_in_one_slot_in_its_order() -> None:
    messages = [message(number, f"g{number % 20}") for number in range(200)]

    found = slots_of(messages, 4, by_group=True)

    assert sorted(one.received_at for slot in found for one in slot) == list(range(200))
    for group in range(20):
        holding = [
            [one.received_at for one in slot if one.received_at % 20 == group] for slot in found
        ]
        assert sorted(holding) == [[], [], [], list(range(group, 200, 20))]


def test_the_slot_of_a_group_is_that_of_every_version() -> None:
    found = slots_of([message(1, "orders-1"), message(2, "orders-2")], 8, by_group=True)

    assert [len(slot) for slot in found] == [0, 0, 0, 0, 1, 0, 1, 0]


def test_messages_without_a_group_share_a_slot() -> None:
    found = slots_of([message(1), message(2)], 3, by_group=True)

    assert sorted(map(len, found)) == [0, 0, 2]

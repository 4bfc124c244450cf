"""A segment gives back what was put into it, or says that it is damaged."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_connectors.errors import ConnectorError
from spark_connectors.message_rows import (
    RECEIPT_COLUMN,
    STORED_SCHEMA,
    FetchedMessage,
    received_of,
    stored_batch,
)
from spark_connectors.source.queue_options import stream_options
from spark_connectors.source.slot_tasks import SlotTask, rows_of
from spark_connectors.spool import (
    Damaged,
    Segment,
    SegmentPlace,
    Spool,
    encode,
    segment_name,
    slot_in_place,
    slots_of,
)
from spark_connectors.stores import LocalStore, MemoryStore, Missing, Store, StoreAccess, open_store
from tests.spark.queues import client_of


def message(number: int, group: str | None = None, body: str = "") -> FetchedMessage:
    attributes: dict[str, Any] = {"SentTimestamp": str(number)}
    if group is not None:
        attributes["MessageGroupId"] = group
    value = {
        "MessageId": f"id-{number}",
        "ReceiptHandle": f"handle-{number}",
        "Body": body or f"body {number} ä",
        "Attributes": attributes,
        "MessageAttributes": {"n": {"DataType": "Number", "StringValue": str(number)}},
    }
    return received_of(value, float(number))


def batch(*numbers: int) -> pa.RecordBatch:
    return stored_batch("orders", [message(number) for number in numbers])


def slot_of(store: Store, name: str, number: int) -> Segment:
    """A segment of which only that slot was read."""
    return Segment(slot_in_place(store, name, number), name)


SLOTS = [batch(1, 2, 3), batch(), batch(4)]


@pytest.mark.parametrize("compression", ["zstd", "lz4", "none"])
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


@pytest.mark.parametrize("compression", ["zstd", "lz4", "none"])
def test_ids_and_receipts_come_in_the_order_of_the_slots(compression: str) -> None:
    segment = Segment(encode(SLOTS, compression))

    assert segment.message_ids() == ["id-1", "id-2", "id-3", "id-4"]
    assert segment.texts(RECEIPT_COLUMN) == ["handle-1", "handle-2", "handle-3", "handle-4"]


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


@pytest.mark.parametrize("compression", ["zstd", "lz4", "none"])
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
        newer.setattr("spark_connectors.spool._FORMAT_VERSION", "2")
        data = encode(SLOTS, "zstd")

    with pytest.raises(ConnectorError, match=r"seg-1 .* written by another version") as raised:
        Segment(data, "seg-1")
    assert not isinstance(raised.value, Damaged)


def test_a_slot_that_is_not_there_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="out of range"):
        Segment(encode(SLOTS, "zstd")).slot(3)


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


# One slot of a segment


COUNT, ROWS = 16, 200


def body_of(number: int) -> str:
    return random.Random(number).randbytes(500).hex()


def large_slots() -> list[pa.RecordBatch]:
    """Slots that do not fit into one read, with an empty one between."""
    found = []
    for first in range(0, COUNT * ROWS, ROWS):
        numbers = range(first, first + ROWS)
        messages = [message(number, body=body_of(number)) for number in numbers]
        found.append(stored_batch("orders", [] if first == 3 * ROWS else messages))
    return found


LARGE = large_slots()


def without_table(slots: list[pa.RecordBatch]) -> bytes:
    """Write the slots as versions before the table did."""
    sink = pa.BufferOutputStream()
    described = {"queuegate.format": "1", "queuegate.rows": "0", "queuegate.body_bytes": "0"}
    with pa.ipc.new_file(sink, STORED_SCHEMA.with_metadata(described)) as writer:
        for slot in slots:
            writer.write_batch(slot)
    file: bytes = sink.getvalue().to_pybytes()
    footer_at = len(file) - 10 - struct.unpack("<i", file[-10:-6])[0]
    content, footer = file[:footer_at], file[footer_at:]
    seal = struct.pack("<4sI", b"QGS1", zlib.crc32(footer, zlib.crc32(content)))
    return content + seal + footer


class CountingStore(LocalStore):
    """Counts the bytes that are read."""

    read_bytes = 0

    def part(self, name: str, start: int, stop: int | None = None) -> bytes:
        content = super().part(name, start, stop)
        self.read_bytes += len(content)
        return content


def stored(data: bytes) -> MemoryStore:
    store = MemoryStore(str(random.random()))
    store.put_if_absent("7", data)
    return store


@pytest.mark.parametrize("compression", ["zstd", "lz4", "none"])
def test_a_task_reads_its_slot_and_the_end_of_the_file(compression: str, tmp_path: Path) -> None:
    place, store = SegmentPlace(1), CountingStore(str(tmp_path))
    spool = Spool.open(store, queue="orders", mode="driver")
    data = encode(LARGE, compression)
    spool.put(place, data)
    given = {"queueUrl": "http://localhost:1/000000000000/orders", "spoolPath": str(tmp_path)}
    options = stream_options(given)

    for number, slot in enumerate(LARGE):
        store.read_bytes = 0
        [rows] = rows_of(SlotTask(spool.identity, number, (place,)), store, options)
        assert rows.column("body").equals(slot.column("body"))
        assert store.read_bytes < len(data) / COUNT * 1.5 + (65 << 10) < len(data) / 4


@pytest.mark.moto
def test_a_slot_is_read_from_s3(moto: str) -> None:
    client_of("s3", moto).create_bucket(Bucket="slots")
    store = open_store("s3://slots/q", access=StoreAccess(moto))
    store.put_if_absent(segment_name(SegmentPlace(1)), encode(LARGE, "zstd"))

    segment = slot_of(store, segment_name(SegmentPlace(1)), COUNT - 1)

    assert segment.slot(COUNT - 1).equals(LARGE[-1])
    with pytest.raises(Missing):
        slot_of(store, segment_name(SegmentPlace(2)), 0)


def test_a_slot_says_what_its_segment_says() -> None:
    data = encode(LARGE, "zstd", {"columns": "body"})
    whole = Segment(data)

    segment = slot_of(stored(data), "7", 5)

    for name in ("slot_count", "row_count", "body_bytes", "metadata"):
        assert getattr(segment, name) == getattr(whole, name)


@pytest.mark.parametrize("slots", [SLOTS, LARGE], ids=["small", "large"])
def test_segments_without_a_table_are_read(slots: list[pa.RecordBatch]) -> None:
    store = stored(without_table(slots))

    for number, slot in enumerate(slots):
        assert slot_of(store, "7", number).slot(number).equals(slot)


def test_versions_before_the_table_read_segments_that_have_one() -> None:
    """They looked at nothing but this."""
    file = encode(LARGE, "zstd")

    footer_at = len(file) - 10 - struct.unpack("<i", file[-10:-6])[0]
    magic, checksum = struct.unpack("<4sI", file[footer_at - 8 : footer_at])
    assert magic == b"QGS1"
    assert checksum == zlib.crc32(file[footer_at:], zlib.crc32(file[: footer_at - 8]))


@pytest.mark.parametrize("number", [0, 2, COUNT - 1])
def test_a_damaged_slot_is_told_as_a_damaged_segment(number: int) -> None:
    data = bytearray(encode(LARGE, "none"))
    body = body_of(number * ROWS + 7)
    data[data.index(body.encode())] ^= 1
    store = stored(bytes(data))

    with pytest.raises(Damaged, match=r"segment 7 of the spool is damaged \(its checksum"):
        slot_of(store, "7", number)
    # The query fails by the task of that slot; the rows of the others are right.
    assert slot_of(store, "7", 1).slot(1).equals(LARGE[1])


def at_the_end(data: bytes) -> list[int]:
    """Positions in the table, the seal and Arrow's footer, but for the seal's checksum."""
    footer_at = len(data) - 10 - int(struct.unpack("<i", data[-10:-6])[0])
    seal_at = footer_at - 8
    table_at = seal_at - 16 * (COUNT + 2)
    end = range(len(data) - 16, len(data))
    return [*range(table_at, seal_at, 11), *range(footer_at, len(data) - 64, 37), *end]


def test_no_flipped_bit_of_the_end_goes_unnoticed() -> None:
    data = encode(LARGE, "zstd")
    seeded = random.Random(7)

    for position in at_the_end(data):
        flipped = bytearray(data)
        flipped[position] ^= 1 << seeded.randrange(8)
        with pytest.raises(Damaged):
            slot_of(stored(bytes(flipped)), "7", 1)


@pytest.mark.parametrize(
    "cut",
    [lambda data: data[:-1], lambda data: data[: len(data) // 2], lambda data: data[1:]],
    ids=["its end", "its half", "its beginning"],
)
def test_no_cut_of_a_large_file_goes_unnoticed(cut: Callable[[bytes], bytes]) -> None:
    store = stored(cut(encode(LARGE, "zstd")))

    with pytest.raises(Damaged):
        slot_of(store, "7", 1)


def test_a_slot_that_the_segment_has_not_leaves_the_others() -> None:
    """A batch has segments of different numbers of slots."""
    segment = slot_of(stored(encode(LARGE, "zstd")), "7", COUNT)

    assert segment.slot_count == COUNT

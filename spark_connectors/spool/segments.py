"""One segment of the spool: the rows of one micro-batch in one file, a slot for each task.

An Arrow IPC file with a record batch per slot, which any Arrow reader opens. It carries checksums:
Arrow itself would decode a flipped bit into another row, or crash on it.

They lie between the last record batch and Arrow's footer, where readers do not look: a table of
where each slot ends, with its checksum, so that a task reads its own slot and no other; and the
seal, a checksum of all other bytes of the file. Earlier versions wrote no table. They can read a
file that has one, for they check the seal alone.
"""

from __future__ import annotations

import itertools
import mmap
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from spark_connectors.errors import ConnectorError, DataLost
from spark_connectors.rows.received import FetchedMessage
from spark_connectors.rows.row_columns import RECEIPT_COLUMN, STORED_SCHEMA
from spark_connectors.spool.stores import Store

_ARROW_MAGIC = b"ARROW1"
_TAIL = struct.Struct("<i6s")  # how an Arrow file ends: size of the footer, magic
# Sizes are multiples of 8, because Arrow wants the footer aligned.
_SEAL = struct.Struct("<4sI")
_SEAL_MAGIC = b"QGS1"
_ENTRY = struct.Struct("<QQ")  # where a slot ends, its checksum
_TABLE_END = struct.Struct("<4sIQ")  # magic, checksum of entries and footer, number of entries
_TABLE_MAGIC = b"QGT1"
# Larger than the tables of a thousand slots, Arrow's and ours, and than a segment that is worth one
# call and not two.
_END_BYTES = 64 << 10


def sealed(file: memoryview, ends: Sequence[int]) -> bytes:
    """Return the Arrow file with table and seal. ``ends``: the end of each slot's record batch."""
    footer_at = len(file) - _TAIL.size - _TAIL.unpack(file[-_TAIL.size :])[0]
    content, footer = file[:footer_at], file[footer_at:]
    # The schema precedes the first slot, and Arrow's end mark follows the last one.
    cuts = itertools.pairwise((0, *ends, footer_at))
    entries = b"".join(_ENTRY.pack(end, zlib.crc32(content[start:end])) for start, end in cuts)
    checksum = zlib.crc32(footer, zlib.crc32(entries))
    table = entries + _TABLE_END.pack(_TABLE_MAGIC, checksum, len(ends) + 1)
    seal = _SEAL.pack(_SEAL_MAGIC, zlib.crc32(footer, zlib.crc32(table, zlib.crc32(content))))
    return b"".join((content, table, seal, footer))


def why_damaged(file: memoryview) -> str | None:
    """Return the damage of a file, or None."""
    if len(file) < _TAIL.size:
        return f"it has {len(file)} bytes"
    footer_size, magic = _TAIL.unpack(file[-_TAIL.size :])
    footer_at = len(file) - _TAIL.size - footer_size
    seal_at = footer_at - _SEAL.size
    if magic != _ARROW_MAGIC or footer_size < 0 or seal_at < 0:
        return "its end is missing"
    seal_magic, checksum = _SEAL.unpack(file[seal_at:footer_at])
    if seal_magic != _SEAL_MAGIC:
        return "it has no checksum"
    if zlib.crc32(file[footer_at:], zlib.crc32(file[:seal_at])) != checksum:
        return "its checksum is another"
    return None


class _Table(NamedTuple):
    """``entries``: end and checksum of each slot, and of the bytes behind them. ``end``: the file
    from there on."""

    entries: list[tuple[int, int]]
    end: memoryview


def slot_in_place(store: Store, name: str, number: int) -> mmap.mmap | bytes:
    """Return a file whose end and that slot have been read and verified; the rest is zeros, which
    take no memory. Returns the whole file, unverified, where it is small, has no table, or is
    suspect: ``why_damaged`` then finds the damage. Raises Missing."""
    end = store.part(name, -_END_BYTES)
    if len(end) < _END_BYTES:
        return end
    table = _table(memoryview(end))
    if table is None or number >= len(table.entries) - 1:
        return store.get(name)
    start = table.entries[number - 1][0] if number else 0
    stop, checksum = table.entries[number]
    slot = store.part(name, start, stop)
    if zlib.crc32(slot) != checksum:
        return store.get(name)
    end_at = table.entries[-1][0]
    file = mmap.mmap(-1, end_at + len(table.end))
    file[start:stop] = slot
    file[end_at:] = table.end
    return file


def _table(end: memoryview) -> _Table | None:
    """Return the table in the end of a file; None: there is none, or it is damaged."""
    footer_size, magic = _TAIL.unpack(end[-_TAIL.size :])
    footer_at = len(end) - _TAIL.size - footer_size
    stop = footer_at - _SEAL.size - _TABLE_END.size
    if magic != _ARROW_MAGIC or footer_size < 0 or stop < 0:
        return None
    table_magic, checksum, count = _TABLE_END.unpack_from(end, stop)
    start = stop - count * _ENTRY.size
    if table_magic != _TABLE_MAGIC or start < 0:
        return None
    if zlib.crc32(end[footer_at:], zlib.crc32(end[start:stop])) != checksum:
        return None
    return _Table(list(_ENTRY.iter_unpack(end[start:stop])), end[start:])


_PREFIX = "queuegate."
_FORMAT, _ROWS, _BODY_BYTES = "format", "rows", "body_bytes"
_OURS = frozenset({_FORMAT, _ROWS, _BODY_BYTES})
_VERSION = "1"
COMPRESSIONS = ("zstd", "lz4", "none")


class Damaged(ConnectorError):
    """The segment differs from the one that was written."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"segment {name} of the spool is damaged ({why})")


class Misplaced(Damaged, DataLost):
    """The file of one segment has the name of another one."""

    def __init__(self, name: str, spool: str, place: str) -> None:
        super().__init__(name, f"it is segment {place} of spool {spool}: files were mixed up")


def encode(
    slots: Sequence[pa.RecordBatch],
    compression: str,
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """Return the file of these slots, all in STORED_SCHEMA; empty ones are kept, so that numbers
    stay.

    The names in ``metadata`` must not be ``format``, ``rows`` or ``body_bytes``: ValueError.
    """
    given = dict(metadata or {})
    if _OURS & given.keys():
        raise ValueError(f"reserved names of metadata: {sorted(_OURS & given.keys())}")
    given[_FORMAT] = _VERSION
    given[_ROWS] = str(sum(slot.num_rows for slot in slots))
    given[_BODY_BYTES] = str(sum(_body_bytes(slot) for slot in slots))
    schema = STORED_SCHEMA.with_metadata({_PREFIX + name: text for name, text in given.items()})
    sink, ends = pa.BufferOutputStream(), []
    with pa.ipc.new_file(sink, schema, options=_write_options(compression)) as writer:
        for slot in slots:
            # Refuses another schema, and drops the batch's own metadata.
            writer.write_batch(slot)
            ends.append(sink.tell())
    return sealed(memoryview(sink.getvalue()), ends)


def _body_bytes(slot: pa.RecordBatch) -> int:
    total: int | None = pc.sum(pc.binary_length(slot.column("body"))).as_py()
    return total or 0


def _write_options(compression: str) -> pa.ipc.IpcWriteOptions:
    if compression not in COMPRESSIONS:
        known = ", ".join(COMPRESSIONS)
        raise ConnectorError(f"spoolCompression is {compression!r}; it can be {known}")
    if compression == "none":
        return pa.ipc.IpcWriteOptions()
    if not pa.Codec.is_available(compression):
        raise ConnectorError(
            f"spoolCompression is {compression}, which this pyarrow was built without; use none"
        )
    return pa.ipc.IpcWriteOptions(compression=compression)


class Segment:
    """A file that ``encode`` wrote. Reading one slot or one column does not decode the others.

    Raises Damaged when it is opened, naming it, and ConnectorError if a newer version wrote it.
    """

    def __init__(self, data: bytes | mmap.mmap, name: str = "(unnamed)") -> None:
        # The read parts of a mapped file have been verified.
        why = None if isinstance(data, mmap.mmap) else why_damaged(memoryview(data))
        if why is not None:
            raise Damaged(name, why)
        self._buffer = pa.py_buffer(data)
        self._name = name
        self._file = self._opened(None)
        described = _described(self._file.schema)
        if described.get(_FORMAT) != _VERSION or not self._file.schema.equals(STORED_SCHEMA):
            raise ConnectorError(
                f"segment {name} of the spool was written by another version of the connector"
            )
        self.slot_count: int = self._file.num_record_batches
        self.row_count = int(described[_ROWS])
        self.body_bytes = int(described[_BODY_BYTES])
        self.metadata = {n: text for n, text in described.items() if n not in _OURS}

    @classmethod
    def with_slot(cls, store: Store, name: str, number: int) -> Segment:
        """Return the segment, of which only that slot was read. Raises Missing."""
        return cls(slot_in_place(store, name, number), name)

    def _opened(self, fields: list[int] | None) -> pa.ipc.RecordBatchFileReader:
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        try:
            return pa.ipc.open_file(self._buffer, options=options)
        except pa.ArrowException as error:
            raise Damaged(self._name, str(error)) from error

    def slot(self, number: int) -> pa.RecordBatch:
        """Return the rows of one slot, in STORED_SCHEMA."""
        return self._batch(self._file, number)

    def _batch(self, file: pa.ipc.RecordBatchFileReader, number: int) -> pa.RecordBatch:
        try:
            return file.get_batch(number).replace_schema_metadata(None)
        except pa.ArrowException as error:
            raise Damaged(self._name, str(error)) from error

    def message_ids(self) -> list[str]:
        """Return the ids of all messages, slot after slot."""
        return self._column("message_id")

    def receipts(self) -> list[str]:
        """Return their receipt handles in the same order."""
        return self._column(RECEIPT_COLUMN)

    def _column(self, name: str) -> list[str]:
        file = self._opened([STORED_SCHEMA.get_field_index(name)])
        batches = (self._batch(file, number) for number in range(self.slot_count))
        return list(itertools.chain.from_iterable(b.column(0).to_pylist() for b in batches))


def _described(schema: pa.Schema) -> dict[str, str]:
    return {
        name.decode().removeprefix(_PREFIX): text.decode()
        for name, text in (schema.metadata or {}).items()
        if name.startswith(_PREFIX.encode())
    }


def slots_of(
    messages: Sequence[FetchedMessage], slots: int, *, by_group: bool
) -> list[list[FetchedMessage]]:
    """Divide the messages among that many slots, some of which may be empty; each keeps the order.

    Without ``by_group`` the slots are runs whose lengths differ by one at most. With it, all
    messages of a group are in one slot, the same one in every segment of as many slots.
    """
    if by_group:
        found: list[list[FetchedMessage]] = [[] for _ in range(slots)]
        for received in messages:
            group = received.group.encode("utf-8", "surrogatepass")
            found[zlib.crc32(group) % slots].append(received)
        return found
    cuts = [len(messages) * number // slots for number in range(slots + 1)]
    return [list(messages[start:end]) for start, end in itertools.pairwise(cuts)]

"""One segment of the spool: the rows of one micro-batch in one file, a slot for each task.

An Arrow IPC file with a record batch per slot, that any Arrow reader opens. It carries checksums
(``sealing``): Arrow itself would decode a flipped bit into another row, or crash on it.
"""

from __future__ import annotations

import itertools
import mmap
import zlib
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from spark_connectors.errors import ConnectorError, DataLost
from spark_connectors.rows.received import Received
from spark_connectors.rows.schema import RECEIPT_COLUMN, STORED_SCHEMA
from spark_connectors.spool.sealing import sealed, slot_in_place, why_damaged
from spark_connectors.spool.stores import Store

_PREFIX = "queuegate."
_FORMAT, _ROWS, _BODY_BYTES = "format", "rows", "body_bytes"
_OURS = frozenset({_FORMAT, _ROWS, _BODY_BYTES})
_VERSION = "1"
COMPRESSIONS = ("zstd", "lz4", "none")


class Damaged(ConnectorError):
    """The segment is not what was written."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"segment {name} of the spool is damaged ({why})")


class Misplaced(Damaged, DataLost):
    """The file of one segment lies under the name of another one."""

    def __init__(self, name: str, spool: str, place: str) -> None:
        super().__init__(name, f"it is segment {place} of spool {spool}: files were mixed up")


def encode(
    slots: Sequence[pa.RecordBatch],
    compression: str,
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """The file of these slots, all in STORED_SCHEMA; empty ones are kept, so that numbers stay.

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
            # Refuses another schema, and swallows what the batch carries as metadata.
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
        # What is mapped has been checked: the parts that are there.
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
        """The segment as far as it takes to read that slot, and no other. Raises Missing."""
        return cls(slot_in_place(store, name, number), name)

    def _opened(self, fields: list[int] | None) -> pa.ipc.RecordBatchFileReader:
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        try:
            return pa.ipc.open_file(self._buffer, options=options)
        except pa.ArrowException as error:
            raise Damaged(self._name, str(error)) from error

    def slot(self, number: int) -> pa.RecordBatch:
        """The rows of one slot, in STORED_SCHEMA."""
        return self._batch(self._file, number)

    def _batch(self, file: pa.ipc.RecordBatchFileReader, number: int) -> pa.RecordBatch:
        try:
            return file.get_batch(number).replace_schema_metadata(None)
        except pa.ArrowException as error:
            raise Damaged(self._name, str(error)) from error

    def message_ids(self) -> list[str]:
        """The ids of all messages, slot after slot."""
        return self._column("message_id")

    def receipts(self) -> list[str]:
        """Their receipt handles in the same order."""
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


def slots_of(messages: Sequence[Received], slots: int, *, by_group: bool) -> list[list[Received]]:
    """The messages in that many slots, some of which may be empty; order is kept in each.

    Without ``by_group`` they are cut in runs whose lengths differ by one at most. With it, all
    messages of a group are in one slot, the same one in every segment of as many slots.
    """
    if by_group:
        found: list[list[Received]] = [[] for _ in range(slots)]
        for received in messages:
            group = received.group.encode("utf-8", "surrogatepass")
            found[zlib.crc32(group) % slots].append(received)
        return found
    cuts = [len(messages) * number // slots for number in range(slots + 1)]
    return [list(messages[start:end]) for start, end in itertools.pairwise(cuts)]

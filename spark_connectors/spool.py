"""One spool: segments, what was deleted from the queue since, and the ids to remember.

File names carry all that a listing needs: no file is opened for it. A segment has the rows of one
micro-batch in one file, a slot for each task: an Arrow IPC file with a record batch per slot, which
any Arrow reader opens. It carries checksums: Arrow itself would decode a flipped bit into another
row, or crash on it.

They lie between the last record batch and Arrow's footer, where readers do not look: a table of
where each slot ends, with its checksum, so that a task reads its own slot and no other; and the
seal, a checksum of all other bytes of the file. Earlier versions wrote no table. They can read a
file that has one, for they check the seal alone.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import mmap
import struct
import threading
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from spark_connectors.errors import ConnectorError, DataLost
from spark_connectors.message_rows import STORED_SCHEMA, FetchedMessage, message_key
from spark_connectors.stores import Missing, Store

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


def slot_in_place(store: Store, name: str, number: int) -> mmap.mmap | bytes:
    """Return a file whose end and that slot have been read and verified; the rest is zeros, which
    take no memory. Returns the whole file, unverified, where it is small, has no table, or is
    suspect: ``why_damaged`` then finds the damage. Raises Missing."""
    end = store.part(name, -_END_BYTES)
    if len(end) < _END_BYTES:
        return end
    entries, rest = _table(memoryview(end))
    if number >= len(entries) - 1:
        return store.get(name)
    start = entries[number - 1][0] if number else 0
    stop, checksum = entries[number]
    slot = store.part(name, start, stop)
    if zlib.crc32(slot) != checksum:
        return store.get(name)
    rest_at = entries[-1][0]
    file = mmap.mmap(-1, rest_at + len(rest))
    file[start:stop] = slot
    file[rest_at:] = rest
    return file


def _table(end: memoryview) -> tuple[list[tuple[int, int]], memoryview]:
    """Return the table in the end of a file: end and checksum of each slot, and of the bytes behind
    them; and the file from the table on. Empty: there is none, or it is damaged."""
    footer_size, magic = _TAIL.unpack(end[-_TAIL.size :])
    footer_at = len(end) - _TAIL.size - footer_size
    stop = footer_at - _SEAL.size - _TABLE_END.size
    if magic != _ARROW_MAGIC or footer_size < 0 or stop < 0:
        return [], end
    table_magic, checksum, count = _TABLE_END.unpack_from(end, stop)
    start = stop - count * _ENTRY.size
    if table_magic != _TABLE_MAGIC or start < 0:
        return [], end
    if zlib.crc32(end[footer_at:], zlib.crc32(end[start:stop])) != checksum:
        return [], end
    return list(_ENTRY.iter_unpack(end[start:stop])), end[start:]


_PREFIX = "queuegate."
_FORMAT, _ROWS, _BODY_BYTES = "format", "rows", "body_bytes"
_OURS = frozenset({_FORMAT, _ROWS, _BODY_BYTES})
_FORMAT_VERSION = "1"


class Damaged(ConnectorError):
    """The segment differs from the one that was written."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"segment {name} of the spool is damaged ({why})")


class Misplaced(Damaged, DataLost):
    """The file of one segment has the name of another one."""

    def __init__(self, name: str, spool: str, place: str) -> None:
        super().__init__(name, f"it is segment {place} of spool {spool}: files were mixed up")


def encode(
    slots: Sequence[pa.RecordBatch], compression: str, metadata: Mapping[str, str] | None = None
) -> bytes:
    """Return the file of these slots, all in STORED_SCHEMA; empty ones are kept, so that numbers
    stay."""
    given = dict(metadata or {})
    given[_FORMAT] = _FORMAT_VERSION
    given[_ROWS] = str(sum(slot.num_rows for slot in slots))
    sizes = (pc.sum(pc.binary_length(slot.column("body"))).as_py() for slot in slots)
    given[_BODY_BYTES] = str(sum(size or 0 for size in sizes))
    schema = STORED_SCHEMA.with_metadata({_PREFIX + name: text for name, text in given.items()})
    sink, ends = pa.BufferOutputStream(), []
    with pa.ipc.new_file(sink, schema, options=_write_options(compression)) as writer:
        for slot in slots:
            # Refuses another schema, and drops the batch's own metadata.
            writer.write_batch(slot)
            ends.append(sink.tell())
    return sealed(memoryview(sink.getvalue()), ends)


def _write_options(compression: str) -> pa.ipc.IpcWriteOptions:
    if compression == "none":
        return pa.ipc.IpcWriteOptions()
    if not pa.Codec.is_available(compression):
        raise ConnectorError(
            f"spoolCompression is {compression}, which this pyarrow was built without; use none"
        )
    return pa.ipc.IpcWriteOptions(compression=compression)


class Segment:
    """A file that ``encode`` wrote. Reading one slot or one column does not decode the others.
    Raises Damaged when it is opened, naming it, and ConnectorError if a newer version wrote it."""

    def __init__(self, data: bytes | mmap.mmap, name: str = "(unnamed)") -> None:
        # The read parts of a mapped file have been verified.
        why = None if isinstance(data, mmap.mmap) else why_damaged(memoryview(data))
        if why is not None:
            raise Damaged(name, why)
        self._buffer = pa.py_buffer(data)
        self._name = name
        self._file = self._opened(None)
        described = {
            key.decode().removeprefix(_PREFIX): text.decode()
            for key, text in (self._file.schema.metadata or {}).items()
            if key.startswith(_PREFIX.encode())
        }
        if described.get(_FORMAT) != _FORMAT_VERSION or not self._file.schema.equals(STORED_SCHEMA):
            raise ConnectorError(
                f"segment {name} of the spool was written by another version of the connector"
            )
        self.slot_count: int = self._file.num_record_batches
        self.row_count = int(described[_ROWS])
        self.body_bytes = int(described[_BODY_BYTES])
        self.metadata = {n: text for n, text in described.items() if n not in _OURS}

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
        return self.texts("message_id")

    def texts(self, name: str) -> list[str]:
        """Return a column of all messages, in the same order."""
        file = self._opened([STORED_SCHEMA.get_field_index(name)])
        batches = (self._batch(file, number) for number in range(self.slot_count))
        return list(itertools.chain.from_iterable(b.column(0).to_pylist() for b in batches))


def slots_of(
    messages: Sequence[FetchedMessage], slots: int, *, by_group: bool
) -> list[list[FetchedMessage]]:
    """Divide the messages among that many slots, some of which may be empty; each keeps the order.
    Without ``by_group`` the slots are runs whose lengths differ by one at most. With it, all
    messages of a group are in one slot, the same one in every segment of as many slots."""
    if by_group:
        found: list[list[FetchedMessage]] = [[] for _ in range(slots)]
        for received in messages:
            group = received.group.encode("utf-8", "surrogatepass")
            found[zlib.crc32(group) % slots].append(received)
        return found
    cuts = [len(messages) * number // slots for number in range(slots + 1)]
    return [list(messages[start:end]) for start, end in itertools.pairwise(cuts)]


SEGMENTS = "segments/"
DONE = "done/"
IDS = "ids/"
ACKNOWLEDGED = "acknowledged/"
TAKEN_OVER = "taken-over/"
ORDER = "order/"
DRIVERS = "drivers/"
DROPPED = "dropped/"
ASIDE = "damaged/"
IDENTITY = "spool.json"


class SegmentPlace(NamedTuple):
    """The place of a segment: batch ``seq``, and the slot within it where a task of a version
    before received it."""

    seq: int
    slot: int | None = None

    @property
    def order(self) -> tuple[int, int]:
        """The sort key."""
        return self.seq, -1 if self.slot is None else self.slot

    def __str__(self) -> str:
        return f"{self.seq:012}" + ("" if self.slot is None else f"-{self.slot:04}")


class DeletedSegment(NamedTuple):
    """The content of a name in ``done/`` or ``ids/``: a segment whose messages were deleted. Its
    message ids are remembered until ``forget_at`` (epoch seconds)."""

    place: SegmentPlace
    forget_at: int
    rows: int

    def __str__(self) -> str:
        return f"{self.place}~{self.forget_at}~{self.rows}"


def segment_name(place: SegmentPlace) -> str:
    """Return the name of the segment's file."""
    return f"{SEGMENTS}{place}.arrow"


def place_of(name: str) -> SegmentPlace | None:
    """Return the place of the segment with this name; None: no segment has it."""
    return _place(name.removeprefix(SEGMENTS).removesuffix(".arrow"))


def kept_of(name: str) -> DeletedSegment | None:
    """Parse a name in ``done/`` or ``ids/``; None for any other name."""
    place_text, *numbers = name.rpartition("/")[2].split("~")
    place = _place(place_text)
    if place is None or len(numbers) != 2 or not all(one.isdigit() for one in numbers):
        return None
    return DeletedSegment(place, int(numbers[0]), int(numbers[1]))


def _place(text: str) -> SegmentPlace | None:
    seq, dash, slot = text.partition("-")
    if not seq.isdigit() or (dash and not slot.isdigit()):
        return None
    return SegmentPlace(int(seq), int(slot) if dash else None)


class KnownMessages:
    """Keys of messages by segment, so that a redelivery is not emitted twice. Thread-safe."""

    def __init__(self) -> None:
        self._places: dict[bytes, SegmentPlace] = {}
        self._keys: dict[SegmentPlace, Sequence[bytes]] = {}
        self._lock = threading.Lock()

    def place_of(self, key: bytes) -> SegmentPlace | None:
        """Return the segment that has this message; None: it is new."""
        return self._places.get(key)

    def add(self, place: SegmentPlace, keys: Sequence[bytes]) -> None:
        """Add the messages of a segment."""
        with self._lock:
            self._keys[place] = keys
            for key in keys:
                self._places[key] = place

    def keys_of(self, place: SegmentPlace) -> Sequence[bytes] | None:
        """Return the keys of a segment, if it is known."""
        return self._keys.get(place)

    def forget(self, place: SegmentPlace) -> None:
        """Drop the messages of a segment."""
        with self._lock:
            for key in self._keys.pop(place, ()):
                if self._places.get(key) == place:
                    del self._places[key]

    def __len__(self) -> int:
        return len(self._places)


_VERSION = 1
_KEY_BYTES = 16
_SPOOL, _PLACE = "spool", "place"


# The mode of a spool that is kept and read again. Modes of streams may follow each other.
DRAIN = "drain"


class SpoolMismatch(ConnectorError):
    """The spool belongs to another query or queue, or the checkpoint names another spool."""


class SpoolTaken(ConnectorError):
    """Another process writes to this spool: two queries share it, or an earlier one still runs."""


class Contents(NamedTuple):
    """The content of a spool at one moment. ``done`` and ``ids``: messages deleted from the queue;
    ``acknowledged``: Spark committed everything up to that batch, and maybe more; ``taken_over``:
    the acknowledged batch when a query with another checkpoint began to use it. ``orphans``:
    segments of a delayed writer, written after their batch had been dropped. ``dropped``: segments
    up to that batch were removed, or are being removed. ``sizes``: bytes of the segments."""

    segments: list[SegmentPlace]
    done: dict[SegmentPlace, DeletedSegment]
    ids: dict[SegmentPlace, DeletedSegment]
    acknowledged: int
    taken_over: int | None = None
    orphans: Sequence[SegmentPlace] = ()
    dropped: int = 0
    sizes: Mapping[SegmentPlace, int] = MappingProxyType({})

    @property
    def is_just_taken_over(self) -> bool:
        """True if it was taken over and nothing has been committed since: everything behind
        ``acknowledged`` is that query's own, and maybe nowhere else."""
        return self.taken_over == self.acknowledged

    @property
    def highest(self) -> int:
        """The highest batch of which there is a trace."""
        places = (*self.segments, *self.done, *self.ids)
        return max((self.acknowledged, *(place.seq for place in places)))

    def gone(self, after: int) -> list[DeletedSegment]:
        """Return missing segments behind that batch that are marked done and were not dropped. A
        segment exists before its mark, and ``dropped`` is written before it is removed."""
        present, least = {*self.segments}, max(after, self.dropped)
        return [
            kept
            for place, kept in sorted(self.done.items(), key=lambda item: item[0].order)
            if place.seq > least and place not in present
        ]


class Spool:
    """A spool in a store. Every operation may be repeated after a crash in the middle of it."""

    def __init__(self, store: Store, identity: str) -> None:
        self.store = store
        self.identity = identity

    @classmethod
    def open(cls, store: Store, *, queue: str, mode: str) -> Spool:
        """Open the spool of this queue, or create it. Raises SpoolMismatch when it is of another
        queue, or a drain's and not a stream's."""
        fresh = {"version": _VERSION, "spool": str(uuid.uuid4()), "queue": queue, "mode": mode}
        store.put_if_absent(IDENTITY, json.dumps(fresh).encode())
        try:
            found = _described(store)
        except SpoolMismatch as broken:
            lost = "the spool that the newest file in the checkpoint's offsets names"
            raise SpoolMismatch(
                f"{broken}: put it back from a copy, or write it anew as "
                f"{json.dumps({**fresh, 'spool': f'<{lost}>'})}"
            ) from None
        identity, version = found["spool"], found["version"]
        if version != _VERSION:
            raise SpoolMismatch(
                f"the spool has version {version}, and this is a reader of {_VERSION}: use the "
                "connectors that wrote it, or a spoolPath and a checkpoint of its own"
            )
        there = found.get("mode")
        if found.get("queue") != queue:
            raise SpoolMismatch(_of_another("queue", str(found.get("queue")), queue))
        if there != mode and DRAIN in (there, mode):
            raise SpoolMismatch(_of_another("mode", str(there), mode))
        return cls(store, identity)

    @staticmethod
    def identity_at(store: Store) -> str | None:
        """Return the identity of the spool there; None: there is none. Raises SpoolMismatch for a
        broken one."""
        try:
            return str(_described(store)["spool"])
        except Missing:
            return None

    def put(self, place: SegmentPlace, data: bytes) -> bool:
        """Write a segment; when this returns True it survives a crash. False: it existed. Raises
        SpoolTaken when it existed, and was committed and dropped since."""
        if not self.store.put_if_absent(segment_name(place), data):
            return False
        if place.seq <= self._dropped():
            self.store.remove(segment_name(place))
            raise SpoolTaken(
                f"batch {place.seq} was committed long ago and is no longer in the spool: this "
                "process was held up, and another one went on"
            )
        return True

    def written_slots(self, seq: int) -> set[int | None]:
        """Return the slots of a batch that have existed as segments, even if they are missing now:
        they have a number, because their rows were handed out, or their messages were deleted."""
        batch = f"{SegmentPlace(seq)}-"
        slots = {kept.slot for kept in self._kept(f"{DONE}{batch}")}
        for name in self.store.names(f"{ORDER}{batch}"):
            with contextlib.suppress(Missing):
                slots.add(int(self.store.get(name)))
        return slots

    def read(self, place: SegmentPlace) -> Segment:
        """Read a segment. Raises Missing, Damaged."""
        name = segment_name(place)
        return self._checked(Segment(self.store.get(name), name), place)

    def read_slot(self, place: SegmentPlace, number: int) -> Segment:
        """Read one slot of a segment. Raises Missing, Damaged."""
        name = segment_name(place)
        return self._checked(Segment(slot_in_place(self.store, name, number), name), place)

    def note_of(self, place: SegmentPlace) -> dict[str, str]:
        """Return metadata that names a segment's spool and place."""
        return {_SPOOL: self.identity, _PLACE: str(place)}

    def _checked(self, segment: Segment, place: SegmentPlace) -> Segment:
        """Return the segment, if it was written for this place; earlier versions do not note
        that."""
        ours = self.note_of(place)
        noted = {name: segment.metadata.get(name, ours[name]) for name in ours}
        if noted != ours:
            raise Misplaced(segment_name(place), noted[_SPOOL], noted[_PLACE])
        return segment

    def contents(self) -> Contents:
        """List everything."""
        files = self.store.sizes(SEGMENTS).items()
        sizes = {place: size for name, size in files if (place := place_of(name)) is not None}
        places = sorted(sizes, key=lambda place: place.order)
        dropped = self._dropped()
        done = self._kept(DONE)
        orphans = [place for place in places if place.seq <= dropped and place not in done]
        segments = [place for place in places if place not in orphans] if orphans else places
        # Dropped batches were acknowledged, though a crash may have come before that mark.
        acknowledged = max([dropped, *self._marks(ACKNOWLEDGED)])
        taken_over = max(self._marks(TAKEN_OVER), default=None)
        ids = self._kept(IDS)
        return Contents(segments, done, ids, acknowledged, taken_over, orphans, dropped, sizes)

    def damaged(
        self, contents: Contents, after: int, now: float
    ) -> list[tuple[SegmentPlace, Damaged]]:
        """Return segments that cannot be read, and the damage: of those behind that batch, and of
        those whose messages may still be deleted or delivered again."""
        found = []
        for place in contents.segments:
            kept = contents.done.get(place)
            if place.seq > after or kept is None or kept.forget_at > now:
                try:
                    self.read(place)
                except Damaged as bad:
                    found.append((place, bad))
                except Missing:
                    # Another process dropped it meanwhile, or `lost` reports it.
                    continue
        return found

    def replace(self, place: SegmentPlace, data: bytes) -> None:
        """Replace a damaged segment, of which a copy stays: a missing number between others would
        report a loss at every start."""
        name = segment_name(place)
        self.store.put_if_absent(f"{ASIDE}{name}", self.store.get(name))
        self.store.remove(name)
        self.store.put_if_absent(name, data)

    def lost(self, contents: Contents, after: int) -> list[DeletedSegment]:
        """Return segments behind that batch whose messages are lost: they are neither in the spool
        nor, since they were deleted, in the queue."""
        if not contents.gone(after):
            return []
        # A segment and its mark may have been written between the two listings.
        return self.contents()._replace(done=contents.done).gone(after)

    def _dropped(self) -> int:
        return max(self._marks(DROPPED), default=0)

    def _marks(self, prefix: str) -> list[int]:
        names = (name.removeprefix(prefix) for name in self.store.names(prefix))
        return [int(name) for name in names if name.isdigit()]

    def _mark(self, prefix: str, seq: int) -> None:
        before = self._marks(prefix)
        self.store.put_if_absent(f"{prefix}{seq:012}", b"")
        for older in before:
            if older < seq:
                self.store.remove(f"{prefix}{older:012}")

    def end_old_drivers(self) -> None:
        """End drivers of versions before whose tasks received: each registered with a number, and
        ends when there is a higher one."""
        if numbers := self._marks(DRIVERS):
            self._mark(DRIVERS, max(numbers) + 1)

    def fence(self, highest: int, advice: str) -> SegmentPlace:
        """Write an empty segment behind ``highest``: a driver that receives by itself writes there
        next, and ends. Raises SpoolTaken, with the advice, if such a driver was faster."""
        fence = SegmentPlace(highest + 1)
        if not self.put(fence, encode([], "none", self.note_of(fence))):
            raise SpoolTaken(f"segment {fence} of the spool at {advice}")
        self.mark_done(DeletedSegment(fence, 0, 0))
        return fence

    def acknowledge(self, seq: int) -> None:
        """Record that Spark has committed up to this batch."""
        self._mark(ACKNOWLEDGED, seq)

    def take_over(self, seq: int) -> None:
        """Record that a query with another checkpoint goes on behind this batch."""
        self._mark(ACKNOWLEDGED, seq)
        self._mark(TAKEN_OVER, seq)

    def clear(self, contents: Contents) -> None:
        """Remove everything but the spool's identity and its acknowledged batch."""
        # Marks first: a mark without its segment reports a loss.
        for kept in (*contents.done.values(), *contents.ids.values()):
            self.unmark(kept)
            self.forget(kept)
        for place in contents.segments:
            self.discard(place)
        self.remove_orphans(contents.orphans)

    def discard(self, place: SegmentPlace) -> None:
        """Remove a segment, and its number."""
        if place.slot is not None:
            self.store.remove(f"{ORDER}{place}")
        self.store.remove(segment_name(place))

    def remove_orphans(self, orphans: Sequence[SegmentPlace]) -> None:
        """Remove orphaned segments."""
        for place in orphans:
            self.store.remove(segment_name(place))

    def _kept(self, prefix: str) -> dict[SegmentPlace, DeletedSegment]:
        found = (kept_of(name) for name in self.store.names(prefix))
        return {kept.place: kept for kept in found if kept is not None}

    def mark_done(self, kept: DeletedSegment) -> None:
        """Record that the segment's messages were deleted from the queue."""
        self.store.put_if_absent(f"{DONE}{kept}", b"")

    def unmark(self, kept: DeletedSegment) -> None:
        """Undo ``mark_done``."""
        self.store.remove(f"{DONE}{kept}")

    def mark_dropped(self, seq: int) -> None:
        """Record, before segments are dropped, that everything up to that batch is done: segments
        that are written there from now on are orphans."""
        self._mark(DROPPED, seq)

    def drop(self, kept: DeletedSegment, keys: Sequence[bytes] | None, now: float) -> None:
        """Remove a segment that is done, but keep its ids for as long as they are needed. ``keys``:
        its message keys; None: read them from the segment."""
        if kept.forget_at > now:
            try:
                data = b"".join(keys if keys is not None else self.keys(kept.place))
            except Missing:
                data = None
            if data is not None:
                self.store.put_if_absent(f"{IDS}{kept}", data)
        self.store.remove(segment_name(kept.place))
        if kept.place.slot is not None:
            self.store.remove(f"{ORDER}{kept.place}")
        self.unmark(kept)

    def forget(self, kept: DeletedSegment) -> None:
        """Remove expired ids."""
        self.store.remove(f"{IDS}{kept}")

    def keys(self, place: SegmentPlace) -> list[bytes]:
        """Return the keys of a segment's messages. Raises Missing, Damaged."""
        return [message_key(one) for one in self.read(place).message_ids()]

    def kept_keys(self, kept: DeletedSegment) -> list[bytes]:
        """Return the keys in a file of ids; none if it was removed meanwhile."""
        data = b""
        with contextlib.suppress(Missing):
            data = self.store.get(f"{IDS}{kept}")
        return [data[at : at + _KEY_BYTES] for at in range(0, len(data), _KEY_BYTES)]

    def remembered(
        self, contents: Contents, now: float
    ) -> Iterable[tuple[SegmentPlace, list[bytes]]]:
        """Yield the keys of possible redeliveries, by segment; reads each file that it needs.
        Another process may drop segments meanwhile: their ids were written before they were
        removed."""
        for place in contents.segments:
            kept = contents.done.get(place)
            if kept is None or kept.forget_at > now:
                try:
                    keys = self.keys(place)
                except Missing:
                    dropped = self._kept(f"{IDS}{place}~").values()
                    keys = [key for one in dropped for key in self.kept_keys(one)]
                yield place, keys
        for kept in contents.ids.values():
            if kept.forget_at > now and kept.place not in contents.segments:
                yield kept.place, self.kept_keys(kept)


def _of_another(name: str, found: str, wanted: str) -> str:
    return (
        f"the spool is of {name} '{found}', not '{wanted}': give each query a spoolPath and a "
        "checkpoint of its own"
    )


def _described(store: Store) -> dict[str, Any]:
    """Read the description of a spool. Raises Missing, and SpoolMismatch."""
    try:
        found: dict[str, Any] = json.loads(store.get(IDENTITY))
        return {**found, "spool": str(found["spool"]), "version": found["version"]}
    except (ValueError, KeyError, TypeError):
        raise SpoolMismatch(f"{IDENTITY} in the spool cannot be read") from None

"""Tasks that read slots of segments, and segments that cannot be read.

Versions before had a mode in which tasks received, each into a segment of its own, a slot of the
batch. Their batches that Spark has not committed become segments of this version.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from spark_connectors.errors import ConnectorError, DataLost
from spark_connectors.message_rows import (
    STORED_SCHEMA,
    RowShape,
    kept_columns,
    shaped,
    stored_batch,
)
from spark_connectors.source.queue_options import StreamOptions
from spark_connectors.spool import (
    Contents,
    Misplaced,
    Segment,
    SegmentPlace,
    Spool,
    SpoolMismatch,
    encode,
    segment_name,
)
from spark_connectors.stores import Missing, Store, StoreAccess, open_store

_log = logging.getLogger(__name__)
_COLUMNS = "columns"


class Offset(NamedTuple):
    """Everything up to segment ``seq`` of that spool, itself included. Of a batch that tasks of a
    version before were to receive also the number of its ``slots``, and of the messages that the
    driver had ``taken``."""

    spool: str
    seq: int
    slots: int = 0
    taken: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the members that Spark stores."""
        return {"spool": self.spool, "seq": self.seq}

    @classmethod
    def of(cls, given: dict[str, Any]) -> Offset:
        """Parse an offset. Raises SpoolMismatch for an offset of another source."""
        try:
            plan = (int(given.get(name) or 0) for name in ("slots", "taken"))
            return cls(str(given["spool"]), int(given["seq"]), *plan)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise SpoolMismatch(
                f"the checkpoint has an offset that is not of this source: {given}"
            ) from None


@dataclass
class SlotTask(InputPartition):
    """One slot of these segments of the spool with that identity. ``inline``: the segments' slots
    as an Arrow stream, where executors cannot read the spool."""

    spool: str
    slot: int
    places: tuple[SegmentPlace, ...]
    inline: bytes | None = None


def store_of(options: StreamOptions) -> Store:
    """Open the store that the options name."""
    connection = options.connection
    access = StoreAccess(options.spool_endpoint_url, connection.region, connection.profile)
    return open_store(options.spool_path, access=access)


def spool_of(task: SlotTask, store: Store, options: StreamOptions) -> Spool:
    """Return the spool that a task was planned with, as the task's machine sees it. Raises
    SpoolMismatch when there is none, or another one: segments of all spools have the same names,
    and messages in another spool are in no batch when the task runs again elsewhere."""
    here = Spool.identity_at(store)
    if here == task.spool:
        return Spool(store, here)
    what = "there is no spool" if here is None else f"there is another spool ({here})"
    raise SpoolMismatch(
        f"at {options.spool_path}, as {socket.gethostname()} sees it, {what}: the batch was planned"
        f" with {task.spool}. Each machine seems to have a directory of its own under that name, or"
        " the spool was replaced under a running query. Nothing was received. Give a spoolPath that"
        " the driver and all executors share: a network file system, or s3://bucket/prefix; or, in"
        " driver mode, spoolPayload=inline"
    )


def rows_of(
    task: SlotTask, store: Store | None, options: StreamOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task in the query's shape, in the order in which they were received.
    Raises DataLost when a segment is missing and failOnDataLoss is true, and SpoolMismatch."""
    if task.inline is not None:
        with pa.ipc.open_stream(task.inline) as batches:
            for batch in batches:
                yield shaped(batch, options.shape)
        return
    assert store is not None
    spool = spool_of(task, store, options)
    for place in task.places:
        segment = segment_at(spool, place, options, task.slot)
        if segment is not None and task.slot < segment.slot_count:
            yield shaped(segment.slot(task.slot), options.shape)


def note_of(shape: RowShape) -> dict[str, str]:
    """Return a segment's note of the columns that it keeps: empty when it keeps all."""
    return {_COLUMNS: ",".join(sorted(kept_columns(shape)))} if shape.columns else {}


def kept_in(segment: Segment) -> set[str]:
    """Return the columns of STORED_SCHEMA that the segment keeps."""
    kept = segment.metadata.get(_COLUMNS)
    return set(STORED_SCHEMA.names if kept is None else kept.split(","))


def complete(segment: Segment, options: StreamOptions) -> Segment:
    """Return the segment, if it keeps the columns that the query requests. Raises
    ConnectorError."""
    lacking = kept_columns(options.shape) - kept_in(segment)
    if not lacking:
        return segment
    raise ConnectorError(
        f"the spool at {options.spool_path} has messages that were received without "
        f"{', '.join(sorted(lacking))}: run the query with the option columns as it was until it "
        "has committed them, and change it then"
    )


def without(message_ids: Collection[str], rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the stored rows of all other messages."""
    if not message_ids:
        return rows
    known = pc.is_in(rows.column("message_id"), pa.array(message_ids, pa.string()))
    return rows.filter(pc.invert(known))


def segment_at(
    spool: Spool, place: SegmentPlace, options: StreamOptions, slot: int | None = None
) -> Segment | None:
    """Return the segment, or the part that one slot needs; None when it is missing and
    failOnDataLoss is false. Raises DataLost."""
    with contextlib.suppress(Missing):
        segment = spool.read(place) if slot is None else spool.read_slot(place, slot)
        return complete(segment, options)
    report_loss(
        options,
        f"{segment_name(place)} is not in the spool at {options.spool_path}, but Spark planned a "
        "batch with it: the spool was emptied or another one is mounted there",
        "With failOnDataLoss=false the query goes on without these messages",
    )
    return None


def inline_of(slot: int, segments: list[Segment]) -> bytes:
    """Return one slot of these segments as an Arrow stream."""
    batches = [one.slot(slot) for one in segments if slot < one.slot_count]
    sink = pa.BufferOutputStream()
    if batches:
        with pa.ipc.new_stream(sink, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def joined_slots(
    spool: Spool, contents: Contents, base: int, planned: Offset | None, options: StreamOptions
) -> Contents:
    """Return the contents with a segment for each uncommitted batch whose slots tasks of a version
    before have written. Tasks that still run find their slot written, and change nothing. Raises
    DataLost when the segment of a slot is missing."""
    if planned is None or planned.spool != spool.identity or planned.seq <= contents.acknowledged:
        planned = None
    has_slots = planned is not None and planned.slots > 0
    if not has_slots and all(one.slot is None for one in contents.segments):
        return contents
    slots: dict[int, set[SegmentPlace]] = {}
    if planned is not None and has_slots:
        slots[planned.seq] = {SegmentPlace(planned.seq, slot) for slot in range(planned.slots)}
        written = spool.written_slots(planned.seq)
        for place in slots[planned.seq]:
            if place.slot not in written:
                empty = [stored_batch(options.place.name, [])]
                spool.put(place, encode(empty, "none", spool.note_of(place)))
    contents = spool.contents()
    for place in contents.segments:
        if place.slot is not None and place.seq > max(base, contents.dropped):
            slots.setdefault(place.seq, set()).add(place)
    for seq, places in slots.items():
        joint = SegmentPlace(seq)
        if joint in contents.segments:
            _remove_fence(spool, joint, contents)
        _join(spool, joint, places, options)
    return spool.contents()


def _remove_fence(spool: Spool, place: SegmentPlace, contents: Contents) -> None:
    """Remove an empty segment, with which a driver of a version before has shut out others."""
    if not spool.read(place).slot_count:
        # The mark first: a mark without its segment reports a loss.
        if (kept := contents.done.get(place)) is not None:
            spool.unmark(kept)
        spool.discard(place)


def _join(
    spool: Spool, joint: SegmentPlace, places: Collection[SegmentPlace], options: StreamOptions
) -> None:
    """Write the segment of a batch, unless it is there, with the slots at these places."""
    parts: list[pa.RecordBatch] = []
    known: set[str] = set()
    for place in sorted(places, key=lambda place: place.order):
        if (segment := segment_at(spool, place, options)) is not None:
            # Two tasks may have received one message.
            parts.append(without(known, segment.slot(0)))
            known.update(segment.message_ids())
    note = {**note_of(options.shape), **spool.note_of(joint)}
    spool.put(joint, encode(parts, options.spool_compression, note))


def replace_damaged(
    spool: Spool, contents: Contents, base: int, planned: Offset | None, options: StreamOptions
) -> Contents:
    """Return the contents without damaged segments. A segment is received again if the queue still
    has its messages and no batch has it; others are left out with ``failOnDataLoss=false``. Raises
    DataLost."""
    damaged = spool.damaged(contents, base, time.time())
    for place, bad in damaged:
        is_safe, told, then = _told(place, contents, base, planned, options)
        # The right file is elsewhere: receiving again would hide that.
        is_safe = is_safe and not isinstance(bad, Misplaced)
        told = f"{bad} at {options.spool_path}; {told}"
        if options.fail_on_data_loss and not is_safe:
            raise DataLost(
                f"{told}. Put the file back from a copy; with failOnDataLoss=false the query goes "
                f"on without it, and {then}"
            )
        _log.warning("%s. It is put aside, and %s", told, then)
        empty = [stored_batch(options.place.name, [])]
        spool.replace(place, encode(empty, "none", spool.note_of(place)))
    return spool.contents() if damaged else contents


def report_loss(options: StreamOptions, told: str, advice: str) -> None:
    """Raise DataLost, or log a warning with ``failOnDataLoss=false``; a spool in memory loses what
    it has by design."""
    if options.is_in_memory:
        return
    if options.fail_on_data_loss:
        raise DataLost(f"{told}. {advice}")
    _log.warning("%s; with failOnDataLoss=false the query goes on", told)


def _told(
    place: SegmentPlace,
    contents: Contents,
    base: int,
    planned: Offset | None,
    options: StreamOptions,
) -> tuple[bool, str, str]:
    """Return whether going on without that segment loses and repeats nothing; the state of its
    messages; the consequence for them."""
    kept = contents.done.get(place)
    if kept is not None and place.seq > base:
        return False, f"its {kept.rows} messages are deleted from the queue", "they are lost"
    if kept is not None:
        until = datetime.fromtimestamp(kept.forget_at, UTC).isoformat()
        return (
            False,
            f"its {kept.rows} messages are committed, but one that the queue gives once more would "
            f"be taken for new until {until}",
            "such a one is there twice; or start it after that time",
        )
    if place.seq <= base:
        return (
            False,
            "its messages are committed and not yet deleted from the queue",
            "they come again and are there twice",
        )
    if (
        options.delete_mode == "spool"
        or place.slot is not None
        or place.seq <= contents.acknowledged
    ):
        return (
            False,
            "it is unknown how many of its messages were deleted from the queue",
            "those that the queue has come again",
        )
    if planned is not None and place.seq <= planned.seq:
        return (
            False,
            "its messages are still in the queue, but Spark has planned a batch with them, which "
            "the sink may have",
            "they come again, and are there twice if it has",
        )
    return True, "its messages are still in the queue", "they are received again"

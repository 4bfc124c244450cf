"""Tasks that read one slot of a batch's segments, from the spool or from the task itself."""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from spark_connectors.errors import ConnectorError, DataLost
from spark_connectors.rows.row_columns import STORED_SCHEMA, RowShape, kept_columns
from spark_connectors.rows.row_shapes import shaped
from spark_connectors.source.queue_options import StreamOptions
from spark_connectors.spool.segments import Segment
from spark_connectors.spool.spool import SegmentPlace, Spool, SpoolMismatch, segment_name
from spark_connectors.spool.stores import Missing, Store, StoreAccess, open_store

_COLUMNS = "columns"


class SlotTask(InputPartition):
    """One slot of these segments of the spool with that identity. ``inline``: the segments' slots
    as an Arrow stream, where executors cannot read the spool."""

    def __init__(
        self, spool: str, slot: int, places: tuple[SegmentPlace, ...], inline: bytes | None = None
    ) -> None:
        self.spool = spool
        self.slot = slot
        self.places = places
        self.inline = inline


def store_of(options: StreamOptions) -> Store:
    """Open the store that the options name."""
    connection = options.connection
    access = StoreAccess(options.spool_endpoint_url, connection.region, connection.profile)
    return open_store(options.spool_path, access=access)


def spool_of(task: SlotTask, store: Store, options: StreamOptions) -> Spool:
    """Return the spool that a task was planned with, as the task's machine sees it.

    Raises SpoolMismatch when there is none, or another one: segments of all spools have the same
    names, and messages in another spool are in no batch when the task runs again elsewhere.
    """
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

    Raises DataLost when a segment is missing and failOnDataLoss is true, and SpoolMismatch.
    """
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
    try:
        segment = spool.read(place) if slot is None else spool.read_slot(place, slot)
        return complete(segment, options)
    except Missing:
        if not options.fail_on_data_loss or options.is_in_memory:
            return None
        raise DataLost(
            f"{segment_name(place)} is not in the spool at {options.spool_path}, but Spark planned "
            "a batch with it: the spool was emptied or another one is mounted there. With "
            "failOnDataLoss=false the query goes on without these messages"
        ) from None


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

"""Spools whose checkpoint is lost: list their content, and return it to the queue.

No message is lost, but one may be there twice: a message that cannot be made visible by its receipt
is sent again, whether it was deleted or returned to the queue by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from spark_connectors.errors import ConnectorError
from spark_connectors.message_rows import TEXT, spark_schema_of
from spark_connectors.options import unknown_names
from spark_connectors.sink.message_columns import Identity
from spark_connectors.sink.message_sink import message_sink
from spark_connectors.sink.sender import send
from spark_connectors.sink.sink_options import SINK_OPTIONS, queue_settings
from spark_connectors.source.queue_options import StreamOptions, stream_options
from spark_connectors.source.slot_tasks import kept_in, store_of, without
from spark_connectors.spool import Contents, Segment, SegmentPlace, Spool, segment_name
from spark_connectors.transport import shared_transport

_SENT = ("body", "message_group_id", "message_deduplication_id", "message_attributes")
_ALL_SENT = (*_SENT, "aws_trace_header")


def list_spool(given: Mapping[str, str]) -> Iterator[str]:
    """Describe each segment of the spool that these options of a stream name."""
    spool = _spool(stream_options(given))
    contents = spool.contents()
    yield f"spool {spool.identity}, committed up to batch {contents.acknowledged}"
    for place in contents.segments:
        state = "committed" if place.seq <= contents.acknowledged else "not committed"
        queue = "deleted from the queue" if place in contents.done else "in the queue"
        rows = spool.read(place).row_count
        yield f"{segment_name(place)}: {rows} messages, {state}, {queue}"


def return_spool(given: Mapping[str, str]) -> Iterator[str]:
    """Return the messages that no batch has committed to their queue, and remove them here; yields
    the counts of those made visible by their receipts, and sent anew. May be repeated after a
    crash. Raises ConnectorError, and SpoolTaken for a spool in use."""
    options = stream_options(given)
    spool = _spool(options)
    # Every driver ends: one of a version whose tasks received by the entry, others by the segment.
    spool.end_old_drivers()
    fence = spool.fence(
        spool.contents().highest,
        f"{options.spool_path} was written just now: stop the query that uses it first",
    )
    contents = spool.contents()
    returning = _Returning(given, options, spool)
    for place in contents.segments:
        if contents.acknowledged < place.seq < fence.seq:
            returning.release(place, contents)
    # Last: an acknowledged segment without a mark would be deleted from the queue.
    spool.acknowledge(fence.seq)
    yield f"{returning.shown} messages shown again, {returning.sent} sent again"


def _spool(options: StreamOptions) -> Spool:
    store = store_of(options)
    if Spool.identity_at(store) is None:
        raise ConnectorError(f"there is no spool at {options.spool_path}")
    return Spool.open(store, queue=options.place.name, mode=options.receive_mode)


class _Returning:
    """Returns segments, one after the other."""

    def __init__(self, given: Mapping[str, str], options: StreamOptions, spool: Spool) -> None:
        unknown = unknown_names(SINK_OPTIONS, given)
        self._settings = queue_settings({n: v for n, v in given.items() if n not in unknown})
        self._options = options
        self._spool = spool
        self._transport = shared_transport(options.connection)
        self._url = options.place.url(self._transport)
        self._seen: set[str] = set()
        self.shown = self.sent = 0

    def release(self, place: SegmentPlace, contents: Contents) -> None:
        """Show or send the messages of a segment, then remove it."""
        segment = self._spool.read(place)
        for number in range(segment.slot_count):
            # Two slots may have one message.
            rows = without(self._seen, segment.slot(number))
            self._seen.update(rows.column("message_id").to_pylist())
            gone = rows if place in contents.done else self._not_shown(rows)
            self.shown += rows.num_rows - gone.num_rows
            if gone.num_rows:
                self._send(segment, gone)
        if (kept := contents.done.get(place)) is not None:
            # The mark first: a mark without its segment reports a loss.
            self._spool.unmark(kept)
        self._spool.discard(place)

    def _not_shown(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Make messages visible by their receipts. Returns those for which that failed."""
        receipts = rows.column("receipt_handle").to_pylist()
        faults = self._transport.change_visibility(self._url, receipts, 0)
        return rows.filter(pa.array([fault is not None for fault in faults], pa.bool_()))

    def _send(self, segment: Segment, rows: pa.RecordBatch) -> None:
        lacking = set(_SENT) - kept_in(segment)
        if lacking:
            raise ConnectorError(
                f"{rows.num_rows} messages of the spool at {self._options.spool_path} are no "
                f"longer in the queue, and were received without {', '.join(sorted(lacking))}: "
                "they cannot be sent again"
            )
        columns = {name: rows.column(name) for name in _ALL_SENT}
        if self._options.place.is_fifo:
            # The queue would drop a message with its own id if that was sent minutes ago.
            ids = [f"returned-{one}" for one in rows.column("message_id").to_pylist()]
            columns["message_deduplication_id"] = pa.array(ids, TEXT)
        else:
            del columns["message_deduplication_id"]
        batch = pa.RecordBatch.from_pydict(columns)
        plan = message_sink("spool return", self._settings, spark_schema_of(batch.schema))
        target = plan.open(Identity(self._spool.identity, 0))
        self.sent += send(target, plan.sending, [batch]).rows

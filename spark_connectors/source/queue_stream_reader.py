"""The base of both stream readers: tasks that read slots, offsets, and the opened spool."""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import time
import uuid
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from spark_connectors.endpoints import Connection, TransientFailure, json_value
from spark_connectors.errors import ConnectorError, DataLost, Refused, hide_traceback
from spark_connectors.message_rows import (
    STORED_SCHEMA,
    FetchedMessage,
    RowShape,
    kept_columns,
    packed,
    received_of,
    shaped,
    stored_batch,
)
from spark_connectors.source.deleter import (
    SAFE_UNTIL,
    Deleter,
    ForgetRule,
    SegmentDelete,
    release_messages,
    safe_from,
)
from spark_connectors.source.queue_options import StreamOptions
from spark_connectors.spool import (
    Contents,
    DeletedSegment,
    KnownMessages,
    Misplaced,
    Segment,
    SegmentPlace,
    Spool,
    SpoolMismatch,
    encode,
    segment_name,
)
from spark_connectors.stores import Missing, Store, StoreAccess, open_store
from spark_connectors.transport import (
    QueueFigures,
    Transport,
    is_aws,
    open_service,
    shared_transport,
)

_log = logging.getLogger(__name__)
_COLUMNS = "columns"


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


class SegmentBuilder:
    """Messages of a queue on their way into segments: the machine of the driver and of tasks."""

    def __init__(
        self, options: StreamOptions, transport: Transport, url: str, spool: Spool
    ) -> None:
        self._options = options
        self._transport = transport
        self._url = url
        self._spool = spool
        # Received and in no segment, with the bytes of their bodies.
        self._taken: dict[bytes, FetchedMessage] = {}
        self._taken_bytes = 0
        self._largest = 1
        # Of requests under way.
        self._asked_for = 0

    def _fetch(self, most: int, wait_seconds: int) -> tuple[Sequence[FetchedMessage], bool]:
        """Receive once. Returns the messages, and True if one may be a redelivery. Nothing else of
        the answer outlives this call."""
        options = self._options
        asked_at = time.time()
        messages = self._transport.receive(
            self._url,
            most=most,
            visibility_seconds=options.visibility_seconds,
            wait_seconds=wait_seconds,
            # One id for every attempt: the queue repeats a lost answer.
            attempt_id=str(uuid.uuid4()) if options.place.is_fifo else None,
            wanted=options.wanted,
        )
        now = time.time()
        counts = ((one.get("Attributes") or {}).get("ApproximateReceiveCount") for one in messages)
        is_repeated = any(count != "1" for count in counts)
        found = [received_of(one, now, asked_at) for one in messages]
        return packed(options.place.name, found, kept_columns(options.shape)), is_repeated

    def _hold(self, key: bytes, received: FetchedMessage) -> bool:
        """Add a message. Returns False if it is there; of two threads either may have the receipt
        that still deletes it."""
        if key in self._taken:
            self._taken[key] = received._replace(older=self._taken[key].receipts)
            return False
        self._taken_bytes += received.body_bytes
        self._largest = max(self._largest, received.body_bytes)
        self._taken[key] = received
        return True

    def _encoded(
        self, place: SegmentPlace, parts: Sequence[Sequence[FetchedMessage]], since: float
    ) -> bytes:
        """Return a segment with a slot for each part. ``since``: no message was received before."""
        options, kept = self._options, kept_columns(self._options.shape)
        batches = [stored_batch(options.place.name, part, kept) for part in parts]
        safe_until = safe_from(since, options.visibility_seconds)
        note = {**note_of(options.shape), **self._spool.note_of(place)}
        return encode(batches, options.spool_compression, {SAFE_UNTIL: str(safe_until), **note})

    def _delete_of(self, messages: Mapping[bytes, FetchedMessage], since: float) -> SegmentDelete:
        """Return the messages of a segment as a delete for later."""
        receipts = {key: one.receipt for key, one in messages.items()}
        for key, one in messages.items():
            # Further receipts of a message that came twice have a longer key.
            receipts.update((b"%s%d" % (key, n), old) for n, old in enumerate(one.older))
        return SegmentDelete(receipts, safe_from(since, self._options.visibility_seconds), since)

    def release(self) -> None:
        """Make the messages visible again, and drop them."""
        taken, self._taken, self._taken_bytes = self._taken, {}, 0
        receipts = [receipt for one in taken.values() for receipt in one.older]
        receipts += [one.receipt for one in taken.values()]
        release_messages(self._transport, self._url, receipts)


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


class Offset(NamedTuple):
    """Everything up to segment ``seq`` of that spool, itself included. In executor mode also the
    plan of that batch, for a later run: at most ``rows`` rows in ``slots`` slots, of which the
    driver has ``taken`` some, as slot 0."""

    spool: str
    seq: int
    slots: int | None = None
    rows: int | None = None
    taken: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the members that Spark stores."""
        return {name: value for name, value in self._asdict().items() if value is not None}

    @classmethod
    def of(cls, given: dict[str, Any]) -> Offset:
        """Parse an offset. Raises SpoolMismatch for an offset of another source."""
        try:
            plan = (given.get(name) for name in ("slots", "rows", "taken"))
            numbers = (None if one is None else int(one) for one in plan)
            return cls(str(given["spool"]), int(given["seq"]), *numbers)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise SpoolMismatch(
                f"the checkpoint has an offset that is not of this source: {given}"
            ) from None


_AGE_SECONDS = 5.0


class Gauge:
    """Counts of one queue, and the age of its oldest message where the endpoint reports it.
    Queuegate reports it at ``GET /v1/queues/{name}``; AWS only in CloudWatch."""

    def __init__(self, transport: Transport, url: str, connection: Connection, name: str) -> None:
        self._transport = transport
        self._url = url
        self._service = open_service(connection)
        self._path = f"/v1/queues/{quote(name, safe='')}"
        self._found: QueueFigures | None = None

    def figures(self) -> QueueFigures:
        """Return the present counts. Raises Refused, NotNow."""
        self._found = None
        self._found = self._transport.figures(self._url)
        return self._found

    def shown(self) -> dict[str, Any]:
        """Return the counts that a batch was planned by, otherwise the present ones, and the age;
        None for an unknown figure."""
        try:
            found = self._found or self.figures()
        except ConnectorError:
            return dict.fromkeys(("visible", "notVisible", "delayed", "oldestAgeSeconds"))
        self._found = None
        return {
            "visible": found.visible,
            "notVisible": found.in_flight,
            "delayed": found.delayed,
            "oldestAgeSeconds": self._oldest_age_seconds(),
        }

    def _oldest_age_seconds(self) -> int | None:
        if self._service is None:
            return None
        try:
            answer = self._service.call(
                {}, b"", timeout_seconds=_AGE_SECONDS, method="GET", path=self._path
            )
            age: int | None = json_value(answer)["oldest_msg_age_sec"]
            return age
        except (Refused, ValueError, KeyError, TypeError):
            # Not Queuegate, or no permission: the answer will not change.
            self._service = None
        except (TransientFailure, ConnectorError):
            pass
        return None


def fence_other_mode(
    spool: Spool, contents: Contents, base: int, planned: Offset | None, options: StreamOptions
) -> None:
    """If the spool was filled in the other receive mode, check that all of it is committed, and
    fence drivers of that mode. Raises SpoolMismatch, and SpoolTaken when such a driver still
    writes."""
    mode = options.receive_mode
    other = "driver" if mode == "executor" else "executor"

    def is_others(place: SegmentPlace) -> bool:
        return (place.slot is not None) == (other == "executor")

    batches = {
        place.seq
        for place in contents.segments
        if place.seq > base
        and is_others(place)
        and not ((kept := contents.done.get(place)) and kept.rows == 0)
    }
    if planned is not None and (planned.slots is not None) == (other == "executor"):
        batches.add(planned.seq)
    if batches:
        raise SpoolMismatch(
            f"receiveMode={mode}, but the spool at {options.spool_path} has {len(batches)} batches "
            f"that receiveMode={other} has received and Spark has not committed: run the query once"
            f" more with receiveMode={other} and trigger(availableNow=True), then with this one"
        )
    places = (*contents.segments, *contents.done, *contents.ids)
    newest = max(places, default=None, key=lambda place: place.order)
    if newest is None or not is_others(newest):
        return
    if mode == "executor":
        spool.fence(
            contents.highest,
            f"{options.spool_path} was written by another query: only one at a time may use a "
            "checkpoint and its spool",
        )
    else:
        spool.enter()


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


_MOST_NAMED = 3
_FLUSH_SECONDS = 120.0
_LONGEST_RETENTION_SECONDS = 14 * 86_400


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A queue as a stream. Spark makes several of these: one is asked for offsets in the driver's
    process and works; the others only read tasks, and must cost nothing to make or pickle."""

    def __init__(self, options: StreamOptions) -> None:
        if options.is_in_memory:
            options = options._replace(spool_path=f"memory:{uuid.uuid4()}")
        self.options = options
        self._opened = False
        # Messages that an AvailableNow run is to read; -1: not counted yet. Spark sets it before
        # any call that opens the spool.
        self._target: int | None = None

    def open_store(self) -> Store:
        """Open the store of the spool."""
        return store_of(self.options)

    def open_transport(self) -> Transport:
        """Open the transport to the queue."""
        return shared_transport(self.options.connection)

    def _open(self, start: Offset | None, planned: Offset | None = None) -> None:
        """Open everything, once. Raises ConnectorError. ``start``: the position of the checkpoint;
        ``planned``: the end of the batch after it."""
        if self._opened:
            return
        options = self.options
        self._transport = self.open_transport()
        self._url = options.place.url(self._transport)
        # Calls the queue first: a wrong endpoint or queue ends the query here.
        attributes = self._transport.attributes(self._url)
        # Evaluates it once, before threads wait for it.
        _log.debug("%s messages a call", self._transport.most_per_call)
        retention = attributes.get("MessageRetentionPeriod", "")
        self._rule = ForgetRule(
            int(retention) if retention.isdigit() else _LONGEST_RETENTION_SECONDS,
            options.dedupe_window,
            is_aws(options.connection),
        )
        self._spool = Spool.open(
            self.open_store(), queue=options.place.name, mode=options.receive_mode
        )
        self._enter()
        self._known = KnownMessages()
        self._deleter = Deleter(
            options, self._transport, self._url, self._spool, self._known, self._rule
        )
        contents = self._spool.contents()
        self._refuse_older(start, contents)
        if planned is not None and planned.spool != self._spool.identity:
            planned = None
        if start is not None and planned is not None:
            # The agreement was reached when that batch was planned.
            base: int | None = self._reached(start, contents.acknowledged)
        else:
            base = self._agreed(start, contents)
        if base is None:
            self._spool.clear(contents)
            self._spool.take_over(contents.highest)
            contents = self._spool.contents()
            base = contents.acknowledged
            if start is not None:
                base = self._reached(start, base)
        self._base = base
        fence_other_mode(self._spool, contents, base, planned, options)
        contents = replace_damaged(self._spool, contents, base, planned, options)
        self._fail_or_warn(self._spool.lost(contents, base))
        if start is None:
            self._warn_of_repeats(contents)
        self._deleter.start(contents)
        self._gauge = Gauge(self._transport, self._url, options.connection, options.place.name)
        self._reported: tuple[int, dict[str, Any]] = -1, {}
        self._batch_at = -math.inf
        self._start_work(contents)
        self._opened = True

    def _enter(self) -> None:
        """Announce this driver to others, before the spool is read."""

    # The end of the batch that was planned last.
    _seq: int

    @abstractmethod
    def _start_work(self, contents: Contents) -> None:
        """Start the threads of this reader."""

    def _agreed(self, start: Offset | None, contents: Contents) -> int | None:
        """Return the segment to go on after; None when the spool is to be emptied first. ``start``
        None is a new checkpoint. Its spool is unused, or was filled by a query that died before its
        first batch was committed: then all of it is still to be read."""
        options = self.options
        if start is None:
            if not contents.acknowledged:
                return 0
            if options.on_mismatch == "fail":
                raise SpoolMismatch(
                    f"the spool at {options.spool_path} was used by a query with another checkpoint"
                    ". onSpoolMismatch=adopt goes on behind what that query committed, discard "
                    "empties the spool; or give this query a spoolPath of its own"
                )
            is_to_stay = options.on_mismatch == "adopt" or contents.is_just_taken_over
            return contents.acknowledged if is_to_stay else None
        if start.spool == self._spool.identity or options.is_in_memory:
            return self._reached(start, contents.acknowledged)
        if options.on_mismatch == "fail":
            raise SpoolMismatch(
                f"the checkpoint belongs to spool {start.spool}, but at {options.spool_path} is "
                f"{self._spool.identity}: it was deleted, or spoolPath changed. With "
                "onSpoolMismatch=adopt the query goes on with the queue as it is now"
            )
        if contents.is_just_taken_over:
            # By this very query, which died before its first commit.
            return self._reached(start, contents.acknowledged)
        if options.on_mismatch == "discard":
            return None
        unread = sum(place.seq > contents.acknowledged for place in contents.segments)
        if unread:
            raise SpoolMismatch(
                f"the spool at {options.spool_path} has {unread} segments of another query that "
                "were not committed: onSpoolMismatch=discard drops them"
            )
        self._spool.take_over(contents.acknowledged)
        return self._reached(start, contents.acknowledged)

    def _refuse_older(self, start: Offset | None, contents: Contents) -> None:
        """Raise DataLost when the checkpoint has committed batches of which the spool has no trace,
        unless failOnDataLoss is false."""
        if start is None or start.spool != self._spool.identity:
            return
        # Spark may commit a batch of executor mode without running one of its tasks.
        untraced = 1 if start.slots and not start.taken else 0
        if start.seq <= contents.highest + untraced:
            return
        told = (
            f"the checkpoint has committed batch {start.seq}, but the spool at "
            f"{self.options.spool_path} ends at batch {contents.highest}: it was restored from an "
            "older copy. Messages that the newer spool had received and no batch has committed may "
            "be deleted from the queue"
        )
        report_loss(
            self.options,
            told,
            "Put the newer spool back, or set the checkpoint back to the same moment; with "
            "failOnDataLoss=false the query goes on without these messages",
        )

    def _warn_of_repeats(self, contents: Contents) -> None:
        """Warn that one batch may be repeated: a query whose checkpoint is lost may have committed
        it without the spool, because Spark reports a commit when it asks for the next batch."""
        behind = [place for place in contents.segments if place.seq > self._base]
        if not behind or not self._base:
            return
        rows = sum(self._spool.read(place).row_count for place in behind)
        _log.warning(
            "going on with the %s messages behind batch %s of the spool at %s: the last batch of "
            "the query before may be among them, and be in its sink already, because the "
            "spool has no report of its commit; the sink can know them by message_id",
            rows,
            self._base,
            self.options.spool_path,
        )

    def _reached(self, offset: Offset, base: int | None = None) -> int:
        """Return the last segment before any later offset. Of another spool: at least ``base``,
        otherwise the base of this query."""
        if offset.spool == self._spool.identity:
            return offset.seq
        return max(offset.seq, self._base if base is None else base)

    def _fail_or_warn(self, lost: Sequence[DeletedSegment]) -> None:
        """Raise DataLost for missing segments, unless failOnDataLoss is false."""
        if not lost:
            return
        names = [f"{segment_name(one.place)} ({one.rows} messages)" for one in lost[:_MOST_NAMED]]
        more = f" and {len(lost) - _MOST_NAMED} more" if len(lost) > _MOST_NAMED else ""
        told = (
            f"{', '.join(names)}{more} not in the spool at {self.options.spool_path}: what was in "
            "there is deleted from the queue, and no batch that was committed has it"
        )
        report_loss(
            self.options,
            told,
            "Put the files back from a copy; with failOnDataLoss=false the query goes on without "
            "these messages",
        )

    def _of_another_spool(self, last: Offset) -> list[InputPartition]:
        """Return no tasks for a batch that was planned with another spool. Raises DataLost."""
        report_loss(
            self.options,
            f"Spark planned a batch of spool {last.spool}, but at {self.options.spool_path} is "
            f"{self._spool.identity}",
            "With failOnDataLoss=false the query goes on without the messages of that batch",
        )
        return []

    # Methods that Spark calls

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the offset before the first batch. Raises SpoolMismatch for a spool that is in
        use."""
        self._open(None)
        return Offset(self._spool.identity, self._base).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of ``maxOffsetsPerTrigger``."""
        return ReadMaxRows(self.options.most_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the target of this run: the messages that the queue has now."""
        self._target = -1

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge everything up to here: Spark has committed it."""
        committed = Offset.of(end)
        self._open(committed)
        self._acknowledge(committed)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return figures for StreamingQueryProgress: ``sources[0].latestOffset``. Spark asks when
        it has planned a batch, and shows them when that is done."""
        if not self._opened:
            return None
        planned, found = self._reported
        if planned != self._seq:
            # The counts of the plan, if it has any. An idle stream makes no call: Spark shows
            # batches.
            found = self._gauge.shown()
            self._reported = self._seq, found
        return {
            "queue": self.options.place.name,
            "mode": self.options.receive_mode,
            **found,
            **self._progress(found.get("visible")),
            "pendingDeletes": self._deleter.pending_rows,
        }

    def stop(self) -> None:
        """Close connections; a process that Spark kills does without."""
        hide_traceback()
        if self._opened:
            self._deleter.stop()
            self._transport.close()

    # For both readers

    @abstractmethod
    def _progress(self, visible: int | None) -> dict[str, Any]:
        """Return this reader's figures beside the queue's counts: the same names in both modes,
        None for figures that only tasks know."""

    def _acknowledge(self, offset: Offset) -> None:
        if offset.spool == self._spool.identity:
            self._deleter.acknowledge(offset.seq)
        self._deleter.raise_failure()

    def _limit_rows(self, limit: ReadLimit) -> int:
        return limit.max_rows if isinstance(limit, ReadMaxRows) else self.options.most_rows

    def _is_enough(self, rows: int) -> bool:
        """Return True if that many messages make a batch (minOffsetsPerTrigger), or the delay is
        over. As in Kafka's source the first batch is not delayed, nor a run that has an end."""
        if rows >= self.options.least_rows or self._target is not None:
            return True
        return time.monotonic() - self._batch_at >= self.options.trigger_delay_seconds

    def _is_for_all(self, limit: ReadLimit) -> bool:
        """Return True if Spark wants everything in one batch: a run with Trigger.Once."""
        if isinstance(limit, ReadAllAvailable):
            self._target = -1
        return isinstance(limit, ReadAllAvailable)

    def _finished(self, start: Offset) -> dict[str, Any]:
        """End an AvailableNow run: the process ends after it, so deletes are flushed first."""
        self._deleter.flush(_FLUSH_SECONDS)
        self._deleter.raise_failure()
        return start.to_json()

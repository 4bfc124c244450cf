"""Replays: send an archive's messages to a queue, a topic or a log, each once for a replay id.

A log keeps the ids of its records. A standard queue keeps none, a FIFO queue and a topic only for
minutes. For them each task writes a ledger: one small file for each chunk that was sent. The files
are Parquet, which ``spark.read.parquet`` shows.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from spark_connectors.data_sources import SnsDataSource, SqsDataSource
from spark_connectors.errors import ConnectorError
from spark_connectors.log.record_sink import planned
from spark_connectors.pipelines.queue_archive import (
    REPLAYS,
    SILENT,
    ArchivePlace,
    ProgressPrinter,
    as_members,
    as_messages,
    as_records,
    between,
    log_of,
    per_second,
    span,
    utc,
)
from spark_connectors.sink.sender import BatchWriter, SendRate
from spark_connectors.stores import Store, open_store

_ABOUT = "replay.json"
_CHUNK = re.compile(r"bucket=\d+/(\d+)-(\d+)\.parquet$")


class ReplayMismatch(ConnectorError):
    """A replay id that was used for something else, or is used by two runs at once."""


def begin_replay(path: str, destination: str, buckets: int) -> int:
    """Return the buckets of the replay whose ledger is at ``path``: as it began, or these. They
    stay equal between runs. Raises ReplayMismatch when its id was used for another destination."""
    store = open_store(path, name="ledger")
    wanted = {"destination": destination, "buckets": buckets}
    store.put_if_absent(_ABOUT, json.dumps(wanted).encode())
    found = json.loads(store.get(_ABOUT))
    if found["destination"] != destination:
        raise ReplayMismatch(
            f"this replay id was used to send to {found['destination']}: take another for "
            f"{destination}"
        )
    return int(found["buckets"])


def sent_count(path: str) -> int:
    """Return the number of messages in the ledger at ``path``, from the file names alone."""
    matches = (_CHUNK.fullmatch(name) for name in open_store(path, name="ledger").names("bucket="))
    return sum(int(match[2]) for match in matches if match)


class BucketLedger:
    """The ledger of one bucket, kept by the task that sends it."""

    def __init__(self, store: Store, bucket: int) -> None:
        self._store = store
        self._prefix = f"bucket={bucket:05}/"
        self._next = 1
        self._known: set[bytes] = set()
        for name in store.names(self._prefix):
            match = _CHUNK.fullmatch(name)
            if match:
                self._next = max(self._next, int(match[1]) + 1)
                table = pq.read_table(io.BytesIO(store.get(name)), columns=["queue", "message_id"])
                for batch in table.to_batches():
                    self._known.update(_keys(batch))

    def unsent(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that this replay has not sent yet."""
        if not self._known:
            return batch
        return batch.filter(pa.array([key not in self._known for key in _keys(batch)]))

    def add(self, batch: pa.RecordBatch) -> None:
        """Record rows that were sent; durable when this returns. Raises ReplayMismatch when another
        task sends this bucket: messages may then be sent twice."""
        start, out = f"{self._prefix}{self._next:08}-", io.BytesIO()
        table = pa.Table.from_batches([batch.select(["queue", "message_id"])])
        pq.write_table(table, out, compression="zstd")
        name = f"{start}{batch.num_rows}.parquet"
        if self._store.names(start) or not self._store.put_if_absent(name, out.getvalue()):
            raise ReplayMismatch("another run sends the same replay: messages may be there twice")
        self._next += 1


def _keys(batch: pa.RecordBatch) -> list[bytes]:
    """Return 16 bytes for each message: a set of millions of them fits into a task."""
    queues, ids = batch.column("queue").to_pylist(), batch.column("message_id").to_pylist()
    return [
        hashlib.blake2b(f"{queue}\0{message_id}".encode(), digest_size=16).digest()
        for queue, message_id in zip(queues, ids, strict=True)
    ]


REPLAYED_FROM = "replayed_from"
BUCKET = "bucket"
_MOST_ATTRIBUTES = 10
_NO_ATTRIBUTES = (
    "cast(map() as map<string,struct<data_type:string,string_value:string,binary_value:binary>>)"
)
_SENT = ("queue", "message_id", "body", "message_group_id", "message_attributes")


class ReplaySelection(NamedTuple):
    """The rows to send. ``since`` and ``until`` in microseconds since the epoch, the second
    excluded; ``where``: a condition in SQL over the rows' columns."""

    since: int | None = None
    until: int | None = None
    groups: tuple[str, ...] = ()
    where: str | None = None
    limit: int | None = None


def selected(rows: DataFrame, by: ReplaySelection) -> DataFrame:
    """Return the selected rows; with a limit those sent first."""
    found = between(rows, by.since, by.until)
    if by.groups:
        found = found.where(fn.col("message_group_id").isin(*by.groups))
    if by.where is not None:
        found = found.where(by.where)
    if by.limit is not None:
        found = found.orderBy("sent_timestamp", *in_order()).limit(by.limit)
    return found


def in_order() -> tuple[Column, ...]:
    """Return columns that sort the messages of each group by their sequence numbers, and others by
    their send time. Sequence numbers are decimal and have no leading zeros. The group is no sort
    column: a request takes one message of a group at a time, and packs better from mixed groups."""
    number = fn.col("sequence_number")
    return (fn.length(number), number, fn.col("sent_timestamp"), fn.col("message_id"))


def addressed(rows: DataFrame, replay_id: str, buckets: int, most_bytes: int) -> DataFrame:
    """Return the columns to send, in order within partitions: a bucket is one partition, and a
    group one bucket. Adds the attribute ``replayed_from``, replay/queue/message id, where it
    fits."""
    key = fn.coalesce("message_group_id", "message_id")
    bucket = fn.pmod(fn.crc32(key), fn.lit(buckets)).cast("int").alias(BUCKET)
    sequence = ("sequence_number", "sent_timestamp")
    narrow = rows.select(*_SENT, *sequence, bucket)
    ordered = narrow.repartitionById(buckets, BUCKET).sortWithinPartitions(BUCKET, *in_order())
    return ordered.select(
        "queue",
        "message_id",
        "body",
        "message_group_id",
        _with_origin(replay_id, most_bytes).alias("message_attributes"),
        BUCKET,
    )


def exceeds_limits(replay_id: str, most_bytes: int) -> Column:
    """True where ``replayed_from`` would be one attribute, or some bytes, too many."""
    kept = _others()
    added = fn.octet_length(origin(replay_id)) + len(REPLAYED_FROM) + len("String")
    size = fn.octet_length("body") + fn.aggregate(fn.map_entries(kept), fn.lit(0), _plus_size)
    return (fn.size(kept) >= _MOST_ATTRIBUTES) | (size + added > most_bytes)


def _others() -> Column:
    """Return the attributes without ``replayed_from`` of an earlier replay."""
    given = fn.coalesce("message_attributes", fn.expr(_NO_ATTRIBUTES))
    return fn.map_filter(given, lambda name, _: name != REPLAYED_FROM)


def _plus_size(total: Column, entry: Column) -> Column:
    value = entry["value"]
    text = fn.coalesce(fn.octet_length(value["string_value"]), fn.lit(0))
    data = fn.coalesce(fn.octet_length(value["binary_value"]), fn.lit(0))
    return total + fn.octet_length(entry["key"]) + fn.octet_length(value["data_type"]) + text + data


def origin(replay_id: str) -> Column:
    """Return the replay, queue and message id of a row."""
    return fn.concat_ws("/", fn.lit(replay_id), "queue", "message_id")


def _with_origin(replay_id: str, most_bytes: int) -> Column:
    value = fn.struct(
        fn.lit("String").alias("data_type"),
        origin(replay_id).alias("string_value"),
        fn.lit(None).cast("binary").alias("binary_value"),
    )
    added = fn.map_concat(_others(), fn.create_map(fn.lit(REPLAYED_FROM), value))
    return fn.when(exceeds_limits(replay_id, most_bytes), fn.col("message_attributes")).otherwise(
        added
    )


RESULT = "sent long"


class ReplayTask(NamedTuple):
    """The task of a replay: send a chunk, write it into the ledger, then the next. Picklable.
    ``ledger`` empty: the target knows ids. ``rate``: messages a second, for a single task."""

    writer: BatchWriter
    ledger: str
    chunk: int
    rate: int | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send the rows that the ledger does not have; yields counts by RESULT."""
        if not self.ledger:
            sent = self.writer.write(batches).totals.rows
            yield pa.RecordBatch.from_pydict({"sent": pa.array([sent], pa.int64())})
            return
        ledgers: dict[int, BucketLedger] = {}
        # Between chunks: within one the sink keeps the rate.
        limit = SendRate(self.rate)
        for batch in batches:
            for part in _by_bucket(batch):
                bucket = part.column(BUCKET)[0].as_py()
                if bucket not in ledgers:
                    # A bucket's rows are together: the ledgers of other buckets are no longer
                    # needed.
                    ledgers = {bucket: BucketLedger(open_store(self.ledger, name="ledger"), bucket)}
                sent = self._send(part, ledgers[bucket], limit)
                yield pa.RecordBatch.from_pydict({"sent": pa.array([sent], pa.int64())})

    def _send(self, part: pa.RecordBatch, ledger: BucketLedger, limit: SendRate) -> int:
        unsent = ledger.unsent(part)
        for start in range(0, unsent.num_rows, self.chunk):
            chunk = unsent.slice(start, self.chunk)
            limit.wait(chunk.num_rows)
            self.writer.write(iter([chunk]))
            ledger.add(chunk)
        return int(unsent.num_rows)


def _by_bucket(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield runs of rows of one bucket."""
    buckets = batch.column(BUCKET).to_pylist()
    start = 0
    for at in range(1, len(buckets) + 1):
        if at == len(buckets) or buckets[at] != buckets[start]:
            yield batch.slice(start, at - start)
            start = at


_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_QUEUE_BYTES = 1 << 20
_TOPIC_BYTES = 256 << 10
# A record's metadata counts as JSON.
_LOG_BYTES = (1 << 20) - (64 << 10)
_LOOK_SECONDS = 2.0


class BadReplay(ConnectorError):
    """A replay that is impossible as requested."""


class ReplayPlan(NamedTuple):
    """A selection and its destination. ``to`` is a queue's URL or name, a topic's ARN, or
    ``log:NAME``; ``options`` are further ones of the sink. ``ledger`` is a directory that driver
    and executors see; empty for a log. ``rate``: messages a second, sent by one task; None: no
    limit, ``buckets`` tasks."""

    to: str
    options: Mapping[str, str]
    ledger: str
    replay_id: str
    selection: ReplaySelection = ReplaySelection()
    rate: int | None = None
    chunk: int = 500
    buckets: int = 8

    @property
    def is_topic(self) -> bool:
        """True if the destination is a topic."""
        return self.to.startswith("arn:") and ":sns:" in self.to

    @property
    def log(self) -> str | None:
        """The log that it publishes to; None: the destination is no log."""
        return log_of(self.to)

    @property
    def most_bytes(self) -> int:
        """The size limit of a message."""
        if self.log is not None:
            return _LOG_BYTES
        return _TOPIC_BYTES if self.is_topic else _QUEUE_BYTES


class ReplaySummary(NamedTuple):
    """The result of a replay, or of a dry run. Instants in microseconds since the epoch."""

    replay_id: str
    to: str
    is_dry_run: bool
    selected: int
    groups: int
    first_sent: int | None
    last_sent: int | None
    without_origin: int
    sent_before: int | None
    sent: int
    seconds: float

    def lines(self) -> list[str]:
        """Return the text."""
        found = [
            f"{self.selected:,} messages selected, {self.groups:,} groups, "
            f"sent from {utc(self.first_sent)} to {utc(self.last_sent)}"
        ]
        if self.without_origin:
            found.append(f"{self.without_origin:,} have no room for the attribute replayed_from")
        if self.is_dry_run:
            found.append("dry run: nothing sent")
            if self.sent_before is not None:
                found[-1] += f"; replay {self.replay_id} has {self.sent_before:,}"
            return found
        sent = f"{self.sent:,} sent to {self.to} in {span(self.seconds)} "
        sent += f"({per_second(self.sent, self.seconds)})"
        if self.sent_before is None:
            what = "the log adds only what is missing"
        else:
            sent += f", {self.selected - self.sent:,} had been sent"
            what = "only what is missing is sent"
        return [*found, sent, f"replay id {self.replay_id}: run again with it, and {what}"]

    def as_json(self) -> dict[str, Any]:
        """Return the JSON members."""
        return as_members(self._asdict())


def new_replay_id() -> str:
    """Return an unused id."""
    return f"{time.strftime('%Y%m%d', time.gmtime())}-{secrets.token_hex(4)}"


def ledger_in(root: str, replay_id: str) -> str:
    """Return the path of a replay's ledger in an archive. Raises BadReplay and BadArchive."""
    place = ArchivePlace(root)
    place.store(REPLAYS)
    return place.below(REPLAYS + _checked(replay_id))


def replay(
    rows: DataFrame, plan: ReplayPlan, printer: ProgressPrinter = SILENT, *, dry_run: bool = False
) -> ReplaySummary:
    """Send the selected rows (read_archive, or any with its columns), each group in the order of
    its sequence numbers.

    A log is sent everything, and adds only what it lacks, by the id of replay and message. To other
    targets a message is sent at most once for a replay id, with one exception: when a run dies, at
    most one chunk a bucket was sent and is not in the ledger, and the next run sends it again. A
    FIFO queue drops those repeats within its deduplication window. Of two such runs at once, one
    fails. Raises BadReplay, ReplayMismatch, BadOption, and Spark's errors for a refused message.
    """
    _checked(plan.replay_id)
    began = time.monotonic()
    chosen = selected(as_messages(rows), plan.selection)
    summary = ReplaySummary(
        replay_id=plan.replay_id,
        to=plan.to,
        is_dry_run=dry_run,
        **_figures(chosen, plan),
        sent_before=sent_count(plan.ledger) if plan.ledger else None,
        sent=0,
        seconds=time.monotonic() - began,
    )
    if dry_run or not summary.selected:
        return summary
    printer.say(f"replay {plan.replay_id}: {summary.selected:,} messages to {plan.to}")
    buckets = plan.buckets
    if plan.ledger:
        buckets = begin_replay(plan.ledger, plan.to, plan.buckets)
    with _watched(plan.ledger, summary.selected, printer):
        ready = addressed(chosen, plan.replay_id, buckets, plan.most_bytes)
        if plan.log is not None:
            ready = as_records(ready, origin(plan.replay_id))
        sent = _send(ready, plan)
    return summary._replace(sent=sent, seconds=time.monotonic() - began)


def _checked(replay_id: str) -> str:
    if not _ID.fullmatch(replay_id):
        raise BadReplay(
            f"'{replay_id}' is no replay id: up to 64 letters, digits, dots, dashes, underscores"
        )
    return replay_id


def _figures(chosen: DataFrame, plan: ReplayPlan) -> dict[str, Any]:
    full = exceeds_limits(plan.replay_id, plan.most_bytes)
    row = chosen.agg(
        fn.count(fn.lit(1)).alias("selected"),
        fn.count_distinct("message_group_id").alias("groups"),
        fn.min(fn.unix_micros("sent_timestamp")).alias("first_sent"),
        fn.max(fn.unix_micros("sent_timestamp")).alias("last_sent"),
        fn.count(fn.when(full, fn.lit(1))).alias("without_origin"),
    ).first()
    assert row is not None  # an aggregate without groups always has one
    return row.asDict()


def _send(ready: DataFrame, plan: ReplayPlan) -> int:
    """Run the job. Returns the number of sent messages."""
    if plan.rate is not None:
        # One task, so that the rate is exact; a bucket stays together and in order.
        ready = ready.coalesce(1)
    task = ReplayTask(_writer(ready, plan), plan.ledger, plan.chunk, plan.rate)
    row = ready.mapInArrow(task.__call__, RESULT).agg(fn.sum("sent")).first()
    return int(row[0]) if row is not None and row[0] is not None else 0


def _writer(ready: DataFrame, plan: ReplayPlan) -> BatchWriter:
    """Return the sink's own writer: options and refusals are the same as in any other job."""
    rate = {} if plan.rate is None else {"maxSendPerSecond": str(plan.rate)}
    if plan.log is not None:
        options = {**plan.options, **rate, "topic": plan.log}
        return BatchWriter(planned(options, ready.schema))
    # The origin replaces the sink's own attribute, because a message has at most ten.
    options = {"deduplicationAttribute": "none", **plan.options, **rate}
    options["replayId"] = plan.replay_id
    if plan.is_topic:
        writer = SnsDataSource({**options, "topicArn": plan.to}).writer(ready.schema, False)
    else:
        name = "queueUrl" if "://" in plan.to else "queueName"
        writer = SqsDataSource({**options, name: plan.to}).writer(ready.schema, False)
    assert isinstance(writer, BatchWriter)
    return writer


@contextmanager
def _watched(ledger: str, total: int, printer: ProgressPrinter) -> Iterator[None]:
    """Print the progress of the ledger from time to time, while a Spark job blocks this thread."""
    if not ledger:
        yield
        return
    ended = threading.Event()
    began = time.monotonic()
    before = sent_count(ledger)

    def watch() -> None:
        while not ended.wait(_LOOK_SECONDS):
            sent = sent_count(ledger)
            rate = per_second(sent - before, time.monotonic() - began)
            printer.step(f"{sent:,} of {total:,} sent, {rate}")

    watcher = threading.Thread(target=watch, name="replay progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()

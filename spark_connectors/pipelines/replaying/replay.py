"""Send what an archive has to a queue, a topic or a log again."""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as fn

from spark_connectors.errors import ConnectorError
from spark_connectors.pipelines.archiving.places import REPLAYS, ArchivePlace
from spark_connectors.pipelines.logs import as_messages, as_records, log_of
from spark_connectors.pipelines.replaying.ledger import ReplayHeader, begin_replay, sent_count
from spark_connectors.pipelines.replaying.selection import (
    Selection,
    addressed,
    lacks_room,
    origin,
    selected,
)
from spark_connectors.pipelines.replaying.sending import RESULT, ReplayTask
from spark_connectors.pipelines.telling import SILENT, Teller, instant, per_second, seen, span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_connectors.sink.writing import BatchWriter

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_QUEUE_BYTES = 1 << 20
_TOPIC_BYTES = 256 << 10
# A record's metadata counts as JSON.
_LOG_BYTES = (1 << 20) - (64 << 10)
_LOOK_SECONDS = 2.0


class BadReplay(ConnectorError):
    """A replay that cannot be done as it was asked for."""


class ReplayPlan(NamedTuple):
    """What to send where.

    ``to`` is a queue's URL or name, a topic's ARN, or ``log:NAME``; ``options`` are further ones of
    the sink. ``ledger`` is a directory that driver and executors see. ``rate``: messages a second,
    sent by one task; None: as fast as it goes, by ``buckets`` tasks.
    """

    to: str
    options: Mapping[str, str]
    ledger: str
    replay_id: str
    selection: Selection = Selection()
    rate: int | None = None
    chunk: int = 500
    buckets: int = 8

    @property
    def is_topic(self) -> bool:
        """Whether it publishes."""
        return self.to.startswith("arn:") and ":sns:" in self.to

    @property
    def log(self) -> str | None:
        """The log that it publishes to, if that is where."""
        return log_of(self.to)

    @property
    def most_bytes(self) -> int:
        """Of a message."""
        if self.log is not None:
            return _LOG_BYTES
        return _TOPIC_BYTES if self.is_topic else _QUEUE_BYTES


class ReplaySummary(NamedTuple):
    """What a replay sent, or would send. Instants in microseconds since the epoch."""

    replay_id: str
    to: str
    is_dry_run: bool
    selected: int
    groups: int
    first_sent: int | None
    last_sent: int | None
    without_origin: int
    sent_before: int
    sent: int
    seconds: float

    def lines(self) -> list[str]:
        """For people."""
        found = [
            f"{self.selected:,} messages selected, {self.groups:,} groups, "
            f"sent from {seen(self.first_sent)} to {seen(self.last_sent)}"
        ]
        if self.without_origin:
            found.append(f"{self.without_origin:,} have no room for the attribute replayed_from")
        if self.is_dry_run:
            found.append(f"dry run: nothing sent; replay {self.replay_id} has {self.sent_before:,}")
            return found
        found += [
            f"{self.sent:,} sent to {self.to} in {span(self.seconds)} "
            f"({per_second(self.sent, self.seconds)}), {self.selected - self.sent:,} had been sent",
            f"replay id {self.replay_id}: run again with it, and only what is missing is sent",
        ]
        return found

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            **self._asdict(),
            "first_sent": instant(self.first_sent),
            "last_sent": instant(self.last_sent),
        }


def new_replay_id() -> str:
    """One that nobody has used."""
    return f"{time.strftime('%Y%m%d', time.gmtime())}-{secrets.token_hex(4)}"


def ledger_in(root: str, replay_id: str) -> str:
    """Where the ledger of a replay lies in an archive. Raises BadReplay and BadArchive."""
    place = ArchivePlace(root)
    place.store(REPLAYS)
    return place.below(REPLAYS + _checked(replay_id))


def replay(
    rows: DataFrame, plan: ReplayPlan, teller: Teller = SILENT, *, dry_run: bool = False
) -> ReplaySummary:
    """Send the selected rows (read_archive, or any with its columns), each group in the order of
    its sequence numbers.

    A message is sent at most once for a replay id, with one exception: when a run dies, at most one
    chunk a bucket was sent and is not in the ledger, and the next run sends it again. A FIFO queue
    drops those repeats if that is within its deduplication window, a log while it keeps them. Two
    runs of one replay at once are not safe, and one of them fails. Raises BadReplay,
    ReplayMismatch, BadOption, and what Spark raises when a message is refused.
    """
    _checked(plan.replay_id)
    began = time.monotonic()
    chosen = selected(as_messages(rows), plan.selection)
    figures = _figures(chosen, plan)
    before = sent_count(plan.ledger)
    summary = ReplaySummary(
        replay_id=plan.replay_id,
        to=plan.to,
        is_dry_run=dry_run,
        **figures,
        sent_before=before,
        sent=0,
        seconds=time.monotonic() - began,
    )
    if dry_run or not summary.selected:
        return summary
    teller.say(f"replay {plan.replay_id}: {summary.selected:,} messages to {plan.to}")
    header = begin_replay(plan.ledger, ReplayHeader(plan.to, plan.buckets))
    with _watched(plan.ledger, summary.selected, teller):
        ready = addressed(chosen, plan.replay_id, header.buckets, plan.most_bytes)
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
    full = lacks_room(plan.replay_id, plan.most_bytes)
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
    """Run the job; how many messages it sent."""
    if plan.rate is not None:
        # One task, so that the rate is what was asked for; a bucket stays together and in order.
        ready = ready.coalesce(1)
    task = ReplayTask(_writer(ready, plan), plan.ledger, plan.chunk, plan.rate)
    row = ready.mapInArrow(task.__call__, RESULT).agg(fn.sum("sent")).first()
    return int(row[0]) if row is not None and row[0] is not None else 0


def _writer(ready: DataFrame, plan: ReplayPlan) -> BatchWriter:
    """The sink's own, so that its options and refusals are the same as in any other job."""
    from spark_connectors.log.sink import planned
    from spark_connectors.sink.data_source import SnsDataSource, sqs_writer
    from spark_connectors.sink.writing import BatchWriter

    rate = {} if plan.rate is None else {"maxSendPerSecond": str(plan.rate)}
    if plan.log is not None:
        options = {**plan.options, **rate, "topic": plan.log}
        return BatchWriter(planned(options, ready.schema, overwrite=False))
    # The origin says as much as the sink's own attribute, and ten are all that a message has.
    options = {"deduplicationAttribute": "none", **plan.options, **rate}
    options["replayId"] = plan.replay_id
    if plan.is_topic:
        writer = SnsDataSource({**options, "topicArn": plan.to}).writer(ready.schema, False)
    else:
        name = "queueUrl" if "://" in plan.to else "queueName"
        writer = sqs_writer({**options, name: plan.to}, ready.schema, False)
    assert isinstance(writer, BatchWriter)
    return writer


@contextmanager
def _watched(ledger: str, total: int, teller: Teller) -> Iterator[None]:
    """Tell from time to time how far the ledger is, while a Spark job keeps this thread."""
    ended = threading.Event()
    began = time.monotonic()
    before = sent_count(ledger)

    def watch() -> None:
        while not ended.wait(_LOOK_SECONDS):
            sent = sent_count(ledger)
            rate = per_second(sent - before, time.monotonic() - began)
            teller.step(f"{sent:,} of {total:,} sent, {rate}")

    watcher = threading.Thread(target=watch, name="replay progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()

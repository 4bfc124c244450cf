"""A queue or a log into an archive, exactly once: its source, a file sink and one checkpoint."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as fn

from spark_connectors.pipelines.archiving.delta import check_delta
from spark_connectors.pipelines.archiving.places import DATA, About, ArchivePlace, begin
from spark_connectors.pipelines.archiving.reading import SENT_DATE, day_of
from spark_connectors.pipelines.logs import is_of_a_log
from spark_connectors.pipelines.telling import SILENT, Teller, instant, per_second, seen, span

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_OBSERVED = "archived"
_LOOK_SECONDS = 1


class ArchivePlan(NamedTuple):
    """What to archive and for how long.

    ``options`` are the queue source's, or the log's where they have ``subscribe``; ``format`` is
    delta or parquet; ``spool`` is the queue source's spoolPath (default: the archive's spool/).
    ``trigger`` is an interval such as ``10 seconds``; None: what is there now, then the end.
    """

    options: Mapping[str, str]
    format: str = "delta"
    spool: str | None = None
    trigger: str | None = None


class ArchiveSummary(NamedTuple):
    """What a run archived. Instants in microseconds since the epoch."""

    archive: str
    rows: int
    batches: int
    first_sent: int | None
    last_sent: int | None
    redeliveries_dropped: int | None
    seconds: float
    is_interrupted: bool = False

    def lines(self) -> list[str]:
        """For people."""
        found = [
            f"{self.rows:,} rows in {self.batches:,} batches, {span(self.seconds)} "
            f"({per_second(self.rows, self.seconds)}), into {self.archive}"
        ]
        if self.rows:
            found.append(f"sent from {seen(self.first_sent)} to {seen(self.last_sent)}")
        if self.redeliveries_dropped:
            found.append(f"{self.redeliveries_dropped:,} redeliveries dropped")
        return found

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            **self._asdict(),
            "first_sent": instant(self.first_sent),
            "last_sent": instant(self.last_sent),
        }


def archive(
    spark: SparkSession, root: str, plan: ArchivePlan, teller: Teller = SILENT
) -> ArchiveSummary:
    """Move what is in a queue into the archive at ``root``, or copy what is in a log; with a
    trigger, until interrupted.

    Run again it goes on where it stopped, whatever stopped it: each message is in the archive once.
    Only one run at a time may use an archive. Raises BadArchive for an archive of another kind,
    and what Spark raises when the query fails.
    """
    place = ArchivePlace(root)
    if plan.format == "delta":
        check_delta(spark)
    rows = with_sent_date(_rows(spark, place, plan))
    begin(place, About(plan.format, json.loads(rows.schema.json())))
    query = _start(rows, place, plan)
    teller.say(f"archiving into {place}")
    return _follow(query, place, teller)


def _rows(spark: SparkSession, place: ArchivePlace, plan: ArchivePlan) -> DataFrame:
    """All that there is of it: of a log from its earliest record, and headers too."""
    if "subscribe" in plan.options:
        given = {"startingOffsets": "earliest", "includeHeaders": "true", **plan.options}
        return spark.readStream.format("queuegate-log").options(**given).load()
    spool = plan.spool or place.below("spool")
    reader = spark.readStream.format("sqs").options(**plan.options).option("spoolPath", spool)
    return reader.load()


def with_sent_date(rows: DataFrame) -> DataFrame:
    """The rows and their day in UTC, whatever the session's time zone is."""
    return rows.withColumn(SENT_DATE, day_of(_sent(rows)))


def _sent(rows: DataFrame) -> Column:
    return fn.unix_micros("timestamp" if is_of_a_log(rows) else "sent_timestamp")


def _start(rows: DataFrame, place: ArchivePlace, plan: ArchivePlan) -> StreamingQuery:
    sent = _sent(rows)
    observed = rows.observe(
        _OBSERVED,
        fn.count(fn.lit(1)).alias("rows"),
        fn.min(sent).alias("first_sent"),
        fn.max(sent).alias("last_sent"),
    )
    writer = (
        observed.writeStream.format(plan.format)
        .option("checkpointLocation", place.below("checkpoint"))
        .option("path", place.below(DATA))
        .partitionBy(SENT_DATE)
        .queryName(f"archive {place}")
    )
    if plan.trigger is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=plan.trigger).start()


class _Tally:
    """Progress of a query, each batch counted once however often it is seen."""

    def __init__(self) -> None:
        self.batches: dict[int, Row] = {}
        self.redeliveries: int | None = None

    def look(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            row = progress.observedMetrics.get(_OBSERVED)
            if row is not None and row["rows"]:
                self.batches[progress.batchId] = row
            for source in progress.sources:
                known = _redeliveries(source.latestOffset)
                self.redeliveries = self.redeliveries if known is None else known

    @property
    def rows(self) -> int:
        return sum(int(row["rows"]) for row in self.batches.values())


def _redeliveries(reported: str | None) -> int | None:
    """From what the source reports of itself: JSON text."""
    try:
        found = json.loads(reported or "{}").get("redeliveriesDropped")
    except (ValueError, AttributeError):
        return None
    return found if isinstance(found, int) else None


def _progress(query: StreamingQuery, tally: _Tally, passed: float) -> str:
    """Before the first batch what Spark is doing: that can take long."""
    if not tally.batches:
        return str(query.status["message"]).lower()
    return f"batch {len(tally.batches):,}: {tally.rows:,} rows, {per_second(tally.rows, passed)}"


def _follow(query: StreamingQuery, place: ArchivePlace, teller: Teller) -> ArchiveSummary:
    """Watch a query until it ends, or until an interrupt, which ends it."""
    began = time.monotonic()
    tally = _Tally()
    is_interrupted = False
    try:
        while not query.awaitTermination(_LOOK_SECONDS):
            tally.look(query)
            teller.step(_progress(query, tally, time.monotonic() - began))
    except KeyboardInterrupt:
        is_interrupted = True
        teller.say("stopping: the batch at work is finished by the next run")
    finally:
        query.stop()
    tally.look(query)
    return ArchiveSummary(
        archive=str(place),
        rows=tally.rows,
        batches=len(tally.batches),
        first_sent=min((row["first_sent"] for row in tally.batches.values()), default=None),
        last_sent=max((row["last_sent"] for row in tally.batches.values()), default=None),
        redeliveries_dropped=tally.redeliveries,
        seconds=time.monotonic() - began,
        is_interrupted=is_interrupted,
    )

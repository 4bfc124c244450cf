"""Archives of queues and logs: written exactly once by a stream, and read as a DataFrame.

An archive can be a Delta table. Nothing here imports Delta Lake: the session brings it. Pipelines
name a log ``log:NAME``, and read its rows as a queue's. They print progress during the work, and a
summary at its end.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import time
from collections.abc import Mapping
from operator import ge, le, lt
from typing import Any, NamedTuple, Protocol, TextIO
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from spark_connectors.errors import ConnectorError
from spark_connectors.log.log_api import OF_FAILURE
from spark_connectors.stores import Missing, Store, open_store


class Summary(Protocol):
    """The result of a pipeline."""

    def lines(self) -> list[str]:
        """Return the text."""
        ...

    def as_json(self) -> dict[str, Any]:
        """Return the JSON members: durations in seconds, instants in ISO 8601 with UTC's Z."""
        ...


class ProgressPrinter:
    """Prints progress of long work. Without an ``out`` it is silent."""

    def __init__(self, out: TextIO | None = None, every_seconds: float = 3.0) -> None:
        self._out = out
        self._every = every_seconds
        self._last = time.monotonic()

    def say(self, line: str) -> None:
        """Print this line."""
        self._last = time.monotonic()
        if self._out is not None:
            print(line, file=self._out, flush=True)

    def step(self, line: str) -> None:
        """Print this line, at most one every few seconds."""
        if time.monotonic() - self._last >= self._every:
            self.say(line)


SILENT = ProgressPrinter()


def span(seconds: float | None) -> str:
    """Format a duration."""
    if seconds is None:
        return "-"
    if abs(seconds) < 1:
        return f"{seconds * 1000:.0f} ms"
    if abs(seconds) < 120:
        return f"{seconds:.1f} s"
    if abs(seconds) < 7200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h" if abs(seconds) < 172_800 else f"{seconds / 86_400:.1f} days"


def per_second(count: int, seconds: float) -> str:
    """Format a rate."""
    return f"{count / seconds:,.0f}/s" if seconds > 0 else "-"


def instant(micros: int | None) -> str | None:
    """Format microseconds since the epoch as ISO 8601, in UTC."""
    if micros is None:
        return None
    moment = datetime.datetime.fromtimestamp(micros // 1_000_000, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + f".{micros // 1000 % 1000:03}Z"


def as_members(result: dict[str, Any]) -> dict[str, Any]:
    """Return the members of a result for JSON."""
    return result | {name: instant(result[name]) for name in ("first_sent", "last_sent")}


def clock(micros: int | None) -> str:
    """Format an instant to the second, for text that names UTC."""
    found = instant(micros)
    return "-" if found is None else found[:19].replace("T", " ")


def utc(micros: int | None) -> str:
    """Format an instant to the second, with its zone."""
    return "-" if micros is None else clock(micros) + " UTC"


_PREFIX = "log:"
_OF_A_LOG = {"key", "value", "topic", "partition", "offset", "timestamp"}
_HEADERS = "array<struct<key:string,value:binary>>"


def log_of(place: str) -> str | None:
    """Return the name of the log; None: the place is no log."""
    return place.removeprefix(_PREFIX) if place.startswith(_PREFIX) else None


def is_of_a_log(rows: DataFrame) -> bool:
    """Return True for rows of a log's source."""
    return set(rows.columns) >= _OF_A_LOG


def as_messages(rows: DataFrame) -> DataFrame:
    """Return rows of a log with the columns of a queue's rows; others unchanged. A key becomes the
    group, an offset the sequence number, a header an attribute (an empty header none). Bodies stay
    binary: not every record is text."""
    if not is_of_a_log(rows):
        return rows
    headers = fn.col("headers") if "headers" in rows.columns else fn.lit(None)
    attributes = fn.map_from_entries(
        fn.transform(
            fn.filter(headers.cast(_HEADERS), lambda one: fn.length(one["value"]) > 0),
            lambda one: fn.struct(one["key"].alias("key"), _attribute(one["value"]).alias("value")),
        )
    )
    source = fn.element_at(attributes, f"{OF_FAILURE}original_topic")["string_value"]
    days = ["sent_date"] if "sent_date" in rows.columns else []
    return rows.select(
        fn.col("topic").alias("queue"),
        fn.concat_ws("-", "partition", "offset").alias("message_id"),
        fn.col("value").alias("body"),
        fn.col("key").cast("string").alias("message_group_id"),
        fn.col("offset").cast("string").alias("sequence_number"),
        fn.col("timestamp").alias("sent_timestamp"),
        attributes.alias("message_attributes"),
        source.alias("dead_letter_source"),
        *days,
    )


def _attribute(value: Column) -> Column:
    return fn.struct(
        fn.lit("String").alias("data_type"),
        value.cast("string").alias("string_value"),
        fn.lit(None).cast("binary").alias("binary_value"),
    )


def as_records(messages: DataFrame, origin: Column) -> DataFrame:
    """Add the columns of records to messages. ``origin``: the source of their ids. Binary
    attributes become base64, because headers of a log are text."""
    headers = fn.transform_values(
        "message_attributes",
        lambda _, value: fn.coalesce(value["string_value"], fn.base64(value["binary_value"])),
    )
    return messages.withColumns(
        {
            "key": fn.col("message_group_id"),
            "value": fn.col("body"),
            "headers": headers,
            "id": fn.sha2(origin, 256),
        }
    )


DATA = "data/"
REPLAYS = "replays/"
_ABOUT = "archive.json"
# Earlier versions wrote it when they compacted: Spark's log lacks the files that it names.
_COMPACTED = "manifests/"
# Schemes of open_store; Spark has more.
_STORED = re.compile(r"^(file:|s3:|s3a:)")
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:")


class BadArchive(ConnectorError):
    """A directory that is no archive, or an archive that does not support the operation."""


class ArchivePlace:
    """An archive's directory. A path without a scheme is local, relative to the present directory.
    data/ checkpoint/ spool/ belong to the stream that archives, replays/ to replays."""

    def __init__(self, root: str) -> None:
        if not root:
            raise BadArchive("an archive needs a directory")
        is_local = not _SCHEME.match(root)
        self.root = ("file://" + os.path.abspath(root)) if is_local else root.rstrip("/")

    def __str__(self) -> str:
        return self.root

    def below(self, name: str) -> str:
        """Return the path of a part of the archive."""
        return f"{self.root}/{name}".rstrip("/")

    @property
    def is_stored(self) -> bool:
        """True if a store can hold its small files: local directories and S3."""
        return bool(_STORED.match(self.root))

    def store(self, name: str = "") -> Store:
        """Return the archive's files, or those below ``name``. Raises BadArchive where no store can
        be."""
        if not self.is_stored:
            raise BadArchive(
                f"{self.root}: this works in local (or mounted) directories and in S3 only"
            )
        return open_store(self.below(name))


class ArchiveDescription(NamedTuple):
    """The content of ``archive.json``, written once when an archive is created."""

    format: str  # parquet or delta
    schema: dict[str, Any]  # Spark's, as JSON, with sent_date


def about(place: ArchivePlace) -> ArchiveDescription | None:
    """Return the archive's description; None: nothing was archived here. Raises BadArchive when it
    is damaged, or when only an older version can read the archive."""
    if not place.is_stored:
        return None
    try:
        found = json.loads(place.store().get(_ABOUT))
        what = ArchiveDescription(found["format"], found["schema"])
    except Missing:
        return None
    except (ValueError, KeyError, TypeError):
        raise BadArchive(f"{place.below(_ABOUT)} is damaged") from None
    if what.format == "parquet" and place.store().names(_COMPACTED):
        raise BadArchive(
            f"{place} was compacted by an older version, whose files Spark's log does not name: "
            "write its rows anew with that version, "
            f"read_archive(spark, '{place}').write.parquet(...), and archive into another directory"
        )
    return what


def begin(place: ArchivePlace, wanted: ArchiveDescription) -> None:
    """Make ``place`` an archive of this kind. Raises BadArchive when it is already one of another
    kind."""
    if not place.is_stored:
        return
    there = about(place)
    text = json.dumps({"version": 1, "format": wanted.format, "schema": wanted.schema})
    if there is None and place.store().put_if_absent(_ABOUT, text.encode()):
        return
    there = there or about(place)
    if there is None or there.format != wanted.format:
        kind = there.format if there else "unknown"
        raise BadArchive(f"{place} is an archive in format {kind}, not {wanted.format}")
    if _columns(there) != _columns(wanted):
        raise BadArchive(
            f"{place} was begun with other columns ({', '.join(_columns(there))}): "
            "what is archived must stay as it was, and so must unwrapSns, valueFormat, "
            "includeReceiptHandle and includeHeaders"
        )


def _columns(of: ArchiveDescription) -> list[str]:
    return [str(field["name"]) for field in of.schema["fields"]]


PACKAGE = "io.delta:delta-spark_2.13:4.4.0"
SPARK_OF_PACKAGE = "4.2"
SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def check_version(spark_version: str) -> None:
    """Raise BadArchive, with a remedy, when Delta Lake has no release for this Spark."""
    if not spark_version.startswith(SPARK_OF_PACKAGE):
        raise BadArchive(
            f"Delta Lake has no release for Spark {spark_version}: use pyspark "
            f"{SPARK_OF_PACKAGE}.0 with {PACKAGE}, or --format parquet"
        )


def check_delta(spark: SparkSession) -> None:
    """Raise BadArchive, with a remedy, when this session has no working Delta Lake."""
    check_version(spark.version)
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    if "delta" not in extensions.lower():
        options = " ".join(f"--conf {name}={value}" for name, value in SETTINGS.items())
        raise BadArchive(f"this session has no Delta Lake: add --packages {PACKAGE} {options}")


SENT_DATE = "sent_date"
_MICROS_PER_DAY = 86_400_000_000


def read_archive(spark: SparkSession, root: str) -> DataFrame:
    """Return every archived row exactly once: rows of the source and ``sent_date``. Reads a Delta
    table as of now, and Parquet by Spark's own log, so that files of a failed attempt are left out.
    Raises BadArchive when nothing was archived there, or when the archive cannot be read at its
    present path."""
    place = ArchivePlace(root)
    found = about(place)
    if found is None and place.is_stored:
        raise BadArchive(f"{place} is no archive: it has no archive.json")
    if found is not None and found.format == "delta":
        check_delta(spark)
        return spark.read.format("delta").load(place.below(DATA))
    reader = spark.read if found is None else spark.read.schema(StructType.fromJson(found.schema))
    rows = reader.parquet(place.below(DATA))
    for path in rows.inputFiles()[:1]:
        if not _plain(path).startswith(_plain(place.root)):
            raise BadArchive(
                f"{place} was moved or copied, and Spark's log in it names files where it was, "
                f"such as {path}: read it there, or write its rows into a Delta archive"
            )
    return rows


def between(rows: DataFrame, since: int | None, until: int | None) -> DataFrame:
    """Return rows sent from ``since`` up to but not including ``until``: microseconds since the
    epoch. In an archive days are compared too, so that only their directories are read."""
    sent = fn.unix_micros("sent_timestamp")
    for micros, by_time, by_day in ((since, ge, ge), (until, lt, le)):
        if micros is not None:
            rows = rows.where(by_time(sent, micros))
            if SENT_DATE in rows.columns:
                rows = rows.where(by_day(fn.col(SENT_DATE), day_of(fn.lit(micros))))
    return rows


def day_of(micros: Column) -> Column:
    """Return the day of an instant, in UTC."""
    return fn.date_from_unix_date(fn.floor(micros / _MICROS_PER_DAY).cast("int"))


def _plain(path: str) -> str:
    """Return a path without the differences between spellings of one place."""
    return re.sub(r"^[A-Za-z0-9+.-]+:/*", "/", unquote(path))


_OBSERVED = "archived"
_LOOK_SECONDS = 1


class ArchivePlan(NamedTuple):
    """A source and the duration of the archiving. ``options`` are the queue source's, or the log's
    where they have ``subscribe``; ``format`` is delta or parquet; ``spool`` is the queue source's
    spoolPath (default: the archive's spool/). ``trigger`` is an interval such as ``10 seconds``;
    None: archive the present content, then end."""

    options: Mapping[str, str]
    format: str = "delta"
    spool: str | None = None
    trigger: str | None = None


class ArchiveSummary(NamedTuple):
    """The result of a run. Instants in microseconds since the epoch."""

    archive: str
    rows: int
    batches: int
    first_sent: int | None
    last_sent: int | None
    redeliveries_dropped: int | None
    seconds: float
    is_interrupted: bool = False

    def lines(self) -> list[str]:
        """Return the text."""
        found = [
            f"{self.rows:,} rows in {self.batches:,} batches, {span(self.seconds)} "
            f"({per_second(self.rows, self.seconds)}), into {self.archive}"
        ]
        if self.rows:
            found.append(f"sent from {utc(self.first_sent)} to {utc(self.last_sent)}")
        if self.redeliveries_dropped:
            found.append(f"{self.redeliveries_dropped:,} redeliveries dropped")
        return found

    def as_json(self) -> dict[str, Any]:
        """Return the JSON members."""
        return as_members(self._asdict())


def archive(
    spark: SparkSession, root: str, plan: ArchivePlan, printer: ProgressPrinter = SILENT
) -> ArchiveSummary:
    """Move the messages of a queue into the archive at ``root``, or copy the records of a log; with
    a trigger, until interrupted. A further run continues after any interruption: each message is in
    the archive once. Only one run at a time may use an archive. Raises BadArchive for an archive of
    another kind, and Spark's errors when the query fails."""
    place = ArchivePlace(root)
    if plan.format == "delta":
        check_delta(spark)
    rows = with_sent_date(_rows(spark, place, plan))
    begin(place, ArchiveDescription(plan.format, json.loads(rows.schema.json())))
    query = _start(rows, place, plan)
    printer.say(f"archiving into {place}")
    return _follow(query, place, printer)


def _rows(spark: SparkSession, place: ArchivePlace, plan: ArchivePlan) -> DataFrame:
    """Return all rows of the source; of a log from its earliest record, with headers."""
    if "subscribe" in plan.options:
        given = {"startingOffsets": "earliest", "includeHeaders": "true", **plan.options}
        return spark.readStream.format("queuegate-log").options(**given).load()
    spool = plan.spool or place.below("spool")
    reader = spark.readStream.format("sqs").options(**plan.options).option("spoolPath", spool)
    return reader.load()


def with_sent_date(rows: DataFrame) -> DataFrame:
    """Add the day in UTC, whatever the session's time zone is."""
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
    """Return the redeliveries that the source reports, as JSON text."""
    try:
        found = json.loads(reported or "{}").get("redeliveriesDropped")
    except (ValueError, AttributeError):
        return None
    return found if isinstance(found, int) else None


def _progress(query: StreamingQuery, tally: _Tally, passed: float) -> str:
    """Describe the progress; before the first batch Spark's own status, which can last long."""
    if not tally.batches:
        return str(query.status["message"]).lower()
    return f"batch {len(tally.batches):,}: {tally.rows:,} rows, {per_second(tally.rows, passed)}"


def _follow(query: StreamingQuery, place: ArchivePlace, printer: ProgressPrinter) -> ArchiveSummary:
    """Watch a query until it ends, or until an interrupt, which stops it."""
    began = time.monotonic()
    tally = _Tally()
    is_interrupted = False
    try:
        while not query.awaitTermination(_LOOK_SECONDS):
            tally.look(query)
            printer.step(_progress(query, tally, time.monotonic() - began))
    except KeyboardInterrupt:
        is_interrupted = True
        printer.say("stopping: the batch at work is finished by the next run")
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

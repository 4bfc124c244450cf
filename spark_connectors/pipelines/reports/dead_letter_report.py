"""A report on the messages of a dead-letter queue, which it does not consume."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as fn
from pyspark.sql.types import StringType

from spark_connectors.pipelines.console_output import SILENT, ProgressPrinter, clock, instant
from spark_connectors.pipelines.log_rows import as_messages
from spark_connectors.pipelines.reports.error_classes import Classifier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row


# Escape sequences of a terminal can hide or fake lines: bodies are untrusted.
_CONTROL = dict.fromkeys((*range(32), *range(127, 160)), "\ufffd")
_CONTROL |= dict.fromkeys(map(ord, "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"), "?")
_CONTROL |= {ord("\n"): " ", ord("\t"): " ", ord("\r"): " "}
_WIDEST = 60


def safe(text: str) -> str:
    """Return the text on one line, without characters that control a terminal."""
    return text.translate(_CONTROL)


def table_lines(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the records below their names, with numbers to the right."""
    if not records:
        return ["  (none)"]
    columns = []
    for name in records[0]:
        cells = [name, *(_cell(one[name]) for one in records)]
        width = max(map(len, cells))
        is_number = isinstance(records[0][name], int)
        columns.append([one.rjust(width) if is_number else one.ljust(width) for one in cells])
    return [("  " + "  ".join(row)).rstrip() for row in zip(*columns, strict=True)]


def _cell(value: Any) -> str:
    shown = f"{value:,}" if isinstance(value, int) else safe(str(value or "-"))
    return shown if len(shown) <= _WIDEST else shown[: _WIDEST - 1] + "…"


_HOUR = 3600
_DAY = 24 * _HOUR
AGES = (
    ("under 1 hour", _HOUR),
    ("1 to 6 hours", 6 * _HOUR),
    ("6 to 24 hours", _DAY),
    ("1 to 3 days", 3 * _DAY),
    ("3 to 7 days", 7 * _DAY),
    ("over 7 days", None),
)
_NO_SOURCE = "(sent here directly)"
_NO_GROUP = "(no group)"


class Sample(NamedTuple):
    """A sample message. ``about`` identifies it."""

    about: str
    body: str


class DeadLetterPlan(NamedTuple):
    """Settings of a report. ``most``: rows of each table; ``now``: epoch seconds, None for the
    clock."""

    classifier: Classifier = Classifier()
    most: int = 25
    samples: int = 3
    sample_letters: int = 600
    now: float | None = None


class DeadLetterReport(NamedTuple):
    """The content of the queue. ``tables`` are records, the most frequent first: error_classes,
    sources and groups, with ``messages``, ``first_sent`` and ``last_sent``. To plot one:
    ``pandas.DataFrame(report.tables["sources"])``."""

    queue: str
    at: float
    messages: int
    first_sent: int | None
    last_sent: int | None
    distinct: dict[str, int]  # error_classes, sources, groups
    tables: dict[str, list[dict[str, Any]]]
    ages: dict[str, int]
    samples: dict[str, list[Sample]]

    def as_json(self) -> dict[str, Any]:
        """Return the JSON members."""
        classes = [
            {**one, "samples": [sample._asdict() for sample in self.samples.get(name, [])]}
            for one in self.tables["error_classes"]
            for name in [one["error_class"]]
        ]
        return {
            "queue": self.queue,
            "at": instant(int(self.at * 1e6)),
            "messages": self.messages,
            "first_sent": instant(self.first_sent),
            "last_sent": instant(self.last_sent),
            "distinct": self.distinct,
            **self.tables,
            "error_classes": classes,
            "ages": self.ages,
        }

    def lines(self) -> list[str]:
        """Return the text."""
        found = [
            safe(f"Dead letters in {self.queue}: {self.messages:,}"),
            f"looked at {clock(int(self.at * 1e6))}; times are UTC, and of the first send",
        ]
        ages = [{"age": age, "messages": count} for age, count in self.ages.items()]
        for name, records in (*self.tables.items(), ("ages", ages)):
            more = self.distinct.get(name, 0) - len(records)
            found += ["", name.replace("_", " ").capitalize(), *table_lines(records)]
            found += [f"and {more:,} more"] if more > 0 else []
        for name, samples in self.samples.items():
            found += ["", safe(f"The newest of {name}")]
            found += [safe(f"  {one.about}: {one.body}") for one in samples]
        return found


def report_dead_letters(
    rows: DataFrame, plan: DeadLetterPlan | None = None, printer: ProgressPrinter = SILENT
) -> DeadLetterReport:
    """Group the messages of a dead-letter queue, or log: rows of their source.

    Reads the rows once, whatever the number of tables. Raises BadPath.
    """
    plan = plan or DeadLetterPlan()
    now = time.time() if plan.now is None else plan.now
    found = classified(as_messages(rows), plan.classifier).persist()
    try:
        total = _totals(found)
        printer.say(f"{total['messages']:,} dead letters read")
        columns = {"error_classes": "error_class", "sources": "source", "groups": "group"}
        tables = {name: _grouped(found, column, plan.most) for name, column in columns.items()}
        classes = [one["error_class"] for one in tables["error_classes"]]
        return DeadLetterReport(
            queue=total["queue"] or "(empty)",
            at=now,
            messages=total["messages"],
            first_sent=total["first_sent"],
            last_sent=total["last_sent"],
            distinct={name: total[name] for name in columns},
            tables=tables,
            ages=_ages(found, now),
            samples=_samples(found, classes, plan),
        )
    finally:
        found.unpersist()


def classified(rows: DataFrame, classifier: Classifier) -> DataFrame:
    """Return one row a message: queue, message_id, sent (microseconds), body, error_class, source
    (the queue's name), group. Raises BadPath."""
    classifier.check()

    def error_class(body: str | None, attributes: dict[str, str | None] | None) -> str:
        return classifier.error_class(body or "", attributes or {})

    texts = fn.transform_values("message_attributes", lambda _, value: value["string_value"])
    source = fn.element_at(fn.split("dead_letter_source", ":"), -1)
    body = fn.col("body").cast("string")
    return rows.select(
        "queue",
        "message_id",
        fn.unix_micros("sent_timestamp").alias("sent"),
        body.alias("body"),
        fn.udf(error_class, StringType(), useArrow=False)(body, texts).alias("error_class"),
        fn.coalesce(source, fn.lit(_NO_SOURCE)).alias("source"),
        fn.coalesce("message_group_id", fn.lit(_NO_GROUP)).alias("group"),
    )


def _totals(found: DataFrame) -> dict[str, Any]:
    row = found.agg(
        fn.count(fn.lit(1)).alias("messages"),
        fn.min("queue").alias("queue"),
        fn.min("sent").alias("first_sent"),
        fn.max("sent").alias("last_sent"),
        fn.count_distinct("error_class").alias("error_classes"),
        _distinct("source", _NO_SOURCE).alias("sources"),
        _distinct("group", _NO_GROUP).alias("groups"),
    ).first()
    assert row is not None  # an aggregate without groups always has one
    return row.asDict()


def _distinct(column: str, none: str) -> Column:
    return fn.count_distinct(fn.when(fn.col(column) != none, fn.col(column)))


def _grouped(found: DataFrame, column: str, most: int) -> list[dict[str, Any]]:
    rows = (
        found.groupBy(column)
        .agg(fn.count(fn.lit(1)).alias("count"), fn.min("sent"), fn.max("sent"))
        .orderBy(fn.desc("count"), column)
        .limit(most)
        .collect()
    )
    return [
        {column: name, "messages": count, "first_sent": instant(first), "last_sent": instant(last)}
        for name, count, first, last in rows
    ]


def _ages(found: DataFrame, now: float) -> dict[str, int]:
    age = fn.lit(int(now * 1e6)) - fn.col("sent")
    bucket = fn.lit(len(AGES) - 1)
    for number, (_, most) in reversed([*enumerate(AGES)]):
        if most is not None:
            bucket = fn.when(age < most * 1_000_000, fn.lit(number)).otherwise(bucket)
    rows: Sequence[Row] = found.groupBy(bucket.alias("bucket")).count().collect()
    counts = {row["bucket"]: int(row[1]) for row in rows}
    return {name: counts.get(number, 0) for number, (name, _) in enumerate(AGES)}


def _samples(found: DataFrame, classes: list[str], plan: DeadLetterPlan) -> dict[str, list[Sample]]:
    if not (plan.samples and classes):
        return {}
    newest = Window.partitionBy("error_class").orderBy(fn.desc("sent"), "message_id")
    rows = (
        found.where(fn.col("error_class").isin(classes))
        .select(
            "error_class",
            "message_id",
            "sent",
            fn.substring("body", 1, plan.sample_letters).alias("body"),
            fn.length("body").alias("letters"),
            fn.row_number().over(newest).alias("number"),
        )
        .where(fn.col("number") <= plan.samples)
        .orderBy("error_class", "number")
        .collect()
    )
    samples: dict[str, list[Sample]] = {}
    for row in rows:
        cut = (row["letters"] or 0) > plan.sample_letters
        about = f"{row['message_id']}, {clock(row['sent'])}"
        about += f", {row['letters']:,} characters" if cut else ""
        body = (row["body"] or "") + ("…" if cut else "")
        samples.setdefault(row["error_class"], []).append(Sample(about, body))
    return samples

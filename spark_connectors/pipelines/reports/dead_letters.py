"""What is in a dead-letter queue, and why: looked at, not consumed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as fn
from pyspark.sql.types import StringType

from spark_connectors.pipelines.reports.charts import Bar, columns, ranking
from spark_connectors.pipelines.reports.error_classes import Classifier
from spark_connectors.pipelines.reports.page import Report, Sample, Section
from spark_connectors.pipelines.reports.plain import Table
from spark_connectors.pipelines.telling import SILENT, Teller, clock, instant

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

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
_NUMBERS = frozenset({1, 2, 3})


class DeadLetterPlan(NamedTuple):
    """What to report. ``most``: rows of each table; ``now``: epoch seconds, None for the clock."""

    classifier: Classifier = Classifier()
    most: int = 25
    samples: int = 3
    sample_letters: int = 600
    now: float | None = None


class Found(NamedTuple):
    """How many dead letters share something; instants in microseconds since the epoch."""

    name: str
    messages: int
    first_sent: int | None
    last_sent: int | None

    def as_json(self, name: str) -> dict[str, Any]:
        """With the shared thing under ``name``."""
        return {
            name: self.name,
            "messages": self.messages,
            "first_sent": instant(self.first_sent),
            "last_sent": instant(self.last_sent),
        }


class DeadLetterReport(NamedTuple):
    """What is in the queue. Each list begins with the most frequent."""

    queue: str
    at: float
    messages: int
    first_sent: int | None
    last_sent: int | None
    distinct: dict[str, int]  # error_classes, sources, groups
    classes: list[Found]
    sources: list[Found]
    groups: list[Found]
    ages: list[tuple[str, int]]
    samples: dict[str, list[Sample]]

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        classes = [
            {**found.as_json("error_class"), "samples": self._samples_of(found.name)}
            for found in self.classes
        ]
        return {
            "queue": self.queue,
            "at": instant(int(self.at * 1e6)),
            "messages": self.messages,
            "first_sent": instant(self.first_sent),
            "last_sent": instant(self.last_sent),
            "distinct": self.distinct,
            "error_classes": classes,
            "sources": [found.as_json("source") for found in self.sources],
            "groups": [found.as_json("group") for found in self.groups],
            "ages": dict(self.ages),
        }

    def _samples_of(self, name: str) -> list[dict[str, str]]:
        return [sample._asdict() for sample in self.samples.get(name, [])]

    def lines(self) -> list[str]:
        """For people."""
        return self.report().lines()

    def report(self) -> Report:
        """For a page."""
        facts = [
            ("messages", f"{self.messages:,}"),
            ("error classes", f"{self.distinct['error_classes']:,}"),
            ("source queues", f"{self.distinct['sources']:,}"),
            ("message groups", f"{self.distinct['groups']:,}"),
            ("first sent", clock(self.first_sent)),
            ("last sent", clock(self.last_sent)),
        ]
        total = max(1, self.messages)
        sections = [
            self._section("Error classes", "error class", self.classes, "error_classes"),
            Section(
                Table(
                    "Age",
                    ("sent", "messages", "share"),
                    [(age, f"{count:,}", f"{count / total:.1%}") for age, count in self.ages],
                    _NUMBERS,
                ),
                columns([Bar(age, count) for age, count in self.ages], _count),
            ),
            self._section("Source queues", "queue", self.sources, "sources"),
            self._section("Message groups", "group", self.groups, "groups"),
        ]
        if self.samples:
            sections.append(self._sample_section())
        under = f"looked at {clock(int(self.at * 1e6))}; times are UTC, and of the first send"
        return Report(f"Dead letters in {self.queue}", under, facts, sections)

    def _section(self, title: str, column: str, found: list[Found], counted: str) -> Section:
        left = self.distinct[counted] - len(found)
        total = max(1, self.messages)
        rows = [
            (
                one.name,
                f"{one.messages:,}",
                f"{one.messages / total:.1%}",
                clock(one.first_sent),
                clock(one.last_sent),
            )
            for one in found
        ]
        names = (column, "messages", "share", "first sent", "last sent")
        note = f"and {left:,} more" if left > 0 else ""
        chart = ranking([Bar(one.name, one.messages) for one in found[:10]], _count)
        return Section(Table(title, names, rows, frozenset({1, 2}), note), chart)

    def _sample_section(self) -> Section:
        named = [
            (f"{found.name} ({found.messages:,})", self.samples[found.name])
            for found in self.classes
            if found.name in self.samples
        ]
        table = Table("Samples", (), (), note="The newest of each class; long bodies are cut.")
        return Section(table, samples=named)


def report_dead_letters(
    rows: DataFrame, plan: DeadLetterPlan | None = None, teller: Teller = SILENT
) -> DeadLetterReport:
    """Group the messages of a dead-letter queue: rows as the queue source gives them.

    The rows are read once, whatever the number of tables. Raises BadPath.
    """
    plan = plan or DeadLetterPlan()
    now = time.time() if plan.now is None else plan.now
    found = classified(rows, plan.classifier).persist()
    try:
        total = _totals(found)
        teller.say(f"{total['messages']:,} dead letters read")
        classes = _grouped(found, "error_class", plan.most)
        return DeadLetterReport(
            queue=total["queue"] or "(empty)",
            at=now,
            messages=total["messages"],
            first_sent=total["first_sent"],
            last_sent=total["last_sent"],
            distinct={name: total[name] for name in ("error_classes", "sources", "groups")},
            classes=classes,
            sources=_grouped(found, "source", plan.most),
            groups=_grouped(found, "group", plan.most),
            ages=_ages(found, now),
            samples=_samples(found, [one.name for one in classes], plan),
        )
    finally:
        found.unpersist()


def classified(rows: DataFrame, classifier: Classifier) -> DataFrame:
    """One row a message: queue, message_id, sent (microseconds), body, error_class, source (the
    queue's name), group. Raises BadPath."""
    classifier.check()

    def error_class(body: str | None, attributes: dict[str, str | None] | None) -> str:
        return classifier.error_class(body or "", attributes or {})

    texts = fn.transform_values("message_attributes", lambda _, value: value["string_value"])
    source = fn.element_at(fn.split("dead_letter_source", ":"), -1)
    return rows.select(
        "queue",
        "message_id",
        fn.unix_micros("sent_timestamp").alias("sent"),
        "body",
        fn.udf(error_class, StringType(), useArrow=False)("body", texts).alias("error_class"),
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


def _grouped(found: DataFrame, column: str, most: int) -> list[Found]:
    rows = (
        found.groupBy(column)
        .agg(fn.count(fn.lit(1)).alias("count"), fn.min("sent"), fn.max("sent"))
        .orderBy(fn.desc("count"), column)
        .limit(most)
        .collect()
    )
    return [Found(*row) for row in rows]


def _ages(found: DataFrame, now: float) -> list[tuple[str, int]]:
    age = fn.lit(int(now * 1e6)) - fn.col("sent")
    bucket = fn.lit(len(AGES) - 1)
    for number, (_, most) in reversed([*enumerate(AGES)]):
        if most is not None:
            bucket = fn.when(age < most * 1_000_000, fn.lit(number)).otherwise(bucket)
    rows: Sequence[Row] = found.groupBy(bucket.alias("bucket")).count().collect()
    counts = {row["bucket"]: int(row[1]) for row in rows}
    return [(name, counts.get(number, 0)) for number, (name, _) in enumerate(AGES)]


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


def _count(value: float) -> str:
    return f"{value:,.0f}"

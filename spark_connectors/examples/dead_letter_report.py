"""A report on the messages of a dead-letter queue or log, which it does not consume.

    python -m spark_connectors.examples.dead_letter_report --queue orders-dead --endpoint-url URL

It groups messages by error class, source queue, message group and age, and shows samples.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as fn
from pyspark.sql.types import StringType

from spark_connectors.errors import ConnectorError
from spark_connectors.pipelines import pipeline_commands as commands
from spark_connectors.pipelines.queue_archive import (
    SILENT,
    ProgressPrinter,
    as_members,
    as_messages,
    clock,
    instant,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_LONGEST = 120
_DEPTH = 2
_MOST_KEYS = 12
# ErrorCode is Lambda's attribute of dead letters; the others are those of frameworks. SNS adds none
# to its own: there the body, or its shape, has the class.
_ATTRIBUTE = re.compile(
    r"^(x-)?(last)?(error|exception|failure|fault)(code|type|class|name|classname|reason|fqcn)?$"
)
_BEST = ("errorcode", "errortype", "exceptionclass", "exceptiontype", "exception", "error")
# The last error of a log's group; a consumer's own attribute may be more specific.
_OF_LOGS = "queuegatelasterror"
_MASKS = (
    (re.compile(r"\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<uuid>"),
    (
        re.compile(r"\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?([.,]\d+)?(Z|[+-]\d\d:?\d\d)?)?\b"),
        "<time>",
    ),
    (re.compile(r"\b(?=[0-9a-fA-F]*\d)(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{8,}\b"), "<hex>"),
    (re.compile(r"\"[^\"]{0,400}\"|'[^']{0,400}'"), "<text>"),
    (re.compile(r"[\w.+-]{1,100}@[\w-]{1,100}\.[\w.-]{1,100}"), "<mail>"),
    (re.compile(r"\d+([.,]\d+)*"), "<n>"),
)
_PATH = re.compile(r"\$(\.[^.\[\]]+|\[\d+\]|\['[^']+'\])+")
# Escape sequences of a terminal can hide or fake lines: bodies are untrusted.
_CONTROL = dict.fromkeys((*range(32), *range(127, 160)), "\ufffd")
_CONTROL |= dict.fromkeys(map(ord, "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"), "?")
_CONTROL |= {ord("\n"): " ", ord("\t"): " ", ord("\r"): " "}
_WIDEST = 60
_HOUR = 3600
AGES = (
    ("under 1 hour", _HOUR),
    ("1 to 6 hours", 6 * _HOUR),
    ("6 to 24 hours", 24 * _HOUR),
    ("1 to 3 days", 72 * _HOUR),
    ("3 to 7 days", 168 * _HOUR),
    ("over 7 days", 1 << 40),
)
_NO_SOURCE = "(sent here directly)"
_NO_GROUP = "(no group)"
_TABLES = {"error_classes": "error_class", "sources": "source", "groups": "group"}


class BadPath(ConnectorError):
    """An invalid JSON path."""


class Classifier(NamedTuple):
    """Rules that classify messages. ``attributes``: names to read, in this order, instead of those
    that resemble errors; ``json_path``: the place of the class in a JSON body, such as
    ``$.error.code``."""

    attributes: tuple[str, ...] = ()
    json_path: str | None = None

    @property
    def spark_path(self) -> str:
        """The JSON path as Spark reads it, from ``$`` on. Raises BadPath."""
        path = self.json_path or "$"
        path = path if path.startswith("$") else f"$.{path}"
        if path != "$" and not _PATH.fullmatch(path):
            raise BadPath(f"'{path}' is no JSON path such as $.error.code or $.errors[0]['type']")
        return path

    def error_class(
        self, body: str, attributes: Mapping[str, str | None], at_path: str | None = None
    ) -> str:
        """Return an attribute, else the value at the path, else the shape of the body."""
        found = self._attribute(attributes)
        found = at_path if found is None else found
        return masked(found) if found else fingerprint(body)

    def _attribute(self, attributes: Mapping[str, str | None]) -> str | None:
        if self.attributes:
            return next(filter(None, map(attributes.get, self.attributes)), None)
        plain = {_plain(name): value for name, value in attributes.items() if value}
        named = [name for name in _BEST if name in plain]
        named = named or sorted(name for name in plain if _ATTRIBUTE.match(name))
        return plain[named[0]] if named else plain.get(_OF_LOGS)


def _plain(name: str) -> str:
    return re.sub(r"[-_. ]", "", name).lower()


def fingerprint(body: str) -> str:
    """Return the shape of a JSON body, or a text with its variable parts masked."""
    stripped = body.strip()
    if stripped.startswith(("{", "[")):
        try:
            return _cut("JSON " + _shape(json.loads(stripped), _DEPTH))
        except (ValueError, RecursionError):
            pass
    return masked(stripped) or "(empty body)"


def masked(text: str) -> str:
    """Return the first line, with ids, times, quoted parts, addresses and numbers replaced."""
    line = text.strip().partition("\n")[0][: 8 * _LONGEST]
    for pattern, word in _MASKS:
        line = pattern.sub(word, line)
    return _cut(" ".join(line.split()))


def _shape(value: Any, depth: int) -> str:
    if isinstance(value, dict):
        if depth == 0:
            return "{…}"
        inner = [
            f"{key}:{_shape(value[key], depth - 1)}"
            if isinstance(value[key], dict | list)
            else str(key)
            for key in sorted(value)[:_MOST_KEYS]
        ]
        return "{" + ", ".join(inner) + (", …" if len(value) > len(inner) else "") + "}"
    if isinstance(value, list):
        return "[" + (_shape(value[0], depth - 1) if value and depth else "") + "]"
    return type(value).__name__


def _cut(text: str, most: int = _LONGEST) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def safe(text: str) -> str:
    """Return the text on one line, without characters that control a terminal."""
    return text.translate(_CONTROL)


def table_lines(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the records below their names, with numbers to the right."""
    if not records:
        return ["  (none)"]
    columns = []
    for name, first in records[0].items():
        cells = [name, *(_cell(one[name]) for one in records)]
        align = str.rjust if isinstance(first, int) else str.ljust
        columns.append([align(one, max(map(len, cells))) for one in cells])
    return [("  " + "  ".join(row)).rstrip() for row in zip(*columns, strict=True)]


def _cell(value: Any) -> str:
    return _cut(f"{value:,}" if isinstance(value, int) else safe(str(value or "-")), _WIDEST)


class DeadLetterPlan(NamedTuple):
    """Settings of a report. ``most``: rows of each table; ``now``: epoch seconds, None for the
    clock."""

    classifier: Classifier = Classifier()
    most: int = 25
    samples: int = 3
    sample_letters: int = 600
    now: float | None = None


class DeadLetterReport(NamedTuple):
    """The content of the queue. ``tables`` are records, the most frequent first, by _TABLES;
    ``samples``: about and body by error class."""

    queue: str
    at: float
    messages: int
    first_sent: int | None
    last_sent: int | None
    distinct: dict[str, int]
    tables: dict[str, list[dict[str, Any]]]
    ages: dict[str, int]
    samples: dict[str, list[dict[str, str]]]

    def as_json(self) -> dict[str, Any]:
        """Return the JSON members."""
        classes = [
            {**one, "samples": self.samples.get(one["error_class"], [])}
            for one in self.tables["error_classes"]
        ]
        members = self._asdict()
        del members["tables"], members["samples"]
        at = {"at": instant(int(self.at * 1e6))}
        return as_members(members) | at | self.tables | {"error_classes": classes}

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
            found += [safe(f"  {one['about']}: {one['body']}") for one in samples]
        return found


def report_dead_letters(
    rows: DataFrame, plan: DeadLetterPlan | None = None, printer: ProgressPrinter = SILENT
) -> DeadLetterReport:
    """Group the messages of a dead-letter queue, or log: rows of their source, which it reads once.
    Raises BadPath."""
    plan = plan or DeadLetterPlan()
    now = time.time() if plan.now is None else plan.now
    found = classified(as_messages(rows), plan.classifier).persist()
    try:
        total = _totals(found)
        printer.say(f"{total['messages']:,} dead letters read")
        tables = {name: _grouped(found, column, plan.most) for name, column in _TABLES.items()}
        return DeadLetterReport(
            queue=total["queue"] or "(empty)",
            at=now,
            messages=total["messages"],
            first_sent=total["first_sent"],
            last_sent=total["last_sent"],
            distinct={name: total[name] for name in _TABLES},
            tables=tables,
            ages=_ages(found, now),
            samples=_samples(found, [one["error_class"] for one in tables["error_classes"]], plan),
        )
    finally:
        found.unpersist()


def classified(rows: DataFrame, classifier: Classifier) -> DataFrame:
    """Return one row a message: queue, message_id, sent (microseconds), body, error_class, source
    (the queue's name), group. Raises BadPath."""
    path = classifier.spark_path

    def error_class(
        body: str | None, attributes: dict[str, str | None] | None, at_path: str | None
    ) -> str:
        return classifier.error_class(body or "", attributes or {}, at_path)

    texts = fn.transform_values("message_attributes", lambda _, value: value["string_value"])
    source = fn.element_at(fn.split("dead_letter_source", ":"), -1)
    body = fn.col("body").cast("string")
    at_path = fn.lit(None) if path == "$" else fn.get_json_object(body, path)
    return rows.select(
        "queue",
        "message_id",
        fn.unix_micros("sent_timestamp").alias("sent"),
        body.alias("body"),
        fn.udf(error_class, StringType(), useArrow=False)(
            body, texts, at_path.cast("string")
        ).alias("error_class"),
        fn.coalesce(source, fn.lit(_NO_SOURCE)).alias("source"),
        fn.coalesce("message_group_id", fn.lit(_NO_GROUP)).alias("group"),
    )


def _totals(found: DataFrame) -> dict[str, Any]:
    def distinct(column: str, none: str) -> Column:
        return fn.count_distinct(fn.when(fn.col(column) != none, fn.col(column)))

    row = found.agg(
        fn.count(fn.lit(1)).alias("messages"),
        fn.min("queue").alias("queue"),
        fn.min("sent").alias("first_sent"),
        fn.max("sent").alias("last_sent"),
        fn.count_distinct("error_class").alias("error_classes"),
        distinct("source", _NO_SOURCE).alias("sources"),
        distinct("group", _NO_GROUP).alias("groups"),
    ).first()
    assert row is not None  # an aggregate without groups always has one
    return row.asDict()


def _grouped(found: DataFrame, column: str, most: int) -> list[dict[str, Any]]:
    counted = found.groupBy(column).agg(
        fn.count(fn.lit(1)).alias("count"), fn.min("sent"), fn.max("sent")
    )
    return [
        {column: name, "messages": count, "first_sent": instant(first), "last_sent": instant(last)}
        for name, count, first, last in counted.orderBy(fn.desc("count"), column).take(most)
    ]


def _ages(found: DataFrame, now: float) -> dict[str, int]:
    age = fn.lit(int(now * 1e6)) - fn.col("sent")
    bucket = fn.lit(AGES[-1][0])
    for name, most in reversed(AGES[:-1]):
        bucket = fn.when(age < most * 1_000_000, fn.lit(name)).otherwise(bucket)
    counts = {
        row["age"]: int(row[1]) for row in found.groupBy(bucket.alias("age")).count().collect()
    }
    return {name: counts.get(name, 0) for name, _ in AGES}


def _samples(
    found: DataFrame, classes: list[str], plan: DeadLetterPlan
) -> dict[str, list[dict[str, str]]]:
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
    )
    samples: dict[str, list[dict[str, str]]] = {}
    for row in rows.collect() if plan.samples and classes else ():
        cut = (row["letters"] or 0) > plan.sample_letters
        about = f"{row['message_id']}, {clock(row['sent'])}"
        about += f", {row['letters']:,} characters" if cut else ""
        sample = {"about": about, "body": (row["body"] or "") + ("…" if cut else "")}
        samples.setdefault(row["error_class"], []).append(sample)
    return samples


_READ = """
--queue URL|NAME|log:NAME | the dead-letter queue, or log
--parquet DIR | or saved rows of one
"""
_REPORTING = """
--error-attribute NAME... | message attribute with the error; repeatable, the first that a message
  has counts (default: names such as ErrorCode, errorType, exception)
--error-json-path PATH | place of the error in a JSON body, such as $.error.code, if no attribute
  has it (default: the shape of the body)
--top N positive 25 | rows of a table
--samples N int 3 | bodies of each class (default: 3)
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Report on a dead-letter queue, whose messages stay. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m spark_connectors.examples.dead_letter_report",
        description="The content of a dead-letter queue or log by error, without consuming it.",
    )
    parser.set_defaults(command="dead_letter_report")
    commands.add_command(parser, _REPORTING, either=_READ)
    return commands.finish(parser.parse_args(argv), _run)


def _run(args: argparse.Namespace, printer: ProgressPrinter) -> DeadLetterReport:
    classifier = Classifier(tuple(args.error_attribute), args.error_json_path)
    plan = DeadLetterPlan(classifier, args.top, max(0, args.samples))
    with commands.spark_session(args) as spark:
        if args.parquet:
            rows = spark.read.parquet(args.parquet)
        else:
            options = {**commands.options_of(args), **commands.queue_option(args.queue)}
            if is_log := "subscribe" in options:
                options["includeHeaders"] = "true"
            rows = spark.read.format("queuegate-log" if is_log else "sqs").options(**options).load()
        return report_dead_letters(rows, plan, printer)


if __name__ == "__main__":
    raise SystemExit(main())

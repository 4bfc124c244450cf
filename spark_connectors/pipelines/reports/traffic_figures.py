"""The figures of a traffic report: each a small aggregate over the same narrow rows."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as fn

from spark_connectors.pipelines.telling import size

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MICROS = 1_000_000
_SECONDS = {"minute": 60, "hour": 3600, "day": 86_400}
_MOST_POINTS = 400
_REPEATED_WITHIN_MICROS = 300 * _MICROS
_ACCURACY = 10_000
_SMALLEST_POWER = 6
_MOST_RECEIVES = 10


class Totals(NamedTuple):
    """Everything that was counted."""

    messages: int
    body_bytes: int
    first_sent: int | None
    last_sent: int | None
    queues: int
    names: str


class Volume(NamedTuple):
    """What was sent in one minute, hour or day that begins at ``at``."""

    at: int
    messages: int
    body_bytes: int

    def label(self, by: str) -> str:
        """The beginning, as short as ``by`` allows."""
        moment = datetime.datetime.fromtimestamp(self.at / _MICROS, datetime.UTC)
        return moment.strftime("%m-%d" if by == "day" else "%m-%d %H:%M")


class Latency(NamedTuple):
    """From send to first receive, of the messages sent on a day; ``day`` None: of all."""

    day: str | None
    messages: int
    p50: float | None
    p95: float | None
    p99: float | None


class Duplicates(NamedTuple):
    """Rows beyond the first of their kind."""

    same_id: int
    same_body: int


class Share(NamedTuple):
    """A part of the messages."""

    name: str
    messages: int
    share: float


class Skew(NamedTuple):
    """How unevenly messages are spread over message groups."""

    groups: int
    gini: float | None
    most_to_mean: float | None
    top: list[Share]


def measured(rows: DataFrame) -> DataFrame:
    """What the figures need of a row, without its body."""
    first = fn.coalesce("first_receive_timestamp", "receive_timestamp")
    return rows.select(
        "queue",
        "message_id",
        "message_group_id",
        "md5_of_body",
        fn.unix_micros("sent_timestamp").alias("sent"),
        (fn.unix_micros(first) - fn.unix_micros("sent_timestamp")).alias("latency"),
        fn.octet_length("body").alias("bytes"),
        fn.col("approximate_receive_count").alias("receives"),
    )


def totals(found: DataFrame) -> Totals:
    """One pass over everything, which also fills the cache."""
    row = found.agg(
        fn.count(fn.lit(1)),
        fn.coalesce(fn.sum("bytes"), fn.lit(0)),
        fn.min("sent"),
        fn.max("sent"),
        fn.collect_set("queue"),
    ).first()
    assert row is not None  # an aggregate without groups always has one
    names = sorted(row[4])
    shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
    return Totals(row[0], row[1], row[2], row[3], len(names), shown or "none")


def fitting(of: Totals) -> str:
    """The finest of minute, hour and day that keeps a chart readable."""
    if of.first_sent is None or of.last_sent is None:
        return "hour"
    seconds = (of.last_sent - of.first_sent) / _MICROS
    return next((by for by in _SECONDS if seconds / _SECONDS[by] <= _MOST_POINTS), "day")


def volume(found: DataFrame, by: str) -> list[Volume]:
    """In the order of time, without those that have nothing."""
    length = _SECONDS[by] * _MICROS
    begins = (fn.floor(fn.col("sent") / length) * length).alias("at")
    rows = found.groupBy(begins).agg(fn.count(fn.lit(1)), fn.sum("bytes")).orderBy("at").collect()
    return [Volume(*row) for row in rows if row[0] is not None]


def filled(found: list[Volume], by: str) -> list[Volume]:
    """With what lies between at zero, for a chart; too much of it is cut to the latest."""
    if not found:
        return []
    length = _SECONDS[by] * _MICROS
    known = {one.at: one for one in found}
    first = max(found[0].at, found[-1].at - (2 * _MOST_POINTS - 1) * length)
    return [known.get(at, Volume(at, 0, 0)) for at in range(first, found[-1].at + 1, length)]


def latency(found: DataFrame) -> list[Latency]:
    """By day, then of all days."""
    day = fn.date_from_unix_date(fn.floor(fn.col("sent") / (86_400 * _MICROS)).cast("int"))
    shares = fn.array(fn.lit(0.5), fn.lit(0.95), fn.lit(0.99))
    rows = (
        found.where(fn.col("latency").isNotNull())
        .withColumn("day", day.cast("string"))
        .rollup("day")
        .agg(fn.count(fn.lit(1)), fn.percentile_approx("latency", shares, fn.lit(_ACCURACY)))
        .orderBy(fn.col("day").asc_nulls_last())
        .collect()
    )
    return [
        Latency(name, count, *(_positive(part) for part in parts))
        for name, count, parts in rows
        if parts
    ]


def _positive(micros: float) -> float:
    """Seconds; clocks that differ can make a receive earlier than its send."""
    return max(0.0, micros / _MICROS)


def duplicates(found: DataFrame) -> Duplicates:
    """Equal ids anywhere; equal bodies where the one before was sent at most 5 minutes earlier."""
    twice = found.groupBy("queue", "message_id").count().where("count > 1")
    same_id = twice.agg(fn.coalesce(fn.sum(fn.col("count") - 1), fn.lit(0))).first()
    once = found.where(fn.col("md5_of_body").isNotNull()).dropDuplicates(["queue", "message_id"])
    in_time = Window.partitionBy("queue", "md5_of_body").orderBy("sent")
    since_last = fn.col("sent") - fn.lag("sent").over(in_time)
    repeated = once.select(since_last.alias("since")).where(
        fn.col("since") <= _REPEATED_WITHIN_MICROS
    )
    return Duplicates(int(same_id[0]) if same_id else 0, repeated.count())


def skew(found: DataFrame, most: int) -> Skew:
    """Of messages that have a group; a group is one of its queue."""
    groups = (
        found.where(fn.col("message_group_id").isNotNull())
        .groupBy("queue", "message_group_id")
        .count()
        .persist()
    )
    try:
        sizes = groups.groupBy("count").agg(fn.count(fn.lit(1)).alias("groups")).collect()
        counts = sorted((int(row[0]), int(row[1])) for row in sizes)
        total = sum(size * number for size, number in counts)
        if not total:
            return Skew(0, None, None, [])
        order = (fn.desc("count"), "queue", "message_group_id")
        top = groups.orderBy(*order).limit(most).collect()
    finally:
        groups.unpersist()
    number = sum(groups for _, groups in counts)
    several = len({row["queue"] for row in top}) > 1
    shares = [_share_of_group(row, total, several) for row in top]
    return Skew(number, gini(counts), counts[-1][0] * number / total, shares)


def _share_of_group(row: Any, total: int, with_queue: bool) -> Share:
    name = f"{row['queue']} / {row['message_group_id']}" if with_queue else row["message_group_id"]
    return Share(name, int(row["count"]), int(row["count"]) / total)


def gini(counts: list[tuple[int, int]]) -> float:
    """Gini's coefficient of groups, given as (messages of a group, how many such groups) in
    ascending order: exact, without a list of all groups."""
    number = sum(groups for _, groups in counts)
    total = sum(size * groups for size, groups in counts)
    weighted = 0.0
    before = 0
    for messages, groups in counts:
        ranks = groups * before + groups * (groups + 1) / 2
        weighted += messages * ranks
        before += groups
    return max(0.0, 2 * weighted / (number * total) - (number + 1) / number)


def body_sizes(found: DataFrame) -> list[Share]:
    """By powers of two, from 64 bytes; those between are there even when empty."""
    power = fn.when(fn.col("bytes") <= 2**_SMALLEST_POWER, _SMALLEST_POWER).otherwise(
        fn.ceil(fn.log2("bytes"))
    )
    counts = _counted(found.where(fn.col("bytes").isNotNull()), power)
    total = max(1, sum(counts.values()))
    powers = range(min(counts, default=1), max(counts, default=0) + 1)
    return [
        Share(
            f"≤ {size(2**power)}".replace(".0 ", " "),
            counts.get(power, 0),
            counts.get(power, 0) / total,
        )
        for power in powers
    ]


def receive_counts(found: DataFrame) -> list[Share]:
    """How often messages had been received when they were archived."""
    bounded = fn.least(fn.col("receives"), fn.lit(_MOST_RECEIVES))
    counts = _counted(found.where(fn.col("receives").isNotNull()), bounded)
    total = max(1, sum(counts.values()))
    return [
        Share(f"{one}" + ("+" if one == _MOST_RECEIVES else ""), counts[one], counts[one] / total)
        for one in sorted(counts)
    ]


def _counted(found: DataFrame, column: Any) -> dict[int, int]:
    rows = found.groupBy(column.alias("value")).count().collect()
    return {int(row[0]): int(row[1]) for row in rows}

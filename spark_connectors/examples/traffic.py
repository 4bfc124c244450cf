"""Figures of the traffic in an archive: DataFrames, for a notebook to plot.

Each function takes rows of ``read_archive``, or any part of them, and runs one small aggregate.
Days and hours are UTC, whatever the session's time zone is. ``traffic.ipynb`` shows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pyspark.sql import Window
from pyspark.sql import functions as fn

from spark_connectors.pipelines.queue_archive import day_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

By = Literal["minute", "hour", "day"]

_MICROS = 1_000_000
_SECONDS: dict[By, int] = {"minute": 60, "hour": 3600, "day": 86_400}
_REPEATED_WITHIN_SECONDS = 300
_ACCURACY = 10_000


def volume(rows: DataFrame, by: By = "hour") -> DataFrame:
    """Return ``at, messages, body_bytes`` of each minute, hour or day in which a message was
    sent."""
    length = _SECONDS[by] * _MICROS
    begins = fn.timestamp_micros(fn.floor(_sent() / length) * length)
    bytes_sent = fn.sum(fn.octet_length("body")).alias("body_bytes")
    return rows.groupBy(begins.alias("at")).agg(_messages(), bytes_sent).orderBy("at")


def latency(rows: DataFrame) -> DataFrame:
    """Return ``day, messages, p50, p95, p99``: seconds from send to first receive, by day, and in
    total where ``day`` is null. Approximate to one in 10,000."""
    first = fn.unix_micros(fn.coalesce("first_receive_timestamp", "receive_timestamp"))
    # Clocks that differ can make a receive earlier than its send.
    waited = fn.greatest(fn.lit(0), first - _sent()) / _MICROS
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    found = [
        fn.percentile_approx("waited", share, _ACCURACY).alias(name)
        for name, share in shares.items()
    ]
    narrow = rows.select(day_of(_sent()).alias("day"), waited.alias("waited")).where(
        "waited IS NOT NULL"
    )
    return narrow.rollup("day").agg(_messages(), *found).orderBy(fn.col("day").asc_nulls_last())


def groups(rows: DataFrame) -> DataFrame:
    """Return ``queue, message_group_id, messages, share``: the largest message groups first."""
    return _shares(rows.where("message_group_id IS NOT NULL"), "queue", "message_group_id").orderBy(
        fn.desc("messages"), "queue", "message_group_id"
    )


def body_sizes(rows: DataFrame) -> DataFrame:
    """Return ``at_most_bytes, messages, share``, by powers of two."""
    power = fn.ceil(fn.log2(fn.greatest(fn.octet_length("body"), fn.lit(1))))
    sized = rows.select(fn.pow(2, power).cast("long").alias("at_most_bytes"))
    return _shares(sized.where("at_most_bytes IS NOT NULL"), "at_most_bytes").orderBy(
        "at_most_bytes"
    )


def receive_counts(rows: DataFrame) -> DataFrame:
    """Return ``receives, messages, share``: receive counts at the time of archiving."""
    counted = rows.select(fn.col("approximate_receive_count").alias("receives"))
    return _shares(counted.where("receives IS NOT NULL"), "receives").orderBy("receives")


def duplicates(rows: DataFrame) -> DataFrame:
    """Return ``queue, same_id, same_body``: rows beyond the first with equal message ids, and
    messages with the body of another that was sent at most 5 minutes before."""
    ids = rows.groupBy("queue").agg(
        (fn.count("message_id") - fn.count_distinct("message_id")).alias("same_id")
    )
    once = rows.dropDuplicates(["queue", "message_id"]).where("md5_of_body IS NOT NULL")
    in_time = Window.partitionBy("queue", "md5_of_body").orderBy("sent_timestamp")
    since = _sent() - fn.lag(_sent()).over(in_time)
    is_repeated = (since <= _REPEATED_WITHIN_SECONDS * _MICROS).alias("is_repeated")
    repeated = once.select("queue", is_repeated).groupBy("queue")
    bodies = repeated.agg(fn.count_if("is_repeated").alias("same_body"))
    return ids.join(bodies, "queue", "left").na.fill(0).orderBy("queue")


def _sent() -> Column:
    return fn.unix_micros("sent_timestamp")


def _messages() -> Column:
    return fn.count(fn.lit(1)).alias("messages")


def _shares(rows: DataFrame, *columns: str) -> DataFrame:
    total = fn.sum("messages").over(Window.partitionBy())
    share = (fn.col("messages") / total).alias("share")
    return rows.groupBy(*columns).agg(_messages()).select(*columns, "messages", share)

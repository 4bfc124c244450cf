"""Which messages a replay sends, in which order, and what it adds to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as fn

from spark_connectors.pipelines.archiving.reading import between

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REPLAYED_FROM = "replayed_from"
BUCKET = "bucket"
_MOST_ATTRIBUTES = 10
_NO_ATTRIBUTES = (
    "cast(map() as map<string,struct<data_type:string,string_value:string,binary_value:binary>>)"
)
_SENT = ("queue", "message_id", "body", "message_group_id", "message_attributes")


class Selection(NamedTuple):
    """Which rows. ``since`` and ``until`` in microseconds since the epoch, the second excluded;
    ``where`` is a condition in SQL over the rows' columns."""

    since: int | None = None
    until: int | None = None
    groups: tuple[str, ...] = ()
    where: str | None = None
    limit: int | None = None


def selected(rows: DataFrame, by: Selection) -> DataFrame:
    """The rows of the selection; with a limit those sent first."""
    found = between(rows, by.since, by.until)
    if by.groups:
        found = found.where(fn.col("message_group_id").isin(*by.groups))
    if by.where is not None:
        found = found.where(by.where)
    if by.limit is not None:
        found = found.orderBy("sent_timestamp", *in_order()).limit(by.limit)
    return found


def in_order() -> tuple[Column, ...]:
    """Columns that put messages of each group in the order of their sequence numbers, and others in
    the order in which they were sent.

    Sequence numbers are decimal and have no leading zeros. Not by group first: a request takes one
    message of a group at a time, and finds more groups when they come mixed.
    """
    number = fn.col("sequence_number")
    return (fn.length(number), number, fn.col("sent_timestamp"), fn.col("message_id"))


def addressed(rows: DataFrame, replay_id: str, buckets: int, most_bytes: int) -> DataFrame:
    """What is sent of each row, in order within partitions: a bucket is one partition, and a group
    one bucket.

    Adds the attribute ``replayed_from``, replay/queue/message id, where there is room for it.
    """
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


def lacks_room(replay_id: str, most_bytes: int) -> Column:
    """Whether ``replayed_from`` would be one attribute, or some bytes, too many."""
    kept = _others()
    added = fn.octet_length(origin(replay_id)) + len(REPLAYED_FROM) + len("String")
    size = fn.octet_length("body") + fn.aggregate(fn.map_entries(kept), fn.lit(0), _plus_size)
    return (fn.size(kept) >= _MOST_ATTRIBUTES) | (size + added > most_bytes)


def _others() -> Column:
    """The attributes without a ``replayed_from`` of an earlier replay."""
    given = fn.coalesce("message_attributes", fn.expr(_NO_ATTRIBUTES))
    return fn.map_filter(given, lambda name, _: name != REPLAYED_FROM)


def _plus_size(total: Column, entry: Column) -> Column:
    value = entry["value"]
    text = fn.coalesce(fn.octet_length(value["string_value"]), fn.lit(0))
    data = fn.coalesce(fn.octet_length(value["binary_value"]), fn.lit(0))
    return total + fn.octet_length(entry["key"]) + fn.octet_length(value["data_type"]) + text + data


def origin(replay_id: str) -> Column:
    """Which message it is, of which replay."""
    return fn.concat_ws("/", fn.lit(replay_id), "queue", "message_id")


def _with_origin(replay_id: str, most_bytes: int) -> Column:
    value = fn.struct(
        fn.lit("String").alias("data_type"),
        origin(replay_id).alias("string_value"),
        fn.lit(None).cast("binary").alias("binary_value"),
    )
    added = fn.map_concat(_others(), fn.create_map(fn.lit(REPLAYED_FROM), value))
    return fn.when(lacks_room(replay_id, most_bytes), fn.col("message_attributes")).otherwise(added)

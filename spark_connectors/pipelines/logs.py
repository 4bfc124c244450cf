"""Logs where the pipelines have queues: named ``log:NAME``, their rows as those of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from spark_connectors.log.columns import OF_FAILURE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PREFIX = "log:"
_OF_A_LOG = {"key", "value", "topic", "partition", "offset", "timestamp"}
_HEADERS = "array<struct<key:string,value:binary>>"


def log_of(place: str) -> str | None:
    """The name of the log; None: it is no log's."""
    return place.removeprefix(_PREFIX) if place.startswith(_PREFIX) else None


def is_of_a_log(rows: DataFrame) -> bool:
    """Whether these are rows as a log's source gives them."""
    return set(rows.columns) >= _OF_A_LOG


def as_messages(rows: DataFrame) -> DataFrame:
    """Rows of a log with the columns that a queue's have, others as they are.

    A key is a group, an offset a sequence number, a header an attribute (without a value it is
    none). Bodies stay binary: not every record is text.
    """
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
    """Messages with columns of records too; ``origin``: what their ids are made of. Attributes that
    are binary become base64: headers of a log are texts."""
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

"""Rows of logs in pipelines. Pipelines name a log ``log:NAME``, and read its rows as a queue's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from spark_connectors.log.record_columns import OF_FAILURE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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
    """Return rows of a log with the columns of a queue's rows; others unchanged.

    A key becomes the group, an offset the sequence number, a header an attribute (an empty header
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

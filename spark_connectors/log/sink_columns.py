"""Which column of a DataFrame is which part of a record, checked when the query is planned."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from spark_connectors.log.sink_options import SinkSettings
from spark_connectors.sink.columns import (
    TEXT_OR_BYTES,
    BadColumns,
    Found,
    can_be_sorted,
    wrong_type,
)
from spark_connectors.sink.deduplication import can_be_in_a_digest


class LogColumns(NamedTuple):
    """Names of the DataFrame's columns by what they are for; None where there is none.

    ``deduplication`` says where ids come from: column, columns, rows, none.
    """

    value: str
    key: str | None
    headers: str | None
    log: str | None
    record_id: str | None
    order_by: tuple[str, ...]
    deduplication: str
    deduplication_columns: tuple[str, ...]


def find_log_columns(schema: StructType, settings: SinkSettings) -> LogColumns:
    """The columns of a DataFrame that are sent; others are left out, ``partition``, ``offset`` and
    ``timestamp`` among them, for these are the log's to say.

    Raises BadColumns, with what to change, when one is missing, doubled or of the wrong type.
    """
    found = Found(schema)
    value = found.name(("value",), TEXT_OR_BYTES, "string or binary")
    if value is None:
        raise BadColumns(
            "a column 'value', string or binary, is what will be published; there is only "
            f"{found}. For whole rows: selectExpr('to_json(struct(*)) AS value')"
        )
    log = found.name(("topic",), (StringType,), "string")
    if settings.log is None and log is None:
        raise BadColumns("where to: give the option topic, or a column topic")
    record_id = found.name(("id",), (StringType,), "string")
    digested = settings.deduplication_columns
    return LogColumns(
        value=value,
        key=found.name(("key",), TEXT_OR_BYTES, "string or binary"),
        headers=_headers(found),
        log=log,
        record_id=record_id,
        order_by=tuple(found.listed(settings.order_by, "orderBy", can_be_sorted)),
        deduplication=_deduplication(settings, record_id),
        deduplication_columns=tuple(
            found.listed(digested, "deduplicationColumns", can_be_in_a_digest)
        ),
    )


def _deduplication(settings: SinkSettings, record_id: str | None) -> str:
    if settings.deduplication == "column" and record_id is None:
        raise BadColumns("deduplication=column: there is no column id")
    return settings.deduplication or ("rows" if record_id is None else "column")


def _headers(found: Found) -> str | None:
    field = found.field("headers")
    if field is None:
        return None
    if not (_is_map(field) or _is_kafkas(field)):
        raise wrong_type(field, "array<struct<key:string,value:binary>> or map<string,string>")
    return str(field.name)


def _is_map(field: StructField) -> bool:
    kind = field.dataType
    return (
        isinstance(kind, MapType)
        and isinstance(kind.keyType, StringType)
        and isinstance(kind.valueType, StringType)
    )


def _is_kafkas(field: StructField) -> bool:
    kind = field.dataType
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    types = {one.name: one.dataType for one in kind.elementType.fields}
    return (
        types.keys() == {"key", "value"}
        and isinstance(types["key"], StringType)
        and isinstance(types["value"], BinaryType)
    )

"""The log's sink: rows become records. A record with a known id is not added again."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

from spark_connectors.endpoints import json_bytes
from spark_connectors.errors import Fault
from spark_connectors.log.log_api import LogCalls, shared_calls
from spark_connectors.log.log_options import LogSinkSettings, log_sink_settings
from spark_connectors.sink.message_columns import (
    TEXT_OR_BYTES,
    BadColumns,
    Identity,
    SchemaColumns,
    can_be_in_a_digest,
    can_be_sorted,
    ids_of_columns,
    wrong_type,
)
from spark_connectors.sink.message_sink import RowRefused, column_values
from spark_connectors.sink.packing import Batching, Destination, OutgoingRow
from spark_connectors.sink.sender import SendSettings

if TYPE_CHECKING:
    import pyarrow as pa


class LogColumns(NamedTuple):
    """Names of the DataFrame's columns by purpose; None: the column is absent. ``deduplication``:
    the source of the ids: column, columns, rows, none."""

    value: str
    key: str | None
    headers: str | None
    log: str | None
    record_id: str | None
    order_by: tuple[str, ...]
    deduplication: str
    deduplication_columns: tuple[str, ...]


def find_log_columns(schema: StructType, settings: LogSinkSettings) -> LogColumns:
    """Return the columns of a DataFrame that are sent. Others are left out, among them
    ``partition``, ``offset`` and ``timestamp``, which the log sets itself. Raises BadColumns, with
    the change to make, for a missing, doubled or wrongly typed column."""
    found = SchemaColumns(schema)
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


def _deduplication(settings: LogSinkSettings, record_id: str | None) -> str:
    if settings.deduplication == "column" and record_id is None:
        raise BadColumns("deduplication=column: there is no column id")
    return settings.deduplication or ("rows" if record_id is None else "column")


def _headers(found: SchemaColumns) -> str | None:
    field = found.field("headers")
    if field is None:
        return None
    kind, types = field.dataType, {}
    if isinstance(kind, MapType):
        types = {"key": type(kind.keyType), "value": type(kind.valueType)}
    elif isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType):
        types = {one.name: type(one.dataType) for one in kind.elementType.fields}
    value = StringType if isinstance(kind, MapType) else BinaryType
    if types != {"key": StringType, "value": value}:
        raise wrong_type(field, "array<struct<key:string,value:binary>> or map<string,string>")
    return str(field.name)


# Limits of a record, and of a request: of its body, and of the values in it.
_MOST_RECORD_BYTES = 1 << 20
_MOST_NAME = {"key": 256, "id": 128}
_MOST_HEADERS = 100
_MOST_BYTES = 4 << 20
_MOST_VALUES = 9_000
_PLAIN_VALUES = 5
# Where escapes make the text longer than base64.
_TOO_MANY_ESCAPES = 1.4
# Rows that are packed into requests together.
_WINDOW = 4_000


class OutgoingRecord(NamedTuple):
    """A record as it is sent: JSON, and the number of its values. ``group_id``: its key."""

    group_id: str | None
    text: bytes
    values: int


class LogPlan(NamedTuple):
    """The plan of a write, for every task. Picklable."""

    settings: LogSinkSettings
    columns: LogColumns
    name: str = "queuegate-log sink"

    @property
    def sending(self) -> SendSettings:
        """The settings of the tasks' sends."""
        settings = self.settings
        return SendSettings(
            Batching(settings.most_records, one_per_group=False),
            window=max(_WINDOW, settings.most_records),
            max_retries=settings.connection.max_retries,
            most_per_second=settings.most_per_second,
            concurrency=settings.concurrency,
            order_by=self.columns.order_by,
            summary_path=settings.summary_path,
        )

    def open(self, identity: Identity) -> LogTarget:
        """Return the target for the rows of one partition."""
        return LogTarget(self, identity, shared_calls(self.settings.connection))


def planned(given: Mapping[str, str], schema: StructType) -> LogPlan:
    """Return the plan of a write. Raises BadOption and BadColumns."""
    settings = log_sink_settings(given)
    return LogPlan(settings, find_log_columns(schema, settings))


class LogTarget:
    """Logs as the target of the rows of one partition."""

    def __init__(self, plan: LogPlan, identity: Identity, calls: LogCalls) -> None:
        self._plan = plan
        self._calls = calls
        self._where = f"of partition {identity.partition}"
        self._start = hashlib.blake2b(f"{identity.job}|{identity.partition}|".encode())
        self._seen: dict[bytes, int] = {}
        self._logs: dict[str, Destination] = {}
        self._position = 0

    def pack(self, batch: pa.RecordBatch) -> Iterator[OutgoingRow[OutgoingRecord]]:
        """Yield each row as a record. Raises RowRefused."""
        columns = self._plan.columns
        for log, key, value, header, given_id in zip(
            column_values(batch, columns.log),
            column_values(batch, columns.key),
            column_values(batch, columns.value),
            column_values(batch, columns.headers),
            self._ids(batch),
            strict=True,
        ):
            record = self._record(key, value, header, given_id)
            size = len(record.text) + 1
            yield OutgoingRow(record, size, self._destination(log), self._position)
            self._position += 1

    def send(self, destination: Destination, entries: Sequence[OutgoingRecord]) -> list[None]:
        """Publish the records, in as many requests as their values need."""
        part: list[bytes] = []
        values = 0
        for entry in entries:
            if part and values + entry.values > _MOST_VALUES:
                self._calls.publish(destination.address, part)
                part, values = [], 0
            part.append(entry.text)
            values += entry.values
        self._calls.publish(destination.address, part)
        return [None] * len(entries)

    def refused(self, row: OutgoingRow[OutgoingRecord], fault: Fault) -> NoReturn:
        """Raise RowRefused. A log takes all records of a request or none, so this is not called."""
        self._refuse(fault.code, fault.message, row.position)

    def _ids(self, batch: pa.RecordBatch) -> Sequence[str | None]:
        columns = self._plan.columns
        if columns.deduplication == "column":
            return column_values(batch, columns.record_id)
        if columns.deduplication == "columns":
            return ids_of_columns(batch, columns.deduplication_columns)
        return [None] * batch.num_rows

    def _destination(self, log: str | None) -> Destination:
        name = self._plan.settings.log or log
        if not name:
            self._refuse("NoLog", "the column topic is null, and there is no option topic")
        found = self._logs.get(name)
        if found is None:
            # With concurrent requests only the packer keeps the order of a key.
            keeps_order = self._plan.settings.concurrency > 1
            found = self._logs[name] = Destination(name, _MOST_BYTES, is_fifo=keeps_order)
        return found

    def _record(self, key: Any, value: Any, headers: Any, given_id: str | None) -> OutgoingRecord:
        if value is None:
            self._refuse("NoValue", "its value is null, and a record has a payload")
        payload = value if isinstance(value, bytes) else value.encode()
        text_key = self._text("key", key) if key is not None else ""
        said: dict[str, object] = {"key": text_key}
        metadata = self._metadata(headers)
        if metadata:
            said["metadata"] = metadata
        size = len(payload) + (len(json_bytes(metadata)) if metadata else 0)
        if size > _MOST_RECORD_BYTES:
            self._refuse("TooLarge", f"it has {size} bytes, of at most {_MOST_RECORD_BYTES}")
        record_id = given_id
        if self._plan.columns.deduplication == "rows":
            record_id = self._id_of(text_key, payload, metadata)
        if record_id is not None:
            said["id"] = self._text("id", record_id)
        text = json_bytes(said | _payload(payload))
        return OutgoingRecord(text_key, text, _PLAIN_VALUES + len(metadata))

    def _id_of(self, key: str, payload: bytes, metadata: Mapping[str, str]) -> str:
        """Return the same id for an equal row of this task of this batch. Equal rows are counted,
        so that none is dropped as another."""
        digest = self._start.copy()
        # Lengths, so that no key can be taken for the start of a payload.
        about = json_bytes([key, len(payload), sorted(metadata.items())])
        digest.update(about)
        digest.update(payload)
        found = digest.digest()[:20]
        number = self._seen.get(found, 0)
        self._seen[found] = number + 1
        return f"{found.hex()}-{number}" if number else found.hex()

    def _metadata(self, headers: Any) -> dict[str, str]:
        if not headers:
            return {}
        # Spark passes a map as pairs, Kafka's headers as structs.
        pairs = [(one["key"], one["value"]) if isinstance(one, dict) else one for one in headers]
        if len(pairs) > _MOST_HEADERS:
            self._refuse("TooLarge", f"it has {len(pairs)} headers, of at most {_MOST_HEADERS}")
        there = [(name, self._text("headers", value)) for name, value in pairs if value is not None]
        found = dict(there)
        if len(found) < len(there):
            self._refuse("DoubleHeader", "it has a header twice, and a log each name once")
        return found

    def _text(self, name: str, value: Any) -> str:
        try:
            text: str = value.decode() if isinstance(value, bytes) else value
        except UnicodeDecodeError:
            self._refuse("NoText", f"its {name} is binary and no UTF-8, and a log has texts there")
        if not len(text) <= _MOST_NAME.get(name, _MOST_RECORD_BYTES):
            self._refuse("TooLarge", f"its {name} has more than {_MOST_NAME[name]} characters")
        return text

    def _refuse(self, code: str, why: str, position: int | None = None) -> NoReturn:
        number = self._position if position is None else position
        raise RowRefused(f"row {number} {self._where}: {code}: {why}")


def _payload(payload: bytes) -> dict[str, object]:
    """Return the payload as text if it is text with few escapes, else in base64."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        pass
    else:
        if text.isprintable() or len(json_bytes(text)) <= _TOO_MANY_ESCAPES * len(payload) + 8:
            return {"payload": text}
    return {"payload": base64.b64encode(payload).decode("ascii"), "encoding": "base64"}

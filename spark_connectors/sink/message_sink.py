"""The sinks of the formats ``sqs`` and ``sns``: rows become messages, or dead letters.

Messages are built, checked and measured before anything is sent.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_connectors.errors import ConnectorError, Fault, Refused
from spark_connectors.sink.message_columns import (
    Identity,
    MessageColumns,
    find_columns,
    id_of_content,
    id_of_position,
    ids_of_columns,
)
from spark_connectors.sink.packing import Destination, OutgoingRow
from spark_connectors.sink.sender import Answers, SendSettings
from spark_connectors.sink.sink_options import MOST_QUEUE_BYTES, MessageSinkSettings
from spark_connectors.transport import MessageEntry, Transport, shared_transport

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


Row = OutgoingRow[MessageEntry]
Attributes = dict[str, tuple[str, str | bytes]]

# Rows that are Python objects at one time, beside the window.
_SLICE = 1000
_MOST_DELAY_SECONDS = 900
_MOST_ID_LENGTH = 128
# SQS refuses these control characters, U+FFFE and U+FFFF.
_CONTROLS = bytes(set(range(0x20)) - {0x09, 0x0A, 0x0D})
_FFFE, _FFFF = b"\xef\xbf\xbe", b"\xef\xbf\xbf"
_NOTHING: Attributes = {}


class _Bad(Exception):
    """A row that the service would refuse, found before the request."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.fault = Fault(code, message, is_senders=True)


_EMPTY = MessageEntry("")
_NOWHERE = Destination("", 0)


def _check_fifo(entry: MessageEntry) -> None:
    if not entry.group_id:
        raise _Bad("MissingGroupId", "a FIFO destination needs message_group_id")
    if entry.deduplication_id is not None and len(entry.deduplication_id) > _MOST_ID_LENGTH:
        raise _Bad("InvalidDeduplicationId", "message_deduplication_id is longer than 128")
    if entry.delay_seconds is not None:
        raise _Bad(
            "InvalidDelay", "a FIFO queue delays no single message: delay_seconds must be null"
        )


def _bytes(column: pa.Array) -> list[bytes | None]:
    """Return bodies as bytes: a string of Spark's need not be UTF-8."""
    import pyarrow as pa

    # A view: a cast would import all compute functions into a worker that needs no other.
    if pa.types.is_string(column.type):
        column = column.view(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.view(pa.large_binary())
    values: list[bytes | None] = column.to_pylist()
    return values


def column_values(batch: pa.RecordBatch, name: str | None) -> Sequence[Any]:
    """Return the values of a column; without a name as many nulls. Raises ConnectorError."""
    if name is None:
        return [None] * batch.num_rows
    try:
        values: list[Any] = batch.column(name).to_pylist()
    except UnicodeDecodeError:
        raise ConnectorError(f"column '{name}' holds bytes that are not UTF-8") from None
    return values


def _body(raw: bytes | None, destination: Destination) -> tuple[str, int]:
    """Return the text and its size in bytes. Raises _Bad."""
    if not raw:
        raise _Bad("MissingBody", "body is empty" if raw is not None else "body is null")
    try:
        text = raw.decode()
    except UnicodeDecodeError as undecodable:
        raise _Bad(
            "InvalidMessageContents",
            f"body is not UTF-8 at byte {undecodable.start}; binary data needs base64(body)",
        ) from None
    if not destination.is_topic and not is_sendable(raw):
        raise _Bad(
            "InvalidMessageContents",
            "body holds a character that SQS does not take: of the control characters only tab, "
            "line feed and carriage return, and neither U+FFFE nor U+FFFF",
        )
    return text, len(raw)


def is_sendable(raw: bytes) -> bool:
    """Return True if SQS accepts every character of this UTF-8."""
    if len(raw.translate(None, _CONTROLS)) != len(raw):
        return False
    return raw.isascii() or (_FFFE not in raw and _FFFF not in raw)


def _typed(name: str, value: Mapping[str, Any]) -> tuple[str, tuple[str, str | bytes]]:
    text, data = value.get("string_value"), value.get("binary_value")
    kind = value.get("data_type") or ("String" if data is None else "Binary")
    found: str | bytes | None = data if kind.partition(".")[0] == "Binary" else text
    if found is None:
        raise _Bad(
            "InvalidAttribute", f"message attribute '{name}' is {kind} and has no such value"
        )
    return name, (kind, found)


def size_of_attributes(attributes: Mapping[str, tuple[str, str | bytes]]) -> int:
    """Return the bytes of names, types and values."""
    return sum(
        len(name.encode()) + len(kind) + len(value if isinstance(value, bytes) else value.encode())
        for name, (kind, value) in attributes.items()
    )


_GROUP = "dead-letters"
_GROUP_ID = re.compile("[!-~]{1,128}")
_MOST_REASON = 1024
_MOST_ATTRIBUTES_BYTES = 64 << 10


def dead_letter(row: Row, raw: bytes | None, fault: Fault, queue: Destination) -> Row:
    """Return the message for a refused row, with the reason. The body is the row's, in base64 where
    SQS would refuse the text, and cut where it does not fit beside the attributes;
    ``original_body_bytes`` is then its full length."""
    body, attributes = _letter_body(raw)
    entry = row.entry
    described = {
        "error_code": fault.code,
        "error_message": fault.message[:_MOST_REASON],
        "original_destination": row.destination.address,
        "original_group_id": entry.group_id,
        "original_deduplication_id": entry.deduplication_id,
        "original_attributes": _as_json(entry.attributes),
    }
    attributes |= {name: ("String", _legal(text)) for name, text in described.items() if text}
    body = _fitting(body, attributes)
    letter = MessageEntry(body, attributes)
    if queue.is_fifo:
        # The digest prevents a second letter from a retried task.
        known = json.dumps([body, *sorted((n, str(v)) for n, v in attributes.items())])
        # The row may have been refused for its group.
        is_legal = entry.group_id and _GROUP_ID.fullmatch(entry.group_id)
        letter = letter._replace(
            group_id=entry.group_id if is_legal else _GROUP,
            deduplication_id=hashlib.sha256(known.encode()).hexdigest(),
        )
    size = len(body.encode()) + size_of_attributes(attributes)
    return Row(letter, size, queue, row.position, is_dead_letter=True)


def _letter_body(raw: bytes | None) -> tuple[str, Attributes]:
    if not raw:
        return "(none)", {"body_encoding": ("String", "absent")}
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = ""
    if text and is_sendable(raw):
        return text, {}
    return base64.b64encode(raw).decode(), {"body_encoding": ("String", "base64")}


def _fitting(body: str, attributes: Attributes) -> str:
    """Return as much of the body as fits; adds its full length to the attributes when it is cut."""
    whole = body.encode()
    if len(whole) + size_of_attributes(attributes) <= MOST_QUEUE_BYTES:
        return body
    attributes["original_body_bytes"] = ("Number", str(len(whole)))
    capacity = MOST_QUEUE_BYTES - size_of_attributes(attributes)
    # A multiple of four keeps base64 whole; a character cut in two is left out.
    return whole[: capacity // 4 * 4].decode(errors="ignore")


def _as_json(attributes: Mapping[str, tuple[str, str | bytes]]) -> str:
    if not attributes:
        return ""
    shown = {
        name: [kind, value if isinstance(value, str) else base64.b64encode(value).decode()]
        for name, (kind, value) in attributes.items()
    }
    text = json.dumps(shown)
    return text if len(text) <= _MOST_ATTRIBUTES_BYTES else ""


def _legal(text: str) -> str:
    return text if is_sendable(text.encode()) else ascii(text)


# Groups that a task remembers for checkGroups: they are sent to the driver.
MOST_GROUPS = 100_000


class RowRefused(ConnectorError):
    """A row that can never be sent, without a dead-letter queue."""


class MessageSinkPlan(NamedTuple):
    """The plan of a write, for every task. Picklable."""

    name: str
    settings: MessageSinkSettings
    columns: MessageColumns

    @property
    def sending(self) -> SendSettings:
        """The settings of the tasks' sends."""
        settings = self.settings
        return SendSettings(
            settings.batching,
            window=settings.window,
            max_retries=settings.connection.max_retries,
            most_per_second=settings.most_per_second,
            concurrency=settings.concurrency,
            most_groups=MOST_GROUPS if settings.checks_groups else 0,
            is_routed=self.columns.destination is not None and bool(settings.letters),
            order_by=self.columns.order_by,
            summary_path=settings.summary_path,
        )

    def open(self, identity: Identity) -> Messages:
        """Return the target for the rows of one partition."""
        return Messages(self, identity, shared_transport(self.settings.connection))


def message_sink(name: str, settings: MessageSinkSettings, schema: StructType) -> MessageSinkPlan:
    """Return the plan of a write. Raises BadColumns."""
    return MessageSinkPlan(name, settings, find_columns(schema, settings))


class Messages:
    """Queues or topics as the target of the rows of one partition."""

    def __init__(self, plan: MessageSinkPlan, identity: Identity, transport: Transport) -> None:
        self._settings = plan.settings
        self._columns = plan.columns
        self._identity = identity
        self._transport = transport
        self._letters = plan.settings.letters
        self._destination = _destination(plan.settings, transport)
        self._routed: dict[str, Destination] = {}
        self._position = 0

    def pack(self, batch: pa.RecordBatch) -> Iterator[Row]:
        """Yield each row as a message with its size, in their order, or as the dead letter for one
        that cannot be sent."""
        for start in range(0, batch.num_rows, _SLICE):
            part = batch.slice(start, _SLICE)
            for values in zip(*self._values(part), strict=True):
                yield self._row(*values)
                self._position += 1

    def send(self, destination: Destination, entries: Sequence[MessageEntry]) -> Answers:
        """Send a request: SendMessageBatch or PublishBatch."""
        if destination.is_topic:
            return self._transport.publish(destination.address, entries)
        return self._transport.send(destination.address, entries)

    def refused(self, row: Row, fault: Fault) -> Row:
        """Return the dead letter for a message. Raises RowRefused without a dead-letter queue."""
        return self._set_aside(row, row.entry.body.encode(), fault)

    def _set_aside(self, row: Row, raw: bytes | None, fault: Fault) -> Row:
        """Return the dead letter for a refused row. Raises RowRefused if there can be none."""
        if self._letters and not row.is_dead_letter:
            return dead_letter(row, raw, fault, self._letters)
        where = f"row {row.position} of partition {self._identity.partition}"
        if row.is_dead_letter:
            where += " was refused, and so was its dead letter"
        elif row.entry.group_id:
            where += f", group '{row.entry.group_id}'"
        advice = "" if self._letters else "; deadLetterQueueUrl would set such rows aside"
        raise RowRefused(f"{where}: {fault.code}: {fault.message}{advice}")

    # Building

    def _values(self, batch: pa.RecordBatch) -> list[Sequence[Any]]:
        """Return the columns of a slice, in the order of _row."""
        columns = self._columns
        return [
            _bytes(batch.column(columns.body)),
            column_values(batch, columns.group_id),
            self._ids(batch),
            column_values(batch, columns.attributes),
            column_values(batch, columns.destination),
            column_values(batch, columns.delay_seconds),
            column_values(batch, columns.subject),
            column_values(batch, columns.message_structure),
            column_values(batch, columns.trace_header),
        ]

    def _ids(self, batch: pa.RecordBatch) -> Sequence[str | None]:
        """Return ids from columns; ids of content and position are made for each row."""
        columns = self._columns
        if columns.deduplication == "column":
            return column_values(batch, columns.deduplication_id)
        if columns.deduplication in ("columns", "replay"):
            prefix = self._settings.replay_id or ""
            return ids_of_columns(batch, columns.deduplication_columns, prefix)
        return column_values(batch, None)

    def _row(
        self,
        raw: bytes | None,
        group_id: str | None,
        deduplication_id: str | None,
        given: list[tuple[str, Any]] | None,
        address: str | None,
        *others: Any,
    ) -> Row:
        row = OutgoingRow(_EMPTY, 0, _NOWHERE, self._position)
        try:
            row.destination = self._destination or self._route(address)
            attributes = self._attributes(given) if given else _NOTHING
            # The dead letter contains it, should one of the next checks fail.
            row.entry = MessageEntry("", attributes, group_id, deduplication_id)
            text, size = _body(raw, row.destination)
            row.entry = MessageEntry(text, attributes, group_id, deduplication_id, *others)
            row.entry = self._identified(row, raw or b"")
            row.size = size + len(row.entry.subject or "")
            if row.entry.attributes:
                row.size += size_of_attributes(row.entry.attributes)
            self._check(row)
            return row
        except _Bad as bad:
            fault = bad.fault
        if row.entry is _EMPTY:
            row.entry = MessageEntry("", _NOTHING, group_id, deduplication_id)
        return self._set_aside(row, raw, fault)

    def _route(self, address: str | None) -> Destination:
        if not address:
            column = self._columns.destination
            raise _Bad("MissingDestination", f"column '{column}' says no destination")
        if address not in self._routed:
            self._routed[address] = self._settings.destination(address)
        return self._routed[address]

    def _attributes(self, given: list[tuple[str, Any]]) -> Attributes:
        typed = self._columns.has_typed_attributes
        return dict(
            _typed(n, v) if typed else (n, ("String", v)) for n, v in given if v is not None
        )

    def _identified(self, row: Row, raw: bytes) -> MessageEntry:
        """Return the entry with its deduplication id in the form that the destination needs."""
        entry = row.entry
        found = entry.deduplication_id
        kind = self._columns.deduplication
        if kind == "content":
            found = id_of_content(raw, entry.group_id, entry.attributes)
        elif kind == "position":
            found = id_of_position(self._identity, row.position)
        if row.destination.is_fifo:
            if found is None and kind != "none":
                raise _Bad("MissingDeduplicationId", "message_deduplication_id is null")
            return (
                entry if found == entry.deduplication_id else entry._replace(deduplication_id=found)
            )
        settings, name = self._settings, self._settings.deduplication_attribute
        is_chosen = settings.deduplication or settings.deduplication_columns or settings.replay_id
        if found is None or name is None or not is_chosen:
            return entry if found is None else entry._replace(deduplication_id=None)
        attributes = {**entry.attributes, name: ("String", found)}
        return entry._replace(attributes=attributes, deduplication_id=None)

    def _check(self, row: Row) -> None:
        entry, destination = row.entry, row.destination
        most = destination.most_bytes
        if row.size > most:
            raise _Bad(
                "MessageTooLong",
                f"{row.size} bytes with its attributes; a request to this destination takes {most}",
            )
        if destination.is_fifo:
            _check_fifo(entry)
        if entry.delay_seconds is not None and not 0 <= entry.delay_seconds <= _MOST_DELAY_SECONDS:
            raise _Bad("InvalidDelay", f"delay_seconds {entry.delay_seconds} is not from 0 to 900")


def _destination(settings: MessageSinkSettings, transport: Transport) -> Destination | None:
    if settings.place is not None:
        try:
            url = settings.place.url(transport)
        except Refused as no:
            asked = f"asking for the URL of '{settings.place.name}'"
            raise Refused(no.code, f"{no.message} ({asked})") from None
        return settings.destination(url)._replace(is_fifo=settings.place.is_fifo)
    return None if settings.topic_arn is None else settings.destination(settings.topic_arn)

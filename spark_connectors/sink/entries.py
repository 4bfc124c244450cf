"""Rows of record batches as messages: built, checked and measured before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_connectors.errors import ConnectorError, Fault
from spark_connectors.sink.columns import Columns
from spark_connectors.sink.deduplication import (
    Identity,
    id_of_content,
    id_of_position,
    ids_of_columns,
)
from spark_connectors.sink.options import Settings
from spark_connectors.sink.packing import Destination, Outgoing
from spark_connectors.transport.aws.wire import Entry

if TYPE_CHECKING:
    import pyarrow as pa

Row = Outgoing[Entry]
Attributes = dict[str, tuple[str, str | bytes]]

# Rows that are Python objects at one time, beside the window.
_SLICE = 1000
_MOST_DELAY_SECONDS = 900
_MOST_ID_LENGTH = 128
# What SQS takes of Unicode leaves out these control characters, U+FFFE and U+FFFF.
_CONTROLS = bytes(set(range(0x20)) - {0x09, 0x0A, 0x0D})
_FFFE, _FFFF = b"\xef\xbf\xbe", b"\xef\xbf\xbf"
_NOTHING: Attributes = {}


class Unsendable(NamedTuple):
    """A row that cannot be sent, and why; ``raw`` is its body as it came."""

    row: Row
    raw: bytes | None
    fault: Fault


class _Bad(Exception):
    """A row that the service would refuse, found before it is asked."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.fault = Fault(code, message, is_senders=True)


_RowValues = tuple[
    bytes | None,
    str | None,
    str | None,
    list[tuple[str, Any]] | None,
    int | None,
    str | None,
    str | None,
    str | None,
    str | None,
]


class _Values(NamedTuple):
    """The columns of a slice, a value for each row."""

    body: Sequence[bytes | None]
    group_id: Sequence[str | None]
    deduplication_id: Sequence[str | None]
    attributes: Sequence[list[tuple[str, Any]] | None]
    delay_seconds: Sequence[int | None]
    destination: Sequence[str | None]
    subject: Sequence[str | None]
    message_structure: Sequence[str | None]
    trace_header: Sequence[str | None]


class EntryBuilder:
    """Turns the rows of one partition into what will be sent, in their order."""

    def __init__(
        self,
        settings: Settings,
        columns: Columns,
        *,
        destination: Destination | None,
        identity: Identity,
    ) -> None:
        self._settings = settings
        self._columns = columns
        self._destination = destination
        self._identity = identity
        self._routed: dict[str, Destination] = {}
        self._position = 0

    def rows(self, batch: pa.RecordBatch) -> Iterator[Row | Unsendable]:
        """Each row, measured; or why it cannot be sent."""
        for start in range(0, batch.num_rows, _SLICE):
            part = batch.slice(start, _SLICE)
            for values in zip(*self._values(part), strict=True):
                yield self._row(values)
                self._position += 1

    def _values(self, batch: pa.RecordBatch) -> _Values:
        columns = self._columns
        return _Values(
            body=_bytes(batch.column(columns.body)),
            group_id=_texts(batch, columns.group_id),
            deduplication_id=self._ids(batch),
            attributes=_texts(batch, columns.attributes),
            delay_seconds=_texts(batch, columns.delay_seconds),
            destination=_texts(batch, columns.destination),
            subject=_texts(batch, columns.subject),
            message_structure=_texts(batch, columns.message_structure),
            trace_header=_texts(batch, columns.trace_header),
        )

    def _ids(self, batch: pa.RecordBatch) -> Sequence[str | None]:
        """Ids known from columns; those of content and position come with the row."""
        columns = self._columns
        if columns.deduplication == "column":
            return _texts(batch, columns.deduplication_id)
        if columns.deduplication in ("columns", "replay"):
            prefix = self._settings.replay_id or ""
            return ids_of_columns(batch, columns.deduplication_columns, prefix)
        return _texts(batch, None)

    def _row(self, values: _RowValues) -> Row | Unsendable:
        raw, group_id, deduplication_id, given, delay_seconds, address, *others = values
        row = Outgoing(_EMPTY, 0, _NOWHERE, self._position)
        try:
            row.destination = self._destination or self._route(address)
            attributes = self._attributes(given) if given else _NOTHING
            # The dead letter tells it, should one of the checks that follow fail.
            row.entry = Entry("", attributes, group_id, deduplication_id)
            text, size = _body(raw, row.destination)
            row.entry = Entry(text, attributes, group_id, deduplication_id, delay_seconds, *others)
            row.entry = self._identified(row, raw or b"")
            row.size = size + len(row.entry.subject or "")
            if row.entry.attributes:
                row.size += size_of_attributes(row.entry.attributes)
            self._check(row)
        except _Bad as bad:
            if row.entry is _EMPTY:
                row.entry = Entry("", _NOTHING, group_id, deduplication_id)
            return Unsendable(row, raw, bad.fault)
        return row

    def _route(self, address: str | None) -> Destination:
        if not address:
            column = self._columns.destination
            raise _Bad("MissingDestination", f"column '{column}' says no destination")
        known = self._routed.get(address)
        if known is None:
            known = self._settings.destination(address)
            self._routed[address] = known
        return known

    def _attributes(self, given: list[tuple[str, Any]]) -> Attributes:
        typed = self._columns.has_typed_attributes
        return dict(
            _typed(n, v) if typed else (n, ("String", v)) for n, v in given if v is not None
        )

    def _identified(self, row: Row, raw: bytes) -> Entry:
        """The entry with its deduplication id where the destination wants it."""
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
        name = self._settings.deduplication_attribute
        if found is None or name is None or not self._settings.chooses_ids:
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


_EMPTY = Entry("")
_NOWHERE = Destination("", 0)


def _check_fifo(entry: Entry) -> None:
    if not entry.group_id:
        raise _Bad("MissingGroupId", "a FIFO destination needs message_group_id")
    if entry.deduplication_id is not None and len(entry.deduplication_id) > _MOST_ID_LENGTH:
        raise _Bad("InvalidDeduplicationId", "message_deduplication_id is longer than 128")
    if entry.delay_seconds is not None:
        raise _Bad(
            "InvalidDelay", "a FIFO queue delays no single message: delay_seconds must be null"
        )


def _bytes(column: pa.Array) -> list[bytes | None]:
    """Bodies as bytes, whatever they are: a string of Spark's need not be UTF-8."""
    import pyarrow as pa

    # A view, as a cast would import all compute functions into a worker that needs no other.
    if pa.types.is_string(column.type):
        column = column.view(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.view(pa.large_binary())
    values: list[bytes | None] = column.to_pylist()
    return values


def _texts(batch: pa.RecordBatch, name: str | None) -> Sequence[Any]:
    if name is None:
        return [None] * batch.num_rows
    try:
        values: list[Any] = batch.column(name).to_pylist()
    except UnicodeDecodeError:
        raise ConnectorError(f"column '{name}' holds bytes that are not UTF-8") from None
    return values


def _body(raw: bytes | None, destination: Destination) -> tuple[str, int]:
    """The text and its size in bytes, if it can be sent."""
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
    """Whether SQS takes every character of this UTF-8."""
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
    """Bytes of names, types and values."""
    return sum(
        len(name.encode()) + len(kind) + len(value if isinstance(value, bytes) else value.encode())
        for name, (kind, value) in attributes.items()
    )

"""Calls to the API ``/v1/logs``, with positions in Kafka's JSON and records as batches."""

from __future__ import annotations

import base64
import functools
import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

import pyarrow as pa

from spark_connectors.endpoints import Connection, TransientFailure, json_bytes, json_value, retried
from spark_connectors.errors import ConnectorError, Refused
from spark_connectors.message_rows import (
    BINARY,
    HEADERS,
    INSTANT,
    INTEGER,
    LONG,
    TEXT,
    header_lists,
    spark_schema_of,
    texts,
)
from spark_connectors.transport import open_service

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.types import StructType


# Log -> partition -> next offset.
Positions = dict[str, dict[int, int]]


class BadOffset(ConnectorError):
    """The checkpoint is another source's."""


class Bounds(NamedTuple):
    """The offsets that a partition holds: from ``start`` up to, and without, ``end``."""

    start: int
    end: int


class OffsetSpan(NamedTuple):
    """Offsets of a partition from ``start`` up to, and without, ``stop``. ``may_begin_later``:
    missing records at the start are no loss, because no query had a claim to them."""

    log: str
    partition: int
    start: int
    stop: int
    may_begin_later: bool = False

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.stop - self.start


# Member beside the partitions of a log: its creation time, which tells logs of one name apart.
CREATED_AT = "created_at"


def to_json(positions: Positions, created: Mapping[str, str]) -> dict[str, Any]:
    """Return the positions as Spark stores and compares them, always in the same order.
    ``created``: by log."""
    return {
        log: {str(partition): offset for partition, offset in sorted(offsets.items())}
        | ({CREATED_AT: created[log]} if log in created else {})
        for log, offsets in sorted(positions.items())
    }


def of_json(given: Mapping[str, Any]) -> Positions:
    """Parse positions. Raises BadOffset for an offset of another source."""
    try:
        return {
            log: {int(one): int(offset) for one, offset in offsets.items() if one != CREATED_AT}
            for log, offsets in given.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise BadOffset(
            f"the checkpoint has an offset that is of no log: {given}. A query with another source "
            "needs a checkpoint of its own"
        ) from None


def created_of(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the creation times of the logs in an offset, as far as known."""
    return {log: of[CREATED_AT] for log, of in given.items() if CREATED_AT in of}


def between(start: Positions, end: Positions) -> Iterator[OffsetSpan]:
    """Yield the spans between two positions, in order of log and partition. A partition that
    ``start`` lacks is read from its first record. So is one that ends before its ``start``: its log
    was deleted and created anew."""
    for log, ends in sorted(end.items()):
        begun = start.get(log)
        for partition, stop in sorted(ends.items()):
            at = (begun or {}).get(partition, 0)
            if stop < at:
                yield OffsetSpan(log, partition, 0, stop, may_begin_later=True)
            elif stop > at:
                yield OffsetSpan(log, partition, at, stop, may_begin_later=begun is None)


def lag_of(
    progress: StreamingQueryProgress | Mapping[str, Any], source: int = 0
) -> dict[str, float]:
    """Return the figures that Kafka's source has as metrics, of a source of this progress: the
    least, greatest and average number of records behind, over partitions. Empty before the first
    batch. A source in Python has no metrics of its own. Spark shows the end of its batch and the
    ends of the logs, in the form of Kafka's offsets."""
    shown = progress["sources"][source]
    latest, end = of_json(_offset(shown["latestOffset"])), of_json(_offset(shown["endOffset"]))
    behind = [
        max(0, offset - end.get(log, {}).get(partition, 0))
        for log, by in latest.items()
        for partition, offset in by.items()
    ]
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": float(min(behind)),
        "maxOffsetsBehindLatest": float(max(behind)),
        "avgOffsetsBehindLatest": sum(behind) / len(behind),
    }


def _offset(shown: str | Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Parse an offset, which Spark has as JSON text or as a mapping."""
    return json.loads(shown) if isinstance(shown, str) else shown or {}


# Prefix of the headers that describe the failures of a dead letter, such as ``last_error``.
OF_FAILURE = "queuegate."
# Kafka's LogAppendTime: the log itself sets the time of a record.
_LOG_APPEND_TIME = 1
_SCHEMA = pa.schema(
    [
        ("key", BINARY),
        ("value", BINARY),
        ("topic", TEXT),
        ("partition", INTEGER),
        ("offset", LONG),
        ("timestamp", INSTANT),
        ("timestampType", INTEGER),
    ]
)


class PartitionRecords(NamedTuple):
    """The records of one range in an answer: up to ``next``, in columns. ``start``: the first
    offset that the partition holds."""

    partition: int
    start: int
    next: int
    offsets: list[int]
    published_at: list[int]
    payloads: list[str]
    columns: Mapping[str, Any]

    @property
    def size(self) -> int:
        """The number of records."""
        return len(self.offsets)


def log_arrow_schema(*, has_headers: bool) -> pa.Schema:
    """Return the columns of the source."""
    return _SCHEMA.append(pa.field("headers", HEADERS)) if has_headers else _SCHEMA


def log_spark_schema(*, has_headers: bool) -> StructType:
    """Return the columns of the source for Spark."""
    return spark_schema_of(log_arrow_schema(has_headers=has_headers))


def parts_of(body: bytes) -> list[PartitionRecords]:
    """Parse an answer of the API. Raises TransientFailure for a truncated one."""
    try:
        return [
            PartitionRecords(
                one["partition"],
                one["start"],
                one["next"],
                one["offsets"],
                one["published_at_us"],
                one["payloads"],
                one,
            )
            for one in json_value(body)["ranges"]
        ]
    except (ValueError, KeyError, TypeError):
        raise TransientFailure("the answer has no records") from None


def batch_of(log: str, parts: Sequence[PartitionRecords], *, has_headers: bool) -> pa.RecordBatch:
    """Return all records of these parts, in their order."""
    parts = [part for part in parts if part.size]
    count = sum(part.size for part in parts)
    partitions = array("i")
    for part in parts:
        partitions.extend([part.partition] * part.size)
    arrays = [
        _keys(parts),
        _joined([_values(part) for part in parts]),
        pa.repeat(pa.scalar(log, TEXT), count),
        pa.array(partitions, INTEGER),
        _longs(part.offsets for part in parts),
        _longs(part.published_at for part in parts).cast(INSTANT),
        pa.repeat(pa.scalar(_LOG_APPEND_TIME, INTEGER), count),
    ]
    if has_headers:
        arrays.append(_headers(parts, count))
    return pa.RecordBatch.from_arrays(arrays, schema=log_arrow_schema(has_headers=has_headers))


def _joined(arrays: Sequence[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _longs(lists: Iterable[list[int]]) -> pa.Array:
    return pa.array(array("q", list(chain.from_iterable(lists))), LONG)


def _values(part: PartitionRecords) -> pa.Array:
    encodings = part.columns.get("encodings")
    if encodings is None:
        return texts(part.payloads).cast(BINARY)
    pairs = zip(part.payloads, encodings, strict=True)
    return pa.array(
        [text.encode() if how is None else base64.b64decode(text) for text, how in pairs], BINARY
    )


def _keys(parts: Sequence[PartitionRecords]) -> pa.Array:
    """Return the keys. An empty key is null, as in Kafka."""
    found = []
    for part in parts:
        key = part.columns.get("key")
        if key is None:
            found.append(texts([one or None for one in part.columns["keys"]]).cast(BINARY))
        else:
            found.append(pa.repeat(pa.scalar(key.encode() if key else None, BINARY), part.size))
    return _joined(found)


def _headers(parts: Sequence[PartitionRecords], count: int) -> pa.Array:
    """Return headers by name, with the failures of a dead letter, as in Kafka Connect; null for a
    record without any, as in Kafka's source."""
    if not any(part.columns.keys() & {"metadata", "failures"} for part in parts):
        return pa.nulls(count, HEADERS)
    rows: list[list[tuple[str, bytes | None]] | None] = []
    for part in parts:
        nothing = [None] * part.size
        columns = (part.columns.get(name) or nothing for name in ("metadata", "failures"))
        for metadata, failure in zip(*columns, strict=True):
            failed = {f"{OF_FAILURE}{name}": str(told) for name, told in (failure or {}).items()}
            found = sorted({**(metadata or {}), **failed}.items())
            rows.append([(name, text.encode()) for name, text in found] or None)
    return header_lists(rows)


NO_LOG = "LogDoesNotExist"
_CODES = {
    "400": "InvalidRequest",
    "401": "AccessDenied",
    "403": "AccessDenied",
    "404": NO_LOG,
    "409": "Conflict",
    "413": "TooLarge",
}
_SECONDS = 60.0
_MOST_LOGS = 1_000
_MOST_PARTITIONS = 10_000
# A request has at most 10,000 values.
_MOST_ASKED = 5_000
_MOST_COMMITTED = 3_000
_MOST_BYTES = 4 << 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LogCalls:
    """Calls signed as for SQS, over connections that stay open. Threads may share it. Every call
    raises Refused (code LogDoesNotExist for a missing log) and NotNow."""

    def __init__(self, connection: Connection) -> None:
        """Raises ConnectorError if no endpoint of Queuegate is known."""
        service = open_service(connection)
        if service is None:
            raise ConnectorError(
                "logs are Queuegate's own: endpointUrl, or AWS_ENDPOINT_URL, says where it is"
            )
        self._service = service
        self._max_retries = connection.max_retries

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names of all logs with this prefix."""
        for page in self._pages("", "logs", "log", prefix=prefix, max=_MOST_LOGS):
            yield from (one["log"] for one in page["logs"])

    def bounds(self, log: str) -> tuple[dict[int, Bounds], str | None]:
        """Return the bounds of each partition, by number, and the creation time of the log; None:
        the gateway's version does not report it."""
        kept: dict[int, Bounds] = {}
        path = f"/{quote(log, safe='')}/partitions"
        for page in self._pages(path, "partitions", "partition", max=_MOST_PARTITIONS):
            listed = page["partitions"]
            kept |= {one["partition"]: Bounds(one["start"], one["end"]) for one in listed}
        return kept, page.get("log_created_at")

    def offsets_at(self, log: str, at: int, partitions: Iterable[int]) -> dict[int, int]:
        """Return for each partition the first offset that was published at that time or later, else
        its end. ``at``: milliseconds since the epoch."""
        moment = (_EPOCH + timedelta(milliseconds=at)).isoformat(timespec="milliseconds")
        numbers = sorted(partitions)
        offsets: dict[int, int] = {}
        for first in range(0, len(numbers), _MOST_ASKED):
            part = numbers[first : first + _MOST_ASKED]
            asked = {"partitions": part, "at": moment.replace("+00:00", "Z")}
            found = self._json("POST", f"/{quote(log, safe='')}/offsets", asked)
            offsets |= {one["partition"]: one["offset"] for one in found["offsets"]}
        return offsets

    def read(self, log: str, spans: Sequence[OffsetSpan]) -> list[PartitionRecords]:
        """Return records of these ranges, in their order, as many as one answer holds. The first
        range yields at least one record while it has any."""
        asked: dict[str, object] = {
            "ranges": [
                {"partition": span.partition, "from": span.start, "to": span.stop} for span in spans
            ],
            "max_bytes": _MOST_BYTES,
        }
        body = json_bytes(asked)
        parts: list[PartitionRecords] = self._retried(
            "POST",
            f"/{quote(log, safe='')}/read",
            lambda path: parts_of(self._answer("POST", path, body)),
        )
        return parts

    def publish(self, log: str, records: Sequence[bytes]) -> None:
        """Append all of these records or none, in their order; each is JSON. Records with a known
        id are not added again."""
        self._json(
            "POST", f"/{quote(log, safe='')}/records", b'{"records":[%b]}' % b",".join(records)
        )

    def commit(self, log: str, group: str, offsets: Mapping[int, int]) -> None:
        """Commit the offsets of a group, which is created if it does not exist."""
        path = f"/{quote(log, safe='')}/groups/{quote(group, safe='')}"
        listed = [{"partition": one, "offset": offset} for one, offset in offsets.items()]
        for first in range(0, len(listed), _MOST_COMMITTED):
            part = {"offsets": listed[first : first + _MOST_COMMITTED]}
            try:
                self._json("POST", f"{path}/commit", part)
            except Refused as no:
                if no.code != NO_LOG:
                    raise
                self._json("PUT", path, {})
                self._json("POST", f"{path}/commit", part)

    def close(self) -> None:
        """Close idle connections."""
        self._service.close()

    def _pages(self, path: str, members: str, key: str, **asked: Any) -> Iterator[dict[str, Any]]:
        """Yield the answers of a listing, which are full but for the last one."""
        while True:
            query = urlencode(sorted(asked.items()), quote_via=quote)
            page = self._json("GET", f"{path}?{query}")
            yield page
            if len(page[members]) < asked["max"]:
                return
            asked["after"] = page[members][-1][key]

    def _json(self, method: str, path: str, asked: Mapping[str, object] | bytes = b"") -> Any:
        body = asked if isinstance(asked, bytes) else json_bytes(asked)
        return self._retried(method, path, lambda path: _read(self._answer(method, path, body)))

    def _retried(self, method: str, path: str, attempt: Any) -> Any:
        path = f"/v1/logs{path}"
        return retried(
            functools.partial(attempt, path),
            action=f"{method} {path.partition('?')[0]}",
            place=self._service.endpoint.url,
            max_retries=self._max_retries,
        )

    def _answer(self, method: str, path: str, body: bytes) -> bytes:
        headers = {"content-type": "application/json"} if body else {}
        try:
            return self._service.call(
                headers, body, timeout_seconds=_SECONDS, reader=_said, method=method, path=path
            )
        except Refused as no:
            raise Refused(_CODES.get(no.code, no.code), no.message) from None


@functools.lru_cache(maxsize=8)
def shared_calls(connection: Connection) -> LogCalls:
    """Return one client for this process: Spark reuses its Python workers."""
    return LogCalls(connection)


def _read(body: bytes) -> Any:
    try:
        return json_value(body) if body else None
    except ValueError:
        raise TransientFailure("the answer is not JSON") from None


def _said(body: bytes) -> tuple[str, str] | None:
    found = json_value(body)
    said = found.get("error") if isinstance(found, dict) else None
    return ("", said) if isinstance(said, str) else None

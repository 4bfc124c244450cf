"""Calls to the log's API of one endpoint: Queuegate's ``/v1/logs``."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

from spark_connectors.errors import ConnectorError, Refused
from spark_connectors.log.progress import Bounds, OffsetSpan
from spark_connectors.log.record_columns import PartitionRecords, parts_of
from spark_connectors.transport.aws import Connection, open_service
from spark_connectors.transport.http import json_text
from spark_connectors.transport.http.http_retries import TransientFailure, retried

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
    """Calls signed as for SQS, over connections that stay open. Threads may share it.

    Every call raises Refused (code LogDoesNotExist for a missing log) and
    NotNow.
    """

    def __init__(self, connection: Connection) -> None:
        """Raises ConnectorError if no endpoint of Queuegate is known."""
        service = open_service(connection)
        if service is None:
            raise ConnectorError(
                "logs are Queuegate's own: endpointUrl, or AWS_ENDPOINT_URL, says where it is"
            )
        self._service = service
        self._max_retries = connection.max_retries

    @property
    def place(self) -> str:
        """The endpoint."""
        return self._service.endpoint.url

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names of all logs with this prefix."""
        asked = {"prefix": prefix, "max": _MOST_LOGS}
        while True:
            found = self._json("GET", _query("", asked))["logs"]
            yield from (one["log"] for one in found)
            if len(found) < _MOST_LOGS:
                return
            asked["after"] = found[-1]["log"]

    def bounds(self, log: str) -> tuple[dict[int, Bounds], str | None]:
        """Return the bounds of each partition, by number, and the creation time of the log; None:
        the gateway's version does not report it."""
        asked: dict[str, object] = {"max": _MOST_PARTITIONS}
        kept: dict[int, Bounds] = {}
        while True:
            found = self._json("GET", _query(f"/{quote(log, safe='')}/partitions", asked))
            page = found["partitions"]
            kept |= {one["partition"]: Bounds(one["start"], one["end"]) for one in page}
            if len(page) < _MOST_PARTITIONS:
                return kept, found.get("log_created_at")
            asked["after"] = page[-1]["partition"]

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
        body = json_text.dumps(asked)
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

    def _json(self, method: str, path: str, asked: Mapping[str, object] | bytes = b"") -> Any:
        body = asked if isinstance(asked, bytes) else json_text.dumps(asked)
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
                headers,
                body,
                timeout_seconds=_SECONDS,
                reader=_said,
                method=method,
                path=path,
            )
        except Refused as no:
            raise Refused(_CODES.get(no.code, no.code), no.message) from None


@functools.lru_cache(maxsize=8)
def shared_calls(connection: Connection) -> LogCalls:
    """Return one client for this process: Spark reuses its Python workers."""
    return LogCalls(connection)


def _query(path: str, asked: Mapping[str, object]) -> str:
    return f"{path}?{urlencode(sorted(asked.items()), quote_via=quote)}"


def _read(body: bytes) -> Any:
    try:
        return json_text.loads(body) if body else None
    except ValueError:
        raise TransientFailure("the answer is not JSON") from None


def _said(body: bytes) -> tuple[str, str] | None:
    found = json_text.loads(body)
    said = found.get("error") if isinstance(found, dict) else None
    return ("", said) if isinstance(said, str) else None

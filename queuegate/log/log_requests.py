"""Requests to gateways, their errors, and the records and descriptions that they carry.

Requests are repeated with a growing pause until one answers. Every error is a LogError.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import math
import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypedDict, cast
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    import aiohttp

_INSTANTS = ("_at", "_until")


class LogError(Exception):
    """Base of all errors of this client."""


class Refused(LogError):
    """A refusal by the gateway, in its words. Repeating the request does not help."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


class NotFound(Refused):
    """No such log, group or record exists."""


class Conflict(Refused):
    """The log or group exists with other settings, or another client holds what was to be
    changed."""


class AccessDenied(Refused):
    """Credentials are missing, or do not permit this."""


class Unavailable(LogError):
    """No gateway answered, or each answered "not now", until the client's patience ended."""


class Closed(LogError):
    """This client or subscription was closed."""


class LeaseLost(LogError):
    """The record is no longer leased to this subscriber."""


class Superseded(LeaseLost):
    """The delivery has ended: the record was delivered again, released or deleted."""


class Replaced(LeaseLost):
    """Another client subscribed under the same name: this subscription has ended."""


_BY_STATUS = {401: AccessDenied, 403: AccessDenied, 404: NotFound, 409: Conflict}


def refusal(status: int, text: str) -> Refused:
    """Return the error for a 4xx status."""
    return _BY_STATUS.get(status, Refused)(text, status)


_CONNECT_SECONDS = 5.0
_WRITTEN_AT_ONCE = 1 << 20
READ_SECONDS = 30.0
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 3.0
_LATER = {429, 500, 502, 503, 504}


class ClientCredentials(NamedTuple):
    """A key of `queuegate keys`, or without one an account and a region (None: the gateway's
    own)."""

    api_key: str | None = None
    account: str | None = None
    region: str | None = None

    def headers(self) -> dict[str, str]:
        """Return the headers that the native API expects."""
        if self.api_key:
            return {"X-Api-Key": self.api_key, "Authorization": f"Bearer {self.api_key}"}
        if not (self.account or self.region):
            return {"Authorization": "queuegate.log"}
        # The gateway reads the scope, and not the signature.
        scope = f"{self.account or 'any'}/20300101/{self.region or 'us-east-1'}/sqs/aws4_request"
        signed = "SignedHeaders=host, Signature=" + "0" * 64
        return {"Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, {signed}"}


class ApiAnswer(NamedTuple):
    """The answer to a call, and the number of requests that it took."""

    body: Any
    requests: int
    status: int


class GatewayRequests:
    """All requests of a client. If one of several gateways on a database does not answer, the next
    request goes to another."""

    def __init__(
        self, urls: Sequence[str], credentials: ClientCredentials, patience: float
    ) -> None:
        self._bases = [_base(url) for url in urls]
        if not self._bases:
            raise ValueError("a client needs the URL of a gateway")
        self._headers = credentials.headers()
        self._patience = patience
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def close(self) -> None:
        """Close the connections. Later calls raise Closed."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def ask(
        self,
        method: str,
        *parts: str | int,
        body: object = None,
        params: Mapping[str, Any] | None = None,
        patience: float | None = None,
        read_seconds: float = READ_SECONDS,
    ) -> ApiAnswer:
        """Send a request until an answer decides it. Raises Refused or Unavailable.

        ``parts`` are the parts of the path behind /v1/logs. ``body``: a value to encode, or encoded
        bytes. ``patience``: seconds; None: the client's. ``read_seconds``: the longest silence of a
        gateway before the request goes to another.
        """
        # Imported late: aiohttp takes most of the time to import this package.
        import aiohttp

        path = "".join(f"/{quote(str(part), safe='')}" for part in parts)
        data = body if body is None or isinstance(body, bytes) else encoded(body)
        sent = {name: str(value) for name, value in (params or {}).items() if value is not None}
        timeout = aiohttp.ClientTimeout(sock_connect=_CONNECT_SECONDS, sock_read=read_seconds)
        deadline = monotonic() + (self._patience if patience is None else patience)
        requests = 0
        while True:
            requests += 1
            base = self._bases[0]
            status, text, later = await self._once(
                method, base + path, data, params=sent, timeout=timeout
            )
            if status is not None and status not in _LATER:
                break
            if status is None and base is self._bases[0]:
                self._bases.append(self._bases.pop(0))
            pause = max(later, _pause_seconds(requests))
            if monotonic() + pause > deadline:
                raise Unavailable(f"{base} {_said(status, text)}")
            await asyncio.sleep(pause)
        # A request without an answer may have deleted it: aiohttp, too, repeats requests.
        if status >= 400 and not (status == 404 and method == "DELETE"):
            raise refusal(status, _error_of(text))
        return ApiAnswer(json.loads(text) if text and status < 400 else None, requests, status)

    async def _once(
        self, method: str, url: str, data: bytes | None, **options: Any
    ) -> tuple[int | None, str, float]:
        """Send one request. Returns (status, text, least seconds to wait); status None: no answer,
        and the text says why."""
        import aiohttp

        try:
            # aiohttp warns of large bytes, which it writes in one piece.
            sent = io.BytesIO(data) if data and len(data) > _WRITTEN_AT_ONCE else data
            async with self._opened().request(method, url, data=sent, **options) as response:
                text = await response.text()
                return response.status, text, _seconds(response.headers.get("Retry-After"))
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
            return None, str(error) or type(error).__name__, 0.0
        except TimeoutError:
            return None, "no answer in time", 0.0

    def _opened(self) -> aiohttp.ClientSession:
        import aiohttp

        if self._closed:
            raise Closed("the client is closed")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._headers | {"Content-Type": "application/json"},
                # Each subscription has a pending long poll.
                connector=aiohttp.TCPConnector(limit=0),
            )
        return self._session


def encoded(value: object) -> bytes:
    """Return the value as JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


def _base(url: str) -> str:
    """Return the URL of the logs API. Raises ValueError."""
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole:
        raise ValueError(f"{url!r} is not the URL of a gateway, such as http://127.0.0.1:9324")
    return url.rstrip("/") + "/v1/logs"


def _pause_seconds(requests: int) -> float:
    """Return the pause after that many requests: it doubles, with jitter so that clients do not
    retry together."""
    longest = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * math.exp2(min(requests, 16)))
    return random.uniform(longest / 2, longest)


def _seconds(text: str | None) -> float:
    return min(float(text), READ_SECONDS) if text and text.isdigit() else 0.0


def _said(status: int | None, text: str) -> str:
    if status is None:
        return f"does not answer: {text}"
    return f"answered {status}: {_error_of(text)}"


def _error_of(text: str) -> str:
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return text[:200]


class Backoff(TypedDict):
    """The pause before a released record is delivered again: ``initial`` seconds the first time,
    ``factor`` times as long each time after, at most ``most`` seconds."""

    initial: float
    factor: float
    most: float


class LogSettings(TypedDict, total=False):
    """Settings of a log, in seconds and bytes; None: no bound."""

    retain_consumed: int | None
    """For how long records stay that all groups are done with."""
    max_age: int | None
    max_bytes: int | None


class GroupSettings(TypedDict, total=False):
    """Settings of a group; omitted ones keep the gateway's values."""

    batch_size: int
    """The most outstanding records of a partition; 1 is strict order."""
    visibility_timeout: float
    """Seconds for which a delivered record is hidden from others."""
    max_attempts: int
    backoff: Backoff
    lease: float
    """Seconds after the last sign of life until a subscriber's partitions go to others."""
    dead_letter_log: str
    queue: str | None
    """A queue that gets the records of the group, as messages, instead of subscribers."""


class NewGroup(GroupSettings, total=False):
    """Settings of a new group, and its start."""

    start: Literal["earliest", "latest"] | datetime


class _Built:
    """Built from JSON. Unknown members are ignored."""

    @classmethod
    def of(cls, members: Mapping[str, Any], **more: Any) -> Self:
        """Build one from an answer of a gateway."""
        known, instants = _members(cast("Hashable", cls))
        given = {name: members[name] for name in known if name in members} | more
        for name in instants:
            value = given.get(name)
            if isinstance(value, str):
                given[name] = datetime.fromisoformat(value)
        return cls(**given)


@cache
def _members(kind: Hashable) -> tuple[list[str], list[str]]:
    """Return all members, and those that are instants."""
    names = [one.name for one in fields(cast("Any", kind))]
    return names, [name for name in names if name.endswith(_INSTANTS)]


@dataclass(frozen=True)
class NewRecord:
    """A record to publish. Records of one key stay in order.

    ``id``: a record with the same key and id is not added again. Without one the client makes an
    id.
    """

    payload: str | bytes
    key: str = ""
    id: str | None = None
    metadata: Mapping[str, str] | None = None

    def members(self, new_id: str) -> dict[str, Any]:
        """Return the members of the request."""
        members: dict[str, Any] = {"key": self.key, "id": self.id or new_id}
        payload = self.payload
        if isinstance(payload, bytes):
            try:
                members["payload"] = payload.decode()
            except UnicodeDecodeError:
                members |= {"payload": base64.b64encode(payload).decode(), "encoding": "base64"}
        elif isinstance(payload, str):
            members["payload"] = payload
        else:
            raise TypeError(f"a payload is str or bytes, and not {type(payload).__name__}")
        if self.metadata:
            members["metadata"] = dict(self.metadata)
        return members


@dataclass(frozen=True)
class Published(_Built):
    """The position of a published record. ``duplicate``: a record with the publisher's id
    existed."""

    partition: int
    offset: int
    id: str
    duplicate: bool = False


@dataclass(frozen=True)
class Failure(_Built):
    """The failures of a dead letter."""

    failed_at: datetime
    failure_count: int
    last_error: str | None = None
    original_topic: str | None = None
    original_group: str | None = None
    original_partition: int | None = None
    original_offset: int | None = None


@dataclass
class Record(_Built):
    """A record of a log. ``failure`` is a dead letter's."""

    partition: int
    offset: int
    key: str
    payload: bytes
    id: str | None
    metadata: dict[str, str]
    published_at: datetime
    failure: Failure | None = field(default=None, kw_only=True)

    @property
    def text(self) -> str:
        """Return the payload as text. Raises UnicodeDecodeError for other payloads."""
        return self.payload.decode()

    def json(self) -> Any:
        """Return the payload parsed as JSON."""
        return json.loads(self.payload)

    @classmethod
    def of(cls, members: Mapping[str, Any], **more: Any) -> Self:
        """Build one from an answer of a gateway."""
        payload = members["payload"]
        # A delivery has these among the others.
        failure = members.get("failure") or ("failed_at" in members and members)
        known = {
            "payload": base64.b64decode(payload)
            if members.get("encoding") == "base64"
            else payload.encode(),
            "key": members.get("key") or "",
            "id": members.get("id"),
            "metadata": members.get("metadata") or {},
            "failure": Failure.of(failure) if failure else None,
        }
        return super().of(members, **known, **more)


@dataclass(frozen=True)
class Log(_Built):
    """A log and its size. ``partitions`` is None where each key has its own."""

    log: str
    created_at: datetime
    partitions: int | None
    partition_count: int
    records: int
    bytes: int
    groups: int
    oldest_at: datetime | None = None
    retain_consumed: int | None = None
    max_age: int | None = None
    max_bytes: int | None = None


@dataclass(frozen=True)
class Partition(_Built):
    """A partition: its records have offsets from ``start`` to before ``end``. ``key`` is None
    where keys share it."""

    partition: int
    key: str | None
    start: int
    end: int
    last_published_at: datetime | None = None


@dataclass(frozen=True)
class Subscriber(_Built):
    """A live subscriber of a group, and the number of its partitions."""

    subscriber: str
    live_until: datetime
    partitions: int


@dataclass(frozen=True)
class Group(_Built):
    """A group: its settings and progress. ``lag``: records that it has not finished."""

    group: str
    lag: int
    in_flight: int
    batch_size: int
    visibility_timeout: float
    max_attempts: int
    backoff: Backoff
    lease: float
    dead_letter_log: str | None = None
    queue: str | None = None
    watermark_age_seconds: float | None = None
    subscribers: tuple[Subscriber, ...] = ()

    @classmethod
    def of(cls, members: Mapping[str, Any], **more: Any) -> Self:
        """Build one from an answer of a gateway."""
        found = tuple(Subscriber.of(one) for one in members.get("subscribers", ()))
        return super().of(members, subscribers=found, **more)


@dataclass(frozen=True)
class Progress(_Built):
    """The progress of a group in one partition: finished up to and including offset
    ``watermark``."""

    partition: int
    key: str | None
    watermark: int
    end: int
    lag: int
    in_flight: int
    held_by: str | None = None
    barrier_until: datetime | None = None

"""Connections to the hosts of a database URL: all connections of a process open here.

Each host has its own timeout, ``connect_timeout`` of the URL. Hosts are tried concurrently: the
next one starts when the previous one failed, or has not answered within a short head start.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from weakref import WeakSet

import asyncpg

_HOST_SECONDS = 3.0
_HEAD_START_SECONDS = 0.25
_AGAIN_SECONDS = 0.5
"""Interval of attempts at failed hosts while another one is silent, as in a failover."""
_NAMED_HOST = re.compile(r"\[(?P<v6>[^\]]+)\](?::(?P<v6_port>\d+))?|(?P<name>[^:]*):?(?P<port>.*)")
_BOUND = re.compile(r"(?<=[?&])connect_timeout=([^&]*)(&|$)")
_AT_START = ("application_name", "timezone")
"""Our settings that poolers accept in the first message of a connection."""
# Client-side equivalents of the server's settings (storage.database).
_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}

FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""Exceptions of asyncpg."""
_OF_HOSTS = (
    OSError,
    asyncpg.exceptions.TargetServerAttributeNotMatched,
    asyncpg.CannotConnectNowError,
)
"""Errors after which another host may work."""
_OUTAGES = (
    *_OF_HOSTS,
    asyncpg.PostgresConnectionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.OperatorInterventionError,
    asyncpg.InvalidCatalogNameError,
)
"""Failures that all connections have in common."""
_PAUSE_SECONDS = 0.2
"""Interval of attempts during an outage, per process: each costs the standby a new process."""


class NoHost(OSError):
    """No host of several can be used; the text has a reason for each."""


@dataclass(frozen=True)
class Host:
    """One host of a URL. Without a name asyncpg uses the default server location."""

    name: str | None = None
    port: int | None = None

    def __str__(self) -> str:
        if self.name is None:
            return "the default host"
        return self.name if self.name.startswith("/") else f"{self.name}:{self.port}"


class DatabaseSession(asyncpg.Connection):
    """A connection to one host. A pool takes it back without a reset: all our settings end with
    their transaction, so a reset would only cost a round trip."""

    host = Host()
    hosts: Hosts
    answers = 0

    @property
    def itself(self) -> DatabaseSession:
        """Return this connection. A proxy of the pool forgets it once it is lost."""
        return self

    def answered(self) -> None:
        """Record that the server answered a statement."""
        self.answers += 1

    def get_reset_query(self) -> str:
        """Return no statement."""
        return ""


class Hosts:
    """The hosts of one URL, and their timeout."""

    def __init__(self, url: str) -> None:
        self.url = _BOUND.sub("", url).rstrip("?&")
        self.seconds = _bound_of(url)
        query = parse_qs(urlsplit(url).query)
        self.all = _hosts_of(url, query)
        attributes = query.get("target_session_attrs") or [os.getenv("PGTARGETSESSIONATTRS", "any")]
        self._wanted = attributes[-1]
        self._used: Host | None = None
        self._outage: BaseException | None = None
        """The failure of the last attempt; None after one that a server answered."""
        self._attempt: asyncio.Future[bool] | None = None
        """The one attempt during an outage; its result is False if it was cancelled."""

    async def connect(self, settings: Mapping[str, str], **options: Any) -> DatabaseSession:
        """Open a connection to the first host that fits, with these settings.

        If any server will do, a host is used only after those before it failed, as in asyncpg.
        Otherwise the first one with the wanted attributes is used, and asked first the next time:
        an old primary that comes back believes for a moment that it still is one. During an outage
        callers share one attempt at a time, and its failure.
        """
        while self._attempt is not None:
            if await asyncio.shield(self._attempt) and self._outage is not None:
                raise NoHost(str(self._outage) or type(self._outage).__name__)
        if self._outage is None:
            return await self._noting_outage(settings, options)
        attempt = self._attempt = asyncio.get_running_loop().create_future()
        is_over = False
        try:
            await asyncio.sleep(_PAUSE_SECONDS)
            session = await self._noting_outage(settings, options)
            is_over = True
        except FAILURES:
            is_over = True
            raise
        finally:
            self._attempt = None
            attempt.set_result(is_over)
        return session

    async def _noting_outage(
        self, settings: Mapping[str, str], options: dict[str, Any]
    ) -> DatabaseSession:
        try:
            session = await self._fitting(settings, options)
        except _OUTAGES as error:
            self._outage = error
            raise
        except FAILURES:
            self._outage = None
            raise
        self._outage = None
        return session

    async def _fitting(
        self, settings: Mapping[str, str], options: dict[str, Any]
    ) -> DatabaseSession:
        if self._wanted == "prefer-standby":
            with contextlib.suppress(*_OF_HOSTS):
                return await self._first(settings, {**options, "target_session_attrs": "standby"})
            options["target_session_attrs"] = "any"
        return await self._first(settings, options, in_order=self._wanted == "any")

    async def silent(self) -> list[str]:
        """Return the hosts that do not answer within their timeout."""
        options = {"target_session_attrs": "any"}
        found = await asyncio.gather(
            *(self.connect_to(host, {}, options) for host in self.all), return_exceptions=True
        )
        for one in found:
            if isinstance(one, DatabaseSession):
                one.terminate()
        return [str(one) for one in found if isinstance(one, TimeoutError)]

    async def connect_to(
        self, host: Host, settings: Mapping[str, str], options: Mapping[str, Any]
    ) -> DatabaseSession:
        """Open a connection to this host, within its timeout."""
        session: DatabaseSession | None = None
        named = {} if host.name is None else {"host": host.name, "port": host.port}
        try:
            async with asyncio.timeout(self.seconds):
                session = await asyncpg.connect(
                    self.url,
                    timeout=self.seconds,
                    server_settings={
                        name: settings[name] for name in _AT_START if name in settings
                    },
                    **{"connection_class": DatabaseSession, **named, **options},
                )
                session.host, session.hosts = host, self
                _keep_alive(session)
                await _set(session, settings)
        except BaseException as error:
            if session is not None:
                session.terminate()
            if isinstance(error, TimeoutError):
                text = f"{host} did not answer within {self.seconds:g} s"
                raise TimeoutError(text) from None
            raise
        return session

    async def _first(
        self, settings: Mapping[str, str], options: Mapping[str, Any], *, in_order: bool = False
    ) -> DatabaseSession:
        def attempt(host: Host) -> asyncio.Task[DatabaseSession]:
            return asyncio.create_task(self.connect_to(host, settings, options))

        hosts = self.all if in_order else sorted(self.all, key=lambda host: host != self._used)
        tasks: list[asyncio.Task[DatabaseSession]] = []
        winner: asyncio.Task[DatabaseSession] | None = None
        first: list[asyncio.Task[DatabaseSession]] = []
        try:
            while winner is None:
                pending = [task for task in tasks if not task.done()]
                seconds: float | None = _HEAD_START_SECONDS
                if len(first) < len(hosts):
                    first.append(attempt(hosts[len(first)]))
                    tasks.append(first[-1])
                    pending.append(first[-1])
                elif not pending:
                    raise _failure(hosts, [_error_of(task) for task in tasks])
                if len(first) == len(hosts):
                    is_silent = not in_order and any(not task.done() for task in first)
                    seconds = _AGAIN_SECONDS if is_silent else None
                done, _ = await asyncio.wait(
                    pending, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
                )
                winner = _winner(tasks, in_order=in_order)
                if not done and len(first) == len(hosts):
                    # A standby may be promoted while the primary is silent.
                    tasks = [
                        attempt(host) if task.done() else task
                        for host, task in zip(hosts, tasks, strict=True)
                    ]
        finally:
            for task in tasks:
                if task is not winner:
                    task.cancel()
                    task.add_done_callback(_close)
        session = winner.result()
        self._used = session.host
        return session


def _winner(
    tasks: Sequence[asyncio.Task[DatabaseSession]], *, in_order: bool
) -> asyncio.Task[DatabaseSession] | None:
    for task in tasks:
        if task.done() and _error_of(task) is None:
            return task
        if in_order and not task.done():
            return None
    return None


def _error_of(task: asyncio.Task[DatabaseSession]) -> BaseException | None:
    return asyncio.CancelledError() if task.cancelled() else task.exception()


def _close(task: asyncio.Task[DatabaseSession]) -> None:
    if _error_of(task) is None:
        task.result().terminate()


def _failure(hosts: Sequence[Host], errors: Sequence[BaseException | None]) -> BaseException:
    """Return the error to report if every host failed.

    A refusal by a server is the most informative. Errors of one kind are reported as one.
    """
    found = [error for error in errors if error is not None]
    for error in found:
        if not isinstance(error, _OF_HOSTS):
            return error
    kinds = {type(error) for error in found}
    if len(found) == 1 or (len(kinds) == 1 and TimeoutError not in kinds):
        return found[-1]
    return NoHost("; ".join(map(_told, hosts, found)))


def _told(host: Host, error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return str(error)
    if isinstance(error, asyncpg.exceptions.TargetServerAttributeNotMatched):
        return f"{host} takes no writes"
    return f"{host}: {error}"


def _bound_of(url: str) -> float:
    """Return the timeout of a host in seconds; 0 means the default, not unlimited."""
    found = _BOUND.search(url)
    text = found[1] if found else os.getenv("PGCONNECT_TIMEOUT", "")
    if not re.fullmatch(r"\d{0,4}", text):
        raise asyncpg.exceptions.ClientConfigurationError(
            f"connect_timeout is a number of seconds, and not {text!r}"
        )
    return float(text or 0) or _HOST_SECONDS


def _hosts_of(url: str, query: Mapping[str, list[str]]) -> list[Host]:
    """Return the hosts as asyncpg finds them. Hosts of a service file are one attempt."""
    authority = urlsplit(url).netloc
    text = authority.partition("@")[2] if "@" in authority else authority
    decode: Callable[[str], str] = unquote if text else str
    ports = [] if text else query.get("port", [""])[-1].split(",")
    text = text or query.get("host", [""])[-1]
    if not text and not (query.get("service") or os.getenv("PGSERVICE")):
        text = os.getenv("PGHOST", "")
    if not text:
        return [Host()]
    names = text.split(",")
    if not any(ports):
        ports = []
    defaults = ports or os.getenv("PGPORT", "5432").split(",")
    if len(defaults) == 1:
        defaults *= len(names)
    if len(defaults) != len(names) or not all(names):
        # asyncpg reports the error.
        return [Host()]
    return [
        _host(name, default, decode, has_ports=bool(ports))
        for name, default in zip(names, defaults, strict=True)
    ]


def _host(text: str, default: str, decode: Callable[[str], str], *, has_ports: bool) -> Host:
    if text.startswith("/"):
        return Host(decode(text), int(default))
    found = _NAMED_HOST.fullmatch(text)
    if found is None:
        raise asyncpg.exceptions.ClientConfigurationError(f"{text!r} is no host")
    port = decode(found["v6_port"] or found["port"] or "")
    return Host(
        decode(found["v6"] or found["name"]), int(default if has_ports else port or default)
    )


async def _set(session: DatabaseSession, settings: Mapping[str, str]) -> None:
    """Set in one round trip what poolers refuse in the first message of a connection."""
    later = {name: value for name, value in settings.items() if name not in _AT_START}
    if later:
        await session.execute("".join(f"SET {name} = '{text}';" for name, text in later.items()))


def _keep_alive(session: DatabaseSession) -> None:
    """Detect a dead server, also on a connection that only listens."""
    # asyncpg has no option for it. TLS wraps the transport, but exposes its socket.
    taken: socket.socket | None = session._transport.get_extra_info(  # type: ignore[attr-defined]
        "socket"
    )
    if taken is None or taken.family == socket.AF_UNIX:
        return
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        # Operating systems differ in these options.
        if hasattr(socket, name):
            taken.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


SUSPECT_SECONDS = 3.0
"""A longer statement makes its host suspect."""
_PROBE_SECONDS = 3.0
_BETWEEN_SECONDS = 2.0


class Liveness:
    """The connections of one database, by host. ``ended`` is called with the reason."""

    def __init__(self, ended: Callable[[str], None]) -> None:
        self._ended = ended
        self._open: WeakSet[DatabaseSession] = WeakSet()
        self._probes: dict[Host, asyncio.Task[None]] = {}

    def add(self, session: DatabaseSession) -> DatabaseSession:
        """Watch a connection for as long as it is referenced."""
        self._open.add(session)
        return session

    def suspect(self, host: Host) -> None:
        """Probe the host, unless a probe is in progress or recent."""
        if host not in self._probes:
            task = asyncio.get_running_loop().create_task(self._probe(host))
            self._probes[host] = task
            task.add_done_callback(lambda _: self._probes.pop(host, None))

    def close(self) -> None:
        """Stop all probes."""
        for task in list(self._probes.values()):
            task.cancel()

    async def _probe(self, host: Host) -> None:
        before = self._answers(host)
        # A pool has a URL of its own, of which any will do for one host.
        hosts = next((one.hosts for one in self._open if one.host == host), None)
        if hosts is None:
            return
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                options = {"target_session_attrs": "any"}
                session = await hosts.connect_to(host, {"jit": "off"}, options)
            session.terminate()
        except TimeoutError:
            if self._answers(host) == before:
                self._end(host)
        except FAILURES:
            # A host that refuses is alive, and a lost one ends its connections.
            pass
        await asyncio.sleep(_BETWEEN_SECONDS)

    def _answers(self, host: Host) -> int:
        return max((one.answers for one in self._open if one.host == host), default=0)

    def _end(self, host: Host) -> None:
        self._ended(f"{host} stopped answering, its connections are given up")
        for session in list(self._open):
            if session.host == host:
                session.terminate()

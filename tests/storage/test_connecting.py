"""Hosts of a database URL: found as asyncpg finds them, and each with a bound of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from queuegate.storage import database_hosts, preflight
from queuegate.storage.database import Database
from queuegate.storage.database_hosts import Hosts, NoHost
from queuegate.storage.storage_errors import Unavailable
from tests.ports import reserved_port
from tests.waiting import until_so, yield_turns

URLS = [
    "postgresql://u:p@a:1,b:2/d",
    "postgresql://u:p@a,b:2/d",
    "postgresql://u@[::1]:5,[::2]/d",
    "postgresql://u@%2Fsome%2Fwhere,b/d?port=7",
    "postgresql://u@/d?host=a,b&port=1,2",
    "postgresql://u@/d?host=a:3,/run/x&target_session_attrs=read-write",
    "postgresql://u@/d?host=a&port=9",
    "postgresql://u@/d",
    "postgresql:///d?user=u&connect_timeout=7",
    "postgres://u@a/d?connect_timeout=7&sslmode=disable",
]
VARIABLES = [{}, {"PGHOST": "x,y:8"}, {"PGHOST": "/x", "PGPORT": "6"}, {"PGPORT": "6,7"}]


@pytest.mark.parametrize("variables", VARIABLES, ids=str)
@pytest.mark.parametrize("url", URLS)
async def test_hosts_are_those_of_asyncpg(
    url: str, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PGHOST", "PGPORT", "PGSERVICE", "PGTARGETSESSIONATTRS", "PGCONNECT_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    tried: list[Any] = []

    async def refuse(*, addr: Any, **_: Any) -> None:
        tried.append(addr)
        raise ConnectionRefusedError

    monkeypatch.setattr("asyncpg.connect_utils._connect_addr", refuse)
    theirs = url.replace("connect_timeout=7&", "").replace("&connect_timeout=7", "")
    errors: list[type[BaseException]] = []
    addresses = []
    attempts: list[Callable[[], Awaitable[object]]] = [
        lambda: asyncpg.connect(theirs),
        lambda: Hosts(url).connect({}),
    ]
    for attempt in attempts:
        tried.clear()
        try:
            await attempt()
        except (OSError, ValueError) as error:
            errors.append(ValueError if isinstance(error, ValueError) else OSError)
        addresses.append([*tried])
    assert addresses[0] == addresses[1]
    assert errors[0] == errors[1]


def test_a_bound_is_a_number_of_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGCONNECT_TIMEOUT", raising=False)
    assert Hosts("postgresql://a/d").seconds == 3
    assert Hosts("postgresql://a/d?connect_timeout=0").seconds == 3
    assert Hosts("postgresql://a/d?jit=off&connect_timeout=12").seconds == 12
    assert Hosts("postgresql://a/d?jit=off&connect_timeout=12").url == "postgresql://a/d?jit=off"
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "7")
    assert Hosts("postgresql://a/d").seconds == 7
    for wrong in ("soon", "-1", "1.5"):
        with pytest.raises(ValueError, match="number of seconds"):
            Hosts(f"postgresql://a/d?connect_timeout={wrong}")


class Hanging:
    """A host that says nothing, takes no connection, or stops within its greeting."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._clients: list[socket.socket] = []
        self.ended = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self) -> str:
        if self._kind == "half":
            self._server = await asyncio.start_server(self._greet, "127.0.0.1", 0)
            port = self._server.sockets[0].getsockname()[1]
            return f"127.0.0.1:{port}"
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=0)
        place = self._socket.getsockname()
        if self._kind == "drops":
            # The kernel has room for one more than the backlog says; then it drops what comes.
            for _ in range(2):
                client = socket.socket()
                client.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    client.connect(place)
                self._clients.append(client)
        return f"127.0.0.1:{place[1]}"

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        await reader.readexactly(8)
        writer.write(b"N")
        await reader.readexactly(8)
        # AuthenticationOk, and half of a ParameterStatus.
        writer.write(b"R\0\0\0\x08\0\0\0\0S\0\0\0\x19server_v")
        with contextlib.suppress(ConnectionError):
            await reader.read()
        self.ended += 1

    async def close(self) -> None:
        for client in self._clients:
            client.close()
        if self._kind == "half":
            self._server.close()
            for writer in self._writers:
                writer.close()
        else:
            self._socket.close()


@pytest.fixture(params=["silent", "drops", "half"])
async def hanging(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    host = Hanging(request.param)
    yield await host.open()
    await host.close()


def behind(dsn: str, host: str, **query: object) -> str:
    """The URL with this host before, or instead of (``only``), its own."""
    parts = urlsplit(dsn)
    (folder,) = parse_qs(parts.query)["host"]
    only = query.pop("only", False)
    text = "".join(f"&{name}={value}" for name, value in query.items())
    hosts = host if only else f"{host},{folder}"
    return f"{parts.scheme}://{parts.netloc}{parts.path}?host={hosts}{text}"


async def test_a_host_that_hangs_costs_its_head_start(hanging: str, database_dsn: str) -> None:
    dsn = behind(database_dsn, hanging, target_session_attrs="read-write")
    database = Database(dsn)
    began = time.monotonic()
    await database.open()
    connection = await database.connect({"enable_seqscan": "off"})
    assert time.monotonic() - began < 2.5
    assert await connection.fetchval("SHOW enable_seqscan") == "off"
    await connection.close()
    await database.close()
    await (await preflight.connect(dsn)).close()
    assert time.monotonic() - began < 5
    assert await Hosts(dsn).silent() == [f"{hanging} did not answer within 3 s"]


async def test_hosts_that_all_will_do_are_taken_in_order(hanging: str, database_dsn: str) -> None:
    began = time.monotonic()
    connection = await Hosts(behind(database_dsn, hanging, connect_timeout=1)).connect({})
    assert 0.9 < time.monotonic() - began < 2.5
    await connection.close()


async def test_a_host_alone_has_its_bound(hanging: str, database_dsn: str) -> None:
    dsn = behind(database_dsn, hanging, only=True, connect_timeout=1)
    with pytest.raises(preflight.DatabaseRefused, match=f"{hanging} did not answer within 1 s"):
        await preflight.connect(dsn)
    with pytest.raises(Unavailable):
        await Database(dsn).connect()


async def test_each_host_is_told_of(hanging: str, database_dsn: str) -> None:
    with reserved_port() as port:
        refusing = f"127.0.0.1:{port}"
        dsn = behind(database_dsn, f"{hanging},{refusing}", only=True, connect_timeout=1)
        both = f"{hanging} did not answer within 1 s; {refusing}: "
        with pytest.raises(NoHost, match=both) as told:
            await Hosts(dsn).connect({})
        with pytest.raises(preflight.DatabaseRefused, match=str(told.value)[:40]):
            await preflight.connect(dsn)


async def test_the_hosts_that_lost_are_closed(database_dsn: str) -> None:
    host = Hanging("half")
    dsn = behind(database_dsn, await host.open(), target_session_attrs="primary")
    connection = await Hosts(dsn).connect({})
    await until_so(lambda: host.ended)
    await connection.close()
    await host.close()


async def test_what_a_server_refuses_is_told_and_no_host_is(database_dsn: str) -> None:
    """Two hosts, of which the first is away: the words of the other are the reason."""
    parts = urlsplit(behind(database_dsn, "/nowhere"))
    hosts = Hosts(parts._replace(path="/nothing").geturl())
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await hosts.connect({})
    # While a database is dropped and restored, callers share an attempt.
    shared = await asyncio.gather(hosts.connect({}), hosts.connect({}), return_exceptions=True)
    assert list(map(type, shared)) == [asyncpg.InvalidCatalogNameError, NoHost]


@contextlib.asynccontextmanager
async def closing_each() -> AsyncIterator[tuple[str, list[None]]]:
    """The address of a server that closes each connection, and an entry for each of them."""
    attempts: list[None] = []

    def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        attempts.append(None)
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    async with server:
        yield "{}:{}".format(*server.sockets[0].getsockname()), attempts


async def test_the_host_that_was_used_is_asked_first(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_hosts, "_HEAD_START_SECONDS", 20.0)
    async with closing_each() as (other, attempts):
        hosts = Hosts(behind(database_dsn, other, target_session_attrs="read-write"))
        for _ in range(3):
            await (await hosts.connect({})).close()
        assert len(attempts) == 1


async def test_an_outage_gets_one_attempt_at_a_time() -> None:
    """Many callers ask again and again for a second: each attempt is a process of the standby."""
    async with closing_each() as (address, attempts):
        hosts = Hosts(f"postgresql://u@{address}/d")
        until = time.monotonic() + 1

        async def connect_again() -> int:
            count = 0
            while time.monotonic() < until:
                count += 1
                with pytest.raises((OSError, asyncpg.PostgresConnectionError)):
                    await hosts.connect({})
            return count

        counts = await asyncio.gather(*(connect_again() for _ in range(20)))
        assert min(counts) >= 2
        assert len(attempts) <= 20 + 7


async def test_a_cancelled_attempt_is_followed_by_another(database_dsn: str) -> None:
    with reserved_port() as port:
        hosts = Hosts(behind(database_dsn, f"127.0.0.1:{port}", only=True))
        with pytest.raises(OSError, match="Connect call failed"):
            await hosts.connect({})
        first = asyncio.create_task(hosts.connect({}))
        await yield_turns(2)
        second = asyncio.create_task(hosts.connect({}))
        await yield_turns(2)
        first.cancel()
        with pytest.raises(OSError, match="Connect call failed"):
            await second
    # The failure of an outage holds nobody up after its end.
    hosts.all = Hosts(database_dsn).all
    await (await hosts.connect({})).close()
    await (await hosts.connect({})).close()


class Relay:
    """A host in front of a server, which may freeze: it reads nothing then, and says nothing."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._going = asyncio.Event()
        self._going.set()
        self._taking = asyncio.Event()
        self._taking.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def open(self, port: int = 0) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def freeze(self) -> None:
        self._going.clear()
        self._taking.clear()

    def take_no_more(self) -> None:
        """Let new connections hang, and only those."""
        self._taking.clear()

    async def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.append(writer)
        try:
            await self._taking.wait()
            inner, outer = await asyncio.open_unix_connection(self._path)
            self._writers.append(outer)
            await asyncio.gather(self._pump(reader, outer), self._pump(inner, writer))
        except asyncio.CancelledError:
            # The end of the test.
            pass
        finally:
            writer.close()

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(ConnectionError):
                while data := await source.read(65536):
                    await self._going.wait()
                    target.write(data)
        finally:
            target.close()


async def test_a_promoted_host_is_used_while_another_is_silent(
    hanging: str, database_dsn: str
) -> None:
    """The primary of a failover hangs. Its standby refuses at first, and is promoted meanwhile."""
    (folder,) = parse_qs(urlsplit(database_dsn).query)["host"]
    promoted = Relay(f"{folder}/.s.PGSQL.5432")
    query = {"target_session_attrs": "read-write", "sslmode": "disable", "connect_timeout": 20}
    with reserved_port() as port:
        dsn = behind(database_dsn, f"{hanging},127.0.0.1:{port}", only=True, **query)
        connecting = asyncio.create_task(Hosts(dsn).connect({}))
        await asyncio.wait([connecting], timeout=0.6)
        assert not connecting.done()
        await promoted.open(port)
        async with asyncio.timeout(10):
            connection = await connecting
    assert await connection.fetchval("SHOW transaction_read_only") == "off"
    await connection.close()
    await promoted.close()


@pytest.fixture
async def relay(database_dsn: str) -> AsyncIterator[tuple[Relay, str]]:
    (folder,) = parse_qs(urlsplit(database_dsn).query)["host"]
    relay = Relay(f"{folder}/.s.PGSQL.5432")
    dsn = behind(database_dsn, await relay.open(), only=True, sslmode="disable")
    yield relay, dsn
    await relay.close()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuegate.storage.database.SUSPECT_SECONDS", 0.1)
    monkeypatch.setattr("queuegate.storage.database._WATCH_SECONDS", 0.05)
    monkeypatch.setattr(database_hosts, "_PROBE_SECONDS", 1.0)
    monkeypatch.setattr(database_hosts, "_BETWEEN_SECONDS", 0.05)


async def test_a_host_is_suspected_by_a_connection_that_the_pool_has_lost(
    hurried: None, database_dsn: str
) -> None:
    database = Database(database_dsn)
    await database.open()
    async with database.statements() as pooled:
        pooled.terminate()
        await until_so(lambda: database.liveness._probes)
    await database.close()


async def test_connections_to_a_frozen_host_are_given_up(
    relay: tuple[Relay, str], caplog: pytest.LogCaptureFixture
) -> None:
    """All of them, busy or not, within 10 s."""
    frozen, dsn = relay
    database = Database(dsn)
    await database.open()
    idle = await database.connect()
    frozen.freeze()
    began = time.monotonic()
    with pytest.raises(Unavailable):
        async with database.transaction() as tx:
            await tx.execute("SELECT 1")
    assert time.monotonic() - began < 10
    assert idle.is_closed()
    assert "stopped answering, its connections are given up" in caplog.text
    await database.close()


@pytest.mark.usefixtures("hurried")
async def test_a_statement_that_takes_long_is_left_alone(relay: tuple[Relay, str]) -> None:
    database = Database(relay[1])
    await database.open()
    async with database.transaction() as tx:
        assert await tx.fetchval("SELECT 5 FROM pg_sleep(1.5)") == 5
    await database.close()


@pytest.mark.usefixtures("hurried")
async def test_a_host_that_answers_others_is_left_alone(relay: tuple[Relay, str]) -> None:
    """New connections hang, and statements on those that are there do not."""
    database = Database(relay[1], max_connections=2)
    await database.open()
    async with database.transaction(), database.statements():
        pass
    async with database.transaction() as tx:
        relay[0].take_no_more()
        slow = asyncio.create_task(tx.fetchval("SELECT 5 FROM pg_sleep(2)"))
        while not slow.done():
            async with database.statements() as other:
                await other.fetchval("SELECT 1")
        assert await slow == 5
    await database.close()

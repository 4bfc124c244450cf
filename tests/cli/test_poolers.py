"""Poolers in front of PostgreSQL: one by session will do, any other is told of in one sentence."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlsplit

import pytest

from queuegate.storage import preflight
from tests.cli.processes import Gateway, run
from tests.faces.clients import Sqs, new_account

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter


async def message(reader: Reader) -> tuple[bytes, bytes]:
    """(type, whole message)."""
    head = await reader.readexactly(5)
    return head[:1], head + await reader.readexactly(struct.unpack("!I", head[1:])[0] - 4)


class Pooler:
    """One connection to a server, which each client has for the length of a transaction.

    It takes every startup parameter and forgets it, as poolers do that are told to ignore them.
    """

    def __init__(self, socket_path: str) -> None:
        self._path = socket_path
        self._turn = asyncio.Lock()
        self._server: tuple[Reader, Writer] | None = None
        self._facts = b""
        self._clients: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Hang up everywhere."""
        await asyncio.gather(*self._clients)
        if self._server is not None:
            self._server[1].close()
            await self._server[1].wait_closed()

    async def serve(self, reader: Reader, writer: Writer) -> None:
        """One client, from its first byte to its last."""
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            async with self._turn:
                await self._begin(reader, writer)
            while (first := await message(reader))[0] != b"X":
                async with self._turn:
                    await self._transaction(first, reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def _begin(self, reader: Reader, writer: Writer) -> None:
        startup = await self._startup(reader)
        if startup[4:] == struct.pack("!I", 80877103):
            writer.write(b"N")
            startup = await self._startup(reader)
        if self._server is None:
            self._server = await asyncio.open_unix_connection(self._path)
            await self._authenticate(startup, reader, writer)
        else:
            writer.write(b"R" + struct.pack("!II", 8, 0) + self._facts)
        key = b"K" + struct.pack("!III", 12, 1, 1)
        writer.write(key + b"Z" + struct.pack("!I", 5) + b"I")

    @staticmethod
    async def _startup(reader: Reader) -> bytes:
        size = await reader.readexactly(4)
        return size + await reader.readexactly(struct.unpack("!I", size)[0] - 4)

    async def _authenticate(self, startup: bytes, reader: Reader, writer: Writer) -> None:
        """Let the first client do it, and remember what the server says about itself."""
        assert self._server is not None
        from_server, to_server = self._server
        # Without any parameter but user and database.
        words = startup[8:].split(b"\0")
        given = dict(zip(words[::2], words[1::2], strict=False))
        kept = [word for name in (b"user", b"database") for word in (name, given[name])]
        body = startup[4:8] + b"\0".join(kept) + b"\0\0"
        to_server.write(struct.pack("!I", len(body) + 4) + body)
        while (said := await message(from_server))[0] != b"Z":
            if said[0] == b"S":
                self._facts += said[1]
            if said[0] != b"K":
                writer.write(said[1])
            if said[0] == b"R" and said[1][8] in (10, 11):
                to_server.write((await message(reader))[1])

    async def _transaction(
        self, first: tuple[bytes, bytes], reader: Reader, writer: Writer
    ) -> None:
        assert self._server is not None
        from_server, to_server = self._server
        kind, text = first
        while True:
            to_server.write(text)
            if kind in b"QSH":
                # A flush ends a description, everything else ends when the server is ready.
                ends = b"TnE" if kind == b"H" else b"Z"
                while (said := await message(from_server))[0] not in ends:
                    writer.write(said[1])
                writer.write(said[1])
                if said[1][:1] == b"Z" and said[1][5:] == b"I":
                    return
            kind, text = await message(reader)


@pytest.fixture
async def pooled_dsn(database_dsn: str) -> AsyncIterator[str]:
    """The URL of a pooler in front of a database."""
    parts = urlsplit(database_dsn)
    (folder,) = parse_qs(parts.query)["host"]
    pooler = Pooler(f"{folder}/.s.PGSQL.5432")
    server = await asyncio.start_server(pooler.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    user = parts.netloc.rpartition("@")[0]
    yield f"postgresql://{user}@127.0.0.1:{port}{parts.path}"
    server.close()
    await pooler.close()


async def test_a_pooler_by_transaction_is_one_clear_line(pooled_dsn: str) -> None:
    with pytest.raises(preflight.DatabaseRefused, match="pooler that keeps no session") as refusal:
        await preflight.connect(pooled_dsn)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("command", ["serve", "doctor", "migrate", "worker"])
async def test_each_command_says_so_without_a_traceback(pooled_dsn: str, command: str) -> None:
    place = ["--port", "0"] if command in {"serve", "doctor"} else []
    done = await asyncio.to_thread(run, command, *place, DATABASE_URL=pooled_dsn)
    assert done.returncode == 1
    assert "in session mode" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == (0 if command == "doctor" else 1)


async def test_a_connection_of_its_own_is_let_in(database_dsn: str) -> None:
    connection = await preflight.connect(database_dsn)
    await connection.close()


class Strict:
    """A pooler by session, which takes the startup parameters that PgBouncer does by default.

    ``refused``: a word in a statement, which gets an error instead of an answer.
    """

    ALLOWED = frozenset(
        {
            "user",
            "database",
            "client_encoding",
            "datestyle",
            "timezone",
            "standard_conforming_strings",
            "application_name",
        }
    )

    def __init__(self, socket_path: str) -> None:
        self._path = socket_path
        self._tasks: set[asyncio.Task[None]] = set()
        self.refused = b""

    async def close(self) -> None:
        """Hang up everywhere."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def serve(self, reader: Reader, writer: Writer) -> None:
        """One client, from its first byte to its last."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        to_close = [writer]
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                startup = await Pooler._startup(reader)
                if startup[4:] == struct.pack("!I", 80877103):
                    writer.write(b"N")
                    startup = await Pooler._startup(reader)
                names = {word.decode() for word in startup[8:].split(b"\0")[::2] if word}
                if unknown := names - self.ALLOWED:
                    text = f"unsupported startup parameter: {sorted(unknown)[0]}"
                    writer.write(_error("FATAL", "08P01", text))
                    return
                inner, outer = await asyncio.open_unix_connection(self._path)
                to_close.append(outer)
                outer.write(startup)
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._asked(reader, writer, outer))
                    group.create_task(self._answered(inner, writer))
        except (asyncio.CancelledError, ExceptionGroup):
            pass
        finally:
            for one in to_close:
                one.close()

    async def _asked(self, reader: Reader, writer: Writer, outer: Writer) -> None:
        while True:
            _, text = await message(reader)
            if self.refused and self.refused in text:
                writer.write(_error("ERROR", "42501", "permission denied to set parameter"))
                writer.write(b"Z" + struct.pack("!I", 5) + b"I")
            else:
                outer.write(text)

    async def _answered(self, inner: Reader, writer: Writer) -> None:
        while data := await inner.read(65536):
            writer.write(data)
        raise ConnectionResetError


def _error(severity: str, code: str, text: str) -> bytes:
    fields = f"S{severity}\0V{severity}\0C{code}\0M{text}\0\0".encode()
    return b"E" + struct.pack("!I", len(fields) + 4) + fields


@pytest.fixture
async def strict(database_dsn: str) -> AsyncIterator[tuple[Strict, str]]:
    """A pooler by session in front of a database, and its URL."""
    parts = urlsplit(database_dsn)
    (folder,) = parse_qs(parts.query)["host"]
    pooler = Strict(f"{folder}/.s.PGSQL.5432")
    server = await asyncio.start_server(pooler.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    yield pooler, f"postgresql://{parts.netloc.rpartition('@')[0]}@127.0.0.1:{port}{parts.path}"
    server.close()
    await pooler.close()


async def test_a_pooler_by_session_needs_no_parameters(strict: tuple[Strict, str]) -> None:
    """Sends, receives and probes go through it, as `queuegate doctor` says."""
    _, dsn = strict
    done = await asyncio.to_thread(run, "doctor", "--port", "0", DATABASE_URL=dsn)
    assert done.returncode == 0, done.stdout
    await asyncio.to_thread(_send_and_receive, dsn)


def _send_and_receive(dsn: str) -> None:
    with Gateway(DATABASE_URL=dsn) as gateway, Sqs("json", gateway.url) as sqs:
        url = sqs.create(f"q{new_account()}")
        sqs.send(url)
        assert len(sqs.receive(url)) == 1
        assert gateway.get("/readyz") == (200, '{"status":"ok"}\n')


async def test_what_lanes_are_refused_is_told(strict: tuple[Strict, str]) -> None:
    """By `queuegate doctor`, and by /readyz of a gateway that runs already."""
    pooler, dsn = strict
    gateway = await asyncio.to_thread(lambda: Gateway(DATABASE_URL=dsn))
    try:
        pooler.refused = b"enable_hashjoin"
        done = await asyncio.to_thread(run, "doctor", "--port", "0", DATABASE_URL=dsn)
        assert done.returncode == 1
        assert "permission denied to set parameter" in done.stdout
        status, text = await asyncio.to_thread(gateway.get, "/readyz")
        assert status == 503
        assert "permission denied to set parameter" in text
        pooler.refused = b""
        assert (await asyncio.to_thread(gateway.get, "/readyz"))[0] == 200
    finally:
        await asyncio.to_thread(gateway.__exit__)

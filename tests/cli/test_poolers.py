"""A pooler in front of PostgreSQL that keeps no sessions: told in one sentence at start."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlsplit

import pytest

from storage import preflight
from tests.cli.processes import run

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

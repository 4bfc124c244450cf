"""Ways to hold back the vacuum of a PostgreSQL server: a transaction, readers, slots, a standby.

Each is a context manager over two servers of which it holds the first. The other one has the same
without a snapshot that lasts, so that both have the same work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg

from queuegate.storage.embedded.embedded_server import configuration
from tests.bench.stage import elapse
from tests.standbys import Pair
from tests.waiting import until_async

if TYPE_CHECKING:
    from queuegate.storage.database import Connection

_READ = (Path(__file__).with_name("sql") / "read_messages.sql").read_text(encoding="utf-8")
_SLOT = "held_standby"
_READERS = 4
_READER_SECONDS = 20.0
_READER_PAUSE_SECONDS = 2.0


def settings() -> str:
    """Return the bundled server's configuration, with what replication and statistics need."""
    lines = configuration(100, 1 << 30, ephemeral=False).splitlines()
    replaced = ("include", "wal_level", "max_wal_s", "idle_in_transaction")
    kept = [line for line in lines if not line.startswith(replaced)]
    more = (
        "wal_level = logical",
        "max_wal_senders = 5",
        "max_wal_size = 4GB",
        "shared_preload_libraries = 'pg_stat_statements'",
        "pg_stat_statements.track = all",
    )
    return "\n".join([*kept, *more, ""])


@asynccontextmanager
async def idle_transaction(held: Pair, _: Pair) -> AsyncIterator[None]:
    """One repeatable-read transaction, idle."""
    async with _snapshot(held.url(application_name="report")) as connection:
        yield
        # Nobody has ended it.
        await connection.fetchval("SELECT 1")


@asynccontextmanager
async def readers(held: Pair, other: Pair) -> AsyncIterator[None]:
    """Four readers, whose transactions of 20 s overlap: one of them is always older than 15 s."""
    tasks = [
        asyncio.create_task(_read(pair, number, is_held=pair is held))
        for pair in (held, other)
        for number in range(_READERS)
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        for error in ended:
            if not isinstance(error, asyncio.CancelledError):
                raise RuntimeError("a reader ended early") from error


@asynccontextmanager
async def slots(held: Pair, other: Pair) -> AsyncIterator[None]:
    """A logical slot without a reader, and a physical one that a standby left with its snapshot."""
    connection = await asyncpg.connect(held.url())
    await connection.execute("SELECT pg_create_logical_replication_slot('held_log', 'pgoutput')")
    async with standby(held, other):
        for pair in (held, other):
            await asyncio.to_thread(pair.stop_standby)
        # Without a reader it has a snapshot, too: that of its end.
        await _drop_slot(other, _SLOT)
        yield
    await _drop_slot(held, "held_log")
    await connection.close()


async def _drop_slot(pair: Pair, name: str) -> None:
    async with _connected(pair.url()) as connection:
        await connection.execute("SELECT pg_drop_replication_slot($1)", name)


@asynccontextmanager
async def standby(held: Pair, other: Pair) -> AsyncIterator[None]:
    """A standby that reports the snapshot of its reader to the primary, through a slot."""
    for pair in (held, other):
        connection = await asyncpg.connect(pair.url())
        await connection.execute("SELECT pg_create_physical_replication_slot($1, true)", _SLOT)
        await connection.close()
        more = f"primary_slot_name = '{_SLOT}'\nhot_standby_feedback = on\n"
        await asyncio.to_thread(pair.start_standby, f"{more}wal_receiver_status_interval = 1s\n")
    async with AsyncExitStack() as stack:
        primary = await stack.enter_async_context(_connected(held.url()))
        reading = held.dsn(1, application_name="report")
        ending = asyncio.create_task(_hold_until_ended(reading))
        stack.callback(ending.cancel)
        await until_async(
            lambda: primary.fetchval(
                "SELECT xmin IS NOT NULL FROM pg_replication_slots WHERE slot_name = $1", _SLOT
            )
        )
        yield


HOLDERS: dict[str, Callable[[Pair, Pair], AbstractAsyncContextManager[None]]] = {
    "transaction": idle_transaction,
    "readers": readers,
    "slots": slots,
    "standby": standby,
}


async def _hold_until_ended(url: str) -> None:
    """Hold a snapshot until the task is cancelled or the server stops."""
    async with _snapshot(url) as connection:
        ended = asyncio.Event()
        connection.add_termination_listener(lambda _: ended.set())
        await ended.wait()


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        connection.terminate()


@asynccontextmanager
async def _snapshot(url: str) -> AsyncIterator[Connection]:
    async with _connected(url) as connection:
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        await connection.fetchval(_READ)
        yield connection


async def _read(pair: Pair, number: int, *, is_held: bool) -> None:
    """Read the messages again and again; if ``is_held``, within transactions of 20 s."""
    await elapse(number * _READER_SECONDS / _READERS)
    async with _connected(pair.url(application_name="report")) as connection:
        while True:
            if is_held:
                await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            for _ in range(int(_READER_SECONDS / _READER_PAUSE_SECONDS)):
                await connection.fetchval(_READ)
                await elapse(_READER_PAUSE_SECONDS)
            if is_held:
                await connection.execute("COMMIT")

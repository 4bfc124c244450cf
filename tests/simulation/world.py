"""Gateways on one database that a simulation drives, crashes and opens again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta

from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.queues.receipt_handles import ReceiptHandles
from queuegate.gateway.operations.runtime import background_tasks
from queuegate.gateway.operations.runtime.account_clocks import Clock
from queuegate.gateway.operations.runtime.engine import Engine, EngineRules
from queuegate.storage.database import Database
from queuegate.storage.queue_model import Queue
from tests.engines import engine_on
from tests.simulation.crashing import APPLICATION, CrashingDatabase, Spare
from tests.waiting import yield_turns

CALLER = Caller("111122223333", "eu-west-1", "AIDASIMULATED")
_ENDS_ALL = 100
"""How many crashes there are to one after which nobody has a connection."""


class StandingClock(Clock):
    """Moves only when the simulation says so."""

    def __init__(self) -> None:
        super().__init__()
        self.instant_now = datetime(2030, 1, 1, tzinfo=UTC)

    def now(self) -> datetime | None:
        return self.instant_now

    now_of_sends = now

    def instant(self) -> datetime:
        return self.instant_now

    def seconds(self) -> int:
        return int(self.instant_now.timestamp())

    def pass_seconds(self, seconds: float) -> None:
        self.instant_now += timedelta(milliseconds=round(seconds * 1000))


class World:
    """Two gateways, their clock, and a connection of the observer."""

    busy: str | None = None
    """The queue that all steps are about; None: every one."""
    make_clock: type[StandingClock] = StandingClock

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.clock = self.make_clock()
        self.receipts = ReceiptHandles()
        self.engines: list[Engine] = []
        self._databases: list[CrashingDatabase] = []
        self._spare = Spare()
        self._crashes = 0
        self.observer = Database(dsn, application="observer")

    async def open(self) -> None:
        await self.observer.open()
        for _ in range(2):
            self.engines.append(await self._open_engine())

    async def _open_engine(self) -> Engine:
        database = CrashingDatabase(self.dsn, self._spare)
        await database.open()
        self._databases.append(database)
        return engine_on(
            database,
            self.clock,
            rules=EngineRules(purge_interval_seconds=0, queue_recreate_seconds=0),
            receipts=self.receipts,
        )

    async def close(self) -> None:
        for engine in self.engines:
            await background_tasks.settle()
            await engine.close()
            await engine.database.close()
        self._spare.end()
        await self.observer.close()

    async def queue(self, engine: Engine, name: str) -> Queue:
        return await engine.queues.find(CALLER.account_id, CALLER.region, name)

    async def pass_seconds(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.pass_seconds(seconds)

    def notify_others(self) -> None:
        """Drop the caches of every engine, as a notification does."""
        for engine in self.engines:
            engine.queues.clear()
            engine.topics.clear()
            engine.logs.clear()

    def forget_marks(self) -> None:
        """Forget the low-water marks, as a process does every 30 s and after a clock's move."""
        for engine in self.engines:
            engine.standard.forget_marks()

    async def crash(self) -> None:
        """End both gateways at once with whatever they were doing, and start two new ones."""
        self._crashes += 1
        old, self.engines = self.engines, []
        ending = [one for database in self._databases for one in database.crash()]
        self._databases.clear()
        if self._crashes % _ENDS_ALL == 1:
            self._spare.end()
            await self._end(None)
        elif ending:
            await self._end(ending)
        for engine in old:
            await engine.close()
            await background_tasks.settle()
            self.engines.append(await self._open_engine())

    async def _end(self, backends: list[int] | None) -> None:
        """Those, or every one of the gateways. Returns when they are gone: until then, what they
        were doing may still commit."""
        left = 1
        while left:
            async with self.observer.statements() as connection:
                left = await connection.fetchval(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND application_name = $1"
                    " AND ($2::int[] IS NULL OR pid = ANY ($2::int[]))",
                    APPLICATION,
                    backends,
                )

    async def crash_during(self, turns: int, call: Awaitable[object]) -> object | None:
        """Begin a call and crash after so many turns of the loop; its answer if it had one."""
        task: asyncio.Future[object] = asyncio.ensure_future(_guarded(call))
        await yield_turns(turns)
        was_done = task.done()
        await self.crash()
        result = await task
        return result if was_done and not isinstance(result, Exception) else None

    async def bodies(self, queue: Queue) -> dict[str, str]:
        """body -> message id of all that the database holds for a queue."""
        table = "fifo_messages" if queue.kind.has_groups else "messages"
        async with self.observer.statements() as connection:
            rows = await connection.fetch(
                f"SELECT body, message_id FROM {table} WHERE queue_id = $1", queue.queue_id
            )
        return {row["body"]: str(row["message_id"]) for row in rows}

    async def published(self, topic_name: str, key: str) -> str | None:
        """The message id that a FIFO topic remembers for a deduplication key, if any still."""
        async with self.observer.statements() as connection:
            found = await connection.fetchval(
                "SELECT message_id FROM topic_dedup JOIN topics USING (topic_id)"
                " WHERE topic_name = $1 AND dedup_key = $2::text::uuid AND expires_at > $3",
                topic_name,
                key,
                self.clock.instant_now,
            )
        return None if found is None else str(found)

    async def leases(self, queue_id: int) -> dict[str, tuple[int, datetime]]:
        """body -> (receive count, visible at) of a standard queue."""
        async with self.observer.statements() as connection:
            rows = await connection.fetch(
                "SELECT body, receive_count, visible_at FROM messages WHERE queue_id = $1",
                queue_id,
            )
        return {row["body"]: (row["receive_count"], row["visible_at"]) for row in rows}


async def _guarded(call: Awaitable[object]) -> object:
    try:
        return await call
    except Exception as error:  # noqa: BLE001 - the crash ends it with whatever it ends it with
        return error

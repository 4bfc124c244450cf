"""Puts the engine of a process together, opens it, and takes it apart in order."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import TYPE_CHECKING

from gateway.operations import clock as clocks
from gateway.operations import looking, receiving
from gateway.operations.engine import Engine, Rules
from gateway.operations.in_flight import InFlight
from gateway.operations.limits import LIMITS
from gateway.operations.queue_cache import QueueCache
from gateway.operations.series import Series
from gateway.operations.wakeups import Wakeups
from storage import settings as stored_settings
from storage.database import Database
from storage.fifo import FifoLanes
from storage.messages import StandardLanes

if TYPE_CHECKING:
    from gateway.config import Settings


@contextlib.asynccontextmanager
async def open_engine(settings: Settings, dsn: str) -> AsyncIterator[Engine]:
    """The engine of this process, listening and ready; closed in order at the end."""
    database = Database(dsn, max_connections=settings.max_database_connections)
    await database.open()
    engine = build_engine(settings, database)
    async with database.transaction() as tx:
        engine.clock.set_ahead(await stored_settings.clock_ahead_seconds(tx))
    await engine.wakeups.start()
    try:
        yield engine
    finally:
        engine.stopping = True
        engine.wakeups.wake_all()
        await receiving.settle()
        await engine.standard.close()
        await engine.fifo.close()
        # What the last flushes leased for callers who have gone is given back, too.
        await receiving.settle()
        await engine.wakeups.stop()
        await database.close()


def build_engine(settings: Settings, database: Database) -> Engine:
    """Put the parts together; nothing is connected yet but the pool."""
    clock = clocks.Clock()
    now: Callable[[], datetime | None] = clock.now
    linger = settings.linger_ms / 1000
    series = Series()
    engine = Engine(
        database=database,
        queues=QueueCache(database),
        standard=StandardLanes(database, now, linger_seconds=linger),
        fifo=FifoLanes(database, now, linger_seconds=linger),
        wakeups=Wakeups(database),
        clock=clock,
        series=series,
        in_flight=InFlight(database, LIMITS.in_flight_messages),
        rules=Rules(
            settings.purge_interval_seconds,
            settings.queue_recreate_seconds,
            settings.default_visibility_timeout_seconds,
        ),
    )
    looking.connect(engine)
    for lane in (*engine.standard.lanes, *engine.fifo.lanes):
        lane.observe = series.flush_observer(lane.name).observe
    return engine

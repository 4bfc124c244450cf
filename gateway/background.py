"""The workers that run beside the faces, or alone as ``queuegate worker``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gateway.assembly import open_engine
from scheduler import all_workers
from scheduler.worker import Worker

if TYPE_CHECKING:
    from gateway.config import Settings
    from gateway.operations.engine import Engine


def workers_for(engine: Engine) -> list[Worker]:
    """Every worker, on the engine's database and clock. Any number of processes may run them."""
    return all_workers(
        engine.database,
        engine.clock.now,
        engine.wakeups.arrived,
        queue_recreate_seconds=engine.rules.queue_recreate_seconds,
    )


async def run_workers(settings: Settings, dsn: str, stop: asyncio.Event) -> None:
    """Run the workers without any face until ``stop`` is set."""
    async with open_engine(settings, dsn) as engine:
        workers = workers_for(engine)
        for worker in workers:
            worker.start()
        await stop.wait()
        for worker in workers:
            await worker.stop()

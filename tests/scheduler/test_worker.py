"""The loop of a worker: rounds, pauses, failures, stopping."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from queuegate.gateway.operations.topics.fan_out import copier
from queuegate.scheduler import all_workers
from queuegate.scheduler.replay import ReplayCallbacks
from queuegate.scheduler.worker import IdleProbe, OneClock, Worker, end
from queuegate.storage.database import Database
from queuegate.storage.storage_errors import Unavailable
from tests.scheduler.conftest import StillClock


class ScriptedJob:
    """Does what its script says, round by round; then nothing."""

    name = "scripted"

    def __init__(self, *script: Callable[[int], int], pause_seconds: float = 3600.0) -> None:
        self.script = list(script)
        self.pause_seconds = pause_seconds
        self.rows: list[int] = []

    async def run_round(self, rows: int) -> int:
        self.rows.append(rows)
        return self.script.pop(0)(rows) if self.script else 0


class Rounds:
    """Waits for rounds of a worker's loop by its probe."""

    def __init__(self, worker: Worker) -> None:
        self.results: asyncio.Queue[int] = asyncio.Queue()
        worker.probe = self.results.put_nowait

    async def next(self, count: int) -> list[int]:
        async with asyncio.timeout(10):
            return [await self.results.get() for _ in range(count)]


def fail(error: Exception) -> Callable[[int], int]:
    def failing(rows: int) -> int:
        raise error

    return failing


async def test_full_round_is_followed_by_the_next_at_once() -> None:
    job = ScriptedJob(lambda rows: rows, lambda rows: rows + 1, lambda rows: rows - 1)
    worker = Worker(job, most_rows=10)
    rounds = Rounds(worker)
    worker.start()

    assert await rounds.next(3) == [10, 11, 9]
    assert rounds.results.empty()
    await worker.stop()


async def test_stop_ends_a_long_pause() -> None:
    worker = Worker(ScriptedJob())
    rounds = Rounds(worker)
    worker.start()
    await rounds.next(1)

    async with asyncio.timeout(2):
        await worker.stop()
        await worker.stop()


async def test_cancelled_wait_for_the_end_of_a_task_cancels_the_task() -> None:
    started = asyncio.Event()

    async def last() -> None:
        await asyncio.Event().wait()

    async def wait() -> None:
        started.set()
        await end(task)

    task = asyncio.create_task(last())
    waiting = asyncio.create_task(wait())
    await started.wait()
    waiting.cancel()
    await asyncio.wait([waiting, task], timeout=2)

    assert (waiting.cancelled(), task.cancelled()) == (True, True)


async def test_round_that_takes_too_long_halves_the_next_and_success_grows_it_again() -> None:
    class SlowAtFirst(ScriptedJob):
        async def run_round(self, rows: int) -> int:
            self.rows.append(rows)
            if len(self.rows) <= 3:
                await asyncio.get_running_loop().create_future()
            return rows

    job = SlowAtFirst()
    worker = Worker(job, most_rows=10, deadline_seconds=0.01)

    assert [await worker.run_once() for _ in range(3)] == [0, 0, 0]
    assert job.rows == [10, 5, 2]
    for _ in range(12):
        await worker.run_once()
    assert job.rows[3] == 1
    assert job.rows[-1] == 10


async def test_loop_survives_a_lost_database_and_a_bug(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuegate.scheduler.worker._UNAVAILABLE_PAUSE_SECONDS", 0.0)
    job = ScriptedJob(
        fail(Unavailable("away")), fail(ValueError("a bug")), lambda rows: 3, pause_seconds=0.0
    )
    worker = Worker(job)
    rounds = Rounds(worker)
    with caplog.at_level(logging.WARNING, "queuegate.worker"):
        worker.start()
        assert (await rounds.next(3))[2] == 3
        await worker.stop()

    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]


async def test_every_worker_runs_on_an_empty_database(
    database: Database, clock: StillClock
) -> None:
    moved: list[tuple[int, int]] = []
    workers = all_workers(
        IdleProbe(database),
        OneClock(clock.now),
        lambda *told: moved.append(told),
        ReplayCallbacks(copier),
    )

    assert [await worker.run_once() for worker in workers] == [0] * len(workers)
    assert moved == []
    assert len({worker.job.name for worker in workers}) == len(workers)

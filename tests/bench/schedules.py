"""Schedules: how late they fire, alone and many at the same second, and what a fire costs.

Alone: from the time of the schedule until a waiting receiver has the message. Many: until the
commit of a message can be seen, by somebody who looks again and again.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter, time
from typing import TYPE_CHECKING

import asyncpg

from tests.bench.client import find_handle
from tests.bench.servers import CannotMeasure, database_url
from tests.bench.stage import Bench, Scenario, Stage, elapse, percentile, say

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

ALONE = 60
MANY = (1_000, 50_000)
WAIT_SECONDS = 20
_AHEAD_SECONDS = 5.0
_NEAR_SECONDS = 0.2
_AGAIN_SECONDS = 3_600
_LOOKS = 1_000
"""At most, about, while many are fired: each takes the database some time, too."""
_SECONDS_MAX = 120.0


def _sql(name: str) -> str:
    return (Path(__file__).with_name("sql") / f"{name}.sql").read_text(encoding="utf-8")


def scenarios() -> list[Scenario]:
    """Return the scenarios of this file."""
    return [Scenario("schedules", "schedules: how late 1, 1,000 and 50,000 fire", _schedules)]


async def _schedules(bench: Bench) -> None:
    stage = bench.queuegate
    for _ in range(bench.options.rounds):
        await _alone(stage, max(10, int(ALONE * bench.options.scale)))
        for count in MANY:
            await _together(stage, count)


@asynccontextmanager
async def _scheduled(
    stage: Stage, count: int, *, again_seconds: int
) -> AsyncIterator[tuple[str, str, datetime, "Connection"]]:
    """Schedules that fire at one second, into a queue of their own: its URL, name, and the time."""
    connection = await asyncpg.connect(database_url(stage.server))
    pool = await stage.pool(1)
    try:
        queue_url = await stage.create_queue(pool)
        name = queue_url.rpartition("/")[2]
        inserting = perf_counter()
        # An insert of so many takes a while, too.
        ahead = _AHEAD_SECONDS + count / 5_000
        at = datetime.fromtimestamp(int(time() + ahead + 1), UTC)
        await connection.execute(_sql("add_schedules"), name, count, at, again_seconds)
        if perf_counter() - inserting > ahead:
            raise CannotMeasure(f"{count} schedules were not stored in {ahead:.0f} s")
        try:
            yield queue_url, name, at, connection
        finally:
            await connection.execute(_sql("remove_schedules"))
            await stage.delete_queue(pool, queue_url)
    finally:
        pool.close()
        await connection.close()


async def _alone(stage: Stage, count: int) -> None:
    """One schedule, every second."""
    late = []
    receiving = await stage.pool(1)
    async with _scheduled(stage, 1, again_seconds=1) as (queue_url, _, at, _):
        members = {"QueueUrl": queue_url, "WaitTimeSeconds": WAIT_SECONDS}
        receive = stage.renderer.request("ReceiveMessage", members)
        delete = stage.renderer.deletion(queue_url)
        for _ in range(count):
            handle = find_handle(await receiving.exchange(receive))
            if handle is None:
                raise CannotMeasure("a schedule did not fire")
            late.append(time() - at.timestamp())
            at += timedelta(seconds=1)
            await receiving.exchange(delete(handle))
    receiving.close()
    late.sort()
    p50, p99 = (percentile(late, percent) * 1000 for percent in (50, 99))
    stage.figures.note("schedules/1", p50_ms=p50, p99_ms=p99, operations=count)
    say(f"  schedules/1: late by p50 {p50:.1f} ms, p99 {p99:.1f} ms, {count} fires")


async def _together(stage: Stage, count: int) -> None:
    """So many schedules at one second."""
    late: list[float] = []
    statement = _sql("messages_sent")
    async with _scheduled(stage, count, again_seconds=_AGAIN_SECONDS) as (_, name, at, connection):
        due = at.timestamp()
        # It takes up to three seconds, and the database may still be busy with the insert.
        stage.server.tree.settle(3.0)
        if time() > due - _NEAR_SECONDS:
            raise CannotMeasure("the machine is too busy")
        await elapse(due - time() - _NEAR_SECONDS)
        before = stage.server.tree.usage()
        while len(late) < count:
            row = await connection.fetchrow(statement, name)
            assert row is not None
            sent, instant = row
            late += [instant - due] * (sent - len(late))
            if instant - due > _SECONDS_MAX:
                raise CannotMeasure(f"{len(late)} of {count} schedules fired")
            await elapse(max(0.001, count / 5_000 / _LOOKS))
        spent = stage.server.tree.usage() - before
    p50, p99 = (percentile(late, percent) * 1000 for percent in (50, 99))
    values = {
        "gateway_us": spent.gateway_seconds / count * 1e6,
        "database_us": spent.database_seconds / count * 1e6,
        "total_us": (spent.gateway_seconds + spent.database_seconds) / count * 1e6,
        "p50_ms": p50,
        "p99_ms": p99,
        "operations": count,
    }
    stage.figures.note(f"schedules/{count}", **values)
    say(
        f"  schedules/{count}: late by p50 {p50:.0f} ms, p99 {p99:.0f} ms, all after "
        f"{late[-1] * 1000:.0f} ms; {values['gateway_us']:.0f} + {values['database_us']:.0f} us a "
        "fire"
    )

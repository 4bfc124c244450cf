"""Schedules of the native API: create, put, patch, delete; what they keep and what they refuse."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.schedules.schedule_rules import (
    Expression,
    PatchSchedule,
    QueueTarget,
    ScheduleOptions,
    ScheduleSpec,
    Target,
    View,
    create_schedule,
    delete_schedule,
    get_schedule,
    patch_schedule,
    put_schedule,
)
from queuegate.storage import schedules
from queuegate.storage.storage_errors import (
    InvalidMessageContents,
    InvalidParameterValue,
    Rejected,
)
from tests.operations.conftest import MakeQueue
from tests.operations.world import HostAhead, TestClock, World

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOURLY = Expression("cron", "0 * * * *")
JOB = QueueTarget("orders", b'{"job":  "report"}', {"priority": b"5"})


def spec(
    expression: Expression = HOURLY, target: Target = JOB, name: str = "nightly", **options: Any
) -> ScheduleSpec:
    return ScheduleSpec(name, expression, target, ScheduleOptions(**options))


async def refused(refusal: type[Rejected], call: Any) -> str:
    with pytest.raises(refusal) as caught:
        await call
    return str(caught.value)


def next_fire_at(view: View) -> datetime:
    found = view.schedule.next_fire_at
    assert found is not None
    return found


@pytest.fixture(autouse=True)
async def orders(make_queue: MakeQueue) -> None:
    await make_queue("orders")


async def test_one_of_many_creators_gets_the_name(engine: Engine, caller: Caller) -> None:
    calls = [create_schedule(engine, caller, spec()) for _ in range(5)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == [
        *["ScheduleExists"] * 4,
        "View",
    ]


@pytest.mark.parametrize("name", ["", "a b", "x" * 129, "a/b", "ä", "a\n"])
async def test_names_that_are_refused(engine: Engine, caller: Caller, name: str) -> None:
    text = await refused(InvalidParameterValue, create_schedule(engine, caller, spec(name=name)))
    assert text.startswith("The name of a schedule is 1 to 128 letters")


async def test_a_message_that_the_queue_cannot_take_is_refused(
    engine: Engine, caller: Caller, make_queue: MakeQueue
) -> None:
    await make_queue("small", MaximumMessageSize="1024")
    long = QueueTarget("small", b'"' + b"x" * 900 + b'"', {})
    text = await refused(InvalidParameterValue, create_schedule(engine, caller, spec(target=long)))
    assert text.startswith("the message and its headers have 1037 bytes; queue 'small' takes 1024")
    fits = dataclasses.replace(long, message=long.message[:800] + b'"')
    await create_schedule(engine, caller, spec(target=fits))


async def test_a_character_that_no_queue_takes_is_refused(engine: Engine, caller: Caller) -> None:
    """Neither is it in JSON, but the operation does not rely on its callers."""
    target = dataclasses.replace(JOB, message=b'"\x01"')
    await refused(InvalidMessageContents, create_schedule(engine, caller, spec(target=target)))


async def test_a_fifo_queue_is_found_without_its_suffix(
    engine: Engine, caller: Caller, make_queue: MakeQueue
) -> None:
    await make_queue("bills.fifo")
    target = QueueTarget("bills", b"1", {}, group_id="a")
    view = await create_schedule(engine, caller, spec(target=target))
    assert view.schedule.spec["queue_name"] == "bills"
    assert view.schedule.target["queue_name"] == "bills.fifo"
    alone = dataclasses.replace(target, group_id=None)
    text = await refused(InvalidParameterValue, create_schedule(engine, caller, spec(target=alone)))
    assert text == "a message for a FIFO queue needs a group_id."


async def test_put_of_another_expression_begins_anew(
    engine: Engine, caller: Caller, clock: TestClock
) -> None:
    await put_schedule(engine, caller, spec(Expression("every", "7 minutes")))
    clock.fixed = NOON + timedelta(minutes=3)
    changed, _ = await put_schedule(engine, caller, spec(Expression("every", "8 minutes")))
    assert next_fire_at(changed) == NOON + timedelta(minutes=11)


async def test_put_does_not_bring_back_what_has_fired(world: World) -> None:
    """It fired and was deleted; who puts all schedules every few seconds would fire it again."""
    once = spec(Expression("fire_at", "2026-11-21T12:00:00Z"))
    world.clock.fixed = NOON + timedelta(seconds=5)
    text = await refused(InvalidParameterValue, put_schedule(world.engine, world.caller, once))
    assert text == "This would never fire: its time has passed."
    created = await create_schedule(world.engine, world.caller, once)
    assert created.next_fires == (NOON,)
    assert created.schedule.deletes_itself
    await delete_schedule(world.engine, world.caller, "nightly")
    world.clock.fixed = NOON + timedelta(minutes=2)
    text = await refused(InvalidParameterValue, create_schedule(world.engine, world.caller, once))
    assert "2026-11-21T12:00:00Z is in the past" in text


async def test_patch_reads_the_expression_in_another_timezone(world: World) -> None:
    await create_schedule(world.engine, world.caller, spec(Expression("when", "every day at 9am")))
    patch = PatchSchedule("nightly", timezone="Europe/Berlin")
    patched = await patch_schedule(world.engine, world.caller, patch)
    assert patched.schedule.spec["when"] == "every day at 9am"
    assert next_fire_at(patched) == datetime(2026, 11, 22, 8, tzinfo=UTC)
    patch = PatchSchedule("nightly", form=("cron", "30 9 * * *"))
    patched = await patch_schedule(world.engine, world.caller, patch)
    assert patched.canonical == {"cron": "30 9 * * *", "timezone": "Europe/Berlin"}
    assert "when" not in patched.schedule.spec


async def set_status(engine: Engine, caller: Caller, is_active: bool, **options: Any) -> View:
    patch = PatchSchedule("nightly", options={"is_active": is_active, **options})
    return await patch_schedule(engine, caller, patch)


async def test_a_resumed_schedule_goes_on_with_the_next_time(world: World) -> None:
    await create_schedule(world.engine, world.caller, spec())
    paused = await set_status(world.engine, world.caller, False)
    assert (paused.schedule.is_active, paused.next_fires) == (False, ())
    world.clock.fixed = NOON + timedelta(hours=5, minutes=30)
    resumed = await set_status(world.engine, world.caller, True)
    assert next_fire_at(resumed) == NOON + timedelta(hours=6)


async def test_a_resumed_schedule_that_catches_up_goes_on_where_it_stopped(world: World) -> None:
    await create_schedule(world.engine, world.caller, spec(catchup=True))
    await set_status(world.engine, world.caller, False)
    world.clock.fixed = NOON + timedelta(hours=5, minutes=30)
    resumed = await set_status(world.engine, world.caller, True)
    assert next_fire_at(resumed) == NOON + timedelta(hours=1)


async def test_a_schedule_that_is_resumed_in_time_misses_nothing(
    engine: Engine, caller: Caller, clock: TestClock
) -> None:
    created = await create_schedule(engine, caller, spec(Expression("every", "7 minutes")))
    await set_status(engine, caller, False)
    clock.fixed = NOON + timedelta(minutes=3)
    resumed = await set_status(engine, caller, True)
    assert resumed.next_fires == created.next_fires


async def test_a_single_time_that_passed_in_a_pause_must_be_given_anew(world: World) -> None:
    once = spec(Expression("fire_at", "2026-11-21T13:00:00Z"), is_active=False)
    await create_schedule(world.engine, world.caller, once)
    world.clock.fixed = NOON + timedelta(hours=2)
    text = await refused(InvalidParameterValue, set_status(world.engine, world.caller, True))
    assert text == (
        "The time of this schedule passed while it was paused. Give it another fire_at, or set "
        "catchup to true for it to fire now."
    )
    late = await set_status(world.engine, world.caller, True, catchup=True)
    assert next_fire_at(late) == NOON + timedelta(hours=1)


async def test_resuming_counts_failures_anew(engine: Engine, caller: Caller) -> None:
    created = await create_schedule(engine, caller, spec())
    await fail(engine, created, count=4, is_active=False)
    failed = await get_schedule(engine, caller, "nightly")
    assert (failed.schedule.failure_count, failed.schedule.last_error) == (4, "It broke.")
    put, _ = await put_schedule(engine, caller, spec())
    assert put == failed
    resumed = await set_status(engine, caller, True)
    assert resumed.schedule.failure_count == 0


async def fail(engine: Engine, view: View, *, count: int, is_active: bool) -> None:
    """Store the state of a failed fire that will be tried again."""
    from queuegate.storage import schedule_fires

    schedule = view.schedule
    assert schedule.next_fire_at is not None
    async with engine.database.transaction() as tx:
        found = await schedules.lock(tx, schedule.account_id, schedule.region, None, schedule.name)
        assert found is not None
        left = schedule_fires.Advance(
            found.schedule_id,
            schedule.next_fire_at,
            schedule.next_fire_at + timedelta(seconds=30),
            is_active,
            count,
            "It broke.",
            0,
            0,
            None,
        )
        await schedule_fires.advance(tx, NOON, [left])


async def test_times_count_from_the_clock_of_the_database(engine: Engine, caller: Caller) -> None:
    """The worker fires by the database's clock; a host's clock may be hours away."""
    engine.clock = HostAhead()
    view = await create_schedule(engine, caller, spec(Expression("every", "7 seconds")))
    assert next_fire_at(view) <= view.schedule.created_at + timedelta(seconds=7)
    changed = PatchSchedule("nightly", form=("every", "11 seconds"))
    view = await patch_schedule(engine, caller, changed)
    assert next_fire_at(view) <= view.schedule.modified_at + timedelta(seconds=11)

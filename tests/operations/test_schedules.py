"""Schedules of the native API: create, put, patch, delete; what they keep and what they refuse."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from queuegate.gateway.faces.rest.schedule_endpoints import chosen_form
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.schedules.schedule_rules import (
    Expression,
    PatchSchedule,
    QueueTarget,
    ScheduleOptions,
    ScheduleSpec,
    Target,
    TopicTarget,
    View,
    WorkflowTarget,
    create_schedule,
    delete_schedule,
    get_schedule,
    headers_of,
    message_of,
    patch_schedule,
    put_schedule,
)
from queuegate.storage import schedules
from queuegate.storage.storage_errors import (
    InvalidMessageContents,
    InvalidParameterValue,
    QueueDoesNotExist,
    Rejected,
    ScheduleDoesNotExist,
    ScheduleExists,
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


async def test_a_schedule_is_kept_as_it_was_written(engine: Engine, caller: Caller) -> None:
    created = await create_schedule(engine, caller, spec(catchup=True, failure_threshold=None))
    found = await get_schedule(engine, caller, "nightly")
    assert found == created
    assert message_of(found.schedule) == b'{"job":  "report"}'
    assert headers_of(found.schedule) == b'{"priority":5}'
    assert found.canonical == {"cron": "0 * * * *", "timezone": "UTC"}
    assert found.next_fires == tuple(NOON + timedelta(hours=n) for n in range(1, 6))
    schedule = found.schedule
    assert (schedule.is_active, schedule.catchup, schedule.catchup_limit) == (True, True, 100)
    assert (schedule.failure_threshold, schedule.max_attempts) == (None, 0)
    assert not schedule.deletes_itself


async def test_a_name_is_taken_once_in_an_account_and_region(world: World) -> None:
    elsewhere = dataclasses.replace(world.caller, region="us-east-1")
    event = spec(target=TopicTarget("orders.late", b"1", {}))
    await create_schedule(world.engine, world.caller, event)
    await create_schedule(world.engine, elsewhere, event)
    text = await refused(ScheduleExists, create_schedule(world.engine, world.caller, event))
    assert text == "Schedule nightly already exists."
    await delete_schedule(world.engine, world.caller, "nightly")
    assert (await get_schedule(world.engine, elsewhere, "nightly")).schedule.region == "us-east-1"
    await create_schedule(world.engine, world.caller, event)


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


@pytest.mark.parametrize(
    ("target", "refusal", "text"),
    [
        (
            QueueTarget("nowhere", b"1", {}),
            QueueDoesNotExist,
            "The specified queue does not exist.",
        ),
        (
            dataclasses.replace(JOB, delay=901),
            InvalidParameterValue,
            "delay is 901; allowed is 0 to 900.",
        ),
        (
            dataclasses.replace(JOB, deduplication_id="once"),
            InvalidParameterValue,
            "deduplication_id is for FIFO queues, 'orders' is none.",
        ),
        (
            dataclasses.replace(JOB, headers={"_schedule": b"1"}),
            InvalidParameterValue,
            "The header _schedule is added when the schedule fires: leave it out.",
        ),
        (
            dataclasses.replace(JOB, headers={"AWS.x": b"1"}),
            InvalidParameterValue,
            "The header name `AWS.x` is refused: what begins with AWS. or Amazon. is reserved.",
        ),
        (
            TopicTarget("orders..late", b"1", {}),
            InvalidParameterValue,
            "The routing key is not valid: there is nothing before, after or between its dots. It "
            "is made of segments of letters, digits, hyphens and underscores, with dots between.",
        ),
        (
            TopicTarget("orders.late", b'"' + b"x" * 262_144 + b'"', {}),
            InvalidParameterValue,
            "The message and its headers have 262281 bytes; an event takes 262144.",
        ),
        (
            TopicTarget("orders.late", b"1", {"a^b": b"1"}),
            InvalidParameterValue,
            "The header name `a^b` is refused: allowed are letters, digits, hyphens, "
            "underscores and periods.",
        ),
        (
            WorkflowTarget(),
            InvalidParameterValue,
            "There are no workflows yet that a schedule could start. The kind of a target is queue "
            "or topic.",
        ),
    ],
)
async def test_targets_that_are_refused(
    engine: Engine, caller: Caller, target: Target, refusal: type[Rejected], text: str
) -> None:
    assert await refused(refusal, create_schedule(engine, caller, spec(target=target))) == text
    assert await refused(refusal, put_schedule(engine, caller, spec(target=target))) == text
    await refused(ScheduleDoesNotExist, get_schedule(engine, caller, "nightly"))


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


def test_exactly_one_form_says_when() -> None:
    assert chosen_form({"every": "5m"}) == ("every", "5m")
    with pytest.raises(InvalidParameterValue, match=r"One of cron, .* fire_at is required"):
        chosen_form({})
    with pytest.raises(InvalidParameterValue, match="and cron and when are given"):
        chosen_form({"cron": "* * * * *", "when": "hourly"})


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

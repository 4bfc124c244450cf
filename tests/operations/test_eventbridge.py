"""EventBridge Scheduler without HTTP: times, what is stored, many callers at once, quotas."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from queuegate.gateway.faces.aws.scheduler import aws_schedules
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.schedules import stored_schedules
from queuegate.storage import schedules
from queuegate.storage.model import Schedule
from queuegate.storage.storage_errors import (
    ResourceNotFound,
    ScheduleConflict,
    ScheduleDoesNotExist,
    ScheduleExists,
    ScheduleInvalid,
    ScheduleQuotaExceeded,
)
from tests.operations.conftest import ACCOUNT, REGION
from tests.operations.world import HostAhead, TestClock, World

NOON = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
OFF = {"Mode": "OFF"}
MEMBERS = {
    "window": "FlexibleTimeWindow",
    "group": "GroupName",
    "timezone": "ScheduleExpressionTimezone",
    "starts_at": "StartDate",
    "ends_at": "EndDate",
    "client_token": "ClientToken",
}
FLEXIBLE = {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 10}


def put(expression: str = "rate(1 hour)", **more: Any) -> dict[str, Any]:
    """The members of a request for the schedule ``s``."""
    target = {
        "Arn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:q",
        "RoleArn": f"arn:aws:iam::{ACCOUNT}:role/r",
    }
    given = {"name": "s", "target": target, "window": OFF, **more}
    members = {
        MEMBERS.get(name, name[0].upper() + name[1:]): value for name, value in given.items()
    }
    return {"ScheduleExpression": expression, **members}


async def read(engine: Engine, caller: Caller, name: str = "s") -> Schedule:
    return await stored_schedules.find(engine, caller, name, group=stored_schedules.DEFAULT)


async def listed(engine: Engine, caller: Caller) -> dict[str, Any]:
    return await aws_schedules.list_schedules(engine, caller, {})


async def new_group(engine: Engine, caller: Caller, name: str, token: str | None = None) -> None:
    await stored_schedules.create_group(engine, caller, name, tags={}, client_token=token)


async def created(engine: Engine, caller: Caller, request: dict[str, Any]) -> Schedule:
    await aws_schedules.create_schedule(engine, caller, request)
    return await read(engine, caller, request["Name"])


async def updated(engine: Engine, caller: Caller, request: dict[str, Any]) -> Schedule:
    await aws_schedules.update_schedule(engine, caller, request)
    return await read(engine, caller, request["Name"])


@pytest.mark.parametrize(
    ("request_", "first"),
    [
        (put("rate(1 hour)"), NOON),
        (put("rate(1 hour)", starts_at=NOON + DAY), NOON + DAY),
        (put("rate(1 hour)", starts_at=NOON - MINUTE), NOON + 59 * MINUTE),
        (put("rate(1 hour)", ends_at=NOON - MINUTE), None),
        (put("rate(1 hour)", starts_at=NOON + DAY, ends_at=NOON + DAY + MINUTE), NOON + DAY),
        (put("cron(0 * * * ? *)"), NOON),
        (put("cron(5 * * * ? *)"), NOON + 5 * MINUTE),
        (put("cron(5 * * * ? *)", starts_at=NOON + HOUR), NOON + HOUR + 5 * MINUTE),
        (put("cron(5 * * * ? *)", ends_at=NOON + 4 * MINUTE), None),
        (put("cron(5 * * * ? *)", ends_at=NOON + 5 * MINUTE), NOON + 5 * MINUTE),
        (put("cron(0 14 * * ? *)", timezone="Europe/Warsaw"), NOON + HOUR),
        (put("cron(0 0 1 1 ? 2020)"), None),
        (put("at(2026-11-21T12:00:00)"), NOON),
        (put("at(2026-11-21T11:59:59)"), None),
        (put("at(2026-11-22T12:00:00)", starts_at=NOON + 9 * DAY), NOON + DAY),
        (put("at(2026-11-22T12:00:00)", ends_at=NOON - 9 * DAY), NOON + DAY),
        (put("at(2026-11-21T13:30:00)", timezone="Europe/Warsaw"), NOON + 30 * MINUTE),
        (put("rate(1 hour)", state="DISABLED"), None),
    ],
    ids=lambda value: "",
)
async def test_first_time(world: World, request_: dict[str, Any], first: datetime | None) -> None:
    schedule = await created(world.engine, world.caller, request_)
    assert (schedule.next_fire_at, schedule.due_at) == (first, first)
    assert schedule.is_active == ("State" not in request_)


async def test_a_window_is_drawn_from(engine: Engine, caller: Caller) -> None:
    due = set()
    for number in range(20):
        request = put("at(2026-11-22T12:00:00)", window=FLEXIBLE, name=f"s{number}")
        schedule = await created(engine, caller, request)
        assert schedule.window_seconds == 600
        assert schedule.next_fire_at == NOON + DAY
        assert schedule.due_at is not None
        assert NOON + DAY <= schedule.due_at <= NOON + DAY + 10 * MINUTE
        due.add(schedule.due_at)
    assert len(due) > 10


async def test_what_is_stored_for_whoever_fires(engine: Engine, caller: Caller) -> None:
    target = put()["Target"] | {
        "Input": "hello",
        "RetryPolicy": {"MaximumRetryAttempts": 3},
        "DeadLetterConfig": {"Arn": "arn:aws:sqs:us-west-2:999999999999:dead"},
    }
    schedule = await created(engine, caller, put(target=target, ActionAfterCompletion="DELETE"))
    assert schedule.target["kind"] == "queue"
    assert (schedule.target["queue_name"], schedule.target["body"]) == ("q", "hello")
    assert schedule.dead_letter == {
        "account_id": "999999999999",
        "region": "us-west-2",
        "queue_name": "dead",
    }
    assert (schedule.max_attempts, schedule.max_age_seconds) == (3, 86_400)
    assert (schedule.catchup, schedule.failure_threshold) == (False, None)
    assert schedule.deletes_itself
    # The text of the message is kept once.
    assert schedule.spec["Target"]["Input"] is None
    assert aws_schedules.shown_schedule(schedule)["Target"]["Input"] == "hello"


async def test_an_update_that_keeps_the_expression_keeps_the_times(
    engine: Engine, caller: Caller, clock: TestClock
) -> None:
    first = await created(engine, caller, put("rate(1 hour)", window=FLEXIBLE))
    clock.fixed = NOON + 30 * MINUTE
    schedule = await updated(engine, caller, put("rate(1 hour)", window=FLEXIBLE, description="d"))
    # What was due and nobody has fired yet is still due, at the same instant.
    assert (schedule.next_fire_at, schedule.due_at) == (NOON, first.due_at)
    schedule = await updated(engine, caller, put("rate(1 hour)"))
    assert (schedule.next_fire_at, schedule.due_at) == (NOON, NOON)


async def test_an_update_of_the_expression_begins_now(
    engine: Engine, caller: Caller, clock: TestClock
) -> None:
    await created(engine, caller, put("rate(1 hour)"))
    clock.fixed = NOON + 30 * MINUTE
    schedule = await updated(engine, caller, put("rate(2 hours)"))
    assert schedule.next_fire_at == clock.fixed
    clock.fixed = NOON + 40 * MINUTE
    schedule = await updated(engine, caller, put("rate(2 hours)", starts_at=NOON + DAY))
    assert schedule.next_fire_at == NOON + DAY
    schedule = await updated(engine, caller, put("cron(0 14 * * ? *)", timezone="UTC"))
    assert schedule.next_fire_at == NOON + 2 * HOUR
    schedule = await updated(engine, caller, put("cron(0 14 * * ? *)", timezone="Europe/Warsaw"))
    assert schedule.next_fire_at == NOON + HOUR


async def test_a_schedule_that_was_disabled_goes_on_with_what_is_to_come(world: World) -> None:
    await created(world.engine, world.caller, put("rate(1 hour)"))
    schedule = await updated(world.engine, world.caller, put("rate(1 hour)", state="DISABLED"))
    assert (schedule.is_active, schedule.next_fire_at) == (False, None)
    world.clock.fixed = NOON + 5 * HOUR + MINUTE
    schedule = await updated(world.engine, world.caller, put("rate(1 hour)"))
    assert (schedule.is_active, schedule.next_fire_at) == (True, NOON + 6 * HOUR)


async def test_a_time_that_passed_while_disabled_never_comes(world: World) -> None:
    request = put("at(2026-11-21T13:00:00)")
    await created(world.engine, world.caller, {**request, "State": "DISABLED"})
    world.clock.fixed = NOON + 2 * HOUR
    schedule = await updated(world.engine, world.caller, request)
    assert (schedule.is_active, schedule.next_fire_at) == (True, None)


async def test_another_end(engine: Engine, caller: Caller, clock: TestClock) -> None:
    await created(engine, caller, put("cron(0 18 * * ? *)"))
    schedule = await updated(engine, caller, put("cron(0 18 * * ? *)", ends_at=NOON + HOUR))
    assert (schedule.next_fire_at, schedule.due_at) == (None, None)
    clock.fixed = NOON + DAY
    schedule = await updated(engine, caller, put("cron(0 18 * * ? *)", ends_at=NOON + 9 * DAY))
    assert schedule.next_fire_at == NOON + DAY + 6 * HOUR


async def test_one_of_many_creators_succeeds(engine: Engine, caller: Caller) -> None:
    requests = [put(description=str(number), client_token=str(number)) for number in range(8)]
    results = await asyncio.gather(
        *[aws_schedules.create_schedule(engine, caller, request) for request in requests],
        return_exceptions=True,
    )
    conflicts = [result for result in results if isinstance(result, ScheduleExists)]
    assert len(conflicts) == 7
    won = next(n for n, result in enumerate(results) if isinstance(result, dict))
    assert (await read(engine, caller)).spec["Description"] == str(won)


async def test_many_equal_creators_with_one_token_all_succeed(world: World) -> None:
    request = put(client_token="t")
    results = await asyncio.gather(
        *[aws_schedules.create_schedule(world.engine, world.caller, request) for _ in range(8)]
    )
    assert results == [results[0]] * 8


async def test_a_group_that_is_being_deleted_takes_nothing_new(
    engine: Engine, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "_AT_ONCE", 2)
    await new_group(engine, caller, "g", "t")
    for number in range(3):
        request = put(name=f"s{number}", group="g")
        await aws_schedules.create_schedule(engine, caller, request)
    await stored_schedules.delete_group(engine, caller, "g")
    group = await stored_schedules.find_group(engine, caller, "g")
    assert group.is_deleting
    with pytest.raises(ScheduleConflict, match="is being deleted"):
        await aws_schedules.create_schedule(engine, caller, put(group="g"))
    with pytest.raises(ScheduleConflict, match="already exists"):
        await new_group(engine, caller, "g", "t")
    await stored_schedules.delete_group(engine, caller, "g")


async def test_groups_and_their_schedules_while_the_group_goes(
    engine: Engine, caller: Caller
) -> None:
    """A schedule added while its group is deleted is refused, or is deleted with it."""
    for number in range(10):
        await new_group(engine, caller, "g")
        results = await asyncio.gather(
            aws_schedules.create_schedule(engine, caller, put(group="g", name=f"s{number}")),
            stored_schedules.delete_group(engine, caller, "g"),
            aws_schedules.create_schedule(engine, caller, put(group="g", name=f"t{number}")),
            return_exceptions=True,
        )
        for result in results:
            assert result is None or isinstance(result, dict | ResourceNotFound), result
        page = await listed(engine, caller)
        assert page["Schedules"] == []


async def test_an_account_has_so_many_groups(engine: Engine, caller: Caller) -> None:
    engine.limits = replace(LIMITS, schedule_groups=3)
    for name in ("a", "b", "c"):
        await new_group(engine, caller, name)
    with pytest.raises(ScheduleQuotaExceeded, match="at most 3 schedule groups"):
        await new_group(engine, caller, "d")
    other = replace(caller, region="us-west-2")
    await new_group(engine, other, "d")


async def test_refusals_write_nothing(engine: Engine, caller: Caller) -> None:
    with pytest.raises(ScheduleInvalid):
        await aws_schedules.create_schedule(engine, caller, put("rate(1 seconds)"))
    with pytest.raises(ScheduleDoesNotExist):
        await aws_schedules.update_schedule(engine, caller, put())
    page = await listed(engine, caller)
    assert page == {"Schedules": [], "NextToken": None}


async def test_times_count_from_the_clock_of_the_database(engine: Engine, caller: Caller) -> None:
    engine.clock = HostAhead()
    found = await created(engine, caller, put("rate(1 hour)"))
    assert found.next_fire_at is not None
    assert found.next_fire_at <= found.created_at
    found = await updated(engine, caller, put("rate(2 hours)"))
    assert found.next_fire_at is not None
    assert found.next_fire_at <= found.modified_at

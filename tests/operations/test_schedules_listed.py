"""Lists of schedules and previews of expressions."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.schedules.schedule_rules import (
    Expression,
    ScheduleOptions,
    ScheduleSpec,
    TopicTarget,
    View,
    create_schedule,
    list_schedules,
    preview_schedule,
)
from queuegate.gateway.operations.schedules.stored_schedules import ListSchedules, SchedulePage
from queuegate.storage.storage_errors import InvalidParameterValue

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOURLY = Expression("cron", "0 * * * *")


async def add(engine: Engine, caller: Caller, name: str, **options: Any) -> None:
    """A schedule for a topic."""
    await add_with(engine, caller, name, b"1", **options)


async def add_with(
    engine: Engine, caller: Caller, name: str, message: bytes, **options: Any
) -> None:
    target = TopicTarget("orders.late", message, {})
    spec = ScheduleSpec(name, HOURLY, target, ScheduleOptions(**options))
    await create_schedule(engine, caller, spec)


def names(page: SchedulePage[View]) -> list[str]:
    return [view.schedule.name for view in page.shown]


async def test_a_list_is_in_byte_order_and_of_one_namespace(engine: Engine, caller: Caller) -> None:
    for name in ("b", "a", "B", "a.1", "_"):
        await add(engine, caller, name)
    await add(engine, dataclasses.replace(caller, region="us-east-1"), "elsewhere")
    page = await list_schedules(engine, caller, ListSchedules())
    assert names(page) == ["B", "_", "a", "a.1", "b"]
    assert page.last is None
    assert page.shown[0].human_readable
    assert page.shown[0].next_fires == ()


@pytest.mark.parametrize("count", [49, 50, 51, 120])
async def test_all_pages_together_are_the_list(engine: Engine, caller: Caller, count: int) -> None:
    for number in range(count):
        await add(engine, caller, f"s{number:03}")
    engine.rules.schedule_list_max = 50
    found: list[str] = []
    page = await list_schedules(engine, caller, ListSchedules())
    while page.last is not None:
        assert len(page.shown) == 50
        found += names(page)
        page = await list_schedules(engine, caller, ListSchedules(after=(0, found[-1])))
    assert found + names(page) == [f"s{number:03}" for number in range(count)]
    asked = await list_schedules(engine, caller, ListSchedules(), 3)
    assert (names(asked), asked.last) == (["s000", "s001", "s002"], (0, "s002"))
    asked = await list_schedules(engine, caller, ListSchedules(), 1_000)
    assert len(asked.shown) == min(count, 50)


async def test_long_messages_make_a_list_shorter(engine: Engine, caller: Caller) -> None:
    long = b'"' + b"x" * 250_000 + b'"'
    for number in range(40):
        await add_with(engine, caller, f"s{number:02}", long)
    page = await list_schedules(engine, caller, ListSchedules())
    assert (len(page.shown), page.last) == (33, (0, "s32"))
    page = await list_schedules(engine, caller, ListSchedules(after=(0, names(page)[-1])))
    assert (names(page), page.last) == ([f"s{n}" for n in range(33, 40)], None)


async def test_a_preview_keeps_nothing(engine: Engine, caller: Caller) -> None:
    preview = await preview_schedule(engine, caller, HOURLY)
    assert preview.canonical == {"cron": "0 * * * *", "timezone": "UTC"}
    assert preview.next_fires == tuple(NOON + timedelta(hours=n) for n in range(1, 6))
    assert names(await list_schedules(engine, caller, ListSchedules())) == []


async def test_a_preview_begins_where_it_is_told_to(engine: Engine, caller: Caller) -> None:
    start = datetime(2030, 1, 1, tzinfo=UTC)
    preview = await preview_schedule(engine, caller, Expression("every", "7 minutes"), 2, start)
    assert preview.next_fires == (start + timedelta(minutes=7), start + timedelta(minutes=14))
    none = await preview_schedule(engine, caller, HOURLY, 0)
    assert none.next_fires == ()


@pytest.mark.parametrize(
    "expression",
    [
        HOURLY,
        Expression("cron", "59 23 31 12 *", "Europe/Berlin"),
        Expression("every", "7 minutes"),
        Expression("when", "every weekday at 9am", "Asia/Kathmandu"),
    ],
)
@pytest.mark.parametrize("year", [1, 1582, 1970, 2400, 9997, 9999])
async def test_a_preview_ends_where_the_calendar_does(
    engine: Engine, caller: Caller, expression: Expression, year: int
) -> None:
    start = datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC)
    if not 1970 <= year <= 9998:
        with pytest.raises(InvalidParameterValue) as refused:
            await preview_schedule(engine, caller, expression, 100, start)
        assert str(refused.value) == "from must be between the years 1970 and 9998."
        return
    fires = (await preview_schedule(engine, caller, expression, 100, start)).next_fires
    assert all(fire > start for fire in fires)
    assert len(fires) == 100 or fires[-1].year >= 9998


async def test_a_preview_refuses_what_a_schedule_refuses(engine: Engine, caller: Caller) -> None:
    for expression, text in (
        (Expression("cron", "61 * * * *"), "61"),
        (Expression("every", "0 minutes"), "every"),
        (Expression("when", "whenever you like"), "is not understood. Nearest to it are"),
        (Expression("fire_at", "tomorrow"), "fire_at: 'tomorrow' is no instant"),
        (Expression("cron", "0 9 * * *", "Mars/Olympus"), "Unknown timezone 'Mars/Olympus'"),
    ):
        with pytest.raises(InvalidParameterValue) as refused:
            await preview_schedule(engine, caller, expression)
        assert text in str(refused.value)

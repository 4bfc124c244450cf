"""Schedules and their groups: names, changes, pages, what is told to whom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from queuegate.storage import schedule_fires, schedules
from queuegate.storage.database import Database
from queuegate.storage.model import Schedule
from queuegate.storage.notifications import Notifications
from queuegate.storage.schedule_fires import Fire, NewInvocation
from tests.storage.schedule_factory import ACCOUNT, MINUTE, NOON, REGION, make_schedule
from tests.waiting import until_async

HERE = (ACCOUNT, REGION)


class Replied:
    """Payloads of notifications."""

    def __init__(self) -> None:
        self.payloads: list[str] = []
        self.event = asyncio.Event()

    def __call__(self, payload: str) -> None:
        self.payloads.append(payload)
        self.event.set()

    async def next(self) -> str:
        await asyncio.wait_for(self.event.wait(), 10)
        self.event.clear()
        return self.payloads.pop()


@pytest.fixture
async def heard(database: Database) -> AsyncIterator[Replied]:
    heard = Replied()
    listening = await Notifications.open(database, heard, lambda: None)
    yield heard
    await listening.close()


async def create(database: Database, name: str = "nightly", **members: Any) -> Schedule | None:
    async with database.transaction() as tx:
        return await schedules.create(tx, NOON, make_schedule(name, **members))


async def make_group(database: Database, name: str = "reports") -> int:
    async with database.transaction() as tx:
        made = await schedules.create_group(tx, NOON, *HERE, name)
    assert made is not None
    return made.group_id


async def find(database: Database, name: str, group_id: int | None = None) -> Schedule | None:
    async with database.transaction() as tx:
        return await schedules.find(tx, *HERE, group_id, name)


async def test_a_schedule_is_read_back_as_it_was_created(database: Database) -> None:
    new = make_schedule(
        catchup=True,
        window_seconds=60,
        starts_at=NOON,
        ends_at=NOON + MINUTE * 9,
        max_attempts=3,
        max_age_seconds=60,
        dead_letter={"account_id": ACCOUNT, "region": REGION, "queue_name": "dead"},
        client_token="token",
    )
    async with database.transaction() as tx:
        made = await schedules.create(tx, NOON, new)
    assert made is not None
    assert made == await find(database, "nightly")
    assert asdict(new).items() <= asdict(made).items()
    assert (made.created_at, made.modified_at, made.is_active) == (NOON, NOON, True)
    assert (made.group_name, made.failure_count, made.last_error) == (None, 0, None)
    assert (made.fired_count, made.skipped_count) == (0, 0)
    assert (made.last_fired_at, made.last_scheduled_for) == (None, None)


async def test_a_replacement_keeps_place_and_counts(database: Database) -> None:
    made = await create(database)
    assert made is not None
    async with database.transaction() as tx:
        await tx.execute(
            "UPDATE schedules SET failure_count = 5, fired_count = 7, last_error = 'x'"
        )
        new = make_schedule(
            "ignored",
            is_active=False,
            target={"kind": "topic", "message": "m"},
            due_at=None,
            next_fire_at=None,
        )
        await schedules.replace(tx, NOON + MINUTE, made.schedule_id, new)
    changed = await find(database, "nightly")
    assert changed is not None
    assert (changed.schedule_id, changed.created_at) == (made.schedule_id, NOON)
    assert (changed.modified_at, changed.is_active) == (NOON + MINUTE, False)
    assert (changed.failure_count, changed.fired_count, changed.last_error) == (0, 7, "x")
    assert (changed.target["kind"], changed.next_fire_at) == ("topic", None)


async def test_every_change_is_told_to_all_processes(database: Database, heard: Replied) -> None:
    made = await create(database)
    assert made is not None
    assert await heard.next() == "* S 0:1"
    async with database.transaction() as tx:
        await schedules.replace(tx, NOON, made.schedule_id, make_schedule())
    assert await heard.next() == "* S 0:1"
    async with database.transaction() as tx:
        await schedules.set_state(
            tx, NOON, made.schedule_id, is_active=False, next_fire_at=None, due_at=None
        )
    assert await heard.next() == "* S 0:1"
    async with database.transaction() as tx:
        assert await schedules.delete(tx, made.schedule_id)
    assert await heard.next() == "* S 0:1"
    async with database.transaction() as tx:
        assert not await schedules.delete(tx, made.schedule_id)


async def test_a_schedule_has_a_time_and_an_instant_to_fire_or_neither(
    database: Database,
) -> None:
    with pytest.raises(asyncpg.CheckViolationError, match="schedules_due"):
        await create(database, due_at=None)


async def test_the_default_group_is_there_when_it_is_asked_for(database: Database) -> None:
    async def ask() -> int:
        async with database.transaction() as tx:
            return (await schedules.ensure_default(tx, NOON, *HERE)).group_id

    assert len(set(await asyncio.gather(*[ask() for _ in range(5)]))) == 1


async def until_somebody_waits(database: Database) -> None:
    """Return when a transaction waits for a lock."""
    watcher = await database.connect()
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        " AND datname = current_database()"
    )
    await until_async(lambda: watcher.fetchval(waiting))
    await watcher.close()


async def test_a_new_schedule_of_a_group_that_is_being_deleted_is_waited_for(
    database: Database,
) -> None:
    group_id = await make_group(database)
    async with database.transaction() as tx:
        assert await schedules.share_group(tx, *HERE, "reports") is not None
        await schedules.create(tx, NOON, make_schedule(group_id=group_id))

        async def delete() -> bool:
            async with database.transaction() as other:
                await schedules.lock_group(other, *HERE, "reports")
                return await schedules.delete_group(other, NOON, group_id)

        deleting = asyncio.create_task(delete())
        await until_somebody_waits(database)
    assert await deleting
    assert await find(database, "nightly", group_id) is None


async def test_who_is_being_fired_is_waited_for(database: Database) -> None:
    """A change sees what came of the fire; a fire passes over what is being changed."""
    await create(database)
    async with database.transaction() as tx:
        [claimed] = await schedule_fires.claim(tx, NOON + MINUTE, 10)

        async def change() -> int:
            async with database.transaction() as other:
                locked = await schedules.lock(other, *HERE, None, "nightly")
                assert locked is not None
                return locked.fired_count

        changing = asyncio.create_task(change())
        async with database.transaction() as other:
            assert await schedule_fires.claim(other, NOON + MINUTE, 10) == []
        row = schedule_fires.Advance(
            claimed.schedule_id, NOON + MINUTE * 2, NOON + MINUTE * 2, True, 0, None, 1, 0, NOON
        )
        await schedule_fires.advance(tx, NOON + MINUTE, [row])
    assert await changing == 1
    async with database.transaction() as tx:
        assert await schedules.lock(tx, *HERE, None, "nightly") is not None
        async with database.transaction() as other:
            assert await schedule_fires.claim(other, NOON + MINUTE * 2, 10) == []


async def test_long_targets_are_claimed_a_few_at_a_time(database: Database) -> None:
    for number in range(5):
        target = {"kind": "queue", "body": "x" * (6 << 20)}
        await create(database, f"s{number}", target=target)
    async with database.transaction() as tx:
        assert len(await schedule_fires.claim(tx, NOON + MINUTE, 10)) == 3


async def look(database: Database, seconds: float) -> tuple[bool, float | None]:
    async with database.transaction() as tx:
        return await schedule_fires.poll(tx, NOON + MINUTE / 60 * seconds)


async def test_a_look_tells_what_is_due_and_when_the_next_is(database: Database) -> None:
    assert await look(database, 0) == (False, None)
    made = await create(database)
    assert made is not None
    await create(database, "later", due_at=NOON + MINUTE * 2, next_fire_at=NOON + MINUTE * 2)
    await create(database, "paused", is_active=False)
    assert await look(database, 59.5) == (False, 0.5)
    assert await look(database, 60) == (True, 60)
    assert await look(database, 121) == (True, None)


async def keep_invocation(database: Database, **members: Any) -> None:
    fire = Fire(7, *HERE, "reports", "nightly", {"kind": "queue", "body": "ä"}, NOON, str(uuid4()))
    values = {"max_attempts": 3, "age_seconds": 600, "delay_seconds": 1.5, "dead_letter": None}
    async with database.transaction() as tx:
        await schedule_fires.insert_invocations(
            tx, NOON, [NewInvocation(fire, **{**values, **members})]
        )


async def test_invocations_are_kept_postponed_and_removed(database: Database) -> None:
    dead = {"account_id": ACCOUNT, "region": REGION, "queue_name": "dead"}
    await keep_invocation(database, dead_letter=dead)
    assert await look(database, 0) == (False, 1.5)
    async with database.transaction() as tx:
        assert await schedule_fires.claim_invocations(tx, NOON + MINUTE / 60, 10) == []
        [one] = await schedule_fires.claim_invocations(tx, NOON + MINUTE, 10)
        async with database.transaction() as other:
            assert await schedule_fires.claim_invocations(other, NOON + MINUTE, 10) == []
        assert (one.fire.schedule_id, one.fire.name, one.fire.group_name) == (
            7,
            "nightly",
            "reports",
        )
        assert (one.fire.attempt, one.max_attempts, one.dead_letter) == (2, 3, dead)
        assert one.fire.target["body"] == "ä"
        assert one.expires_at == NOON + MINUTE * 10
        await schedule_fires.postpone_invocations(tx, NOON + MINUTE, [(one.invocation_id, 6.0)])
        assert await schedule_fires.claim_invocations(tx, NOON + MINUTE, 10) == []
        [again] = await schedule_fires.claim_invocations(tx, NOON + MINUTE * 1.1, 10)
        assert again.fire == one.fire._replace(attempt=3)
        await schedule_fires.remove_invocations(tx, [one.invocation_id])
        assert await schedule_fires.claim_invocations(tx, NOON + MINUTE * 2, 10) == []

"""One look for all workers: what it finds, and who sleeps until it does."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from queuegate.gateway.operations.telemetry.series import ScheduleSeries
from queuegate.scheduler.schedule_worker import FireOptions, FireSchedules
from queuegate.scheduler.worker import IdleProbe, OneClock, Worker
from queuegate.storage import pending_work, schedule_fires
from queuegate.storage.database import Database
from queuegate.storage.pending_work import EVERY_PENDING_WORK, PendingWork
from queuegate.storage.schedule_fires import Dispatched, Fire
from queuegate.storage.storage_errors import Unavailable
from queuegate.storage.topics import web_hook_deliveries
from tests.scheduler.conftest import StillClock
from tests.scheduler.endpoints import Endpoint, answer
from tests.scheduler.test_worker import Rounds, ScriptedJob
from tests.scheduler.webhook_store import WebHookStore
from tests.waiting import until_so, yield_turns

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

# What the least row of each kind has; keys to other tables are not checked here.
ROWS: dict[PendingWork, tuple[str, ...]] = {
    "waiting messages": (
        "INSERT INTO waiting_messages (queue_id, waiting_since, message) VALUES (1, now(), '')",
    ),
    "expiring messages": tuple(
        f"INSERT INTO {table} (queue_id, sent_at, message_id, sender_id, body, expires_at{more}) "
        f"VALUES (1, now(), gen_random_uuid(), '', '', now(){values})"
        for table, more, values in (
            ("messages", ", visible_at", ", now()"),
            (
                "fifo_messages",
                ", visible_at, sequence, group_id, deduplication_id",
                ", now(), 1, 'g', 'd'",
            ),
        )
    ),
    "move tasks": (
        "INSERT INTO move_tasks (task_id, source_queue_id, source_arn, status, to_move_count, "
        "started_at, next_batch_at, end_sequence) "
        "VALUES (gen_random_uuid(), 1, '', 'RUNNING', 0, now(), now(), 0)",
    ),
    "replays": (
        "INSERT INTO replays (subscription_id, topic_id, status, starting_at, base_url, "
        "begun_sequence, begun_at, due_at) "
        "VALUES (gen_random_uuid(), 1, 'Pending', now(), '', 0, now(), now())",
    ),
    "own dead letters": (
        "INSERT INTO queues (account_id, region, queue_name, is_fifo, created_at, modified_at, "
        "max_deliveries) VALUES ('1', 'r', 'q', false, now(), now(), 3)",
    ),
    "schedules": (
        "INSERT INTO schedules (account_id, region, schedule_name, is_active, next_fire_at, "
        "due_at, catchup, catchup_limit, deletes_itself, window_seconds, max_attempts, created_at, "
        "modified_at, target_kind, timing, target, target_bytes, spec) VALUES ('1', 'r', 's', "
        "true, now() + '1 day', now() + '1 day', false, 0, false, 0, 0, now(), now(), 'queue', "
        "'{}', '{}', 2, '{}')",
        "INSERT INTO schedule_invocations (schedule_id, account_id, region, schedule_name, "
        "scheduled_for, execution_id, attempt_count, max_attempts, expires_at, due_at, created_at, "
        "target) VALUES (1, '1', 'r', 's', now(), gen_random_uuid(), 1, 2, now() + '2 days', "
        "now() + '1 day', now(), '{}')",
    ),
    "deliveries": (
        "INSERT INTO deliveries (subscription_id, kind, is_raw, due_at, created_at, message_id, "
        "account_id, region, topic_name, endpoint, body) VALUES (gen_random_uuid(), "
        "'Notification', true, now() + '1 day', now(), gen_random_uuid(), '1', 'r', 't', "
        "'http://a', '')",
    ),
    "schedule groups": (
        "INSERT INTO schedule_groups (account_id, region, group_name, is_deleting, created_at, "
        "modified_at) VALUES ('1', 'r', 'g', true, now(), now())",
    ),
    "logs": (
        "INSERT INTO logs (account_id, region, log_name, created_at) VALUES ('1', 'r', 'l', now())",
    ),
}


def test_each_kind_has_a_row_here() -> None:
    assert ROWS.keys() == EVERY_PENDING_WORK


@pytest.mark.parametrize(
    ("chore", "insert"), [(chore, insert) for chore in ROWS for insert in ROWS[chore]]
)
async def test_a_row_of_each_kind_is_found(
    database: Database, chore: PendingWork, insert: str
) -> None:
    async with database.transaction() as tx:
        assert await pending_work.find_pending(tx) == frozenset()
        await tx.execute("SET LOCAL session_replication_role = replica")
        await tx.execute(insert)
    async with database.transaction() as tx:
        assert await pending_work.find_pending(tx) == {chore}


async def test_a_worker_sleeps_while_there_is_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuegate.scheduler.worker.PAUSE_SECONDS", 0.01)
    looks: asyncio.Queue[frozenset[PendingWork]] = asyncio.Queue()
    answers = [frozenset[PendingWork]()] * 3 + [
        frozenset[PendingWork]({"logs"}),
        frozenset[PendingWork]({"replays"}),
    ]

    async def find(_: object) -> frozenset[PendingWork]:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        looks.put_nowait(answer)
        return answer

    monkeypatch.setattr(pending_work, "find_pending", find)
    shared = IdleProbe(database)
    worker, other = (
        Worker(ScriptedJob(pause_seconds=0.0), chores=(shared, chore))
        for chore in ("replays", "logs")
    )
    rounds, others = Rounds(worker), Rounds(other)
    worker.start()
    other.start()
    assert (await rounds.next(1), await others.next(1)) == ([0], [0])
    async with asyncio.timeout(10):
        while "replays" not in await looks.get():
            if looks.empty():
                assert rounds.results.empty()
    # From then on the one has rounds again and again, the other none.
    await others.next(1)
    await rounds.next(5)
    async with asyncio.timeout(2):
        await worker.stop()
        await other.stop()


@pytest.mark.parametrize("error", [Unavailable("away"), asyncpg.InternalServerError("a bug")])
async def test_a_look_that_fails_stirs_everybody(
    database: Database, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr("queuegate.scheduler.worker.PAUSE_SECONDS", 0.0)

    async def away(_: object) -> frozenset[PendingWork]:
        raise error

    monkeypatch.setattr(pending_work, "find_pending", away)
    shared = IdleProbe(database)
    events = [asyncio.Event(), asyncio.Event()]
    kinds: tuple[PendingWork, PendingWork] = ("logs", "replays")
    async with asyncio.timeout(10):
        await asyncio.gather(*map(partial(shared.wait_for), kinds, events))


async def test_nobody_looks_when_nobody_sleeps(database: Database) -> None:
    shared = IdleProbe(database)
    stirred = asyncio.Event()
    sleeping = asyncio.create_task(shared.wait_for("logs", stirred))
    await yield_turns(3)
    assert [task for task in asyncio.all_tasks() if task.get_name() == "chores"]
    stirred.set()
    await sleeping
    await yield_turns(3)
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "chores"]


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the polls of the workers and of the shared probe; shorten their pauses."""
    counts: Counter[str] = Counter()

    def count(module: Any, name: str) -> None:
        real = getattr(module, name)

        async def counting(*arguments: Any, **more: Any) -> Any:
            counts[name] += 1
            return await real(*arguments, **more)

        monkeypatch.setattr(module, name, counting)

    count(pending_work, "find_pending")
    count(web_hook_deliveries, "find_heads")
    count(schedule_fires, "poll")
    monkeypatch.setattr("queuegate.scheduler.worker.PAUSE_SECONDS", 0.01)
    monkeypatch.setattr("queuegate.scheduler.schedule_worker.PAUSE_SECONDS", 0.01)
    monkeypatch.setattr("queuegate.scheduler.webhook_worker.PAUSE_SECONDS", 0.01)
    return counts


async def _asleep(looked: Counter[str], name: str) -> None:
    """Wait until the common look is the only one."""
    await until_so(lambda: looked["find_pending"] > 3)
    before = looked[name]
    await until_so(lambda: looked["find_pending"] > 9)
    assert (looked[name], before) == (before, 1)


async def test_nothing_is_looked_for_without_deliveries(
    database: Database, clock: StillClock, looked: Counter[str]
) -> None:
    hooks = WebHookStore(database, clock)
    async with Endpoint(answer(200)).listening() as endpoint:
        subscription_id = await hooks.subscribe(endpoint.url)
        worker = hooks.worker(poll_seconds=0.01)
        worker.chores = IdleProbe(database)
        worker.start()
        await _asleep(looked, "find_heads")
        # Nobody tells the worker.
        await hooks.add(subscription_id, endpoint.url, "a")
        await until_so(lambda: endpoint.requests)
        await worker.stop()


async def test_nothing_is_looked_for_without_schedules(
    database: Database, clock: StillClock, looked: Counter[str]
) -> None:
    async def dispatch(
        tx: Transaction, now: datetime | None, groups: Sequence[Sequence[Fire]]
    ) -> Dispatched:
        raise AssertionError("nothing is due")

    fire = FireSchedules(
        database,
        OneClock(clock.now),
        FireOptions(poll_seconds=0.01),
        dispatch=dispatch,
        tally=ScheduleSeries(),
    )
    fire.chores = IdleProbe(database)
    fire.start()
    await _asleep(looked, "poll")
    async with database.transaction() as tx:
        await tx.execute(ROWS["schedules"][0])
    await until_so(lambda: looked["poll"] > 5)
    await fire.stop()


async def test_who_looks_more_often_does_not_sleep(
    database: Database, clock: StillClock, looked: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuegate.scheduler.webhook_worker.PAUSE_SECONDS", 0.02)
    worker = WebHookStore(database, clock).worker(poll_seconds=0.01)
    worker.chores = IdleProbe(database)
    worker.start()
    await until_so(lambda: looked["find_heads"] > 5)
    await worker.stop()
    assert looked["find_pending"] == 0

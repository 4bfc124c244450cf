"""Message move tasks: start, cancel, list, and what the worker makes of them (2.10)."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from uuid import uuid4

import asyncpg
import pytest

from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.scheduler.move_tasks import MoveMessages
from queuegate.storage.queue_model import Queue
from queuegate.storage.storage_errors import (
    InvalidParameterValue,
    OverLimit,
)
from tests.operations.conftest import (
    ACCOUNT,
    REGION,
    MakeQueue,
    RecordingWakeups,
)
from tests.operations.sqs import (
    MoveTaskView,
    cancel_message_move_task,
    delete_queue,
    get_queue_attributes,
    list_message_move_tasks,
    set_queue_attributes,
    start_message_move_task,
)
from tests.operations.world import TestClock, World


class Tasks(World):
    """Starts and looks at tasks, and is the worker."""

    def __init__(self, engine: Engine, caller: Caller) -> None:
        super().__init__(engine, caller)
        self.job = self.worker()

    def worker(self) -> MoveMessages:
        engine = self.engine
        return MoveMessages(engine.database, engine.clock.now, engine.wakeups.arrived)

    async def start(
        self, source: Queue, destination: Queue | None = None, rate: int | None = None
    ) -> str:
        arn = None if destination is None else destination.arn
        return await start_message_move_task(self.engine, self.caller, source.arn, arn, rate)

    async def cancel(self, handle: str | None) -> int:
        return await cancel_message_move_task(self.engine, self.caller, handle)

    async def list(self, source: Queue, count: int | None = None) -> list[MoveTaskView]:
        return await list_message_move_tasks(self.engine, self.caller, source.arn, count)

    async def only(self, source: Queue) -> MoveTaskView:
        (task,) = await self.list(source)
        return task

    async def total(self, queue: Queue) -> int:
        names = (
            "ApproximateNumberOfMessages",
            "ApproximateNumberOfMessagesNotVisible",
            "ApproximateNumberOfMessagesDelayed",
        )
        found = await get_queue_attributes(self.engine, self.caller, queue, names)
        return sum(map(int, found.values()))

    async def dead_letter(self, queue: Queue, count: int) -> None:
        """Send messages and receive them until they are in the dead-letter queue."""
        for i in range(count):
            await self.send(queue, f"body {i}")
        received = 0
        while received < count:
            received += len(await self.receive(queue))
        assert await self.receive(queue) == []


@pytest.fixture
def tasks(engine: Engine, caller: Caller) -> Tasks:
    return Tasks(engine, caller)


def redrive(target: Queue, count: int = 1) -> str:
    return json.dumps({"deadLetterTargetArn": target.arn, "maxReceiveCount": count})


@pytest.fixture
async def dead(make_queue: MakeQueue) -> Queue:
    """The dead-letter queue of ``source``."""
    return await make_queue("dead")


@pytest.fixture
async def source(make_queue: MakeQueue, dead: Queue) -> Queue:
    return await make_queue("source", RedrivePolicy=redrive(dead), VisibilityTimeout="0")


async def test_messages_go_back_to_where_they_came_from_as_new_ones(
    tasks: Tasks, dead: Queue, source: Queue, wakeups: RecordingWakeups
) -> None:
    await tasks.dead_letter(source, 3)
    (before,) = await tasks.receive(dead, 1)
    assert tasks.clock.fixed is not None
    tasks.clock.move_on(31)
    handle = await tasks.start(dead)

    assert json.loads(b64decode(handle)).keys() == {"taskId", "sourceArn"}
    assert await tasks.only(dead) == MoveTaskView(
        task_handle=handle,
        status="RUNNING",
        source_arn=dead.arn,
        destination_arn=None,
        max_per_second=None,
        moved_count=0,
        to_move_count=3,
        failure_reason=None,
        started_at_ms=int(tasks.clock.fixed.timestamp() * 1000),
    )
    wakeups.arrivals_told.clear()
    assert await tasks.job.run_round(500) == 3

    done = await tasks.only(dead)
    assert (done.status, done.moved_count, done.task_handle) == ("COMPLETED", 3, None)
    assert wakeups.arrivals_told == [(source.queue_id, 3)]
    assert await tasks.total(dead) == 0
    moved = await tasks.receive(source, 10)
    assert [message.body for message in moved] == ["body 0", "body 1", "body 2"]
    assert before.message_id not in [message.message_id for message in moved]
    assert {message.receive_count for message in moved} == {1}
    assert {message.sent_at_ms for message in moved} == {int(tasks.clock.fixed.timestamp() * 1000)}
    assert {message.system for message in moved} == {None}


async def test_messages_in_flight_stay(tasks: Tasks, dead: Queue, source: Queue) -> None:
    await tasks.dead_letter(source, 4)
    held = await tasks.receive(dead, 1)
    assert len(held) == 1
    await tasks.start(dead)

    assert (await tasks.only(dead)).to_move_count == 3
    assert await tasks.job.run_round(500) == 3
    assert (await tasks.only(dead)).status == "COMPLETED"
    assert await tasks.total(dead) == 1


async def test_rate_is_kept_by_the_clock(tasks: Tasks, dead: Queue, source: Queue) -> None:
    await tasks.dead_letter(source, 60)
    await tasks.start(dead, rate=20)
    moved = []
    for _ in range(20):
        moved.append(await tasks.job.run_round(500))
        tasks.clock.move_on(milliseconds=100)

    assert moved == [2] * 20
    tasks.clock.move_on(hours=1)
    # A late worker catches up half a second, not an hour.
    assert await tasks.job.run_round(500) <= 12
    assert (await tasks.only(dead)).status == "RUNNING"


async def test_one_message_a_second(tasks: Tasks, dead: Queue, source: Queue) -> None:
    await tasks.dead_letter(source, 3)
    await tasks.start(dead, rate=1)

    assert await tasks.job.run_round(500) == 1
    tasks.clock.move_on(milliseconds=900)
    assert await tasks.job.run_round(500) == 0
    tasks.clock.move_on(milliseconds=100)
    assert await tasks.job.run_round(500) == 1
    assert (await tasks.only(dead)).moved_count == 2


async def test_clock_that_was_moved_back_does_not_stop_a_task(
    tasks: Tasks, dead: Queue, source: Queue
) -> None:
    await tasks.dead_letter(source, 2)
    await tasks.start(dead, rate=1)
    assert await tasks.job.run_round(500) == 1

    tasks.clock.move_on(minutes=-5)
    await tasks.job.run_round(500)
    tasks.clock.move_on(2)
    await tasks.job.run_round(500)
    assert (await tasks.only(dead)).status == "COMPLETED"


async def test_cancelled_task_has_moved_exactly_what_it_says(
    tasks: Tasks, dead: Queue, source: Queue
) -> None:
    await tasks.dead_letter(source, 40)
    handle = await tasks.start(dead)

    _, moved = await asyncio.gather(tasks.job.run_round(5), tasks.cancel(handle))
    await tasks.job.run_round(500)
    assert await tasks.total(source) == moved
    assert (await tasks.only(dead)).moved_count == moved


async def test_task_fails_when_a_message_has_no_way_back(
    tasks: Tasks, dead: Queue, source: Queue
) -> None:
    second = await tasks.make_queue("second", RedrivePolicy=redrive(dead), VisibilityTimeout="0")
    await tasks.dead_letter(source, 2)
    await tasks.dead_letter(second, 2)
    await delete_queue(tasks.engine, tasks.caller, source)
    await tasks.start(dead)
    await tasks.job.run_round(500)

    task = await tasks.only(dead)
    assert (task.status, task.moved_count) == ("FAILED", 2)
    assert task.failure_reason == "AWS.SimpleQueueService.NonExistentQueue"
    assert await tasks.total(second) == 2


async def test_task_fails_when_a_message_was_sent_to_the_dead_letter_queue_itself(
    tasks: Tasks, dead: Queue, source: Queue
) -> None:
    await tasks.dead_letter(source, 2)
    await tasks.send(dead, "sent directly")
    await tasks.start(dead)
    await tasks.job.run_round(500)

    task = await tasks.only(dead)
    assert (task.status, task.moved_count) == ("FAILED", 2)
    assert task.failure_reason == "CouldNotDetermineMessageSource"
    assert await tasks.total(dead) == 1


async def test_task_ends_when_its_source_is_deleted_or_it_takes_too_long(
    tasks: Tasks, dead: Queue, source: Queue
) -> None:
    dead2 = await tasks.make_queue("dead2")
    await tasks.make_queue("source2", RedrivePolicy=redrive(dead2))
    await tasks.start(dead)
    await tasks.start(dead2, rate=1)
    await delete_queue(tasks.engine, tasks.caller, dead)
    tasks.clock.move_on(hours=37)

    await tasks.job.run_round(500)
    assert (await tasks.only(dead2)).status == "FAILED"
    async with tasks.engine.database.transaction() as tx:
        left = await tx.fetchval("SELECT count(*) FROM move_tasks WHERE status = 'RUNNING'")
    assert left == 0


async def test_crash_in_the_middle_of_a_batch_moves_nothing_twice(
    tasks: Tasks, dead: Queue, source: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tasks.dead_letter(source, 9)
    await tasks.start(dead)

    async def crash(*_: object, **__: object) -> None:
        raise ConnectionResetError("gone")

    with monkeypatch.context() as patch:
        patch.setattr("queuegate.storage.queues.moves.advance", crash)
        with pytest.raises(Exception, match="database"):
            await tasks.job.run_round(4)
    assert (await tasks.only(dead)).moved_count == 0
    assert (await tasks.total(dead), await tasks.total(source)) == (9, 0)

    # Another process goes on at once: nothing is leased to the one that is gone.
    assert await tasks.worker().run_round(500) == 9
    assert (await tasks.total(dead), await tasks.total(source)) == (0, 9)
    assert (await tasks.only(dead)).moved_count == 9


async def test_many_workers_never_move_a_message_twice(
    tasks: Tasks, dead: Queue, source: Queue
) -> None:
    await tasks.dead_letter(source, 90)
    await tasks.start(dead)

    async def work() -> None:
        worker = tasks.worker()
        while (await tasks.only(dead)).status == "RUNNING":
            await worker.run_round(7)

    await asyncio.gather(*[work() for _ in range(4)])
    assert (await tasks.only(dead)).moved_count == 90
    assert (await tasks.total(dead), await tasks.total(source)) == (0, 90)
    async with tasks.engine.database.transaction() as tx:
        bodies = await tx.fetchval("SELECT count(DISTINCT body) FROM messages")
    assert bodies == 90


async def test_queue_that_is_its_own_dead_letter_queue_is_moved_once(tasks: Tasks) -> None:
    queue = await tasks.make_queue("circle")
    changes = {"RedrivePolicy": redrive(queue)}
    await set_queue_attributes(tasks.engine, tasks.caller, queue, changes)
    for i in range(3):
        await tasks.send(queue, f"body {i}")
    async with tasks.engine.database.transaction() as tx:
        await tx.execute(
            "UPDATE messages SET system = jsonb_build_object("
            "'AWSTraceHeader', 'Root=1', 'DeadLetterQueueSourceArn', $1::text)",
            queue.arn,
        )
    await tasks.start(queue)

    assert await tasks.job.run_round(500) == 3
    assert (await tasks.only(queue)).status == "COMPLETED"
    assert await tasks.total(queue) == 3
    async with tasks.engine.database.transaction() as tx:
        system = await tx.fetch("SELECT DISTINCT system FROM messages")
    assert [json.loads(row["system"]) for row in system] == [{"AWSTraceHeader": "Root=1"}]


async def test_fifo_messages_keep_the_order_of_their_groups(tasks: Tasks) -> None:
    target = await tasks.make_queue("dead.fifo")
    queue = await tasks.make_queue(
        "source.fifo",
        ContentBasedDeduplication="true",
        RedrivePolicy=redrive(target),
        VisibilityTimeout="0",
    )
    for i in range(9):
        await tasks.send(queue, f"body {i}", group_id=f"g{i % 3}")
    for _ in range(10):
        await tasks.receive(queue)
        tasks.clock.move_on(1)
    assert await tasks.total(target) == 9
    changes = {"VisibilityTimeout": "60"}
    await set_queue_attributes(tasks.engine, tasks.caller, queue, changes)
    await tasks.start(target)
    while (await tasks.only(target)).status == "RUNNING":
        await tasks.job.run_round(5)

    task = await tasks.only(target)
    assert (task.status, task.moved_count) == ("COMPLETED", 9)
    assert await tasks.total(target) == 0
    queue = await tasks.engine.queues.find(ACCOUNT, REGION, "source.fifo")
    received = await tasks.receive(queue, 10)
    for group in ("g0", "g1", "g2"):
        numbers = [int(m.body.split()[1]) for m in received if m.group_id == group]
        assert numbers == sorted(numbers)
    assert len(received) == 9
    assert {message.receive_count for message in received} == {1}


async def test_fifo_messages_without_a_way_back_fail_the_task(tasks: Tasks) -> None:
    target = await tasks.make_queue("dead.fifo", ContentBasedDeduplication="true")
    await tasks.make_queue("source.fifo", RedrivePolicy=redrive(target))
    await tasks.send(target, "sent directly", group_id="g")
    await tasks.start(target)

    await tasks.job.run_round(5)
    task = await tasks.only(target)
    assert (task.status, task.failure_reason) == ("FAILED", "CouldNotDetermineMessageSource")


async def test_newest_tasks_come_first_and_ten_are_kept(
    tasks: Tasks, dead: Queue, source: Queue, clock: TestClock
) -> None:
    assert await tasks.list(dead) == []
    for _ in range(13):
        await tasks.start(dead)
        await tasks.job.run_round(500)
        clock.move_on(1)

    assert len(await tasks.list(dead)) == 1
    found = await tasks.list(dead, 10)
    started = [task.started_at_ms for task in found]
    assert len(found) == 10
    assert started == sorted(started, reverse=True)
    async with tasks.engine.database.transaction() as tx:
        assert await tx.fetchval("SELECT count(*) FROM move_tasks") == 10


async def test_only_one_task_of_a_source_runs(tasks: Tasks, dead: Queue, source: Queue) -> None:
    results = await asyncio.gather(*[tasks.start(dead) for _ in range(6)], return_exceptions=True)

    refused = [result for result in results if isinstance(result, BaseException)]
    assert len(refused) == 5
    for refusal in refused:
        assert isinstance(refusal, InvalidParameterValue)
        assert str(refusal) == (
            "There is already a task running. Only one active task is allowed for a source "
            "queue arn at a given time."
        )


async def test_account_has_a_limit_of_running_tasks(
    tasks: Tasks, engine: Engine, dead: Queue, source: Queue
) -> None:
    async with engine.database.transaction() as tx:
        for _ in range(100):
            name = f"filler-{uuid4()}"
            queue_id = await tx.fetchval(
                "INSERT INTO queues (account_id, region, queue_name, is_fifo, created_at, "
                "modified_at) VALUES ($1, $2, $3, false, now(), now()) RETURNING queue_id",
                ACCOUNT,
                REGION,
                name,
            )
            await tx.execute(
                "INSERT INTO move_tasks (task_id, source_queue_id, source_arn, status, "
                "to_move_count, started_at, next_batch_at, end_sequence) "
                "VALUES ($1, $2, '', 'RUNNING', 0, now(), now(), 0)",
                uuid4(),
                queue_id,
            )

    with pytest.raises(OverLimit):
        await tasks.start(dead)
    assert await tasks.list(dead) == []


async def test_task_survives_a_restart(tasks: Tasks, dead: Queue, source: Queue) -> None:
    await tasks.dead_letter(source, 5)
    await tasks.start(dead, rate=20)
    assert await tasks.job.run_round(500) == 2

    await tasks.engine.database.close()
    await tasks.engine.database.open()
    tasks.clock.move_on(1)
    worker = tasks.worker()
    assert await worker.run_round(500) == 3
    assert (await tasks.only(dead)).moved_count == 5


async def test_unique_constraint_is_the_last_word_on_running_tasks(
    tasks: Tasks, engine: Engine, dead: Queue, source: Queue
) -> None:
    await tasks.start(dead)

    with pytest.raises(asyncpg.UniqueViolationError):
        async with engine.database.transaction() as tx:
            await tx.execute(
                "INSERT INTO move_tasks (task_id, source_queue_id, source_arn, status, "
                "to_move_count, started_at, next_batch_at, end_sequence) "
                "VALUES ($1, $2, '', 'RUNNING', 0, now(), now(), 0)",
                uuid4(),
                dead.queue_id,
            )

"""Invocations that failed: tried again, then given up (docs/contract/scheduler.md 4.2)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage import schedules
from queuegate.storage.queue_model import Queue
from tests.operations.conftest import MakeQueue, ReceiveFrom
from tests.operations.schedule_store import ScheduleStore, after, once, queue_target, topic_target
from tests.operations.sqs import delete_queue
from tests.operations.world import TestClock

PLACEHOLDERS = (
    "<aws.scheduler.schedule-arn> <aws.scheduler.scheduled-time> <aws.scheduler.execution-id>"
    " <aws.scheduler.attempt-number> <aws.scheduler.other>"
)


@pytest.fixture
def store(engine: Engine, caller: Caller, clock: TestClock) -> ScheduleStore:
    engine.rules.queue_recreate_seconds = 0
    return ScheduleStore(engine, caller)


@pytest.fixture
async def missing(store: ScheduleStore, make_queue: MakeQueue, caller: Caller) -> Queue:
    """A queue that does not exist any more."""
    queue = await make_queue("missing")
    await delete_queue(store.engine, caller, queue)
    return queue


async def group(store: ScheduleStore) -> int:
    async with store.engine.database.transaction() as tx:
        place = (store.caller.account_id, store.caller.region)
        return (await schedules.ensure_default(tx, store.clock.now(), *place)).group_id


async def add(store: ScheduleStore, target: dict[str, Any], **members: Any) -> int:
    """A schedule of EventBridge; the id of its group."""
    group_id = await group(store)
    await store.add("s", target, group_id=group_id, **{"max_attempts": 185, **members})
    return group_id


async def due_in(store: ScheduleStore, since: float) -> float:
    [row] = await store.rows("schedule_invocations")
    seconds: float = (row["due_at"] - after(since)).total_seconds()
    return seconds


async def test_a_failure_is_tried_again_with_back_off(store: ScheduleStore, missing: Queue) -> None:
    group_id = await add(store, queue_target(missing))
    at = 60.0
    await store.fire(at)
    assert (await store.get("s", group_id)).next_fire_at == after(120)
    pauses = []
    for _ in range(4):
        pauses.append(await due_in(store, at))
        at += pauses[-1]
        await store.fire(at)
    for pause, doubled in zip(pauses, (1, 2, 4, 8), strict=True):
        assert 0.9 * doubled - 0.001 <= pause <= doubled
    await store.make_queue("missing")
    at += await due_in(store, at)
    assert at < 120
    await store.fire(at)
    assert await store.bodies() == ["hello"]
    assert await store.rows("schedule_invocations") == []
    series = store.engine.series.schedules
    assert (series.fired_count, series.failed_count) == (1, 5)


async def test_nothing_is_tried_before_its_pause_is_over(
    store: ScheduleStore, missing: Queue
) -> None:
    await add(store, queue_target(missing))
    await store.fire(60)
    assert await store.fire(60.8) == 0
    assert await store.fire(61.1) == 1


async def test_an_invocation_outlives_changes_and_the_end_of_its_schedule(
    store: ScheduleStore, missing: Queue, make_queue: MakeQueue
) -> None:
    group_id = await add(store, queue_target(missing, "as it was"))
    await store.fire(60)
    schedule = await store.get("s", group_id)
    changed = store.new("s", queue_target(missing, "changed"), next_fire_at=after(9_000))
    async with store.engine.database.transaction() as tx:
        await schedules.replace(tx, None, schedule.schedule_id, changed)
        assert await schedules.delete(tx, schedule.schedule_id)
    await make_queue("missing")
    await store.fire(61)
    assert await store.bodies() == ["as it was"]


async def test_a_last_invocation_that_failed_is_tried_again_after_its_schedule_is_gone(
    store: ScheduleStore, missing: Queue, make_queue: MakeQueue
) -> None:
    group_id = await add(store, queue_target(missing), timing=once(after(60)))
    await store.fire(60)
    assert await store.find("s", group_id) is None
    await make_queue("missing")
    await store.fire(61)
    assert await store.bodies() == ["hello"]


def dead_letters(queue: Queue) -> dict[str, str]:
    return {
        "account_id": queue.account_id,
        "region": queue.region,
        "queue_name": queue.name,
    }


async def test_what_was_given_up_goes_to_the_dead_letter_queue(
    store: ScheduleStore, missing: Queue, make_queue: MakeQueue, receive: ReceiveFrom
) -> None:
    dead = await make_queue("dead")
    target = queue_target(missing, PLACEHOLDERS, substitutes=True)
    await add(store, target, max_attempts=2, dead_letter=dead_letters(dead))
    await store.fire(60)
    [kept] = await store.rows("schedule_invocations")
    await store.fire(62)
    assert await receive(dead) == []
    await store.fire(66)
    [letter] = await receive(dead)
    arn = f"arn:aws:scheduler:eu-west-1:{store.caller.account_id}:schedule/default/s"
    execution_id = str(kept["execution_id"])
    assert letter.body == (f"{arn} 2026-11-21T12:01:00Z {execution_id} 3 <aws.scheduler.other>")
    values = json.loads(letter.attributes or "")
    assert {value["DataType"] for value in values.values()} == {"String"}
    assert {name: value["StringValue"] for name, value in values.items()} == {
        "ERROR_CODE": "AWS.SimpleQueueService.NonExistentQueue",
        "ERROR_MESSAGE": "The specified queue does not exist.",
        "EXECUTION_ID": execution_id,
        "EXHAUSTED_RETRY_CONDITION": "MaximumRetryAttempts",
        "RETRY_ATTEMPTS": "2",
        "SCHEDULED_TIME": "2026-11-21T12:01:00Z",
        "SCHEDULE_ARN": arn,
        "TARGET_ARN": missing.arn,
    }
    assert await store.rows("schedule_invocations") == []


async def test_what_is_too_old_is_given_up(store: ScheduleStore, missing: Queue) -> None:
    dead = await store.make_queue("dead")
    target = queue_target(missing, arn="arn:aws:scheduler:::aws-sdk:sqs:sendMessage")
    await add(store, target, max_age_seconds=59, dead_letter=dead_letters(dead))
    # The next pause, of at least 28.8 seconds, would end 59.8 seconds after the first attempt.
    for seconds in (60, 61, 63, 67, 75, 91):
        await store.fire(seconds)
    [letter] = await store.receive(dead)
    values = json.loads(letter.attributes or "")
    assert values["EXHAUSTED_RETRY_CONDITION"]["StringValue"] == "MaximumEventAgeInSeconds"
    assert values["RETRY_ATTEMPTS"]["StringValue"] == "5"
    assert values["TARGET_ARN"]["StringValue"] == "arn:aws:scheduler:::aws-sdk:sqs:sendMessage"


async def test_without_retries_the_first_failure_is_the_last(
    store: ScheduleStore, missing: Queue, make_queue: MakeQueue, receive: ReceiveFrom
) -> None:
    dead = await make_queue("dead")
    await add(store, queue_target(missing), max_attempts=0, dead_letter=dead_letters(dead))
    await store.fire(60)
    [letter] = await receive(dead)
    assert json.loads(letter.attributes or "")["RETRY_ATTEMPTS"]["StringValue"] == "0"


async def test_a_topic_that_is_missing_is_a_failure_with_its_arn(store: ScheduleStore) -> None:
    dead = await store.make_queue("dead")
    target = topic_target(store.caller, "nowhere", "text")
    await add(store, target, max_attempts=0, dead_letter=dead_letters(dead))
    await store.fire(60)
    [letter] = await store.receive(dead)
    values = json.loads(letter.attributes or "")
    assert letter.body == "text"
    assert values["ERROR_CODE"]["StringValue"] == "NotFound"
    assert values["ERROR_MESSAGE"]["StringValue"] == "Topic does not exist"
    assert values["TARGET_ARN"]["StringValue"] == (
        f"arn:aws:sns:eu-west-1:{store.caller.account_id}:nowhere"
    )


async def test_a_missing_dead_letter_queue_stops_nothing(
    store: ScheduleStore, missing: Queue, make_queue: MakeQueue
) -> None:
    good = await make_queue("good")
    await add(store, queue_target(missing), max_attempts=0, dead_letter=dead_letters(missing))
    await store.add("t", queue_target(good, "good"))
    assert await store.fire(60) == 2
    assert await store.bodies() == ["good"]
    assert await store.rows("schedule_invocations") == []


async def test_placeholders_are_filled_in_with_each_attempt(
    store: ScheduleStore, missing: Queue, make_queue: MakeQueue, receive: ReceiveFrom
) -> None:
    await add(store, queue_target(missing, "try <aws.scheduler.attempt-number>", substitutes=True))
    await store.fire(60)
    queue = await make_queue("missing")
    await store.fire(61)
    assert [message.body for message in await receive(queue)] == ["try 2"]


async def test_placeholders_stay_where_nobody_asked_for_them(store: ScheduleStore) -> None:
    await store.add("s", queue_target(await store.make_queue(), PLACEHOLDERS))
    await store.fire(60)
    assert await store.bodies() == [PLACEHOLDERS]


async def test_a_fifo_queue_must_deduplicate_by_content(store: ScheduleStore) -> None:
    """Templated targets have no deduplication id (docs/contract/scheduler.md 4.2)."""
    plain = await store.make_queue("plain.fifo")
    group_id = await add(store, queue_target(plain, group_id="g"), max_attempts=0)
    await store.fire(60)
    assert (await store.get("s", group_id)).last_error == (
        "The queue should either have ContentBasedDeduplication enabled or "
        "MessageDeduplicationId provided explicitly"
    )

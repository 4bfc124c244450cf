"""Firing schedules: what is sent when, what is next, and what one schedule does to the others."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from uuid import uuid4

import pytest

from queuegate.gateway.metrics import exposition
from queuegate.gateway.metrics.snapshots import ProcessSnapshot
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.schedules.dispatch import run_now
from queuegate.storage import schedules
from queuegate.storage.schedule_fires import Dispatched, Fire
from queuegate.storage.storage_errors import InvalidParameterValue, Unavailable
from tests.operations.conftest import MakeQueue, ReceiveFrom, RecordingWakeups
from tests.operations.schedule_store import ScheduleStore, after, once, queue_target, rate
from tests.operations.sqs import delete_queue
from tests.waiting import yield_turns


async def test_nothing_is_fired_before_its_time(store: ScheduleStore) -> None:
    await store.add("s", queue_target(await store.make_queue()))
    assert await store.fire(59.9) == 0
    assert await store.bodies() == []


async def test_a_fire_sends_and_advances(store: ScheduleStore, wakeups: RecordingWakeups) -> None:
    queue = await store.make_queue()
    attributes = '{"colour":{"DataType":"String","StringValue":"red"}}'
    target = queue_target(queue, "hällo", attributes=attributes, schedule_header=True)
    await store.add("nightly", target)
    assert await store.fire(60.25) == 1

    [message] = await store.receive(queue)
    assert message.body == "hällo"
    assert message.sender_id == store.caller.account_id
    stored = json.loads(message.attributes or "")
    assert stored["colour"] == {"DataType": "String", "StringValue": "red"}
    assert stored["_schedule"]["DataType"] == "String.json"
    assert json.loads(stored["_schedule"]["StringValue"]) == {
        "name": "nightly",
        "scheduled_for": "2026-11-21T12:01:00Z",
        "out_of_band": False,
    }
    assert (queue.queue_id, 1) in wakeups.arrivals_told
    schedule = await store.get("nightly")
    assert (schedule.next_fire_at, schedule.due_at) == (after(120), after(120))
    assert (schedule.last_scheduled_for, schedule.last_fired_at) == (after(60), after(60.25))
    assert (schedule.fired_count, schedule.failure_count, schedule.last_error) == (1, 0, None)
    series = store.engine.series.schedules
    assert (series.fired_count, series.failed_count, series.paused_count) == (1, 0, 0)
    assert 0.25 <= series.late_seconds.total < 10
    assert await store.fire(60.25) == 0


async def test_a_target_without_header_sends_its_attributes_alone(store: ScheduleStore) -> None:
    queue = await store.make_queue()
    await store.add("s", queue_target(queue, system='{"AWSTraceHeader":"x"}', group_id="tenant"))
    await store.fire(60)
    [message] = await store.receive(queue)
    assert message.attributes is None
    assert message.system == '{"AWSTraceHeader":"x"}'


async def test_a_group_id_names_a_tenant_on_a_standard_queue(store: ScheduleStore) -> None:
    queue = await store.make_queue()
    await store.add("s", queue_target(queue, group_id="tenant"))
    await store.fire(60)
    [message] = await store.receive(queue)
    assert message.system == '{"MessageGroupId":"tenant"}'


async def test_a_delay_hides_what_was_fired(store: ScheduleStore) -> None:
    queue = await store.make_queue()
    await store.add("s", queue_target(queue, delay_seconds=30))
    await store.fire(60)
    assert await store.receive(queue) == []
    store.at(91)
    assert len(await store.receive(queue)) == 1


@pytest.mark.parametrize("batch_size", [2, 100])
async def test_the_most_overdue_are_fired_first(store: ScheduleStore, batch_size: int) -> None:
    queue = await store.make_queue()
    for number in (3, 1, 2, 0):
        target = queue_target(queue, str(number))
        await store.add(f"s{number}", target, next_fire_at=after(60 + number))
    assert await store.fire(70, batch_size=batch_size) == min(4, batch_size)
    assert await store.bodies() == ["0", "1", "2", "3"][:batch_size]


async def test_paused_schedules_are_left_alone(store: ScheduleStore, make_queue: MakeQueue) -> None:
    await store.add("s", queue_target(await make_queue()), is_active=False)
    assert await store.fire(500) == 0


async def test_missed_times_collapse_to_one_fire_for_the_first_of_them(
    store: ScheduleStore, make_queue: MakeQueue
) -> None:
    await store.add("s", queue_target(await make_queue(), schedule_header=True))
    assert await store.fire(60 + 600 + 5) == 1
    [row] = await store.rows("messages")
    assert "2026-11-21T12:01:00Z" in row["attributes"]
    schedule = await store.get("s")
    assert schedule.next_fire_at == after(60 + 660)
    assert (schedule.fired_count, schedule.skipped_count) == (1, 0)


async def scheduled_fors(store: ScheduleStore) -> list[str]:
    """Minutes and seconds for which messages were fired, in order."""
    found = []
    for row in await store.rows("messages"):
        header = json.loads(json.loads(row["attributes"])["_schedule"]["StringValue"])
        found.append(header["scheduled_for"][14:19])
    return found


async def test_catch_up_fires_missed_times_in_order(store: ScheduleStore) -> None:
    await store.add("s", queue_target(await store.make_queue(), schedule_header=True), catchup=True)
    assert await store.fire(60 * 4) == 1
    assert await scheduled_fors(store) == ["01:00", "02:00", "03:00", "04:00"]
    schedule = await store.get("s")
    assert schedule.next_fire_at == after(60 * 5)
    assert (schedule.fired_count, schedule.skipped_count) == (4, 0)
    assert schedule.last_scheduled_for == after(60 * 4)


async def test_catch_up_stops_at_its_limit_and_counts_the_rest(store: ScheduleStore) -> None:
    target = queue_target(await store.make_queue(), schedule_header=True)
    await store.add("s", target, catchup=True, catchup_limit=2)
    await store.fire(60 * 5 + 1)
    assert await scheduled_fors(store) == ["01:00", "02:00"]
    schedule = await store.get("s")
    assert schedule.next_fire_at == after(60 * 6)
    assert (schedule.fired_count, schedule.skipped_count) == (2, 3)


async def test_catch_up_of_a_year_of_minutes_is_bounded(store: ScheduleStore) -> None:
    await store.add("s", queue_target(await store.make_queue()), catchup=True, catchup_limit=3)
    await store.fire(366 * 86_400 + 1)
    assert len(await store.bodies()) == 3
    schedule = await store.get("s")
    assert schedule.skipped_count == 1_000
    assert schedule.next_fire_at == after(366 * 86_400 + 60)


async def test_many_who_catch_up_share_several_transactions(store: ScheduleStore) -> None:
    queue = await store.make_queue()
    for number in range(4):
        target = queue_target(queue)
        await store.add(f"s{number}", target, catchup=True, catchup_limit=1_000, timing=rate(1))
    handled = [await store.fire(60 + 999) for _ in range(3)]
    assert handled == [2, 2, 0]
    assert len(await store.bodies()) == 4_000


async def test_times_that_are_passed_over_are_work_too(store: ScheduleStore) -> None:
    target = queue_target(await store.make_queue())
    for number in range(3):
        await store.add(f"s{number}", target, catchup=True, catchup_limit=1, timing=rate(1))
    assert [await store.fire(60 + 5_000) for _ in range(3)] == [2, 1, 0]


async def test_others_have_their_turn_between_long_messages(store: ScheduleStore) -> None:
    queue = await store.make_queue()
    schedule = await store.add("s", queue_target(queue, "x" * 700_000))
    fire = Fire(
        schedule.schedule_id,
        schedule.account_id,
        schedule.region,
        None,
        "s",
        schedule.target,
        after(60),
        str(uuid4()),
    )
    await store.dispatcher.prepare([[fire]])
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await yield_turns()

    counting = asyncio.create_task(count_turns())
    await store.dispatcher.prepare([[fire] * 4, [fire] * 4])
    counting.cancel()
    assert turns >= 4


async def test_a_one_shot_goes_once_it_was_fired(store: ScheduleStore) -> None:
    await store.add("s", queue_target(await store.make_queue()), timing=once(after(60)))
    assert await store.fire(60) == 1
    assert await store.find("s") is None
    assert await store.bodies() == ["hello"]


async def test_a_one_shot_that_keeps_itself_has_no_time_left(store: ScheduleStore) -> None:
    target = queue_target(await store.make_queue())
    await store.add("s", target, timing=once(after(60)), deletes_itself=False)
    assert await store.fire(60) == 1
    schedule = await store.get("s")
    assert (schedule.next_fire_at, schedule.due_at) == (None, None)
    assert schedule.is_active
    assert await store.fire(10_000) == 0


async def test_a_one_shot_that_failed_is_kept_and_paused(store: ScheduleStore) -> None:
    queue = await store.make_queue()
    await delete_queue(store.engine, store.caller, queue)
    await store.add("s", queue_target(queue), timing=once(after(60)))
    assert await store.fire(60) == 1
    schedule = await store.get("s")
    assert (schedule.is_active, schedule.next_fire_at) == (False, None)
    assert schedule.last_error == "The specified queue does not exist."


@pytest.mark.parametrize(("ends_at", "is_last"), [(119, True), (120, False)])
async def test_no_time_lies_behind_the_end(
    store: ScheduleStore, make_queue: MakeQueue, ends_at: float, is_last: bool
) -> None:
    await store.add("s", queue_target(await make_queue()), ends_at=after(ends_at))
    await store.fire(60)
    found = await store.find("s")
    if is_last:
        assert found is None
    else:
        assert found is not None
        assert found.next_fire_at == after(120)


async def test_no_time_lies_before_the_start(store: ScheduleStore, make_queue: MakeQueue) -> None:
    await store.add("s", queue_target(await make_queue()), starts_at=after(300))
    await store.fire(60)
    assert (await store.get("s")).next_fire_at == after(300)


async def test_a_missing_queue_fails_alone_and_is_not_tried_again_for_that_time(
    store: ScheduleStore, make_queue: MakeQueue, caller: Caller
) -> None:
    good, gone = await make_queue("good"), await make_queue("gone")
    await delete_queue(store.engine, caller, gone)
    await store.add("a", queue_target(good, "a"))
    await store.add("bad", queue_target(gone))
    await store.add("z", queue_target(good, "z"))
    assert await store.fire(60) == 3
    assert await store.bodies() == ["a", "z"]
    failed = await store.get("bad")
    assert failed.last_error == "The specified queue does not exist."
    assert (failed.failure_count, failed.fired_count, failed.next_fire_at) == (1, 0, after(120))
    assert failed.last_fired_at is None
    assert (await store.get("z")).fired_count == 1
    series = store.engine.series.schedules
    assert (series.fired_count, series.failed_count) == (2, 1)


async def test_a_queue_that_was_deleted_behind_the_cache_is_looked_up_again(
    store: ScheduleStore, make_queue: MakeQueue
) -> None:
    good, gone = await make_queue("good"), await make_queue("gone")
    await store.add("a", queue_target(good, "a"))
    await store.add("b", queue_target(gone, "b"))
    await store.engine.queues.find(gone.account_id, gone.region, gone.name)
    # Nobody tells this process, as another one's notification may come late.
    async with store.engine.database.transaction() as tx:
        await tx.execute("UPDATE queues SET deleted_at = now() WHERE queue_id = $1", gone.queue_id)
    assert store.engine.queues.cached(gone.account_id, gone.region, gone.name) is not None
    assert await store.fire(60) == 2
    assert await store.bodies() == ["a"]
    assert (await store.get("b")).last_error == "The specified queue does not exist."


async def test_a_queue_that_was_made_anew_gets_its_message(store: ScheduleStore) -> None:
    store.engine.rules.queue_recreate_seconds = 0
    await store.add("s", queue_target(await store.make_queue()))
    await store.fire(60)
    old = await store.make_queue()
    await delete_queue(store.engine, store.caller, old)
    new = await store.make_queue()
    await store.fire(120)
    assert new.queue_id != old.queue_id
    assert [message.body for message in await store.receive(new)] == ["hello"]


async def test_a_message_that_the_queue_no_longer_takes_fails(store: ScheduleStore) -> None:
    queue = await store.make_queue(MaximumMessageSize="1024")
    await store.add("s", queue_target(queue, "x" * 1025))
    await store.fire(60)
    assert await store.bodies() == []
    assert (await store.get("s")).last_error == (
        "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes."
    )


async def test_attributes_count_to_the_size(store: ScheduleStore, make_queue: MakeQueue) -> None:
    queue = await make_queue(MaximumMessageSize="1024")
    attributes = '{"n":{"DataType":"Binary","BinaryValue":"AAAA"}}'
    # Name, type and three bytes.
    for name, length in (("fits", 1024 - 10), ("not", 1024 - 9)):
        await store.add(name, queue_target(queue, "x" * length, attributes=attributes))
    await store.fire(60)
    assert (await store.get("fits")).last_error is None
    assert (await store.get("not")).last_error is not None


@pytest.mark.parametrize("body", ["", "\x00", "\ud800"])
async def test_a_message_that_no_queue_takes_fails(store: ScheduleStore, body: str) -> None:
    """Nobody stores one, but the worker must not stumble."""
    target = queue_target(await store.make_queue())
    await store.add("s", target)
    # In the column as an escape, as any other tool could have written it.
    async with store.engine.database.transaction() as tx:
        await tx.execute(
            "UPDATE schedules SET target = $1::text::json", json.dumps(target | {"body": body})
        )
    await store.fire(60)
    assert (await store.get("s")).failure_count == 1


async def test_failures_pause_at_the_threshold(store: ScheduleStore) -> None:
    queue = await store.make_queue()
    await delete_queue(store.engine, store.caller, queue)
    await store.add("s", queue_target(queue), failure_threshold=3)
    states = []
    for minute in (1, 2, 3, 4):
        await store.fire(60 * minute)
        schedule = await store.get("s")
        states.append((schedule.is_active, schedule.failure_count))
    assert states == [(True, 1), (True, 2), (False, 3), (False, 3)]
    assert schedule.next_fire_at == after(240)
    assert store.engine.series.schedules.paused_count == 1


async def test_a_success_forgets_failures(store: ScheduleStore) -> None:
    store.engine.rules.queue_recreate_seconds = 0
    queue = await store.make_queue()
    await delete_queue(store.engine, store.caller, queue)
    await store.add("s", queue_target(queue), failure_threshold=2)
    await store.fire(60)
    await store.make_queue()
    await store.fire(120)
    schedule = await store.get("s")
    assert (schedule.failure_count, schedule.last_error) == (0, None)
    await delete_queue(store.engine, store.caller, await store.make_queue())
    await store.fire(180)
    assert (await store.get("s")).is_active


async def test_a_timing_that_cannot_be_read_pauses_its_schedule_alone(store: ScheduleStore) -> None:
    queue = await store.make_queue()
    await store.add("bad", queue_target(queue), timing={"kind": "moon"})
    await store.add("good", queue_target(queue, "good"))
    await store.fire(60)
    assert await store.bodies() == ["good"]
    schedule = await store.get("bad")
    assert not schedule.is_active
    assert schedule.last_error == "The schedule cannot be read."


class Stumbling:
    """Dispatches like the real one, but breaks on one schedule after having written the others."""

    def __init__(self, store: ScheduleStore, name: str, error: Exception) -> None:
        self._dispatch = store.dispatcher
        self._name = name
        self._error = error
        self.calls: list[int] = []

    async def __call__(self, tx, now, groups) -> Dispatched:  # type: ignore[no-untyped-def]
        self.calls.append(len(groups))
        fires: list[Fire] = [fire for group in groups for fire in group]
        if any(fire.name == self._name for fire in fires):
            async with tx.transaction():
                others = [group for group in groups if group[0].name != self._name]
                await self._dispatch(tx, now, others)
                raise self._error
        return await self._dispatch(tx, now, groups)


async def test_a_bug_in_one_schedule_stops_no_other(store: ScheduleStore) -> None:
    queue = await store.make_queue()
    for name in ("a", "bad", "z"):
        await store.add(name, queue_target(queue, name))
    stumbling = Stumbling(store, "bad", ZeroDivisionError())
    worker = store.worker()
    worker._dispatch = stumbling
    store.at(60)
    assert await store.run(worker) == 3
    assert stumbling.calls == [3, 1, 1, 1]
    assert await store.bodies() == ["a", "z"]
    failed = await store.get("bad")
    assert (failed.failure_count, failed.next_fire_at) == (1, after(120))


async def test_a_database_that_is_away_is_nobody_s_failure(store: ScheduleStore) -> None:
    await store.add("s", queue_target(await store.make_queue()))
    worker = store.worker()
    worker._dispatch = Stumbling(store, "s", Unavailable("away"))
    store.at(60)
    with pytest.raises(Unavailable):
        await store.run(worker)
    schedule = await store.get("s")
    assert (schedule.failure_count, schedule.next_fire_at) == (0, after(60))
    assert await store.fire(60) == 1


async def test_a_window_draws_when_to_fire(store: ScheduleStore, make_queue: MakeQueue) -> None:
    queue = await make_queue()
    for number in range(20):
        await store.add(f"s{number}", queue_target(queue), window_seconds=30)
    assert await store.fire(60) == 20
    drawn = [(await store.get(f"s{number}")).due_at for number in range(20)]
    assert len(set(drawn)) == 20
    assert all(after(120) <= due_at <= after(150) for due_at in drawn if due_at)
    assert {(await store.get(f"s{number}")).next_fire_at for number in range(20)} == {after(120)}


async def test_overlapping_windows_skip_no_time(store: ScheduleStore) -> None:
    """Every minute, somewhere within five: several times wait at once."""
    target = queue_target(await store.make_queue(), schedule_header=True)
    await store.add("s", target, window_seconds=300, due_at=after(330))
    fired = 0
    for _ in range(1_000):
        due_at = (await store.get("s")).due_at
        assert due_at is not None
        if due_at > after(60 * 10):
            break
        fired += await store.fire((due_at - after(0)) / timedelta(seconds=1))
    minutes = await scheduled_fors(store)
    assert minutes[:5] == ["01:00", "02:00", "03:00", "04:00", "05:00"]
    assert len(minutes) == fired == len(set(minutes))


async def test_a_fifo_queue_gets_one_message_for_a_time(store: ScheduleStore) -> None:
    queue = await store.make_queue("orders.fifo")
    target = queue_target(queue, group_id="g", schedule_header=True)
    made = await store.add("s", target)
    await store.fire(60)
    # As if the same time were fired again by somebody who had not heard of it.
    async with store.engine.database.transaction() as tx:
        await schedules.replace(tx, None, made.schedule_id, store.new("s", target))
    await store.fire(60)
    await store.fire(120)
    received = await store.receive(queue)
    assert [message.deduplication_id for message in received] == [
        f"schedule-{made.schedule_id}-20261121T120100.000000Z",
        f"schedule-{made.schedule_id}-20261121T120200.000000Z",
    ]
    assert [message.group_id for message in received] == ["g", "g"]


async def test_deduplication_ids_are_given_or_of_the_time_also_where_content_decides(
    store: ScheduleStore, make_queue: MakeQueue, receive: ReceiveFrom
) -> None:
    by_content = await make_queue("content.fifo", ContentBasedDeduplication="true")
    await store.add("c", queue_target(by_content, group_id="g"))
    plain = await make_queue("plain.fifo")
    await store.add("p", queue_target(plain, group_id="g", deduplication_id="mine"))
    for minute in (1, 2):
        await store.fire(60 * minute)
    assert [message.deduplication_id for message in await receive(plain)] == ["mine"]
    assert len(await receive(by_content)) == 2
    assert (await store.get("c")).fired_count == 2


async def test_a_fifo_queue_without_a_group_id_is_a_failure(store: ScheduleStore) -> None:
    await store.add("s", queue_target(await store.make_queue("orders.fifo")))
    await store.add(
        "t", queue_target(await store.make_queue("b.fifo"), group_id="g", deduplication_id="ä")
    )
    await store.fire(60)
    assert (await store.get("s")).last_error == (
        "The request must contain the parameter MessageGroupId."
    )
    assert "MessageDeduplicationId" in ((await store.get("t")).last_error or "")


async def test_a_run_fires_now_and_changes_nothing_of_the_schedule(store: ScheduleStore) -> None:
    queue = await store.make_queue()
    before = await store.add("s", queue_target(queue, schedule_header=True), is_active=False)
    store.at(30)
    run = await run_now(store.engine, store.caller, before)
    assert await store.get("s") == before
    [message] = await store.receive(queue)
    assert [one.sequence for one in run.messages] == [message.sequence]
    assert [(one.queue_id, one.queue_name) for one in run.messages] == [
        (queue.queue_id, queue.name)
    ]
    assert (run.scheduled_for, run.out_of_band) == (after(30), True)
    header = json.loads(json.loads(message.attributes or "")["_schedule"]["StringValue"])
    assert header == {"name": "s", "scheduled_for": "2026-11-21T12:00:30Z", "out_of_band": True}


async def test_runs_of_a_fifo_queue_are_no_duplicates_of_each_other(store: ScheduleStore) -> None:
    queue = await store.make_queue("orders.fifo")
    schedule = await store.add("s", queue_target(queue, group_id="g"))
    runs = [await run_now(store.engine, store.caller, schedule) for _ in range(2)]
    assert [message.sequence for message in await store.receive(queue)] == [
        one.sequence for run in runs for one in run.messages
    ]


async def test_a_run_without_its_queue_is_refused(store: ScheduleStore) -> None:
    queue = await store.make_queue()
    schedule = await store.add("s", queue_target(queue))
    await delete_queue(store.engine, store.caller, queue)
    with pytest.raises(InvalidParameterValue, match="queue does not exist"):
        await run_now(store.engine, store.caller, schedule)
    assert store.engine.series.schedules.failed_count == 1


async def test_many_groups_of_fifo_queues_share_several_transactions(store: ScheduleStore) -> None:
    """Each takes locks until the commit, and there is room for some thousands."""
    queue = await store.make_queue("orders.fifo")
    for number in range(300):
        await store.add(f"s{number}", queue_target(queue, group_id=f"g{number}"))
    handled = [await store.fire(60) for _ in range(3)]
    assert handled == [251, 49, 0]
    assert len(await store.rows("fifo_messages")) == 300


async def test_what_is_sent_one_by_one_is_a_few_at_a_time(store: ScheduleStore) -> None:
    queue = await store.make_queue()
    for number in range(30):
        await store.add(f"s{number}", queue_target(queue), next_fire_at=after(30 + number))
    worker = store.worker()
    worker._dispatch = Stumbling(store, "s3", ZeroDivisionError())
    store.at(60)
    assert [await store.run(worker) for _ in range(3)] == [20, 10, 0]
    assert len(await store.bodies()) == 29


async def test_fires_are_counted_and_shown(store: ScheduleStore, make_queue: MakeQueue) -> None:
    queue = await make_queue()
    await store.add("good", queue_target(queue))
    await store.add("bad", queue_target(queue, ""), failure_threshold=1)
    await store.fire(60.3)
    everything = exposition.requested(frozenset())
    page = exposition.process_page(ProcessSnapshot.of(store.engine), everything).decode()
    assert 'queue_schedule_fires_total{outcome="success"} 1.0' in page
    assert 'queue_schedule_fires_total{outcome="failure"} 1.0' in page
    assert "queue_schedules_paused_total 1.0" in page
    assert 'queue_schedule_lateness_seconds_bucket{le="0.25"} 0.0' in page
    assert "queue_schedule_lateness_seconds_count 2.0" in page

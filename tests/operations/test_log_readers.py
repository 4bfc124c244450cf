"""Hints of one process about its fetching subscribers, without the net that catches lost hints."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.logs import group_readers
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage.logs import log_deliveries
from queuegate.storage.model import Delivered, ReceiptAction
from queuegate.storage.storage_errors import SubscriberFenced
from tests.operations.log_groups import Orders, drained, offsets, places, settled
from tests.waiting import yield_turns

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction


@pytest.fixture
def orders(engine: Engine, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Orders:
    monkeypatch.setattr(group_readers, "_LOOK_SECONDS", 3_600.0)
    return Orders(engine, caller)


async def test_a_backlog_of_many_partitions_is_fetched_at_once(orders: Orders) -> None:
    keys = [f"k{number}" for number in range(400)]
    await orders.fill(*keys)
    consumer = await orders.consumer()
    assert sorted(await drained([consumer])) == [(number, 0) for number in range(400)]


async def test_more_partitions_than_a_look_finds(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuegate.storage.logs.log_deliveries._LOOKED_AT", 150)
    keys = [f"k{number}" for number in range(400)]
    await orders.fill(*keys)
    consumer = await orders.consumer()
    assert sorted(await drained([consumer])) == [(number, 0) for number in range(400)]


@pytest.mark.parametrize("chosen", [False, True])
async def test_more_spans_than_a_fetch_looks_at(
    orders: Orders, monkeypatch: pytest.MonkeyPatch, chosen: bool
) -> None:
    monkeypatch.setattr("queuegate.storage.logs.log_deliveries._MOST_NUMBERS", 30)
    monkeypatch.setattr("queuegate.storage.logs.log_deliveries._TURN", 3)
    await orders.group(batch_size=6)
    await orders.fill(*[f"k{number}" for number in range(40)], count=6)
    consumer = await orders.consumer()
    records: list[Delivered] = []
    while batch := await consumer.fetch(1_000):
        records += batch
    assert len(records) == 240
    if chosen:
        consumer.chosen = [*{one.partition_id for one in records}]
    evens = [one for one in records if one.record.offset % 2 == 0]
    await consumer.ack(*[one for one in records if one.record.offset % 2])
    await consumer.settle([one for one in evens if one.number == 39], ReceiptAction.NACK, 0)
    # The others have more spans than a fetch looks at, and nothing in them.
    assert places(await consumer.fetch(1_000)) == [(39, 0), (39, 2), (39, 4)]
    await consumer.settle([one for one in evens if one.number < 39], ReceiptAction.NACK, 0)
    assert len(await drained([consumer])) == 117


async def test_acknowledgements_at_once_take_several_flushes(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_deliveries, "_MOST_CHANGES", 20, raising=False)
    await orders.fill(*[f"k{number}" for number in range(70)])
    consumer = await orders.consumer()
    records = await consumer.fetch()
    stored: list[int] = []
    store = log_deliveries.store

    async def counting(tx: Transaction, changed: Sequence[Any]) -> bool:
        stored.append(len(changed))
        return await store(tx, changed)

    monkeypatch.setattr(log_deliveries, "store", counting)
    acks = [consumer.ack(*records[first : first + 10]) for first in range(0, 40, 10)]
    done = await asyncio.gather(consumer.ack(*records[40:]), *acks)
    assert [len(one) for one in done] == [30, 10, 10, 10, 10]
    # One request is never divided, however long it is.
    assert stored == [30, 20, 20]
    assert await consumer.fetch() == []


async def test_a_hint_of_who_goes_away_is_for_who_stays(orders: Orders) -> None:
    await orders.publish("1")
    consumer = await orders.consumer()
    await consumer.ack(*await consumer.fetch())
    going, staying = [asyncio.create_task(consumer.fetch(wait=20)) for _ in range(2)]
    await yield_turns(20)
    lane = orders.engine.deliver.lane
    taken = lane.submit

    def cancelled(entry: object) -> None:
        """It goes before the lane has taken it."""
        taken(entry)  # type: ignore[arg-type]
        lane.submit = taken  # type: ignore[method-assign]
        going.cancel()

    lane.submit = cancelled  # type: ignore[method-assign]
    await orders.publish("2")
    assert offsets(await asyncio.wait_for(staying, 5)) == [1]
    with pytest.raises(asyncio.CancelledError):
        await going


async def test_who_is_over_does_not_deafen_who_is_not(orders: Orders) -> None:
    await orders.publish("1")
    old = await orders.consumer()
    young = await orders.consumer()
    await young.ack(*await young.fetch())
    waiting = asyncio.create_task(young.fetch(wait=20))
    await yield_turns(20)
    with pytest.raises(SubscriberFenced):
        await old.fetch()
    await orders.publish("2")
    assert offsets(await asyncio.wait_for(waiting, 5)) == [1]


async def test_a_session_that_there_is_not_deafens_nobody_for_long(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_readers, "_LOOK_SECONDS", 0.1)
    await orders.publish("1")
    consumer = await orders.consumer()
    await consumer.ack(*await consumer.fetch())
    waiting = asyncio.create_task(consumer.fetch(wait=20))
    await yield_turns(20)
    with pytest.raises(SubscriberFenced):
        await replace(consumer, session=1 << 40).fetch()
    await orders.publish("2")
    assert offsets(await asyncio.wait_for(waiting, 5)) == [1]


async def test_nothing_is_left_of_sessions_that_end(orders: Orders) -> None:
    await orders.publish("1")
    parked = orders.engine.wakeups.parked_count
    before = parked()
    for _ in range(3):
        consumer = await orders.consumer()
        await consumer.ack(*await consumer.fetch())
        waiting = asyncio.create_task(consumer.fetch(wait=20))
        await yield_turns(20)
        younger = await orders.consumer()
        await younger.fetch()
        with pytest.raises(SubscriberFenced):
            await asyncio.wait_for(waiting, 5)
        await younger.leave()
        assert parked() == before


async def test_a_quarter_of_many_subscribers_is_gone_at_once(orders: Orders) -> None:
    """Within the lease and one heartbeat all of it is consumed again, shared out evenly."""
    keys = [f"k{number}" for number in range(300)]
    await orders.group(visibility_timeout_seconds=30)
    await orders.fill(*keys)
    names = [f"s{number:02}" for number in range(16)]
    members = await orders.consumers(*names)
    dead, live = members[:4], members[4:]
    await asyncio.gather(*[one.fetch(5) for one in dead])
    clock = orders.engine.clock
    clock.move_on(20)  # type: ignore[attr-defined]
    for one in live:
        await one.beat()
    clock.move_on(10)  # type: ignore[attr-defined]
    await orders.fill(*keys)
    await settled(*live)
    assert {len(one.partitions) for one in live} == {25}
    found = await drained(live)
    assert sorted(found) == [(number, offset) for number in range(300) for offset in range(2)]

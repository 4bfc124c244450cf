"""Queues that are called what their owners like, and their ids."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from queuegate.gateway.operations.access import authorization
from queuegate.gateway.operations.queues.queue_cache import number_of, public_id
from queuegate.gateway.operations.queues.queues import (
    CreateQueue,
    QueueTitleInvalid,
    TitledQueue,
    change_tags,
    create_queue,
    create_titled,
    delete_queue,
)
from queuegate.storage.model import Quota
from queuegate.storage.queue_model import Queue
from queuegate.storage.storage_errors import QueueDoesNotExist, QuotaReached
from tests.operations.world import World

RIGHT = "sqs:GetQueueAttributes"


async def _create(world: World, title: str = "orders") -> Queue:
    request = TitledQueue(title, 30, most_messages=None, max_deliveries=None)
    return await create_titled(world.engine, world.caller, request)


async def test_creators_of_one_title_get_a_queue_each(world: World) -> None:
    made = await asyncio.gather(*[_create(world) for _ in range(20)])
    assert {queue.title for queue in made} == {"orders"}
    assert len({queue.name for queue in made}) == len({queue.queue_id for queue in made}) == 20
    assert sum(queue.name == "orders" for queue in made) == 1


async def test_an_account_has_no_more_queues_than_it_may(world: World) -> None:
    world.engine.quotas.use(Quota(queues=5), None)
    results = await asyncio.gather(*[_create(world) for _ in range(20)], return_exceptions=True)
    refused = [one for one in results if isinstance(one, QuotaReached)]
    made = [one for one in results if isinstance(one, Queue)]
    assert (len(made), len(refused)) == (5, 15)
    # One that is there already is no new one, and what was made for one does not count.
    again = await create_queue(world.engine, world.caller, CreateQueue(made[0].name))
    assert not again.is_new
    await delete_queue(world.engine, world.caller, made[0])
    elsewhere = replace(world.caller, region="eu-north-1")
    await create_queue(world.engine, elsewhere, CreateQueue("another"))
    with pytest.raises(QuotaReached):
        await create_queue(world.engine, world.caller, CreateQueue("one-more"))
    other = replace(world.caller, account_id="222233334444")
    await create_queue(world.engine, other, CreateQueue("orders"))


@pytest.mark.parametrize("title", ["", " ", "\t", "a\0", "\ud800", "x" * 201])
async def test_titles_that_nobody_can_read(world: World, title: str) -> None:
    with pytest.raises(QueueTitleInvalid):
        await _create(world, title)


async def test_an_id_finds_its_queue_and_no_other(world: World) -> None:
    engine, caller = world.engine, world.caller
    first, second = await _create(world), await _create(world)
    upper = await authorization.find_queue_by_id(engine, caller, RIGHT, public_id(first).upper())
    assert upper.queue_id == first.queue_id
    for queue in (first, second):
        # Once from the database, once from memory.
        for _ in range(2):
            found = await authorization.find_queue_by_id(engine, caller, RIGHT, public_id(queue))
            assert found.queue_id == queue.queue_id
    known = await authorization.find_queue_by_id(engine, caller, RIGHT, public_id(first))
    await change_tags(engine, caller, first, lambda _: {"team": "a"})
    changed = await authorization.find_queue_by_id(engine, caller, RIGHT, public_id(first))
    assert (dict(known.tags), dict(changed.tags)) == ({}, {"team": "a"})
    swapped = public_id(first)[:8] + public_id(second)[8:]
    assert number_of(swapped) == first.queue_id
    for queue_id in (swapped, public_id(first) + "\n", "7"):
        with pytest.raises(QueueDoesNotExist):
            await authorization.find_queue_by_id(engine, caller, RIGHT, queue_id)
    await delete_queue(engine, caller, first)
    with pytest.raises(QueueDoesNotExist):
        await authorization.find_queue_by_id(engine, caller, RIGHT, public_id(first))

"""Overload: requests that others do not wait for, and requests that are refused in time."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from queuegate.storage.lanes import Lane
from tests.operations.world import World

LARGE = "b" * 100_000


def _observed(*lanes: Lane[Any]) -> list[tuple[str, int]]:
    """Return a list that grows by the lane and the entries of each flush."""
    flushes: list[tuple[str, int]] = []
    for lane in lanes:
        lane.observe = partial(lambda name, count: flushes.append((name, count)), lane.name)
    return flushes


async def test_a_small_send_shares_no_flush_with_large_ones(world: World) -> None:
    """It would wait until all of their bytes are written."""
    noisy, quiet = await world.make_queue("noisy"), await world.make_queue("quiet")
    flushes = _observed(world.engine.standard.send, world.engine.standard.large_send)
    await asyncio.gather(*[world.send(noisy, LARGE) for _ in range(3)], world.send(quiet, "small"))
    assert sorted(flushes) == [("large_send", 3), ("send", 1)]
    assert [message.body for message in await world.receive(quiet)] == ["small"]
    assert [message.body for message in await world.receive(noisy)] == [LARGE] * 3


async def test_a_receive_shares_no_flush_with_those_of_long_messages(world: World) -> None:
    queue = await world.make_queue(VisibilityTimeout="0")
    await world.send(queue, LARGE)
    flushes = _observed(world.engine.standard.receive, world.engine.standard.ordered)
    for _ in range(2):
        assert len(await world.receive(queue)) == 1
    assert flushes == [("receive", 1), ("ordered_receive", 1)]

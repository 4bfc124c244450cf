"""Searches of a queue: bounded work for each page, and no message missed between pages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from queuegate.gateway.operations.queues import stored_messages
from queuegate.gateway.operations.queues.stored_messages import Browse, Matching, search
from queuegate.gateway.operations.runtime.limits import LIMITS
from tests.operations.world import World


async def test_a_search_reads_so_many_pages_and_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_messages, "LIMITS", replace(LIMITS, browsed_messages=3))
    monkeypatch.setattr(stored_messages, "_PAGES_SEARCHED", 2)
    queue = await world.make_queue()
    for number in range(20):
        await world.send(queue, f"{'wanted' if number in (7, 8, 19) else 'other'} {number}")
    asked, found, sizes = Browse(2), [], []
    while True:
        page = await search(world.engine, world.caller, queue, asked, Matching(text="wanted"))
        sizes.append(len(page.messages))
        found += [one.message.body for one in page.messages]
        if page.next is None:
            break
        asked = asked._replace(after=page.next, as_of=page.as_of)
    assert found == ["wanted 7", "wanted 8", "wanted 19"]
    # Six messages each; the second page is full after three.
    assert sizes == [0, 2, 0, 1]

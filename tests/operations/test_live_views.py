"""Views of live figures: equal to the metrics of a queue, computed once, and kept by nobody."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import aclosing
from functools import partial
from typing import Any

import orjson
import pytest

from queuegate.gateway.operations.channels.channels import ChannelMessage, publish_one
from queuegate.gateway.operations.queues.queues import delete_queue, metrics
from queuegate.gateway.operations.telemetry import live_views
from queuegate.gateway.operations.telemetry.live_views import (
    READERS,
    LivePage,
    LiveView,
    LiveViews,
    readers_here,
)
from queuegate.storage.queues import depths
from tests.operations.world import World


class OtherProcesses:
    """The other processes of a gateway: none, but it counts how often they are asked."""

    count = 0

    async def __call__(self, _: bytes) -> list[bytes]:
        self.count += 1
        return []


@pytest.fixture(autouse=True)
def others(world: World, monkeypatch: pytest.MonkeyPatch) -> OtherProcesses:
    monkeypatch.setattr(live_views, "_APART_SECONDS", 0.02)
    siblings = world.engine.siblings
    siblings.ask = others = OtherProcesses()
    siblings.answers = {READERS: partial(readers_here, world.engine)}
    return others


def page_of(world: World, *kinds: str) -> LivePage:
    return LivePage(kinds or ("channel", "queue"), world.caller.account_id, world.caller.region)


async def shown(live: LiveViews, page: LivePage) -> dict[str, Any]:
    """The first figures of a page."""
    with live.view(page) as view:
        async with aclosing(view.changes()) as changes:
            found: dict[str, Any] = orjson.loads(await anext(changes))
    return found


async def test_an_overview_agrees_with_the_metrics_of_each_kind(world: World) -> None:
    plain = await world.make_queue("plain")
    for delay in (0, 0, 0, 600):
        await world.send(plain, delay_seconds=delay)
    await world.receive(plain, 1)
    fifo = await world.make_queue("fifo.fifo", ContentBasedDeduplication="true")
    late = await world.make_queue("late.fifo", DelaySeconds="600", ContentBasedDeduplication="true")
    for number in range(6):
        for queue in (fifo, late):
            await world.send(queue, f"body {number}", group_id=f"group-{number % 2}")
    await world.receive(fifo, 2)
    for seconds in (None, 1):
        message = ChannelMessage("urgent", b'"a"', priority=3, ttl_seconds=seconds)
        await publish_one(world.engine, world.caller, message)
    await world.make_queue("empty")
    world.clock.move_on(5)
    page, now = page_of(world), world.clock.now()
    async with world.engine.database.transaction() as tx:
        found = await depths.overview(tx, now, page.kinds, page.span(), "", limit=10)
    assert [one.name for one in found] == ["empty", "fifo.fifo", "late.fifo", "plain", "urgent"]
    for one in found:
        queue = await world.engine.queues.find(one.account_id, one.region, one.name)
        assert one.total is not None
        exact = await metrics(world.engine, world.caller, queue)
        counts = exact.counts
        assert (one.total - one.in_flight - one.delayed, one.in_flight, one.delayed) == (
            counts.visible,
            counts.in_flight,
            counts.delayed,
        ), one.name
        age = None if one.oldest_at is None else int((one.now - one.oldest_at).total_seconds())
        assert (age, one.arrived) == (exact.oldest_age_seconds, exact.total), one.name


async def test_viewers_of_a_page_share_its_figures(world: World, others: OtherProcesses) -> None:
    queue = await world.make_queue("orders")
    live = LiveViews(world.engine)
    page = page_of(world)
    with live.view(page) as view, live.view(page) as other:
        assert view is other
        async with aclosing(view.changes()) as one, aclosing(other.changes()) as two:
            assert orjson.loads(await anext(one))["rows"] == orjson.loads(await anext(two))["rows"]
            assert others.count == 1
            await world.send(queue)
            async for change in one:
                if found := orjson.loads(change)["rows"]:
                    break
            assert found[0][3:5] == ["orders", 1]
    assert live._views == {}
    assert view.task is not None
    assert view.task.cancelling()


async def test_a_process_that_dies_in_its_answer_is_left_out(world: World) -> None:
    siblings = world.engine.siblings

    async def others(_: bytes) -> list[bytes]:
        return [b'[{"1": [1', readers_here(world.engine, "")]

    siblings.ask = others
    assert len(await siblings.all(READERS)) == 2


async def test_a_process_that_hangs_does_not_stop_the_figures(world: World) -> None:
    queue = await world.make_queue("watched")

    async def others(_: bytes) -> list[bytes]:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await asyncio.Event().wait()
        return []

    world.engine.siblings.ask = others
    async with asyncio.timeout(5):
        with LiveViews(world.engine).view(page_of(world)) as view:
            async with aclosing(view.changes()) as changes:
                await anext(changes)
                await world.send(queue)
                rows: list[Any] = []
                while not rows:
                    rows = orjson.loads(await anext(changes))["rows"]


async def test_a_slow_viewer_gets_what_is_now(world: World) -> None:
    view = LiveView()
    view.put({"a": b'["a",1]', "b": b'["b",1]'}, {"at": 1})
    async with aclosing(view.changes()) as changes:
        assert orjson.loads(await anext(changes))["rows"] == [["a", 1], ["b", 1]]
        for number in range(2, 9):
            view.put({"a": b'["a",%d]' % number, "b": b'["b",1]'}, {"at": number})
        assert orjson.loads(await anext(changes)) == {"at": 8, "whole": False, "rows": [["a", 8]]}
        view.put({"b": b'["b",1]'}, {"at": 9})
        assert orjson.loads(await anext(changes)) == {"at": 9, "whole": True, "rows": [["b", 1]]}
        view.end()
        assert [one async for one in changes] == []


async def test_many_queues_come_by_pages(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_views, "_MOST_ROWS", 2)
    for name in "abc":
        last = await world.make_queue(name)
    live = LiveViews(world.engine)
    page = page_of(world)
    place = f"{page.account_id}/{page.region}/c"
    first = await shown(live, page)
    assert ([row[3] for row in first["rows"]], first["next"]) == (["a", "b"], place)
    with live.view(page._replace(first=place)) as view:
        async with aclosing(view.changes()) as changes:
            found = orjson.loads(await anext(changes))
            assert ([row[3] for row in found["rows"]], found["next"]) == (["c"], None)
            await delete_queue(world.engine, world.caller, last)
            async for change in changes:
                found = orjson.loads(change)
                if found["whole"]:
                    break
            assert found["rows"] == []

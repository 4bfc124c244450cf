"""Sends that are refused: for what they have, and all of them while the disk is nearly full."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.queues.stored_messages import ReplayArchive, replay
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.process import disk_watch
from queuegate.gateway.process.disk_watch import DiskWatch
from queuegate.storage.embedded.data_directory import DiskSpace
from queuegate.storage.storage_errors import (
    DeduplicationIdMissing,
    DeduplicationIdUnfit,
    DelayOutOfRange,
    DelayUnfit,
    IdInvalid,
    Rejected,
    Unavailable,
)
from tests.operations.conftest import MakeQueue
from tests.operations.schedule_store import ScheduleStore, after, queue_target
from tests.operations.world import World

REASON = "The disk is nearly full."
BY_CONTENT = {"ContentBasedDeduplication": "true"}


@pytest.mark.parametrize("name", ["orders", "orders.fifo"])
async def test_sends_are_refused_and_receives_go_on(world: World, name: str) -> None:
    queue = await world.make_queue(name, **BY_CONTENT if name.endswith("fifo") else {})
    group = {"group_id": "g"} if queue.is_fifo else {}
    await world.send(queue, "before", **group)
    world.engine.refuse_sends(REASON)
    with pytest.raises(Unavailable, match=REASON):
        await world.send(queue, "meanwhile", **group)
    assert [message.body for message in await world.receive(queue)] == ["before"]
    world.engine.refuse_sends("")
    await world.send(queue, "after", **({"group_id": "h"} if group else {}))


@pytest.mark.parametrize(
    ("name", "members", "refusal"),
    [
        ("orders", {"delay_seconds": 901}, DelayOutOfRange),
        ("orders", {"deduplication_id": "d"}, DeduplicationIdUnfit),
        ("orders.fifo", {"group_id": "g"}, DeduplicationIdMissing),
        ("orders.fifo", {"group_id": "a b", "deduplication_id": "d"}, IdInvalid),
        (
            "orders.fifo",
            {"group_id": "g", "deduplication_id": "d", "delay_seconds": 1},
            DelayUnfit,
        ),
    ],
)
async def test_what_no_send_can_have(
    world: World, name: str, members: dict[str, Any], refusal: type[Rejected]
) -> None:
    queue = await world.make_queue(name)
    with pytest.raises(refusal):
        await world.send(queue, **members)


async def test_the_log_counts_them_once_a_minute(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    queue = await world.make_queue()
    present = [1000.0]
    monkeypatch.setattr(disk_watch, "disk_space_at", lambda _: DiskSpace(1 << 40, 1 << 20))
    monkeypatch.setattr(disk_watch, "time", SimpleNamespace(monotonic=lambda: present[-1]))
    watch = disk_watch.DiskWatch(world.engine, tmp_path)
    caplog.set_level(logging.WARNING)
    await watch.look()
    for seconds in (59.0, 1.0, 59.0, 1.0):
        present.append(present[-1] + seconds)
        for _ in range(2):
            with pytest.raises(Unavailable):
                await world.send(queue, "meanwhile")
        await watch.look()
    first, *counts = caplog.messages
    assert "sends are refused until" in first
    assert [text.partition(" since")[0] for text in counts] == [
        "4 sends were refused",
        "4 sends were refused",
    ]


async def test_replays_are_refused(engine: Engine, caller: Caller, make_queue: MakeQueue) -> None:
    queue = await make_queue()
    engine.refuse_sends(REASON)
    with pytest.raises(Unavailable, match=REASON):
        await replay(engine, caller, queue, queue, ReplayArchive())


async def test_schedules_stay_due(world: World) -> None:
    store = ScheduleStore(world.engine, world.caller)
    await store.add("s", queue_target(await world.make_queue()))
    world.engine.refuse_sends(REASON)
    with pytest.raises(Unavailable, match=REASON):
        await store.fire(60)
    schedule = await store.get("s")
    assert (schedule.failure_count, schedule.next_fire_at) == (0, after(60))
    world.engine.refuse_sends("")
    assert await store.fire(60) == 1


async def test_a_disk_that_was_full_takes_sends_when_a_little_more_is_free(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or they would come and go with every message."""
    total = 32 << 30
    low = DiskSpace(total, 0).low_water_bytes
    frees = [low, low - 1, low, low + low // 8, low * 5 // 4 - 1, low * 5 // 4, low]
    left = [DiskSpace(total, free) for free in frees]
    monkeypatch.setattr(disk_watch, "disk_space_at", lambda _: left.pop(0))
    watch = DiskWatch(engine, tmp_path)
    refused = []
    for _ in frees:
        await watch.look()
        refused.append(bool(engine.refuses_sends))
    assert refused == [False, True, True, True, True, False, False]

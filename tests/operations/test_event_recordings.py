"""Recordings of events: what a ring keeps, what a reader is told of the rest, and who records."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from queuegate.gateway.operations.runtime import account_contents
from queuegate.gateway.operations.runtime.account_clocks import Clock
from queuegate.gateway.operations.runtime.wakeups import Wakeups
from queuegate.gateway.operations.telemetry import event_recordings as module
from queuegate.gateway.operations.telemetry.event_recordings import (
    MOST_EVENTS,
    EventReader,
    EventRecordings,
    EventRing,
    read_events,
)
from queuegate.storage import account_events
from queuegate.storage.database import Database
from queuegate.storage.storage_errors import OverLimit, Unavailable
from tests.engines import engine_on
from tests.storage.standard_queue import MovingClock, StandardQueue, make_queue
from tests.waiting import until_so, yield_turns

pytestmark = pytest.mark.timeout(60)

ACCOUNT = "111122223333"
MOST = 100


@pytest.fixture
def database_dsn(own_database_dsn: str) -> str:
    """Triggers are left on its tables."""
    return own_database_dsn


@pytest.fixture
async def processes(database: Database) -> AsyncIterator[list[EventRecordings]]:
    """Two that listen."""
    everybody = [Wakeups(database) for _ in range(2)]
    made = [EventRecordings(database, Clock(), wakeups) for wakeups in everybody]
    for wakeups, recordings in zip(everybody, made, strict=True):
        await wakeups.start()
        await recordings.load()
    yield made
    for wakeups, recordings in zip(everybody, made, strict=True):
        await recordings.close()
        await wakeups.stop()


def ring_of(*numbers: int) -> EventRing:
    """One in which something was sent so often."""
    ring = EventRing(7)
    for number in numbers:
        ring.add(number, {"kind": "sent", "number": number})
    return ring


def test_a_cursor_of_a_process_that_heard_more_is_behind_what_comes() -> None:
    ring = ring_of(1, 2)
    reader = EventReader(ring, (), {}, "7.3.3")
    assert (reader.read(9), reader.cursor) == ([], "7.3.3")
    ring.add(3, {"kind": "sent"})
    assert reader.read(9) == []
    ring.add(4, {"kind": "sent"})
    assert ([one.number for one in reader.read(9)], reader.cursor) == ([4], "7.4.4")


def numbers(reader: EventReader, most: int = MOST_EVENTS) -> list[int]:
    return [one.event.get("number", -1) for one in reader.read(most)]


async def test_a_reader_is_told_how_many_events_it_lost() -> None:
    ring = ring_of(*range(1, 11))
    slow, fast = EventReader(ring, (), {}), EventReader(ring, (), {}, "now")
    assert numbers(slow, 4) == [1, 2, 3, 4]
    cursor = slow.cursor
    for number in range(11, MOST_EVENTS + 8):
        ring.add(number, {"kind": "sent", "number": number})
    assert len(numbers(fast)) == MOST_EVENTS - 3
    assert fast.lost == 0
    # 7 of 10,007 are no longer kept, of which it has read 4.
    for reader in (slow, EventReader(ring, (), {}, cursor)):
        assert numbers(reader, 2) == [8, 9]
        assert reader.lost == 3
    again = EventReader(ring, (), {}, slow.cursor)
    assert (numbers(again, 1), again.lost) == ([10], 0)


async def test_cursors_hold_in_processes_that_heard_less() -> None:
    whole = ring_of(1, 2, 3)
    late = EventRing(7)
    late.add_gap()
    for number in (2, 3):
        late.add(number, {"kind": "sent", "number": number})
    reader = EventReader(whole, (), {})
    numbers(reader, 2)
    moved = EventReader(late, (), {}, reader.cursor)
    assert (numbers(moved), moved.lost) == ([3], 0)
    back = EventReader(whole, (), {}, moved.cursor)
    assert (numbers(back), back.lost) == ([], 0)
    # The first event is unknown there, so everything comes, behind a note that no filter drops.
    reader = EventReader(whole, (), {})
    numbers(reader, 1)
    moved = EventReader(late, {"fired"}, {"queue": "orders"}, reader.cursor)
    assert (numbers(moved), moved.lost) == ([-1], None)


async def test_a_thousand_readers_get_each_event_once() -> None:
    ring = ring_of(1)
    readers = [EventReader(ring, {"sent"}, {}, "now") for _ in range(1_000)]
    reads = [asyncio.create_task(read_events(one, MOST, 30, 0)) for one in readers]
    await yield_turns()
    ring.add(2, {"kind": "received"})
    await yield_turns()
    ring.add(3, {"kind": "sent", "number": 3})
    ring.add(4, {"kind": "sent", "number": 4})
    found = [events for events, _ in await asyncio.gather(*reads)]
    assert found == [[{"kind": "sent", "number": 3}, {"kind": "sent", "number": 4}]] * 1_000


async def test_a_lost_connection_leaves_a_gap(
    processes: list[EventRecordings], database: Database
) -> None:
    here, there = processes
    queue = StandardQueue(database, await make_queue(database), MovingClock())
    async with database.transaction() as tx:
        await tx.execute("UPDATE queues SET account_id = $1", ACCOUNT)
    ring = await here.ring_of(ACCOUNT)
    await until_so(lambda: ACCOUNT in there.rings)
    reader = EventReader(ring, (), {})
    await queue.send("before")
    [before] = await reader.wait(MOST, asyncio.get_running_loop().time() + 30)
    assert before.event["kind"] == "sent"
    async with database.transaction() as tx:
        await tx.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND query ILIKE '%notif%'"
            " AND pid <> pg_backend_pid()"
        )
    [gap] = await reader.wait(MOST, asyncio.get_running_loop().time() + 30)
    assert gap.event == {"kind": "gap"}
    await here.settle()
    await queue.send("after")
    [after] = await reader.wait(MOST, asyncio.get_running_loop().time() + 30)
    assert after.event["kind"] == "sent"
    assert reader.lost == 0
    await queue.lanes.close()


async def test_recordings_that_nobody_reads_end(
    processes: list[EventRecordings], database: Database
) -> None:
    here, there = processes
    kept = "222233334444"
    await asyncio.gather(
        here.ring_of(ACCOUNT), there.ring_of(ACCOUNT), there.ring_of(kept, is_kept=True)
    )
    assert here.rings[ACCOUNT].recording_id == there.rings[ACCOUNT].recording_id
    assert await triggers(database) == 6
    async with database.transaction() as tx:
        await tx.execute("UPDATE event_recordings SET ends_at = ends_at - interval '2 hours'")
    waiting = asyncio.create_task(
        read_events(EventReader(here.rings[ACCOUNT], (), {}), MOST, 30, 0)
    )
    await account_events.stop_unread(database)
    assert await waiting == ([], False)
    await until_so(lambda: [*there.rings] == [kept])
    assert await triggers(database) == 6
    await asyncio.gather(*[one.stop(kept) for one in processes])
    await account_events.stop_unread(database)
    assert await triggers(database) == 0


async def test_the_memory_of_all_accounts_is_bounded(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accounts without events for the longest lose theirs, and their readers are told."""
    monkeypatch.setattr(module, "MOST_BYTES", 1_000_000)
    recordings = EventRecordings(database, Clock(), Wakeups(database))
    accounts = [f"{number:012}" for number in range(50)]
    recordings.rings.update({name: EventRing(7) for name in accounts})
    readers = [EventReader(recordings.rings[name], (), {}) for name in accounts]

    def happen(name: str) -> None:
        event = {"kind": "sent", "body": "x" * 500}
        payload = {"id": 1 + recordings.rings[name].end, "account": name, "at": 0, "event": event}
        recordings._heard(json.dumps(payload))

    for name in accounts:
        for _ in range(100):
            happen(name)
    happen(accounts[-5])
    happen(accounts[0])
    assert sum(ring.size_bytes for ring in recordings.rings.values()) < 1_100_000
    found = [[one.event["kind"] for one in reader.read(MOST)] for reader in readers]
    assert found[1:40] == [["gap"]] * 39
    assert found[0] == ["gap", "sent"]
    assert found[-1] == ["sent"] * 100
    assert [reader.lost for reader in readers[1:40]] == [100] * 39
    again = EventReader(recordings.rings[accounts[0]], {"deleted"}, {}, "7.5.5")
    assert ([one.event["kind"] for one in again.read(MOST)], again.lost) == (["gap"], None)


async def test_a_reset_ends_the_recording(database: Database) -> None:
    engine = engine_on(database, Clock(), Wakeups(database))
    await engine.wakeups.start()
    await engine.events.load()
    for account_id in (ACCOUNT, None):
        ring = await engine.events.ring_of(ACCOUNT)
        waiting = asyncio.create_task(read_events(EventReader(ring, (), {}), MOST, 30, 0.2))
        await account_contents.reset(engine, account_id)
        assert await waiting == ([], False)
        assert not engine.events.rings
    await engine.close()
    await engine.wakeups.stop()


async def triggers(database: Database) -> int:
    async with database.transaction() as tx:
        count: int = await tx.fetchval("SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'note_%'")
        return count


async def test_a_recording_waits_for_long_writes_only_so_long(
    processes: list[EventRecordings], database: Database
) -> None:
    """For 2 s: later writes of the table wait behind it."""
    here, there = processes
    async with database.transaction() as tx:
        await tx.execute("LOCK TABLE fifo_messages IN ROW EXCLUSIVE MODE")
        with pytest.raises(Unavailable, match="The triggers of fifo_messages cannot change"):
            await here.ring_of(ACCOUNT)
    assert (await there.ring_of(ACCOUNT)).recording_id == here.rings[ACCOUNT].recording_id
    assert await triggers(database) == 6


async def test_only_so_many_accounts_record(
    processes: list[EventRecordings], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account_events, "_MOST_RECORDINGS", 1)
    here, there = processes
    await here.ring_of(ACCOUNT)
    await there.ring_of(ACCOUNT, is_kept=True)
    with pytest.raises(OverLimit, match="1 accounts record events"):
        await here.ring_of("222233334444")


async def test_a_process_that_starts_takes_no_old_recording_for_a_new_one(
    database: Database, processes: list[EventRecordings]
) -> None:
    """It hears of a renewal before it has read which accounts record."""
    ring = await processes[0].ring_of(ACCOUNT)
    wakeups = Wakeups(database)
    late = EventRecordings(database, Clock(), wakeups)
    await wakeups.start()
    wakeups.on["recording_changed"](int(ACCOUNT), ring.recording_id)
    await late.load()
    kept = EventReader(late.rings[ACCOUNT], (), {}).read(9)
    assert [one.event["kind"] for one in kept] == ["gap"]
    await late.close()
    await wakeups.stop()

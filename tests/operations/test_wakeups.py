"""Hints between processes: who hears what, and what a lost connection does to the caches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from queuegate.gateway.operations.queues.queue_cache import QueueCache
from queuegate.gateway.operations.runtime import wakeups as module
from queuegate.gateway.operations.runtime.wakeups import Wakeups
from queuegate.storage import notifications
from queuegate.storage import stored_clocks as settings
from queuegate.storage.database import Database
from queuegate.storage.lanes import NULL_REPLY
from queuegate.storage.notifications import Notice
from queuegate.storage.queues.messages import Receive
from queuegate.storage.storage_errors import QueueDoesNotExist
from tests.operations.conftest import ACCOUNT, REGION, MakeQueue
from tests.operations.world import World
from tests.waiting import until_so, yield_turns

pytestmark = pytest.mark.timeout(60)


class Waiter:
    """A parked receive that only notes that it was woken."""

    def __init__(self) -> None:
        self.woken = asyncio.Event()

    def wake(self) -> None:
        self.woken.set()


class Taker(Waiter):
    """One that is handed whatever is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.entry = Receive(1, 10, 30_000, 60, NULL_REPLY)

    def take(self) -> Receive:
        return self.entry


@pytest.fixture
async def processes(database: Database) -> AsyncIterator[Callable[[int], list[Wakeups]]]:
    """``processes(2)``: the wakeups of so many processes, not started."""
    made: list[Wakeups] = []

    def make(count: int) -> list[Wakeups]:
        made.extend(Wakeups(database) for _ in range(count))
        return made

    yield make
    for wakeups in made:
        await wakeups.stop()


@pytest.fixture
async def pair(processes: Callable[[int], list[Wakeups]]) -> list[Wakeups]:
    """Two processes that know of each other."""
    pair = processes(2)
    for wakeups in pair:
        await wakeups.start()
    await until_so(lambda: all(wakeups._peers for wakeups in pair))
    return pair


async def test_each_arrival_wakes_as_many_as_arrived(database: Database) -> None:
    wakeups = Wakeups(database)
    waiters = [Waiter() for _ in range(4)]
    for waiter in waiters:
        wakeups.park(1, waiter)
    wakeups.park(2, other := Waiter())
    wakeups.arrived(1, 2)
    assert [waiter.woken.is_set() for waiter in waiters] == [True, True, False, False]
    wakeups.leave(1, waiters[2])
    wakeups.leave(1, waiters[2])
    assert wakeups.parked_count() == 2
    wakeups.wake_next(1)
    assert waiters[3].woken.is_set()
    assert not other.woken.is_set()
    wakeups.wake_all()
    assert other.woken.is_set()
    assert wakeups.parked_count() == 0


@pytest.mark.parametrize("looked_at_once", [1000, 1])
async def test_what_shows_while_somebody_is_handed_something_counts_as_an_arrival(
    processes: Callable[[int], list[Wakeups]], monkeypatch: pytest.MonkeyPatch, looked_at_once: int
) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(module, "_LOOKED_AT_ONCE", looked_at_once)
    [wakeups] = processes(1)

    async def look(queue_ids: list[int]) -> list[tuple[int, bool, int]]:
        return [(queue_id, queue_id == 1, 10) for queue_id in queue_ids]

    wakeups.look = look
    takers = [Taker(), Taker()]

    def hand_over() -> None:
        for queue_id, taker in enumerate(takers, 1):
            wakeups.park(queue_id, taker)
            assert wakeups.take(queue_id) is taker.entry

    def is_known() -> bool:
        hand_over()
        return bool(wakeups.arrivals(1) and wakeups.arrivals(2))

    await wakeups.start()
    # One is visible already, the other is soon. Nobody is parked who could be woken.
    await until_so(is_known)
    assert not any(taker.woken.is_set() for taker in takers)


def test_an_arrival_is_counted_also_when_nobody_waits(database: Database) -> None:
    wakeups = Wakeups(database)
    before = wakeups.arrivals(1)
    wakeups.arrived(1)
    assert wakeups.arrivals(1) != before
    assert wakeups.arrivals(2) == before


async def test_a_waiter_may_park_again_while_it_is_woken(database: Database) -> None:
    wakeups = Wakeups(database)

    class Again(Waiter):
        def wake(self) -> None:
            wakeups.park(1, Waiter())
            super().wake()

    wakeups.park(1, Again())
    wakeups.arrived(1, 1)
    assert wakeups.parked_count() == 1


async def test_an_arrival_wakes_a_process_that_waits(pair: list[Wakeups]) -> None:
    here, there = pair
    waiter = Waiter()
    there.park(7, waiter)
    await until_so(lambda: 7 in here._wanted_elsewhere)
    here.arrived(7)
    await asyncio.wait_for(waiter.woken.wait(), 10)
    assert there.arrivals(7) == 1


async def test_an_arrival_just_before_the_wish_to_hear_of_it_is_told(
    pair: list[Wakeups], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_RECENT_SECONDS", 60.0)
    here, there = pair
    waiter = Waiter()
    here.arrived(7)
    there.park(7, waiter)
    await asyncio.wait_for(waiter.woken.wait(), 10)


async def test_nobody_is_told_what_nobody_waits_for(pair: list[Wakeups]) -> None:
    here, there = pair
    heard: list[int] = []
    there.on["arrival_elsewhere"] = heard.append
    waiter = Waiter()
    there.park(8, waiter)
    await until_so(lambda: 8 in here._wanted_elsewhere)
    here.arrived(7)
    here.arrived(8)
    await waiter.woken.wait()
    assert heard == [8]


async def test_a_changed_queue_is_told_to_all_by_the_transaction(
    pair: list[Wakeups], database: Database
) -> None:
    heard: dict[str, list[int | None]] = {"here": [], "there": []}
    for name, wakeups in zip(heard, pair, strict=True):
        wakeups.on["queue_changed"] = heard[name].append
    waiter = Waiter()
    pair[1].park(8, waiter)
    async with database.transaction() as tx:
        for queue_id in (7, 8, 9):
            await notifications.notify(tx, notifications.Notice.QUEUE_CHANGED, queue_id)
        assert heard == {"here": [], "there": []}
    await until_so(lambda: heard == {"here": [7, 8, 9], "there": [7, 8, 9]})
    await waiter.woken.wait()


async def test_a_moved_clock_is_told_to_all(pair: list[Wakeups], database: Database) -> None:
    told: list[int] = []
    for wakeups in pair:
        wakeups.on["clock_moved"] = told.append
    account = {"111122223333": settings.ClockSetting(frozen=(1.5, 2.5))}
    async with database.transaction() as tx:
        held = await settings.lock_clock(tx)
        moved = settings.StoredClock(settings.ClockSetting(301.5), account, held.moves + 1)
        await settings.move_clock(tx, moved)
    await until_so(lambda: told == [moved.moves] * 2)
    async with database.transaction() as tx:
        assert await settings.read_clock(tx) == moved


async def test_who_moves_a_clock_waits_until_others_know_of_it(
    pair: list[Wakeups], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CLOCK_SECONDS", 60.0)
    here, there = pair
    waiting = asyncio.create_task(here.wait_until_applied(Notice.CLOCK_MOVED, 7))
    there.applied(Notice.CLOCK_MOVED, 6)
    await until_so(lambda: 6 in here._applied["K"].values())
    await yield_turns()
    assert not waiting.done()
    there.applied(Notice.CLOCK_MOVED, 7)
    await waiting


async def test_nobody_waits_long_for_a_process_that_has_gone(
    pair: list[Wakeups], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CLOCK_SECONDS", 0.01)
    await pair[0].wait_until_applied(Notice.CLOCK_MOVED, 7)


async def test_a_failing_look_does_not_end_the_looking(pair: list[Wakeups]) -> None:
    here, _ = pair
    looks: list[list[int]] = []

    async def look(queue_ids: list[int]) -> list[tuple[int, bool, int]]:
        looks.append(queue_ids)
        if len(looks) == 1:
            raise ZeroDivisionError
        return [(7, True, 0)]

    here.look = look
    waiter = Waiter()
    here.park(7, waiter)
    await waiter.woken.wait()
    assert looks == [[7], [7]]


async def test_many_queues_are_looked_at_in_turn(
    pair: list[Wakeups], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each once before any is again, and then till its next turn is known what becomes visible."""
    monkeypatch.setattr(module, "_LOOKED_AT_ONCE", 10)
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
    here, _ = pair
    turns: list[list[int]] = []
    take_turns_of = here._take_turns

    def noted() -> list[int]:
        found = take_turns_of()
        turns.append(found)
        return found

    async def look(_: list[int]) -> list[tuple[int, bool, int]]:
        return []

    monkeypatch.setattr(here, "_take_turns", noted)
    here.look = look
    waiters = [Waiter() for _ in range(25)]
    for queue_id, waiter in enumerate(waiters):
        here.park(queue_id, waiter)
    turns.clear()
    await until_so(lambda: len(turns) >= 6)
    for some in (turns[:3], turns[3:6]):
        assert sorted(queue_id for found in some for queue_id in found) == [*range(25)]


async def test_what_becomes_visible_wakes_some_and_they_the_others(
    pair: list[Wakeups], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WOKEN_AT_ONCE", 2)
    here, _ = pair

    async def look(queue_ids: list[int]) -> list[tuple[int, bool, int]]:
        return [(queue_id, False, 1) for queue_id in queue_ids]

    here.look = look
    waiters = [Waiter() for _ in range(4)]
    for waiter in waiters:
        here.park(7, waiter)
    await until_so(lambda: waiters[1].woken.is_set())
    assert not waiters[2].woken.is_set()
    here.wake_next(7)
    assert waiters[2].woken.is_set()


async def test_a_lost_connection_means_that_anything_may_have_changed(
    pair: list[Wakeups], database: Database
) -> None:
    here, there = pair
    changed: list[int | None] = []
    there.on["queue_changed"] = changed.append
    told: list[str] = []
    there.on["schedules"] = lambda: told.append("schedules")
    there.on["deliveries"] = lambda: told.append("deliveries")
    waiter = Waiter()
    there.park(7, waiter)
    async with database.transaction() as tx:
        await tx.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND query ILIKE '%notif%'"
            " AND pid <> pg_backend_pid()"
        )
    await until_so(lambda: changed == [None])
    await waiter.woken.wait()
    assert told == ["schedules", "deliveries"]
    # It hears again.
    await until_so(lambda: here._notifications is not None)
    async with database.transaction() as tx:
        await notifications.notify(tx, notifications.Notice.QUEUE_CHANGED, 9)
    await until_so(lambda: 9 in changed)


async def test_who_stops_while_it_greets_leaves_no_connection(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    greeting: list[notifications.Notifications] = []

    async def hang(opened: notifications.Notifications, _: str) -> None:
        greeting.append(opened)
        await asyncio.Event().wait()

    monkeypatch.setattr(notifications.Notifications, "send", hang)
    starting = asyncio.create_task(Wakeups(database).start())
    await until_so(lambda: bool(greeting))
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    assert greeting[0]._connection.is_closed()


async def test_a_peer_that_falls_silent_is_forgotten(
    pair: list[Wakeups], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = pair
    await there.stop()
    monkeypatch.setattr(module, "_HEARTBEAT_SECONDS", 0.01)
    here._peers = dict.fromkeys(here._peers, 0.0)
    here._greet()
    assert here._peers == {}
    assert here._wanted_elsewhere == {}


# The cache of queues


async def test_a_forgotten_queue_is_loaded_anew(database: Database, make_queue: MakeQueue) -> None:
    queue = await make_queue()
    cache = QueueCache(database)
    first = await cache.find(ACCOUNT, REGION, "orders")
    assert await cache.find(ACCOUNT, REGION, "orders") is first
    assert cache.by_id(queue.queue_id) is first
    cache.by_url[("a", "r", "u")] = first
    cache.forget(queue.queue_id)
    assert cache.by_url == {}
    assert cache.cached(ACCOUNT, REGION, "orders") is None
    assert await cache.find(ACCOUNT, REGION, "orders") is not first
    cache.clear()
    assert cache.by_id(queue.queue_id) is None
    with pytest.raises(QueueDoesNotExist):
        await cache.find(ACCOUNT, REGION, "absent")


async def test_a_load_that_a_change_overtakes_is_not_kept(world: World) -> None:
    queue = await world.make_queue()
    cache = QueueCache(world.engine.database)
    loading = asyncio.ensure_future(cache.find(ACCOUNT, REGION, "orders"))
    await yield_turns()
    cache.forget(queue.queue_id)
    await loading
    assert cache.by_id(queue.queue_id) is None


async def test_a_load_that_began_before_a_change_is_not_joined(world: World) -> None:
    cache = QueueCache(world.engine.database)
    too_early = asyncio.ensure_future(cache.find(ACCOUNT, REGION, "orders"))
    await yield_turns()
    queue = await world.make_queue()
    cache.forget(queue.queue_id)
    found = await cache.find(ACCOUNT, REGION, "orders")
    assert found.queue_id == queue.queue_id
    await asyncio.gather(too_early, return_exceptions=True)


async def test_whoever_waits_for_a_load_survives_its_cancellation(world: World) -> None:
    queue = await world.make_queue()
    cache = QueueCache(world.engine.database)
    loading = asyncio.ensure_future(cache.find(ACCOUNT, REGION, "orders"))
    await yield_turns()
    waiting = asyncio.ensure_future(cache.find(ACCOUNT, REGION, "orders"))
    await yield_turns()
    loading.cancel()
    assert (await waiting).queue_id == queue.queue_id

"""Group commit: what shares a flush, who is told what and when, and what a lost connection does."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from queuegate.storage import lanes
from queuegate.storage.database import Database
from queuegate.storage.lanes import Entry, Lane, Reply
from queuegate.storage.storage_errors import Away, QueueDoesNotExist, Unavailable
from tests.storage.fifo_queue import Replied
from tests.waiting import until_so, yield_turns

if TYPE_CHECKING:
    from queuegate.storage.database import Connection
    from queuegate.storage.database_hosts import DatabaseSession

_TABLE = "CREATE TABLE kept (kept_id int PRIMARY KEY)"
_KEEP = "INSERT INTO kept SELECT unnest($1::int[])"


@pytest.fixture
def database_dsn(own_database_dsn: str) -> str:
    return own_database_dsn


class Told:
    """A reply that passes on what it hears, errors too."""

    def __init__(self, tell: Callable[[Any], None]) -> None:
        self.done = self.failed = tell


class Number(Entry[int]):
    """Keeps a number. The result is the number, or the error."""

    __slots__ = ("number",)

    def __init__(self, number: int, reply: Reply[Any], size_bytes: int = 0) -> None:
        super().__init__(reply, size_bytes)
        self.number = number


class Numbers:
    """A lane that keeps numbers in a table, and what happened to them."""

    def __init__(
        self, database: Database, max_entries: int = 256, linger_seconds: float = 0.0
    ) -> None:
        self.database = database
        self.flushes: list[list[int]] = []
        self.replies: list[tuple[int, object]] = []
        self.postponed: set[int] = set()
        self.held: asyncio.Event | None = None
        self.flushing = asyncio.Event()
        self.lane: Lane[Number] = Lane(
            "numbers",
            database,
            self._flush,
            max_entries=max_entries,
            linger_seconds=linger_seconds,
        )

    async def _flush(self, connection: Connection, batch: list[Number]) -> list[Number]:
        left = [entry for entry in batch if entry.number in self.postponed]
        now = [entry for entry in batch if entry.number not in self.postponed]
        self.postponed.clear()
        self.flushes.append([entry.number for entry in now])
        self.flushing.set()
        if self.held is not None:
            await self.held.wait()
        await connection.execute(_KEEP, [entry.number for entry in now])
        for entry in now:
            entry.done(entry.number)
        return left

    def submit(self, number: int, size_bytes: int = 0) -> Number:
        """Hand in a number; what is answered stands in ``replies``."""
        entry = Number(
            number, Told(lambda result: self.replies.append((number, result))), size_bytes
        )
        self.lane.submit(entry)
        return entry

    async def keep(self, number: int, size_bytes: int = 0) -> object:
        """Hand in a number and wait for its answer."""
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.lane.submit(Number(number, Replied(future), size_bytes))
        return await future

    async def kept(self) -> list[int]:
        async with self.database.transaction() as tx:
            return [row[0] for row in await tx.fetch("SELECT kept_id FROM kept ORDER BY 1")]

    async def end_connections(self) -> None:
        """The server ends every connection but the one that asks."""
        async with self.database.transaction() as tx:
            await tx.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                " AND backend_type = 'client backend'"
            )


@pytest.fixture
async def numbers(database: Database) -> AsyncIterator[Numbers]:
    async with database.transaction() as tx:
        await tx.execute(_TABLE)
    numbers = Numbers(database)
    yield numbers
    if numbers.held is not None:
        numbers.held.set()
    await numbers.lane.close()


async def _hold(numbers: Numbers) -> asyncio.Event:
    """Begin a flush of the number 0 that lasts until the event is set."""
    numbers.held = asyncio.Event()
    numbers.submit(0)
    await numbers.flushing.wait()
    return numbers.held


async def test_those_who_were_answered_together_leave_together(numbers: Numbers) -> None:
    held = await _hold(numbers)
    again: list[asyncio.Task[None]] = []

    async def ask_again(number: int) -> None:
        # Their next requests are read one after the other.
        await yield_turns(number)
        numbers.submit(number + 10)

    for number in (1, 2, 3):
        numbers.lane.submit(
            Number(number, Told(lambda it: again.append(asyncio.create_task(ask_again(it)))))
        )
    held.set()
    await until_so(lambda: len(numbers.replies) == 4)
    assert numbers.flushes == [[0], [1, 2, 3], [11, 12, 13]]
    await asyncio.gather(*again)


async def test_a_full_flush_waits_for_nobody(numbers: Numbers) -> None:
    full = Numbers(numbers.database, max_entries=2)
    held = await _hold(full)
    keeping = [asyncio.create_task(full.keep(number)) for number in (1, 2, 3, 4, 5)]
    held.set()
    assert await asyncio.gather(*keeping) == [1, 2, 3, 4, 5]
    assert full.flushes == [[0], [1, 2], [3, 4], [5]]
    await full.lane.close()


async def test_entries_gather_for_the_time_to_linger(numbers: Numbers) -> None:
    lingering = Numbers(numbers.database, linger_seconds=1.0)
    keeping = [asyncio.create_task(lingering.keep(1))]
    for number in (2, 3):
        # Some turns of the loop later: late for a flush, but not for a lane that lingers.
        await yield_turns(5)
        keeping.append(asyncio.create_task(lingering.keep(number)))
    assert await asyncio.gather(*keeping) == [1, 2, 3]
    assert lingering.flushes == [[1, 2, 3]]
    await lingering.lane.close()


async def test_a_full_flush_and_a_lane_that_closes_do_not_linger(numbers: Numbers) -> None:
    lingering = Numbers(numbers.database, max_entries=3, linger_seconds=3600.0)
    assert await asyncio.gather(*[lingering.keep(n) for n in (1, 2, 3)]) == [1, 2, 3]
    left = asyncio.create_task(lingering.keep(4))
    await yield_turns()
    await lingering.lane.close()
    assert await left == 4
    assert lingering.flushes == [[1, 2, 3], [4]]


async def test_a_lone_entry_is_flushed_at_once(numbers: Numbers) -> None:
    assert await numbers.keep(7) == 7
    assert numbers.flushes == [[7]]


async def test_while_one_flush_is_in_flight_the_next_collects(numbers: Numbers) -> None:
    held = await _hold(numbers)
    waiting = [asyncio.ensure_future(numbers.keep(number)) for number in range(1, 6)]
    await yield_turns()
    held.set()
    assert await asyncio.gather(*waiting) == [1, 2, 3, 4, 5]
    assert numbers.flushes == [[0], [1, 2, 3, 4, 5]]


async def test_the_reply_comes_after_the_commit_and_in_order(numbers: Numbers) -> None:
    held = await _hold(numbers)
    for number in (3, 1, 2):
        numbers.submit(number)
    assert numbers.replies == []
    assert await numbers.kept() == []
    held.set()
    await numbers.keep(9)
    assert numbers.replies == [(0, 0), (3, 3), (1, 1), (2, 2)]
    assert await numbers.kept() == [0, 1, 2, 3, 9]


async def test_an_entry_that_fails_does_not_fail_its_neighbours(
    numbers: Numbers, caplog: pytest.LogCaptureFixture
) -> None:
    await numbers.keep(2)
    held = await _hold(numbers)
    waiting = [asyncio.ensure_future(numbers.keep(number)) for number in (1, 2, 3)]
    await yield_turns()
    held.set()
    with caplog.at_level(logging.CRITICAL, "queuegate.lanes"):
        one, two, three = await asyncio.gather(*waiting)
    assert (one, three) == (1, 3)
    assert isinstance(two, asyncpg.UniqueViolationError)
    assert await numbers.kept() == [0, 1, 2, 3]


async def test_a_refusal_by_the_flush_reaches_its_caller(database: Database) -> None:
    async def refuse(connection: Connection, batch: list[Entry[Any]]) -> list[Entry[Any]]:
        raise QueueDoesNotExist

    lane: Lane[Entry[Any]] = Lane("refusing", database, refuse)
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    lane.submit(Entry(Replied(future)))
    assert isinstance(await future, QueueDoesNotExist)
    await lane.close()


async def test_a_caller_that_left_before_the_flush_is_dropped(numbers: Numbers) -> None:
    held = await _hold(numbers)
    gone = numbers.submit(1)
    gone.gone = True
    held.set()
    assert await numbers.keep(2) == 2
    assert numbers.flushes == [[0], [2]]
    assert await numbers.kept() == [0, 2]


async def test_a_flush_of_nobody_is_left_out(numbers: Numbers) -> None:
    held = await _hold(numbers)
    numbers.submit(1).gone = True
    held.set()
    await numbers.lane.close()
    assert numbers.flushes == [[0]]


async def test_a_lost_connection_fails_what_was_in_flight_and_keeps_what_waits(
    numbers: Numbers, caplog: pytest.LogCaptureFixture
) -> None:
    await numbers.keep(10)
    held = await _hold(numbers)
    waiting = [asyncio.ensure_future(numbers.keep(number)) for number in (1, 2)]
    await yield_turns()
    with caplog.at_level(logging.CRITICAL, "queuegate.lanes"):
        await numbers.end_connections()
        held.set()
        assert await asyncio.gather(*waiting) == [1, 2]
    [(number, error)] = numbers.replies
    assert number == 0
    assert isinstance(error, Unavailable)
    assert await numbers.kept() == [1, 2, 10]


async def test_an_idle_connection_that_was_lost_is_replaced(numbers: Numbers) -> None:
    await numbers.keep(1)
    lost = numbers.lane._connection
    assert lost is not None
    closed = asyncio.Event()
    lost.add_termination_listener(lambda _: closed.set())
    await numbers.end_connections()
    await closed.wait()
    assert await numbers.keep(2) == 2
    assert await numbers.kept() == [1, 2]


async def test_after_the_deadline_waiting_entries_are_told(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_PATIENCE_SECONDS", 0.1)

    async def connect(settings: object) -> Connection:
        raise Unavailable("Down.")

    monkeypatch.setattr(numbers.database, "connect", connect)
    assert isinstance(await numbers.keep(1), Unavailable)
    monkeypatch.undo()
    assert await numbers.keep(2) == 2


class Counted(Database):
    """Counts its attempts to connect."""

    attempts = 0

    async def connect(self, settings: Mapping[str, str] | None = None) -> DatabaseSession:
        self.attempts += 1
        return await super().connect(settings)


async def test_a_server_that_refuses_the_user_is_asked_less_and_less(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_PATIENCE_SECONDS", 1.0)
    parts = urlsplit(database_dsn)
    database = Counted(parts._replace(netloc="nobody:wrong@").geturl())
    assert isinstance(await Numbers(database).keep(1), Unavailable)
    assert 2 < database.attempts < 7


async def test_a_connection_that_is_refused_for_good_is_an_answer_too(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def connect(settings: object) -> Connection:
        raise asyncpg.InvalidPasswordError("no")

    monkeypatch.setattr(numbers.database, "connect", connect)
    with caplog.at_level(logging.CRITICAL, "queuegate.lanes"):
        answers = await asyncio.gather(numbers.keep(1), numbers.keep(2))
    assert [type(answer) for answer in answers] == [asyncpg.InvalidPasswordError] * 2
    monkeypatch.undo()
    assert await numbers.keep(3) == 3


async def test_close_finishes_what_was_handed_in(numbers: Numbers) -> None:
    held = await _hold(numbers)
    waiting = [asyncio.ensure_future(numbers.keep(number)) for number in (1, 2)]
    await yield_turns()
    closing = asyncio.ensure_future(numbers.lane.close())
    await yield_turns()
    late = asyncio.ensure_future(numbers.keep(3))
    held.set()
    assert await asyncio.gather(*waiting) == [1, 2]
    assert isinstance(await late, Unavailable)
    await closing
    assert await numbers.kept() == [0, 1, 2]


async def test_close_does_not_wait_for_a_database_that_hangs(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lanes, "_CLOSE_SECONDS", 0.1)
    async with numbers.database.transaction() as tx:
        await tx.execute("LOCK TABLE kept")
        waiting = [asyncio.ensure_future(numbers.keep(number)) for number in (1, 2)]
        await numbers.flushing.wait()
        late = asyncio.ensure_future(numbers.keep(3))
        await yield_turns()
        with caplog.at_level(logging.CRITICAL, "queuegate.lanes"):
            await numbers.lane.close()
        answers = await asyncio.gather(*waiting, late)
    assert [type(answer) for answer in answers] == [Away] * 3


async def test_a_refused_submit_does_not_reply_from_within(numbers: Numbers) -> None:
    await numbers.lane.close()
    numbers.submit(1)
    assert numbers.replies == []
    assert isinstance(await numbers.keep(2), Unavailable)
    assert numbers.replies[0][0] == 1


async def test_a_flush_takes_no_more_than_its_entries(database: Database) -> None:
    async with database.transaction() as tx:
        await tx.execute(_TABLE)
    numbers = Numbers(database, max_entries=3)
    held = await _hold(numbers)
    waiting = [asyncio.ensure_future(numbers.keep(number)) for number in range(1, 8)]
    await yield_turns()
    held.set()
    await asyncio.gather(*waiting)
    assert numbers.flushes == [[0], [1, 2, 3], [4, 5, 6], [7]]
    await numbers.lane.close()


async def test_a_flush_takes_no_more_than_its_bytes(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_MAX_BYTES", 100)
    held = await _hold(numbers)
    sizes = {1: 60, 2: 40, 3: 1, 4: 500, 5: 30}
    waiting = [asyncio.ensure_future(numbers.keep(n, size)) for n, size in sizes.items()]
    await yield_turns()
    held.set()
    await asyncio.gather(*waiting)
    # One entry larger than the limit goes by itself.
    assert numbers.flushes == [[0], [1, 2], [3], [4], [5]]


async def test_what_a_flush_leaves_comes_first_in_the_next(numbers: Numbers) -> None:
    numbers.postponed = {2, 3}
    held = await _hold(numbers)
    numbers.postponed = {2, 3}
    waiting = [asyncio.ensure_future(numbers.keep(number)) for number in (1, 2, 3, 4)]
    await yield_turns()
    held.set()
    await asyncio.gather(*waiting)
    assert numbers.flushes == [[0], [1, 4], [2, 3]]


async def test_a_reply_that_raises_does_not_repeat_what_was_committed(
    numbers: Numbers, caplog: pytest.LogCaptureFixture
) -> None:
    held = await _hold(numbers)

    def break_down(result: object) -> None:
        raise ZeroDivisionError

    numbers.lane.submit(Number(1, Told(break_down)))
    waiting = asyncio.ensure_future(numbers.keep(2))
    await yield_turns()
    held.set()
    with caplog.at_level(logging.CRITICAL, "queuegate.lanes"):
        assert await waiting == 2
    assert numbers.flushes[:2] == [[0], [1, 2]]
    assert await numbers.kept() == [0, 1, 2]


async def test_lanes_are_observed(numbers: Numbers) -> None:
    sizes: list[int] = []
    numbers.lane.observe = sizes.append
    held = await _hold(numbers)
    waiting = [asyncio.ensure_future(numbers.keep(number)) for number in (1, 2)]
    await yield_turns()
    held.set()
    await asyncio.gather(*waiting)
    assert sizes == [1, 2]


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A lane that looks often for deadlines; a test shortens those that are to run out, for as long
    as nothing else has to be in time."""
    monkeypatch.setattr(lanes, "_WATCH_SECONDS", 0.01)
    monkeypatch.setattr(lanes, "_FLUSH_SECONDS", 60.0)
    monkeypatch.setattr(lanes, "_PATIENCE_SECONDS", 60.0)
    return monkeypatch


async def test_a_database_that_does_not_answer_costs_the_connection(
    numbers: Numbers, hurried: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await numbers.keep(1)
    stuck = numbers.lane._connection
    assert stuck is not None
    async with numbers.database.transaction() as tx:
        await tx.execute("LOCK TABLE kept")
        hurried.setattr(lanes, "_FLUSH_SECONDS", 0.1)
        with caplog.at_level(logging.CRITICAL, "queuegate.lanes"):
            assert isinstance(await numbers.keep(2), Unavailable)
        hurried.setattr(lanes, "_FLUSH_SECONDS", 60.0)
        assert stuck.is_closed()
    assert await numbers.keep(3) == 3


async def test_a_long_flush_that_is_answered_in_time_is_left_alone(
    numbers: Numbers, hurried: pytest.MonkeyPatch
) -> None:
    held = await _hold(numbers)
    connection = numbers.lane._connection
    numbers.lane._look()
    held.set()
    assert await numbers.keep(1) == 1
    assert numbers.lane._connection is connection


async def test_who_waits_behind_a_stuck_flush_for_too_long_is_told(
    numbers: Numbers, hurried: pytest.MonkeyPatch
) -> None:
    held = await _hold(numbers)
    hurried.setattr(lanes, "_PATIENCE_SECONDS", 0.05)
    gone = numbers.submit(2)
    gone.gone = True
    assert isinstance(await numbers.keep(1, 100), Unavailable)
    hurried.setattr(lanes, "_PATIENCE_SECONDS", 60.0)
    held.set()
    assert await numbers.keep(3, 100) == 3
    # Nothing was done for those who were told, and those who left are told nothing.
    assert await numbers.kept() == [0, 3]
    assert numbers.replies == [(0, 0)]
    assert numbers.lane._waiting_bytes == 0


async def test_who_waits_for_five_seconds_is_told(numbers: Numbers) -> None:
    held = await _hold(numbers)
    early, late = numbers.submit(1), numbers.submit(2)
    early.submitted_at -= 5.5
    late.submitted_at -= 3.0
    numbers.lane._look()
    assert [number for number, _ in numbers.replies] == [1]
    assert isinstance(numbers.replies[0][1], Unavailable)
    held.set()
    await numbers.lane.close()
    assert await numbers.kept() == [0, 2]


async def test_a_lane_says_for_how_long_its_flush_has_lasted(numbers: Numbers) -> None:
    assert numbers.lane.stuck_seconds(time.monotonic()) == 0.0
    held = await _hold(numbers)
    now = time.monotonic()
    assert 7.0 <= numbers.lane.stuck_seconds(now + 7) <= 60.0
    held.set()
    await numbers.lane.close()
    assert numbers.lane.stuck_seconds(now + 7) == 0.0


@pytest.mark.parametrize("limit", ["_MOST_WAITING_ENTRIES", "_MOST_WAITING_BYTES"])
async def test_a_full_line_takes_nobody_else(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(lanes, limit, 3 if limit == "_MOST_WAITING_ENTRIES" else 300)
    held = await _hold(numbers)
    waiting = [asyncio.ensure_future(numbers.keep(number, 100)) for number in (1, 2, 3, 4)]
    assert isinstance(await waiting[3], Unavailable)
    assert numbers.replies == []
    held.set()
    assert await asyncio.gather(*waiting[:3]) == [1, 2, 3]
    assert numbers.lane._waiting_bytes == 0
    assert await numbers.keep(5) == 5


async def test_what_a_flush_leaves_counts_as_waiting(numbers: Numbers) -> None:
    numbers.postponed = {1}
    numbers.held = asyncio.Event()
    numbers.submit(1, 100)
    await numbers.flushing.wait()
    numbers.held.set()
    assert await numbers.keep(2, 50) == 2
    assert numbers.lane._waiting_bytes == 0
    assert await numbers.kept() == [1, 2]


class Failing:
    """A lane whose flushes end with these errors, one after the other."""

    def __init__(self, database: Database, *errors: Exception) -> None:
        self.errors = list(errors)
        self.sizes: list[int] = []
        self.lane: Lane[Entry[Any]] = Lane("failing", database, self._flush)

    async def _flush(self, connection: Connection, batch: list[Entry[Any]]) -> list[Entry[Any]]:
        self.sizes.append(len(batch))
        raise self.errors.pop(0)

    async def answers(self, count: int) -> list[object]:
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[object]] = [loop.create_future() for _ in range(count)]
        for future in futures:
            self.lane.submit(Entry(Replied(future)))
        return await asyncio.gather(*futures)


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.QueryCanceledError("canceling statement due to statement timeout"),
        asyncpg.DeadlockDetectedError("deadlock detected"),
        asyncpg.LockNotAvailableError("canceling statement due to lock timeout"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_busy_database_is_tried_once_more_and_then_unavailable(
    database: Database, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    failing = Failing(database, error, error, error)
    await failing.lane.open()
    connection = failing.lane._connection
    with caplog.at_level(logging.CRITICAL, "queuegate.lanes"):
        answers = await failing.answers(2)
    assert [type(answer) for answer in answers] == [Unavailable] * 2
    assert failing.sizes == [2, 1, 1]
    # The connection is as good as before.
    assert failing.lane._connection is connection
    await failing.lane.close()


async def test_one_by_one_ends_with_the_connection(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    lost = asyncpg.ConnectionDoesNotExistError("gone")
    failing = Failing(database, asyncpg.UniqueViolationError("twice"), lost)
    with caplog.at_level(logging.CRITICAL, "queuegate.lanes"):
        answers = await failing.answers(3)
    assert [type(answer) for answer in answers] == [Away] * 3
    assert failing.sizes == [3, 1]
    await failing.lane.close()

"""More than one flush of work: accounts take turns, and within an account its queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest

from queuegate.storage import lanes
from queuegate.storage.database import Database
from queuegate.storage.lanes import Entry, Lane, Reply, RoundRobinQueue
from queuegate.storage.storage_errors import Unavailable
from tests.storage.fifo_queue import Replied

if TYPE_CHECKING:
    from queuegate.storage.database import Connection


class Asked(Entry[str]):
    """An entry of a queue, whose first letter is its account."""

    __slots__ = ("queue",)

    def __init__(
        self, queue: str, size_bytes: int = 0, reply: Reply[Any] = lanes.NULL_REPLY
    ) -> None:
        super().__init__(reply, size_bytes)
        self.queue = queue

    def party(self) -> str:
        return self.queue


def _turns(*entries: Asked) -> RoundRobinQueue[Asked]:
    turns: RoundRobinQueue[Asked] = RoundRobinQueue(lambda entry: (entry.queue[0], entry.queue))
    turns.add(entries)
    return turns


def _flushes(
    turns: RoundRobinQueue[Asked], most_entries: int, most_bytes: int = 1 << 20
) -> list[list[str]]:
    found = []
    while batch := turns.take(most_entries, most_bytes):
        found.append([entry.queue for entry in batch])
    assert (turns.count, turns.size_bytes) == (0, 0)
    return found


def test_queues_take_turns() -> None:
    turns = _turns(*[Asked("a1") for _ in range(4)], Asked("a2"), Asked("a3"))
    assert _flushes(turns, 3) == [["a1", "a2", "a3"], ["a1", "a1", "a1"]]


def test_accounts_take_turns_however_many_queues_they_have() -> None:
    turns = _turns(*[Asked(f"a{number}") for number in range(6)], Asked("b"), Asked("b"))
    assert _flushes(turns, 4) == [["a0", "b", "a1", "b"], ["a2", "a3", "a4", "a5"]]


def test_one_queue_keeps_its_order() -> None:
    entries = [Asked("a", size) for size in (60, 40, 1, 500, 30)]
    turns = _turns(*entries)
    sizes = [[entry.size_bytes for entry in turns.take(9, 100)] for _ in range(4)]
    assert sizes == [[60, 40], [1], [500], [30]]


def test_long_entries_let_others_pass_once() -> None:
    turns = _turns(*[Asked("a", 80) for _ in range(3)], *[Asked("b", 30) for _ in range(6)])
    assert _flushes(turns, 9, 240) == [["b", "b"], ["a"], ["b", "b"], ["a"], ["b", "b"], ["a"]]


def test_a_long_entry_is_not_passed_over_for_ever() -> None:
    turns = _turns(Asked("a", 90))
    for _ in range(2):
        turns.add([Asked("b", 10) for _ in range(3)])
        batch = turns.take(3, 100)
    assert [entry.queue for entry in batch] == ["a"]


def test_a_long_entry_waits_for_nobody_when_it_is_alone() -> None:
    assert _flushes(_turns(Asked("a", 500), Asked("b", 500)), 9, 100) == [["a"], ["b"]]


def test_whoever_went_away_takes_no_place() -> None:
    entries = [Asked("a") for _ in range(3)]
    entries[0].gone = entries[2].gone = True
    assert _flushes(_turns(*entries, Asked("b")), 2) == [["b", "a"]]


def test_what_is_put_back_is_first_of_its_queue() -> None:
    first, second, third = (Asked("a", size) for size in (1, 2, 3))
    turns = _turns(third)
    turns.put_back([first, second])
    assert [entry.size_bytes for entry in turns.take(9, 100)] == [1, 2, 3]


def test_the_old_are_taken_out() -> None:
    entries = [Asked(queue) for queue in ("a1", "a1", "a2", "b")]
    for second, entry in enumerate(entries):
        entry.submitted_at = second
    turns = _turns(*entries)
    assert turns.take_older(0.5) == entries[:1]
    assert turns.take_older(2) == entries[1:3]
    assert _flushes(turns, 9) == [["b"]]


class At:
    """The clock of an account."""

    def now(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC)


class Line:
    """A lane whose flushes are held and noted."""

    def __init__(self, database: Database, max_entries: int) -> None:
        self.flushes: list[list[str]] = []
        self.go_on = asyncio.Event()
        self.flushing = asyncio.Event()
        self.lane: Lane[Asked] = Lane("line", database, self._flush, max_entries=max_entries)
        self.lane.account_of = lambda party: str(party)[0]

    async def _flush(self, _: Connection, batch: list[Asked]) -> list[Asked]:
        self.flushes.append([entry.queue for entry in batch])
        self.flushing.set()
        await self.go_on.wait()
        for entry in batch:
            entry.done("done")
        return []

    def send(
        self, queue: str, size_bytes: int = 0, variant: object = None
    ) -> asyncio.Future[object]:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        entry = Asked(queue, size_bytes, Replied(future))
        entry.variant = variant
        self.lane.submit(entry)
        return future

    async def held(self) -> None:
        """A flush is under way, and stays so."""
        self.send("first")
        await self.flushing.wait()


@pytest.fixture
async def line(database: Database) -> AsyncIterator[Line]:
    line = Line(database, max_entries=3)
    yield line
    line.go_on.set()
    await line.lane.close()


async def test_a_noisy_queue_is_not_everybodys_latency(line: Line) -> None:
    await line.held()
    noise = [line.send("a") for _ in range(8)]
    others = [line.send("b"), line.send("c")]
    line.go_on.set()
    await asyncio.gather(*noise, *others)
    assert line.flushes == [["first"], ["a", "b", "c"], ["a"] * 3, ["a"] * 3, ["a"]]


async def test_long_entries_of_one_queue_are_not_either(line: Line) -> None:
    await line.held()
    noise = [line.send("a", 1 << 20) for _ in range(3)]
    other = line.send("b", 1)
    line.go_on.set()
    await asyncio.gather(*noise, other)
    assert [[name for name, _ in groupby(flush)] for flush in line.flushes[:3]] == [
        ["first"],
        ["b"],
        ["a"],
    ]


async def test_who_did_not_fill_a_line_has_room_in_it(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_MOST_WAITING_BYTES", 400)
    await line.held()
    noise = [line.send("a", 100) for _ in range(5)]
    assert isinstance(await noise[4], Unavailable)
    others = [line.send(queue, 100) for queue in ("b", "c", "d")]
    assert isinstance(await others[2], Unavailable)
    line.go_on.set()
    assert await asyncio.gather(*noise[:4], *others[:2]) == ["done"] * 6


async def test_accounts_with_clocks_of_their_own_are_flushed_apart(database: Database) -> None:
    line = Line(database, 8)
    line.lane.clocks = {"a": At(), "b": At()}
    await line.held()
    sent = [line.send(queue) for queue in ("a1", "x1", "b1", "a2", "y1", "a1")]
    line.go_on.set()
    assert await asyncio.gather(*sent) == ["done"] * 6
    assert line.flushes[1:] == [["a1", "a2", "a1"], ["x1", "y1"], ["b1"]]
    assert line.lane.now_of("a1", lambda: None) == At().now()
    assert line.lane.now_of("x1", lambda: None) is None
    await line.lane.close()


async def test_a_flush_has_one_variant_and_variants_take_turns(line: Line) -> None:
    await line.held()
    line.go_on.set()
    sent = [line.send(name, variant=name) for name in ("a", "b", "a")]
    await asyncio.gather(*sent)
    assert line.flushes[1:] == [["a", "a"], ["b"]]


async def test_a_full_line_of_one_variant_does_not_starve_another(line: Line) -> None:
    await line.held()
    noise = [line.send("a1", variant="plain") for _ in range(8)]
    others = [line.send("a2", variant="other"), line.send("b", variant="third")]
    line.go_on.set()
    await asyncio.gather(*noise, *others)
    assert line.flushes[1:4] == [["a1"], ["b"], ["a2"]]

"""Random calls on a queue with priorities, against a model in plain Python."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest

from queuegate.storage.queue_model import Counts, Received
from tests.storage.standard_queue import PriorityQueue

_STEPS = 150
_MICROSECOND = timedelta(microseconds=1)


@dataclass
class Message:
    """The model's knowledge of one message."""

    body: str
    priority: int
    visible_at: datetime
    expires_at: datetime | None
    receive_count: int = 0

    def is_there(self, now: datetime) -> bool:
        return self.expires_at is None or self.expires_at > now

    def rank(self) -> tuple[int, bool, datetime, int]:
        """The lower, the sooner it is received."""
        return -self.priority, self.receive_count == 0, self.visible_at, int(self.body)


@dataclass
class Run:
    """A queue, its model, and what its client holds."""

    queue: PriorityQueue
    random: random.Random
    messages: dict[str, Message] = field(default_factory=dict)
    held: list[Received] = field(default_factory=list)
    count: int = 0

    @property
    def now(self) -> datetime:
        """Of the statement before."""
        return self.queue.clock.instant

    async def send(self) -> None:
        priority = self.random.choice([None, *range(11)])
        ttl = self.random.choice([None, None, *range(1, 15)])
        delay = self.random.choice([0, 0, 5])
        bodies = [str(self.count + number) for number in range(self.random.randint(1, 4))]
        self.count += len(bodies)
        await self.queue.send(*bodies, priority=priority, ttl=ttl, delay_seconds=delay)
        end = None if ttl is None else self.now + timedelta(seconds=ttl)
        for place, body in enumerate(bodies, 1):
            visible_at = self.now + timedelta(seconds=delay) - (len(bodies) - place) * _MICROSECOND
            self.messages[body] = Message(body, priority or 0, visible_at, end)

    async def receive(self) -> None:
        limit, visibility = self.random.randint(1, 6), self.random.choice([0, 3, 10])
        found = await self.queue.receive(limit, visibility)
        ready = [
            one
            for one in self.messages.values()
            if one.is_there(self.now) and one.visible_at <= self.now
        ]
        chosen = sorted(ready, key=Message.rank)[:limit]
        # Handed out by age within each priority.
        chosen.sort(key=lambda one: (-one.priority, int(one.body)))
        assert [one.body for one in found] == [one.body for one in chosen]
        for one in chosen:
            one.receive_count += 1
            one.visible_at = self.now + timedelta(seconds=visibility)
        assert [one.receive_count for one in found] == [one.receive_count for one in chosen]
        assert [one.priority for one in found] == [one.priority for one in chosen]
        self.held += found

    async def delete(self) -> None:
        if self.held:
            gone = self.held.pop(self.random.randrange(len(self.held)))
            await self.queue.delete(gone)
            del self.messages[gone.body]
            self.held = [one for one in self.held if one.body != gone.body]

    async def hide(self) -> None:
        if self.held:
            one = self.random.choice(self.held)
            seconds = self.random.choice([0, 2, 20])
            [changed] = await self.queue.hide(one, seconds=seconds)
            assert changed
            self.messages[one.body].visible_at = self.now + timedelta(seconds=seconds)

    async def wait(self) -> None:
        """Mostly on; a tester may turn a clock back, too."""
        seconds = self.random.choice([0.1, 1, 4, 12, -3])
        self.queue.clock.wait(seconds)
        if seconds < 0:
            self.queue.lanes.forget_marks()

    async def remove_overdue(self) -> None:
        gone = await self.queue.remove_overdue()
        over = [one.body for one in self.messages.values() if not one.is_there(self.now)]
        assert gone == len(over)
        for body in over:
            del self.messages[body]
        self.held = [one for one in self.held if one.body in self.messages]

    async def look(self) -> None:
        counts = await self.queue.counts()
        there = [one for one in self.messages.values() if one.is_there(self.now)]
        hidden = [one for one in there if one.visible_at > self.now]
        in_flight = sum([one.receive_count > 0 for one in hidden])
        expected = Counts(len(there) - len(hidden), in_flight, len(hidden) - in_flight)
        assert counts == expected
        found = await self.queue.next_visible()
        waited_for = [
            one.visible_at
            for one in self.messages.values()
            if one.expires_at is None or one.expires_at > max(one.visible_at, self.now)
        ]
        assert [one.ready for one in found] == [min(waited_for) <= self.now for _ in waited_for[:1]]


@pytest.mark.parametrize("seed", range(8))
async def test_random_calls_do_what_the_model_says(urgent: PriorityQueue, seed: int) -> None:
    run = Run(urgent, random.Random(seed))
    await urgent.send("makes it one with priorities", ttl=1)
    await urgent.delete(*await urgent.receive())
    steps = [run.send, run.send, run.receive, run.receive, run.delete]
    steps += [run.hide, run.wait, run.remove_overdue, run.look]
    for _ in range(_STEPS):
        await run.random.choice(steps)()
    run.queue.clock.wait(60)
    await run.remove_overdue()
    await run.look()
    total, rows = await urgent.counted()
    assert total == rows == len(run.messages)

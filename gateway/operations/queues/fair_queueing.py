"""Noisy message groups of standard queues: which they are, and how long they stay so (fair queues).

Each process samples the queues from which it hands out messages with groups, at most five times a
second. Queues without groups cost a look at the rare system attributes of received messages.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.runtime.background_tasks import spawn
from queuegate.storage.queues import fair_queues
from queuegate.storage.queues.fair_queues import FairReceives, group_of
from queuegate.storage.storage_errors import Unavailable

if TYPE_CHECKING:
    from queuegate.gateway.operations.queues.queue_cache import QueueCache
    from queuegate.gateway.operations.runtime.account_clocks import Clock
    from queuegate.storage.database import Database
    from queuegate.storage.queue_model import Received
    from queuegate.storage.queues.fair_queues import GroupSample, NotedQueue, QuietDepth

_log = logging.getLogger("queuegate.fairness")

NOISY_IN_FLIGHT = 30
NOISY_SHARE = 0.1
QUIET_AFTER = timedelta(minutes=5)
"""A group to which nothing was sent for so long is noisy by its messages in flight alone."""
_LEAST_PROCESSING_SECONDS = 30.0
"""Recent processing time of all groups, below which shares of it say nothing."""
_HALF_LIFE_SECONDS = 120.0
_LONGEST_STEP_SECONDS = 60.0
_PAUSE_SECONDS = 0.2
_COST_FACTOR = 10
"""A pause between samples is at least so many times as long as the sample took."""
_MOST_WATCHED = 1_000
_MOST_SHOWN = 50


class FairGauges(NamedTuple):
    """The gauges of a queue with message groups."""

    queue: NotedQueue
    noisy: int
    quiet: QuietDepth


class _Watched:
    """The groups of one queue, as this process sampled them."""

    __slots__ = ("is_active", "noisy", "processing", "sampled_at")

    def __init__(self) -> None:
        self.is_active = False
        self.noisy: dict[str, datetime] = {}
        """By noisy group, when the last message was sent to it."""
        self.processing: dict[str | None, float] = {}
        """By group, seconds that its messages were in flight, halved every two minutes."""
        self.sampled_at: datetime | None = None

    def measure(self, samples: list[GroupSample]) -> set[str]:
        """Take in a sample of all groups; return those that are noisy by it."""
        self._add_processing(samples)
        total = sum([one.in_flight for one in samples])
        spent = sum(self.processing.values())
        if spent < _LEAST_PROCESSING_SECONDS:
            spent = float("inf")
        found = set()
        for group, in_flight, sent_at in [one[1:4] for one in samples]:
            if group is None or sent_at is None:
                continue
            if group in self.noisy:
                self.noisy[group] = max(self.noisy[group], sent_at)
            is_held = in_flight >= NOISY_IN_FLIGHT and in_flight > total * NOISY_SHARE
            if is_held or self.processing.get(group, 0.0) > spent * NOISY_SHARE:
                self.noisy.setdefault(group, sent_at)
                found.add(group)
        return found

    def has_no_groups(self, samples: list[GroupSample]) -> bool:
        """Return True if a queue of this sample need not be watched until a group is received."""
        return not self.noisy and not any(
            one is not None for one in (*self.processing, *[one.group for one in samples])
        )

    def _add_processing(self, samples: list[GroupSample]) -> None:
        now = samples[0].now
        passed = 0.0 if self.sampled_at is None else (now - self.sampled_at).total_seconds()
        self.sampled_at = now
        passed = max(passed, 0.0)
        kept = 0.5 ** (passed / _HALF_LIFE_SECONDS)
        processing = {
            group: seconds * kept
            for group, seconds in self.processing.items()
            if seconds * kept >= 0.01
        }
        for one in samples:
            if one.in_flight:
                more = one.in_flight * min(passed, _LONGEST_STEP_SECONDS)
                processing[one.group] = processing.get(one.group, 0.0) + more
        self.processing = processing


class Fairness:
    """Finds the noisy groups of queues, for the receives that pass them over."""

    def __init__(
        self, database: Database, queues: QueueCache, clock: Clock, receives: FairReceives
    ) -> None:
        self._database = database
        self._queues = queues
        self._clock = clock
        self._receives = receives
        self.watched: dict[int, _Watched] = {}
        """By queue, where messages with groups were received here."""
        self._unnoted: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._next_at = 0.0
        self._is_sampling = False

    def received(self, queue_id: int, messages: list[Received]) -> None:
        """Sample the queue soon, if its messages have groups. It is a plain standard queue."""
        watched = self.watched.get(queue_id)
        if watched is None:
            if not any(group_of(message.system) for message in messages):
                return
            watched = self._watch(queue_id)
            self._unnoted.add(queue_id)
        watched.is_active = True
        if self._timer is None and not self._is_sampling:
            self._schedule()

    def forget(self, queue_id: int) -> None:
        self.watched.pop(queue_id, None)
        self._receives.noisy.pop(queue_id, None)

    async def close(self) -> None:
        self._is_sampling = True
        if self._timer is not None:
            self._timer.cancel()

    def _watch(self, queue_id: int) -> _Watched:
        if len(self.watched) >= _MOST_WATCHED:
            for other, one in list(self.watched.items()):
                if not one.is_active:
                    self.forget(other)
        return self.watched.setdefault(queue_id, _Watched())

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(max(self._next_at, loop.time()), self._start)

    def _start(self) -> None:
        self._timer = None
        self._is_sampling = True
        spawn(self._sample_active())

    async def _sample_active(self) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            await self.sample([key for key, one in self.watched.items() if one.is_active])
        except Unavailable as error:
            _log.log(error.log_level, "noisy message groups are not known: %s", error)
        finally:
            now = loop.time()
            self._next_at = max(started + _PAUSE_SECONDS, now + _COST_FACTOR * (now - started))
            self._is_sampling = False
        if any(one.is_active for one in self.watched.values()):
            self._schedule()

    async def sample(self, queue_ids: list[int]) -> None:
        """Find the noisy groups of these queues as they are now."""
        for queue_id in queue_ids:
            self._watch(queue_id).is_active = False
        for clock, some in self._queues.by_clock(self._clock, queue_ids).items():
            await self._sample(clock.now(), some)

    async def _sample(self, now: datetime | None, queue_ids: list[int]) -> None:
        async with self._database.transaction() as tx:
            if self._unnoted:
                unnoted, self._unnoted = self._unnoted, set()
                await fair_queues.note(tx, sorted(unnoted))
            samples = await fair_queues.sample(tx, now, queue_ids)
            measured = []
            for queue_id, grouped in groupby(samples, key=attrgetter("queue_id")):
                some = list(grouped)
                watched = self._watch(queue_id)
                measured.append((queue_id, watched, some, watched.measure(some)))
            places = [
                (queue_id, group, *self._receives.cursor_of(queue_id, group))
                for queue_id, watched, _, found in measured
                for group in watched.noisy.keys() - found
            ]
            backlogs = await fair_queues.backlogs(tx, now, places)
        drained = {
            place[:2] for place, is_left in zip(places, backlogs, strict=True) if not is_left
        }
        for queue_id, watched, some, found in measured:
            for group in watched.noisy.keys() - found:
                sent_at = watched.noisy[group]
                if (queue_id, group) in drained or some[0].now - sent_at >= QUIET_AFTER:
                    del watched.noisy[group]
            if watched.has_no_groups(some):
                self.forget(queue_id)
                continue
            in_flight = {one.group: one.in_flight for one in some}
            noisy = {group: in_flight.get(group, 0) for group in watched.noisy}
            self._receives.noisy.pop(queue_id, None)
            if noisy:
                self._receives.noisy[queue_id] = noisy

    async def gauges(self) -> list[FairGauges]:
        """Return what metrics show of up to 50 queues with message groups, as of now."""
        async with self._database.transaction() as tx:
            queues = await fair_queues.noted(tx, _MOST_SHOWN)
        queue_ids = [one.queue_id for one in queues]
        if not queue_ids:
            return []
        await self.sample(queue_ids)
        in_flight = self._receives.noisy
        noisy = [(one, group) for one in queue_ids for group in in_flight.get(one, ())]
        async with self._database.transaction() as tx:
            depths = await fair_queues.quiet_depths(tx, self._clock.now(), queue_ids, noisy)
        return [
            FairGauges(one, len(in_flight.get(one.queue_id, ())), depths[one.queue_id])
            for one in queues
        ]

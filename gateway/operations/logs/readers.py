"""What this process knows of subscribers that fetch here: where something may be for them.

    records committed ──► Wakeups, by partition ──┐
    receipts used, visibility that ends ──────────┼──► Reader.hint(partition) ──► a fetch that waits
    a look at all partitions, now and then ───────┘
    somebody joined, left, let go of partitions, a partition was made ──► a look at all partitions

All of it is hints: a fetch asks the database about partitions that may have something, and about
all of them when nobody said which, but not all the time when they are many.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Protocol

from queuegate.gateway.operations.logs.places import (
    place_of_group,
    place_of_log,
    place_of_partition,
)
from queuegate.gateway.operations.waiters import Listener
from queuegate.gateway.operations.wakeups import Wakeups
from queuegate.storage.log_model import Group, Partition

_FEW = 256
"""Partitions that are looked at whenever somebody asks."""
_LOOK_SECONDS = 0.9
"""Between looks at all partitions, for each thousand of them, and the least: a net under hints that
are lost."""
_SLOT_SECONDS = 0.1
"""Between the instants at which somebody looks."""
_PAUSE_SECONDS = 0.2
"""Between looks at all partitions because somebody came or went."""
_IDLE_SECONDS = 60.0


class Waiting(Protocol):
    """A fetch that found nothing."""

    def wake(self) -> None:
        """Something may be there; it does not wait any more."""


class _Watch(Listener):
    """Parked where a reader wants to hear of something; ``partition_id`` None: of everything."""

    __slots__ = ("_partition_id", "_reader")

    def __init__(self, reader: Reader, partition_id: int | None) -> None:
        self._reader = reader
        self._partition_id = partition_id

    def wake(self) -> None:
        if self._partition_id is None:
            self._reader.unsettle()
        else:
            self._reader.hint(self._partition_id)


class Reader:
    """A subscriber, with the session in which it fetches."""

    def __init__(self, readers: Readers, group: Group, name: str, session: int) -> None:
        self.group = group
        self.name = name
        self.session = session
        self._readers = readers
        self._watches: dict[int, _Watch] = {}
        """By partition, of those that it holds as far as we know."""
        self._hot: dict[int, None] = {}
        """Partitions that may have something, in the order of the hints."""
        self._due: dict[int, float] = {}
        """When a partition has something, in seconds of the event loop."""
        self._look_at = 0.0
        """When all partitions are looked at."""
        self._looked_at = -math.inf
        self._waiting: OrderedDict[Waiting, None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._is_over = False
        self.used_at = 0.0
        self._any = _Watch(self, None)
        self._park_any()

    # Telling

    def hint(self, partition_id: int) -> None:
        """Something may be in a partition."""
        if partition_id in self._watches:
            self._hot[partition_id] = None
            self._due.pop(partition_id, None)
            self._wake_one()

    def due_in(self, partition_id: int, seconds: float | None) -> None:
        """Something will be in a partition; None: not by itself."""
        if seconds is None:
            self._due.pop(partition_id, None)
        elif partition_id in self._watches:
            self._due[partition_id] = at = self._readers.time() + seconds
            if at < self._timer_at:
                self._schedule()

    def unsettle(self) -> None:
        """Its partitions may be others, or all may have something."""
        self._look_at = min(self._look_at, self._looked_at + _PAUSE_SECONDS)
        self._schedule()

    def look_in(self, seconds: float) -> None:
        """Something will be in one of its partitions."""
        self._look_at = min(self._look_at, self._readers.time() + seconds)
        self._schedule()

    def look_soon(self) -> None:
        """All partitions are looked at by the next fetch."""
        self._look_at = 0.0
        self._wake_one()

    # Fetching

    def take(self, most: int) -> list[int] | None:
        """Partitions to ask about; None: all. Empty: there is nothing, and nobody need ask."""
        time = self._readers.time()
        self.used_at = time
        is_few = len(self._watches) <= _FEW
        if time >= self._look_at or (is_few and not self._hot):
            interval = _LOOK_SECONDS * max(1.0, len(self._watches) / 1_000)
            # At the same instants as others: their looks share a flush.
            at = math.ceil((time + interval) / _SLOT_SECONDS) * _SLOT_SECONDS
            self._looked_at, self._look_at = time, at
            # What wakes us is parked again before the look, and not while it wakes.
            self._park_any()
            for partition_id in self._hot:
                self._park(partition_id)
            self._hot.clear()
            return None
        taken = [partition_id for partition_id, _ in zip(self._hot, range(most), strict=False)]
        for partition_id in taken:
            del self._hot[partition_id]
            self._park(partition_id)
        return taken

    def holds(self, partition_ids: Iterable[int]) -> None:
        """What it holds: of nothing else it is told from now on."""
        if self._is_over:
            return
        held = {*partition_ids}
        for partition_id in self._watches.keys() - held:
            self._drop(partition_id)
        for partition_id in held - self._watches.keys():
            self._watches[partition_id] = _Watch(self, partition_id)
            self._readers.watch(self, partition_id)
            self._park(partition_id)

    def lost(self, partition_ids: Iterable[int]) -> None:
        """It does not hold these any more."""
        for partition_id in partition_ids:
            if partition_id in self._watches:
                self._drop(partition_id)

    def wait(self, waiting: Waiting) -> None:
        """Wake it when something may be there. There may be already."""
        self._waiting[waiting] = None
        if self._hot:
            self._wake_one()
        else:
            self._schedule()

    def leave(self, waiting: Waiting) -> None:
        """It waits no more."""
        self._waiting.pop(waiting, None)
        if not self._waiting:
            self._cancel_timer()

    def end(self) -> None:
        """Nobody fetches in this session any more: whoever waits finds out."""
        self._is_over = True
        self._cancel_timer()
        for partition_id in list(self._watches):
            self._drop(partition_id)
        for place in self._places():
            self._readers.wakeups.leave(place, self._any)
        while self._waiting:
            self._waiting.popitem(last=False)[0].wake()

    @property
    def waiting_count(self) -> int:
        """How many fetches wait."""
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether nobody has fetched for a while."""
        return not self._waiting and self.used_at < self._readers.time() - _IDLE_SECONDS

    # Within

    def _places(self) -> tuple[int, int]:
        return place_of_group(self.group.group_id), place_of_log(self.group.log_id)

    def _park_any(self) -> None:
        for place in () if self._is_over else self._places():
            self._readers.wakeups.park(place, self._any)

    def _park(self, partition_id: int) -> None:
        watch = self._watches.get(partition_id)
        if watch is not None:
            self._readers.wakeups.park(place_of_partition(partition_id), watch)

    def _drop(self, partition_id: int) -> None:
        watch = self._watches.pop(partition_id)
        self._hot.pop(partition_id, None)
        self._due.pop(partition_id, None)
        self._readers.wakeups.leave(place_of_partition(partition_id), watch)
        self._readers.unwatch(self, partition_id)

    def _wake_one(self) -> None:
        if self._waiting:
            self._waiting.popitem(last=False)[0].wake()

    def _schedule(self) -> None:
        """Have the timer go off at the next instant at which something may be there."""
        if not self._waiting:
            return
        at = min(self._look_at, min(self._due.values(), default=math.inf))
        if at < self._timer_at:
            self._cancel_timer()
            self._timer_at = at
            self._timer = asyncio.get_running_loop().call_at(at, self._tick)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = math.inf

    def _tick(self) -> None:
        self._cancel_timer()
        time = self._readers.time()
        for partition_id in [one for one, at in self._due.items() if at <= time]:
            del self._due[partition_id]
            self._hot[partition_id] = None
        if self._hot or time >= self._look_at:
            self._wake_one()
        self._schedule()


class Readers:
    """Those of this process."""

    def __init__(self, wakeups: Wakeups) -> None:
        self.wakeups = wakeups
        self._by_name: dict[tuple[int, str], Reader] = {}
        self._by_partition: dict[tuple[int, int], Reader] = {}
        self._next_sweep = 0.0

    def waiting_count(self) -> int:
        """How many fetches wait."""
        return sum(reader.waiting_count for reader in self._by_name.values())

    def time(self) -> float:
        """Of the event loop."""
        return asyncio.get_running_loop().time()

    def of(self, group: Group, name: str, session: int) -> Reader:
        """The reader of a session; that of an older one ends."""
        key = group.group_id, name
        reader = self._by_name.get(key)
        if reader is None or reader.session < session:
            self._sweep()
            before, reader = reader, Reader(self, group, name, session)
            self._by_name[key] = reader
            if before is not None:
                before.end()
        elif reader.session > session:
            # Whoever fetches with it is told that it is over, and nobody else hears of it.
            reader = Reader(self, group, name, session)
            reader.end()
        reader.group = group
        return reader

    def _sweep(self) -> None:
        """Forget those who fetch no more, or elsewhere."""
        time = self.time()
        if time < self._next_sweep:
            return
        self._next_sweep = time + _IDLE_SECONDS
        for key, reader in list(self._by_name.items()):
            if reader.is_idle:
                del self._by_name[key]
                reader.end()

    def forget(self, reader: Reader) -> None:
        """It is not in its group, or not with this session."""
        key = reader.group.group_id, reader.name
        if self._by_name.get(key) is reader:
            del self._by_name[key]
            reader.end()

    def watch(self, reader: Reader, partition_id: int) -> None:
        """A reader holds a partition."""
        self._by_partition[reader.group.group_id, partition_id] = reader

    def unwatch(self, reader: Reader, partition_id: int) -> None:
        """It does not hold it any more."""
        key = reader.group.group_id, partition_id
        if self._by_partition.get(key) is reader:
            del self._by_partition[key]

    def due(self, group_id: int, partition_id: int, in_ms: int | None) -> None:
        """A group has something in a partition, or will have."""
        reader = self._by_partition.get((group_id, partition_id))
        if reader is None:
            if in_ms is not None and in_ms <= 0:
                # Who holds it fetches in another process, if anywhere.
                self.wakeups.appended((partition_id,))
        elif in_ms is None:
            reader.due_in(partition_id, None)
        elif in_ms <= 0:
            reader.hint(partition_id)
        else:
            reader.due_in(partition_id, in_ms / 1000)

    def holds(self, group: Group, name: str, session: int, partitions: Sequence[Partition]) -> None:
        """What a subscriber holds after a heartbeat."""
        reader = self._by_name.get((group.group_id, name))
        if reader is not None and reader.session == session:
            reader.holds(one.partition_id for one in partitions)
            reader.look_soon()

    def left(self, group: Group, name: str, session: int) -> None:
        """A subscriber has left."""
        reader = self._by_name.get((group.group_id, name))
        if reader is not None and reader.session == session:
            self.forget(reader)

    def group_changed(self, group: Group) -> None:
        """Its subscribers may hold others, or may be elsewhere: here and in other processes."""
        self.wakeups.look_again((place_of_group(group.group_id),))

    def partitions_made(self, log_id: int) -> None:
        """A log has further partitions: its groups share them out."""
        self.wakeups.look_again((place_of_log(log_id),))

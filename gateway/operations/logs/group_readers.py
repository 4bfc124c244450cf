"""Readers: the subscribers that fetch in this process, with the partitions that may have records
for them.

    committed records, by Wakeups ───────┐
    receipts used, leases that expire ───┼──► GroupReader.hint(partition) ──► parked fetches
    poll of all partitions ──────────────┘
    subscribers that join or leave, new partitions ──► poll of all partitions

All of these are hints. A fetch asks the database about the partitions that were hinted at, or about
all partitions, but rarely if they are many.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from queuegate.gateway.operations.runtime.wakeups import (
    IdleWaiter,
    ParkedReceive,
    Wakeups,
    place_of_group,
    place_of_log,
    place_of_partition,
)
from queuegate.storage.model import ConsumerGroup, LogPartition

_FEW = 256
_LOOK_SECONDS = 0.9
"""Minimum interval between polls of all partitions, for each 1,000 of them, in case a hint was
lost."""
_SLOT_SECONDS = 0.1
"""Interval between the instants at which readers poll."""
_PAUSE_SECONDS = 0.2
"""Minimum interval between polls of all partitions when subscribers join or leave."""
_IDLE_SECONDS = 60.0


class _Watch(IdleWaiter):
    """A waiter for hints about one partition; ``partition_id`` None: about the group and the
    log."""

    __slots__ = ("_partition_id", "_reader")

    def __init__(self, reader: GroupReader, partition_id: int | None) -> None:
        self._reader = reader
        self._partition_id = partition_id

    def wake(self) -> None:
        if self._partition_id is None:
            self._reader.unsettle()
        else:
            self._reader.hint(self._partition_id)


class GroupReader:
    """A subscriber and the session in which it fetches."""

    def __init__(
        self, readers: GroupReaders, group: ConsumerGroup, name: str, session: int
    ) -> None:
        self.group = group
        self.name = name
        self.session = session
        self._readers = readers
        self._watches: dict[int, _Watch] = {}
        """By partition, for partitions that the subscriber holds as far as known."""
        self._hot: dict[int, None] = {}
        """Partitions that may have records, in the order of the hints."""
        self._due: dict[int, float] = {}
        """Instant at which a partition will have records, in seconds of the event loop."""
        self._look_at = 0.0
        self._looked_at = -math.inf
        self._waiting: OrderedDict[ParkedReceive, None] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._is_over = False
        self.used_at = 0.0
        self._any = _Watch(self, None)
        self._park_any()

    def hint(self, partition_id: int) -> None:
        """Note that a partition may have records."""
        if partition_id in self._watches:
            self._hot[partition_id] = None
            self._due.pop(partition_id, None)
            self._wake_one()

    def due_in(self, partition_id: int, seconds: float | None) -> None:
        """Note when a partition will have records; None: not by itself."""
        if seconds is None:
            self._due.pop(partition_id, None)
        elif partition_id in self._watches:
            self._due[partition_id] = at = self._readers.time() + seconds
            if at < self._timer_at:
                self._schedule()

    def unsettle(self) -> None:
        """Note that the subscriber's partitions may change, or all of them may have records."""
        self._look_at = min(self._look_at, self._looked_at + _PAUSE_SECONDS)
        self._schedule()

    def look_in(self, seconds: float) -> None:
        """Note that one of the partitions will have records."""
        self._look_at = min(self._look_at, self._readers.time() + seconds)
        self._schedule()

    def look_soon(self) -> None:
        """Let the next fetch ask about all partitions."""
        self._look_at = 0.0
        self._wake_one()

    def take(self, most: int) -> list[int] | None:
        """Return the partitions to ask about; None: all; empty: none has records, so no query is
        needed."""
        time = self._readers.time()
        self.used_at = time
        is_few = len(self._watches) <= _FEW
        if time >= self._look_at or (is_few and not self._hot):
            interval = _LOOK_SECONDS * max(1.0, len(self._watches) / 1_000)
            # Use common instants, so that the polls of several readers share a flush.
            at = math.ceil((time + interval) / _SLOT_SECONDS) * _SLOT_SECONDS
            self._looked_at, self._look_at = time, at
            # Park the waiters again before the query, and not while they are being woken.
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
        """Set the partitions that the subscriber holds. Hints about others are ignored."""
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
        for partition_id in partition_ids:
            if partition_id in self._watches:
                self._drop(partition_id)

    def wait(self, waiting: ParkedReceive) -> None:
        """Park a fetch until there may be records, which may be at once."""
        self._waiting[waiting] = None
        if self._hot:
            self._wake_one()
        else:
            self._schedule()

    def leave(self, waiting: ParkedReceive) -> None:
        self._waiting.pop(waiting, None)
        if not self._waiting:
            self._cancel_timer()

    def end(self) -> None:
        """End the session: parked fetches fetch again and are fenced."""
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
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Return True if there was no fetch for a while."""
        return not self._waiting and self.used_at < self._readers.time() - _IDLE_SECONDS

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
        """Set the timer to the next instant at which there may be records."""
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


class GroupReaders:
    """The readers of this process."""

    def __init__(self, wakeups: Wakeups) -> None:
        self.wakeups = wakeups
        self._by_name: dict[tuple[int, str], GroupReader] = {}
        self._by_partition: dict[tuple[int, int], GroupReader] = {}
        self._next_sweep = 0.0

    def waiting_count(self) -> int:
        return sum(reader.waiting_count for reader in self._by_name.values())

    def time(self) -> float:
        return asyncio.get_running_loop().time()

    def of(self, group: ConsumerGroup, name: str, session: int) -> GroupReader:
        """Return the reader of a session; an older session's reader ends."""
        key = group.group_id, name
        reader = self._by_name.get(key)
        if reader is None or reader.session < session:
            self._sweep()
            before, reader = reader, GroupReader(self, group, name, session)
            self._by_name[key] = reader
            if before is not None:
                before.end()
        elif reader.session > session:
            # An outdated session: its fetch is fenced by the database, and gets no hints.
            reader = GroupReader(self, group, name, session)
            reader.end()
        reader.group = group
        return reader

    def _sweep(self) -> None:
        time = self.time()
        if time < self._next_sweep:
            return
        self._next_sweep = time + _IDLE_SECONDS
        for key, reader in list(self._by_name.items()):
            if reader.is_idle:
                del self._by_name[key]
                reader.end()

    def forget(self, reader: GroupReader) -> None:
        key = reader.group.group_id, reader.name
        if self._by_name.get(key) is reader:
            del self._by_name[key]
            reader.end()

    def watch(self, reader: GroupReader, partition_id: int) -> None:
        self._by_partition[reader.group.group_id, partition_id] = reader

    def unwatch(self, reader: GroupReader, partition_id: int) -> None:
        key = reader.group.group_id, partition_id
        if self._by_partition.get(key) is reader:
            del self._by_partition[key]

    def due(self, group_id: int, partition_id: int, in_ms: int | None) -> None:
        """Hint at a partition in which a group has records, now or later."""
        reader = self._by_partition.get((group_id, partition_id))
        if reader is None:
            if in_ms is not None and in_ms <= 0:
                # If another subscriber holds the partition, that one fetches in another process.
                self.wakeups.appended((partition_id,))
        elif in_ms is not None and in_ms <= 0:
            reader.hint(partition_id)
        else:
            reader.due_in(partition_id, None if in_ms is None else in_ms / 1000)

    def holds(
        self, group: ConsumerGroup, name: str, session: int, partitions: Sequence[LogPartition]
    ) -> None:
        """Set the partitions of a subscriber after a heartbeat."""
        reader = self._known(group, name, session)
        if reader is not None:
            reader.holds(one.partition_id for one in partitions)
            reader.look_soon()

    def left(self, group: ConsumerGroup, name: str, session: int) -> None:
        """End the reader of a subscriber that has left."""
        reader = self._known(group, name, session)
        if reader is not None:
            self.forget(reader)

    def _known(self, group: ConsumerGroup, name: str, session: int) -> GroupReader | None:
        reader = self._by_name.get((group.group_id, name))
        return reader if reader is not None and reader.session == session else None

    def group_changed(self, group: ConsumerGroup) -> None:
        """Let the group's subscribers poll, here and in other processes: partitions may have been
        rebalanced."""
        self.wakeups.look_again((place_of_group(group.group_id),))

    def partitions_made(self, log_id: int) -> None:
        """Let the groups of a log rebalance, because partitions were added."""
        self.wakeups.look_again((place_of_log(log_id),))

"""Packing of rows into requests: by count, by bytes, and one at a time for each group.

Pure: rows in, requests out; the time is an argument. One thread uses a packer.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

# At most so many rows that exceed the rest of a request are passed over for smaller ones.
_MOST_PASSED_OVER = 16


class Grouped(Protocol):
    """The group of an entry, whose order is kept."""

    @property
    def group_id(self) -> str | None: ...


Content = TypeVar("Content", bound=Grouped)


class Destination(NamedTuple):
    """A queue's URL or a topic's ARN. ``most_bytes``: the limit of a request."""

    address: str
    most_bytes: int
    is_topic: bool = False
    is_fifo: bool = False

    @classmethod
    def of(cls, address: str, most_bytes: int, *, is_topic: bool = False) -> Destination:
        """Return the destination at this address. The name's ending marks FIFO."""
        return cls(address, most_bytes, is_topic, address.rstrip("/").endswith(".fifo"))


@dataclass(slots=True, eq=False)
class OutgoingRow(Generic[Content]):
    """A row as it will be sent. ``size`` is in bytes as the service counts them. ``position`` is
    its number in the partition. After ``attempts`` transient failures the row may be sent again at
    ``ready_at``."""

    entry: Content
    size: int
    destination: Destination
    position: int
    attempts: int = 0
    ready_at: float = 0.0
    is_dead_letter: bool = False


# Rows for one destination.
Request = list[OutgoingRow[Content]]


class Batching(NamedTuple):
    """The limits of a request. ``one_per_group``: strict order, no group twice in one request."""

    most_entries: int
    one_per_group: bool = True


class _PlainLane(Generic[Content]):
    """Rows without an order: first come, first sent, with retries first."""

    def __init__(self, most_entries: int, most_bytes: int) -> None:
        self.row_count = 0
        self._most_entries = most_entries
        self._most_bytes = most_bytes
        self._queue: deque[OutgoingRow[Content]] = deque()
        self._resting: list[tuple[float, int, OutgoingRow[Content]]] = []

    def add(self, row: OutgoingRow[Content]) -> None:
        self._queue.append(row)
        self.row_count += 1

    def take(self, now: float) -> Request[Content]:
        while self._resting and self._resting[0][0] <= now:
            self._queue.appendleft(heapq.heappop(self._resting)[2])
        taken: Request[Content] = []
        capacity = self._most_bytes
        while self._queue and len(taken) < self._most_entries:
            capacity -= self._queue[0].size
            if capacity < 0 and taken:
                break
            taken.append(self._queue.popleft())
        self.row_count -= len(taken)
        return taken

    def settle(self, request: Request[Content], failed: Request[Content]) -> None:
        for row in failed:
            heapq.heappush(self._resting, (row.ready_at, row.position, row))
        self.row_count += len(failed)

    def next_ready_at(self) -> float | None:
        if self._queue:
            return 0.0
        return self._resting[0][0] if self._resting else None


class _GroupLane(Generic[Content]):
    """Rows whose order inside their group matters. A group is skipped while a row of it is in
    flight, and while a failed row of it waits for its retry: no row overtakes another. The longest
    group goes first, which needs the fewest requests."""

    def __init__(self, batching: Batching, most_bytes: int) -> None:
        self.row_count = 0
        self._batching = batching
        self._most_bytes = most_bytes
        self._groups: defaultdict[str, deque[OutgoingRow[Content]]] = defaultdict(deque)
        self._busy: set[str] = set()
        self._free: list[tuple[int, int, str]] = []
        self._resting: list[tuple[float, str]] = []
        self._are_lengths_stale = False

    def add(self, row: OutgoingRow[Content]) -> None:
        group = row.entry.group_id or ""
        self._groups[group].append(row)
        self.row_count += 1
        self._are_lengths_stale = True

    def take(self, now: float) -> Request[Content]:
        while self._resting and self._resting[0][0] <= now:
            group = heapq.heappop(self._resting)[1]
            self._busy.discard(group)
            self._offer(group)
        if self._are_lengths_stale:
            self._rank()
        taken = self._pick()
        self.row_count -= len(taken)
        return taken

    def _pick(self) -> Request[Content]:
        taken: Request[Content] = []
        passed_over: list[tuple[int, int, str]] = []
        capacity = self._most_bytes
        while self._free and len(taken) < self._batching.most_entries:
            ranked = heapq.heappop(self._free)
            waiting = self._groups[ranked[2]]
            if waiting[0].size > capacity and taken:
                passed_over.append(ranked)
                if len(passed_over) == _MOST_PASSED_OVER:
                    break
                continue
            self._busy.add(ranked[2])
            picked = self._heads(waiting, capacity, self._batching.most_entries - len(taken))
            capacity -= sum(row.size for row in picked)
            taken.extend(picked)
        for ranked in passed_over:
            heapq.heappush(self._free, ranked)
        return taken

    def _heads(
        self, waiting: deque[OutgoingRow[Content]], capacity: int, most: int
    ) -> Request[Content]:
        picked = [waiting.popleft()]
        if not self._batching.one_per_group:
            capacity -= picked[0].size
            while waiting and len(picked) < most and waiting[0].size <= capacity:
                capacity -= waiting[0].size
                picked.append(waiting.popleft())
        return picked

    def settle(self, request: Request[Content], failed: Request[Content]) -> None:
        rest_until: dict[str, float] = {}
        for row in reversed(failed):
            group = row.entry.group_id or ""
            self._groups[group].appendleft(row)
            rest_until[group] = max(row.ready_at, rest_until.get(group, 0.0))
        self.row_count += len(failed)
        for group in dict.fromkeys(row.entry.group_id or "" for row in request):
            if group in rest_until:
                heapq.heappush(self._resting, (rest_until[group], group))
                continue
            self._busy.discard(group)
            if self._groups[group]:
                self._offer(group)
            else:
                del self._groups[group]

    def _offer(self, group: str) -> None:
        # The row's position breaks ties: of equally long groups the first one.
        waiting = self._groups[group]
        heapq.heappush(self._free, (-len(waiting), waiting[0].position, group))

    def _rank(self) -> None:
        self._free = [
            (-len(waiting), waiting[0].position, group)
            for group, waiting in self._groups.items()
            if group not in self._busy
        ]
        heapq.heapify(self._free)
        self._are_lengths_stale = False

    def next_ready_at(self) -> float | None:
        if self._free or (self._are_lengths_stale and len(self._groups) > len(self._busy)):
            return 0.0
        return self._resting[0][0] if self._resting else None


class Packer(Generic[Content]):
    """Pending rows, and the requests made of them. A FIFO destination keeps the order of each group
    whatever fails, as long as every request is settled before its group can be taken again, which
    the packer enforces. With more than one row of a group in a request (``one_per_group`` false)
    that holds where the service itself refuses later rows of a group once one failed."""

    def __init__(self, batching: Batching) -> None:
        self._batching = batching
        self._lanes: dict[Destination, _PlainLane[Content] | _GroupLane[Content]] = {}
        self.row_count = 0
        self.byte_count = 0

    def add(self, rows: Iterable[OutgoingRow[Content]]) -> None:
        """Add rows, in their order."""
        for row in rows:
            lane = self._lanes.get(row.destination)
            if lane is None:
                to = row.destination
                lane = self._lanes[to] = (
                    _GroupLane(self._batching, to.most_bytes)
                    if to.is_fifo
                    else _PlainLane(self._batching.most_entries, to.most_bytes)
                )
            lane.add(row)
            self.row_count += 1
            self.byte_count += row.size

    def take(self, now: float) -> Request[Content]:
        """Return the next request, all rows for one destination; empty when nothing may be sent
        now."""
        lanes: Iterable[_PlainLane[Content] | _GroupLane[Content]] = self._lanes.values()
        if len(self._lanes) > 1:
            lanes = sorted(lanes, key=lambda lane: lane.row_count, reverse=True)
        for lane in lanes:
            taken = lane.take(now)
            if taken:
                self.row_count -= len(taken)
                self.byte_count -= sum(row.size for row in taken)
                return taken
        return []

    def settle(self, request: Request[Content], failed: Request[Content]) -> None:
        """Record the answer to a request: ``failed`` rows, in their order, are sent again at
        ready_at."""
        self._lanes[request[0].destination].settle(request, failed)
        self.row_count += len(failed)
        self.byte_count += sum(row.size for row in failed)

    def next_ready_at(self) -> float | None:
        """Return the time when the next request may be taken; 0 for at once, None without rows."""
        found = (lane.next_ready_at() for lane in self._lanes.values())
        return min((at for at in found if at is not None), default=None)

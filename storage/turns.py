"""Turns: how entries that do not fit into one flush share the next ones.

In the order of their arrival one caller with many entries, or long ones, would stand in front of
everybody. Here accounts take turns, and within an account its queues, one entry at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, Protocol, TypeVar


class Waiting(Protocol):
    """An entry in line."""

    gone: bool
    size_bytes: int
    submitted_at: float


W = TypeVar("W", bound=Waiting)


class Turns(Generic[W]):
    """Entries by whose they are. ``party_of(entry)`` is (account, queue), anything hashable.

    ``count`` and ``size_bytes`` are those of all entries, gone ones included.
    """

    def __init__(self, party_of: Callable[[W], tuple[Hashable, Hashable]]) -> None:
        self._party_of = party_of
        self._queues: dict[tuple[Hashable, Hashable], deque[W]] = {}
        self._accounts: dict[Hashable, deque[tuple[Hashable, Hashable]]] = {}
        """Account -> its parties, in turn. The accounts are in turn, too: the first is next."""
        self._sizes: dict[tuple[Hashable, Hashable], int] = {}
        self.count = 0
        self.size_bytes = 0

    def add(self, entries: Iterable[W]) -> None:
        """Put entries in line, behind those of the same queue."""
        for entry in entries:
            self._queue_of(entry).append(entry)

    def put_back(self, entries: list[W]) -> None:
        """Put entries in line again, before those of the same queue."""
        for entry in reversed(entries):
            self._queue_of(entry).appendleft(entry)

    def _queue_of(self, entry: W) -> deque[W]:
        party = self._party_of(entry)
        queue = self._queues.get(party)
        if queue is None:
            queue = self._queues[party] = deque()
            self._sizes[party] = 0
            self._accounts.setdefault(party[0], deque()).append(party)
        self.count += 1
        self.size_bytes += entry.size_bytes
        self._sizes[party] += entry.size_bytes
        return queue

    def share_of(self, entry: W) -> tuple[int, int]:
        """How many entries of the same queue are in line, and their bytes."""
        party = self._party_of(entry)
        return len(self._queues.get(party, ())), self._sizes.get(party, 0)

    def take(self, most_entries: int, most_bytes: int) -> list[W]:
        """The next flush. Only a first entry may be larger than ``most_bytes``.

        Whose entry does not fit is the first in the flush after it.
        """
        batch: list[W] = []
        size = 0
        passed: list[tuple[Hashable, Hashable]] = []
        while self._accounts and len(batch) < most_entries:
            account = next(iter(self._accounts))
            parties = self._accounts.pop(account)
            party = parties.popleft()
            entry = self._queues[party][0]
            if batch and not entry.gone and size + entry.size_bytes > most_bytes:
                passed.append(party)
            else:
                if not entry.gone:
                    batch.append(entry)
                    size += entry.size_bytes
                if self._drop_first(party):
                    parties.append(party)
            if parties:
                self._accounts[account] = parties
        self._put_first(passed)
        return batch

    def _drop_first(self, party: tuple[Hashable, Hashable]) -> bool:
        """Whether there are more of the party."""
        queue = self._queues[party]
        entry = queue.popleft()
        self.count -= 1
        self.size_bytes -= entry.size_bytes
        self._sizes[party] -= entry.size_bytes
        if not queue:
            del self._queues[party], self._sizes[party]
        return bool(queue)

    def _put_first(self, passed: list[tuple[Hashable, Hashable]]) -> None:
        if not passed:
            return
        first: dict[Hashable, deque[tuple[Hashable, Hashable]]] = {}
        for party in passed:
            first.setdefault(party[0], deque()).append(party)
        for account, parties in first.items():
            parties.extend(self._accounts.pop(account, ()))
        self._accounts = first | self._accounts

    def take_older(self, than: float) -> list[W]:
        """Take out those that have been in line since ``than`` or longer."""
        old: list[W] = []
        for account, parties in list(self._accounts.items()):
            left: deque[tuple[Hashable, Hashable]] = deque()
            for party in parties:
                queue = self._queues[party]
                has_more = True
                while has_more and queue[0].submitted_at <= than:
                    old.append(queue[0])
                    has_more = self._drop_first(party)
                if has_more:
                    left.append(party)
            if left:
                self._accounts[account] = left
            else:
                del self._accounts[account]
        return old

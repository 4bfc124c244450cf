"""Fair queueing of entries that do not fit into one flush.

In order of arrival, one caller with many or large entries would delay all others. Accounts are
served round-robin, and within an account its queues, one entry at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, Protocol, TypeVar


class FairEntry(Protocol):
    """A queued entry."""

    gone: bool
    size_bytes: int
    submitted_at: float


W = TypeVar("W", bound=FairEntry)

_Party = tuple[Hashable, Hashable]
"""(account, queue)."""


class FairQueue(Generic[W]):
    """Entries by fairness key. ``party_of(entry)`` is (account, queue), anything hashable.

    ``count`` and ``size_bytes`` are those of all entries, disconnected ones included.
    """

    def __init__(self, party_of: Callable[[W], _Party]) -> None:
        self._party_of = party_of
        self._queues: dict[_Party, deque[W]] = {}
        self._accounts: dict[Hashable, deque[_Party]] = {}
        """Account -> its parties, in round-robin order. So are the accounts: the first is next."""
        self._sizes: dict[_Party, int] = {}
        self._is_first_due = False
        self.count = 0
        self.size_bytes = 0

    def add(self, entries: Iterable[W]) -> None:
        """Enqueue entries behind those of the same queue."""
        for entry in entries:
            self._queue_of(entry).append(entry)

    def put_back(self, entries: list[W]) -> None:
        """Enqueue entries again, before those of the same queue."""
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
        """Return the number of pending entries of the same queue, and their bytes."""
        party = self._party_of(entry)
        return len(self._queues.get(party, ())), self._sizes.get(party, 0)

    def take(self, most_entries: int, most_bytes: int) -> list[W]:
        """Return the next flush. An entry larger than ``most_bytes`` is alone in one.

        With several queues pending, a flush has a quarter of that: it is short, and larger entries
        are skipped once. A skipped entry is first in the next flush.
        """
        if len(self._queues) > 1:
            most_bytes //= 4
        batch: list[W] = []
        size = 0
        passed: list[_Party] = []
        while self._accounts and len(batch) < most_entries:
            party = self._next_party()
            entry = self._queues[party][0]
            is_due = not batch and self._is_first_due
            if entry.gone or is_due or size + entry.size_bytes <= most_bytes:
                if self._drop_first(party):
                    self._accounts.setdefault(party[0], deque()).append(party)
                if not entry.gone:
                    batch.append(entry)
                    size += entry.size_bytes
            else:
                passed.append(party)
        self._is_first_due = bool(passed)
        self._put_first(passed)
        # Only large entries are left.
        return batch or (self.take(most_entries, most_bytes) if passed else [])

    def _next_party(self) -> _Party:
        """Remove and return the next party; its account moves to the end."""
        account = next(iter(self._accounts))
        parties = self._accounts.pop(account)
        party = parties.popleft()
        if parties:
            self._accounts[account] = parties
        return party

    def _drop_first(self, party: _Party) -> bool:
        """Remove the first entry of the party; return True if more are left."""
        queue = self._queues[party]
        entry = queue.popleft()
        self.count -= 1
        self.size_bytes -= entry.size_bytes
        self._sizes[party] -= entry.size_bytes
        if not queue:
            del self._queues[party], self._sizes[party]
        return bool(queue)

    def _put_first(self, passed: list[_Party]) -> None:
        if not passed:
            return
        first: dict[Hashable, deque[_Party]] = {}
        for party in passed:
            first.setdefault(party[0], deque()).append(party)
        for account, parties in first.items():
            parties.extend(self._accounts.pop(account, ()))
        self._accounts = first | self._accounts

    def take_older(self, than: float) -> list[W]:
        """Remove and return the entries queued since ``than`` or longer."""
        old: list[W] = []
        for account, parties in list(self._accounts.items()):
            left: deque[_Party] = deque()
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

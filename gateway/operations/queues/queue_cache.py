"""A cache of queues by name, id, public id and URL; counts of messages in flight.

A public id is a UUID that does not disclose the queue's name. It is computed, not stored: the first
32 bits are the queue's number, the others a digest of facts that no other queue shares. So public
ids cannot be guessed by counting, nor do they match another queue of the same number in a restored
database.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from hashlib import blake2b
from typing import TYPE_CHECKING
from uuid import UUID

from queuegate.gateway.operations.runtime.background_tasks import SharedLoads
from queuegate.storage.database import Database
from queuegate.storage.queue_model import Queue
from queuegate.storage.queues import stored_queues
from queuegate.storage.storage_errors import QueueDoesNotExist

if TYPE_CHECKING:
    from queuegate.gateway.operations.runtime.account_clocks import Clock


_UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch
_MOST_NUMBERS = (1 << 31) - 1
_VERSION = 8 << 76
"""Version 8: the bits have a custom meaning."""
_VARIANT = 2 << 62
_REST = (1 << 96) - 1 & ~(15 << 76) & ~(3 << 62)


def public_id(queue: Queue) -> str:
    identity = f"{queue.arn}\0{queue.created_at.timestamp()!r}".encode()
    digest = int.from_bytes(blake2b(identity, digest_size=12, person=b"queue id").digest())
    return str(UUID(int=queue.queue_id << 96 | digest & _REST | _VERSION | _VARIANT))


def number_of(text: str) -> int | None:
    """Return the number of the queue that may have this public id; None: it is not a public id."""
    if not _UUID(text):
        return None
    number = int(text[:8], 16)
    return number if number <= _MOST_NUMBERS else None


_MOST = 50_000
_MANY = 500
_LONGEST_URL = 512
QueueName = tuple[str, str, str]
_Key = QueueName | int


class QueueCache:
    """Queues by name, by id and by the URL in requests. ``_epoch`` counts notifications: a load
    that a notification overtakes is not cached."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._epoch = 0
        self._by_name: dict[tuple[str, str, str], Queue] = {}
        self._by_id: dict[int, Queue] = {}
        self._accounts: dict[int, str] = {}
        self._loads = SharedLoads()
        self.by_url: dict[tuple[str, str, str], Queue] = {}
        """(caller's account, caller's region, queue URL as written) -> queue, for the hot path."""
        self.by_public_id: dict[str, Queue] = {}

    def cached(self, account_id: str, region: str, name: str) -> Queue | None:
        return self._by_name.get((account_id, region, name))

    async def find(self, account_id: str, region: str, name: str) -> Queue:
        """Return the queue of that name. Raises QueueDoesNotExist."""
        key = (account_id, region, name)
        queue = self._by_name.get(key)
        if queue is None:
            queue = await self._load(key)
        if queue is None:
            raise QueueDoesNotExist
        return queue

    async def find_by_id(self, queue_id: int) -> Queue | None:
        """Return the queue with that number; None: there is none."""
        queue = self._by_id.get(queue_id)
        return queue if queue is not None else await self._load(queue_id)

    async def find_by_public_id(self, text: str) -> Queue | None:
        """Return the queue with that public id; None: there is none."""
        number = number_of(text)
        queue = None if number is None else await self.find_by_id(number)
        if queue is None or public_id(queue) != text:
            return None
        # As for URLs: only while the queue is cached by name, too.
        if self._by_id.get(queue.queue_id) is queue:
            self.by_public_id[text] = queue
        return queue

    async def _load(self, key: _Key) -> Queue | None:
        # By epoch: no caller shares a load that started before the last change.
        epoch = self._epoch
        return await self._loads.once((epoch, key), lambda: self._fetch(key, epoch))

    async def _fetch(self, key: _Key, epoch: int) -> Queue | None:
        async with self._database.transaction() as tx:
            if isinstance(key, int):
                queue = await stored_queues.find_by_id(tx, key)
            else:
                queue = await stored_queues.find(tx, *key)
        if queue is not None and epoch == self._epoch:
            self.keep(queue)
        return queue

    def keep(self, queue: Queue) -> None:
        if len(self._by_name) >= _MOST:
            self.clear()
        self._by_name[queue.account_id, queue.region, queue.name] = queue
        self._by_id[queue.queue_id] = queue
        if len(self._accounts) >= 4 * _MOST:
            self._accounts.clear()
        self._accounts[queue.queue_id] = queue.account_id

    async def find_many(self, names: Iterable[QueueName]) -> dict[QueueName, Queue | None]:
        """Return the queues of these names, by hundreds in a statement; None: there is none."""
        found: dict[QueueName, Queue | None] = {name: self._by_name.get(name) for name in names}
        missing: dict[tuple[str, str], list[str]] = {}
        for (account_id, region, name), queue in found.items():
            if queue is None:
                missing.setdefault((account_id, region), []).append(name)
        for (account_id, region), wanted in missing.items():
            for start in range(0, len(wanted), _MANY):
                epoch = self._epoch
                async with self._database.transaction() as tx:
                    part = wanted[start : start + _MANY]
                    loaded = await stored_queues.find_many(tx, account_id, region, part)
                for queue in loaded:
                    found[account_id, region, queue.name] = queue
                    if epoch == self._epoch:
                        self.keep(queue)
        return found

    def remember(self, account_id: str, region: str, url: str, queue: Queue) -> None:
        """Cache the queue by this URL for callers of this account and region."""
        # Only a queue that is still cached by name may be found by URL.
        if len(url) <= _LONGEST_URL and self._by_id.get(queue.queue_id) is queue:
            if len(self.by_url) >= _MOST:
                self.by_url.clear()
            self.by_url[account_id, region, url] = queue

    def by_id(self, queue_id: int) -> Queue | None:
        return self._by_id.get(queue_id)

    def account_of(self, queue_id: int) -> str | None:
        """Return the account of a present or former queue; changes and deletes do not remove this
        entry."""
        return self._accounts.get(queue_id)

    def by_clock(self, clock: Clock, queue_ids: list[int]) -> dict[Clock, list[int]]:
        """Group queues by the clock of their account. ``clock`` is the common clock."""
        if not clock.accounts:
            return {clock: queue_ids}
        found: dict[Clock, list[int]] = {}
        for queue_id in queue_ids:
            account_id = self.account_of(queue_id) or ""
            found.setdefault(clock.of(account_id), []).append(queue_id)
        return found

    def forget(self, queue_id: int) -> None:
        """Invalidate one queue, also for loads under way."""
        self._epoch += 1
        queue = self._by_id.pop(queue_id, None)
        if queue is not None:
            self._by_name.pop((queue.account_id, queue.region, queue.name), None)
            self.by_public_id.pop(public_id(queue), None)
            self.by_url = {
                url: known for url, known in self.by_url.items() if known.queue_id != queue_id
            }

    def clear(self) -> None:
        """Invalidate everything, because notifications may have been lost."""
        self._epoch += 1
        self._by_name.clear()
        self._by_id.clear()
        self.by_public_id.clear()
        self.by_url.clear()


_UNCOUNTED = 1_000


class InFlightCounts:
    """The number of messages of each queue that this process may still hand out before it has to
    count."""

    def __init__(self, database: Database, limit: int) -> None:
        self._database = database
        self.limit = limit
        self._left: dict[int, int] = {}
        self._counts = SharedLoads()

    def handed_out(self, queue_id: int, count: int) -> None:
        self._left[queue_id] = self._left.get(queue_id, _UNCOUNTED) - count

    def must_count(self, queue_id: int) -> bool:
        """Return True if the allowance is used up."""
        return self._left.get(queue_id, _UNCOUNTED) <= 0

    async def is_full(self, now: datetime | None, queue: Queue) -> bool:
        """Count, and return True if no more messages may be handed out. Concurrent receives wait
        for the same count. It takes milliseconds with tens of thousands of messages in flight, and
        a connection."""
        return await self._counts.once(queue.queue_id, lambda: self._count(now, queue))

    async def _count(self, now: datetime | None, queue: Queue) -> bool:
        async with self._database.transaction() as tx:
            counts = await queue.kind.count(tx, now, queue.queue_id)
        room = self.limit - counts.in_flight
        self._left[queue.queue_id] = max(room // 2, min(room, _UNCOUNTED))
        return room <= 0

    def forget(self, queue_id: int) -> None:
        self._left.pop(queue_id, None)

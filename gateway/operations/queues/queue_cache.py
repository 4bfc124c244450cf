"""Queue metadata of this process, dropped when a notification says that it changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from queuegate.gateway.operations.queues.public_ids import number_of, public_id
from queuegate.storage.database import Database
from queuegate.storage.errors import QueueDoesNotExist
from queuegate.storage.model import Queue
from queuegate.storage.queues import queues

if TYPE_CHECKING:
    from queuegate.gateway.operations.clock import Clock

_MOST = 50_000
_MANY = 500
_LONGEST_URL = 512

QueueName = tuple[str, str, str]
"""(account, region, name)."""
_Key = QueueName | int
"""A queue by its name, or by its number."""


class QueueCache:
    """Queues by name, by id and by the URL that callers wrote.

    A load that a notification overtakes is not kept: ``_epoch`` counts the notifications.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._epoch = 0
        self._by_name: dict[tuple[str, str, str], Queue] = {}
        self._by_id: dict[int, Queue] = {}
        self._accounts: dict[int, str] = {}
        self._loading: dict[tuple[int, _Key], asyncio.Future[Queue | None]] = {}
        self.by_url: dict[tuple[str, str, str], Queue] = {}
        """(caller's account, caller's region, queue URL as written) -> queue, for the hot path."""
        self.by_public_id: dict[str, Queue] = {}
        """Those that were found by it, by whoever may have asked."""

    def cached(self, account_id: str, region: str, name: str) -> Queue | None:
        """The queue if this process knows it; None says nothing about whether it exists."""
        return self._by_name.get((account_id, region, name))

    async def find(self, account_id: str, region: str, name: str) -> Queue:
        """The queue of that name; raises QueueDoesNotExist."""
        key = (account_id, region, name)
        queue = self._by_name.get(key)
        if queue is None:
            queue = await self._load(key)
        if queue is None:
            raise QueueDoesNotExist
        return queue

    async def find_by_id(self, queue_id: int) -> Queue | None:
        """The queue with that number; None: there is none."""
        queue = self._by_id.get(queue_id)
        return queue if queue is not None else await self._load(queue_id)

    async def find_by_public_id(self, text: str) -> Queue | None:
        """The queue with that public id; None: there is none."""
        number = number_of(text)
        queue = None if number is None else await self.find_by_id(number)
        if queue is None or public_id(queue) != text:
            return None
        # As of its URL: only while it is known otherwise, too.
        if self._by_id.get(queue.queue_id) is queue:
            self.by_public_id[text] = queue
        return queue

    async def _load(self, key: _Key) -> Queue | None:
        """One load for all who ask at once, but never one that began before the last change."""
        loading = self._loading.get((self._epoch, key))
        if loading is not None:
            await asyncio.wait([loading])
            if not loading.cancelled():
                return loading.result()
            # Whoever loaded went away; that is none of our business.
            return await self._load(key)
        future = asyncio.get_running_loop().create_future()
        place = (self._epoch, key)
        self._loading[place] = future
        try:
            queue = await self._fetch(key)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError):
                future.cancel()
            else:
                future.set_exception(error)
                future.exception()
            raise
        else:
            future.set_result(queue)
            return queue
        finally:
            del self._loading[place]

    async def _fetch(self, key: _Key) -> Queue | None:
        epoch = self._epoch
        async with self._database.transaction() as tx:
            if isinstance(key, int):
                queue = await queues.find_by_id(tx, key)
            else:
                queue = await queues.find(tx, *key)
        if queue is not None and epoch == self._epoch:
            self.keep(queue)
        return queue

    def keep(self, queue: Queue) -> None:
        """Know the queue by its name and its id."""
        if len(self._by_name) >= _MOST:
            self.clear()
        self._by_name[queue.account_id, queue.region, queue.name] = queue
        self._by_id[queue.queue_id] = queue
        if len(self._accounts) >= 4 * _MOST:
            self._accounts.clear()
        self._accounts[queue.queue_id] = queue.account_id

    async def find_many(self, names: Iterable[QueueName]) -> dict[QueueName, Queue | None]:
        """The queues of these names, hundreds with one statement; None: there is none."""
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
                    loaded = await queues.find_many(tx, account_id, region, part)
                for queue in loaded:
                    found[account_id, region, queue.name] = queue
                    if epoch == self._epoch:
                        self.keep(queue)
        return found

    def remember(self, account_id: str, region: str, url: str, queue: Queue) -> None:
        """Find the queue by this URL, too, when somebody of this account and region writes it."""
        # Only a queue that is still cached under its name may be found by its URL.
        if len(url) <= _LONGEST_URL and self._by_id.get(queue.queue_id) is queue:
            if len(self.by_url) >= _MOST:
                self.by_url.clear()
            self.by_url[account_id, region, url] = queue

    def by_id(self, queue_id: int) -> Queue | None:
        """The queue of that id if this process knows it."""
        return self._by_id.get(queue_id)

    def account_of(self, queue_id: int) -> str | None:
        """Whose queue it is, or was: a change or an end of it does not let that be forgotten."""
        return self._accounts.get(queue_id)

    def by_clock(self, clock: Clock, queue_ids: list[int]) -> dict[Clock, list[int]]:
        """These queues by the clock of their account. ``clock`` is the common one."""
        if not clock.accounts:
            return {clock: queue_ids}
        found: dict[Clock, list[int]] = {}
        for queue_id in queue_ids:
            account_id = self.account_of(queue_id) or ""
            found.setdefault(clock.of(account_id), []).append(queue_id)
        return found

    def forget(self, queue_id: int) -> None:
        """Drop one queue, and let no load that is under way bring its old state back."""
        self._epoch += 1
        queue = self._by_id.pop(queue_id, None)
        if queue is not None:
            self._by_name.pop((queue.account_id, queue.region, queue.name), None)
            self.by_public_id.pop(public_id(queue), None)
            self.by_url = {
                url: known for url, known in self.by_url.items() if known.queue_id != queue_id
            }

    def clear(self) -> None:
        """Drop everything: after a lost notification connection nobody knows what changed."""
        self._epoch += 1
        self._by_name.clear()
        self._by_id.clear()
        self.by_public_id.clear()
        self.by_url.clear()

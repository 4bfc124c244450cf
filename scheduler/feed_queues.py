"""Moves records of logs into queues, for consumer groups that feed a queue.

The worker reads only partitions that hints name: a publish in any process wakes it. Without a group
that feeds a queue it is idle. All processes receive all hints, and skip partitions that another
process is moving. Skipped partitions are tried again after 0.5 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Literal, Protocol

from queuegate.scheduler.worker import Loop, failures_logged
from queuegate.storage.logs import feeds
from queuegate.storage.logs.feeds import MakeRow, Moved, QueueGone
from queuegate.storage.storage_errors import Unavailable

if TYPE_CHECKING:
    from queuegate.storage.database import Database
    from queuegate.storage.model import Feed, StoredLog
    from queuegate.storage.queue_model import Queue


HintPlace = int | Literal["group", "log"]
"""Place of a hint: a partition id for its records; "group" for changes of a group, as when its
feed continues elsewhere; "log" for further partitions."""

_log = logging.getLogger("queuegate.feed")

_PARTITIONS_AT_ONCE = 50
_AGAIN_SECONDS = 0.5
"""Pause when another process moved records, or the queue was full."""
_GONE_SECONDS = 2.0
_IDLE_SECONDS = 30.0
"""Interval of empty rounds while no feed has work. They show that the worker runs."""
_UNAVAILABLE_PAUSE_SECONDS = 2.0
_FAILED_SECONDS = 5.0


class HintReceiver(Protocol):
    """A parked receiver of hints."""

    def wake(self) -> None:
        """Notify the waiter that records may exist there. The waiter is no longer parked."""


class Hints(Protocol):
    """Notifications about logs, from this and from other processes."""

    def park(self, waiter: HintReceiver, feed: Feed, where: HintPlace) -> None:
        """Park the waiter for hints from a place."""

    def leave(self, waiter: HintReceiver, feed: Feed, where: HintPlace) -> None:
        """Remove the waiter from a place."""


@dataclass(frozen=True, slots=True)
class FeedCallbacks:
    """Functions of the gateway that a feed uses."""

    hints: Hints
    find_queue: Callable[[StoredLog, str], Awaitable[Queue | None]]
    make_row: MakeRow
    now_of: Callable[[str], datetime | None]
    """Returns the present of an account."""
    has_capacity: Callable[[], bool]
    """Returns False while the disk is full: nothing is moved then."""
    on_moved: Callable[[Feed, Queue, Moved], None]
    """Called after the commit."""
    on_queue_gone: Callable[[int], None]
    """Called with the queue's id when the database no longer has the queue."""


class _Watch:
    """A waiter of one feed in one place."""

    __slots__ = ("_under_way", "_where")

    def __init__(self, under_way: _UnderWay, where: HintPlace) -> None:
        self._under_way = under_way
        self._where = where

    def wake(self) -> None:
        self._under_way.hint(self._where)


@dataclass(slots=True, eq=False)
class _UnderWay:
    """The state of one feed in this process."""

    feed: Feed
    wake: Callable[[], None]
    hot: dict[int, None] = field(default_factory=dict)
    """Partitions that may have records, in the order of the hints."""
    look_from: int | None = 0
    """Number of the first partition to look up; None: no look-up is needed."""
    next_number: int = 0
    """Number of the first unknown partition."""
    not_before: float = 0.0
    """Time of the event loop, in seconds, before which nothing is tried."""
    is_gone: bool = False
    """True if the queue was absent at the last attempt."""
    watches: dict[HintPlace, _Watch] = field(default_factory=dict)

    def hint(self, where: HintPlace) -> None:
        """Note that the place may have records."""
        if where == "group":
            self.look_from = 0
        elif where == "log":
            self.look_at(self.next_number)
        else:
            self.hot[where] = None
        self.wake()

    def look_at(self, first: int) -> None:
        """Look up all partitions from this number on."""
        self.look_from = first if self.look_from is None else min(first, self.look_from)

    @property
    def has_work(self) -> bool:
        """Return True if a hint is pending."""
        return self.look_from is not None or bool(self.hot)


class FeedQueues(Loop):
    """The worker of all feeds. Call ``changed`` when groups were created, changed or deleted, in
    any process."""

    name = "feed"

    def __init__(self, database: Database, needs: FeedCallbacks) -> None:
        super().__init__()
        self._database = database
        self._needs = needs
        self._feeds: dict[int, _UnderWay] = {}
        self._are_known = False

    def changed(self) -> None:
        """Reload the feeds: groups may feed other queues."""
        self._are_known = False
        self._woken.set()

    async def stop(self) -> None:
        await super().stop()
        for one in self._feeds.values():
            self._leave(one)
        self._feeds.clear()

    async def _run(self, after_seconds: float) -> None:
        pause: float | None = after_seconds
        while not self._stopping.is_set():
            if pause is None or pause > 0:
                with contextlib.suppress(TimeoutError):
                    seconds = _IDLE_SECONDS if pause is None else pause
                    await asyncio.wait_for(self._woken.wait(), seconds)
            self._woken.clear()
            with failures_logged(_log, self.name):
                await self.run_once()
                pause = self.pause()
                continue
            pause = 0.0
            # After a failure, pause and ignore wakes: they cannot mend the cause.
            await self._rest(_UNAVAILABLE_PAUSE_SECONDS)

    def pause(self) -> float | None:
        """Return the seconds until the next attempt; None: wait for a wake."""
        times = [one.not_before for one in self._feeds.values() if one.has_work]
        if not times:
            return None if self._are_known else 0.0
        return max(0.0, min(times) - asyncio.get_running_loop().time())

    async def run_once(self) -> int:
        """Move one batch of each feed with pending hints and return the number of messages sent."""
        if not self._are_known:
            await self._load()
        count = 0
        time = asyncio.get_running_loop().time()
        for one in list(self._feeds.values()):
            if one.has_work and one.not_before <= time and not self._stopping.is_set():
                count += await self._move(one)
        return count

    async def _load(self) -> None:
        self._are_known = True
        try:
            async with self._database.transaction() as tx:
                found = {one.group.group_id: one for one in await feeds.find_all(tx)}
        except BaseException:
            self._are_known = False
            raise
        for group_id in self._feeds.keys() - found.keys():
            self._leave(self._feeds.pop(group_id))
        for group_id, feed in found.items():
            known = self._feeds.get(group_id)
            if known is None:
                self._feeds[group_id] = _UnderWay(feed, self._woken.set)
            elif known.feed != feed:
                known.feed = feed
                known.not_before = 0.0
                known.look_from = 0

    def _leave(self, one: _UnderWay) -> None:
        for where, watch in one.watches.items():
            self._needs.hints.leave(watch, one.feed, where)
        one.watches.clear()

    def _park(self, one: _UnderWay, where: HintPlace) -> None:
        watch = one.watches.get(where)
        if watch is None:
            watch = one.watches[where] = _Watch(one, where)
        self._needs.hints.park(watch, one.feed, where)

    async def _move(self, one: _UnderWay) -> int:
        feed, needs = one.feed, self._needs
        if one.look_from is not None:
            await self._look(one, one.look_from)
        some = [*islice(one.hot, _PARTITIONS_AT_ONCE)]
        if not some:
            return 0
        queue = None
        if needs.has_capacity():
            assert feed.group.settings.queue is not None
            queue = await needs.find_queue(feed.log, feed.group.settings.queue)
            self._stands(one, is_gone=queue is None)
        if queue is None:
            self._again(one, _GONE_SECONDS)
            return 0
        # Park before the move, so that records published from now on give a hint.
        for partition_id in some:
            del one.hot[partition_id]
            self._park(one, partition_id)
        try:
            async with self._database.transaction() as tx:
                now = needs.now_of(feed.log.account_id)
                moved = await feeds.move(tx, now, feed, queue, some, needs.make_row)
        except QueueGone:
            one.hot |= dict.fromkeys(some)
            needs.on_queue_gone(queue.queue_id)
            return 0
        except BaseException as error:
            one.hot |= dict.fromkeys(some)
            if not isinstance(error, Unavailable):
                # Let other feeds run first.
                self._again(one, _FAILED_SECONDS)
            raise
        one.hot |= dict.fromkeys([*moved.left, *moved.held])
        if moved.is_full or (moved.held and len(one.hot) == len(moved.held)):
            self._again(one, _AGAIN_SECONDS)
        needs.on_moved(feed, queue, moved)
        return moved.count

    async def _look(self, one: _UnderWay, first: int) -> None:
        one.look_from = None
        try:
            self._park(one, "group")
            self._park(one, "log")
            async with self._database.transaction() as tx:
                found = await feeds.find_positions(tx, one.feed, first)
        except BaseException:
            one.look_at(first)
            raise
        one.hot |= {place.partition_id: None for place in found if place.is_behind}
        further = [place for place in found if place.partition_id not in one.watches]
        for place in further:
            self._park(one, place.partition_id)
        if further:
            # Look again: records may have come before the watch was parked.
            one.look_at(further[0].number)
            one.next_number = further[-1].number + 1

    def _again(self, one: _UnderWay, seconds: float) -> None:
        one.not_before = asyncio.get_running_loop().time() + seconds

    def _stands(self, one: _UnderWay, *, is_gone: bool) -> None:
        if is_gone is one.is_gone:
            return
        one.is_gone = is_gone
        name, queue = f"{one.feed.log.name}/{one.feed.group.name}", one.feed.group.settings.queue
        if is_gone:
            _log.warning("%s feeds %s, which is not there: it waits", name, queue)
        else:
            _log.info("%s feeds %s again", name, queue)

"""Wakeups: messages and records end long polls early, in this process and in others.

    sends, deletes, moves of this process ──► arrived(queue_id) ──► parked receives of this process
                                                   │
                                                   └─► NOTIFY if others have parked receives
    NOTIFY of another process ─────────────────► arrived(queue_id)
    every 0.9 s, one statement for up to 1,000 queues with parked receives ──► timers for delays and
    visibility timeouts that end before the next poll, and a substitute for lost notifications

Sends to standard queues answer parked receives directly (storage.queues.standard_lanes).
A notification is a hint: woken receives ask the database. NOTIFY holds a lock of the whole database
through its commit, so notifications are sent on a separate connection, after the commit that they
announce, and many hints in each.

Receives park at the ids of their queues. Other waiters park at negative places, which are not
polled. ``TOPICS`` has all other notifications: ``Wakeups.on`` calls one subscriber of each topic.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, cast

from queuegate.gateway.operations.runtime.background_tasks import until_available
from queuegate.storage.database import Database
from queuegate.storage.notifications import ALL_PROCESSES, Notice, Notifications, payloads
from queuegate.storage.storage_errors import Unavailable

if TYPE_CHECKING:
    from queuegate.storage.queues.messages import Receive


def place_of_partition(partition_id: int) -> int:
    """Return the place of a log's partition. Not polled: waiters there have timers."""
    return -partition_id


def place_of_group(group_id: int) -> int:
    return -(1 << 50) - group_id


def place_of_log(log_id: int) -> int:
    """Return the place of a log, where groups wait for new partitions."""
    return -(1 << 51) - log_id


_FIRST_PAUSE: Final = -(1 << 52)


def place_of_pause(queue_id: int) -> int:
    """Return the place where receives of a paused queue park. Only a change of the queue wakes
    them, no send, poll or hint."""
    return _FIRST_PAUSE - queue_id


class ParkedReceive(Protocol):
    """A parked receive, fetch, read or feed."""

    def wake(self) -> None:
        """Unpark: there may be messages."""


class DirectReceiver(ParkedReceive, Protocol):
    """A receive that accepts messages directly from sends."""

    def take(self) -> Receive | None:
        """Unpark and return the entry of the receive, to be filled with messages that are being
        sent. None: the receive has to look up messages itself."""


class IdleWaiter:
    """A waiter that stays parked without a client's request."""

    __slots__ = ()


TopicName = Literal[
    "queue_changed", "topic_changed", "key_changed", "log_changed", "quotas_changed",
    "faults_changed", "schedules", "deliveries", "clock_moved", "resumed", "finished",
    "arrival_elsewhere", "recording_changed",
]  # fmt: skip


class _Topic(NamedTuple):
    """A topic of notifications. ``part`` of (number, count) is passed to its subscriber; ``lost``
    is passed when notifications may have been lost, None: nothing is called then."""

    name: TopicName
    part: slice
    lost: tuple[None, ...] | None = None


_NUMBER, _NOTHING = slice(1), slice(0)
TOPICS: Final = {
    "Q": _Topic("queue_changed", _NUMBER, (None,)),
    "T": _Topic("topic_changed", _NUMBER, (None,)),
    "Y": _Topic("key_changed", _NUMBER, (None,)),
    "L": _Topic("log_changed", _NUMBER, (None,)),
    "U": _Topic("quotas_changed", _NOTHING, ()),
    "X": _Topic("faults_changed", _NOTHING, ()),
    "S": _Topic("schedules", _NOTHING, ()),
    "D": _Topic("deliveries", _NOTHING, ()),
    "C": _Topic("clock_moved", slice(1, 2)),
    "R": _Topic("resumed", slice(2)),
    "F": _Topic("finished", _NUMBER),
    "A": _Topic("arrival_elsewhere", _NUMBER),
    "E": _Topic("recording_changed", slice(2), (None, None)),
}
"""By kind of notification, with the argument of its subscriber.

Caches drop the queue, topic, key, log, quotas or faults that changed. Workers look for schedules
and deliveries. ``clock_moved``: the number of the move. ``resumed``: the consumer that resumed
elsewhere, and its last event. ``finished``: the message that this process pushed.
``arrival_elsewhere``: the queue that got messages in another process. ``recording_changed``: the
account, as a number, and its recording of events; 0: it has ended.
"""
_APPLIED: Final = {Notice.CLOCK_MOVED: "K", Notice.FAULTS_CHANGED: "G"}
"""Notices whose changes have ascending numbers, with the kind of their confirmations."""
_log = logging.getLogger("queuegate.wakeups")
_HEARTBEAT_SECONDS = 5.0
_PEER_SECONDS = 16.0
_INTEREST_SECONDS = 16.0
# A send may commit while the other process's request for hints is on its way.
_RECENT_SECONDS = 0.3
_LOOK_SECONDS = 0.9
_CLOCK_SECONDS = 1.0
# Delay before the poll for a new long poll: most are woken by a send earlier.
_FIRST_POLL_SECONDS = 0.01
_ALL = 1 << 30
# Maximum number of queues in a poll. More queues are polled in turn.
_LOOKED_AT_ONCE = 1_000
# Woken when a delay or a timeout ends. A receive that reaches its maximum wakes the next one.
_WOKEN_AT_ONCE = 100
Poll = Callable[[list[int]], Awaitable[list[tuple[int, bool, int]]]]
"""Queries queues: (queue_id, receivable now, milliseconds to the next)."""


class Wakeups:
    """The parked receives of this process, and the hints that processes exchange."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._parked: dict[int, OrderedDict[ParkedReceive, Context | None]] = {}
        """By place, waiters in order. With traces, each runs in its own context."""
        self.is_traced = False
        self._arrivals: dict[int, int] = {}
        self.process = f"{os.getpid():x}.{secrets.token_hex(4)}"
        self._peers: dict[str, float] = {}
        self._wanted_elsewhere: dict[int, float] = {}
        self._recent: dict[int, float] = {}
        self._hints: dict[str, dict[int, int]] = {}
        self._sending: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._notifications: Notifications | None = None
        self._polled_at: dict[int, float] = {}
        self._unpolled: set[int] = set()
        self._next_polls: list[int] = []
        """Queues that are polled next, before all others."""
        self._served: set[int] = set()
        """Queues whose parked receives were served directly since the last poll."""
        self._poll_wanted = asyncio.Event()
        self._lost = asyncio.Event()
        self._stopping = False
        self.on: dict[TopicName, Callable[..., object]] = {
            one.name: lambda *_: None for one in TOPICS.values()
        }
        self._unaware: dict[int, set[str]] = {}
        self._applied: dict[str, dict[str, int]] = {kind: {} for kind in _APPLIED.values()}
        """By kind of confirmation and process, the last change that the process has applied."""
        self._known = asyncio.Event()
        """Set when another process has applied a change."""
        self.on_event: Callable[[str], None] = lambda _: None
        """Called with each event of an account that records."""
        self.look: Poll | None = None
        self.handed: dict[int, int] = {}

    def arrivals(self, queue_id: int) -> int:
        """Return a number that changes with every arrival. Read it before querying the database."""
        return self._arrivals.get(queue_id, 0)

    def park(self, queue_id: int, waiter: ParkedReceive) -> None:
        """Park: call ``waiter.wake()`` once when messages may have become visible in the queue."""
        context = copy_context() if self.is_traced else None
        parked = self._parked.get(queue_id)
        if parked is None:
            self._parked[queue_id] = OrderedDict([(waiter, context)])
            if self._peers:
                self._hint("W", queue_id, 1)
            loop = asyncio.get_running_loop()
            if queue_id >= 0 and self._polled_at.get(queue_id, 0.0) < loop.time() - _LOOK_SECONDS:
                loop.call_later(_FIRST_POLL_SECONDS, self._first_poll, queue_id)
        else:
            parked[waiter] = context

    def waits(self, queue_id: int) -> bool:
        return queue_id in self._parked

    def take(self, queue_id: int) -> Receive | None:
        """Return the entry of the first receive that accepts messages from sends
        (storage.queues.standard_lanes)."""
        parked = self._parked.get(queue_id)
        for waiter, context in parked.items() if parked else ():
            # Other waiters park at places that are not queues.
            entry = cast(DirectReceiver, waiter).take()
            if entry is not None:
                entry.context = context
                self.leave(queue_id, waiter)
                self._served.add(queue_id)
                return entry
        return None

    def leave(self, queue_id: int, waiter: ParkedReceive) -> None:
        """Unpark a waiter that was not woken."""
        parked = self._parked.get(queue_id)
        if parked is not None:
            parked.pop(waiter, None)
            if not parked:
                del self._parked[queue_id]

    def parked_count(self) -> int:
        """Return the number of parked receives and reads; one may park at several places."""
        waiters = {waiter for parked in self._parked.values() for waiter in parked}
        return sum(not isinstance(waiter, IdleWaiter) for waiter in waiters)

    def parked_at(self, place: int) -> list[ParkedReceive]:
        """Return the waiters at a place."""
        return [*self._parked.get(place, ())]

    def parked_queues(self) -> dict[int, int]:
        """Return the number of parked receives by queue, those of paused queues included."""
        places = {place: len(parked) for place, parked in self._parked.items()}
        paused = {_FIRST_PAUSE - place: n for place, n in places.items() if place <= _FIRST_PAUSE}
        return {place: n for place, n in places.items() if place >= 0} | paused

    def peer_count(self) -> int:
        """Return the number of other processes on the database."""
        return len(self._peers)

    def wake_all(self) -> None:
        """Wake all waiters: the gateway stops, or the clock was moved."""
        for queue_id in list(self._parked):
            self._wake(queue_id, _ALL)

    def _wake(self, queue_id: int, count: int) -> int:
        parked = self._parked.get(queue_id)
        # A receive of a paused queue parks again at once.
        woken, count = 0, min(count, len(parked or ()))
        while parked and woken < count:
            waiter, context = parked.popitem(last=False)
            if context is None:
                waiter.wake()
            else:
                context.run(waiter.wake)
            woken += 1
        if parked is not None and not parked and self._parked.get(queue_id) is parked:
            del self._parked[queue_id]
        return woken

    def wake_next(self, queue_id: int) -> None:
        """Wake one more receive, because one got as many messages as it may."""
        if queue_id in self._parked:
            self._wake(queue_id, 1)

    def arrived(self, queue_id: int, count: int = 1) -> None:
        """Wake as many receives as there are new messages, committed or visible."""
        if queue_id in self.handed:
            handed = min(count, self.handed[queue_id])
            self.handed[queue_id] -= handed
            count -= handed
            if not count:
                return
        self._arrivals[queue_id] = self._arrivals.get(queue_id, 0) + 1
        woken = self._wake(queue_id, count) if queue_id in self._parked else 0
        if self._peers and woken < count:
            self._notify_arrival(queue_id, count - woken)

    def _notify_arrival(self, place: int, count: int) -> None:
        time = asyncio.get_running_loop().time()
        if self._wanted_elsewhere.get(place, 0.0) > time:
            self._hint("A", place, count)
        else:
            self._recent[place] = time + _RECENT_SECONDS
            if len(self._recent) > 4096:
                self._recent = {q: end for q, end in self._recent.items() if end > time}

    def appended(self, partition_ids: Iterable[int]) -> None:
        """Wake all groups that wait for records in these partitions."""
        self.look_again([place_of_partition(one) for one in partition_ids])

    def look_again(self, places: Iterable[int]) -> None:
        """Wake all waiters at these places, in other processes, too."""
        for place in places:
            self._wake(place, _ALL)
            if self._peers:
                self._notify_arrival(place, 1)

    def queue_changed(self, queue_id: int) -> None:
        """Invalidate a queue that this process has changed, before the notification arrives. The
        transaction itself notifies other processes."""
        self._arrivals.pop(queue_id, None)
        self.on["queue_changed"](queue_id)
        self._wake(queue_id, _ALL)
        self._wake(place_of_pause(queue_id), _ALL)

    def topic_changed(self, topic_id: int) -> None:
        """Invalidate a topic that this process has changed, itself or its subscriptions, before the
        notification arrives."""
        self.on["topic_changed"](topic_id)

    def deliveries_written(self) -> None:
        """Wake the workers that send committed deliveries, in all processes."""
        self.on["deliveries"]()
        self._tell("D", 0)

    def resumed_here(self, consumer: int, last: int) -> None:
        """Notify other processes of a consumer that resumed here after event ``last``."""
        if self._peers:
            self._hints.setdefault("R", {})[consumer] = last
            self._send_soon()

    def finished_here(self, number: int, process: str) -> None:
        """Notify the process that pushed a message that its consumer no longer has it."""
        if process in self._peers:
            self._hint("F", number, 1)

    def applied(self, notice: Notice, change: int) -> None:
        """Notify other processes that this one has applied the changes of a notice up to this
        number."""
        self._tell(_APPLIED[notice], change)

    async def wait_until_applied(self, notice: Notice, change: int) -> None:
        """Wait until other processes have applied a change, at most 1 s: one of them may have
        stopped."""
        applied = self._applied[_APPLIED[notice]]
        await self._wait_while(lambda: any(applied.get(peer, 0) < change for peer in self._peers))

    def key_known(self, key_id: int) -> None:
        """Notify other processes that this one has reloaded a key."""
        self._tell("V", key_id)

    def expect_to_know(self, key_id: int) -> None:
        """Expect confirmations of a changed key from other processes. Call before they are
        notified."""
        self._unaware[key_id] = {*self._peers}

    async def wait_for_key(self, key_id: int) -> None:
        """Wait until other processes have reloaded the key, at most 1 s: one of them may have
        stopped."""
        unaware = self._unaware.get(key_id, set())
        await self._wait_while(lambda: bool(unaware & self._peers.keys()))
        self._unaware.pop(key_id, None)

    async def _wait_while(self, is_unknown: Callable[[], bool]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOCK_SECONDS):
                while is_unknown():
                    self._known.clear()
                    await self._known.wait()

    def _tell(self, kind: str, number: int) -> None:
        """Notify other processes, if there are any."""
        if self._peers:
            self._hint(kind, number, 1)

    def _hint(self, kind: str, number: int, count: int) -> None:
        hints = self._hints.setdefault(kind, {})
        hints[number] = hints.get(number, 0) + count
        self._send_soon()

    def _send_soon(self) -> None:
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send_hints())

    async def _send_hints(self) -> None:
        while self._hints:
            hints, self._hints = self._hints, {}
            for payload in payloads(self.process, hints):
                if self._notifications is None:
                    return
                try:
                    await self._notifications.send(payload)
                except Unavailable as error:
                    # Other processes poll within a second.
                    _log.log(error.log_level, "a notification was lost: %s", error)
                    self._lost.set()
                    return

    def _on_notification(self, payload: str) -> None:
        sender, kind, rest = payload.split(" ", 2)
        if sender == self.process:
            return
        time = asyncio.get_running_loop().time()
        if sender != ALL_PROCESSES:
            if sender not in self._peers:
                self._hint("P", 0, 1)
                for queue_id in self._parked:
                    self._hint("W", queue_id, 1)
            self._peers[sender] = time + _PEER_SECONDS
        for word in rest.split(","):
            number, _, count = word.partition(":")
            if kind in self._applied:
                applied = self._applied[kind]
                applied[sender] = max(applied.get(sender, 0), int(number))
                self._known.set()
            elif kind == "V":
                self._unaware.get(int(number), set()).discard(sender)
                self._known.set()
            self._act(kind, int(number), int(count), time)

    def _act(self, kind: str, number: int, count: int, time: float) -> None:
        if kind == "A" and number < 0:
            self._wake(number, _ALL)
        elif kind == "A":
            self._arrivals[number] = self._arrivals.get(number, 0) + 1
            self.on["arrival_elsewhere"](number)
            self._wake(number, count)
        elif kind == "W":
            self._wanted_elsewhere[number] = time + _INTEREST_SECONDS
            if self._recent.pop(number, 0.0) > time:
                self._hint("A", number, 1)
        elif kind == "Q":
            self.queue_changed(number)
        elif kind in TOPICS:
            topic = TOPICS[kind]
            self.on[topic.name](*[number, count][topic.part])

    async def start(self) -> None:
        """Listen, announce this process to others, and start to poll."""
        await self._listen()
        self._tasks = [
            asyncio.create_task(self._keep_listening()),
            asyncio.create_task(self._keep_polling()),
        ]

    async def stop(self) -> None:
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._notifications is not None:
            await self._notifications.close()
            self._notifications = None

    async def _listen(self) -> None:
        self._lost.clear()
        notifications = await Notifications.open(
            self._database,
            self._on_notification,
            self._lost.set,
            lambda event: self.on_event(event),
        )
        try:
            await notifications.send(f"{self.process} P 0:1")
        except BaseException:
            notifications.drop()
            raise
        # After the announcement: hints must not use the connection at the same time.
        self._notifications = notifications

    async def _keep_listening(self) -> None:
        """Announce this process regularly. After a lost connection, assume that everything has
        changed."""
        while not self._stopping:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._lost.wait(), _HEARTBEAT_SECONDS)
            if self._lost.is_set():
                await self._listen_again()
            self._greet()

    def _greet(self) -> None:
        time = asyncio.get_running_loop().time()
        for peer in [peer for peer, end in self._peers.items() if end <= time]:
            del self._peers[peer]
            for applied in self._applied.values():
                applied.pop(peer, None)
        self._hint("P", 0, 1)
        if self._peers:
            for queue_id in self._parked:
                self._hint("W", queue_id, 1)
        else:
            self._wanted_elsewhere.clear()
            self._recent.clear()

    async def _listen_again(self) -> None:
        if self._notifications is not None:
            self._notifications.drop()
            self._notifications = None
        while True:
            try:
                await until_available(self._listen, _log, "cannot listen for notifications")
            except Exception:  # noqa: BLE001 - whatever the server says, deaf is worse than patient
                _log.exception("cannot listen for notifications")
                await asyncio.sleep(1.0)
            else:
                break
        self.all_changed()

    def all_changed(self) -> None:
        """Drop everything that this process has cached, and wake all waiters."""
        for topic in TOPICS.values():
            if topic.lost is not None:
                self.on[topic.name](*topic.lost)
        self.wake_all()

    def _first_poll(self, queue_id: int) -> None:
        """Poll a queue with a new parked receive, unless it was polled recently."""
        if queue_id in self._parked and not self._stopping:
            self._unpolled.add(queue_id)
            self._poll_wanted.set()

    async def _keep_polling(self) -> None:
        loop = asyncio.get_running_loop()
        next_poll = loop.time() + _LOOK_SECONDS
        while not self._stopping:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._poll_wanted.wait(), next_poll - loop.time())
            self._poll_wanted.clear()
            queue_ids, self._unpolled = list(self._unpolled & self._parked.keys()), set()
            if loop.time() >= next_poll:
                next_poll = loop.time() + _LOOK_SECONDS
                queue_ids = self._take_turns()
                self._polled_at = {}
            if not queue_ids or self.look is None:
                continue
            try:
                await self._poll_queues(queue_ids)
            except Unavailable as error:
                _log.log(error.log_level, "cannot poll queues with parked receives: %s", error)
            except Exception:  # noqa: BLE001 - without this loop no timeout would wake anybody again
                _log.exception("a poll of queues with parked receives failed")

    def _take_turns(self) -> list[int]:
        """Return the queues of the next poll: all with parked receives, in turn if they are too
        many."""
        taken, self._served = self._served, set()
        queue_ids = [place for place in self._parked.keys() | taken if place >= 0]
        if len(queue_ids) <= _LOOKED_AT_ONCE:
            self._next_polls = []
            return queue_ids
        if not self._next_polls:
            self._next_polls = queue_ids
        turn = self._next_polls[-_LOOKED_AT_ONCE:]
        del self._next_polls[-_LOOKED_AT_ONCE:]
        return [queue_id for queue_id in turn if queue_id in self._parked or queue_id in taken]

    async def _poll_queues(self, queue_ids: list[int]) -> None:
        assert self.look is not None
        loop = asyncio.get_running_loop()
        turns = len(self._parked) // _LOOKED_AT_ONCE + 1
        until_next_ms = turns * _LOOK_SECONDS * 1000 + 200
        for queue_id in queue_ids:
            self._polled_at[queue_id] = loop.time()
        for queue_id, ready, in_ms in await self.look(queue_ids):
            if ready:
                self._on_visible(queue_id, 1)
            elif in_ms < until_next_ms:
                loop.call_later(in_ms / 1000, self._on_due, queue_id)

    def _on_due(self, queue_id: int) -> None:
        """Wake receives after a delay or a timeout. The next one may end before the next poll."""
        self._polled_at.pop(queue_id, None)
        self._on_visible(queue_id, _WOKEN_AT_ONCE)

    def _on_visible(self, queue_id: int, count: int) -> None:
        """Wake receives for messages that became visible without a send. A receive that is served
        directly looks them up before it parks again; otherwise it might never get them."""
        if not self._wake(queue_id, count):
            self._arrivals[queue_id] = self._arrivals.get(queue_id, 0) + 1

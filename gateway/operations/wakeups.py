"""What ends a long poll early: messages and records that arrive, here or in another process.

    sends, deletes, moves of this process ──► arrived(queue_id) ──► parked receives of this process
                                                   │
                                                   └─► NOTIFY, only when another process waits there
    NOTIFY of another process ─────────────────► arrived(queue_id)
    every 0.9 s, one statement for the queues that somebody waits on (a thousand at a time) ──►
    timers for delays and visibility timeouts that end before the next look, and a net under lost
    notifications

Sends to standard queues answer parked receives without any of this (storage.queues.handing).
A notification is a hint: who is woken asks the database. NOTIFY holds a lock of the whole database
through its commit, so it goes out on a connection of its own, after the commit that it tells of,
and many hints together.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, cast

from queuegate.gateway.operations.logs.places import place_of_partition
from queuegate.gateway.operations.repeating import until_available
from queuegate.gateway.operations.waiters import Listener, Taker, Waiter, place_of_pause
from queuegate.storage.database import Database
from queuegate.storage.errors import Unavailable
from queuegate.storage.notifications import EVERYBODY, Notifications, payloads

if TYPE_CHECKING:
    from queuegate.storage.queues.message_entries import Receive

_log = logging.getLogger("queuegate.wakeups")

_HEARTBEAT_SECONDS = 5.0
_PEER_SECONDS = 16.0
_INTEREST_SECONDS = 16.0
# A send that committed while the other process's wish to hear of it was on its way.
_RECENT_SECONDS = 0.3
_LOOK_SECONDS = 0.9
_CLOCK_SECONDS = 1.0
# Before a fresh long poll is looked after: most are woken by a send before that.
_FIRST_LOOK_SECONDS = 0.01
_EVERYBODY = 1 << 30
# Queues of one look. Where receives wait on more of them, they take turns.
_LOOKED_AT_ONCE = 1_000
# Woken when a delay or a timeout ends: who takes all that it may wakes the next one.
_WOKEN_AT_ONCE = 100

Looker = Callable[[list[int]], Awaitable[list[tuple[int, bool, int]]]]
"""Asks the database about queues: (queue_id, receivable now, milliseconds to the next)."""


class Wakeups:
    """Parked receives of this process and the hints that it exchanges with others."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._parked: dict[int, OrderedDict[Waiter, None]] = {}
        self._arrivals: dict[int, int] = {}
        self.process = f"{os.getpid():x}.{secrets.token_hex(4)}"
        """This process, as others know it."""
        self._peers: dict[str, float] = {}
        self._wanted_elsewhere: dict[int, float] = {}
        self._recent: dict[int, float] = {}
        self._hints: dict[str, dict[int, int]] = {}
        self._sending: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._notifications: Notifications | None = None
        self._looked_at: dict[int, float] = {}
        self._unlooked: set[int] = set()
        self._next_looks: list[int] = []
        """Queues that have their turn before any other has it again."""
        self._taken: set[int] = set()
        """Queues on which somebody waited since the last look, and was handed something."""
        self._look_wanted = asyncio.Event()
        self._lost = asyncio.Event()
        self._stopping = False
        self.on_queue_changed: Callable[[int | None], None] = lambda _: None
        """Told which queue's metadata changed; None: any may have, the connection was lost."""
        self.on_topic_changed: Callable[[int | None], None] = lambda _: None
        """The same for topics and their subscriptions."""
        self.on_deliveries: Callable[[], None] = lambda: None
        """Told when deliveries to web hooks were written, here or elsewhere."""
        self.on_schedules: Callable[[], None] = lambda: None
        """Told when schedules were changed, here or elsewhere, or may have been."""
        self.on_clock_moved: Callable[[int], None] = lambda _: None
        """Told that a clock was moved, and which of all moves that was."""
        self.on_key_changed: Callable[[int | None], None] = lambda _: None
        """Told which key was made or revoked; None: any may have, the connection was lost."""
        self.on_quotas_changed: Callable[[], None] = lambda: None
        """Told that quotas were changed, or may have been."""
        self.on_log_changed: Callable[[int | None], None] = lambda _: None
        """As for keys, for logs and their groups."""
        self._unaware: dict[int, set[str]] = {}
        self._key_known = asyncio.Event()
        self._moves_known: dict[str, int] = {}
        self._clock_known = asyncio.Event()
        self.on_resumed: Callable[[int, int], None] = lambda *_: None
        """Told elsewhere: this consumer came back there, and which event it saw last."""
        self.on_finished: Callable[[list[int]], object] = lambda _: None
        """Told elsewhere: messages that this process may have pushed were acknowledged there."""
        self.on_arrival_elsewhere: Callable[[int], None] = lambda _: None
        self.look: Looker | None = None
        self.handed: dict[int, int] = {}

    # Parking

    def arrivals(self, queue_id: int) -> int:
        """A count that changes with every arrival: read it before asking the database."""
        return self._arrivals.get(queue_id, 0)

    def park(self, queue_id: int, waiter: Waiter) -> None:
        """Call ``waiter.wake()`` once when something may have become visible on the queue."""
        parked = self._parked.get(queue_id)
        if parked is None:
            self._parked[queue_id] = OrderedDict([(waiter, None)])
            if self._peers:
                self._hint("W", queue_id, 1)
            loop = asyncio.get_running_loop()
            if queue_id >= 0 and self._looked_at.get(queue_id, 0.0) < loop.time() - _LOOK_SECONDS:
                loop.call_later(_FIRST_LOOK_SECONDS, self._first_look, queue_id)
        else:
            parked[waiter] = None

    def waits(self, queue_id: int) -> bool:
        """Whether somebody is parked there."""
        return queue_id in self._parked

    def take(self, queue_id: int) -> Receive | None:
        """What the first one that may be handed messages asks for (storage.queues.handing)."""
        for waiter in self._parked.get(queue_id, ()):
            # Whatever else waits, waits at places that are no queue's.
            entry = cast(Taker, waiter).take()
            if entry is not None:
                self.leave(queue_id, waiter)
                self._taken.add(queue_id)
                return entry
        return None

    def leave(self, queue_id: int, waiter: Waiter) -> None:
        """Take a waiter back that was not woken."""
        parked = self._parked.get(queue_id)
        if parked is not None:
            parked.pop(waiter, None)
            if not parked:
                del self._parked[queue_id]

    def parked_count(self) -> int:
        """How many receives and reads wait; one may do so at several places."""
        waiters = {waiter for parked in self._parked.values() for waiter in parked}
        return sum(not isinstance(waiter, Listener) for waiter in waiters)

    def wake_all(self) -> None:
        """Wake everybody: the gateway is stopping, or the clock was moved."""
        for queue_id in list(self._parked):
            self._wake(queue_id, _EVERYBODY)

    def _wake(self, queue_id: int, count: int) -> int:
        parked = self._parked.get(queue_id)
        # A receive of a paused queue parks again at once.
        woken, count = 0, min(count, len(parked or ()))
        while parked and woken < count:
            parked.popitem(last=False)[0].wake()
            woken += 1
        if parked is not None and not parked and self._parked.get(queue_id) is parked:
            del self._parked[queue_id]
        return woken

    def wake_next(self, queue_id: int) -> None:
        """A receive took all that it may: whoever waits behind it should look too."""
        self._wake(queue_id, 1)

    # Telling

    def arrived(self, queue_id: int, count: int = 1) -> None:
        """Messages were committed or became visible: wake as many waiters as there may be work."""
        if queue_id in self.handed:
            handed = min(count, self.handed[queue_id])
            self.handed[queue_id] -= handed
            count -= handed
            if not count:
                return
        self._arrivals[queue_id] = self._arrivals.get(queue_id, 0) + 1
        woken = self._wake(queue_id, count) if queue_id in self._parked else 0
        if self._peers and woken < count:
            self._tell_arrival(queue_id, count - woken)

    def _tell_arrival(self, place: int, count: int) -> None:
        time = asyncio.get_running_loop().time()
        if self._wanted_elsewhere.get(place, 0.0) > time:
            self._hint("A", place, count)
        else:
            self._recent[place] = time + _RECENT_SECONDS
            if len(self._recent) > 4096:
                self._recent = {q: end for q, end in self._recent.items() if end > time}

    def appended(self, partition_ids: Iterable[int]) -> None:
        """Records were committed to these partitions: each group has them."""
        self.look_again([place_of_partition(one) for one in partition_ids])

    def look_again(self, places: Iterable[int]) -> None:
        """Something has changed: all who wait there look, in other processes, too."""
        for place in places:
            self._wake(place, _EVERYBODY)
            if self._peers:
                self._tell_arrival(place, 1)

    def queue_changed(self, queue_id: int) -> None:
        """We changed a queue: drop what is cached of it, without waiting for the notification. The
        other processes hear of it from the transaction itself."""
        self._arrivals.pop(queue_id, None)
        self.on_queue_changed(queue_id)
        self._wake(queue_id, _EVERYBODY)
        self._wake(place_of_pause(queue_id), _EVERYBODY)

    def topic_changed(self, topic_id: int) -> None:
        """We changed a topic or a subscription of it: drop what is cached, without waiting."""
        self.on_topic_changed(topic_id)

    def deliveries_written(self) -> None:
        """Deliveries were committed: wake whoever sends them, here and elsewhere."""
        self.on_deliveries()
        if self._peers:
            self._hint("D", 0, 1)

    def resumed_here(self, consumer: int, last: int) -> None:
        """A consumer of another process came back here, and saw its events up to ``last``."""
        if self._peers:
            self._hints.setdefault("R", {})[consumer] = last
            self._send_soon()

    def finished_here(self, number: int, process: str) -> None:
        """A message that the other process pushed is no longer with its consumer."""
        if process in self._peers:
            self._hint("F", number, 1)

    def clock_known(self, moves: int) -> None:
        """We know where the clocks stand after so many moves."""
        if self._peers:
            self._hint("K", moves, 1)

    async def wait_for_clocks(self, moves: int) -> None:
        """Until the other processes know it, too, but not for long: one of them may be gone."""
        time = asyncio.get_running_loop().time
        deadline = time() + _CLOCK_SECONDS
        while any(self._moves_known.get(peer, 0) < moves for peer in self._peers):
            if time() >= deadline:
                return
            self._clock_known.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._clock_known.wait(), deadline - time())

    def key_known(self, key_id: int) -> None:
        """We know of a change of a key."""
        if self._peers:
            self._hint("V", key_id, 1)

    def expect_to_know(self, key_id: int) -> None:
        """The other processes are going to hear of a change of a key: before they do."""
        self._unaware[key_id] = {*self._peers}

    async def wait_for_key(self, key_id: int) -> None:
        """Until they know it, but not for long: one of them may be gone."""
        time = asyncio.get_running_loop().time
        deadline = time() + _CLOCK_SECONDS
        unaware = self._unaware.get(key_id, set())
        while unaware & self._peers.keys() and time() < deadline:
            self._key_known.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._key_known.wait(), deadline - time())
        self._unaware.pop(key_id, None)

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
                    # The others look for themselves within a second.
                    _log.log(error.log_level, "a notification was lost: %s", error)
                    self._lost.set()
                    return

    # Hearing

    def _heard(self, payload: str) -> None:
        sender, kind, rest = payload.split(" ", 2)
        if sender == self.process:
            return
        time = asyncio.get_running_loop().time()
        if sender != EVERYBODY:
            if sender not in self._peers:
                self._hint("P", 0, 1)
                for queue_id in self._parked:
                    self._hint("W", queue_id, 1)
            self._peers[sender] = time + _PEER_SECONDS
            if kind == "K":
                self._moves_known[sender] = max(
                    self._moves_known.get(sender, 0),
                    *(int(word.partition(":")[0]) for word in rest.split(",")),
                )
                self._clock_known.set()
        for word in rest.split(","):
            number, _, count = word.partition(":")
            if kind == "V":
                self._unaware.get(int(number), set()).discard(sender)
                self._key_known.set()
            self._act(kind, int(number), int(count), time)

    def _act(self, kind: str, number: int, count: int, time: float) -> None:
        if kind == "A" and number < 0:
            self._wake(number, _EVERYBODY)
        elif kind == "A":
            self._arrivals[number] = self._arrivals.get(number, 0) + 1
            self.on_arrival_elsewhere(number)
            self._wake(number, count)
        elif kind == "W":
            self._wanted_elsewhere[number] = time + _INTEREST_SECONDS
            if self._recent.pop(number, 0.0) > time:
                self._hint("A", number, 1)
        elif kind == "Q":
            self.queue_changed(number)
        elif kind == "T":
            self.topic_changed(number)
        else:
            self._tell(kind, number, count)

    def _tell(self, kind: str, number: int, count: int) -> None:
        if kind == "D":
            self.on_deliveries()
        elif kind == "S":
            self.on_schedules()
        elif kind == "C":
            self.on_clock_moved(count)
        elif kind == "Y":
            self.on_key_changed(number)
        elif kind == "R":
            self.on_resumed(number, count)
        elif kind == "F":
            self.on_finished([number])
        elif kind == "L":
            self.on_log_changed(number)
        elif kind == "U":
            self.on_quotas_changed()

    # Running

    async def start(self) -> None:
        """Listen, greet the other processes, and begin to look."""
        await self._listen()
        self._tasks = [
            asyncio.create_task(self._keep_listening()),
            asyncio.create_task(self._keep_looking()),
        ]

    async def stop(self) -> None:
        """Say goodbye and let the connection go."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._notifications is not None:
            await self._notifications.close()
            self._notifications = None

    async def _listen(self) -> None:
        self._lost.clear()
        notifications = await Notifications.open(self._database, self._heard, self._lost.set)
        try:
            await notifications.send(f"{self.process} P 0:1")
        except BaseException:
            notifications.drop()
            raise
        # Not before the greeting is out: a hint must not go out on the connection meanwhile.
        self._notifications = notifications

    async def _keep_listening(self) -> None:
        """Greet regularly; when the connection is lost, assume that everything has changed."""
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
            self._moves_known.pop(peer, None)
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
                await until_available(self._listen, _log, "notifications are not heard")
            except Exception:  # noqa: BLE001 - whatever the server says, deaf is worse than patient
                _log.exception("cannot listen for notifications")
                await asyncio.sleep(1.0)
            else:
                break
        self.on_queue_changed(None)
        self.on_topic_changed(None)
        self.on_key_changed(None)
        self.on_log_changed(None)
        self.on_quotas_changed()
        self.on_schedules()
        self.on_deliveries()
        self.wake_all()

    def _first_look(self, queue_id: int) -> None:
        """Somebody waits on a queue that was not looked at lately: not all wait that long."""
        if queue_id in self._parked and not self._stopping:
            self._unlooked.add(queue_id)
            self._look_wanted.set()

    async def _keep_looking(self) -> None:
        loop = asyncio.get_running_loop()
        next_look = loop.time() + _LOOK_SECONDS
        while not self._stopping:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._look_wanted.wait(), next_look - loop.time())
            self._look_wanted.clear()
            queue_ids, self._unlooked = list(self._unlooked & self._parked.keys()), set()
            if loop.time() >= next_look:
                next_look = loop.time() + _LOOK_SECONDS
                queue_ids = self._take_turns()
                self._looked_at = {}
            if not queue_ids or self.look is None:
                continue
            try:
                await self._look_at(queue_ids)
            except Unavailable as error:
                _log.log(error.log_level, "waiting receives are not looked after: %s", error)
            except Exception:  # noqa: BLE001 - without this loop no timeout would wake anybody again
                _log.exception("a look for waiting receives failed")

    def _take_turns(self) -> list[int]:
        """The queues of the next look: all on which somebody waits, unless they are too many."""
        taken, self._taken = self._taken, set()
        queue_ids = [place for place in self._parked.keys() | taken if place >= 0]
        if len(queue_ids) <= _LOOKED_AT_ONCE:
            self._next_looks = []
            return queue_ids
        if not self._next_looks:
            self._next_looks = queue_ids
        turn = self._next_looks[-_LOOKED_AT_ONCE:]
        del self._next_looks[-_LOOKED_AT_ONCE:]
        return [queue_id for queue_id in turn if queue_id in self._parked or queue_id in taken]

    async def _look_at(self, queue_ids: list[int]) -> None:
        assert self.look is not None
        loop = asyncio.get_running_loop()
        turns = len(self._parked) // _LOOKED_AT_ONCE + 1
        until_next_ms = turns * _LOOK_SECONDS * 1000 + 200
        for queue_id in queue_ids:
            self._looked_at[queue_id] = loop.time()
        for queue_id, ready, in_ms in await self.look(queue_ids):
            if ready:
                self._shown(queue_id, 1)
            elif in_ms < until_next_ms:
                loop.call_later(in_ms / 1000, self._due, queue_id)

    def _due(self, queue_id: int) -> None:
        """A delay or a timeout ended. Who parks again may have the next one to wait for."""
        self._looked_at.pop(queue_id, None)
        self._shown(queue_id, _WOKEN_AT_ONCE)

    def _shown(self, queue_id: int, count: int) -> None:
        """Nobody sent what is visible now. Who is being handed what is sent looks before it parks
        again: it might be handed things for ever."""
        if not self._wake(queue_id, count):
            self._arrivals[queue_id] = self._arrivals.get(queue_id, 0) + 1

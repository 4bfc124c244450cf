"""Lanes: group commit of entries on a connection of their own, one flush after the other.

A lane answers every entry after the commit. It does not linger unless configured. A failed flush is
repeated entry by entry, so that no entry fails its neighbours. After a lost connection, entries in
flight get ``Unavailable`` (the commit is unknown); waiting ones are kept for the next connection,
within a deadline. A database without any answer costs a lane its connection after
``_FLUSH_SECONDS``. Waiting entries are bounded in time, number and bytes.

While more entries wait than fit into a flush, a lane measures its pace. An entry that would wait
for longer than the lane's budget is refused at once: its caller should slow down, and those before
it are answered in time.

Entries that do not fit into a flush wait in a fair queue: in order of arrival, one caller with many
or large entries would delay all others. Accounts are served round-robin, and within an account its
queues, one entry at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from contextvars import Context, copy_context
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import asyncpg

from queuegate.storage.database import Database, is_lost, is_unavailable
from queuegate.storage.database_hosts import SUSPECT_SECONDS
from queuegate.storage.storage_errors import Away, Overloaded, Rejected, Unavailable

if TYPE_CHECKING:
    from queuegate.storage.database import Connection
    from queuegate.storage.database_hosts import DatabaseSession


class FairEntry(Protocol):
    """A queued entry."""

    gone: bool
    size_bytes: int
    submitted_at: float


W = TypeVar("W", bound=FairEntry)

_Party = tuple[Hashable, Hashable]
"""(account, queue)."""


class RoundRobinQueue(Generic[W]):
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
        """Enqueue entries again, before those of the same queue. Their queues are next: otherwise
        the queues of a later flush would pass them again and again."""
        for entry in reversed(entries):
            self._queue_of(entry).appendleft(entry)
        parties = {self._party_of(entry): None for entry in entries}
        for account in {account: None for account, _ in parties}:
            left = deque(party for party in self._accounts.pop(account) if party not in parties)
            if left:
                self._accounts[account] = left
        self._put_first([*parties])

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

    def before(self, entry: W) -> int:
        """Return the number of entries that would be taken before this one, at most."""
        party = self._party_of(entry)
        account, mine = party[0], self._queues.get(party, ())
        parties = len(self._accounts.get(account, ())) + (not mine)
        accounts = len(self._accounts) + (account not in self._accounts)
        return min((len(mine) + 1) * parties * accounts - 1, self.count)

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


_log = logging.getLogger("queuegate.lanes")

_MAX_BYTES = 1 << 20
"""Bytes of a flush: entries submitted during one wait for it."""
_LARGE_BYTES = 65_536
"""Bytes of an entry for ``Lane.large``."""
_MOST_WAITING_BYTES = 64 << 20
_MOST_WAITING_ENTRIES = 50_000
_PATIENCE_SECONDS = 5.0
_PAUSE_SECONDS = 0.05
_FLUSH_SECONDS = 20.0
_WATCH_SECONDS = 1.0
_CLOSE_SECONDS = 5.0
_MOST_TURNS = 4
_BUDGET_SECONDS = 1.0
"""Longest expected wait of an entry, if flushes go on."""
FINISHING_SECONDS = 3.0
"""The same for what ends work, such as deletes: refused, it would be done again."""
_LEAST_IN_TIME = 16
"""Entries that may always wait."""
_REFUSAL_SECONDS = 0.004
"""From one refusal of an entry to the next."""
_PACE_DECAY = 0.7
_BUSY_SHARE = 0.25
"""Share of one iteration of the event loop in a flush, from which on the loop is the limit."""
_UNLIMITED = 1 << 40
_CLOSING = "Shutting down."
_TOO_MANY = "Too many requests wait for the database."
_TOO_LATE = "The database does not answer in time."

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)


class Reply(Protocol[R_contra]):
    """The receiver of a result. One of the two methods is called, once."""

    def done(self, result: R_contra, /) -> None:
        """Receive the result after the commit."""

    def failed(self, error: BaseException, /) -> None:
        """Receive a failure; after ``Unavailable`` the outcome may be unknown."""


class _NullReply:
    """A null reply that replaces an answered caller."""

    def done(self, result: object, /) -> None:
        """Discard the result."""

    def failed(self, error: BaseException, /) -> None:
        """Discard the error."""


NULL_REPLY: Reply[object] = _NullReply()


class Entry(Generic[R]):
    """One caller's part of a flush. The caller gets the result or the error.

    ``gone`` is set when the caller disconnected: a pending entry is dropped. ``variant`` chooses
    the statement, mostly by the kind of the queue: the entries of a flush have the same one.
    """

    __slots__ = (
        "answered",
        "context",
        "gone",
        "replies_to",
        "size_bytes",
        "submitted_at",
        "variant",
    )

    def __init__(self, reply: Reply[R], size_bytes: int = 0) -> None:
        self.replies_to: Reply[R] = reply
        self.context: Context | None = None
        """With traces, the context of the caller, in which the reply runs."""
        self.size_bytes = size_bytes
        self.gone = False
        self.answered = False
        self.submitted_at = 0.0
        self.variant: object = None

    def done(self, result: R) -> None:
        """Answer the caller. An exception in the caller fails neither the flush nor others."""
        self.answered = True
        # Callers reference their entry, too: drop the reply, or only the cycle collector would free
        # the two.
        reply, self.replies_to = self.replies_to, NULL_REPLY
        try:
            if self.context is None:
                reply.done(result)
            else:
                self.context.run(reply.done, result)
        except Exception:  # noqa: BLE001 - what is committed must not be repeated for it
            _log.exception("a caller could not take its answer")

    def failed(self, error: BaseException) -> None:
        """Answer the caller, as ``done`` does."""
        self.answered = True
        reply, self.replies_to = self.replies_to, NULL_REPLY
        try:
            if self.context is None:
                reply.failed(error)
            else:
                self.context.run(reply.failed, error)
        except Exception:  # noqa: BLE001 - others wait for their answers
            _log.exception("a caller could not take its answer")

    def party(self) -> Hashable:
        """Return the fairness key: a queue id, or the ARN of a topic."""
        return None


ClockNow = Callable[[], datetime | None]
"""Returns the present; None: the clock of the database."""


class LaneClock(Protocol):
    """The clock of one account, moved by a tester."""

    def now(self) -> datetime:
        """Return its present."""


def _no_account(_: Hashable) -> Hashable:
    return None


NO_ACCOUNTS: Mapping[Any, LaneClock] = {}

E = TypeVar("E", bound=Entry[Any])
Flush = Callable[["Connection", list[E]], Awaitable[list[E]]]


class FlushTracer(Protocol):
    """Traces flushes with entries of traced requests (``gateway.tracing``)."""

    def flush(
        self, lane: str, entries: Sequence[Entry[Any]]
    ) -> contextlib.AbstractContextManager[None]:
        """Return a context that lasts as long as the flush of these entries."""


class Lane(Generic[E]):
    """A queue of entries, flushed together by ``flush(connection, entries)``.

    ``flush`` gets entries of one variant and one clock. It must call ``entry.done`` or ``failed``
    for every entry that it finished, and return the entries for the next flush (two for the same
    message, another class of receive).
    """

    def __init__(
        self,
        name: str,
        database: Database,
        flush: Flush[E],
        *,
        settings: dict[str, str] | None = None,
        linger_seconds: float = 0.0,
        max_entries: int = 256,
    ) -> None:
        self.name = name
        self.large: Lane[E] | None = None
        """Takes the large entries, so that small ones do not wait for their flushes."""
        self.budget_seconds = _BUDGET_SECONDS
        self._database = database
        self._availability = database.availability
        self._flush = flush
        self._settings = settings or {}
        self._max_entries = max_entries
        self._linger_seconds = linger_seconds
        # While more entries wait than fit into a flush: how many are flushed within the budget, by
        # the pace of the last flushes, of which the latest count most.
        self._most_in_time = _UNLIMITED
        self._paced_entries = self._paced_seconds = self._busy_seconds = self._flushed_at = 0.0
        self._refusing_at = 0.0
        self._is_full = asyncio.Event()
        # Entries that fit into one flush; further ones are in ``_turns``.
        self._waiting: deque[E] = deque()
        self._waiting_bytes = 0
        self._turns: RoundRobinQueue[E] = RoundRobinQueue(self._party_of)
        self.account_of: Callable[[Hashable], Hashable] = _no_account
        """Returns the account of a fairness key; accounts are served round-robin."""
        self.clocks = NO_ACCOUNTS
        """By account with its own clock: a flush has one present."""
        self._running = False
        self._last_count = 0
        self._flush_began: float | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._closed = False
        self._refusal = ""
        self.refused_count = 0
        """Entries refused while sends are refused."""
        self._task: asyncio.Task[None] | None = None
        self._connection: DatabaseSession | None = None
        self.observe: Callable[[int], None] = lambda count: None
        """Called with the number of entries of each flush, for metrics."""
        self.timed: Callable[[float, float], None] = lambda waited, seconds: None
        """Called after each flush with the seconds that its first entry waited for it, and with
        its duration."""
        self.tracing: FlushTracer | None = None

    def submit(self, entry: E) -> None:
        """Enqueue an entry. Its reply comes after the commit, never within this call.

        ``Unavailable`` soon if the lane is full, later after a timeout.
        """
        if entry.size_bytes > _LARGE_BYTES and self.large is not None:
            self.large.submit(entry)
            return
        waiting = self._waiting
        count = len(waiting) + self._turns.count
        is_full = (
            count >= self._most_in_time
            or count >= _MOST_WAITING_ENTRIES
            or self._waiting_bytes >= _MOST_WAITING_BYTES
        )
        if self._refusal or (is_full and self._is_full_for(entry)):
            self._refuse(entry)
            return
        entry.submitted_at = time.monotonic()
        self._waiting_bytes += entry.size_bytes
        if self.tracing is not None:
            entry.context = copy_context()
        waiting.append(entry)
        if self._linger_seconds and len(waiting) >= self._max_entries:
            self._is_full.set()
        if not self._running:
            self._running = True
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._run())
            if self._watch is None:
                self._watch = loop.call_later(_WATCH_SECONDS, self._look)

    def _refuse(self, entry: E) -> None:
        """Answer an entry without a place, never within this call.

        A refusal costs nearly as much as a send: without a pace, clients that send again at once
        would take the process from those that are admitted.
        """
        loop = asyncio.get_running_loop()
        if self._refusal:
            error = Unavailable(self._refusal)
            if self._refusal is not _CLOSING:
                # DiskWatch logs their count.
                self.refused_count += 1
                error.log_level = logging.DEBUG
            loop.call_soon(entry.failed, error)
            return
        now = loop.time()
        if self._waiting_bytes < _MOST_WAITING_BYTES:
            at = max(self._refusing_at + _REFUSAL_SECONDS, now)
            self._refusing_at = min(at, now + _PATIENCE_SECONDS)
        loop.call_at(max(self._refusing_at, now), entry.failed, Overloaded(_TOO_MANY))

    def refuse(self, text: str) -> None:
        """Answer ``Unavailable`` with this text to new entries; an empty text ends this.

        Shares a check that ``submit`` does anyway.
        """
        self._refusal = _CLOSING if self._closed else text

    def now_of(self, party: Hashable, common: ClockNow) -> datetime | None:
        """Return the present of a fairness key: all entries of a flush have the same."""
        return self.clock_of(party, common)() if self.clocks else common()

    def clock_of(self, party: Hashable, common: ClockNow) -> ClockNow:
        """Return the clock of a fairness key: ``common``, unless its account has one."""
        clock = self.clocks.get(self.account_of(party))
        return common if clock is None else clock.now

    def _alike(self, batch: list[E]) -> list[E]:
        """Return the entries with the variant and the clock of the first. The others come first in
        the next flush, so that variants take turns."""
        variant = batch[0].variant
        mine = [entry for entry in batch if entry.variant is variant]
        clocks, account_of = self.clocks, self.account_of
        if clocks:
            first = clocks.get(account_of(batch[0].party()))
            mine = [one for one in mine if clocks.get(account_of(one.party())) is first]
        if len(mine) < len(batch):
            chosen = set(mine)
            self._put_back([entry for entry in batch if entry not in chosen])
        return mine

    def _party_of(self, entry: E) -> tuple[Hashable, Hashable]:
        party = entry.party()
        return self.account_of(party), party

    def _is_full_for(self, entry: E) -> bool:
        """Return True if a full lane accepts no more entries of this queue.

        Queues that did not fill the lane may use half as much again. An entry is in time if its
        turn comes within the budget: entries of other accounts and queues do not delay it much.
        """
        turns = self._turns
        turns.add(self._waiting)
        self._waiting.clear()
        count, size = turns.share_of(entry)
        return (
            turns.before(entry) >= self._most_in_time
            or count > _MOST_WAITING_ENTRIES // 2
            or size > _MOST_WAITING_BYTES // 2
            or turns.count >= _MOST_WAITING_ENTRIES * 3 // 2
            or turns.size_bytes >= _MOST_WAITING_BYTES * 3 // 2
        )

    def stuck_seconds(self, now: float) -> float:
        """Return the duration of the current flush or connection attempt.

        ``now`` is ``time.monotonic()``. 0 if nothing is in progress.
        """
        return 0.0 if self._flush_began is None else max(now - self._flush_began, 0.0)

    async def open(self) -> None:
        """Connect now instead of at the first entry."""
        if self._connection is None:
            await self._connected()

    async def close(self) -> None:
        """Finish the pending entries, then close the connection.

        After 5 s without an answer of the database, the rest is answered Unavailable.
        """
        self._closed = True
        self._refusal = _CLOSING
        self._is_full.set()
        if self._watch is not None:
            self._watch.cancel()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_CLOSE_SECONDS)
            while not self._task.done():
                self._drop_connection()
                await asyncio.wait([self._task], timeout=0.1)
        if self._connection is not None:
            with contextlib.suppress(OSError, asyncpg.InterfaceError):
                await self._connection.close(timeout=2.0)
            self._connection = None

    async def _run(self) -> None:
        try:
            while self._waiting or self._turns.count:
                if not self._turns.count:
                    if self._linger_seconds:
                        await self._linger()
                    elif self._last_count > 1:
                        await self._gather()
                batch = self._take()
                self._last_count = len(batch)
                await self._run_once(batch)
        finally:
            self._running = False
            self._flush_began = None

    async def _gather(self) -> None:
        """Yield to the event loop until an iteration adds no entry, at most a few times.

        Clients answered by the previous flush submit again in the next iterations. Without this the
        first of them would get a flush of their own, and split the clients in two halves.
        """
        for _ in range(_MOST_TURNS):
            count = len(self._waiting)
            if count >= self._max_entries:
                return
            await asyncio.sleep(0)
            if len(self._waiting) == count:
                return

    async def _linger(self) -> None:
        """Collect entries until the time is over, a flush is full, or the lane closes."""
        self._is_full.clear()
        if len(self._waiting) < self._max_entries and not self._closed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_full.wait(), self._linger_seconds)

    def _look(self) -> None:
        """Once a second while entries come: give up on an unresponsive database.

        One timer serves all flushes of a second, so a flush pays for none.
        """
        self._watch = None
        if not self._running or self._closed:
            return
        now = time.monotonic()
        if self._connection is not None and self.stuck_seconds(now) > _FLUSH_SECONDS:
            reason = f"lane {self.name} had no answer in {_FLUSH_SECONDS:g} s, it connects anew"
            self._availability.failed(reason, 0)
            # The flush ends with a connection error, as if the server had closed it.
            self._drop_connection()
        elif self._connection is not None and self.stuck_seconds(now) > SUSPECT_SECONDS:
            self._database.liveness.suspect(self._connection.host)
        self._give_up_waiting(now - _PATIENCE_SECONDS)
        self._watch = asyncio.get_running_loop().call_later(_WATCH_SECONDS, self._look)

    def _give_up_waiting(self, before: float) -> None:
        """Answer the entries queued since ``before``: nothing was done for them."""
        waiting = self._waiting
        old = self._turns.take_older(before)
        while waiting and waiting[0].submitted_at <= before:
            old.append(waiting.popleft())
        if not old:
            return
        error = Unavailable(_TOO_LATE)
        if self.stuck_seconds(before) > 0:
            # They wait for one flush, not behind many others.
            error = Away(_TOO_LATE)
            self._availability.failed(f"lane {self.name}: {_TOO_LATE}", len(old))
        for entry in old:
            self._waiting_bytes -= entry.size_bytes
            if not entry.gone:
                entry.failed(error)

    def _take(self) -> list[E]:
        waiting, turns = self._waiting, self._turns
        if (
            len(waiting) <= self._max_entries
            and self._waiting_bytes <= _MAX_BYTES
            and not turns.count
        ):
            batch = [entry for entry in waiting if not entry.gone]
            waiting.clear()
            self._waiting_bytes = 0
            return batch
        turns.add(waiting)
        waiting.clear()
        batch = turns.take(self._max_entries, _MAX_BYTES)
        self._waiting_bytes = turns.size_bytes
        return batch

    async def _run_once(self, batch: list[E]) -> None:
        if not batch:
            return
        self._flush_began = began = time.monotonic()
        connection = self._connection
        if connection is None or connection.is_closed():
            connection = await self._connected_for(batch)
            if connection is None:
                return
            self._flush_began = began = time.monotonic()
        if len(batch) > 1:
            batch = self._alike(batch)
        self.observe(len(batch))
        try:
            flush = self._flush if self.tracing is None else self._traced_flush
            left = await flush(connection, batch)
        except Exception as error:  # noqa: BLE001 - every kind of failure must reach its callers
            await self._recover(batch, error)
        else:
            connection.answers += 1
            ended = time.monotonic()
            self.timed(began - batch[0].submitted_at, ended - began)
            if self._turns.count or self._most_in_time is not _UNLIMITED:
                began = max(self._flushed_at, batch[0].submitted_at)
                self._measure(len(batch) - len(left), ended - began)
            self._flushed_at = ended
            if self._availability.is_away:
                self._availability.answered()
            if left:
                self._put_back(left)

    def _measure(self, entries: int, seconds: float) -> None:
        """Limit the entries that wait to those of the budget, after a flush that left some, and
        until few wait."""
        if not self._turns.count:
            if len(self._waiting) * 2 < self._most_in_time:
                self._most_in_time = _UNLIMITED
                self._paced_entries = self._paced_seconds = self._busy_seconds = 0.0
            return
        self._paced_entries = self._paced_entries * _PACE_DECAY + entries
        self._paced_seconds = self._paced_seconds * _PACE_DECAY + seconds
        asyncio.get_running_loop().call_soon(self._note_iteration, time.monotonic())
        if self._busy_seconds > self._paced_seconds * _BUSY_SHARE:
            # The database waits for this process, to which a refusal is as much work as a send.
            self._most_in_time = _UNLIMITED
            return
        in_time = self._paced_entries * self.budget_seconds / max(self._paced_seconds, 1e-6)
        # The next flush takes as many, however long it lasts.
        self._most_in_time = max(int(in_time), entries, _LEAST_IN_TIME)

    def _note_iteration(self, began: float) -> None:
        """Count the time of an iteration of the event loop after a flush."""
        self._busy_seconds = self._busy_seconds * _PACE_DECAY + time.monotonic() - began

    async def _traced_flush(self, connection: Connection, batch: list[E]) -> list[E]:
        assert self.tracing is not None
        with self.tracing.flush(self.name, batch):
            return await self._flush(connection, batch)

    async def _connected_for(self, batch: list[E]) -> DatabaseSession | None:
        """Return a new connection; None after answering the entries if there is none."""
        try:
            return await self._connected()
        except Exception as error:  # noqa: BLE001 - every kind of failure must reach its callers
            if isinstance(error, Away):
                self._availability.failed(error.__cause__ or error, len(batch))
            elif not isinstance(error, Unavailable):
                _log.error("lane %s cannot connect", self.name, exc_info=error)
            _fail_all(batch, error)
            return None

    def _put_back(self, entries: list[E]) -> None:
        """Put the rest of a flush into the next one."""
        if self._turns.count:
            self._turns.put_back(entries)
        else:
            self._waiting.extendleft(reversed(entries))
        for entry in entries:
            self._waiting_bytes += entry.size_bytes

    async def _recover(self, batch: list[E], error: Exception) -> None:
        """Answer a failed flush: a lost connection to all entries, otherwise repeat them one by
        one."""
        batch = [entry for entry in batch if not entry.answered]
        if not batch:
            _log.error("lane %s failed after its answers", self.name, exc_info=error)
            return
        if is_lost(error) or isinstance(error, Unavailable):
            self._availability.failed(error, len(batch))
            self._drop_connection()
            _fail_all(batch, Away("The database went away; the outcome is unknown."))
            return
        if len(batch) == 1:
            if is_unavailable(error):
                _log.warning("lane %s: a flush of one entry failed: %s", self.name, error)
                error = Unavailable("The database is too busy at the moment.")
            elif not isinstance(error, Rejected):
                _log.error("lane %s: a flush of one entry failed", self.name, exc_info=error)
            batch[0].failed(error)
            return
        _log.warning("lane %s: a flush of %d failed, one by one now", self.name, len(batch))
        deadline = time.monotonic() + _FLUSH_SECONDS
        for number, entry in enumerate(batch):
            await self._run_once([entry])
            if self._connection is None or time.monotonic() > deadline:
                # Each of the others would wait as long again.
                rest = batch[number + 1 :]
                self._availability.failed(f"lane {self.name}: {_TOO_LATE}", len(rest))
                _fail_all(rest, Away(_TOO_LATE))
                return

    async def _connected(self) -> DatabaseSession:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE_SECONDS
        pause = _PAUSE_SECONDS
        while True:
            try:
                self._connection = await self._database.connect(self._settings)
                return self._connection
            except Unavailable as error:
                if loop.time() + pause > deadline or self._closed:
                    raise
                await asyncio.sleep(pause)
                # During an outage all lanes share one attempt, which has its own pause; not if the
                # server refuses the user.
                pause = _PAUSE_SECONDS if isinstance(error, Away) else min(pause * 2, 0.5)

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


def _fail_all(entries: Iterable[Entry[Any]], error: BaseException) -> None:
    for entry in entries:
        entry.failed(error)

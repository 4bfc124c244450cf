"""Rate limits of producers, accounts and keys: sliding windows that hold across all gateways.

The database counts (``storage/functions/rates.sql``). Up to 100 requests per second, a process
takes a permit for each request, with one query for concurrent requests. Above that, a process also
takes the permits that it is going to need in the next hundredths of the window. When no permit is
left, the process asks again only after the instant that the database returned. Without the database
there are no permits; messages could not be stored either.

``Quotas`` also limits how many resources an account may have. Settings have the defaults; the
database has quotas of single accounts and keys, which every process caches. Resources are counted
when they are created, by one creator of an account at a time.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from queuegate.gateway.operations.runtime.background_tasks import StateReloader
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage import stored_keys
from queuegate.storage.model import ANY, CountedKind, Quota, RateLimit
from queuegate.storage.storage_errors import (
    Denied,
    Overloaded,
    QuotaReached,
    Rejected,
    SubscriptionLimitExceeded,
    TooManyRequests,
    TopicLimitExceeded,
)
from queuegate.storage.stored_keys import Granted, PermitRequest, RateLane

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.account_clocks import Clock
    from queuegate.gateway.operations.runtime.wakeups import Wakeups
    from queuegate.gateway.operations.telemetry.series import Series
    from queuegate.storage.database import Database, Transaction
    from queuegate.storage.lanes import Lane


_MOST_PRODUCERS = 10_000
"""Producers that a process remembers. A forgotten producer costs one more query."""
_SLOTS = 100
_SHORTEST_SLOTS = 0.25
"""Fewer slots than this are too short to predict the demand."""
_REFUSAL_SECONDS = 0.002
"""Interval between refusals of one producer, in each process."""
_LONGEST_TURN = 10.0
"""Longest delay of a refusal. Refusals beyond it are sent together, in one turn of the loop."""


class Rates:
    """The rate limits of a process."""

    def __init__(self, database: Database, clock: Clock, series: Series) -> None:
        self.default: RateLimit | None = None
        """The limit of producers without one of our keys."""
        self._clock = clock
        self._series = series
        self._producers: dict[tuple[str, str], Limited] = {}
        self._rates = RateLane(database, clock.now)

    @property
    def lane(self) -> Lane[PermitRequest]:
        return self._rates.lane

    async def close(self) -> None:
        await self.lane.close()

    async def take(self, caller: Caller, count: int = 1) -> None:
        """Count requests of the caller's producer, all or none of them. Raises TooManyRequests if
        they exceed its limit, and Unavailable."""
        found = self._limited(caller)
        if found is None:
            return
        try:
            await found.take(count)
        except TooManyRequests:
            assert caller.producer is not None
            self._series.throttled(caller.account_id, caller.producer.name)
            raise

    def take_at_once(self, caller: Caller, count: int = 1) -> bool:
        """Count requests if that takes no query. False: nothing was counted."""
        found = self._limited(caller)
        return found is None or found.spend(count)

    def _limited(self, caller: Caller) -> Limited | None:
        """Return the state of the caller's producer; None: it has no limit."""
        producer = caller.producer
        if producer is None:
            return None
        limit = producer.limit if producer.name else self.default
        if limit is None:
            return None
        return self.limited(caller.account_id, producer.producer_id, limit)

    def limited(self, account_id: str, producer_id: str, limit: RateLimit) -> Limited:
        """Return the state of a subject that is counted under this id in the account."""
        # While gateways have different windows, they count apart: slots of different lengths do not
        # fit.
        key = (account_id, f"{producer_id}/{limit.window_seconds}")
        found = self._producers.get(key)
        if found is None or found.limit != limit:
            if len(self._producers) >= _MOST_PRODUCERS:
                busy = [one for one in self._producers.values() if one.is_busy]
                self._producers = {one.key: one for one in busy}
            found = self._producers[key] = Limited(key, limit, self._rates.lane, self._clock)
        return found


class _Waiting(NamedTuple):
    """A caller that waits for permits."""

    permits: int
    future: asyncio.Future[None]

    def fail(self, error: BaseException) -> None:
        """Pass on an error, unless the client has disconnected."""
        if not self.future.done():
            self.future.set_exception(error)


class Limited:
    """The state of one rate limit in this process: the permits that are left, or the time until
    there may be some."""

    __slots__ = ("_asked_at", "_clock", "_granted", "_granted_at", "_lane", "_left", "_refusing_at",
                 "_requests", "_waiting", "is_busy", "key", "limit", "owed")  # fmt: skip

    def __init__(
        self, key: tuple[str, str], limit: RateLimit, lane: Lane[PermitRequest], clock: Clock
    ) -> None:
        self.key = key
        self.limit = limit
        self.is_busy = False
        self.owed = 0
        """Used units that are not yet paid for, if bytes are counted."""
        self._clock = clock
        self._lane = lane
        self._granted = Granted(0, 0, 0.0, 0.0)
        self._left = 0
        self._asked_at = self._granted_at = -math.inf
        self._requests = 0
        self._refusing_at = -math.inf
        self._waiting: deque[_Waiting] = deque()

    def has(self, count: int) -> bool:
        is_here = not self.is_busy and count <= self._left
        return is_here and self._since(self._asked_at) < self._granted.lease_seconds

    def spend(self, count: int) -> bool:
        """Spend permits that are available here. False: nothing was counted."""
        if not self.has(count):
            return False
        self._requests += count
        self._left -= count
        return True

    async def take(self, count: int) -> None:
        """Spend permits. Raises TooManyRequests, at a limited pace."""
        if self.spend(count):
            return
        self._requests += count
        held_seconds = 0.0
        if count > self.limit.requests:
            held_seconds = self.limit.window_seconds
        elif not self.is_busy and count > self._left:
            # Smaller requests may use permits that are too few for a batch. The next query returns
            # them.
            held_seconds = self._held_seconds()
        waiting = _Waiting(count, asyncio.get_running_loop().create_future())
        if held_seconds > 0.0:
            self._refuse(waiting, held_seconds)
        else:
            self._waiting.append(waiting)
            if not self.is_busy:
                self._ask()
        await waiting.future

    def _refuse(self, waiting: _Waiting, held_seconds: float) -> None:
        """Refuse a caller at the pace of this process.

        A refusal costs nearly as much as a send: clients that retry at once would occupy it.
        """
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._refusing_at = min(max(self._refusing_at + _REFUSAL_SECONDS, now), now + _LONGEST_TURN)
        refusal = TooManyRequests(max(math.ceil(held_seconds), 1))
        loop.call_at(self._refusing_at, waiting.fail, refusal)

    def _since(self, instant: float) -> float:
        """Return the seconds since an instant; infinity if the clock was set back."""
        seconds = self._present() - instant
        return seconds if seconds >= 0.0 else math.inf

    def _present(self) -> float:
        return self._clock.of(self.key[0]).instant().timestamp()

    def _held_seconds(self) -> float:
        """Return the seconds until there may be permits; 0 or less: now."""
        # Counted from the answer: a request slightly before the end of the window would have to
        # wait for the next one.
        return self._granted.hold_seconds - self._since(self._granted_at)

    def _ask(self) -> None:
        """Take permits for all waiting callers. One query at a time: its answer concerns all of
        them."""
        self.is_busy = True
        needed = sum([waiting.permits for waiting in self._waiting])
        entry = PermitRequest(self.key, self.limit, needed, self)
        slots = self._since(self._asked_at) * _SLOTS / self.limit.window_seconds
        entry.per_slot = self._requests / max(slots, _SHORTEST_SLOTS)
        entry.returned, entry.returned_slot = self._left, self._granted.slot
        self._left = self._requests = 0
        self._asked_at = self._present()
        self._lane.submit(entry)

    def done(self, granted: Granted) -> None:
        """Serve the waiting callers with the permits that the database granted."""
        self.is_busy = False
        self._granted = granted
        self._left = granted.permits
        self._granted_at = self._present()
        held_seconds = self._held_seconds()
        unheard: deque[_Waiting] = deque()
        for waiting in self._waiting:
            if waiting.future.done():
                # The client has disconnected.
                continue
            if waiting.permits <= self._left:
                self._left -= waiting.permits
                waiting.future.set_result(None)
                continue
            if held_seconds > 0.0:
                self._refuse(waiting, held_seconds)
            else:
                unheard.append(waiting)
        self._waiting = unheard
        if unheard:
            self._ask()

    def failed(self, error: BaseException) -> None:
        self.is_busy = False
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            one.fail(error)


_log = logging.getLogger("queuegate.quotas")
_MOST_CALLERS = 10_000
_OF_ACCOUNT: Final = "account"
_OF_KEY: Final = "key"
_BYTES_OF: Final = "bytes of "
_UNIT_BYTES = 1024
_Limits = tuple[tuple[str, "Limited"], ...]
"""Rates by account and key. Bytes are counted in KiB, rounded up for each request and answer."""


class Quotas(StateReloader):
    """The quotas of all accounts and keys, as this process knows them."""

    def __init__(self, database: Database, series: Series, rates: Rates, wakeups: Wakeups) -> None:
        super().__init__(_log, "cannot read quotas")
        self._database = database
        self._series = series
        self._rates = rates
        self._default = Quota()
        self._default_of_key: RateLimit | None = None
        self._stored: dict[str, Quota] = {}
        self._of_callers: dict[tuple[str, str], _Limits] = {}
        self.limits_requests = False
        """True if any request rate is limited: read for each request."""
        wakeups.on["quotas_changed"] = self.changed

    def use(self, default: Quota, requests_of_key: RateLimit | None) -> None:
        """Set the defaults for accounts and keys without a stored quota."""
        self._default, self._default_of_key = default, requests_of_key
        self._forget()

    def changed(self) -> None:
        """Reload: stored quotas may have changed."""
        self._is_stale = True
        self._begin()

    async def _read(self) -> None:
        self._is_stale = False
        try:
            async with self._database.transaction() as tx:
                self._stored = await stored_keys.read_quotas(tx, LIMITS.quotas)
        except BaseException:
            self._is_stale = True
            raise
        self._forget()

    def _forget(self) -> None:
        self._of_callers = {}
        said = [self._default.requests, self._default_of_key]
        said += [quota.requests for quota in self._stored.values()]
        of_bytes = any(map(_is_limit, [quota.bytes for quota in self._stored.values()]))
        self.limits_requests = of_bytes or any(map(_is_limit, said))
        self._series.on_answer = self._owe if of_bytes else None

    def asks(self) -> bool:
        """Return True if ``admit`` may refuse any request."""
        return self.limits_requests or self._series.traffic.is_tight

    def passes(self, caller: Caller, size_bytes: int = 0) -> bool:
        """Count one request of the caller's account and key if that takes no query. False: nothing
        was counted."""
        traffic = self._series.traffic
        if traffic.is_tight and not traffic.may_answer(caller.account_id):
            return False
        limits = self._limits_of(caller)
        if self._series.on_answer is not None:
            counts = [(one, max(one.owed, 1)) for _, one in limits]
            passed = all(one.has(n) for one, n in counts)
            for one, count in counts if passed else ():
                one.spend(count)
                one.owed = 0
            if passed:
                self._owe(caller, size_bytes)
            return passed
        if len(limits) == 1:
            return limits[0][1].spend(1)
        return all(one.has(1) for _, one in limits) and all(one.spend(1) for _, one in limits)

    async def admit(self, caller: Caller, size_bytes: int = 0) -> None:
        """Count one request of the caller's account and key. Raises TooManyRequests, and
        Unavailable, also if the account has too many unread answers for too long."""
        if not await self._series.traffic.wait_for_room(caller.account_id):
            raise Overloaded("Too many bytes of this account are under way, or are not read.")
        for what, limited in self._limits_of(caller):
            try:
                await (_pay(limited) if _is_of_bytes(what) else limited.take(1))
            except TooManyRequests as refusal:
                self._series.over_quota(caller.account_id, what)
                raise TooManyRequests(
                    refusal.retry_after_seconds or 1, f"quota of {what.replace('of ', 'of the ')}"
                ) from None
        self._owe(caller, size_bytes)

    def _owe(self, caller: Caller | None, size_bytes: int) -> None:
        """Count bytes of a request or an answer. The next request has to pay for them."""
        if caller is None or self._series.on_answer is None:
            return
        for what, limited in self._limits_of(caller):
            if _is_of_bytes(what):
                limited.owed += -(-size_bytes // _UNIT_BYTES)

    def _limits_of(self, caller: Caller) -> _Limits:
        producer = caller.producer
        key_id = producer.producer_id if producer is not None and producer.name else ""
        if caller.is_administrator:
            # Quotas do not lock out administrators, who may change them.
            return ()
        place = caller.account_id, key_id
        found = self._of_callers.get(place)
        if found is None:
            if len(self._of_callers) >= _MOST_CALLERS:
                self._of_callers = {}
            found = self._of_callers[place] = tuple(self._made(*place))
        return found

    def _made(self, account_id: str, key_id: str) -> Iterator[tuple[str, Limited]]:
        """Yield the limit of the key first: requests that it refuses do not count for the
        account."""
        asked = [(_OF_ACCOUNT, account_id, self._default.requests, "=")]
        if key_id:
            asked.insert(0, (_OF_KEY, f"key-{key_id}", self._default_of_key, f"={key_id}"))
        for name, subject, default, counted_as in asked:
            stored = self._stored.get(subject, _NOTHING)
            limit, of_bytes = stored.requests or default, stored.bytes
            if limit is not None and _is_limit(limit):
                yield f"requests of {name}", self._rates.limited(account_id, counted_as, limit)
            if of_bytes is not None and _is_limit(of_bytes):
                units = of_bytes._replace(requests=-(-of_bytes.requests // _UNIT_BYTES))
                counted = self._rates.limited(account_id, f"{counted_as}b", units)
                yield f"{_BYTES_OF}{name}", counted

    async def check_room(self, tx: Transaction, account_id: str, kind: CountedKind) -> None:
        """Raise QuotaReached, for topics and subscriptions AWS's error, if the account has as many
        as it may. Until the transaction ends, no other creator of the account gets past this
        check."""
        said: int | None = getattr(self._stored.get(account_id, _NOTHING), kind)
        most = getattr(self._default, kind) if said is None else said
        if most is None or most == ANY:
            return
        # Count one even for a quota of 0: a limit of no rows would report every quota as reached.
        if await stored_keys.count_alone(tx, kind, account_id, max(most, 1)) < most:
            return
        self._series.over_quota(account_id, kind)
        raise _refusal(kind, most)


_NOTHING = Quota()


def _is_limit(limit: RateLimit | None) -> bool:
    return limit is not None and limit.requests != ANY


def _is_of_bytes(what: str) -> bool:
    return what.startswith(_BYTES_OF)


async def _pay(limited: Limited) -> None:
    """Spend the owed units, at least 1, in parts of at most one window. Raises TooManyRequests."""
    limited.owed = max(limited.owed, 1)
    while limited.owed > 0:
        part = min(limited.owed, limited.limit.requests)
        limited.owed -= part
        try:
            await limited.take(part)
        except BaseException:
            limited.owed += part
            raise


def _refusal(kind: CountedKind, most: int) -> Rejected:
    text = f"An account may have {most} {kind} here. Delete one to create another."
    refusal: Rejected = QuotaReached(text)
    if kind == "topics":
        refusal = TopicLimitExceeded(text)
    elif kind == "subscriptions":
        refusal = SubscriptionLimitExceeded(text)
    refusal.denied = Denied("quota")
    return refusal

"""What accounts may have, and how often accounts and keys may ask whatever they ask.

The settings say it for all, the database for some: every process remembers that, and reads it again
when it has changed. Requests are counted as those of producers are (``rates.py``); what there is is
counted where it is made, by one creator of an account at a time.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from queuegate.gateway.operations.limits import LIMITS
from queuegate.gateway.operations.repeating import Rereading
from queuegate.storage.errors import (
    AuthorizationError,
    Denied,
    InvalidParameterValue,
    OverLimit,
    Rejected,
    SubscriptionLimitExceeded,
    Unavailable,
)
from queuegate.storage.key_errors import QuotaReached, TooManyRequests, TopicLimitExceeded
from queuegate.storage.key_model import ANY, Quota, RateLimit, What
from queuegate.storage.keys import quotas

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.gateway.operations.rates import Limited, Rates
    from queuegate.gateway.operations.series import Series
    from queuegate.gateway.operations.wakeups import Wakeups
    from queuegate.storage.database import Database, Transaction

_log = logging.getLogger("queuegate.quotas")

_SUBJECT = re.compile(r"[0-9]{12}|key-[1-9][0-9]{0,17}").fullmatch
_MOST_CALLERS = 10_000
_OF_ACCOUNT: Final = "account"
_OF_KEY: Final = "key"
_BYTES_OF: Final = "bytes of "
_UNIT_BYTES = 1024
_Limits = tuple[tuple[str, "Limited"], ...]
"""Rates by account and key. Bytes are counted by KiB, each request and answer rounded up."""


class Quotas:
    """The quotas of all, as this process knows them."""

    def __init__(self, database: Database, series: Series, rates: Rates, wakeups: Wakeups) -> None:
        self._database = database
        self._series = series
        self._rates = rates
        self._default = Quota()
        self._default_of_key: RateLimit | None = None
        self._stored: dict[str, Quota] = {}
        self._of_callers: dict[tuple[str, str], _Limits] = {}
        self.limits_requests = False
        """Whether anybody's requests are limited: asked for each of them."""
        self._is_stale = False
        self._reading = Rereading(self._read, lambda: self._is_stale, _log, "quotas are not read")
        wakeups.on_quotas_changed = self.changed

    def use(self, default: Quota, requests_of_key: RateLimit | None) -> None:
        """What accounts and keys may of which the database says nothing."""
        self._default, self._default_of_key = default, requests_of_key
        self._forget()

    # What is stored

    def changed(self) -> None:
        """What the database says is different, or may be."""
        self._is_stale = True
        self._reading.begin()

    async def load(self) -> None:
        """Read all of it."""
        self.changed()
        await self._reading.settle()

    async def close(self) -> None:
        """Read no more."""
        await self._reading.close()

    async def _read(self) -> None:
        self._is_stale = False
        try:
            async with self._database.transaction() as tx:
                self._stored = await quotas.read(tx, LIMITS.quotas)
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

    # How often callers may ask

    def asks(self) -> bool:
        """Return whether ``admit`` may have something against anybody's request."""
        return self.limits_requests or self._series.traffic.is_tight

    def passes(self, caller: Caller, size_bytes: int = 0) -> bool:
        """Count one request of the caller's account and key, if nobody has to be asked for it.
        False: nothing was counted."""
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
        """Count one request of the caller's account and key. Raises TooManyRequests when it is one
        too many, and Unavailable: also when its account has too many unread answers for long."""
        if not await self._series.traffic.wait_for_room(caller.account_id):
            raise Unavailable("Too many bytes of this account are under way, or are not read.")
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
        """Count bytes of a request or an answer: the next request is let through when they are
        paid for."""
        if caller is None or self._series.on_answer is None:
            return
        for what, limited in self._limits_of(caller):
            if _is_of_bytes(what):
                limited.owed += -(-size_bytes // _UNIT_BYTES)

    def _limits_of(self, caller: Caller) -> _Limits:
        producer = caller.producer
        key_id = producer.producer_id if producer is not None and producer.name else ""
        if caller.is_administrator:
            # Who may change quotas is not locked out by one.
            return ()
        place = caller.account_id, key_id
        found = self._of_callers.get(place)
        if found is None:
            if len(self._of_callers) >= _MOST_CALLERS:
                self._of_callers = {}
            found = self._of_callers[place] = tuple(self._made(*place))
        return found

    def _made(self, account_id: str, key_id: str) -> Iterator[tuple[str, Limited]]:
        """That of the key first: what it is refused does not count for its account."""
        asked = [(_OF_ACCOUNT, account_id, self._default.requests, "=")]
        if key_id:
            asked.insert(0, (_OF_KEY, f"key-{key_id}", self._default_of_key, f"={key_id}"))
        for whose, subject, default, counted_as in asked:
            stored = self._stored.get(subject, _NOTHING)
            limit, of_bytes = stored.requests or default, stored.bytes
            if limit is not None and _is_limit(limit):
                yield f"requests of {whose}", self._rates.limited(account_id, counted_as, limit)
            if of_bytes is not None and _is_limit(of_bytes):
                units = of_bytes._replace(requests=-(-of_bytes.requests // _UNIT_BYTES))
                counted = self._rates.limited(account_id, f"{counted_as}b", units)
                yield f"{_BYTES_OF}{whose}", counted

    # What accounts may have

    async def check_room(self, tx: Transaction, account_id: str, kind: What) -> None:
        """Refuse one more of these where the account has as many as it may: QuotaReached, and of
        topics and subscriptions what AWS calls it. Until the transaction ends nobody else makes
        one where a quota is."""
        said: int | None = getattr(self._stored.get(account_id, _NOTHING), kind)
        most = getattr(self._default, kind) if said is None else said
        if most is None or most == ANY:
            return
        # One is counted where none may be, too: a limit of no rows would say so of all.
        if await quotas.count_alone(tx, kind, account_id, max(most, 1)) < most:
            return
        self._series.over_quota(account_id, kind)
        raise _refusal(kind, most)


_NOTHING = Quota()


def _is_limit(limit: RateLimit | None) -> bool:
    return limit is not None and limit.requests != ANY


def _is_of_bytes(what: str) -> bool:
    return what.startswith(_BYTES_OF)


async def _pay(limited: Limited) -> None:
    """Spend what is owed, at least 1, in parts of a whole window. Raises TooManyRequests."""
    limited.owed = max(limited.owed, 1)
    while limited.owed > 0:
        part = min(limited.owed, limited.limit.requests)
        limited.owed -= part
        try:
            await limited.take(part)
        except BaseException:
            limited.owed += part
            raise


def _refusal(kind: What, most: int) -> Rejected:
    text = f"An account may have {most} {kind} here. Delete one to create another."
    refusal: Rejected = QuotaReached(text)
    if kind == "topics":
        refusal = TopicLimitExceeded(text)
    elif kind == "subscriptions":
        refusal = SubscriptionLimitExceeded(text)
    refusal.denied = Denied("quota")
    return refusal


# For administrators


def checked(subject: str, quota: Quota) -> None:
    """Raise InvalidParameterValue for what nothing can be a quota of."""
    if not _SUBJECT(subject):
        raise InvalidParameterValue("A quota is of an account of 12 digits, or of a key: key-17.")
    if subject.startswith("key-") and any(one is not None for one in quota.counts):
        raise InvalidParameterValue(
            "A key has requests and bytes: what is made with it is its account's."
        )
    if quota == _NOTHING:
        raise InvalidParameterValue("A quota limits something.")


async def put(tx: Transaction, subject: str, quota: Quota) -> None:
    """Set the quota of an account or a key. Raises InvalidParameterValue and OverLimit."""
    checked(subject, quota)
    await quotas.put(tx, subject, quota)
    if await quotas.count(tx) > LIMITS.quotas:
        raise OverLimit(f"There can be {LIMITS.quotas} quotas.")


def _check_administrator(engine: Engine, caller: Caller) -> None:
    if not (caller.is_administrator or engine.rules.opens_quotas):
        raise AuthorizationError("Quotas are for administrators: this takes the key of one.")


async def list_quotas(engine: Engine, caller: Caller) -> dict[str, Quota]:
    """All that are not left to the settings. Raises AuthorizationError."""
    _check_administrator(engine, caller)
    async with engine.database.transaction() as tx:
        return await quotas.read(tx, LIMITS.quotas)


async def put_quota(engine: Engine, caller: Caller, subject: str, quota: Quota) -> None:
    """Set one; all processes know it within a second. Raises AuthorizationError,
    InvalidParameterValue and OverLimit."""
    _check_administrator(engine, caller)
    async with engine.database.transaction() as tx:
        await put(tx, subject, quota)
    await engine.quotas.load()


async def remove_quota(engine: Engine, caller: Caller, subject: str) -> None:
    """Leave an account or a key to the settings again; nothing happens if it is. Raises
    AuthorizationError."""
    _check_administrator(engine, caller)
    async with engine.database.transaction() as tx:
        await quotas.remove(tx, subject)
    await engine.quotas.load()

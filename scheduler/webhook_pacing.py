"""Fair queueing of subscriptions with due deliveries, and limits on their requests in flight.

A subscription starts with two concurrent requests. Each success adds one, up to 32. A retryable
answer halves the limit, and a missing answer sets it to one. Endpoints that did not answer share
half of all places; together with new endpoints, three quarters. So hanging endpoints leave places
for the others. After ten failures in a row, each further failure adds a pause of 0.1 s. Without the
pause, an endpoint that refuses at once with 100,000 due deliveries would keep a processor busy. An
endpoint that asks for fewer requests would get hundreds a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from queuegate.scheduler.webhook_outcomes import DeliveryOutcome

_FIRST = 2
_MOST = 32
_MOST_READY = 2_000
_PATIENCE = 10
_REST_SECONDS = 0.1
_MOST_KNOWN = 20_000
# The budgets that a request uses, by whether its endpoint answered before.
_WIDER: dict[bool | None, tuple[bool | None, ...]] = {
    True: (True,),
    None: (True, None),
    False: (True, None, False),
}

# Deliveries missed within this time may be made up for.
_CATCH_UP_SECONDS = 0.2
# A correct instant is at most one second ahead. A larger distance means that the clock was moved.
_LONGEST_AHEAD_SECONDS = 3.0
_SHORTEST_PAUSE_SECONDS = 0.02


class _Pace:
    """State of one subscription."""

    __slots__ = ("answers", "failures", "in_flight", "limit")

    def __init__(self) -> None:
        self.limit = _FIRST
        self.in_flight = 0
        self.answers: bool | None = None
        """None: no attempt has ended yet."""
        self.failures = 0
        """Number of retryable failures in a row."""


class FairQueue:
    """Fair queue of one event loop. Times are those of the loop."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._ready: dict[UUID, None] = {}
        self._paused: dict[UUID, float] = {}
        self._paces: dict[UUID, _Pace] = {}
        self._in_flight: dict[bool | None, int] = {True: 0, False: 0, None: 0}

    def add(self, subscription_id: UUID) -> None:
        """Append a subscription that may have due deliveries."""
        if subscription_id in self._ready:
            return
        if len(self._ready) >= _MOST_READY:
            self._drop_half()
        self._ready[subscription_id] = None

    def _drop_half(self) -> None:
        """Remove half of the subscriptions, silent ones first. The next look finds them again."""
        silent = [key for key in self._ready if not self._pace(key).answers]
        others = [key for key in self._ready if self._pace(key).answers]
        for subscription_id in (silent + others)[: _MOST_READY // 2]:
            del self._ready[subscription_id]
            self._paused.pop(subscription_id, None)

    def choose(self, time: float, most: int) -> dict[UUID, int]:
        """Return the number of deliveries that each subscription may start, ``most`` in all."""
        for subscription_id in [key for key, end in self._paused.items() if end <= time]:
            del self._paused[subscription_id]
        capacity = self._capacity(most)
        free = list(islice(self._free(capacity), max(0, capacity[True])))
        chosen: dict[UUID, int] = {}
        # The first pass gives equal shares. The second gives the rest to the first in order.
        for share in (max(1, capacity[True] // max(1, len(free))), most):
            for subscription_id, answers, places in free:
                left = places - chosen.get(subscription_id, 0)
                count = min(left, share, *(capacity[wider] for wider in _WIDER[answers]))
                if count > 0:
                    chosen[subscription_id] = chosen.get(subscription_id, 0) + count
                    for wider in _WIDER[answers]:
                        capacity[wider] -= count
        return chosen

    def _capacity(self, most: int) -> dict[bool | None, int]:
        """Return free places: in all, for new and silent endpoints together, for silent ones."""
        silent, unasked = self._in_flight[False], self._in_flight[None]
        total = silent + unasked + self._in_flight[True]
        return {
            True: min(most, self._concurrency - total),
            None: max(1, self._concurrency * 3 // 4) - silent - unasked,
            False: max(1, self._concurrency // 2) - silent,
        }

    def _free(self, capacity: dict[bool | None, int]) -> Iterator[tuple[UUID, bool | None, int]]:
        """Yield subscriptions that may start deliveries: (id, whether it answers, places)."""
        left = dict(capacity)
        for subscription_id in self._ready:
            pace = self._paces.get(subscription_id)
            answers, places = None, _FIRST
            if pace is not None:
                answers, places = pace.answers, pace.limit - pace.in_flight
            if places > 0 and left[answers] > 0 and subscription_id not in self._paused:
                # Reserve one place for each, so that subscriptions without a place are skipped.
                for wider in _WIDER[answers]:
                    left[wider] -= 1
                yield subscription_id, answers, places

    def began(self, subscription_id: UUID, asked: int, got: int) -> None:
        """Record started deliveries. Fewer than ``asked``: no more are due."""
        self._ready.pop(subscription_id, None)
        if got >= asked:
            self._ready[subscription_id] = None
        if got:
            pace = self._pace(subscription_id)
            pace.in_flight += got
            self._in_flight[pace.answers] += got

    def ended(
        self, subscription_id: UUID, outcome: DeliveryOutcome | None, time: float = 0.0
    ) -> None:
        """Record the end of one request; None: the endpoint did not cause the outcome."""
        pace = self._paces[subscription_id]
        pace.in_flight -= 1
        self._in_flight[pace.answers] -= 1
        if outcome is not None:
            self._judge(pace, outcome)
            if pace.failures > _PATIENCE:
                until = time + _REST_SECONDS
                self._paused[subscription_id] = max(until, self._paused.get(subscription_id, 0.0))
        if not pace.in_flight and len(self._paces) > _MOST_KNOWN:
            del self._paces[subscription_id]

    def _judge(self, pace: _Pace, outcome: DeliveryOutcome) -> None:
        answers = outcome.status is not None
        if outcome.is_delivered:
            pace.limit = min(_MOST, pace.limit + 1)
        elif not answers:
            pace.limit = 1
        elif not outcome.is_permanent:
            pace.limit = max(1, pace.limit // 2)
        fails = not outcome.is_delivered and not outcome.is_permanent
        pace.failures = pace.failures + 1 if fails else 0
        self._in_flight[pace.answers] -= pace.in_flight
        self._in_flight[answers] += pace.in_flight
        pace.answers = answers

    def pause(self, subscription_id: UUID, until: float) -> None:
        """Start nothing for the subscription before ``until``, although deliveries are due."""
        self._paused[subscription_id] = until
        self._ready[subscription_id] = None

    def next_time(self) -> float:
        """Return the end of the first pause; infinity without pauses."""
        return min(self._paused.values(), default=float("inf"))

    def _pace(self, subscription_id: UUID) -> _Pace:
        pace = self._paces.get(subscription_id)
        if pace is None:
            pace = self._paces[subscription_id] = _Pace()
        return pace


class Allowance(NamedTuple):
    """Allowance of a subscription: ``most`` deliveries may start now."""

    most: int
    late_seconds: float
    """Seconds by which the first start is backdated."""
    per_second: int

    def free_in(self, begun: int) -> float:
        """Return the seconds until the next delivery may start, after ``begun`` starts."""
        return begun / self.per_second - self.late_seconds

    def pause(self, begun: int) -> float:
        """Return the seconds to wait before the next claim."""
        return max(_SHORTEST_PAUSE_SECONDS, self.free_in(begun))


def allowance(free_in: float, per_second: int) -> Allowance:
    """Return the allowance when the next delivery may start in ``free_in`` seconds; negative: since
    then."""
    if free_in > _LONGEST_AHEAD_SECONDS:
        free_in = 0.0
    if free_in > 0:
        return Allowance(0, -free_in, per_second)
    late = -free_in if -free_in <= _CATCH_UP_SECONDS else 0.0
    return Allowance(int(late * per_second) + 1, late, per_second)

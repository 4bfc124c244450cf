"""Whose turn it is: which subscriptions have due deliveries, and how many each may have in flight.

A subscription begins with two requests at a time. Each success allows one more, up to 32; an answer
that says no halves them, and after no answer at all it is one. Those that did not answer share half
of all places, together with those that were not asked yet three quarters: however many endpoints
hang, the others find room. After ten failures in a row each further one costs a short rest: an
endpoint that is down and refuses at once, with a hundred thousand deliveries due, would otherwise
keep a processor busy, and one that asks for less would get hundreds of requests a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from uuid import UUID

from queuegate.scheduler.delivery.outcomes import Outcome

_FIRST = 2
_MOST = 32
_MOST_READY = 2_000
_PATIENCE = 10
_REST_SECONDS = 0.1
_MOST_KNOWN = 20_000
# By what is known of an endpoint, the rooms in which a request to it takes a place.
_WIDER: dict[bool | None, tuple[bool | None, ...]] = {
    True: (True,),
    None: (True, None),
    False: (True, None, False),
}


class _Pace:
    """How one subscription gets on."""

    __slots__ = ("answers", "failures", "in_flight", "limit")

    def __init__(self) -> None:
        self.limit = _FIRST
        self.in_flight = 0
        self.answers: bool | None = None
        """None: it was not asked yet."""
        self.failures = 0
        """In a row, those that will be tried again."""


class Turns:
    """Belongs to one event loop; times are that loop's."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._ready: dict[UUID, None] = {}
        self._paused: dict[UUID, float] = {}
        self._paces: dict[UUID, _Pace] = {}
        self._in_flight: dict[bool | None, int] = {True: 0, False: 0, None: 0}

    def add(self, subscription_id: UUID) -> None:
        """The subscription may have due deliveries; it gets behind the others."""
        if subscription_id in self._ready:
            return
        if len(self._ready) >= _MOST_READY:
            self._make_room()
        self._ready[subscription_id] = None

    def _make_room(self) -> None:
        """Forget half of those that are known, the silent ones first: the next look finds them."""
        silent = [key for key in self._ready if not self._pace(key).answers]
        others = [key for key in self._ready if self._pace(key).answers]
        for subscription_id in (silent + others)[: _MOST_READY // 2]:
            del self._ready[subscription_id]
            self._paused.pop(subscription_id, None)

    def choose(self, time: float, most: int) -> dict[UUID, int]:
        """How many deliveries each subscription may begin now, ``most`` in all; in their order."""
        for subscription_id in [key for key, end in self._paused.items() if end <= time]:
            del self._paused[subscription_id]
        rooms = self._rooms(most)
        free = list(islice(self._free(rooms), max(0, rooms[True])))
        chosen: dict[UUID, int] = {}
        # Everybody gets a fair share; who comes first also gets what is left over.
        for share in (max(1, rooms[True] // max(1, len(free))), most):
            for subscription_id, answers, places in free:
                left = places - chosen.get(subscription_id, 0)
                count = min(left, share, *(rooms[wider] for wider in _WIDER[answers]))
                if count > 0:
                    chosen[subscription_id] = chosen.get(subscription_id, 0) + count
                    for wider in _WIDER[answers]:
                        rooms[wider] -= count
        return chosen

    def _rooms(self, most: int) -> dict[bool | None, int]:
        """Places for anybody; for whoever did not answer yet; for whoever did not answer."""
        silent, unasked = self._in_flight[False], self._in_flight[None]
        total = silent + unasked + self._in_flight[True]
        return {
            True: min(most, self._concurrency - total),
            None: max(1, self._concurrency * 3 // 4) - silent - unasked,
            False: max(1, self._concurrency // 2) - silent,
        }

    def _free(self, rooms: dict[bool | None, int]) -> Iterator[tuple[UUID, bool | None, int]]:
        """Those that may begin something: (id, whether it answers, places)."""
        left = dict(rooms)
        for subscription_id in self._ready:
            pace = self._paces.get(subscription_id)
            answers, places = None, _FIRST
            if pace is not None:
                answers, places = pace.answers, pace.limit - pace.in_flight
            if places > 0 and left[answers] > 0 and subscription_id not in self._paused:
                # Each takes one place at least: those that would find none are passed over.
                for wider in _WIDER[answers]:
                    left[wider] -= 1
                yield subscription_id, answers, places

    def began(self, subscription_id: UUID, asked: int, got: int) -> None:
        """So many were begun; fewer than asked for: no more are due."""
        self._ready.pop(subscription_id, None)
        if got >= asked:
            self._ready[subscription_id] = None
        if got:
            pace = self._pace(subscription_id)
            pace.in_flight += got
            self._in_flight[pace.answers] += got

    def ended(self, subscription_id: UUID, outcome: Outcome | None, time: float = 0.0) -> None:
        """One request ended at that time; None: without saying anything about the endpoint."""
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

    def _judge(self, pace: _Pace, outcome: Outcome) -> None:
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
        """Begin nothing for the subscription before that, though something is due."""
        self._paused[subscription_id] = until
        self._ready[subscription_id] = None

    def next_time(self) -> float:
        """When the first pause ends; infinity without any."""
        return min(self._paused.values(), default=float("inf"))

    def _pace(self, subscription_id: UUID) -> _Pace:
        pace = self._paces.get(subscription_id)
        if pace is None:
            pace = self._paces[subscription_id] = _Pace()
        return pace

"""How often producers may ask: a sliding window for each, which holds across all gateways.

The database counts (``storage/functions/rates.sql``). Up to a hundred requests a second it is asked
for each, those of a moment together; above that a process asks for what it is going to need in
the next hundredths of the window, too. Where nothing is left it does not ask again before the
instant that the database named.

Without the database nobody gets a permit: nor could what they want to send be stored.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import TYPE_CHECKING

from queuegate.storage.key_errors import TooManyRequests
from queuegate.storage.keys.rate_windows import Granted, RateLane, Take

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.clock import Clock
    from queuegate.gateway.operations.series import Series
    from queuegate.storage.database import Database
    from queuegate.storage.key_model import RateLimit
    from queuegate.storage.lanes import Lane

_MOST_PRODUCERS = 10_000
"""That a process remembers something of. Whoever is forgotten only has the database asked again."""
_SLOTS = 100
_SHORTEST_SLOTS = 0.25
"""What was asked for in less says little of what comes."""
_REFUSAL_SECONDS = 0.002
"""From one refusal of one producer, in one process, to the next."""
_LONGEST_TURN = 1.0


class Rates:
    """The limits of a process."""

    def __init__(self, database: Database, clock: Clock, series: Series) -> None:
        self.default: RateLimit | None = None
        """Of producers without a key of ours."""
        self._clock = clock
        self._series = series
        self._producers: dict[tuple[str, str], Limited] = {}
        self._rates = RateLane(database, clock.now)

    @property
    def lane(self) -> Lane[Take]:
        """What asks the database."""
        return self._rates.lane

    async def close(self) -> None:
        """Let the connection go."""
        await self.lane.close()

    async def take(self, caller: Caller, count: int = 1) -> None:
        """Count so many requests of the caller's producer, all or none of them.

        Raises TooManyRequests when that would be more than its limit, and Unavailable.
        """
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
        """Count so many requests, if nobody has to be asked for it. False: nothing was counted."""
        found = self._limited(caller)
        return found is None or found.spend(count)

    def _limited(self, caller: Caller) -> Limited | None:
        """What is known of the caller's producer; None: it has no limit."""
        producer = caller.producer
        if producer is None:
            return None
        limit = producer.limit if producer.name else self.default
        if limit is None:
            return None
        return self.limited(caller.account_id, producer.producer_id, limit)

    def limited(self, account_id: str, producer_id: str, limit: RateLimit) -> Limited:
        """Who has that limit, and counts by that name in the account."""
        # While gateways are told another window they count apart: neither can in the other's slots.
        key = (account_id, f"{producer_id}/{limit.window_seconds}")
        found = self._producers.get(key)
        if found is None or found.limit != limit:
            found = self._remember(key, limit)
        return found

    def _remember(self, key: tuple[str, str], limit: RateLimit) -> Limited:
        if len(self._producers) >= _MOST_PRODUCERS:
            busy = [one for one in self._producers.values() if one.is_busy]
            self._producers = {one.key: one for one in busy}
        made = Limited(key, limit, self._rates.lane, self._clock)
        self._producers[key] = made
        return made


class _Waiting:
    """A caller that waits for permits."""

    __slots__ = ("count", "future")

    def __init__(self, count: int, future: asyncio.Future[None]) -> None:
        self.count = count
        self.future = future


class Limited:
    """What this process knows of one producer, or of whoever else has a limit: what it has left to
    spend, or for how long there is nothing."""

    __slots__ = (
        "_asked_at",
        "_clock",
        "_granted",
        "_heard_at",
        "_lane",
        "_left",
        "_refusing_at",
        "_requests",
        "_waiting",
        "is_busy",
        "key",
        "limit",
        "owed",
    )

    def __init__(
        self, key: tuple[str, str], limit: RateLimit, lane: Lane[Take], clock: Clock
    ) -> None:
        self.key = key
        self.limit = limit
        self.is_busy = False
        """Whether the database is being asked."""
        self.owed = 0
        """Permits that were used before they were spent, where bytes are counted."""
        self._clock = clock
        self._lane = lane
        self._granted = Granted(0, 0, 0.0, 0.0)
        self._left = 0
        self._asked_at = self._heard_at = -math.inf
        self._requests = 0
        self._refusing_at = -math.inf
        self._waiting: deque[_Waiting] = deque()

    def has(self, count: int) -> bool:
        """Whether so many permits are here to be spent."""
        is_here = not self.is_busy and count <= self._left
        return is_here and self._since(self._asked_at) < self._granted.lease_seconds

    def spend(self, count: int) -> bool:
        """Spend so many permits, if they are here. False: nothing was counted."""
        if not self.has(count):
            return False
        self._requests += count
        self._left -= count
        return True

    async def take(self, count: int) -> None:
        """Spend so many permits. Raises TooManyRequests: in turn, where there is a flood of it."""
        if self.spend(count):
            return
        try:
            await self._take(count)
        except TooManyRequests:
            await self._wait_for_turn()
            raise

    async def _wait_for_turn(self) -> None:
        """Whoever asks again as soon as it is refused would otherwise have all of this process: a
        refusal costs nearly what a send does, and waits for nobody."""
        now = asyncio.get_running_loop().time()
        self._refusing_at = min(max(self._refusing_at + _REFUSAL_SECONDS, now), now + _LONGEST_TURN)
        if self._refusing_at > now:
            await asyncio.sleep(self._refusing_at - now)

    async def _take(self, count: int) -> None:
        self._requests += count
        if count > self.limit.requests:
            raise TooManyRequests(self.limit.window_seconds)
        if not self.is_busy and count > self._left:
            # What is left of those for a batch that got too few, smaller ones may have: the
            # database gets it back with the question.
            self._refuse_while_held()
        waiting = _Waiting(count, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if not self.is_busy:
            self._ask()
        await waiting.future

    def _since(self, instant: float) -> float:
        """How long ago that was; a clock that was set back makes it long ago."""
        seconds = self._present() - instant
        return seconds if seconds >= 0.0 else math.inf

    def _present(self) -> float:
        return self._clock.of(self.key[0]).instant().timestamp()

    def _refuse_while_held(self) -> None:
        # From the answer on: whoever asked a little early would have to wait for another turn.
        left = self._granted.hold_seconds - self._since(self._heard_at)
        if left > 0.0:
            raise TooManyRequests(max(math.ceil(left), 1))

    def _ask(self) -> None:
        """Ask for those who wait. One question at a time: the answer is about all of them."""
        self.is_busy = True
        needed = sum([waiting.count for waiting in self._waiting])
        entry = Take(self.key, self.limit, needed, self)
        slots = self._since(self._asked_at) * _SLOTS / self.limit.window_seconds
        entry.per_slot = self._requests / max(slots, _SHORTEST_SLOTS)
        entry.returned, entry.returned_slot = self._left, self._granted.slot
        self._left = self._requests = 0
        self._asked_at = self._present()
        self._lane.submit(entry)

    def done(self, granted: Granted) -> None:
        """The database has answered."""
        self.is_busy = False
        self._granted = granted
        self._left = granted.permits
        self._heard_at = self._present()
        unheard: deque[_Waiting] = deque()
        for waiting in self._waiting:
            if waiting.future.done():
                # Its client has gone.
                continue
            if waiting.count <= self._left:
                self._left -= waiting.count
                waiting.future.set_result(None)
                continue
            try:
                self._refuse_while_held()
            except TooManyRequests as refusal:
                waiting.future.set_exception(refusal)
            else:
                unheard.append(waiting)
        self._waiting = unheard
        if unheard:
            self._ask()

    def failed(self, error: BaseException) -> None:
        """The database has not."""
        self.is_busy = False
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            if not one.future.done():
                one.future.set_exception(error)

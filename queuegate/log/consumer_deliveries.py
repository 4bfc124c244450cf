"""Deliveries to a consumer, and their outcomes, sent to the gateway in few requests."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from time import monotonic
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from queuegate.log.calls import Calls, Closed, LogError, Superseded
from queuegate.log.log_records import Record


class Signal:
    """A signal of changes: each notification wakes all waiters, which then check their condition
    again."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        """Wake all waiters."""
        for one in self._waiting:
            if not one.done():
                one.set_result(None)
        self._waiting.clear()

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait for the next notification, at most that long. Returns False after a timeout."""
        one = asyncio.get_running_loop().create_future()
        self._waiting.add(one)
        try:
            done, _ = await asyncio.wait([one], timeout=seconds)
        finally:
            self._waiting.discard(one)
        return bool(done)


Outcome = TypeVar("Outcome")
Other = TypeVar("Other")

_AT_ONCE = 1_000
_LONGEST_ERROR = 1_000


@dataclass(eq=False, slots=True)
class Hold:
    """A subscriber's hold on one record. It ends when the record is settled, or by time."""

    receipt: str
    until: float
    """The end of the hold, by this machine's monotonic clock."""
    is_shown: bool = False
    """A consumer has taken it."""
    is_over: bool = False
    is_decided: bool = False
    """Its consumer has decided, in any thread."""
    done: tuple[str, asyncio.Future[None]] | None = None
    """The consumer's decision, and the gateway's confirmation."""

    def counts(self) -> bool:
        """Return True while no other subscriber can receive the record."""
        return not self.is_over and self.until > monotonic()


@dataclass
class Delivery(Record, Generic[Outcome]):
    """A record that its consumer is to acknowledge, or to release.

    Decisions are sent to the gateway in batches; the consumer need not wait. `ack` and the others
    return an awaitable (threads: ``.result()``) that raises Superseded if the record was no longer
    this consumer's. As a context manager a delivery is acknowledged at the end of the block, and
    released if the block raises, unless the block decided otherwise.
    """

    attempt: int
    """The number of deliveries to the group, this one included."""
    _hold: Hold = field(repr=False)
    _settle: Callable[[Hold, str, dict[str, Any]], Outcome] = field(repr=False)

    @property
    def is_mine(self) -> bool:
        """Return True if certainly no other subscriber has received the record meanwhile."""
        return self._hold.counts()

    @property
    def is_settled(self) -> bool:
        """Return True if the delivery was acknowledged or released."""
        return self._hold.is_decided

    def _decide(self, do: str, **members: object) -> Outcome:
        self._hold.is_decided = True
        return self._settle(self._hold, do, members)

    def ack(self) -> Outcome:
        """Acknowledge the record: the group does not receive it again."""
        return self._decide("ack")

    def nack(self, delay: float | None = None, error: str | None = None) -> Outcome:
        """Report a failure: redelivery in ``delay`` seconds, or as the group's back-off says; after
        the group's last attempt the record becomes a dead letter. Later records do not wait for it.
        """
        return self._decide("nack", delay=delay, error=error)

    def postpone(self, delay: float) -> Outcome:
        """Pause its partition for that many seconds, and reset the record's attempts."""
        return self._decide("postpone", delay=delay)

    def reject(self, error: str | None = None) -> Outcome:
        """Make the record a dead letter now."""
        return self._decide("reject", error=error)

    def extend(self, seconds: float) -> Outcome:
        """Hide the record from others for that many seconds from now."""
        return self._settle(self._hold, "extend", {"delay": seconds})

    def settled_by(self, settle: Callable[[Hold, str, dict[str, Any]], Other]) -> Delivery[Other]:
        """Return the same delivery with another way to settle it."""
        known = {one.name: getattr(self, one.name) for one in fields(self)}
        return Delivery(**known | {"_settle": settle})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.is_settled:
            return
        if error is None:
            self.ack()
        elif isinstance(error, Exception):
            self.nack(error=f"{type(error).__name__}: {error}")
        else:
            # An interrupt is no failure.
            self.nack(0)


@dataclass(eq=False, slots=True)
class _PendingOutcome:
    """The outcome of one delivery, not yet confirmed by the gateway."""

    hold: Hold
    members: dict[str, Any]
    outcome: asyncio.Future[None]

    def resolve(self, result: str, *, is_repeated: bool, began: float) -> None:
        """Apply the gateway's result."""
        do = self.members["do"]
        good = result in ("done", "dead_lettered")
        if is_repeated and do != "extend":
            # The first request may have succeeded without an answer; and a release ends the hold in
            # any case.
            good = good or (result == "gone" if do in ("ack", "reject") else True)
        if good and do == "extend":
            self.hold.until = max(self.hold.until, began + self.members["delay"])
        else:
            self.hold.is_over = True
        if not good:
            self.fail(Superseded("the record was delivered again or given back, or is gone"))
        elif not self.outcome.done():
            self.outcome.set_result(None)

    def fail(self, error: LogError) -> None:
        """End the hold and raise this from the consumer's awaitable."""
        self.hold.is_over = True
        if not self.outcome.done():
            self.outcome.set_exception(error)


class Settler:
    """Sends outcomes of deliveries to a gateway: one request at a time, with all that are pending.
    Without an answer it repeats the request, because the records are still hidden from others."""

    def __init__(self, calls: Calls, log: str, group: str, changed: Signal) -> None:
        self._calls = calls
        self._parts = (log, "groups", group, "deliveries")
        self._changed = changed
        self._more = Signal()
        self._waiting: deque[_PendingOutcome] = deque()
        self._asked: list[_PendingOutcome] = []
        self._ended: LogError | None = None

    def settle(self, hold: Hold, do: str, members: dict[str, Any]) -> asyncio.Future[None]:
        """Queue an outcome. The future that it returns is done when the gateway has confirmed
        it."""
        if hold.done is not None and hold.done[0] == do:
            return hold.done[1]
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Without this asyncio warns of errors that no consumer reads.
        outcome.add_done_callback(lambda known: known.cancelled() or known.exception())
        if hold.done is not None:
            outcome.set_exception(Superseded(f"it was settled: {hold.done[0]}"))
            return outcome
        sent = {name: value for name, value in members.items() if value is not None}
        if "error" in sent:
            sent["error"] = sent["error"][:_LONGEST_ERROR]
        told = _PendingOutcome(hold, {"receipt": hold.receipt, "do": do, **sent}, outcome)
        if do != "extend":
            hold.done = do, outcome
        if self._ended is not None:
            told.fail(self._ended)
        else:
            self._waiting.append(told)
            self._more.notify()
        return outcome

    @property
    def is_idle(self) -> bool:
        """Return True if the gateway has confirmed everything."""
        return not self._waiting and not self._asked

    async def run(self) -> None:
        """Send outcomes until cancelled. Raises Refused when the gateway refuses them for good."""
        try:
            while True:
                while not self._waiting:
                    await self._more.wait()
                await self._send()
        except LogError as error:
            self._ended = error
            raise
        finally:
            self._ended = self._ended or Closed("the subscription is closed")
            for told in (*self._asked, *self._waiting):
                told.fail(self._ended)
            self._waiting.clear()
            self._asked = []

    async def _send(self) -> None:
        some = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
        self._asked = some
        began = monotonic()
        body = {"deliveries": [told.members for told in some]}
        answer = await self._calls.ask("POST", *self._parts, body=body, patience=math.inf)
        self._asked = []
        repeated = answer.requests > 1
        for told, found in zip(some, answer.body["results"], strict=True):
            told.resolve(found["result"], is_repeated=repeated, began=began)
        self._changed.notify()

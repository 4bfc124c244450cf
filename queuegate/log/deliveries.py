"""Deliveries: records in a consumer's hands, and what became of them, told in few requests."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from time import monotonic
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from queuegate.log.calls import Calls
from queuegate.log.errors import Closed, LogError, Superseded
from queuegate.log.records import Record
from queuegate.log.signals import Signal

Outcome = TypeVar("Outcome")
Other = TypeVar("Other")

_AT_ONCE = 1_000
_LONGEST_ERROR = 1_000


@dataclass(eq=False, slots=True)
class Hold:
    """What a subscriber knows of its hold on one record. It ends when it is settled or over."""

    receipt: str
    until: float
    """By this machine's monotonic clock: the record is hidden from others until then."""
    is_shown: bool = False
    """Whether a consumer has it."""
    is_over: bool = False
    is_decided: bool = False
    """Whether its consumer has decided, in whatever thread."""
    done: tuple[str, asyncio.Future[None]] | None = None
    """What its consumer decided, and whether the gateway knows."""

    def counts(self) -> bool:
        """Whether nobody else can have the record."""
        return not self.is_over and self.until > monotonic()


@dataclass
class Delivery(Record, Generic[Outcome]):
    """A record that its consumer is to acknowledge, or to give back.

    Whatever is decided goes to the gateway with what others decide meanwhile; nobody has to wait.
    Who wants to know awaits what `ack` and the others return (threads: ``.result()``): it raises
    Superseded if the record was no longer this consumer's. As a context manager it is acknowledged
    at the end of the block, and given back when that raises, unless something else was decided.
    """

    attempt: int
    """How many times the group has got it, this one included."""
    _hold: Hold = field(repr=False)
    _settle: Callable[[Hold, str, dict[str, Any]], Outcome] = field(repr=False)

    @property
    def is_mine(self) -> bool:
        """Whether it is certain that nobody else has got it meanwhile."""
        return self._hold.counts()

    @property
    def is_settled(self) -> bool:
        """Whether it was acknowledged or given back."""
        return self._hold.is_decided

    def _decide(self, do: str, **members: object) -> Outcome:
        self._hold.is_decided = True
        return self._settle(self._hold, do, members)

    def ack(self) -> Outcome:
        """It is done: the group does not get it again."""
        return self._decide("ack")

    def nack(self, delay: float | None = None, error: str | None = None) -> Outcome:
        """It failed: it comes again in ``delay`` seconds, or as the group's back-off says, and is
        a dead letter after the group's last attempt. Later records do not wait for it."""
        return self._decide("nack", delay=delay, error=error)

    def postpone(self, delay: float) -> Outcome:
        """Not yet: its partition rests for so many seconds, and its attempts are forgotten."""
        return self._decide("postpone", delay=delay)

    def reject(self, error: str | None = None) -> Outcome:
        """It will never do: a dead letter now."""
        return self._decide("reject", error=error)

    def extend(self, seconds: float) -> Outcome:
        """Hide it from others for so many seconds from now."""
        return self._settle(self._hold, "extend", {"delay": seconds})

    def settled_by(self, settle: Callable[[Hold, str, dict[str, Any]], Other]) -> Delivery[Other]:
        """The same delivery for somebody who waits in another way."""
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
            # It was interrupted, and did not fail.
            self.nack(0)


@dataclass(eq=False, slots=True)
class _Told:
    """What became of one delivery, on its way."""

    hold: Hold
    members: dict[str, Any]
    outcome: asyncio.Future[None]

    def know(self, result: str, *, is_repeated: bool, began: float) -> None:
        """What the gateway made of it."""
        do = self.members["do"]
        good = result in ("done", "dead_lettered")
        if is_repeated and do != "extend":
            # What a request did whose answer was lost; and what is given back is over in any case.
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
        """Nobody else knows of it."""
        self.hold.is_over = True
        if not self.outcome.done():
            self.outcome.set_exception(error)


class Settler:
    """Tells a gateway what became of deliveries: one request at a time, with all that is known by
    then. While nobody answers it goes on asking, for what nobody else has got can still be done."""

    def __init__(self, calls: Calls, log: str, group: str, changed: Signal) -> None:
        self._calls = calls
        self._parts = (log, "groups", group, "deliveries")
        self._changed = changed
        self._more = Signal()
        self._waiting: deque[_Told] = deque()
        self._asked: list[_Told] = []
        self._ended: LogError | None = None

    def settle(self, hold: Hold, do: str, members: dict[str, Any]) -> asyncio.Future[None]:
        """Tell of one, soon; what is returned is done when the gateway knows."""
        if hold.done is not None and hold.done[0] == do:
            return hold.done[1]
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Who does not ask is not told, not even by a warning.
        outcome.add_done_callback(lambda known: known.cancelled() or known.exception())
        if hold.done is not None:
            outcome.set_exception(Superseded(f"it was settled: {hold.done[0]}"))
            return outcome
        sent = {name: value for name, value in members.items() if value is not None}
        if "error" in sent:
            sent["error"] = sent["error"][:_LONGEST_ERROR]
        told = _Told(hold, {"receipt": hold.receipt, "do": do, **sent}, outcome)
        if do != "extend":
            hold.done = do, outcome
        if self._ended is not None:
            told.fail(self._ended)
        else:
            self._waiting.append(told)
            self._more.tell()
        return outcome

    @property
    def is_idle(self) -> bool:
        """Whether the gateway knows everything."""
        return not self._waiting and not self._asked

    async def run(self) -> None:
        """Until cancelled. Raises Refused when the gateway takes nothing any more."""
        try:
            while True:
                while not self._waiting:
                    await self._more.wait()
                await self._tell()
        except LogError as error:
            self._ended = error
            raise
        finally:
            self._ended = self._ended or Closed("the subscription is closed")
            for told in (*self._asked, *self._waiting):
                told.fail(self._ended)
            self._waiting.clear()
            self._asked = []

    async def _tell(self) -> None:
        some = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
        self._asked = some
        began = monotonic()
        body = {"deliveries": [told.members for told in some]}
        answer = await self._calls.ask("POST", *self._parts, body=body, patience=math.inf)
        self._asked = []
        repeated = answer.requests > 1
        for told, found in zip(some, answer.body["results"], strict=True):
            told.know(found["result"], is_repeated=repeated, began=began)
        self._changed.tell()

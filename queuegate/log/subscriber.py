"""A subscriber of a group: sends heartbeats, holds partitions, and delivers to its consumer.

Fetched records that are neither settled nor expired never exceed ``most_in_hand``. Three tasks run
side by side, because a gateway may delay each of them: heartbeats, fetches and outcomes of
deliveries. Outcomes are sent to the gateway in few requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import re
import secrets
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, fields
from time import monotonic
from typing import Any, Generic, Self, TypeVar

from queuegate.log.log_requests import (
    Closed,
    Conflict,
    GatewayRequests,
    LogError,
    NewGroup,
    NotFound,
    Record,
    Replaced,
    Superseded,
)

_WAIT_SECONDS = 20.0
_READ_SECONDS = _WAIT_SECONDS + 10.0
_AT_ONCE = 1_000
_LONGEST_NAME = 80
_EMPTY_PAUSE_SECONDS = 0.2
_FAREWELL_SECONDS = 2.0
_LOOK_SECONDS = 0.1
_log = logging.getLogger("queuegate.log")


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

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
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


class OutcomeSender:
    """Sends outcomes of deliveries to a gateway: one request at a time, with all that are pending.
    Without an answer it repeats the request, because the records are still hidden from others."""

    def __init__(self, calls: GatewayRequests, log: str, group: str, changed: Signal) -> None:
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


AsyncDelivery = Delivery[asyncio.Future[None]]
Handler = Callable[[AsyncDelivery], Awaitable[object]]


@dataclass(frozen=True)
class SubscriptionOptions:
    """Options of a subscriber."""

    subscriber: str | None
    most_in_hand: int
    auto_extend: bool
    shutdown_seconds: float
    settings: NewGroup


class Subscription:
    """Deliveries, by ``async for``. Several tasks may take from one subscription.

    As a context manager it is closed at the end of the block; the client closes the others. Raises
    Replaced when another client subscribes under the same name, NotFound when the log or the group
    is deleted.
    """

    def __init__(
        self, calls: GatewayRequests, log: str, group: str, options: SubscriptionOptions
    ) -> None:
        self.log = log
        self.group = group
        self.subscriber = options.subscriber or _default_name()
        self.share = 0
        """The number of partitions for each subscriber."""
        self.partitions: Mapping[int, str | None] = {}
        """The held partitions: keys by number."""
        self._calls = calls
        self._options = options
        self._changed = Signal()
        self._heartbeat_early = Signal()
        self._outcomes = OutcomeSender(calls, log, group, self._changed)
        self.settle = self._outcomes.settle
        self._heartbeat_lock = asyncio.Lock()
        self._starting = asyncio.Lock()
        self._session: int | None = None
        self._interval_seconds = 0.0
        self._visibility_seconds = 0.0
        self._buffer: deque[AsyncDelivery] = deque()
        self._holds: set[Hold] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._fetching: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._stopped = False
        self._closed = False

    async def start(self) -> Self:
        """Join the group, which is created if it does not exist. The first iteration does so,
        too."""
        async with self._starting:
            if self._closed:
                raise Closed("the subscription is closed")
            if not self._tasks:
                await self._join()
        return self

    async def _join(self) -> None:
        if self._options.settings:
            await self._make_group()
        await self._heartbeat(None)
        if self._closed:
            await self._leave()
            raise Closed("the subscription is closed")
        self._fetching = self._started(self._fetches())
        self._tasks = [
            self._started(task)
            for task in (self._heartbeats(), self._extensions(), self._outcomes.run())
        ]

    async def _make_group(self) -> None:
        settings = wire(self._options.settings)
        try:
            await self._calls.ask("PUT", self.log, "groups", self.group, body=settings)
        except NotFound:
            await self._calls.ask("POST", body={"log": self.log})
            await self._calls.ask("PUT", self.log, "groups", self.group, body=settings)

    def _started(self, running: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(running, name=f"{self.log}/{self.group}/{self.subscriber}")
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Keep the error that ended a task, for the consumer."""
        if not task.cancelled() and self._failure is None:
            self._failure = task.exception()
            self.stop()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        await self.close(None if error is None else 0.0)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncDelivery:
        if not self._tasks and not self._closed:
            await self.start()
        while True:
            if self._failure is not None:
                raise self._failure
            if self._stopped:
                raise StopAsyncIteration
            delivery = self.take()
            if delivery is not None:
                self.look_again()
                return delivery
            await self._changed.wait()

    def take(self) -> AsyncDelivery | None:
        """Return the next fetched delivery, or None. Safe in any thread."""
        while True:
            try:
                delivery = self._buffer.popleft()
            except IndexError:
                return None
            if delivery.is_mine:
                delivery._hold.is_shown = True
                return delivery

    @property
    def is_empty(self) -> bool:
        """Return True if no delivery has been fetched."""
        return not self._buffer

    def look_again(self) -> None:
        """Fetch more, if the consumer took the last delivery."""
        if self.is_empty:
            self._changed.notify()

    async def run(self, handler: Handler, *, concurrency: int = 1) -> None:
        """Pass each delivery to a function, ``concurrency`` at a time, until the subscription ends.
        A delivery is acknowledged when the function returns; if it raises, the error is logged and
        the record released."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(concurrency):
                tasks.create_task(self._work(handler))

    async def _work(self, handler: Handler) -> None:
        async for delivery in self:
            try:
                with delivery:
                    await handler(delivery)
            except Exception:  # noqa: BLE001 - whatever it is, the record comes again
                _log.exception(
                    "record %d of partition %d of %s failed, attempt %d",
                    delivery.offset,
                    delivery.partition,
                    self.log,
                    delivery.attempt,
                )

    @property
    def is_closed(self) -> bool:
        """Return True if it has left the group, or is leaving."""
        return self._closed

    def stop(self) -> None:
        """Stop fetching, and release deliveries that no consumer has taken. Iterations end; taken
        deliveries can still be settled. Safe in signal handlers."""
        self._stopped = True
        if self._fetching is not None:
            self._fetching.cancel()
        self._release(lambda _: True)
        self._changed.notify()

    async def close(self, seconds: float | None = None) -> None:
        """Stop fetching, wait until taken deliveries are settled (at most that long; None:
        ``shutdown_seconds``), send the outcomes, and leave the group: the partitions go to others
        at once. Unsettled deliveries stay hidden until their time ends."""
        if self._closed:
            return
        self._closed = True
        self.stop()
        try:
            if self._tasks:
                patience = self._options.shutdown_seconds if seconds is None else seconds
                await self._until(self._is_settled, patience)
                await self._until(lambda: self._outcomes.is_idle, max(patience, _FAREWELL_SECONDS))
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self._session is not None and self._failure is None:
                await self._leave()
        self._changed.notify()

    def _is_settled(self) -> bool:
        return not any(hold.is_shown and hold.done is None for hold in self._in_hand())

    async def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline = monotonic() + seconds
        while not condition():
            left = deadline - monotonic()
            if left <= 0:
                return
            await self._changed.wait(min(left, _LOOK_SECONDS))

    async def _leave(self) -> None:
        # Records of a cancelled fetch go to others at once.
        release = "true" if self._is_settled() else None
        gone = {"session": self._session, "release": release}
        with contextlib.suppress(LogError):
            await self._calls.ask(
                "DELETE", *self._path(), params=gone, patience=_FAREWELL_SECONDS, read_seconds=5.0
            )

    def _path(self) -> tuple[str, ...]:
        return self.log, "groups", self.group, "subscribers", self.subscriber

    async def _heartbeats(self) -> None:
        while True:
            await self._heartbeat_early.wait(self._interval_seconds)
            await self._heartbeat(math.inf)

    async def _heartbeat(self, patience: float | None) -> None:
        """Send a heartbeat, and read which partitions are held. Raises Replaced and NotFound."""
        async with self._heartbeat_lock:
            try:
                said = await self._put_subscriber(patience)
            except Conflict as error:
                if self._options.subscriber is not None:
                    raise Replaced(str(error)) from None
                # The name is unique: this client joined, and the answer was lost.
                self._session = None
                said = await self._put_subscriber(patience)
            self._session = said["session"]
            self._interval_seconds = said["heartbeat_seconds"]
            self._visibility_seconds = said["visibility_timeout"]
            self.share = said["share"]
            self.partitions = {one["partition"]: one["key"] for one in said["partitions"]}
        self._release(lambda delivery: delivery.partition not in self.partitions)

    async def _put_subscriber(self, patience: float | None) -> Any:
        body = {} if self._session is None else {"session": self._session}
        answer = await self._calls.ask(
            "PUT",
            *self._path(),
            body=body,
            patience=patience,
            read_seconds=self._interval_seconds or _READ_SECONDS,
        )
        return answer.body

    def _release(self, which: Callable[[AsyncDelivery], bool]) -> None:
        """Release matching deliveries that no consumer has taken."""
        kept = []
        # One by one: threads may take some meanwhile.
        while (delivery := self.take()) is not None:
            if which(delivery):
                self._outcomes.settle(delivery._hold, "release", {})
            else:
                delivery._hold.is_shown = False
                kept.append(delivery)
        self._buffer.extendleft(reversed(kept))
        if kept:
            self._changed.notify()

    async def _fetches(self) -> None:
        while True:
            most = await self._capacity()
            body = {"session": self._session, "max": most, "wait": _WAIT_SECONDS}
            began = monotonic()
            try:
                answer = await self._calls.ask(
                    "POST",
                    *self._path(),
                    "fetch",
                    body=body,
                    patience=math.inf,
                    read_seconds=_READ_SECONDS,
                )
            except Conflict:
                # Another client has this name, or heartbeats were late.
                await self._heartbeat(math.inf)
                continue
            found = answer.body
            for members in found["records"]:
                self._arrived(members)
            self._changed.notify()
            if found["rebalance"]:
                self._heartbeat_early.notify()
            if not found["records"] and monotonic() - began < _EMPTY_PAUSE_SECONDS:
                await asyncio.sleep(_EMPTY_PAUSE_SECONDS)

    def _arrived(self, members: Mapping[str, Any]) -> None:
        hold = Hold(members["receipt"], monotonic() + self._visibility_seconds)
        self._holds.add(hold)
        self._buffer.append(Delivery.of(members, _hold=hold, _settle=self._outcomes.settle))

    async def _capacity(self) -> int:
        """Wait until a fetch is worth a request, and return its size."""
        most = self._options.most_in_hand
        while True:
            capacity = most - len(self._in_hand())
            if capacity > 0 and (2 * capacity >= most or not self._buffer):
                return min(capacity, _AT_ONCE)
            left = min((hold.until for hold in self._holds), default=math.inf) - monotonic()
            await self._changed.wait(None if left == math.inf else max(left, 0.001))

    def _in_hand(self) -> set[Hold]:
        self._holds = {hold for hold in self._holds if hold.counts()}
        return self._holds

    async def _extensions(self) -> None:
        """Keep deliveries hidden: those that no consumer has taken, with ``auto_extend`` all."""
        while True:
            await asyncio.sleep(max(self._visibility_seconds / 4, 0.05))
            soon = monotonic() + self._visibility_seconds * 0.6
            for hold in self._in_hand():
                wanted = self._options.auto_extend or not hold.is_shown
                if wanted and hold.done is None and hold.until < soon:
                    seconds = {"delay": self._visibility_seconds}
                    self._outcomes.settle(hold, "extend", seconds)


def wire(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as the API expects them."""
    return {
        name: value.isoformat() if hasattr(value, "isoformat") else value
        for name, value in settings.items()
    }


def _default_name() -> str:
    host = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname())
    tail = f"-{os.getpid()}-{secrets.token_hex(4)}"
    return host[: _LONGEST_NAME - len(tail)] + tail

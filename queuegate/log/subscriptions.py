"""A subscriber of a group: it stays alive, holds partitions, and fetches what its consumer takes.

The consumer's hands are the bound: what was fetched and is neither settled nor over is never more
than ``most_in_hand``. Three tasks go on side by side, each of which a gateway may keep waiting:
heartbeats, fetches and what became of deliveries.
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
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Any, Self

from queuegate.log.calls import Calls
from queuegate.log.deliveries import Delivery, Hold, Settler
from queuegate.log.errors import Closed, Conflict, LogError, NotFound, Replaced
from queuegate.log.records import NewGroup
from queuegate.log.signals import Signal

AsyncDelivery = Delivery[asyncio.Future[None]]
Handler = Callable[[AsyncDelivery], Awaitable[object]]

_WAIT_SECONDS = 20.0
_READ_SECONDS = _WAIT_SECONDS + 10.0
_AT_ONCE = 1_000
_LONGEST_NAME = 80
_EMPTY_PAUSE_SECONDS = 0.2
_FAREWELL_SECONDS = 2.0
_LOOK_SECONDS = 0.1
_log = logging.getLogger("queuegate.log")


@dataclass(frozen=True)
class Options:
    """How a subscriber goes about it."""

    subscriber: str | None
    most_in_hand: int
    auto_extend: bool
    shutdown_seconds: float
    settings: NewGroup


class Subscription:
    """Deliveries, by ``async for``. Several tasks may take from one subscription.

    As a context manager it is closed in order at the end of the block; the client closes whichever
    are left. Raises Replaced when somebody else subscribes under the same name, NotFound when the
    log or the group is deleted.
    """

    def __init__(self, calls: Calls, log: str, group: str, options: Options) -> None:
        self.log = log
        self.group = group
        self.subscriber = options.subscriber or _own_name()
        self.share = 0
        """How many partitions are for each subscriber."""
        self.partitions: Mapping[int, str | None] = {}
        """What it holds: keys by number."""
        self._calls = calls
        self._options = options
        self._changed = Signal()
        self._beat_early = Signal()
        self._settler = Settler(calls, log, group, self._changed)
        self.settle = self._settler.settle
        self._beating = asyncio.Lock()
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
        """Join the group, which is made if it is not there. The first delivery does it, too."""
        async with self._starting:
            if self._closed:
                raise Closed("the subscription is closed")
            if not self._tasks:
                await self._join()
        return self

    async def _join(self) -> None:
        if self._options.settings:
            await self._make_group()
        await self._beat(None)
        if self._closed:
            await self._leave()
            raise Closed("the subscription is closed")
        self._fetching = self._begun(self._fetches())
        self._tasks = [
            self._begun(task)
            for task in (self._heartbeats(), self._extensions(), self._settler.run())
        ]

    async def _make_group(self) -> None:
        settings = wire(self._options.settings)
        try:
            await self._calls.ask("PUT", self.log, "groups", self.group, body=settings)
        except NotFound:
            await self._calls.ask("POST", body={"log": self.log})
            await self._calls.ask("PUT", self.log, "groups", self.group, body=settings)

    def _begun(self, running: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(running, name=f"{self.log}/{self.group}/{self.subscriber}")
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A task ends when it is cancelled, or by what the consumer is to know."""
        if not task.cancelled() and self._failure is None:
            self._failure = task.exception()
            self.stop()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        """The next delivery, if one is here. In any thread."""
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
        """Whether none is here that could be taken."""
        return not self._buffer

    def look_again(self) -> None:
        """Whether to fetch, after something was taken."""
        if self.is_empty:
            self._changed.tell()

    async def run(self, handler: Handler, *, concurrency: int = 1) -> None:
        """Hand each delivery to a function, as many at once as said, until the subscription ends:
        acknowledged when it returns, given back when it raises, which is logged."""
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
        """Whether it has left, or is about to."""
        return self._closed

    def stop(self) -> None:
        """Fetch no more, and give back what no consumer has seen. Iterations end; what is in hand
        can still be settled. Signal handlers may call this."""
        self._stopped = True
        if self._fetching is not None:
            self._fetching.cancel()
        self._give_back(lambda _: True)
        self._changed.tell()

    async def close(self, seconds: float | None = None) -> None:
        """Fetch no more, wait until what is in hand is settled, for so long (None:
        ``shutdown_seconds``), tell the gateway all of it, and leave: the partitions go to others
        at once. What is still in hand stays hidden until its time is over."""
        if self._closed:
            return
        self._closed = True
        self.stop()
        try:
            if self._tasks:
                patience = self._options.shutdown_seconds if seconds is None else seconds
                await self._until(self._is_settled, patience)
                await self._until(lambda: self._settler.is_idle, max(patience, _FAREWELL_SECONDS))
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self._session is not None and self._failure is None:
                await self._leave()
        self._changed.tell()

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
        # What a fetch that was given up had brought goes to others at once.
        release = "true" if self._is_settled() else None
        gone = {"session": self._session, "release": release}
        with contextlib.suppress(LogError):
            await self._calls.ask(
                "DELETE", *self._own(), params=gone, patience=_FAREWELL_SECONDS, read_seconds=5.0
            )

    def _own(self) -> tuple[str, ...]:
        return self.log, "groups", self.group, "subscribers", self.subscriber

    async def _heartbeats(self) -> None:
        while True:
            await self._beat_early.wait(self._interval_seconds)
            await self._beat(math.inf)

    async def _beat(self, patience: float | None) -> None:
        """Say that it is alive, and hear what it holds. Raises Replaced and NotFound."""
        async with self._beating:
            try:
                said = await self._standing(patience)
            except Conflict as error:
                if self._options.subscriber is not None:
                    raise Replaced(str(error)) from None
                # Nobody else has this name: it joined, and the answer was lost.
                self._session = None
                said = await self._standing(patience)
            self._session = said["session"]
            self._interval_seconds = said["heartbeat_seconds"]
            self._visibility_seconds = said["visibility_timeout"]
            self.share = said["share"]
            self.partitions = {one["partition"]: one["key"] for one in said["partitions"]}
        self._give_back(lambda delivery: delivery.partition not in self.partitions)

    async def _standing(self, patience: float | None) -> Any:
        body = {} if self._session is None else {"session": self._session}
        answer = await self._calls.ask(
            "PUT",
            *self._own(),
            body=body,
            patience=patience,
            read_seconds=self._interval_seconds or _READ_SECONDS,
        )
        return answer.body

    def _give_back(self, which: Callable[[AsyncDelivery], bool]) -> None:
        """Of those that no consumer has seen."""
        kept = []
        # One by one: threads may take some meanwhile.
        while (delivery := self.take()) is not None:
            if which(delivery):
                self._settler.settle(delivery._hold, "release", {})
            else:
                delivery._hold.is_shown = False
                kept.append(delivery)
        self._buffer.extendleft(reversed(kept))
        if kept:
            self._changed.tell()

    async def _fetches(self) -> None:
        while True:
            most = await self._room()
            body = {"session": self._session, "max": most, "wait": _WAIT_SECONDS}
            began = monotonic()
            try:
                answer = await self._calls.ask(
                    "POST",
                    *self._own(),
                    "fetch",
                    body=body,
                    patience=math.inf,
                    read_seconds=_READ_SECONDS,
                )
            except Conflict:
                # Somebody else has this name, or it was silent for too long.
                await self._beat(math.inf)
                continue
            found = answer.body
            for members in found["records"]:
                self._arrived(members)
            self._changed.tell()
            if found["rebalance"]:
                self._beat_early.tell()
            if not found["records"] and monotonic() - began < _EMPTY_PAUSE_SECONDS:
                await asyncio.sleep(_EMPTY_PAUSE_SECONDS)

    def _arrived(self, members: Mapping[str, Any]) -> None:
        hold = Hold(members["receipt"], monotonic() + self._visibility_seconds)
        self._holds.add(hold)
        self._buffer.append(Delivery.of(members, _hold=hold, _settle=self._settler.settle))

    async def _room(self) -> int:
        """How many may be fetched, once that is worth a request."""
        most = self._options.most_in_hand
        while True:
            room = most - len(self._in_hand())
            if room > 0 and (2 * room >= most or not self._buffer):
                return min(room, _AT_ONCE)
            left = min((hold.until for hold in self._holds), default=math.inf) - monotonic()
            await self._changed.wait(None if left == math.inf else max(left, 0.001))

    def _in_hand(self) -> set[Hold]:
        self._holds = {hold for hold in self._holds if hold.counts()}
        return self._holds

    async def _extensions(self) -> None:
        """What no consumer has seen stays hidden; what one has, too, if it wants that."""
        while True:
            await asyncio.sleep(max(self._visibility_seconds / 4, 0.05))
            soon = monotonic() + self._visibility_seconds * 0.6
            for hold in self._in_hand():
                wanted = self._options.auto_extend or not hold.is_shown
                if wanted and hold.done is None and hold.until < soon:
                    seconds = {"delay": self._visibility_seconds}
                    self._settler.settle(hold, "extend", seconds)


def wire(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as the wire has them."""
    return {
        name: value.isoformat() if hasattr(value, "isoformat") else value
        for name, value in settings.items()
    }


def _own_name() -> str:
    host = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname())
    tail = f"-{os.getpid()}-{secrets.token_hex(4)}"
    return host[: _LONGEST_NAME - len(tail)] + tail

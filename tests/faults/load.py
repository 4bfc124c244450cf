"""Senders, receivers and deleters that note what they were promised, and count at the end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from tests.faults.client import Client, Unanswered, clients
from tests.faults.ledger import Bodies, Numbers
from tests.faults.wires import QueueWire, Wire

_DRAIN_SECONDS = 45.0
# `make soak-faults` sets it. `make faults` kills once, where that kills again and again, and waits
# for a quarter of the promises before: what happens at a kill does not depend on how many they are.
_IS_LONG = os.environ.get("QUEUEGATE_TEST_FAULTS") == "long"

Answer = TypeVar("Answer")
OnCall = Callable[[int, str, float, Unanswered | None], None]
"""Gets port, verb, seconds, and the error if there was no answer."""


def ignored(port: int, verb: str, seconds: float, error: Unanswered | None) -> None:
    """Note nothing."""


def times(count: int) -> range:
    """To repeat a fault so often, or once."""
    return range(count if _IS_LONG else 1)


def minutes(short: float, long: float) -> float:
    """Return the length of a load."""
    return long if _IS_LONG else short


def promises(count: int) -> int:
    """Return how many of so many promises to await before the next fault."""
    return count if _IS_LONG else max(count // 4, 20)


class Pace:
    """The pauses of a load: between two rounds of a client, and after no answer."""

    def __init__(self, seconds: float = 0.0, after_none: float = 0.0) -> None:
        self.seconds = seconds
        self.after_none = after_none
        self.ended = asyncio.Event()

    async def pause(self, seconds: float) -> None:
        """Wait so long, or until the load ends."""
        if seconds:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ended.wait(), seconds)


class Load:
    """Clients of one queue, or of another wire, at one or more gateways. Hold it while the server
    is known to be down; end, then ``check``."""

    def __init__(
        self,
        port: int | Sequence[int],
        wire: Wire | str,
        *,
        batch: int = 1,
        pace: Pace | None = None,
    ) -> None:
        self.ports = [port] if isinstance(port, int) else [*port]
        self.wire = QueueWire(wire) if isinstance(wire, str) else wire
        self.is_fifo = self.wire.is_fifo
        self.batch = batch
        self.pace = pace or Pace()
        self.up = asyncio.Event()
        self.up.set()
        self.stopping = False
        self.sent = Bodies()
        """Acknowledged sends."""
        self.seen = Bodies()
        self.deleted: Numbers[str] = Numbers()
        """body -> when its delete was acknowledged."""
        self.may_come_again = False
        """Whether the last deletes before a crash of the database may be undone."""
        self.maybe_deleted = Bodies()
        self.unanswered = 0
        self.repeated = 0
        """Messages that came again."""
        self.violations: list[str] = []
        self.on_call: OnCall = ignored
        """Called after each call."""
        self._time = itertools.count()
        self._tasks: list[asyncio.Task[None]] = []
        self._acknowledged = 0
        self._progress = asyncio.Condition()

    @property
    def queue_url(self) -> str:
        assert isinstance(self.wire, QueueWire)
        return self.wire.queue_url

    def start(self, senders: int = 6, receivers: int = 4) -> None:
        """Begin."""
        jobs: list[Coroutine[Any, Any, None]] = [self._send(number) for number in range(senders)]
        jobs += [self._receive(number) for number in range(receivers)]
        self._tasks = [asyncio.create_task(job) for job in jobs]

    async def more(self, count: int) -> None:
        """Wait until so many more promises were made."""
        goal = self._acknowledged + promises(count)
        async with asyncio.timeout(60), self._progress:
            await self._progress.wait_for(lambda: self._acknowledged >= goal or self.failed())

    def hold(self) -> None:
        """The server goes down: who gets no answer waits for ``go_on``."""
        self.up.clear()

    def go_on(self) -> None:
        self.up.set()

    async def end(self) -> None:
        """Finish what is under way."""
        self.stopping = True
        self.pace.ended.set()
        self.up.set()
        await asyncio.gather(*self._tasks)

    def cancel(self) -> None:
        """Give up."""
        for task in self._tasks:
            task.cancel()

    def failed(self) -> bool:
        """Return True if a client has ended."""
        return any(task.done() for task in self._tasks)

    async def _promised(self, count: int) -> None:
        async with self._progress:
            self._acknowledged += count
            self._progress.notify_all()

    async def _call(
        self, client: Client, verb: str, asked: Callable[[], Awaitable[Answer]]
    ) -> Answer | None:
        """The answer, or None when there was none."""
        await self.up.wait()
        began = time.monotonic()
        try:
            answer = await asked()
        except Unanswered as error:
            self.unanswered += 1
            self.on_call(client.port, verb, time.monotonic() - began, error)
            await self.pace.pause(self.pace.after_none)
            return None
        self.on_call(client.port, verb, time.monotonic() - began, None)
        return answer

    def _port(self, number: int) -> int:
        return self.ports[number % len(self.ports)]

    async def _send(self, number: int) -> None:
        async with clients(self._port(number), 1, self.wire.service) as [client]:
            for count in itertools.count(1, self.batch):
                if self.stopping:
                    break
                await self._send_until_answered(
                    client, [f"{number}.{count + place}" for place in range(self.batch)]
                )
                await self.pace.pause(self.pace.seconds)

    async def _send_until_answered(self, client: Client, bodies: list[str]) -> None:
        """A FIFO sender repeats what was not answered; a standard one goes on to the next."""
        while True:
            done = await self._call(client, "send", lambda: self.wire.send(client, bodies)) or []
            if done:
                self.sent |= done  # type: ignore[arg-type]
                await self._promised(len(done))
            if not self.is_fifo or self.stopping or len(done) == len(bodies):
                return

    async def _receive(self, number: int) -> None:
        async with clients(self._port(number), 1) as [client]:
            while not self.stopping:
                await self.receive_and_delete(client)

    async def receive_and_delete(self, client: Client) -> bool:
        """One round; whether there was something."""
        began = next(self._time)
        received = await self._call(client, "receive", lambda: self.wire.receive(client))
        if not received:
            return False
        bodies = [body for body, _ in received]
        self._note(bodies, began)
        self.maybe_deleted |= bodies  # type: ignore[arg-type]
        handles = [handle for _, handle in received]
        done = await self._call(client, "delete", lambda: self.wire.delete(client, handles)) or []
        for place in done:
            self.deleted.setdefault(bodies[place], next(self._time))
        await self._promised(len(done))
        return True

    def _note(self, bodies: list[str], began: int) -> None:
        for place, body in enumerate(bodies):
            if self.deleted.get(body, began) < began and not self.may_come_again:
                self.violations.append(f"{body} came back after its delete")
            if self.is_fifo:
                self._check_order(bodies[:place], body)
            self.repeated += body in self.seen
            self.seen.add(body)

    def _check_order(self, before: list[str], body: str) -> None:
        """All earlier messages of the group are gone, or stand before this one."""
        group, _, number = body.partition(".")
        previous = f"{group}.{int(number) - 1}"
        if number != "1" and previous not in self.maybe_deleted and previous not in before:
            self.violations.append(f"{body} came before {previous}")

    def raise_failure(self) -> None:
        """Raise the error of a client that failed."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def check(self, patience_seconds: float = _DRAIN_SECONDS) -> None:
        """Drain the queue and compare it with the promises."""
        async with asyncio.timeout(patience_seconds), clients(self.ports[0], 1) as [client]:
            is_left = True
            while is_left:
                is_left = await self.receive_and_delete(client) or await self._holds(client)
        lost = [body for body in self.sent if body not in self.seen]
        assert lost == []
        assert self.violations == []
        assert len(self.deleted) > 0

    async def _holds(self, client: Client) -> bool:
        """Return True if the queue still counts a message."""
        return await self._call(client, "count", lambda: self.wire.holds(client)) is not False


async def make_queue(port: int, name: str = "load") -> str:
    """A queue for a load; its URL."""
    attributes = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
    async with clients(port, 1) as [client]:
        answer = await client.call("CreateQueue", QueueName=name, Attributes=attributes)
    url: str = answer["QueueUrl"]
    return url

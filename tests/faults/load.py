"""Senders, receivers and deleters that note what they were promised, and count at the end."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Coroutine
from typing import Any

from tests.faults.client import Client, Unanswered, clients

_VISIBILITY_SECONDS = 2
_DRAIN_SECONDS = 45.0
_COUNTERS = ("", "NotVisible", "Delayed")
# `make soak-faults` sets it. `make faults` kills once, where that kills again and again, and waits
# for a quarter of the promises before: what happens at a kill does not depend on how many they are.
_IS_LONG = os.environ.get("QUEUEGATE_TEST_FAULTS") == "long"


def times(count: int) -> range:
    """To repeat a fault so often, or once."""
    return range(count if _IS_LONG else 1)


def minutes(short: float, long: float) -> float:
    """Return the length of a load."""
    return long if _IS_LONG else short


def promises(count: int) -> int:
    """Return how many of so many promises to await before the next fault."""
    return count if _IS_LONG else max(count // 4, 20)


class Load:
    """Clients of one queue. Hold it while the server is known to be down; end, then ``check``."""

    def __init__(self, port: int, queue_url: str) -> None:
        self.port = port
        self.queue_url = queue_url
        self.is_fifo = queue_url.endswith(".fifo")
        self.up = asyncio.Event()
        self.up.set()
        self.stopping = False
        self.sent: dict[str, None] = {}
        """Acknowledged sends, in order."""
        self.seen: set[str] = set()
        self.deleted: dict[str, int] = {}
        """body -> when its delete was acknowledged."""
        self.may_come_again = False
        """Whether the last deletes before a crash of the database may be undone."""
        self.maybe_deleted: set[str] = set()
        self.unanswered = 0
        self.violations: list[str] = []
        self._time = itertools.count()
        self._tasks: list[asyncio.Task[None]] = []
        self._acknowledged = 0
        self._progress = asyncio.Condition()

    def start(self, senders: int = 6, receivers: int = 4) -> None:
        """Begin."""
        jobs: list[Coroutine[Any, Any, None]] = [self._send(number) for number in range(senders)]
        jobs += [self._receive() for _ in range(receivers)]
        self._tasks = [asyncio.create_task(job) for job in jobs]

    async def more(self, count: int) -> None:
        """Wait until so many more promises were made."""
        goal = self._acknowledged + promises(count)
        async with asyncio.timeout(60), self._progress:
            await self._progress.wait_for(lambda: self._acknowledged >= goal or self._failed())

    def hold(self) -> None:
        """The server goes down: who gets no answer waits for ``go_on``."""
        self.up.clear()

    def go_on(self) -> None:
        self.up.set()

    async def end(self) -> None:
        """Finish what is under way."""
        self.stopping = True
        self.up.set()
        await asyncio.gather(*self._tasks)

    def cancel(self) -> None:
        """Give up."""
        for task in self._tasks:
            task.cancel()

    def _failed(self) -> bool:
        return any(task.done() for task in self._tasks)

    async def _promised(self, count: int) -> None:
        async with self._progress:
            self._acknowledged += count
            self._progress.notify_all()

    async def _call(self, client: Client, action: str, **members: Any) -> dict[str, Any] | None:
        """The answer, or None when there was none."""
        await self.up.wait()
        try:
            return await client.call(action, QueueUrl=self.queue_url, **members)
        except Unanswered:
            self.unanswered += 1
            return None

    async def _send(self, number: int) -> None:
        async with clients(self.port, 1) as [client]:
            for count in itertools.count(1):
                if self.stopping:
                    break
                await self._send_until_answered(client, f"{number}.{count}")

    async def _send_until_answered(self, client: Client, body: str) -> None:
        """A FIFO sender repeats what was not answered; a standard one goes on to the next."""
        members: dict[str, Any] = {"MessageBody": body}
        if self.is_fifo:
            group = body.partition(".")[0]
            members |= {"MessageGroupId": group, "MessageDeduplicationId": body}
        while True:
            answer = await self._call(client, "SendMessage", **members)
            if answer is not None:
                self.sent[body] = None
                await self._promised(1)
                return
            if not self.is_fifo or self.stopping:
                return

    async def _receive(self) -> None:
        async with clients(self.port, 1) as [client]:
            while not self.stopping:
                await self.receive_and_delete(client)

    async def receive_and_delete(self, client: Client) -> bool:
        """One round; whether there was something."""
        began = next(self._time)
        answer = await self._call(
            client,
            "ReceiveMessage",
            MaxNumberOfMessages=10,
            VisibilityTimeout=_VISIBILITY_SECONDS,
            WaitTimeSeconds=1,
        )
        messages = (answer or {}).get("Messages", [])
        if not messages:
            return False
        bodies = [message["Body"] for message in messages]
        self._note(bodies, began)
        self.maybe_deleted.update(bodies)
        entries = [
            {"Id": str(place), "ReceiptHandle": message["ReceiptHandle"]}
            for place, message in enumerate(messages)
        ]
        answer = await self._call(client, "DeleteMessageBatch", Entries=entries)
        done = [bodies[int(entry["Id"])] for entry in (answer or {}).get("Successful", [])]
        for body in done:
            self.deleted.setdefault(body, next(self._time))
        await self._promised(len(done))
        return True

    def _note(self, bodies: list[str], began: int) -> None:
        for place, body in enumerate(bodies):
            if self.deleted.get(body, began) < began and not self.may_come_again:
                self.violations.append(f"{body} came back after its delete")
            if self.is_fifo:
                self._check_order(bodies[:place], body)
            self.seen.add(body)

    def _check_order(self, before: list[str], body: str) -> None:
        """All earlier messages of the group are gone, or stand before this one."""
        group, _, number = body.partition(".")
        previous = f"{group}.{int(number) - 1}"
        if number != "1" and previous not in self.maybe_deleted and previous not in before:
            self.violations.append(f"{body} came before {previous}")

    async def check(self) -> None:
        """Drain the queue and compare it with the promises."""
        async with asyncio.timeout(_DRAIN_SECONDS), clients(self.port, 1) as [client]:
            is_left = True
            while is_left:
                is_left = await self.receive_and_delete(client) or await self._holds(client)
        lost = [body for body in self.sent if body not in self.seen]
        assert lost == []
        assert self.violations == []
        assert len(self.deleted) > 0

    async def _holds(self, client: Client) -> bool:
        """Return True if the queue still counts a message."""
        names = [f"ApproximateNumberOfMessages{name}" for name in _COUNTERS]
        answer = await self._call(client, "GetQueueAttributes", AttributeNames=names)
        return answer is None or any(int(count) for count in answer["Attributes"].values())


async def make_queue(port: int, name: str = "load") -> str:
    """A queue for a load; its URL."""
    attributes = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
    async with clients(port, 1) as [client]:
        answer = await client.call("CreateQueue", QueueName=name, Attributes=attributes)
    url: str = answer["QueueUrl"]
    return url

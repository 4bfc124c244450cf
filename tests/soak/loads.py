"""Mixed load over all faces, each at a steady pace, with a count of what was finished."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from time import perf_counter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.bench.client import HANDLE, BadAnswer, Pool
from tests.bench.endpoint import HOST, Hook, Seen
from tests.bench.faces import BODY_BYTES, CYCLES, json_request
from tests.bench.log_groups import RECEIPT, SETTINGS, Subscriber
from tests.bench.logs import Publishing
from tests.bench.publishing import publish_request
from tests.bench.push import Listener, channel_publish, socket_path
from tests.bench.stage import elapse
from tests.bench.topics import RAW, create_topic, subscribe, subscribe_queues

if TYPE_CHECKING:
    from tests.bench.stage import Stage
    from tests.soak.series import Recording

_PREFILLED = 8
_PARTITIONS = 8
_KEPT_SECONDS = 60
_HEARTBEAT_SECONDS = 20.0
_SUBSCRIBERS = 2
_DRAIN_SECONDS = 60.0


class Loads:
    """The loads of one gateway. ``per_second``: cycles of each load."""

    def __init__(self, stage: Stage, recording: Recording, per_second: float) -> None:
        self._stage = stage
        self._recording = recording
        self._per_second = per_second
        self._is_over = False
        self._pools: list[Pool] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.sent: dict[str, int] = {}
        """Acknowledged messages by load; the recording counts those that were finished."""

    async def start(self) -> None:
        """Create queues, topics, logs and schedules, and begin."""
        for name, make in CYCLES.items():
            pool = await self._pool()
            cycle = await make(self._stage, pool)
            for _ in range(_PREFILLED):
                await pool.exchange(next(cycle.sends))
            self._begin(self._cycling(name, pool, cycle))
        await self._start_topic()
        await self._start_schedule()
        await self._start_log()
        await self._start_push()

    async def end(self) -> None:
        """Send nothing more, and wait until what was sent is finished."""
        self._is_over = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                while any(self._left(name) > 0 for name in self.sent):
                    await elapse(0.1)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for pool in self._pools:
            pool.close()
        for name, count in self.sent.items():
            if self._left(name) > 0:
                text = f"{name}: {self._left(name)} of {count} were not received"
                self._recording.errors.append(text)

    def _left(self, name: str) -> int:
        return self.sent[name] - self._recording.counts.get(name, 0)

    async def _pool(self, connections: int = 1) -> Pool:
        pool = await self._stage.pool(connections)
        self._pools.append(pool)
        return pool

    def _begin(self, job: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(job))

    def _finished(self, name: str, count: int = 1) -> None:
        counts = self._recording.counts
        counts[name] = counts.get(name, 0) + count

    async def _ticks(self) -> AsyncIterator[int]:
        """Yield at the pace, until the load is over; what was missed is not made up for."""
        began = perf_counter()
        for number in itertools.count():
            if self._is_over:
                return
            yield number
            due = began + (number + 1) / self._per_second
            late = perf_counter() - due
            if late > 1:
                began += late
            await elapse(max(due - perf_counter(), 0.001))

    async def _ask(self, load: str, verb: str, pool: Pool, request: bytes) -> bytes:
        """Ask, and note how long it took; BadAnswer is noted as an error and raised."""
        started = perf_counter()
        try:
            answer = await pool.exchange(request)
        except BadAnswer as error:
            self._recording.errors.append(f"{load} {verb}: {error}")
            raise
        self._recording.note(load, verb, perf_counter() - started)
        return answer

    async def _cycling(self, name: str, pool: Pool, cycle: Any) -> None:
        """Send, receive and finish one: there is always one to receive."""
        async for _ in self._ticks():
            with contextlib.suppress(BadAnswer):
                await self._ask(name, "send", pool, next(cycle.sends))
                self.sent[name] = self.sent.get(name, 0) + 1
                found = cycle.found.search(await self._ask(name, "receive", pool, cycle.receive))
                if found is None:
                    self._recording.errors.append(f"{name}: a receive found nothing")
                    continue
                await self._ask(name, "delete", pool, cycle.finish(found[1]))
                self._finished(name)

    async def _publishing(self, name: str, make: Callable[[], bytes]) -> None:
        pool = await self._pool()
        self.sent[name] = 0
        async for _ in self._ticks():
            with contextlib.suppress(BadAnswer):
                await self._ask(name, "publish", pool, make())
                self.sent[name] += 1

    async def _draining(self, name: str, queue_url: str, *, counts_sends: bool = False) -> None:
        """Receive from a queue with long polls, and delete."""
        pool = await self._pool()
        stage = self._stage
        members = {"QueueUrl": queue_url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 1}
        while True:
            with contextlib.suppress(BadAnswer):
                request = stage.renderer.request("ReceiveMessage", members)
                handles = HANDLE.findall(await pool.exchange(request))
                if handles:
                    delete = stage.renderer.batch_deletion(queue_url, handles)
                    await self._ask(name, "delete-batch", pool, delete)
                    self._finished(name, len(handles))
                    if counts_sends:
                        self.sent[name] = self.sent.get(name, 0) + len(handles)

    async def _start_topic(self) -> None:
        """A topic with a raw queue and a web hook, each of which gets everything."""
        stage, pool, seen = self._stage, await self._pool(), Seen()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Hook(seen), HOST, 0)
        port = server.sockets[0].getsockname()[1]
        topic = await create_topic(stage, pool)
        queue_url = await stage.create_queue(pool)
        await subscribe_queues(stage, pool, topic, [queue_url], attributes=RAW)
        endpoint = ("http", f"http://{HOST}:{port}/hook")
        await subscribe(stage, pool, topic, endpoint, attributes=RAW)
        async with asyncio.timeout(_DRAIN_SECONDS):
            while not seen.confirm_urls:
                await elapse(0.05)
        parts = urlsplit(seen.confirm_urls.pop())
        line = f"GET {parts.path or '/'}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n"
        await pool.exchange(line.encode())
        request = publish_request(stage, topic, BODY_BYTES)
        self._begin(self._publishing("sns", lambda: request))
        self._begin(self._draining("sns", queue_url))
        self._begin(self._watching_hook(seen))

    async def _watching_hook(self, seen: Seen) -> None:
        """Each publish is one POST."""
        while True:
            await elapse(0.1)
            self.sent["web-hook"] = self.sent.get("sns", 0)
            self._recording.counts["web-hook"] = len(seen.deliveries)

    async def _start_schedule(self) -> None:
        """A schedule that sends to a queue every second."""
        pool = await self._pool()
        queue_url = await self._stage.create_queue(pool)
        target = {"kind": "queue", "queue_name": queue_url.rpartition("/")[2], "message": "tick"}
        schedule = {"name": "soak", "every": "1 second", "target": target}
        await pool.exchange(json_request(self._stage, "POST", "/v1/schedules", schedule))
        self._begin(self._draining("schedule", queue_url, counts_sends=True))

    async def _start_log(self) -> None:
        """A log whose records are kept for a minute, and a group of two subscribers."""
        stage, pool = self._stage, await self._pool()
        log = {"log": "soak", "max_age": _KEPT_SECONDS}
        await pool.exchange(json_request(stage, "POST", "/v1/logs", log))
        await pool.exchange(json_request(stage, "PUT", "/v1/logs/soak/groups/g", SETTINGS))
        supply = Publishing(_PARTITIONS, 1).requests(stage, "soak")
        self._begin(self._publishing("log", lambda: next(supply)))
        for number in range(_SUBSCRIBERS):
            self._begin(self._subscribing(Subscriber(stage, "soak", "g", f"s{number}")))

    async def _subscribing(self, subscriber: Subscriber) -> None:
        pool = await self._pool()
        renews_at = 0.0
        while True:
            with contextlib.suppress(BadAnswer):
                if perf_counter() >= renews_at:
                    answer = await self._ask("log", "heartbeat", pool, subscriber.heartbeat())
                    subscriber.stands(json.loads(answer.partition(b"\r\n\r\n")[2]))
                    # Shares settle when all have joined.
                    is_first = renews_at == 0.0
                    renews_at = perf_counter() + (1.0 if is_first else _HEARTBEAT_SECONDS)
                receipts = RECEIPT.findall(await pool.exchange(subscriber.fetch(wait=1)))
                if receipts:
                    await self._ask("log", "ack", pool, subscriber.ack(receipts))
                    self._finished("log", len(receipts))

    async def _start_push(self) -> None:
        """A channel whose consumer has a WebSocket."""
        channel = "soak-push"
        listener = Listener(lambda count: self._finished("push", count))
        await listener.open(self._stage.server.address, socket_path(channel))
        request = channel_publish(self._stage, channel)
        self._begin(self._publishing("push", lambda: request))

"""Publishers and a group of subscribers of a log that note what they were promised."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from tests.faces.clients import new_account
from tests.faults.client import Client, Refused, Unanswered, clients
from tests.faults.gateways import Server
from tests.faults.ledger import Bodies, Numbers
from tests.faults.load import OnCall, Pace, ignored, promises
from tests.faults.wires import ask_json
from tests.waiting import until_async

_VISIBILITY_SECONDS = 2.0
_KEYS = 8
_AT_ONCE = 5
_LOG = "/v1/logs/orders"
_GROUP = f"{_LOG}/groups/billing"
_MOST_PARTITIONS = 1024


class LogLoad:
    """Hold it while the server is known to be down; end, then ``check``. Further gateways share its
    clients."""

    def __init__(
        self,
        server: Server,
        *others: Server,
        batch: int = 4,
        most_ahead: int = 200,
        pace: Pace | None = None,
    ) -> None:
        self.server = server
        self.servers = [server, *others]
        self.batch = batch
        self.most_ahead = most_ahead
        """Records that are published before they are read."""
        self.pace = pace or Pace()
        self.up = asyncio.Event()
        self.up.set()
        self.stopping = False
        self.promised = Bodies()
        """Payloads whose publish was answered."""
        self.delivered: Numbers[tuple[int, int]] = Numbers()
        """Place -> when the last fetch that was answered with it had begun."""
        self.seen: Numbers[str] = Numbers()
        """Payload -> place, as ``_code`` writes it."""
        self.acknowledged: Numbers[tuple[int, int]] = Numbers()
        """Place -> when its ack was answered."""
        self.unanswered = 0
        self.violations: list[str] = []
        self.on_call: OnCall = ignored
        """Called after each call."""
        self._account = new_account()
        self._tasks: list[asyncio.Task[None]] = []
        self._progress = asyncio.Condition()

    async def make(self) -> None:
        """The log and the group."""
        async with clients(self.server.port, 1) as [client]:
            await self._ask(client, "POST", "/v1/logs", {"log": "orders"})
            settings = {
                "batch_size": _AT_ONCE,
                "visibility_timeout": _VISIBILITY_SECONDS,
                "lease": 1,
                "max_attempts": 1_000,
            }
            await self._ask(client, "PUT", _GROUP, settings)

    def start(self) -> None:
        jobs: list[Coroutine[Any, Any, None]] = [self._publish(number) for number in range(3)]
        jobs += [self._subscribe(f"reader-{number}") for number in range(3)]
        self._tasks = [asyncio.create_task(job) for job in jobs]

    async def more(self, count: int) -> None:
        """Wait until so many more acks were answered."""
        goal = len(self.acknowledged) + promises(count)
        async with asyncio.timeout(60), self._progress:
            await self._progress.wait_for(
                lambda: len(self.acknowledged) >= goal or any(one.done() for one in self._tasks)
            )

    def cancel(self) -> None:
        """Give up."""
        for task in self._tasks:
            task.cancel()

    async def end_and_check(self) -> None:
        """Publish nothing more, and count when the group is through with everything."""
        self.stopping = True
        self.pace.ended.set()
        async with clients(self.server.port, 1) as [client]:
            await until_async(
                lambda: self._ask(client, "GET", _GROUP),
                lambda found: found["lag"] == 0 or any(one.done() for one in self._tasks[3:]),
            )
        for task in self._tasks[3:]:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        assert [one for one in ended if isinstance(one, Exception)] == []
        self.check()

    def check(self) -> None:
        """Compare what came with what was promised."""
        assert self.violations == []
        assert [payload for payload in self.promised if payload not in self.seen] == []
        assert len(set(self.seen.values())) == len(self.seen)
        counts: dict[int, set[int]] = {}
        for partition, offset in map(_place, self.seen.values()):
            counts.setdefault(partition, set()).add(offset)
        for offsets in counts.values():
            assert offsets == set(range(len(offsets)))

    async def _ask(
        self, client: Client, method: str, path: str, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        return await ask_json(client, self._account, method, path, body)

    async def _call(
        self, verb: str, client: Client, method: str, path: str, body: dict[str, Any]
    ) -> dict[str, Any] | None:
        """The answer, or None when there was none."""
        await self.up.wait()
        began = time.monotonic()
        try:
            answer = await self._ask(client, method, path, body)
        except Unanswered as error:
            self.unanswered += 1
            self.on_call(client.port, verb, time.monotonic() - began, error)
            await self.pace.pause(self.pace.after_none)
            return None
        except Refused:
            self.on_call(client.port, verb, time.monotonic() - began, None)
            raise
        self.on_call(client.port, verb, time.monotonic() - began, None)
        return answer

    def _port(self, number: int) -> int:
        return self.servers[number % len(self.servers)].port

    async def _publish(self, number: int) -> None:
        """Publish until stopped; publish unanswered records again with the same ids."""
        async with clients(self._port(number), 1) as [client]:
            count = 0
            payloads: list[str] = []
            while payloads or not self.stopping:
                if not payloads:
                    payloads = [f"{number}.{count + place}" for place in range(self.batch)]
                    count += self.batch
                records = [
                    {"key": str(place * number % _KEYS), "payload": one, "id": one}
                    for place, one in enumerate(payloads)
                ]
                path = f"{_LOG}/records"
                if await self._call("send", client, "POST", path, {"records": records}) is None:
                    continue
                self.promised |= payloads  # type: ignore[arg-type]
                payloads = []
                await self.pace.pause(self.pace.seconds)
                # No faster than they are read.
                async with self._progress:
                    await self._progress.wait_for(
                        lambda: (
                            self.stopping
                            or len(self.promised) < len(self.acknowledged) + self.most_ahead
                        )
                    )

    async def _subscribe(self, name: str) -> None:
        path = f"{_GROUP}/subscribers/{name}"
        session: int | None = None
        async with clients(self._port(int(name.rpartition("-")[2])), 1) as [client]:
            while True:
                body = {} if session is None else {"session": session}
                try:
                    standing = await self._call("join", client, "PUT", path, body)
                    if standing is None:
                        continue
                    session = standing["session"]
                    await self._fetch(client, path, {"session": session, "wait": 0.3})
                except Refused as refusal:
                    if refusal.status != 409:
                        raise
                    # An earlier heartbeat of its own was not answered, and had joined.
                    session = None

    async def _fetch(self, client: Client, path: str, body: dict[str, Any]) -> None:
        began = time.monotonic()
        fetched = await self._call("receive", client, "POST", f"{path}/fetch", body)
        records = [] if fetched is None else fetched["records"]
        places = [(one["partition"], one["offset"]) for one in records]
        for one, place in zip(records, places, strict=True):
            self._note(one, place, began)
        if not records:
            return
        done = {"deliveries": [{"receipt": one["receipt"], "do": "ack"} for one in records]}
        answer = await self._call("delete", client, "POST", f"{_GROUP}/deliveries", done)
        for place, result in zip(places, answer["results"] if answer else (), strict=False):
            if result["result"] == "done":
                self.acknowledged.setdefault(place, time.monotonic())
            elif result["result"] != "superseded":
                self.violations.append(f"the ack of {place} came to {result}")
        async with self._progress:
            self._progress.notify_all()

    def _note(self, record: dict[str, Any], place: tuple[int, int], began: float) -> None:
        now = time.monotonic()
        if self.acknowledged.get(place, began) < began:
            self.violations.append(f"{place} came after its ack was answered")
        before = self.delivered.get(place)
        if before is not None and now - before < _VISIBILITY_SECONDS:
            self.violations.append(f"{place} came again after {now - before:.2f} s")
        if self.seen.setdefault(record["payload"], _code(place)) != _code(place):
            self.violations.append(f"{record['payload']} is at {place}, too")
        self.delivered[place] = began


def _code(place: tuple[int, int]) -> float:
    partition, offset = place
    return float(offset * _MOST_PARTITIONS + partition)


def _place(code: float) -> tuple[int, int]:
    offset, partition = divmod(int(code), _MOST_PARTITIONS)
    return partition, offset


@contextlib.asynccontextmanager
async def log_loaded(server: Server) -> AsyncIterator[LogLoad]:
    """Load that runs until the test ends it, or fails."""
    load = LogLoad(server)
    await load.make()
    load.start()
    try:
        yield load
    except BaseException:
        load.cancel()
        raise

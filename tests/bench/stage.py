"""The tools of a scenario: servers, options, queues to fill, measured runs, figures to note."""

import asyncio
import itertools
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from time import perf_counter, process_time

from tests.bench.client import HANDLE, Load, Pool, Script
from tests.bench.processes import Memory
from tests.bench.rendering import Renderer, message_body
from tests.bench.servers import CannotMeasure, Server, Workshop

FILL_CONNECTIONS = 16
FILL_SECONDS_MAX = 900.0
_NAMES = itertools.count(1)


@dataclass(frozen=True)
class Options:
    """The amount of work to measure."""

    connections: tuple[int, ...] = (1, 16, 64, 256)
    body_bytes: tuple[int, ...] = (100, 1024)
    rounds: int = 3
    scale: float = 1.0
    run_seconds: float = 6.0
    depth: int = 1_000_000
    churn: int = 1_000_000
    queues: int = 10_000
    groups: int = 100_000
    polls: int = 1_000
    idle_seconds: float = 20.0

    def quick(self) -> "Options":
        """Return the same on a small scale: one round, 64 connections, 1 KB, short backlogs."""
        return replace(
            self,
            connections=(64,),
            body_bytes=(1024,),
            rounds=1,
            scale=0.3,
            depth=50_000,
            churn=20_000,
            queues=500,
            groups=5_000,
            polls=200,
            idle_seconds=5.0,
        )


@dataclass
class Figures:
    """Values by figure and field, one per round; the summary is the median of the rounds."""

    rounds: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def note(self, key: str, **values: float) -> None:
        """Add the values of one round."""
        fields = self.rounds.setdefault(key, {})
        for name, value in values.items():
            fields.setdefault(name, []).append(value)

    def summary(self) -> dict[str, dict[str, float]]:
        """Return the median of each field over its rounds."""
        return {
            key: {name: round(median(values), 4) for name, values in fields.items()}
            for key, fields in self.rounds.items()
        }

    def every_round(self, name: str) -> dict[str, list[float]]:
        """Return one field of every figure that has it, by round: how far the rounds differ."""
        return {
            key: [round(value, 2) for value in fields[name]]
            for key, fields in self.rounds.items()
            if name in fields
        }


class Stage:
    """One server on which scenarios run, with the administrative calls they need."""

    def __init__(self, server: Server, options: Options, figures: Figures) -> None:
        self.server = server
        self.options = options
        self.figures = figures
        self.renderer = Renderer(*server.address)
        self.memory_peak = Memory(0.0, 0.0, 0.0, 0.0)

    @property
    def is_moto(self) -> bool:
        return self.server.name == "moto"

    async def pool(self, connections: int) -> Pool:
        """Open connections to the server; raises CannotMeasure when it refuses."""
        try:
            return await Pool.open(self.server.address, connections)
        except OSError as error:
            raise CannotMeasure(f"{self.server.name} refuses connections: {error}") from None

    async def create_queue(self, pool: Pool, *, fifo: bool = False) -> str:
        """Create a queue under a new name and return its URL."""
        name = f"bench-{int(perf_counter() * 1000):x}-{next(_NAMES)}"
        attributes = {"VisibilityTimeout": "3600"}
        if fifo:
            name += ".fifo"
            attributes |= {
                "FifoQueue": "true",
                "DeduplicationScope": "messageGroup",
                "FifoThroughputLimit": "perMessageGroupId",
            }
        members = {"QueueName": name, "Attributes": attributes}
        answer = await pool.call(self.renderer.request("CreateQueue", members))
        return str(answer["QueueUrl"])

    async def delete_queue(self, pool: Pool, queue_url: str) -> None:
        """Delete a queue, so that the next run does not carry its messages along."""
        await pool.call(self.renderer.request("DeleteQueue", {"QueueUrl": queue_url}))

    async def fill(self, queue_url: str, count: int, body_bytes: int) -> None:
        """Send so many messages in batches of ten."""
        request = self.send_batch_request(queue_url, body_bytes)
        await self.drain([request] * -(-count // 10))

    async def drain(self, requests: Iterable[bytes], connections: int = FILL_CONNECTIONS) -> Load:
        """Send requests over a few connections, unmeasured, until there are no more."""
        pool = await self.pool(connections)
        supply = iter(requests)
        try:
            return await pool.run(lambda _: plain(supply), FILL_SECONDS_MAX)
        finally:
            pool.close()

    async def collect(self, queue_url: str, count: int) -> list[bytes]:
        """Receive messages, ten at a time, until so many receipt handles are there."""
        members = {"QueueUrl": queue_url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 0}
        request = self.renderer.request("ReceiveMessage", members)
        handles: list[bytes] = []

        def script(load: Load) -> Script:
            while len(handles) < count and load.empty < 1000:
                answer = yield request
                found = HANDLE.findall(answer)
                load.empty += not found
                handles.extend(found)

        pool = await self.pool(FILL_CONNECTIONS)
        try:
            await pool.run(script, FILL_SECONDS_MAX)
        finally:
            pool.close()
        if len(handles) < count:
            raise CannotMeasure(f"only {len(handles)} of {count} messages could be received")
        return handles[:count]

    def send_request(self, queue_url: str, body_bytes: int) -> bytes:
        """Return a SendMessage of so many bytes."""
        members = {"QueueUrl": queue_url, "MessageBody": message_body(body_bytes)}
        return self.renderer.request("SendMessage", members)

    def send_batch_request(self, queue_url: str, body_bytes: int) -> bytes:
        """Return a SendMessageBatch of ten messages of so many bytes each."""
        entries = [
            {"Id": str(index), "MessageBody": message_body(body_bytes, index)}
            for index in range(10)
        ]
        members = {"QueueUrl": queue_url, "Entries": entries}
        return self.renderer.request("SendMessageBatch", members)

    async def measure(self, pool: Pool, make_script: Callable[[Load], Script]) -> dict[str, float]:
        """Run scripts between two looks at the CPU time and return the figures of the run."""
        self.server.tree.settle()
        before, own = self.server.tree.usage(), process_time()
        load = await pool.run(make_script, self.options.run_seconds)
        spent, own = self.server.tree.usage() - before, process_time() - own
        self._watch_memory()
        if not load.operations:
            raise CannotMeasure("no operation ended")
        seconds = sorted(load.operation_seconds or load.request_seconds)
        return {
            "gateway_us": spent.gateway_seconds / load.operations * 1e6,
            "database_us": spent.database_seconds / load.operations * 1e6,
            "total_us": (spent.gateway_seconds + spent.database_seconds) / load.operations * 1e6,
            "p50_ms": percentile(seconds, 50) * 1000,
            "p99_ms": percentile(seconds, 99) * 1000,
            "client_us": own / load.operations * 1e6,
            "per_second": load.operations / load.elapsed_seconds,
            "operations": load.operations,
            "messages": load.messages,
            "empty": load.empty,
            "reconnects": load.reconnects,
        }

    def _watch_memory(self) -> None:
        now = self.server.tree.memory()
        peak = self.memory_peak
        self.memory_peak = Memory(
            max(peak.gateway_rss, now.gateway_rss),
            max(peak.gateway_pss, now.gateway_pss),
            max(peak.database_rss, now.database_rss),
            max(peak.database_pss, now.database_pss),
        )


@dataclass(frozen=True)
class Bench:
    """Everything of one run: the gateway, moto beside it or not, where new servers come from."""

    queuegate: Stage
    moto: Stage | None
    workshop: Workshop
    options: Options
    figures: Figures
    owns_server: bool
    variants: dict[str, Stage] = field(default_factory=dict)

    def stage_with(self, environment: Mapping[str, str]) -> Stage:
        """Return the gateway of the run, or one with these variables that is started here once.

        It has data of its own, and runs until the end, idle when it is not measured. Raises
        CannotMeasure when the gateway of the run is somebody else's: the two would not compare.
        """
        if not environment:
            return self.queuegate
        name = " ".join(f"{name}={value}" for name, value in environment.items())
        if name not in self.variants:
            if not self.owns_server:
                raise CannotMeasure("the server was started by somebody else")
            data = self.workshop.new_data_directory()
            server = self.workshop.start_queuegate(data, environment)
            server.tree.pin(self.queuegate.server.tree.cores())
            self.variants[name] = Stage(server, self.options, self.figures)
        return self.variants[name]


@dataclass(frozen=True)
class Scenario:
    """A named part of the run."""

    name: str
    about: str
    run: Callable[[Bench], Awaitable[None]]


def plain(supply: Iterator[bytes]) -> Script:
    """A script that sends what it takes from a supply shared with others."""
    for request in supply:  # noqa: UP028  # `yield from` would send it the answers
        yield request


async def elapse(seconds: float) -> None:
    """Let the event loop run for so long, so that answers are still taken in."""
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    await asyncio.wait({never}, timeout=seconds)


def percentile(ordered: list[float], percent: int) -> float:
    """Return the nearest-rank percentile of ordered values."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def say(text: str) -> None:
    """Write a progress line."""
    print(text, file=sys.stderr, flush=True)

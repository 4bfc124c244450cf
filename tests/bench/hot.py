"""The hot path: sends, receives, deletes, batches, cycles; by connections and body size."""

import itertools
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import TypeVar

from tests.bench.client import HANDLE, BadAnswer, Load, Pool, Script
from tests.bench.rendering import message_body
from tests.bench.servers import CannotMeasure
from tests.bench.stage import Bench, Scenario, Stage, plain, say
from tests.bench.topics import delete_topic

T = TypeVar("T")
MakeScript = Callable[[Load], Script]
Steps = tuple[bytes, bytes, Callable[[bytes], bytes]]
"""A send, a receive, and what makes a delete from what was received."""
MOTO_CONNECTIONS = (16, 64)
MOTO_OPERATIONS = 128
_WARM_SHARE = 0.1
_WARM_SECONDS = 5.0


@dataclass(frozen=True)
class Run:
    """Size of one run."""

    stage: Stage
    connections: int
    body_bytes: int
    operations: int

    @property
    def warm(self) -> int:
        """Operations before the measured ones: caches, prepared statements, connections."""
        if self.stage.is_moto:
            return 2
        return max(self.connections, int(self.operations * _WARM_SHARE))


@dataclass(frozen=True)
class Prepared:
    """Scripts for the warm-up and for the measured part, and what to delete afterwards."""

    warm: MakeScript
    measured: MakeScript
    queue_urls: tuple[str, ...]
    topic_arn: str | None = None


@dataclass(frozen=True)
class Case:
    """One operation of the hot path."""

    name: str
    about: str
    weight: int
    prepare: Callable[[Run, Pool], Awaitable[Prepared]]
    on_moto: bool = True
    sizes: tuple[tuple[int, int], ...] = ()
    """Connections and body sizes of these alone, among those asked for; empty: of all."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables of the gateway it runs on; empty: on the one of the run."""

    def is_measured(self, connections: int, body_bytes: int) -> bool:
        return not self.sizes or (connections, body_bytes) in self.sizes


async def _send(run: Run, pool: Pool) -> Prepared:
    queue_url = await run.stage.create_queue(pool)
    requests = [run.stage.send_request(queue_url, run.body_bytes) for _ in range(64)]
    return repeated(run, requests, queue_url)


async def _send_batch(run: Run, pool: Pool) -> Prepared:
    queue_url = await run.stage.create_queue(pool)
    requests = [run.stage.send_batch_request(queue_url, run.body_bytes) for _ in range(64)]
    return repeated(run, requests, queue_url)


def _receive(count: int) -> Callable[[Run, Pool], Awaitable[Prepared]]:
    async def prepare(run: Run, pool: Pool) -> Prepared:
        queue_url = await run.stage.create_queue(pool)
        total = (run.operations + run.warm + run.connections) * count
        await run.stage.fill(queue_url, total, run.body_bytes)
        requests = [receive_request(run.stage, queue_url, count) for _ in range(64)]
        warm, measured = split(run, itertools.cycle(requests))
        return Prepared(
            lambda load: _counting(warm, load), lambda load: _counting(measured, load), (queue_url,)
        )

    return prepare


async def _receive_empty(run: Run, pool: Pool) -> Prepared:
    queue_url = await run.stage.create_queue(pool)
    requests = [receive_request(run.stage, queue_url, 1) for _ in range(64)]
    return repeated(run, requests, queue_url)


async def _delete(run: Run, pool: Pool) -> Prepared:
    queue_url = await run.stage.create_queue(pool)
    handles = await _handles(run, queue_url, run.operations + run.warm)
    render = run.stage.renderer.deletion(queue_url)
    return _scripts(run, [render(handle) for handle in handles], queue_url)


async def _delete_batch(run: Run, pool: Pool) -> Prepared:
    queue_url = await run.stage.create_queue(pool)
    handles = await _handles(run, queue_url, (run.operations + run.warm) * 10)
    requests = [
        run.stage.renderer.batch_deletion(queue_url, handles[start : start + 10])
        for start in range(0, len(handles), 10)
    ]
    return _scripts(run, requests, queue_url)


async def _cycle(run: Run, pool: Pool) -> Prepared:
    queue_url = await run.stage.create_queue(pool)
    await run.stage.fill(queue_url, 20 if run.stage.is_moto else 2 * run.connections, 1024)
    send = run.stage.send_request(queue_url, run.body_bytes)
    receive = receive_request(run.stage, queue_url, 1)
    delete = run.stage.renderer.deletion(queue_url)
    warm, measured = split(run, itertools.repeat((send, receive, delete)))
    return Prepared(
        lambda load: cycles(warm, load), lambda load: cycles(measured, load), (queue_url,)
    )


def _fifo_cycle(groups: int | None) -> Callable[[Run, Pool], Awaitable[Prepared]]:
    """Cycles on a FIFO queue whose groups hold messages; None: as many as the options say."""

    async def prepare(run: Run, pool: Pool) -> Prepared:
        stage = run.stage
        count = stage.options.groups if groups is None else groups
        queue_url = await stage.create_queue(pool, fifo=True)
        await _fill_groups(stage, queue_url, count, 10 if groups and not stage.is_moto else 1)
        renders = fifo_sends(stage, queue_url, run.body_bytes)
        receive = receive_request(stage, queue_url, 1)
        delete = stage.renderer.deletion(queue_url)
        numbers = itertools.count()
        steps = ((renders(n % count, n), receive, delete) for n in numbers)
        warm, measured = split(run, steps)
        return Prepared(
            lambda load: cycles(warm, load), lambda load: cycles(measured, load), (queue_url,)
        )

    return prepare


CASES = (
    Case("send", "SendMessage", 1, _send),
    Case("send-batch", "SendMessageBatch of 10", 4, _send_batch),
    Case("receive-1", "ReceiveMessage of 1 from a filled queue", 1, _receive(1)),
    Case("receive-10", "ReceiveMessage of 10 from a filled queue", 4, _receive(10)),
    Case("receive-empty", "ReceiveMessage on an empty queue, no wait", 1, _receive_empty),
    Case("delete", "DeleteMessage", 1, _delete),
    Case("delete-batch", "DeleteMessageBatch of 10", 4, _delete_batch),
    Case("cycle", "send, receive 1, delete: three requests", 3, _cycle),
    Case("fifo-64", "cycle on a FIFO queue with 64 groups", 3, _fifo_cycle(64)),
    Case(
        "fifo-many",
        "cycle on a FIFO queue, 100,000 groups hold messages",
        3,
        _fifo_cycle(None),
        False,
    ),
)


def cycles(steps: Iterable[Steps], load: Load, handles: re.Pattern[bytes] = HANDLE) -> Script:
    """Send, receive one, delete it; the time of an operation is that of the three requests.

    A receive that finds nothing, for others hold what is there, is counted and its cycle not.
    """
    note = load.operation_seconds.append
    for send, receive, delete in steps:
        started = perf_counter()
        yield send
        found = handles.search((yield receive))
        if found is None:
            load.empty += 1
            continue
        yield delete(found[1])
        load.messages += 1
        note(perf_counter() - started)


def scenarios(cases: Iterable[Case]) -> list[Scenario]:
    """Return one scenario per case."""
    return [Scenario(case.name, case.about, _runner(case)) for case in cases]


async def measure_case(stage: Stage, case: Case, connections: int, body_bytes: int) -> None:
    """Measure one case once and note the figures; says so and goes on when it cannot."""
    operations = (
        MOTO_OPERATIONS // case.weight if stage.is_moto else _operations(stage, case, connections)
    )
    run = Run(stage, connections, body_bytes, operations)
    key = f"{case.name}/{connections}/{body_bytes}"
    pool = await stage.pool(connections)
    try:
        prepared = await case.prepare(run, pool)
        await pool.run(prepared.warm, _WARM_SECONDS)
        values = await stage.measure(pool, prepared.measured)
        stage.figures.note(("moto " if stage.is_moto else "") + key, **values)
        say(line(stage.server.name, key, values))
        if prepared.topic_arn is not None:
            await delete_topic(stage, pool, prepared.topic_arn)
        for queue_url in prepared.queue_urls:
            await stage.delete_queue(pool, queue_url)
    except (BadAnswer, CannotMeasure) as error:
        say(f"  {stage.server.name:10} {key:24} not measured: {error}")
    finally:
        pool.close()


def _runner(case: Case) -> Callable[[Bench], Awaitable[None]]:
    async def run(bench: Bench) -> None:
        try:
            stage = bench.stage_with(dict(case.environment))
        except CannotMeasure as error:
            say(f"  {case.name} not measured: {error}")
            return
        for connections in bench.options.connections:
            for body_bytes in bench.options.body_bytes:
                if case.is_measured(connections, body_bytes):
                    await measure_case(stage, case, connections, body_bytes)

    return run


async def measure_moto(bench: Bench, cases: Iterable[Case]) -> None:
    """Measure moto on the same cases, once, with few operations: its receive is linear in depth."""
    if bench.moto is None:
        return
    for case in cases:
        if not case.on_moto:
            continue
        for connections in bench.options.connections:
            if (
                connections in MOTO_CONNECTIONS
                and 1024 in bench.options.body_bytes
                and case.is_measured(connections, 1024)
            ):
                await measure_case(bench.moto, case, connections, 1024)


def _operations(stage: Stage, case: Case, connections: int) -> int:
    most = {1: 2_000, 16: 8_000, 64: 12_000}.get(connections, 15_000)
    return max(connections * 2, int(most * stage.options.scale / case.weight))


def line(server: str, key: str, values: dict[str, float]) -> str:
    """Format one run of a case, printed before all runs are done."""
    return (
        f"  {server:10} {key:24} {values['gateway_us']:8.1f} + {values['database_us']:6.1f} us"
        f"  p50 {values['p50_ms']:7.2f}  p99 {values['p99_ms']:7.2f} ms"
        f"  {values['per_second']:8.0f}/s"
        + (f"  {values['empty']:.0f} empty" if values["empty"] else "")
    )


def receive_request(stage: Stage, queue_url: str, count: int) -> bytes:
    """Return a receive of up to so many messages, without a wait."""
    members = {"QueueUrl": queue_url, "MaxNumberOfMessages": count, "WaitTimeSeconds": 0}
    return stage.renderer.request("ReceiveMessage", members)


async def _handles(run: Run, queue_url: str, count: int) -> list[bytes]:
    await run.stage.fill(queue_url, count + 10, run.body_bytes)
    return await run.stage.collect(queue_url, count)


def repeated(run: Run, requests: Iterable[bytes], *queue_urls: str) -> Prepared:
    """The same requests over and over."""
    return _scripts(run, itertools.cycle(requests), *queue_urls)


def _scripts(run: Run, requests: Iterable[bytes], *queue_urls: str) -> Prepared:
    warm, measured = split(run, requests)
    return Prepared(lambda _: plain(warm), lambda _: plain(measured), queue_urls)


def split(run: Run, supply: Iterable[T]) -> tuple[Iterator[T], Iterator[T]]:
    """Return what the warm-up and the measured part take of one supply."""
    shared = iter(supply)
    return itertools.islice(shared, run.warm), itertools.islice(shared, run.operations)


def _counting(supply: Iterable[bytes], load: Load) -> Script:
    for request in supply:
        answer = yield request
        found = len(HANDLE.findall(answer))
        load.messages += found
        load.empty += not found


def fifo_sends(stage: Stage, queue_url: str, body_bytes: int) -> Callable[[int, int], bytes]:
    """Return a function of group and number: SendMessage with a deduplication id of its own."""
    return stage.renderer.numbered(
        "SendMessage",
        {
            "QueueUrl": queue_url,
            "MessageBody": message_body(body_bytes),
            "MessageGroupId": "g{n}",
            "MessageDeduplicationId": "d{m}",
        },
        fields=("{n}", "{m}"),
    )


async def _fill_groups(stage: Stage, queue_url: str, groups: int, each: int) -> None:
    """Send so many messages to each of so many groups, in batches of ten."""
    fields = tuple(f"{{g{index}}}" for index in range(10)) + tuple(f"{{d{i}}}" for i in range(10))
    entries = [
        {
            "Id": str(index),
            "MessageBody": message_body(200, index),
            "MessageGroupId": f"g{{g{index}}}",
            "MessageDeduplicationId": f"f{{d{index}}}",
        }
        for index in range(10)
    ]
    members = {"QueueUrl": queue_url, "Entries": entries}
    render = stage.renderer.numbered("SendMessageBatch", members, fields=fields)
    total = groups * each
    requests = (
        render(*(n % groups for n in range(start, start + 10)), *range(start, start + 10))
        for start in range(0, total, 10)
    )
    await stage.drain(requests)

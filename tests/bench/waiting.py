"""Long polls: how fast a waiting one wakes, and what many idle ones cost."""

import asyncio
import itertools
from time import perf_counter

from tests.bench.client import Load, Pool, Script, find_handle
from tests.bench.rendering import Renderer
from tests.bench.servers import database_url
from tests.bench.stage import Bench, Scenario, Stage, elapse, percentile, plain, say

WAIT_SECONDS = 20
WAKES = 300
MOTO_WAKES = 20
SENDS = 600
_PARKED_SECONDS = 0.02
_POLLS_PER_QUEUE = 10


def scenarios() -> list[Scenario]:
    """Return the scenarios of this file."""
    return [
        Scenario("wake", "a waiting long poll, from send to receipt, in one process", _wake_same),
        Scenario("wake-other", "the same between two gateways on one database", _wake_other),
        Scenario("idle-polls", "many idle long polls, and sends beside them", _idle_polls),
    ]


async def _wake_same(bench: Bench) -> None:
    count = max(20, int(WAKES * bench.options.scale))
    await measure_wakes(bench.queuegate, "wake", bench.queuegate.server.address, count)
    if bench.moto is not None:
        await measure_wakes(bench.moto, "moto wake", bench.moto.server.address, MOTO_WAKES)


async def _wake_other(bench: Bench) -> None:
    count = max(20, int(WAKES * bench.options.scale))
    stage = bench.queuegate
    second = bench.workshop.start_second_gateway(database_url(stage.server))
    try:
        await measure_wakes(stage, "wake-other", second.address, count)
    finally:
        second.stop()


async def measure_wakes(stage: Stage, key: str, waiter: tuple[str, int], count: int) -> None:
    """Park a long poll at `waiter`, send through the stage's server; time from send to receipt."""
    waiting = await Pool.open(waiter, 1)
    sending = await stage.pool(1)
    queue_url = await stage.create_queue(sending)
    members = {"QueueUrl": queue_url, "WaitTimeSeconds": WAIT_SECONDS}
    receive = Renderer(*waiter).request("ReceiveMessage", members)
    send = stage.send_request(queue_url, 1024)
    delete = stage.renderer.deletion(queue_url)
    seconds = []
    try:
        for _ in range(count):
            poll = asyncio.create_task(waiting.exchange(receive))
            await asyncio.wait({poll}, timeout=_PARKED_SECONDS)
            started = perf_counter()
            sent = asyncio.create_task(sending.exchange(send))
            handle = find_handle(await poll)
            if handle is not None:
                seconds.append(perf_counter() - started)
            await sent
            if handle is not None:
                await sending.exchange(delete(handle))
        await stage.delete_queue(sending, queue_url)
    finally:
        waiting.close()
        sending.close()
    seconds.sort()
    p50, p99 = (percentile(seconds, percent) * 1000 for percent in (50, 99))
    stage.figures.note(key, p50_ms=p50, p99_ms=p99, operations=len(seconds))
    say(f"  {key}: p50 {p50:.2f} ms, p99 {p99:.2f} ms, {len(seconds)} wakes")


async def _idle_polls(bench: Bench) -> None:
    stage, options = bench.queuegate, bench.options
    control = await stage.pool(1)
    send_url = await stage.create_queue(control)
    wait_urls = [
        await stage.create_queue(control) for _ in range(max(1, options.polls // _POLLS_PER_QUEUE))
    ]
    idle_share = await cpu_share(stage, options.idle_seconds / 4)
    before = await _send_time(stage, send_url)
    polls = await stage.pool(options.polls)
    requests = itertools.cycle([_poll_request(stage, url) for url in wait_urls])
    task = asyncio.create_task(
        polls.run(lambda _: _poll_for_ever(next(requests)), options.idle_seconds + 600)
    )
    try:
        await elapse(2.0)
        share = await cpu_share(stage, options.idle_seconds)
        beside = await _send_time(stage, send_url)
        if task.done():
            await task
    finally:
        polls.close()
        task.cancel()
    after = await _send_time(stage, send_url)
    ratio = beside * 2 / (before + after)
    stage.figures.note(
        "idle-polls",
        cpu_percent=share,
        idle_percent=idle_share,
        send_p50_ms=beside,
        base_send_p50_ms=(before + after) / 2,
        ratio=ratio,
    )
    say(
        f"  {options.polls} idle polls: {share:.2f} % of a core (without: {idle_share:.2f} %); "
        f"send {beside:.2f} ms beside them, ratio {ratio:.2f}"
    )
    for url in [send_url, *wait_urls]:
        await stage.delete_queue(control, url)
    control.close()


async def cpu_share(stage: Stage, seconds: float) -> float:
    """Return the CPU of gateway and database over so many seconds, in percent of one core."""
    stage.server.tree.settle()
    started, before = perf_counter(), stage.server.tree.usage()
    await elapse(seconds)
    spent = stage.server.tree.usage() - before
    return (spent.gateway_seconds + spent.database_seconds) / (perf_counter() - started) * 100


async def _send_time(stage: Stage, queue_url: str) -> float:
    """Return the median time of a send on one connection, in milliseconds."""
    count = max(100, int(SENDS * stage.options.scale))
    supply = itertools.repeat(stage.send_request(queue_url, 1024), count)

    def script(load: Load) -> Script:
        return plain(supply)

    pool = await stage.pool(1)
    try:
        return (await stage.measure(pool, script))["p50_ms"]
    finally:
        pool.close()


def _poll_request(stage: Stage, queue_url: str) -> bytes:
    members = {"QueueUrl": queue_url, "WaitTimeSeconds": WAIT_SECONDS}
    return stage.renderer.request("ReceiveMessage", members)


def _poll_for_ever(request: bytes) -> Script:
    while True:
        yield request

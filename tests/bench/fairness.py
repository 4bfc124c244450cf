"""The effect of a neighbour at its quota on another account."""

import asyncio
import contextlib
import itertools
import json
import multiprocessing
import subprocess
import sys
from time import perf_counter

from tests.bench.client import BadAnswer, Pool
from tests.bench.overload import by_account
from tests.bench.rendering import Renderer
from tests.bench.stage import Bench, Scenario, Stage, elapse, percentile, say

NEIGHBOUR = "999988887777"
QUOTA = ("--requests", "200/s", "--bytes", "10MB/s")
LONG_POLLS = 5_000
LONG_BYTES = 1_000_000
_PORTION = 65_536
_WARMING_SECONDS = 15.0


def scenarios() -> list[Scenario]:
    """Return the scenario of this file."""
    return [Scenario("quota", "a send of 1 byte beside an account at its quota", _run)]


async def _run(bench: Bench) -> None:
    data = bench.workshop.new_data_directory()
    server = bench.workshop.start_queuegate(data, {"QUEUEGATE_LOG_LEVEL": "error"})
    stage = Stage(server, bench.options, bench.figures)
    command = [sys.executable, "-m", "queuegate", "quotas", "set", NEIGHBOUR, *QUOTA]
    command += ["--data", str(data)]
    await asyncio.to_thread(subprocess.check_call, command, stdout=subprocess.DEVNULL)
    control = await stage.pool(1)
    scale = min(stage.options.scale, 1.0)
    # A loop of its own: what holds the client up is not to be measured.
    noise = multiprocessing.get_context("spawn").Process(
        target=_neighbour, args=(server.address, scale), daemon=True
    )
    try:
        queue_url = await stage.create_queue(control)
        send = stage.send_request(queue_url, 1)
        alone, failed = await _sends(control, send, stage.options.run_seconds / 2)
        noise.start()
        await elapse(_WARMING_SECONDS)
        beside, failed = await _sends(control, send, stage.options.run_seconds)
    finally:
        if noise.pid is not None:
            noise.kill()
            noise.join()
        control.close()
        server.stop()
    values = {
        "p50_ms": percentile(beside, 50) * 1000,
        "p99_ms": percentile(beside, 99) * 1000,
        "base_p99_ms": percentile(alone, 99) * 1000,
        "times": percentile(beside, 99) / percentile(alone, 99),
        "failed": failed,
        "operations": len(beside),
    }
    stage.figures.note("quota", **values)
    say("  quota: " + ", ".join(f"{name} {value:.2f}" for name, value in values.items()))


def _neighbour(address: tuple[str, int], scale: float) -> None:
    asyncio.run(_noise(address, scale))


async def _noise(address: tuple[str, int], scale: float) -> None:
    """Do all that the neighbour does for ever, whatever it is answered."""
    renderer = Renderer(*address)

    def asked(action: str, **members: object) -> bytes:
        return by_account(renderer.request(action, members), NEIGHBOUR)

    await _ask(address, asked("CreateQueue", QueueName="noisy"))
    await _ask(address, asked("CreateQueue", QueueName="idle"))
    url, idle = (f"http://localhost/{NEIGHBOUR}/{name}" for name in ("noisy", "idle"))
    entries = [{"Id": str(n), "MessageBody": "b" * 100_000} for n in range(10)]
    browse = f"GET /v1/queues/noisy/messages HTTP/1.1\r\nHost: localhost:{address[1]}\r\n".encode()
    browse += (
        asked("X")
        .partition(b"Authorization: ")[2]
        .partition(b"\r\n")[0]
        .join((b"Authorization: ", b"\r\n\r\n"))
    )
    kinds = {
        asked("SendMessage", QueueUrl=url, MessageBody="b" * LONG_BYTES): (8, True),
        asked("SendMessageBatch", QueueUrl=url, Entries=entries): (8, True),
        browse: (8, True),
        asked("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0): (
            32,
            False,
        ),
        asked("ReceiveMessage", QueueUrl=idle, WaitTimeSeconds=20): (
            int(LONG_POLLS * scale),
            True,
        ),
    }
    repeating = [
        _repeat(address, request, reads=reads)
        for request, (count, reads) in kinds.items()
        for _ in range(count)
    ]
    await asyncio.gather(*repeating)


async def _repeat(address: tuple[str, int], request: bytes, *, reads: bool) -> None:
    """Ask on connections of its own for ever; without ``reads`` leave the answers there."""
    for _ in itertools.count():
        was_refused = True
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            was_refused = await _ask(address, request, reads=reads)
        await elapse(1.0 if was_refused else 0.05)


async def _ask(address: tuple[str, int], request: bytes, *, reads: bool = True) -> bool:
    """Return whether the request was refused: its sender backs off then, as SDKs do."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        left = int(head.lower().partition(b"content-length:")[2].partition(b"\r")[0] or 0)
        if not reads and left > _PORTION:
            await elapse(10.0)
        while reads and left > 0:
            left -= len(await reader.readexactly(min(left, _PORTION)))
        return b" 200 " not in head[:20]
    finally:
        writer.close()


async def _sends(pool: Pool, request: bytes, seconds: float) -> tuple[list[float], int]:
    """Return how long sends took, in order, and how many failed."""
    ended, found, failed = perf_counter() + seconds, [], 0
    while (started := perf_counter()) < ended:
        try:
            await pool.exchange(request)
        except BadAnswer as bad:
            failed += 1
            say(f"  a send failed: {json.dumps(str(bad))[:200]}")
        found.append(perf_counter() - started)
    return sorted(found), failed

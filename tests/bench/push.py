"""Push over WebSockets: from publish to frame, messages a second, and what those that wait cost."""

import asyncio
import itertools
import re
from collections.abc import Callable
from time import perf_counter

from tests.bench.client import Load, Pool, Script
from tests.bench.faces import json_request
from tests.bench.rendering import message_body
from tests.bench.servers import database_url
from tests.bench.stage import Bench, Scenario, Stage, elapse, percentile, plain, say
from tests.bench.waiting import cpu_share
from tests.websockets import frames, masked

PUSHES = 300
CONSUMERS = (1, 100, 1_000)
MESSAGES = 10_000
IDLE = 10_000
CREDIT = 10
_BODY_BYTES = 1024
_PUBLISHERS = 8
_AT_ONCE = 10
_OPENED_AT_ONCE = 100
_MOST_SECONDS = 120
_PING, _PONG, _TEXT = 9, 10, 1
_TOKEN = re.compile(rb'"ack":"([^"]+)"')
_NUMBERS = itertools.count(1)
_UPGRADE = (
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def scenarios() -> list[Scenario]:
    """Return the scenarios of this file."""
    return [
        Scenario("push", "from publish to the frame of a WebSocket, in one process", _push_same),
        Scenario("push-other", "the same between two gateways on one database", _push_other),
        Scenario("push-many", "messages a second to 1, 100 and 1,000 consumers", _push_many),
        Scenario("push-idle", "10,000 idle WebSockets, and 10,000 idle streams", _push_idle),
    ]


class Listener(asyncio.Protocol):
    """A consumer that acknowledges whatever comes."""

    def __init__(self, took: Callable[[int], None], *, acknowledges: bool = True) -> None:
        self._took = took
        self._acknowledges = acknowledges
        self._data = bytearray()
        self._transport: asyncio.Transport | None = None
        self._opened: asyncio.Future[None] | None = None

    async def open(self, address: tuple[str, int], path: str, more: str = _UPGRADE) -> None:
        """Connect; raises OSError."""
        host, port = address
        loop = asyncio.get_running_loop()
        self._opened = loop.create_future()
        await loop.create_connection(lambda: self, host, port)
        assert self._transport is not None
        head = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n{more}\r\n"
        self._transport.write(head.encode())
        await self._opened

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        if self._opened is not None:
            head, mark, rest = bytes(self._data).partition(b"\r\n\r\n")
            if not mark:
                return
            if head[9:12] not in (b"101", b"200"):
                self._opened.set_exception(OSError(head.decode()))
                return
            self._opened.set_result(None)
            self._opened = None
            self._data[:] = rest if head[9:12] == b"101" else b""
        self._take()

    def _take(self) -> None:
        tokens = []
        for opcode, payload in frames(self._data):
            if opcode == _PING:
                self._send(_PONG, payload)
            elif payload.startswith(b'{"type":"message"'):
                found = _TOKEN.search(payload)
                assert found is not None
                tokens.append(found[1])
        if tokens:
            self._took(len(tokens))
            if self._acknowledges:
                self._send(_TEXT, b'{"ack":["%b"]}' % b'","'.join(tokens))

    def _send(self, opcode: int, payload: bytes) -> None:
        assert self._transport is not None
        self._transport.write(masked(opcode, payload))

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()


def _channel() -> str:
    return f"push-{next(_NUMBERS)}"


def socket_path(channel: str) -> str:
    return f"/v1/messages/socket?channel={channel}&credit={CREDIT}&window=3600"


def channel_publish(stage: Stage, channel: str) -> bytes:
    message = {"channel": channel, "payload": message_body(_BODY_BYTES)}
    return json_request(stage, "POST", "/v1/messages", message)


async def _push_same(bench: Bench) -> None:
    await _measure_latency(bench.queuegate, "push", bench.queuegate.server.address)


async def _push_other(bench: Bench) -> None:
    second = bench.workshop.start_second_gateway(database_url(bench.queuegate.server))
    try:
        await _measure_latency(bench.queuegate, "push-other", second.address)
    finally:
        second.stop()


async def _measure_latency(stage: Stage, key: str, address: tuple[str, int]) -> None:
    """Listen there, publish here, one at a time."""
    count = max(20, int(PUSHES * stage.options.scale))
    channel = _channel()
    came = asyncio.Event()
    listener = Listener(lambda _: came.set())
    await listener.open(address, socket_path(channel))
    publishing = await stage.pool(1)
    request, elsewhere = channel_publish(stage, channel), channel_publish(stage, _channel())
    seconds, answers = [], []
    try:
        for _ in range(count):
            # So that it waits again when the next one comes.
            await elapse(0.02)
            came.clear()
            started = perf_counter()
            sent = asyncio.create_task(publishing.exchange(request))
            await asyncio.wait_for(came.wait(), _MOST_SECONDS)
            seconds.append(perf_counter() - started)
            await sent
            # One by itself, to know how much of it is the commit.
            await elapse(0.02)
            started = perf_counter()
            await publishing.exchange(elsewhere)
            answers.append(perf_counter() - started)
    finally:
        listener.close()
        publishing.close()
    seconds.sort()
    p50, p99 = (percentile(seconds, percent) * 1000 for percent in (50, 99))
    answer = percentile(sorted(answers), 50) * 1000
    stage.figures.note(key, p50_ms=p50, p99_ms=p99, answer_p50_ms=answer, operations=len(seconds))
    say(
        f"  {key}: p50 {p50:.2f} ms, p99 {p99:.2f} ms, {len(seconds)} messages; a publish that "
        f"nobody waits for is answered in {answer:.2f} ms"
    )


async def _push_many(bench: Bench) -> None:
    for consumers in CONSUMERS:
        await _measure_rate(bench.queuegate, consumers)


async def _measure_rate(stage: Stage, consumers: int) -> None:
    """Publish in tens over a few connections; the time until all is acknowledged."""
    count = max(10 * consumers, int(MESSAGES * stage.options.scale)) // _AT_ONCE * _AT_ONCE
    channel = _channel()
    left = count
    over = asyncio.Event()

    def took(number: int) -> None:
        nonlocal left
        left -= number
        if left <= 0:
            over.set()

    listeners = await _open(
        [Listener(took) for _ in range(consumers)], stage.server.address, [socket_path(channel)]
    )
    message = {"channel": channel, "payload": message_body(_BODY_BYTES)}
    bulk = json_request(stage, "POST", "/v1/messages/bulk", [message] * _AT_ONCE)
    supply = itertools.repeat(bulk, count // _AT_ONCE)
    pool = await stage.pool(_PUBLISHERS)
    stage.server.tree.settle()
    before, started = stage.server.tree.usage(), perf_counter()

    def script(_: Load) -> Script:
        return plain(supply)

    publishing = asyncio.create_task(pool.run(script, _MOST_SECONDS))
    await asyncio.wait_for(over.wait(), _MOST_SECONDS)
    seconds = perf_counter() - started
    await publishing
    spent = stage.server.tree.usage() - before
    for one in listeners:
        one.close()
    pool.close()
    own, database = spent.gateway_seconds / count * 1e6, spent.database_seconds / count * 1e6
    stage.figures.note(
        f"push-many/{consumers}",
        per_second=count / seconds,
        gateway_us=own,
        database_us=database,
        total_us=own + database,
    )
    say(
        f"  {consumers} consumers: {count / seconds:.0f} messages a second published, pushed and "
        f"acknowledged; {own:.0f} + {database:.0f} µs each"
    )


async def _push_idle(bench: Bench) -> None:
    stage = bench.queuegate
    count = max(_OPENED_AT_ONCE, int(IDLE * stage.options.scale))
    idle_share = await cpu_share(stage, stage.options.idle_seconds / 4)
    await _measure_idle(stage, "push-idle", count, [socket_path(_channel())], idle_share)
    stream = f"/v1/messages/stream?channel={_channel()}"
    await _measure_idle(stage, "push-idle-streams", count, [stream], idle_share, more="")
    channels = await stage.pool(_PUBLISHERS)
    names = [_channel() for _ in range(count)]
    await _make(stage, channels, names)
    sockets = [socket_path(name) for name in names]
    await _measure_idle(stage, "push-idle-channels", count, sockets, idle_share)
    channels.close()


async def _make(stage: Stage, pool: Pool, names: list[str]) -> None:
    """Make channels, so that connecting to them does not."""
    supply = iter([json_request(stage, "PUT", f"/v1/channels/{name}", {}) for name in names])
    await pool.run(lambda _: plain(supply), _MOST_SECONDS)


async def _measure_idle(
    stage: Stage, key: str, count: int, paths: list[str], idle_share: float, *, more: str = _UPGRADE
) -> None:
    before = stage.server.tree.memory()
    listeners = [Listener(lambda _: None) for _ in range(count)]
    await _open(listeners, stage.server.address, paths, more)
    await elapse(2.0)
    share = await cpu_share(stage, stage.options.idle_seconds)
    grown = stage.server.tree.memory().gateway_rss - before.gateway_rss
    for one in listeners:
        one.close()
    stage.figures.note(key, cpu_percent=share, idle_percent=idle_share, grown_mb=grown)
    say(
        f"  {key}: {count} on {len(paths)} channels: {grown:.0f} MB more, {share:.1f} % of a core "
        f"(without: {idle_share:.1f} %)"
    )
    await elapse(2.0)


async def _open(
    listeners: list[Listener], address: tuple[str, int], paths: list[str], more: str = _UPGRADE
) -> list[Listener]:
    """Let all of them connect, some at a time."""
    path = itertools.cycle(paths)
    for start in range(0, len(listeners), _OPENED_AT_ONCE):
        some = listeners[start : start + _OPENED_AT_ONCE]
        await asyncio.gather(*[one.open(address, next(path), more) for one in some])
    return listeners

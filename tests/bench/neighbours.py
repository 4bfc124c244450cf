"""Effects of one client on the others: a request that holds the event loop, and a busy queue."""

import asyncio
import contextlib
import itertools
import json
import socket
from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter

from tests.bench.client import BadAnswer, Pool, Script
from tests.bench.rendering import SNS_QUERY
from tests.bench.stage import Bench, Scenario, Stage, elapse, percentile, plain, say

REPEATS = 5
NOISY_CONNECTIONS = 24
NOISY_BYTES = 1_000_000
NOISY_PUBLISH_BYTES = 250_000
NOISY_QUEUES = 10
QUEUES = 1_000
_BODY_BYTES = 8 * 1024 * 1024 - 4096
_PAUSE_SECONDS = 0.001
_PATIENCE_SECONDS = 60.0


def scenarios() -> list[Scenario]:
    """Return the scenarios of this file."""
    return [
        Scenario("hold", "pings beside one request of 8 MiB, of many kinds", _hold),
        Scenario("noisy", "a send of 1 byte beside sends of 1 MB to another queue", _noisy_sends),
        Scenario("noisy-publish", "the same beside publishes to 10 queues", _noisy_publishes),
    ]


# One request


async def _hold(bench: Bench) -> None:
    """On a gateway of its own, for the first request for a part of it is one of the kinds."""
    stage = bench.stage_with({"QUEUEGATE_LOG_LEVEL": "error"})
    control, ping = await stage.pool(1), await stage.pool(1)
    try:
        queue_url = await stage.create_queue(control)
        await _fill_with_attributes(stage, control, queue_url)
        worst = 0.0
        for name, render in _kinds(stage, queue_url).items():
            if name == "metrics":
                for _ in range(int(QUEUES * min(stage.options.scale, 1.0))):
                    url = await stage.create_queue(control)
                    await control.exchange(stage.send_request(url, 1))
            # What is done at a first request cannot be repeated.
            repeats = 1 if name.startswith("first") else REPEATS
            held = [await _held_ms(stage, ping, render()) for _ in range(repeats)]
            stage.figures.note(f"hold-{name}", held_ms=median(held))
            say(f"  {name:15} {median(held):8.1f} ms, of {' '.join(f'{one:.1f}' for one in held)}")
            worst = max(worst, median(held))
        stage.figures.note("hold", held_ms=worst)
    finally:
        control.close()
        ping.close()


def _kinds(stage: Stage, queue_url: str) -> dict[str, Callable[[], bytes]]:
    render = stage.renderer
    host = "{}:{}".format(*stage.server.address)
    name = queue_url.rpartition("/")[2]

    def native(method: str, path: str, body: bytes = b"") -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: any\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def around(action: str, member: str, part: bytes, ends: bytes = b"[]") -> bytes:
        start = b'{"QueueUrl": %b, %b: ' % (_text(queue_url), _text(member)) + ends[:1]
        parts = b",".join([part] * ((_BODY_BYTES - len(start)) // (len(part) + 1)))
        return render.wrap(action, start + parts + ends[1:] + b"}")

    def keyed(action: str, member: str, value: bytes) -> bytes:
        start = b'{"QueueUrl": %b, %b: {' % (_text(queue_url), _text(member))
        return render.wrap(action, start + _pairs(value, _BODY_BYTES - len(start)) + b"}}")

    def form(text: bytes) -> bytes:
        head = b"Action=SendMessage&QueueUrl=%b&MessageBody=" % queue_url.encode()
        body = head + text * ((_BODY_BYTES - len(head)) // len(text))
        return render.wrap("SendMessage", body, SNS_QUERY)

    def native_message(headers: bytes) -> bytes:
        body = b'{"message": 1, "headers": {' + headers + b"}}"
        return native("POST", f"/v1/queues/{name}/messages", body)

    def native_batch() -> bytes:
        body = b"[" + b",".join([b'{"message":1}'] * (_BODY_BYTES // 14)) + b"]"
        return native("POST", f"/v1/queues/{name}/messages", body)

    return {
        "nothing": lambda: native("GET", "/livez"),
        "first-native": lambda: native("GET", "/v1/queues"),
        "first-openapi": lambda: native("GET", "/v1/openapi.json"),
        "first-metrics": lambda: native("GET", "/metrics"),
        "receive-names": lambda: around("ReceiveMessage", "MessageAttributeNames", b'"name123.*"'),
        "receive-16k": lambda: render.wrap(
            "ReceiveMessage",
            b'{"QueueUrl": %b, "MaxNumberOfMessages": 10, "VisibilityTimeout": 0, '
            b'"MessageAttributeNames": ["n"%b]}' % (_text(queue_url), b',"a.*"' * 10_000),
        ),
        "attributes": lambda: keyed("SendMessage", "MessageAttributes", b"{}"),
        "tags": lambda: keyed("TagQueue", "Tags", b'""'),
        "keys": lambda: render.wrap("SendMessage", b"{" + _pairs(b"1", _BODY_BYTES) + b"}"),
        "entries": lambda: around("SendMessageBatch", "Entries", b"{}"),
        "lists": lambda: around("SendMessage", "X", b"[]"),
        "text": lambda: around("SendMessage", "MessageBody", b"x" * 1024, b'""'),
        "escapes": lambda: around("SendMessage", "MessageBody", rb"\"\\" * 256, b'""'),
        "form-signs": lambda: form(b"%"),
        "form-escapes": lambda: form(b"%41"),
        "native-headers": lambda: native_message(_pairs(b"1", _BODY_BYTES)),
        "native-batch": native_batch,
        "metrics": lambda: native("GET", "/metrics"),
    }


def _text(value: str) -> bytes:
    return json.dumps(value).encode()


def _pairs(value: bytes, size_bytes: int) -> bytes:
    """Members of a JSON object, of about so many bytes."""
    count = size_bytes // (len(value) + 11)
    return b",".join([b'"%07d":%b' % (number, value) for number in range(count)])


async def _fill_with_attributes(stage: Stage, pool: Pool, queue_url: str) -> None:
    attributes = {f"n{n}": {"DataType": "String", "StringValue": "v"} for n in range(10)}
    members = {"QueueUrl": queue_url, "MessageBody": "b", "MessageAttributes": attributes}
    for _ in range(20):
        await pool.exchange(stage.renderer.request("SendMessage", members))


async def _held_ms(stage: Stage, ping: Pool, request: bytes) -> float:
    """Return how long the slowest ping took that was under way beside the request."""
    host = "{}:{}".format(*stage.server.address)
    livez = f"GET /livez HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    # In a thread, which writes without holding up the pings.
    asked = asyncio.create_task(asyncio.to_thread(_ask, stage.server.address, request))
    slowest = 0.0
    while not asked.done():
        started = perf_counter()
        await ping.exchange(livez)
        slowest = max(slowest, perf_counter() - started)
        await elapse(_PAUSE_SECONDS)
    await asked
    return slowest * 1000


def _ask(address: tuple[str, int], request: bytes) -> None:
    """Send one request on a connection of its own and read until something of an answer is there;
    a gateway that refuses early may close before it has read all."""
    with socket.create_connection(address, _PATIENCE_SECONDS) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(request)
        with contextlib.suppress(ConnectionError):
            connection.recv(65536)


# A noisy queue


async def _noisy_sends(bench: Bench) -> None:
    stage = bench.queuegate
    control = await stage.pool(1)
    queue_url = await stage.create_queue(control)
    request = stage.send_request(queue_url, NOISY_BYTES)
    try:
        await _measure_beside(stage, control, "noisy", request)
    finally:
        await stage.delete_queue(control, queue_url)
        control.close()


async def _noisy_publishes(bench: Bench) -> None:
    stage = bench.queuegate
    control = await stage.pool(1)
    topic = await control.exchange(stage.renderer.form("CreateTopic", {"Name": "noisy"}))
    arn = _between(topic, b"<TopicArn>", b"</TopicArn>")
    queue_urls = [await stage.create_queue(control) for _ in range(NOISY_QUEUES)]
    for url in queue_urls:
        endpoint = f"{arn.rpartition(':')[0].replace(':sns:', ':sqs:')}:{url.rpartition('/')[2]}"
        parameters = {"TopicArn": arn, "Protocol": "sqs", "Endpoint": endpoint}
        await control.exchange(stage.renderer.form("Subscribe", parameters))
    message = {"TopicArn": arn, "Message": "x" * NOISY_PUBLISH_BYTES}
    request = stage.renderer.form("Publish", message)
    try:
        await _measure_beside(stage, control, "noisy-publish", request)
    finally:
        for url in queue_urls:
            await stage.delete_queue(control, url)
        await control.exchange(stage.renderer.form("DeleteTopic", {"TopicArn": arn}))
        control.close()


def _between(answer: bytes, start: bytes, end: bytes) -> str:
    return answer.partition(start)[2].partition(end)[0].decode()


async def _measure_beside(stage: Stage, control: Pool, key: str, noise: bytes) -> None:
    """Note the time of sends of one byte to a queue of their own, alone and beside the noise."""
    queue_url = await stage.create_queue(control)
    send = stage.send_request(queue_url, 1)
    await control.exchange(noise)
    alone = await _send_seconds(control, send, stage.options.run_seconds / 3)
    noisy = await stage.pool(NOISY_CONNECTIONS)
    load = asyncio.create_task(
        noisy.run(lambda _: _endless(noise), stage.options.run_seconds + _PATIENCE_SECONDS)
    )
    try:
        await elapse(1.0)
        beside = await _send_seconds(control, send, stage.options.run_seconds)
        if load.done():
            await load
    finally:
        noisy.close()
        load.cancel()
        with contextlib.suppress(asyncio.CancelledError, BadAnswer):
            await load
    values = {
        "p50_ms": percentile(beside, 50) * 1000,
        "p99_ms": percentile(beside, 99) * 1000,
        "base_p50_ms": percentile(alone, 50) * 1000,
        "operations": len(beside),
    }
    stage.figures.note(key, **values)
    say(f"  {key}: " + ", ".join(f"{name} {value:.2f}" for name, value in values.items()))
    await stage.delete_queue(control, queue_url)


async def _send_seconds(pool: Pool, request: bytes, seconds: float) -> list[float]:
    ended = perf_counter() + seconds
    found = []
    while (started := perf_counter()) < ended:
        await pool.exchange(request)
        found.append(perf_counter() - started)
    return sorted(found)


def _endless(request: bytes) -> Script:
    supply: Iterator[bytes] = itertools.repeat(request)
    return plain(supply)

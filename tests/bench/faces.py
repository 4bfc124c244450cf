"""The cycle of each face (send, receive, finish) beside that of the AWS face, in turn."""

import itertools
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from tests.bench.client import HANDLE, Load, Pool, Script
from tests.bench.hot import Steps, cycles, fifo_sends, receive_request
from tests.bench.rendering import SQS_QUERY, message_body
from tests.bench.stage import Bench, Scenario, Stage, say

BODY_BYTES = 1024
CONNECTIONS = (1, 16, 64)
_COMPARED = {1: 400, 16: 1_600, 64: 2_400}
_LEAST_ROUNDS = 5
_GROUPS = 256
_NUMBERS = itertools.count(1)


@dataclass(frozen=True)
class Cycle:
    """Three requests; ``found`` is what of an answer to a receive goes into the third."""

    queue_url: str
    """By which the AWS face knows the queue: it deletes it."""
    sends: Iterator[bytes]
    receive: bytes
    found: re.Pattern[bytes]
    finish: Callable[[bytes], bytes]

    def steps(self) -> Iterable[Steps]:
        """Cycles without an end."""
        return ((send, self.receive, self.finish) for send in self.sends)


Make = Callable[[Stage, Pool], Awaitable[Cycle]]


async def aws_cycle(stage: Stage, pool: Pool) -> Cycle:
    queue_url = await stage.create_queue(pool)
    return Cycle(
        queue_url,
        itertools.repeat(stage.send_request(queue_url, BODY_BYTES)),
        receive_request(stage, queue_url, 1),
        HANDLE,
        stage.renderer.deletion(queue_url),
    )


async def _query(stage: Stage, pool: Pool) -> Cycle:
    queue_url = await stage.create_queue(pool)

    def form(action: str, **parameters: str) -> bytes:
        return stage.renderer.form(action, {"QueueUrl": queue_url} | parameters, SQS_QUERY)

    def deletion(handle: bytes) -> bytes:
        return form("DeleteMessage", ReceiptHandle=handle.decode())

    return Cycle(
        queue_url,
        itertools.repeat(form("SendMessage", MessageBody=message_body(BODY_BYTES))),
        form("ReceiveMessage", MaxNumberOfMessages="1", WaitTimeSeconds="0"),
        re.compile(rb"<ReceiptHandle>([^<]+)<"),
        deletion,
    )


async def _rest(stage: Stage, pool: Pool) -> Cycle:
    queue_url = await stage.create_queue(pool)
    path = f"/v1/queues/{queue_url.rpartition('/')[2]}/messages"
    before, after = json_request(stage, "DELETE", f"{path}/!").split(b"!")
    return Cycle(
        queue_url,
        itertools.repeat(json_request(stage, "POST", path, {"message": message_body(BODY_BYTES)})),
        json_request(stage, "GET", path),
        re.compile(rb'"id":(\d+)'),
        lambda found: before + found + after,
    )


async def _simple(stage: Stage, pool: Pool) -> Cycle:
    queue_url = await stage.create_queue(pool)
    listing = f"/api/queues?prefix={queue_url.rpartition('/')[2]}"
    listed = await pool.call(json_request(stage, "GET", listing))
    [queue] = cast(list[dict[str, str]], listed["queues"])
    path = f"/api/queues/{queue['queue_id']}/messages"
    before, after = json_request(stage, "DELETE", f"{path}/!").split(b"!")
    return Cycle(
        queue_url,
        itertools.repeat(json_request(stage, "POST", path, {"data": message_body(BODY_BYTES)})),
        json_request(stage, "GET", path),
        re.compile(rb'"message_id":"(\d+)"'),
        lambda found: before + found + after,
    )


async def channel_cycle(stage: Stage, pool: Pool) -> Cycle:
    name = f"channel-{next(_NUMBERS)}"
    publication = {"channel": name, "payload": message_body(BODY_BYTES), "priority": 5}
    publish = json_request(stage, "POST", "/v1/messages", publication)
    await pool.exchange(publish)
    found = await pool.call(stage.renderer.request("GetQueueUrl", {"QueueName": name}))
    ack = f'{{"channel":"{name}","acks":"%b"}}'.encode()
    head = json_request(stage, "POST", "/v1/messages/ack").partition(b"Content-Length")[0]
    return Cycle(
        str(found["QueueUrl"]),
        itertools.repeat(publish),
        json_request(stage, "GET", f"/v1/messages/poll?channel={name}&wait=0&window=3600"),
        re.compile(rb'"ack":"([^"]+)"'),
        lambda token: (
            b"%bContent-Length: %d\r\n\r\n%b" % (head, len(ack) - 2 + len(token), ack % token)
        ),
    )


async def _text(stage: Stage, pool: Pool) -> Cycle:
    queue_url = await stage.create_queue(pool)
    return _plain_text(stage, queue_url, itertools.repeat(""))


async def _text_groups(stage: Stage, pool: Pool) -> Cycle:
    queue_url = await _queue_of_groups(stage, pool)
    turns = (f"&group-id=g{n % _GROUPS}&deduplication-id=d{n}" for n in itertools.count())
    return _plain_text(stage, queue_url, turns)


async def _aws_groups(stage: Stage, pool: Pool) -> Cycle:
    return _cycle_of_groups(stage, await _queue_of_groups(stage, pool), _GROUPS)


async def fifo_cycle(stage: Stage, pool: Pool, groups: int = _GROUPS) -> Cycle:
    """Of a FIFO queue, each group in turn."""
    return _cycle_of_groups(stage, await stage.create_queue(pool, fifo=True), groups)


def _cycle_of_groups(stage: Stage, queue_url: str, groups: int) -> Cycle:
    render = fifo_sends(stage, queue_url, BODY_BYTES)
    return Cycle(
        queue_url,
        (render(n % groups, n) for n in itertools.count()),
        receive_request(stage, queue_url, 1),
        HANDLE,
        stage.renderer.deletion(queue_url),
    )


async def _queue_of_groups(stage: Stage, pool: Pool) -> str:
    """A text queue: one message of a group is out at a time."""
    name = f"text-{next(_NUMBERS)}"
    await pool.exchange(json_request(stage, "POST", "/v1/queues", {"name": name, "serial": True}))
    found = await pool.call(stage.renderer.request("GetQueueUrl", {"QueueName": name}))
    return str(found["QueueUrl"])


def _plain_text(stage: Stage, queue_url: str, turns: Iterator[str]) -> Cycle:
    """``turns`` are the parameters of the sends."""
    host, port = stage.server.address
    body = message_body(BODY_BYTES).encode()

    def request(method: str, more: str, data: bytes = b"") -> bytes:
        target = f"/queue?queue={queue_url.rpartition('/')[2]}{more}"
        head = (
            f"{method} {target} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer bench\r\n"
        )
        return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data

    before, after = request("DELETE", "&receipt-id=!").split(b"!")
    return Cycle(
        queue_url,
        (request("POST", turn, body) for turn in turns),
        request("GET", "&visibility-timeout=3600"),
        re.compile(rb"message-receipt-id: (\S+)"),
        lambda receipt_id: before + receipt_id + after,
    )


def json_request(stage: Stage, method: str, path: str, body: object = None) -> bytes:
    """A request as a client of a face of JSON sends it."""
    host, port = stage.server.address
    data = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer bench\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


CYCLES: dict[str, Make] = {
    "sqs": aws_cycle,
    "sqs-query": _query,
    "rest": _rest,
    "simple": _simple,
    "channels": channel_cycle,
    "text": _text,
    "text-groups": _text_groups,
    "fifo": fifo_cycle,
}
"""The cycle of each face."""

_FACES: tuple[tuple[str, str, Make, Make], ...] = (
    ("face-query", "cycle of SQS over Query against that over JSON, in turn", aws_cycle, _query),
    (
        "face-rest",
        "cycle of the native API against that of the AWS face, in turn",
        aws_cycle,
        _rest,
    ),
    ("face-simple", "the same of the simple queue", aws_cycle, _simple),
    (
        "face-channels",
        "the same of channels, each message with a priority",
        aws_cycle,
        channel_cycle,
    ),
    ("face-text", "the same of the text face, on a standard queue", aws_cycle, _text),
    ("face-text-groups", "the same, both on a text queue", _aws_groups, _text_groups),
)


def scenarios() -> list[Scenario]:
    """Return one scenario per face."""
    return [Scenario(name, about, _runner(name, makes)) for name, about, *makes in _FACES]


def _runner(name: str, makes: Sequence[Make]) -> Callable[[Bench], Awaitable[None]]:
    async def run(bench: Bench) -> None:
        for connections in CONNECTIONS:
            if connections in bench.options.connections:
                pool = await bench.queuegate.pool(connections)
                try:
                    await _compare(bench.queuegate, pool, f"{name}/{connections}", makes)
                finally:
                    pool.close()

    return run


async def _compare(stage: Stage, pool: Pool, key: str, makes: Sequence[Make]) -> None:
    """Note the ratios of CPU, round by round: what else the machine does falls on both."""
    connections = len(pool.connections)
    count = max(2 * connections, int(_COMPARED[connections] * stage.options.scale))
    base, own = [await make(stage, pool) for make in makes]
    for cycle in (base, own):
        # So that a receive finds something while others hold what is there.
        await stage.drain(itertools.islice(cycle.sends, max(2 * connections, _GROUPS)))
        await pool.run(_script(cycle, count // 4), stage.options.run_seconds)
    for _ in range(max(_LEAST_ROUNDS, stage.options.rounds)):
        beside = await stage.measure(pool, _script(base, count))
        values = await stage.measure(pool, _script(own, count))
        stage.figures.note(
            key,
            **{name: values[name] for name in ("gateway_us", "database_us", "total_us", "p50_ms")},
            base_total_us=beside["total_us"],
            ratio=values["total_us"] / beside["total_us"],
        )
    for cycle in (base, own):
        await stage.delete_queue(pool, cycle.queue_url)
    summary = stage.figures.summary()[key]
    say(
        f"  {key}: {summary['gateway_us']:.1f} + {summary['database_us']:.1f} us against "
        f"{summary['base_total_us']:.1f}, ratio {summary['ratio']:.2f}"
    )


def _script(cycle: Cycle, count: int) -> Callable[[Load], Script]:
    supply: Iterator[Steps] = itertools.islice(cycle.steps(), count)
    return lambda load: cycles(supply, load, cycle.found)

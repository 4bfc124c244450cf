"""Logs: publishing by partitions, singly and in batches, and reading by offset, per record; beside
each a send to a queue, in turn."""

import itertools
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from tests.bench.client import Load, Pool, Script
from tests.bench.faces import json_request
from tests.bench.rendering import message_body
from tests.bench.stage import Bench, Scenario, Stage, plain, say

_BODY_BYTES = 1024
_RECORD_BYTES = 500
_CONNECTIONS = 64
PARTITIONS = (1, 16, 1_000)
_BATCH = 100
_READ_RECORDS = 100_000
_REQUESTS = 2_400
_LEAST_ROUNDS = 5
_NUMBERS = itertools.count(1)


@dataclass(frozen=True)
class Publishing:
    """The form in which records are published."""

    partitions: int
    batch: int
    has_ids: bool = False

    def requests(self, stage: Stage, log: str) -> Iterator[bytes]:
        """Without an end; each key in turn."""
        body = message_body(_BODY_BYTES if self.batch == 1 else _RECORD_BYTES)
        numbers = itertools.count()
        while True:
            records = [
                {"key": f"k{number % self.partitions}", "payload": body}
                | ({"id": str(number)} if self.has_ids else {})
                for number in itertools.islice(numbers, self.batch)
            ]
            yield json_request(stage, "POST", f"/v1/logs/{log}/records", {"records": records})


def scenarios() -> list[Scenario]:
    """Return what can be measured of logs."""
    return [
        Scenario(
            "log-publish",
            "publish of a record of 1 KB over 1, 16 and 1,000 partitions, CPU beside a send",
            _publishing(1),
        ),
        Scenario(
            "log-publish-batch",
            f"the same of {_BATCH} records of {_RECORD_BYTES} bytes a request, per record",
            _publishing(_BATCH),
        ),
        Scenario("log-read", "records of 500 bytes read by offset, 1 MB a request", _read),
    ]


def _publishing(batch: int) -> Callable[[Bench], Awaitable[None]]:
    async def run(bench: Bench) -> None:
        stage = bench.queuegate
        kinds = [Publishing(partitions, batch) for partitions in PARTITIONS]
        kinds.append(Publishing(16, batch, has_ids=True))
        pool = await stage.pool(_CONNECTIONS)
        try:
            for kind in kinds:
                await _compare(stage, pool, kind)
        finally:
            pool.close()

    return run


async def _compare(stage: Stage, pool: Pool, kind: Publishing) -> None:
    log = f"bench-{next(_NUMBERS)}"
    ids = "-ids" if kind.has_ids else ""
    name = "log-publish" if kind.batch == 1 else "log-publish-batch"
    key = f"{name}/{kind.partitions}{ids}"
    queue_url = await stage.create_queue(pool)
    send = stage.send_request(queue_url, _BODY_BYTES)
    supply = kind.requests(stage, log)
    count = max(2 * _CONNECTIONS, int(_REQUESTS * stage.options.scale)) // (
        1 if kind.batch == 1 else 8
    )
    await stage.drain([next(supply) for _ in range(-(-kind.partitions // kind.batch))])
    for _ in range(max(_LEAST_ROUNDS, stage.options.rounds)):
        beside = await stage.measure(pool, _script(itertools.repeat(send, count)))
        # Made before: the client's part is not measured, but shares the machine.
        made = [*itertools.islice(supply, count)]
        values = await stage.measure(pool, _script(iter(made)))
        per_record = {
            field: values[field] / kind.batch for field in ("gateway_us", "database_us", "total_us")
        }
        stage.figures.note(
            key,
            **per_record,
            p50_ms=values["p50_ms"],
            per_second=values["per_second"] * kind.batch,
            base_total_us=beside["total_us"],
            ratio=per_record["total_us"] / beside["total_us"],
        )
    await stage.delete_queue(pool, queue_url)
    await pool.exchange(json_request(stage, "DELETE", f"/v1/logs/{log}"))
    _say(stage, key)


async def _read(bench: Bench) -> None:
    stage = bench.queuegate
    log = f"bench-{next(_NUMBERS)}"
    count = max(_BATCH * 10, int(_READ_RECORDS * stage.options.scale))
    supply = Publishing(16, _BATCH).requests(stage, log)
    await stage.drain([next(supply) for _ in range(count // _BATCH)])
    pool = await stage.pool(1)
    try:
        for _ in range(max(_LEAST_ROUNDS, stage.options.rounds)):
            values = await stage.measure(pool, _reading(stage, log))
            each = values["operations"] / count
            stage.figures.note(
                "log-read/16",
                gateway_us=values["gateway_us"] * each,
                database_us=values["database_us"] * each,
                total_us=values["total_us"] * each,
                p50_ms=values["p50_ms"],
                per_second=values["per_second"] / each,
            )
        await pool.exchange(json_request(stage, "DELETE", f"/v1/logs/{log}"))
    finally:
        pool.close()
    _say(stage, "log-read/16")


def _reading(stage: Stage, log: str) -> Callable[[Load], Script]:
    """Read all of a log, once."""

    def script(_: Load) -> Script:
        ranges = [{"partition": number, "from": 0} for number in range(16)]
        while True:
            body = {"ranges": ranges}
            answer = yield json_request(stage, "POST", f"/v1/logs/{log}/read", body)
            found = json.loads(answer.partition(b"\r\n\r\n")[2])["ranges"]
            ranges = [{"partition": one["partition"], "from": one["next"]} for one in found]
            if not any(one["offsets"] for one in found):
                return

    return script


def _script(requests: Iterator[bytes]) -> Callable[[Load], Script]:
    return lambda _: plain(requests)


def _say(stage: Stage, key: str) -> None:
    found = stage.figures.summary()[key]
    beside = f" against {found['base_total_us']:.1f}" if "base_total_us" in found else ""
    say(
        f"  {key}: {found['gateway_us']:.1f} + {found['database_us']:.1f} us a record{beside}, "
        f"{found['per_second']:.0f}/s"
    )

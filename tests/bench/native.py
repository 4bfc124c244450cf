"""The native API: sends, and receives with their deletes."""

import itertools
import re
from collections.abc import Iterator
from time import perf_counter

from tests.bench.client import Load, Pool, Script
from tests.bench.faces import json_request
from tests.bench.hot import Case, Prepared, Run, repeated, split
from tests.bench.rendering import message_body

_AT_16_AND_64 = ((16, 1024), (64, 1024))
_LINGER = (("QUEUEGATE_LINGER_MS", "5"),)
_ID = re.compile(rb'"id":(\d+)')


def _path(queue_url: str) -> str:
    return f"/v1/queues/{queue_url.rpartition('/')[2]}/messages"


async def _send(run: Run, pool: Pool) -> Prepared:
    return await _sends(run, pool, sync_commit=True)


async def _send_async(run: Run, pool: Pool) -> Prepared:
    return await _sends(run, pool, sync_commit=False)


async def _sends(run: Run, pool: Pool, *, sync_commit: bool) -> Prepared:
    queue_url = await run.stage.create_queue(pool)
    body: dict[str, object] = {
        "message": {"text": message_body(run.body_bytes)},
        "headers": {"tenant": "acme"},
    }
    if not sync_commit:
        body["sync_commit"] = False
    return repeated(run, [json_request(run.stage, "POST", _path(queue_url), body)], queue_url)


async def _receive_and_delete(run: Run, pool: Pool) -> Prepared:
    queue_url = await run.stage.create_queue(pool)
    await run.stage.fill(queue_url, run.operations + run.warm + run.connections, run.body_bytes)
    path = _path(queue_url)
    receive = json_request(run.stage, "GET", path)
    delete = json_request(run.stage, "DELETE", f"{path}/!").split(b"!")
    warm, measured = split(run, itertools.repeat(receive))

    def script(supply: Iterator[bytes], load: Load) -> Script:
        for request in supply:
            started = perf_counter()
            found = _ID.search((yield request))
            if found is None:
                load.empty += 1
                continue
            yield found[1].join(delete)
            load.messages += 1
            load.operation_seconds.append(perf_counter() - started)

    return Prepared(
        lambda load: script(warm, load), lambda load: script(measured, load), (queue_url,)
    )


CASES = (
    Case("rest-send", "POST of a message, native API", 1, _send, False, _AT_16_AND_64),
    Case(
        "rest-send-async",
        "the same, sync_commit false",
        1,
        _send_async,
        False,
        _AT_16_AND_64,
    ),
    Case(
        "rest-send-linger",
        "the same, on a gateway that gathers sends for 5 ms",
        1,
        _send,
        False,
        _AT_16_AND_64,
        _LINGER,
    ),
    Case(
        "rest-send-linger-async",
        "both",
        1,
        _send_async,
        False,
        _AT_16_AND_64,
        _LINGER,
    ),
    Case(
        "rest-receive",
        "GET of one message and its DELETE: two requests",
        2,
        _receive_and_delete,
        False,
        _AT_16_AND_64,
    ),
)

"""A send whose signature is verified, beside one that any credentials let in, in turn."""

import base64
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

from queuegate.protocol import sigv4
from queuegate.protocol.sigv4 import SignedRequest
from tests.bench.client import Load, Pool, Script
from tests.bench.rendering import ACCESS_KEY, message_body
from tests.bench.servers import CannotMeasure, database_url
from tests.bench.stage import Bench, Scenario, Stage, plain, say

_ENVIRONMENT = {
    "QUEUEGATE_AUTH": "sigv4",
    "QUEUEGATE_MASTER_KEY": base64.b64encode(bytes(range(32))).decode(),
}
_BODY_BYTES = 1024
_COUNT = 2_000
_LEAST_ROUNDS = 20


@dataclass(frozen=True)
class _Key:
    access_key: str
    secret: str

    def signed(self, request: bytes) -> bytes:
        """The request with this key and its signature, where it had others."""
        head, _, body = request.replace(ACCESS_KEY.encode(), self.access_key.encode()).partition(
            b"\r\n\r\n"
        )
        lines = head.decode().split("\r\n")[1:]
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        claim = sigv4.parse_authorization(headers["authorization"])
        canonical = sigv4.canonical_request(SignedRequest("POST", "/", "", headers, body), claim)
        to_sign = sigv4.string_to_sign(canonical, headers["x-amz-date"], claim.scope)
        key = sigv4.signing_key(self.secret, claim.date, claim.region, claim.service)
        signature = sigv4.sign(key, to_sign)
        return head.replace(claim.signature.encode(), signature.encode()) + b"\r\n\r\n" + body


def scenarios() -> list[Scenario]:
    """Return the scenario of this file."""
    about = "send whose signature is verified against one that is not, in turn"
    return [Scenario("signed-send", about, _run)]


async def _run(bench: Bench) -> None:
    verifying = bench.stage_with(_ENVIRONMENT)
    key = _new_key(verifying)
    for connections in (16, 64):
        if connections in bench.options.connections:
            pools = [await stage.pool(connections) for stage in (bench.queuegate, verifying)]
            try:
                await _compare(bench.queuegate, verifying, key, pools)
            finally:
                for pool in pools:
                    pool.close()


def _new_key(verifying: Stage) -> _Key:
    """An access key of an account, as `queuegate keys` makes it."""
    done = subprocess.run(
        [sys.executable, "-m", "queuegate", "keys", "create", "bench", "--access", "--json"],
        env={**os.environ, **_ENVIRONMENT, "DATABASE_URL": database_url(verifying.server)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise CannotMeasure(f"no key: {done.stderr}")
    made = json.loads(done.stdout)
    return _Key(made["access_key_id"], made["secret_access_key"])


async def _compare(plain_stage: Stage, verifying: Stage, key: _Key, pools: list[Pool]) -> None:
    """Note what is added to the CPU, round by round: what else the machine does falls on both."""
    stages, figures = (plain_stage, verifying), plain_stage.figures
    supplies = [
        itertools.cycle([key.signed(one) for one in await _sends(stage, pool, key)])
        for stage, pool in zip(stages, pools, strict=True)
    ]
    count = int(_COUNT * plain_stage.options.scale)
    name = f"signed-send/{len(pools[0].connections)}"
    for turn in range(-1, max(_LEAST_ROUNDS, plain_stage.options.rounds)):
        spent = {}
        # Whoever comes second finds the caches as the first has left them.
        for which in (0, 1) if turn % 2 else (1, 0):
            script = _shared(itertools.islice(supplies[which], count))
            spent[which] = await stages[which].measure(pools[which], script)
        if turn >= 0:
            without, with_it = spent[0]["gateway_us"], spent[1]["gateway_us"]
            figures.note(
                name, gateway_us=with_it, base_gateway_us=without, more_us=with_it - without
            )
    rounds = figures.rounds[name]
    say(
        f"  {name}: {median(rounds['gateway_us']):.1f} against "
        f"{median(rounds['base_gateway_us']):.1f} us, {median(rounds['more_us']):.1f} more"
        f" ({min(rounds['more_us']):.1f} to {max(rounds['more_us']):.1f})"
    )


async def _sends(stage: Stage, pool: Pool, key: _Key) -> list[bytes]:
    """Sends to a new queue, all different where requests of a client differ."""
    create = stage.renderer.request("CreateQueue", {"QueueName": f"signed-{stage.server.name}"})
    made = await pool.call(key.signed(create))
    members = {"QueueUrl": made["QueueUrl"], "MessageBody": message_body(_BODY_BYTES)}
    return [stage.renderer.request("SendMessage", members) for _ in range(64)]


def _shared(supply: Iterator[bytes]) -> Callable[[Load], Script]:
    return lambda _: plain(supply)

"""`python -m tests.bench.held`: queues beside a transaction that nobody ends.

Two PostgreSQL servers with a gateway each get the same load in turns of a few seconds. On the first
one something holds the vacuum back; the ratios are those of the first to the second.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import asyncpg

from tests.bench.client import Load, Pool, Script
from tests.bench.faces import (
    BODY_BYTES,
    Cycle,
    aws_cycle,
    channel_cycle,
    fifo_cycle,
    json_request,
)
from tests.bench.holders import HOLDERS, settings
from tests.bench.hot import Steps, cycles
from tests.bench.log_groups import RECEIPT, SETTINGS, Subscriber, join
from tests.bench.logs import Publishing
from tests.bench.rendering import message_body
from tests.bench.servers import Workshop
from tests.bench.stage import Figures, Options, Stage, elapse, percentile, say
from tests.standbys import Pair

if TYPE_CHECKING:
    from queuegate.storage.database import Connection

CONNECTIONS = 32
_PREFILLED = 64
_MANY_GROUPS = 5_000
_GRACE_SECONDS = 20.0
"""Time for cycles that began before the end of a turn."""
_PARTITIONS = 16
_SUBSCRIBERS = 4
_STATISTICS_SECONDS = 1.1
"""Backends report what they read once a second, when a transaction ends."""
_PGMQ = "pgmq@0.34.0-alpha.7"
_PGMQ_FILE = "src/install/embedded/sql/pgmq.sql"


def _sql(name: str) -> str:
    return (Path(__file__).with_name("sql") / f"{name}.sql").read_text(encoding="utf-8")


Run = Callable[[float], Awaitable[Load]]
"""The load of one kind on one server, for so many seconds."""


@dataclass
class Side:
    """A server with its gateway, and one load of each kind."""

    pair: Pair
    stage: Stage
    connection: Connection
    runs: dict[str, Run] = field(default_factory=dict)
    queues: dict[str, str] = field(default_factory=dict)
    """Names of standard queues by kind of load."""

    async def counts(self) -> dict[str, int]:
        """Pages read, size, dead rows and WAL so far."""
        row = await self.connection.fetchrow(_sql("server_counts"))
        assert row is not None
        return {name: int(row[name] or 0) for name in row.keys()}  # noqa: SIM118 - a record

    async def age(self, cycles_before: int) -> None:
        """Leave the rows of so many cycles of the last hour to each standard queue."""
        for kind, name in self.queues.items():
            priority = 5 if kind == "priority" else None
            await self.connection.execute(_sql("add_dead_messages"), name, cycles_before, priority)
            await self.connection.execute(_sql("lease_dead_messages"))
            await self.connection.execute(_sql("delete_dead_messages"))
        await self.connection.execute("VACUUM queuegate.messages")

    async def turn(self, kind: str, seconds: float) -> dict[str, float]:
        """Run one kind for so long; the figures of a cycle."""
        before = await self.counts()
        load = await self.runs[kind](seconds)
        # What the backends read last is reported by their next transaction.
        await elapse(_STATISTICS_SECONDS)
        tail = await self.runs[kind](0.05)
        after = await self.counts()
        seen = sorted(load.operation_seconds)
        done = load.messages + tail.messages
        return {
            "rate": load.messages / load.elapsed_seconds,
            "p50_ms": percentile(seen, 50) * 1000,
            "p99_ms": percentile(seen, 99) * 1000,
            "most_ms": seen[-1] * 1000,
            "pages": (after["pages"] - before["pages"]) / done,
            "growth_bytes": (after["size_bytes"] - before["size_bytes"]) / done,
            "wal_bytes": (after["wal_bytes"] - before["wal_bytes"]) / done,
            "dead_rows": float(after["dead_rows"]),
            "cycles": float(done),
        }


async def _cycling(
    side: Side,
    kind: str | None,
    make: Callable[[Stage, Pool], Awaitable[Cycle]],
    prefilled: int = _PREFILLED,
) -> Run:
    """``kind``: of a standard queue, which may have a past."""
    stage = side.stage
    pool = await stage.pool(CONNECTIONS)
    cycle = await make(stage, pool)
    if kind is not None:
        side.queues[kind] = cycle.queue_url.rpartition("/")[2]
    await stage.drain(itertools.islice(cycle.sends, prefilled))

    return _running(pool, lambda steps, load: cycles(steps, load, cycle.found), cycle.steps())


def _running(
    pool: Pool, script: Callable[[Iterator[Steps], Load], Script], steps: Iterable[Steps]
) -> Run:
    """A run whose last cycles end after the deadline: none leaves a message in flight."""

    supply = iter(steps)

    async def run(seconds: float) -> Load:
        deadline = perf_counter() + seconds

        def wanted() -> Iterator[Steps]:
            while perf_counter() < deadline:
                yield next(supply)

        return await pool.run(lambda load: script(wanted(), load), seconds + _GRACE_SECONDS)

    return run


async def _standard(side: Side) -> Run:
    return await _cycling(side, "standard", aws_cycle)


async def _priority(side: Side) -> Run:
    return await _cycling(side, "priority", channel_cycle)


def _fifo(groups: int) -> Callable[[Side], Awaitable[Run]]:
    """So many groups, each of which holds a message before."""
    make = partial(fifo_cycle, groups=groups)
    return lambda side: _cycling(side, None, make, prefilled=groups)


async def _log(side: Side) -> Run:
    """Records published one by one over 16 partitions, and four subscribers of one group."""
    stage = side.stage
    pool = await stage.pool(CONNECTIONS)
    await pool.exchange(json_request(stage, "POST", "/v1/logs", {"log": "held"}))
    await pool.exchange(json_request(stage, "PUT", "/v1/logs/held/groups/g", SETTINGS))
    supply = Publishing(_PARTITIONS, 1).requests(stage, "held")
    await stage.drain(itertools.islice(supply, _PARTITIONS))
    subscribers = [Subscriber(stage, "held", "g", f"s{n}") for n in range(_SUBSCRIBERS)]

    def publish(load: Load) -> Script:
        for request in supply:
            started = perf_counter()
            yield request
            load.operation_seconds.append(perf_counter() - started)

    def consume(subscriber: Subscriber, load: Load) -> Script:
        fetch = subscriber.fetch(wait=0.2)
        while True:
            receipts = RECEIPT.findall((yield fetch))
            if receipts:
                yield subscriber.ack(receipts)
                load.messages += len(receipts)

    async def run(seconds: float) -> Load:
        await join(pool, subscribers)
        waiting = iter(subscribers)

        def script(load: Load) -> Script:
            one = next(waiting, None)
            return publish(load) if one is None else consume(one, load)

        return await pool.run(script, seconds)

    return run


async def _pgmq(side: Side) -> Run:
    """pgmq's own functions on as many connections: send, read one, delete."""
    await side.connection.execute(pgmq_source())
    await side.connection.execute("SELECT pgmq.create('held')")
    body = json.dumps({"text": message_body(BODY_BYTES)})
    send = "SELECT pgmq.send('held', $1::jsonb)"
    read, delete = (
        "SELECT msg_id FROM pgmq.read('held', 3600, 1)",
        "SELECT pgmq.delete('held', $1::bigint)",
    )
    connections = [await asyncpg.connect(side.pair.url()) for _ in range(CONNECTIONS)]
    for _ in range(_PREFILLED):
        await side.connection.fetchval(send, body)

    async def cycle(connection: Connection, load: Load) -> None:
        while perf_counter() < load.deadline:
            started = perf_counter()
            await connection.fetchval(send, body)
            found = await connection.fetchval(read)
            if found is not None:
                await connection.fetchval(delete, found)
                load.messages += 1
                load.operation_seconds.append(perf_counter() - started)

    async def run(seconds: float) -> Load:
        started = perf_counter()
        load = Load(started + seconds)
        await asyncio.gather(*(cycle(one, load) for one in connections))
        load.elapsed_seconds = perf_counter() - started
        return load

    return run


KINDS: dict[str, Callable[[Side], Awaitable[Run]]] = {
    "standard": _standard,
    "fifo": _fifo(_PREFILLED),
    "fifo-many": _fifo(_MANY_GROUPS),
    "priority": _priority,
    "log": _log,
    "pgmq": _pgmq,
}


def pgmq_source() -> str:
    """Return the SQL that pgmq's crate carries. LookupError: cargo does not have it."""
    cache = Path.home() / ".cargo/registry/cache"
    name = _PGMQ.replace("@", "-")
    found = next(cache.glob(f"*/{name}.crate"), None)
    if found is None and shutil.which("cargo"):
        subprocess.run(["cargo", "info", _PGMQ], capture_output=True, check=False, timeout=120)
        found = next(cache.glob(f"*/{name}.crate"), None)
    if found is None:
        raise LookupError(f"{name}.crate is not in {cache}: `cargo info {_PGMQ}` fetches it")
    with tarfile.open(found) as archive:
        file = archive.extractfile(f"{name}/{_PGMQ_FILE}")
        assert file is not None
        return file.read().decode()


@asynccontextmanager
async def two_sides(kinds: Sequence[str]) -> AsyncIterator[tuple[Side, Side]]:
    """Two servers with a gateway and a load of each kind, deleted at the end."""
    with ExitStack() as stack:
        workshop = Workshop(None)
        stack.callback(workshop.close)
        sides = []
        for _ in range(2):
            pair = Pair(settings(), has_standby=False)
            stack.callback(pair.stop)
            stage = Stage(workshop.start_second_gateway(pair.url()), Options(), Figures())
            connection = await asyncpg.connect(pair.url())
            await connection.execute("CREATE EXTENSION pg_stat_statements")
            side = Side(pair, stage, connection)
            for kind in kinds:
                side.runs[kind] = await KINDS[kind](side)
                await side.runs[kind](1.0)
            sides.append(side)
        held, other = sides
        yield held, other


async def compare(
    holder: str, kinds: Sequence[str], seconds: float, rounds: int, before: int
) -> Comparison:
    """Run each kind in turns on both servers, so often, while the first one is held.

    ``before``: cycles of the last hour that both have behind them.
    """
    found = Comparison(holder)
    async with two_sides(kinds) as sides:
        async with HOLDERS[holder](sides[0].pair, sides[1].pair):
            for side in sides:
                if before:
                    await side.age(before)
                await side.connection.execute("SELECT pg_stat_statements_reset()")
            for number in range(rounds):
                for kind in kinds:
                    order = sides if number % 2 else sides[::-1]
                    turns = {id(side): await side.turn(kind, seconds) for side in order}
                    held, other = (turns[id(side)] for side in sides)
                    found.rounds.setdefault(kind, []).append((held, other))
                    say(_line(holder, kind, held, other))
        for side in sides:
            found.costly.append(
                [tuple(row) for row in await side.connection.fetch(_sql("costly_statements"), 12)]
            )
            await side.connection.close()
    return found


@dataclass
class Comparison:
    """Figures of both servers by kind and round, and the statements that read the most pages."""

    holder: str
    rounds: dict[str, list[tuple[dict[str, float], dict[str, float]]]] = field(default_factory=dict)
    costly: list[list[tuple[object, ...]]] = field(default_factory=list)

    def ratio(self, kind: str, name: str) -> float:
        """The median over the rounds of a figure of the held server to that of the other."""
        return median(held[name] / other[name] for held, other in self.rounds[kind])


def _line(holder: str, kind: str, held: dict[str, float], other: dict[str, float]) -> str:
    def both(name: str, form: str) -> str:
        return f"{held[name]:{form}} / {other[name]:{form}}"

    return (
        f"  {holder} {kind:9} {both('rate', '.0f')} a second; p50 {both('p50_ms', '.1f')}, "
        f"p99 {both('p99_ms', '.1f')}, most {both('most_ms', '.0f')} ms; a cycle "
        f"{both('pages', '.0f')} pages, {both('growth_bytes', '.0f')} B, "
        f"WAL {both('wal_bytes', '.0f')} B"
    )


def table(found: Sequence[Comparison]) -> str:
    """Return a Markdown table of the ratios."""
    lines = [
        "| Held by | Load | cycles/s | of it without | p99 of without | pages a cycle, first and "
        "last turn; without | growth a cycle; without |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in found:
        for kind, rounds in one.rounds.items():
            held, other = ([pair[side] for pair in rounds] for side in (0, 1))
            lines.append(
                f"| {one.holder} | {kind} | {median(r['rate'] for r in held):,.0f} "
                f"| {one.ratio(kind, 'rate'):.2f} | {one.ratio(kind, 'p99_ms'):.2f} "
                f"| {held[0]['pages']:,.0f}, {held[-1]['pages']:,.0f}; "
                f"{other[-1]['pages']:,.0f} "
                f"| {median(r['growth_bytes'] for r in held):,.0f}; "
                f"{median(r['growth_bytes'] for r in other):,.0f} B |"
            )
    return "\n".join(lines)


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.held", description=__doc__)
    parser.add_argument("--holder", nargs="+", choices=[*HOLDERS], default=[*HOLDERS])
    parser.add_argument("--kind", nargs="+", choices=[*KINDS], default=[*KINDS])
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a turn (4)")
    parser.add_argument("--rounds", type=int, default=4, help="turns of each load (4)")
    parser.add_argument("--minutes", type=float, help="about so long for each holder instead")
    parser.add_argument(
        "--before", type=int, default=0, help="cycles of the last hour on standard queues (0)"
    )
    parser.add_argument("--statements", action="store_true", help="print those that read the most")
    options = parser.parse_args()
    kinds = list(options.kind)
    if "pgmq" in kinds:
        try:
            pgmq_source()
        except LookupError as error:
            kinds.remove("pgmq")
            say(f"  pgmq is left out: {error}")
    seconds, rounds = options.seconds, options.rounds
    if options.minutes is not None:
        rounds = max(1, round(options.minutes * 30 / len(kinds) / (seconds + _STATISTICS_SECONDS)))
    found = []
    for holder in options.holder:
        found.append(asyncio.run(compare(holder, kinds, seconds, rounds, options.before)))
        if options.statements:
            for name, rows in zip(("held", "other"), found[-1].costly, strict=True):
                for row in rows:
                    say(f"    {name} {row}")
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""One run: a cluster, three gateways, loads, faults in an order drawn from a seed, a check."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import os
import random
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import asyncpg

from tests.cli.processes import Gateway, run
from tests.failover.failover_faults import Struck, mend, order_of, strike
from tests.failover.failover_loads import Answers, FailoverLoads, is_timed
from tests.failover.patroni_cluster import PatroniCluster, until_at_last
from tests.failover.sdk_watch import MODES, SdkWatch
from tests.faults.gateways import Server
from tests.waiting import until_so

GATEWAYS = 3
ALLOWED_SECONDS = 2.0
_DATABASE = "queuegate"
_CHECK_SECONDS = 300.0
_LOOK_SECONDS = 0.02
_BEFORE_SECONDS = (3.0, 9.0)
_AFTER_SECONDS = (0.0, 6.0)


@dataclass(frozen=True)
class Plan:
    """The arguments of a run. It ends after a round, with so many acknowledged messages."""

    seed: int
    messages: int
    rate: float
    faults: Sequence[str]
    rounds: int
    folder: Path


@dataclass
class Outcome:
    """Facts of a run."""

    seed: int
    acknowledged: dict[str, int] = field(default_factory=dict)
    deleted: dict[str, int] = field(default_factory=dict)
    repeated: dict[str, int] = field(default_factory=dict)
    unanswered: int = 0
    seconds: float = 0.0
    load_average: float = 0.0
    """Of the machine, over the faults."""
    faults: list[dict[str, Any]] = field(default_factory=list)
    sdk_calls: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


class History:
    """A line of JSON for each fault, each second of answers, and each slow call of an SDK."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")

    def add(self, kind: str, **facts: Any) -> None:
        """Write a line."""
        line = {"time": round(time.time(), 3), "type": kind, **facts}
        print(json.dumps(line), file=self._file, flush=True)

    def close(self) -> None:
        self._file.close()


def gateway_logging_to(log: IO[str]) -> type[Gateway]:
    """Return a gateway whose stderr goes to a file."""
    return type("LoggedGateway", (Gateway,), {"log": log})


@contextlib.asynccontextmanager
async def gateways(cluster: PatroniCluster, folder: Path) -> AsyncIterator[list[Server]]:
    """Gateways on the cluster, each with a log."""
    url = cluster.url(_DATABASE)
    done = await asyncio.to_thread(run, "migrate", DATABASE_URL=url)
    assert done.returncode == 0, done.stderr
    async with contextlib.AsyncExitStack() as stack:
        servers = []
        for number in range(GATEWAYS):
            log = stack.enter_context((folder / f"gateway{number + 1}.log").open("w"))
            server = Server(folder, DATABASE_URL=url, QUEUEGATE_LOG_FORMAT="json")
            server.kind = gateway_logging_to(log)
            await server.start()
            stack.push_async_callback(server.close)
            servers.append(server)
        yield servers


class FailoverRun:
    """One run with its cluster, which is started already."""

    def __init__(self, plan: Plan, cluster: PatroniCluster) -> None:
        self.plan = plan
        self.cluster = cluster
        self.outcome = Outcome(plan.seed)
        self.history = History(plan.folder / "history.jsonl")

    async def go(self) -> Outcome:
        """Do all of it."""
        began = time.monotonic()
        connection = await asyncpg.connect(self.cluster.url())
        await connection.execute(f"CREATE DATABASE {_DATABASE}")
        await connection.close()
        connection = await asyncpg.connect(self.cluster.url(_DATABASE))
        await connection.execute("CREATE TABLE public.plain (number int)")
        await connection.close()
        async with gateways(self.cluster, self.plan.folder) as servers:
            loads = FailoverLoads(
                servers, self.plan.rate, functools.partial(self.history.add, "slow")
            )
            watch = SdkWatch([server.port for server in servers])
            async with loads.endpoint.listening():
                await loads.make()
                await self._under_load(loads, watch)
                ended = [one for one in servers if one.gateway.process.poll() is not None]
                self.outcome.wrong += [f"gateway at {one.port} ended" for one in ended]
        self.outcome.seconds = time.monotonic() - began
        self.history.close()
        return self.outcome

    async def _under_load(self, loads: FailoverLoads, watch: SdkWatch) -> None:
        loads.start()
        watch.start()
        counting = asyncio.create_task(self._count(loads.answers))
        try:
            for number in itertools.count(1):
                order, drawn = order_of(self.plan.seed, self.plan.faults, number)
                for name in order:
                    await self._fault(name, drawn, loads, watch)
                acknowledged = sum(loads.acknowledged().values())
                if number >= self.plan.rounds and acknowledged >= self.plan.messages:
                    break
        finally:
            await asyncio.to_thread(watch.end)
        wrong = await loads.end_and_check(_CHECK_SECONDS)
        counting.cancel()
        self.outcome.wrong += [f"{name}: {text}" for name, text in wrong.items()]
        self.outcome.wrong += loads.violations()
        self._sum_up(loads, watch)

    async def _fault(
        self, name: str, drawn: random.Random, loads: FailoverLoads, watch: SdkWatch
    ) -> None:
        await asyncio.sleep(drawn.uniform(*_BEFORE_SECONDS))
        writing = asyncio.create_task(_first_write(await self._standby_connection()))
        struck = await strike(self.cluster, name, drawn)
        silent = await self._until_answered(loads, struck.promoted or time.time())
        await asyncio.sleep(drawn.uniform(*_AFTER_SECONDS))
        await mend(self.cluster, struck)
        await self._until_answered(loads, struck.whole)
        loads.raise_failure()
        until = time.time()
        facts = self._facts(struck, loads.answers, until)
        if struck.promoted is not None and writing.done():
            facts["plain_client"] = round(writing.result() - struck.promoted, 2)
        writing.cancel()
        facts["sdk"] = {
            mode: [asdict(one) for one in watch.between(struck.began - 1, until, mode)]
            for mode in MODES
        }
        self.outcome.faults.append(facts)
        self.history.add("fault", **facts)
        late = [f"{name}: no answer to {key}" for key in silent]
        self.outcome.wrong += late
        print(_line(facts, sum(loads.acknowledged().values())), flush=True)

    async def _standby_connection(self) -> asyncpg.Connection[asyncpg.Record]:
        leader = await asyncio.to_thread(until_at_last, self.cluster.leader)
        assert leader is not None
        standby = self.cluster.other(leader)
        url = self.cluster.url(_DATABASE).partition("?")[0]
        return await asyncpg.connect(url, host=standby.address)

    async def _until_answered(self, loads: FailoverLoads, since: float) -> list[Any]:
        """Wait for an answer to each load at each gateway; return those that got none."""
        with contextlib.suppress(AssertionError):
            await until_so(lambda: not loads.answers.are_silent(since))
        return loads.answers.are_silent(since)

    def _facts(self, struck: Struck, answers: Answers, until: float) -> dict[str, Any]:
        """Measure a fault: Patroni's time, and the time of each load at each gateway."""
        promoted = struck.promoted or struck.began
        # A stream that was silent over the promotion: when did its first answer come?
        after = answers.outages(promoted, promoted)
        worst: dict[str, float] = {}
        for (load, _, verb), end in after.items():
            name = f"{load} {verb}"
            worst[name] = round(max(worst.get(name, 0.0), end - promoted), 2)
        gaps = [
            end - max(begin, struck.began)
            for key, all_gaps in answers.gaps.items()
            if is_timed(key)
            for begin, end in all_gaps
            if end > struck.began and begin < until
        ]
        return {
            **asdict(struck),
            "patroni_seconds": round(promoted - struck.began, 2),
            "after_promotion": dict(sorted(worst.items(), key=lambda item: -item[1])),
            "load_average": os.getloadavg()[0],
            "longest_gap": round(max(gaps, default=0.0), 2),
            "allowed": all(seconds <= ALLOWED_SECONDS for seconds in worst.values()),
        }

    async def _count(self, answers: Answers) -> None:
        """Write the answers of each second to the history."""
        while True:
            await asyncio.sleep(1)
            counts, answers.counts = answers.counts, type(answers.counts)()
            self.history.add("answers", **dict(sorted(counts.items())))

    def _sum_up(self, loads: FailoverLoads, watch: SdkWatch) -> None:
        outcome = self.outcome
        outcome.acknowledged = loads.acknowledged()
        outcome.deleted = {name: len(load.deleted) for name, load in loads.loads.items()}
        outcome.deleted["log"] = len(loads.log.acknowledged)
        outcome.repeated = {name: load.repeated for name, load in loads.loads.items()}
        outcome.unanswered = loads.unanswered()
        outcome.sdk_calls = dict(watch.calls)
        averages = [fault["load_average"] for fault in outcome.faults]
        outcome.load_average = sum(averages) / max(len(averages), 1)
        for one in watch.seen:
            self.history.add("sdk", **asdict(one))


async def _first_write(connection: asyncpg.Connection[asyncpg.Record]) -> float:
    """Return when a standby takes a write: how long the machine takes without any gateway."""
    try:
        while True:
            with contextlib.suppress(asyncpg.ReadOnlySQLTransactionError):
                await connection.execute("INSERT INTO public.plain VALUES (1)")
                return time.time()
            await asyncio.sleep(_LOOK_SECONDS)
    finally:
        connection.terminate()


def _line(facts: dict[str, Any], acknowledged: int) -> str:
    worst = next(iter(facts["after_promotion"].items()), ("", 0.0))
    errors = {mode: sum(bool(one["error"]) for one in facts["sdk"][mode]) for mode in MODES}
    return (
        f"{facts['name']:14} {facts['leader']}  Patroni {facts['patroni_seconds']:5.1f} s, "
        f"a plain client {facts.get('plain_client', 0.0):+5.2f} s, "
        f"answers {worst[1]:+5.2f} s ({worst[0]}), longest gap {facts['longest_gap']:5.1f} s, "
        f"errors of boto3 {errors}, {acknowledged:,} acknowledged"
        + ("" if facts["allowed"] else "  LATE")
    )

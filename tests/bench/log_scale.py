"""Many subscribers over many partitions: what they cost while nothing happens, and how long it
takes until all is consumed again when some are gone without a word."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from time import perf_counter

from tests.bench.client import Pool
from tests.bench.faces import json_request
from tests.bench.log_groups import BATCH, Subscriber, new_log
from tests.bench.stage import Bench, Scenario, Stage, elapse, percentile, say
from tests.bench.waiting import cpu_share

SIZES = ((100, 2_500), (200, 5_000))
LEASE_SECONDS = 10
_KILLED = 4
"""One of so many is killed."""
_WAIT_SECONDS = 20
_AT_ONCE = 1_000
_MOST_SECONDS = 120


def scenarios() -> list[Scenario]:
    """Return the scenario of this file."""
    return [
        Scenario(
            "log-scale",
            "200 subscribers over 5,000 partitions: heartbeats, waiting, and 50 that are killed",
            _scale,
        )
    ]


@dataclass
class _Records:
    """The number of records in each partition, and those that are acknowledged."""

    partitions: int
    published: int = 0
    acknowledged: set[tuple[int, int]] = field(default_factory=set)
    is_complete: asyncio.Event = field(default_factory=asyncio.Event)

    def done(self, places: set[tuple[int, int]]) -> None:
        """These were acknowledged."""
        self.acknowledged |= places
        if len(self.acknowledged) == self.published * self.partitions:
            self.is_complete.set()

    async def publish(self, stage: Stage, log: str) -> None:
        """One more for each."""
        self.published += 1
        self.is_complete.clear()
        keys = [f"k{number}" for number in range(self.partitions)]
        await stage.drain(
            [
                json_request(
                    stage,
                    "POST",
                    f"/v1/logs/{log}/records",
                    {"records": [{"key": key, "payload": "x"} for key in keys[start:][:_AT_ONCE]]},
                )
                for start in range(0, self.partitions, _AT_ONCE)
            ]
        )

    async def all_done(self) -> None:
        """Until all are acknowledged."""
        await asyncio.wait_for(self.is_complete.wait(), _MOST_SECONDS)


class _Member:
    """A subscriber that lives: one connection for heartbeats, one for all else."""

    def __init__(self, subscriber: Subscriber, records: _Records, pool: Pool) -> None:
        self.subscriber = subscriber
        self.beats: list[float] = []
        self.consumed = 0
        self.is_doomed = False
        """Whether it dies of the next records that it gets, before it acknowledges them."""
        self.died = asyncio.Event()
        self._records = records
        self._pool = pool
        self._hurry = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def join(self) -> None:
        """Begin to send heartbeats."""
        seconds = await self._beat()
        self._tasks.append(asyncio.create_task(self._stay(seconds)))

    def consume(self) -> None:
        """Begin to fetch."""
        self._tasks.append(asyncio.create_task(self._fetch()))

    def kill(self) -> None:
        """Its connections end, and it says nothing."""
        self._pool.close()
        self.died.set()
        for task in self._tasks:
            task.cancel()

    async def _beat(self) -> float:
        started = perf_counter()
        self._hurry.clear()
        answer = await self._pool.call(self.subscriber.heartbeat())
        self.beats.append(perf_counter() - started)
        return self.subscriber.stands(answer)

    async def _stay(self, seconds: float) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), seconds)
            seconds = await self._beat()

    async def _fetch(self) -> None:
        while True:
            answer = await self._pool.call(self.subscriber.fetch(BATCH, _WAIT_SECONDS), 1)
            records = answer["records"]
            assert isinstance(records, list)
            if records and self.is_doomed:
                self.kill()
                return
            if answer["rebalance"]:
                self._hurry.set()
            if records:
                receipts = [one["receipt"].encode() for one in records]
                await self._pool.exchange(self.subscriber.ack(receipts), 1)
                self._records.done({(one["partition"], one["offset"]) for one in records})
                self.consumed += len(records)


async def _scale(bench: Bench) -> None:
    stage = bench.queuegate
    for subscribers, partitions in SIZES:
        scale = min(1.0, stage.options.scale)
        await _measure(stage, int(subscribers * scale), int(partitions * scale))


async def _measure(stage: Stage, subscribers: int, partitions: int) -> None:
    seconds = stage.options.idle_seconds
    records = _Records(partitions)
    settings = {"batch_size": BATCH, "lease": LEASE_SECONDS, "visibility_timeout": LEASE_SECONDS}
    async with new_log(stage, settings, "g") as log:
        await records.publish(stage, log)
        idle_percent = await cpu_share(stage, seconds / 4)
        members = [
            _Member(Subscriber(stage, log, "g", f"s{n:03}"), records, await stage.pool(2))
            for n in range(subscribers)
        ]
        try:
            started = perf_counter()
            for one in members:
                await one.join()
            joined = perf_counter() - started
            await elapse(LEASE_SECONDS)
            for one in members:
                one.beats.clear()
            beat_percent = await cpu_share(stage, seconds)
            beats = sorted(second for one in members for second in one.beats)
            for one in members:
                one.consume()
            await records.all_done()
            wait_percent = await cpu_share(stage, seconds)
            taken = await _kill(stage, log, members, records)
        finally:
            for one in members:
                one.kill()
    live = members[subscribers // _KILLED :]
    held = sorted(len(one.subscriber.partitions) for one in live)
    share = partitions / len(live)
    if sum(held) != partitions or held[0] < int(share) or held[-1] > int(share) + 1:
        say(f"  shares are {held[0]} to {held[-1]}, {sum(held)} of {partitions} in all")
    key = f"log-scale/{subscribers}-{partitions}"
    stage.figures.note(
        key,
        join_seconds=joined,
        beats_per_second=len(beats) / seconds,
        beat_p50_ms=percentile(beats, 50) * 1000,
        beat_p99_ms=percentile(beats, 99) * 1000,
        idle_percent=idle_percent,
        cpu_percent=beat_percent - idle_percent,
        waiting_percent=wait_percent - idle_percent,
        seconds=taken,
        leases=taken / LEASE_SECONDS,
        least_consumed=min(one.consumed for one in live),
    )
    say(
        f"  {key}: joined in {joined:.1f} s; heartbeats {len(beats) / seconds:.0f}/s, "
        f"{beat_percent - idle_percent:.2f} % of a core, with fetches that wait "
        f"{wait_percent - idle_percent:.2f} %; {subscribers - len(live)} killed: all consumed "
        f"again after {taken:.1f} s, {taken / LEASE_SECONDS:.2f} leases; shares {held[0]} to "
        f"{held[-1]}"
    )


async def _kill(stage: Stage, log: str, members: list[_Member], records: _Records) -> float:
    """Let one of so many die with records in hand. How long it takes from then on until each
    partition's records are acknowledged: those, and one that is published afterwards."""
    dying = members[: len(members) // _KILLED]
    for one in dying:
        one.is_doomed = True
    await records.publish(stage, log)
    await asyncio.wait_for(asyncio.gather(*[one.died.wait() for one in dying]), _MOST_SECONDS)
    killed = perf_counter()
    for one in members:
        one.consumed = 0
    await records.publish(stage, log)
    await records.all_done()
    return perf_counter() - killed

"""A log with groups, as tests of operations use it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from queuegate.gateway.operations.access.authorization import PUBLISH_RECORDS
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.logs import consumer_groups
from queuegate.gateway.operations.logs.consumer_groups import (
    FetchOutcome,
    FetchRequest,
    Settlement,
    fetch,
    find_or_make_group,
    make_group,
    receipt_of,
    settle,
)
from queuegate.gateway.operations.logs.log_records import RecordToPublish, publish_records
from queuegate.gateway.operations.logs.logs import create_log
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage.model import (
    ConsumerGroup,
    ConsumerGroupSettings,
    Delivered,
    LogRetention,
    ReceiptAction,
    StoredLog,
)
from tests.operations.world import World

LOG = "orders"


@dataclass
class Consumer:
    """A subscriber of a group, in one process."""

    engine: Engine
    log: StoredLog
    group: ConsumerGroup
    name: str
    session: int | None = None
    partitions: list[int] = field(default_factory=list)
    chosen: list[int] | None = None
    """Partitions that it asks for, by id; None: all that it holds."""

    async def beat(self) -> list[int]:
        """The numbers of what it holds after a heartbeat."""
        found = await consumer_groups.heartbeat(
            self.engine, self.log, self.group, self.name, self.session
        )
        self.session = found.session
        self.partitions = [one.number for one in found.partitions]
        return self.partitions

    async def outcome(self, most: int = 100, *, wait: float = 0) -> FetchOutcome:
        assert self.session is not None
        request = FetchRequest(self.name, self.session, most, wait, self.chosen)
        return await fetch(self.engine, self.log, self.group, request)

    async def fetch(self, most: int = 100, *, wait: float = 0) -> list[Delivered]:
        return (await self.outcome(most, wait=wait)).records

    async def settle(
        self,
        records: Sequence[Delivered],
        do: ReceiptAction,
        delay: float | None = None,
        error: str = "",
    ) -> list[str]:
        settlements = [Settlement(receipt_of(self.group, one), do, delay, error) for one in records]
        outcomes = await settle(self.engine, self.log, self.group, settlements)
        return [outcome.value for outcome in outcomes]

    async def ack(self, *records: Delivered) -> list[str]:
        return await self.settle(records, ReceiptAction.ACK)

    async def leave(self, *, releases: bool = False) -> None:
        assert self.session is not None
        await consumer_groups.leave(
            self.engine, self.log, self.group, self.name, self.session, releases=releases
        )


def places(records: Sequence[Delivered]) -> list[tuple[int, int]]:
    """Return the partition and the offset of each record."""
    return [(one.number, one.record.offset) for one in records]


def offsets(records: Sequence[Delivered]) -> list[int]:
    return [one.record.offset for one in records]


class Orders(World):
    """The log `orders`."""

    def __init__(self, engine: Engine, caller: Caller) -> None:
        super().__init__(engine, caller)
        self.owner = caller.account_id, caller.region

    async def log(self, partition_count: int | None = None) -> StoredLog:
        made = await create_log(self.engine, self.caller, LOG, partition_count, LogRetention())
        return made.log

    async def publish(self, *payloads: str, key: str = "a", log: str = LOG) -> list[int]:
        some = [RecordToPublish(key, payload.encode()) for payload in payloads]
        published = await publish_records(self.engine, self.caller, PUBLISH_RECORDS, log, some)
        return published.offsets

    async def fill(self, *keys: str, count: int = 1) -> None:
        """So many records for each key."""
        some = [RecordToPublish(key, str(n).encode()) for n in range(count) for key in keys]
        await publish_records(self.engine, self.caller, PUBLISH_RECORDS, LOG, some)

    async def group(self, name: str = "billing", **settings: object) -> ConsumerGroup:
        made = await make_group(
            self.engine,
            await self.log(),
            name,
            ConsumerGroupSettings(**settings),  # type: ignore[arg-type]
        )
        return made.group

    async def consumer(
        self, name: str = "one", group: str = "billing", *, engine: Engine | None = None
    ) -> Consumer:
        """One that has joined; by another process if it is given."""
        engine = engine or self.engine
        log = await self.log()
        found = await find_or_make_group(engine, log, group)
        consumer = Consumer(engine, log, found, name)
        await consumer.beat()
        return consumer

    async def consumers(self, *names: str, group: str = "billing") -> list[Consumer]:
        """All of them have joined, and share the partitions."""
        found = [await self.consumer(name, group) for name in names]
        await settled(*found)
        return found


async def settled(*consumers: Consumer) -> None:
    """Heartbeats until nobody gives or takes."""
    before: list[list[int]] = []
    for _ in range(10):
        held = [await consumer.beat() for consumer in consumers]
        if held == before:
            return
        before = held
    raise AssertionError(before)


async def drained(consumers: Sequence[Consumer]) -> list[tuple[int, int]]:
    """All that these consumers get, acknowledging it."""
    found: list[tuple[int, int]] = []
    while True:
        batches = await asyncio.gather(*[consumer.fetch() for consumer in consumers])
        if not any(batches):
            return found
        for consumer, records in zip(consumers, batches, strict=True):
            found += places(records)
            if records:
                await consumer.ack(*records)

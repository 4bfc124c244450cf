"""Topics, subscriptions and deliveries as the operations would have stored them."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from queuegate.scheduler.webhook_worker import Deliver, DeliveryOptions, Sign
from queuegate.scheduler.worker import OneClock
from queuegate.storage.database import Database
from queuegate.storage.model import NewDelivery
from queuegate.storage.topics import web_hook_deliveries
from tests.scheduler.conftest import ACCOUNT, REGION, StillClock

if TYPE_CHECKING:
    import asyncpg

    from queuegate.storage.topics.web_hook_deliveries import Source


TOPIC_ARN = f"arn:aws:sns:{REGION}:{ACCOUNT}:news"


class Tally:
    """Counts like the gateway's."""

    def __init__(self) -> None:
        self.succeeded = 0
        self.failed = 0
        self.exhausted_count = 0
        self.lost_count = 0

    def attempted(self, source: Source, seconds: float, *, succeeded: bool) -> None:
        assert source[:2] == (ACCOUNT, REGION)
        assert seconds >= 0
        self.succeeded += succeeded
        self.failed += not succeeded

    def exhausted(self, source: Source, count: int) -> None:
        assert source[:2] == (ACCOUNT, REGION)
        self.exhausted_count += count

    def lost(self, count: int) -> None:
        self.lost_count += count


async def sign(envelope: str) -> str:
    return envelope.replace('"Signature" : ""', '"Signature" : "ok"')


class WebHookStore:
    """Fills the tables and makes workers."""

    def __init__(self, database: Database, clock: StillClock) -> None:
        self.database = database
        self.clock = clock
        self.tally = Tally()
        self.moved: list[tuple[int, int]] = []
        self.sign: Sign = sign

    def worker(self, **options: Any) -> Deliver:
        """A worker that may deliver to this machine."""
        return Deliver(
            self.database,
            OneClock(self.clock.now),
            DeliveryOptions(**{"allow_private": True, "timeout_seconds": 10.0, **options}),
            sign=self.sign,
            on_moved=lambda queue_id, count: self.moved.append((queue_id, count)),
            tally=self.tally,
        )

    async def make_topic(self, **attributes: str) -> int:
        async with self.database.transaction() as tx:
            topic_id: int = await tx.fetchval(
                "INSERT INTO topics (account_id, region, topic_name, is_fifo, attributes,"
                " created_at) VALUES ($1, $2, 'news', false, $3::jsonb, now())"
                " ON CONFLICT (account_id, region, topic_name, is_pattern) DO UPDATE SET"
                " attributes = topics.attributes || excluded.attributes RETURNING topic_id",
                ACCOUNT,
                REGION,
                json.dumps(attributes),
            )
            return topic_id

    async def subscribe(self, url: str, **attributes: str) -> UUID:
        """A confirmed subscription; the id."""
        topic_id = await self.make_topic()
        subscription_id = uuid4()
        async with self.database.transaction() as tx:
            await tx.execute(
                "INSERT INTO subscriptions (subscription_id, topic_id, protocol, endpoint,"
                " account_id, region, attributes, is_confirmed, was_authenticated, created_at)"
                " VALUES ($1, $2, 'http', $3, $4, $5, $6::jsonb, true, true, now())",
                subscription_id,
                topic_id,
                # One topic has an endpoint once; several subscriptions of tests share one.
                f"{url}#{subscription_id}",
                ACCOUNT,
                REGION,
                json.dumps(attributes),
            )
        return subscription_id

    async def add(
        self,
        subscription_id: UUID,
        url: str,
        *bodies: str,
        kind: str = "Notification",
        is_raw: bool = True,
        attributes: str | None = None,
    ) -> None:
        """Deliveries that are due now."""
        rows = [
            NewDelivery(
                str(subscription_id),
                kind,
                is_raw,
                str(uuid4()),
                ACCOUNT,
                REGION,
                "news",
                url,
                body,
                attributes,
            )
            for body in bodies
        ]
        async with self.database.transaction() as tx:
            await web_hook_deliveries.insert(tx, self.clock.now(), rows)

    async def rows(self) -> list[asyncpg.Record]:
        async with self.database.transaction() as tx:
            return await tx.fetch("SELECT * FROM deliveries ORDER BY delivery_id")

    async def row(self) -> asyncpg.Record:
        [row] = await self.rows()
        return row

    def later(self, seconds: float) -> None:
        assert self.clock.instant is not None
        self.clock.instant += timedelta(seconds=seconds)

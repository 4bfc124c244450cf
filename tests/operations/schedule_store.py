"""Schedules as their APIs would have stored them, and workers that fire them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from queuegate.gateway.faces.aws import aws_refusals
from queuegate.gateway.faces.aws.sns import sns_publishing
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.schedules.dispatch import Dispatcher
from queuegate.scheduler.schedule_worker import FireOptions, FireSchedules
from queuegate.storage import schedules
from queuegate.storage.model import NewSchedule, Schedule
from tests.operations.world import World

if TYPE_CHECKING:
    import asyncpg

    from queuegate.storage.queue_model import Queue


BASE_URL = "http://gateway.test:9324"
NOON = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


def after(seconds: float) -> datetime:
    """So many seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def rate(seconds: int = 60) -> dict[str, Any]:
    """Every so many seconds, from noon on."""
    return {"kind": "rate", "seconds": seconds, "anchor": "2026-11-21T12:00:00Z"}


def once(at: datetime) -> dict[str, Any]:
    return {"kind": "once", "instant": at.isoformat()}


def queue_target(queue: Queue, body: str = "hello", **members: Any) -> dict[str, Any]:
    return {
        "kind": "queue",
        "account_id": queue.account_id,
        "region": queue.region,
        "queue_name": queue.name,
        "body": body,
        **members,
    }


def topic_target(caller: Caller, name: str, message: str = "hello", **members: Any) -> Any:
    return {
        "kind": "topic",
        "account_id": caller.account_id,
        "region": caller.region,
        "topic_name": name,
        "message": message,
        **members,
    }


class ScheduleStore(World):
    """Adds schedules and fires them."""

    def __init__(self, engine: Engine, caller: Caller) -> None:
        super().__init__(engine, caller)
        self.dispatcher = Dispatcher(
            engine, BASE_URL, sns_publishing.check, aws_refusals.invocation_failure
        )

    def new(self, name: str, target: dict[str, Any], **members: Any) -> NewSchedule:
        """A schedule that fires every minute, from a minute after noon on."""
        plain = NewSchedule(
            account_id=self.caller.account_id,
            region=self.caller.region,
            group_id=None,
            name=name,
            spec={},
            timing=rate(),
            target=target,
            is_active=True,
            catchup=False,
            catchup_limit=100,
            failure_threshold=None,
            deletes_itself=True,
            window_seconds=0,
            starts_at=None,
            ends_at=None,
            max_attempts=0,
            max_age_seconds=None,
            dead_letter=None,
            client_token=None,
            next_fire_at=after(60),
            due_at=after(60),
        )
        if "next_fire_at" in members:
            members.setdefault("due_at", members["next_fire_at"])
        return replace(plain, **members)

    async def add(self, name: str, target: dict[str, Any], **members: Any) -> Schedule:
        async with self.engine.database.transaction() as tx:
            made = await schedules.create(tx, self.clock.now(), self.new(name, target, **members))
        assert made is not None
        return made

    async def find(self, name: str, group_id: int | None = None) -> Schedule | None:
        async with self.engine.database.transaction() as tx:
            place = (self.caller.account_id, self.caller.region)
            return await schedules.find(tx, *place, group_id, name)

    async def get(self, name: str, group_id: int | None = None) -> Schedule:
        found = await self.find(name, group_id)
        assert found is not None
        return found

    def at(self, seconds: float) -> None:
        """The clock stands so many seconds after noon."""
        self.clock.fixed = after(seconds)

    def worker(self, **options: Any) -> FireSchedules:
        return FireSchedules(
            self.engine.database,
            self.clock,
            FireOptions(**options),
            dispatch=self.dispatcher,
            tally=self.engine.series.schedules,
        )

    async def fire(self, seconds: float, **options: Any) -> int:
        """One round so many seconds after noon."""
        self.at(seconds)
        return await self.run(self.worker(**options))

    async def run(self, worker: FireSchedules) -> int:
        """One round of a worker that does nothing else."""
        try:
            return await worker.run_once()
        finally:
            await worker.stop()

    async def rows(self, table: str) -> list[asyncpg.Record]:
        async with self.engine.database.transaction() as tx:
            return await tx.fetch(f"SELECT * FROM {table} ORDER BY 1")

    async def bodies(self) -> list[str]:
        """Return the bodies in standard queues in the order of their sends."""
        return [row["body"] for row in await self.rows("messages")]

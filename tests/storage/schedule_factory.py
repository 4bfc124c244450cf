"""Schedules for tests of storage."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from queuegate.storage.model import NewSchedule

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

ACCOUNT = "111122223333"
REGION = "eu-west-1"
NOON = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def make_schedule(name: str = "nightly", **members: Any) -> NewSchedule:
    """One of the native API that is due a minute after noon."""
    values: dict[str, Any] = {
        "account_id": ACCOUNT,
        "region": REGION,
        "group_id": None,
        "name": name,
        "spec": {"cron": "* * * * *", "note": "ä"},
        "timing": {"kind": "cron", "expression": "* * * * *", "timezone": "UTC"},
        "target": {"kind": "queue", "queue_name": "orders", "body": "ü"},
        "is_active": True,
        "catchup": False,
        "catchup_limit": 100,
        "failure_threshold": 10,
        "deletes_itself": True,
        "window_seconds": 0,
        "starts_at": None,
        "ends_at": None,
        "max_attempts": 0,
        "max_age_seconds": None,
        "dead_letter": None,
        "client_token": None,
        "next_fire_at": NOON + MINUTE,
        "due_at": NOON + MINUTE,
    }
    return NewSchedule(**{**values, **members})


async def fill_schedules(tx: Transaction, count: int, *, due_at: datetime) -> None:
    """So many schedules that are due at one time."""
    await tx.execute(
        "INSERT INTO schedules (account_id, region, schedule_name, is_active, next_fire_at, due_at,"
        " catchup, catchup_limit, deletes_itself, window_seconds, max_attempts, target_kind,"
        " timing, target, target_bytes, spec, created_at, modified_at)"
        " SELECT $1, $2, 'filled-' || n, true, $3, $3, false, 1, true, 0, 0, 'queue',"
        ' \'{"kind":"cron","expression":"* * * * *","timezone":"UTC"}\','
        ' \'{"kind":"queue","account_id":"111122223333","region":"eu-west-1",'
        '"queue_name":"orders","body":"hello"}\', 100, \'{}\', now(), now()'
        " FROM generate_series(1, $4::int) AS n",
        ACCOUNT,
        REGION,
        due_at,
        count,
    )

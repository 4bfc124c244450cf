"""Failed invocations to repeat: they outlive their schedule, so they store all data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.clocks.whose import ALL_ACCOUNTS, AccountFilter
from queuegate.storage.queries import load
from queuegate.storage.schedules.schedule_fires import Fire
from queuegate.storage.schedules.schedules import to_json

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_SQL = load("schedules/schedule_invocations")


class NewInvocation(NamedTuple):
    """An invocation that failed for the first time."""

    fire: Fire
    max_attempts: int
    """Repetitions, besides the first attempt."""
    age_seconds: int
    """The period of repetitions."""
    delay_seconds: float
    """Until the next attempt."""
    dead_letter: Mapping[str, str] | None


class Invocation(NamedTuple):
    """A due invocation, locked. ``fire.attempt`` is the attempt to make."""

    invocation_id: int
    fire: Fire
    max_attempts: int
    dead_letter: Mapping[str, str] | None
    expires_at: datetime
    claimed_at: datetime


async def insert_invocations(tx: Transaction, at: datetime, rows: Sequence[NewInvocation]) -> None:
    """Store invocations whose first attempt, at ``at``, failed."""
    if not rows:
        return
    columns = [
        (
            one.fire.schedule_id,
            one.fire.account_id,
            one.fire.region,
            one.fire.group_name,
            one.fire.name,
            one.fire.scheduled_for,
            one.fire.execution_id,
            one.fire.attempt,
            one.max_attempts,
            one.age_seconds,
            one.delay_seconds,
            to_json(one.fire.target),
            None if one.dead_letter is None else to_json(one.dead_letter),
        )
        for one in rows
    ]
    await tx.execute(_SQL["insert"].text, at, *zip(*columns, strict=True))


async def claim_invocations(
    tx: Transaction, now: datetime | None, limit: int, whose: AccountFilter = ALL_ACCOUNTS
) -> list[Invocation]:
    """Lock at most ``limit`` due invocations, the most overdue first; skip locked ones."""
    rows = await tx.fetch(_SQL["claim"].text, now, limit, *whose)
    return [
        Invocation(
            row["invocation_id"],
            Fire(
                row["schedule_id"],
                row["account_id"],
                row["region"],
                row["group_name"],
                row["schedule_name"],
                json.loads(row["target"]),
                row["scheduled_for"],
                row["execution_id"],
                row["attempt_count"] + 1,
            ),
            row["max_attempts"],
            None if row["dead_letter"] is None else json.loads(row["dead_letter"]),
            row["expires_at"],
            row["claimed_at"],
        )
        for row in rows
    ]


async def postpone_invocations(
    tx: Transaction, at: datetime, rows: Sequence[tuple[int, float]]
) -> None:
    """Record a failed attempt of each at ``at``: (invocation_id, seconds until the next)."""
    if rows:
        await tx.execute(_SQL["postpone"].text, at, *zip(*rows, strict=True))


async def remove_invocations(tx: Transaction, invocation_ids: Sequence[int]) -> None:
    """Delete finished invocations: succeeded, or given up."""
    if invocation_ids:
        await tx.execute(_SQL["remove"].text, invocation_ids)

"""Firing schedules: due schedules, fires, the resulting state, and failed invocations to repeat."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from queuegate.storage.database import unavailable_when_lost
from queuegate.storage.queries import ALL_ACCOUNTS, AccountFilter, load
from queuegate.storage.schedules import to_json

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction


_SQL = load("schedule_fires")

_MOST_TARGET_BYTES = 16 << 20
"""Bytes of targets claimed together; a single one may have more."""


class Fire(NamedTuple):
    """One invocation of a target: for one time of a schedule, or by hand."""

    schedule_id: int
    account_id: str
    """Of the schedule, as are region, group and name."""
    region: str
    group_name: str | None
    """None: a schedule without a group."""
    name: str
    target: Mapping[str, Any]
    scheduled_for: datetime
    execution_id: str
    """A UUID; the same for all attempts."""
    attempt: int = 1
    out_of_band: bool = False
    """Requested by hand: not one of the schedule's times."""


class InvocationFailure(NamedTuple):
    """The reason why a target could not be invoked: AWS's code and text."""

    code: str
    message: str


class Dispatched(NamedTuple):
    """The result of groups of fires sent within a transaction."""

    failures: Sequence[InvocationFailure | None]
    """One for each group; failed groups wrote nothing. Fewer than groups: the rest exceeded one
    transaction and was not processed."""
    committed: Callable[[], None]
    """Call after the commit: wakes receivers of the messages, and counts them."""


class PendingFires(NamedTuple):
    """The pending work: now, and the seconds until the next; None: nothing is planned."""

    is_due: bool
    next_in: float | None


class ClaimedSchedule(NamedTuple):
    """A due schedule, locked."""

    schedule_id: int
    account_id: str
    region: str
    group_name: str | None
    name: str
    timing: str
    """JSON as stored: callers with many equal ones can parse once."""
    target: Mapping[str, Any]
    catchup: bool
    catchup_limit: int
    failure_threshold: int | None
    deletes_itself: bool
    window_seconds: int
    starts_at: datetime | None
    ends_at: datetime | None
    max_attempts: int
    max_age_seconds: int | None
    dead_letter: Mapping[str, str] | None
    failure_count: int
    next_fire_at: datetime
    due_at: datetime
    claimed_at: datetime
    """The ``now`` of the claim."""


class Advance(NamedTuple):
    """The new state of a fired schedule, in the order of the parameters."""

    schedule_id: int
    next_fire_at: datetime | None
    due_at: datetime | None
    is_active: bool
    failure_count: int
    last_error: str | None
    fired_count: int
    """Invocations made now."""
    skipped_count: int
    """Missed times skipped now."""
    last_scheduled_for: datetime | None
    """The last time fired now; None: none."""


@contextlib.asynccontextmanager
async def savepoint(tx: Transaction) -> AsyncIterator[None]:
    """Roll back the block if it raises; the transaction continues. A lost or busy database raises
    Unavailable, after which the transaction is unusable."""
    async with unavailable_when_lost(), tx.transaction():
        yield


async def poll(
    tx: Transaction, now: datetime | None, whose: AccountFilter = ALL_ACCOUNTS
) -> PendingFires:
    """Return whether something is due, and the time until the next."""
    return await _SQL["look"].by_key.only(tx, PendingFires._make, now, *whose)


async def claim(
    tx: Transaction, now: datetime | None, limit: int, whose: AccountFilter = ALL_ACCOUNTS
) -> list[ClaimedSchedule]:
    """Lock at most ``limit`` due schedules, the most overdue first; skip locked ones. Returns fewer
    if their targets are long."""
    rows = await _SQL["claim"].rows(tx, now, limit, _MOST_TARGET_BYTES, *whose)
    found = []
    for row in rows:
        claimed = ClaimedSchedule(*row)
        dead_letter = row["dead_letter"]
        found.append(
            claimed._replace(
                target=json.loads(row["target"]),
                dead_letter=None if dead_letter is None else json.loads(dead_letter),
            )
        )
    return found


async def advance(tx: Transaction, at: datetime, rows: Sequence[Advance]) -> None:
    """Store the new state of claimed schedules, fired at ``at``."""
    if rows:
        await _SQL["advance"].run(tx, at, *zip(*rows, strict=True))


async def remove(tx: Transaction, schedule_ids: Sequence[int]) -> None:
    """Delete claimed schedules."""
    if schedule_ids:
        await _SQL["remove"].run(tx, schedule_ids)


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
            *one.fire[:5],
            *one.fire[6:9],
            *one[1:4],
            to_json(one.fire.target),
            None if one.dead_letter is None else to_json(one.dead_letter),
        )
        for one in rows
    ]
    await _SQL["insert"].run(tx, at, *zip(*columns, strict=True))


async def claim_invocations(
    tx: Transaction, now: datetime | None, limit: int, whose: AccountFilter = ALL_ACCOUNTS
) -> list[Invocation]:
    """Lock at most ``limit`` due invocations, the most overdue first; skip locked ones."""
    rows = await _SQL["claim_invocations"].rows(tx, now, limit, *whose)
    return [
        Invocation(
            row[0],
            Fire(*[*row[1:6], json.loads(row["target"]), *row[7:9], row["attempt_count"] + 1]),
            row["max_attempts"],
            None if row["dead_letter"] is None else json.loads(row["dead_letter"]),
            *row[12:],
        )
        for row in rows
    ]


async def postpone_invocations(
    tx: Transaction, at: datetime, rows: Sequence[tuple[int, float]]
) -> None:
    """Record a failed attempt of each at ``at``: (invocation_id, seconds until the next)."""
    if rows:
        await _SQL["postpone"].run(tx, at, *zip(*rows, strict=True))


async def remove_invocations(tx: Transaction, invocation_ids: Sequence[int]) -> None:
    """Delete finished invocations: succeeded, or given up."""
    if invocation_ids:
        await _SQL["remove_invocations"].run(tx, invocation_ids)

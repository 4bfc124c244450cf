"""Recordings of the events of accounts, and events of workers.

A recording is a row, and triggers of the tables of messages (``functions/events.sql``). Events are
notifications of the transactions that caused them: nothing is stored.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import asyncpg

from queuegate.storage.notifications import Notice, notify
from queuegate.storage.queries import load
from queuegate.storage.storage_errors import OverLimit, Unavailable

if TYPE_CHECKING:
    from queuegate.storage.database import Database, Transaction
    from queuegate.storage.schedule_fires import Fire, InvocationFailure

_SQL = load("account_events")
_TABLES = ("messages", "fifo_messages", "fifo_groups")
_MOST_RECORDINGS = 500

AccountEvent = tuple[str, dict[str, Any]]
"""(account, members)."""


async def recordings(tx: Transaction) -> dict[str, int]:
    """Return the accounts that record, with the numbers of their recordings."""
    return dict(await _SQL["list"].all(tx, tuple))


async def start(database: Database, account_id: str, seconds: float | None) -> None:
    """Start a recording, or keep it for so many seconds at least; None: until it is stopped.

    All processes are notified. Raises OverLimit, and Unavailable if statements under way keep the
    triggers from being created.
    """
    async with database.transaction() as tx:
        number: int | None = await _SQL["start"].value(tx, account_id, seconds, _MOST_RECORDINGS)
        if number is None:
            raise OverLimit(f"{_MOST_RECORDINGS} accounts record events: stop one of them first.")
        await notify(tx, Notice.RECORDING_CHANGED, int(account_id), number)
    await _watch(database, is_wanted=True)


async def stop(tx: Transaction, account_id: str | None) -> None:
    """Stop the recording of an account; None: all recordings."""
    for stopped in await _SQL["stop"].all(tx, itemgetter(0), account_id):
        await notify(tx, Notice.RECORDING_CHANGED, int(stopped), 0)


async def stop_unread(database: Database) -> None:
    """Stop recordings that ended, and drop the triggers if no account records."""
    async with database.transaction() as tx:
        for ended in await _SQL["ended"].all(tx, itemgetter(0)):
            await stop(tx, ended)
    await _watch(database, is_wanted=False)


async def _watch(database: Database, *, is_wanted: bool) -> None:
    async with database.statements() as connection:
        for table in _TABLES:
            try:
                await _SQL["watch"].run(connection, table, is_wanted)
            except (asyncpg.LockNotAvailableError, asyncpg.InsufficientPrivilegeError) as error:
                raise Unavailable(f"The triggers of {table} cannot change: {error}.") from None


async def note(tx: Transaction, recorded: Container[str], events: Iterable[AccountEvent]) -> None:
    """Note the events of accounts in ``recorded`` with the commit of the transaction."""
    chosen = [one for one in events if one[0] in recorded]
    if chosen:
        accounts, members = zip(*chosen, strict=True)
        await _SQL["note"].run(tx, accounts, [json.dumps(one) for one in members])


def event_of_fire(fire: Fire, failure: InvocationFailure | None) -> AccountEvent:
    """Return the event of an invocation of a schedule's target."""
    invocation = {
        "kind": "fired" if failure is None else "failed",
        "region": fire.region,
        "schedule": fire.name,
        "group": fire.group_name,
        "queue": fire.target.get("queue_name"),
        "topic": fire.target.get("topic_name"),
        "scheduled_for": fire.scheduled_for.isoformat(),
        "attempt": fire.attempt,
        "error": None if failure is None else failure.message[:500],
    }
    return fire.account_id, invocation

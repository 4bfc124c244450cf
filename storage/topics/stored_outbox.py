"""The outbox: messages that AWS would send elsewhere, stored for inspection."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.model import NewOutboxMessage
from queuegate.storage.queries import ALL_ACCOUNTS, AccountFilter, load

if TYPE_CHECKING:
    import asyncpg

    from queuegate.storage.database import Transaction


_SQL = load("topics/stored_outbox")


class OutboxMessage(NamedTuple):
    """One message of the outbox."""

    outbox_id: int
    written: NewOutboxMessage
    created_at: datetime


class OutboxFilter(NamedTuple):
    """A filter of an account's messages; None matches all."""

    account_id: str
    region: str | None = None
    protocol: str | None = None
    destination: str | None = None
    topic_arn: str | None = None
    kind: str | None = None


class OutboxPage(NamedTuple):
    """Messages in order of writing. ``is_last``: nothing follows them."""

    messages: list[OutboxMessage]
    is_last: bool


class Excess(NamedTuple):
    """An account and the last of its excess messages; None: no excess."""

    account_id: str
    last_id: int | None


def _message(row: asyncpg.Record) -> OutboxMessage:
    return OutboxMessage(row[0], NewOutboxMessage(*row[1:12]), row["created_at"])


async def insert(tx: Transaction, now: datetime | None, rows: list[NewOutboxMessage]) -> None:
    """Write the messages in this order."""
    if rows:
        await _SQL["insert"].run(tx, now, *map(list, zip(*rows, strict=True)))


async def page(
    tx: Transaction, wanted: OutboxFilter, *, after_id: int, limit: int, most_bytes: int
) -> OutboxPage:
    """Return the next messages behind ``after_id``, at most ``limit``, with bodies and attributes
    of at most ``most_bytes``."""
    rows = await _SQL["page"].by_key.rows(tx, *wanted, after_id, limit, most_bytes)
    return OutboxPage([_message(row) for row in rows], not rows or rows[-1]["is_last"])


async def find(tx: Transaction, account_id: str, outbox_id: int) -> OutboxMessage | None:
    """Return the message of that id in that account."""
    return await _SQL["find"].first(tx, _message, account_id, outbox_id)


async def last_id(tx: Transaction, account_id: str) -> int:
    """Return the id of the account's newest message; 0 without one."""
    return await _SQL["last_id"].by_key.value(tx, account_id)


async def clear(
    tx: Transaction, wanted: OutboxFilter, *, after_id: int, last_id: int, limit: int
) -> tuple[int, int | None]:
    """Delete the next ``limit`` messages behind ``after_id`` and up to ``last_id``; return the
    count and the last id, None if none was left."""
    [row] = await _SQL["clear"].by_key.rows(tx, *wanted, after_id, last_id, limit)
    return row[0], row[1]


async def remove_old(
    tx: Transaction,
    now: datetime | None,
    *,
    days: int,
    limit: int,
    whose: AccountFilter = ALL_ACCOUNTS,
) -> int:
    """Delete at most ``limit`` messages of any account older than ``days``; return the count."""
    return await _SQL["remove_old"].by_key.value(tx, now, days, limit, *whose)


async def find_excess(
    tx: Transaction, *, after_account_id: str, limit: int, most: int
) -> list[Excess]:
    """Return the next ``limit`` accounts with messages, and their excess beyond ``most``."""
    return await _SQL["find_excess"].by_key.all(tx, Excess._make, after_account_id, limit, most)


async def remove_excess(tx: Transaction, account_id: str, last_id: int, limit: int) -> int:
    """Delete at most ``limit`` messages of the account up to ``last_id``; return the count."""
    return await _SQL["remove_excess"].by_key.value(tx, account_id, last_id, limit)

"""The outbox: messages that AWS would send elsewhere, stored for inspection."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from queuegate.storage.database import probe_by_key
from queuegate.storage.model import NewOutboxMessage
from queuegate.storage.queries import ALL_ACCOUNTS, AccountFilter, load

if TYPE_CHECKING:
    import asyncpg

    from queuegate.storage.database import Transaction


_SQL = load("topics/stored_outbox")


@dataclass(frozen=True, slots=True)
class OutboxMessage:
    """One message of the outbox; see ``NewOutboxMessage``."""

    outbox_id: int
    account_id: str
    region: str
    protocol: str
    destination: str
    kind: str
    topic_arn: str | None
    subscription_arn: str | None
    message_id: UUID
    subject: str | None
    body: str
    attributes: str | None
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
    return OutboxMessage(*row[:13])


async def insert(tx: Transaction, now: datetime | None, rows: list[NewOutboxMessage]) -> None:
    """Write the messages in this order."""
    if rows:
        await tx.execute(_SQL["insert"].text, now, *map(list, zip(*rows, strict=True)))


async def page(
    tx: Transaction, wanted: OutboxFilter, *, after_id: int, limit: int, most_bytes: int
) -> OutboxPage:
    """Return the next messages behind ``after_id``, at most ``limit``, with bodies and attributes
    of at most ``most_bytes``."""
    await probe_by_key(tx)
    rows = await tx.fetch(_SQL["page"].text, *wanted, after_id, limit, most_bytes)
    return OutboxPage([_message(row) for row in rows], not rows or rows[-1]["is_last"])


async def find(tx: Transaction, account_id: str, outbox_id: int) -> OutboxMessage | None:
    """Return the message of that id in that account."""
    row = await tx.fetchrow(_SQL["find"].text, account_id, outbox_id)
    return None if row is None else _message(row)


async def last_id(tx: Transaction, account_id: str) -> int:
    """Return the id of the account's newest message; 0 without one."""
    await probe_by_key(tx)
    return int(await tx.fetchval(_SQL["last_id"].text, account_id))


async def clear(
    tx: Transaction, wanted: OutboxFilter, *, after_id: int, last_id: int, limit: int
) -> tuple[int, int | None]:
    """Delete the next ``limit`` messages behind ``after_id`` and up to ``last_id``; return the
    count and the last id, None if none was left."""
    await probe_by_key(tx)
    [row] = await tx.fetch(_SQL["clear"].text, *wanted, after_id, last_id, limit)
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
    await probe_by_key(tx)
    return int(await tx.fetchval(_SQL["remove_old"].text, now, days, limit, *whose))


async def find_excess(
    tx: Transaction, *, after_account_id: str, limit: int, most: int
) -> list[Excess]:
    """Return the next ``limit`` accounts with messages, and their excess beyond ``most``."""
    await probe_by_key(tx)
    rows = await tx.fetch(_SQL["find_excess"].text, after_account_id, limit, most)
    return [Excess(*row) for row in rows]


async def remove_excess(tx: Transaction, account_id: str, last_id: int, limit: int) -> int:
    """Delete at most ``limit`` messages of the account up to ``last_id``; return the count."""
    await probe_by_key(tx)
    return int(await tx.fetchval(_SQL["remove_excess"].text, account_id, last_id, limit))

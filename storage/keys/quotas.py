"""Stored quotas of accounts and rate limits of accounts and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuegate.storage.key_model import KINDS, CountedKind, Quota, RateLimit
from queuegate.storage.notifications import notify_quotas_changed
from queuegate.storage.queries import load

if TYPE_CHECKING:
    import asyncpg

    from queuegate.storage.database import Transaction

_SQL = load("keys/quotas")


def _quota(row: asyncpg.Record) -> Quota:
    rates = [
        None if row[f"{what}_count"] is None else RateLimit(row[f"{what}_count"], seconds)
        for what, seconds in (("request", row["request_seconds"]), ("byte", row["byte_seconds"]))
    ]
    counts = row["queues"], row["topics"], row["subscriptions"], row["logs"]
    return Quota(rates[0], *counts, rates[1])


async def read_quotas(tx: Transaction, most: int) -> dict[str, Quota]:
    """Return at most ``most`` quotas by subject."""
    return {row["subject"]: _quota(row) for row in await tx.fetch(_SQL["all"].text, most)}


async def count_quotas(tx: Transaction) -> int:
    """Return the number of quotas."""
    return int(await tx.fetchval(_SQL["count"].text))


async def put_quota(tx: Transaction, subject: str, quota: Quota) -> None:
    """Set the quota of a subject; the commit notifies every process."""
    requests, in_bytes = quota.requests or (None, None), quota.bytes or (None, None)
    await tx.execute(_SQL["put"].text, subject, *requests, *quota.counts, *in_bytes)
    await notify_quotas_changed(tx)


async def remove_quota(tx: Transaction, subject: str) -> bool:
    """Remove the quota of a subject, so that the settings apply; return False if it had none."""
    found = await tx.fetchval(_SQL["remove"].text, subject)
    await notify_quotas_changed(tx)
    return found is not None


async def count_alone(tx: Transaction, kind: CountedKind, account_id: str, most: int) -> int:
    """Count these things of the account, at most ``most``, and lock the count until the transaction
    ends. A thing created in the transaction thus cannot exceed a quota checked with the count."""
    await tx.execute(_SQL["count_alone_from_here"].text, KINDS.index(kind), account_id)
    counting = {
        "queues": _SQL["count_queues"],
        "topics": _SQL["count_topics"],
        "subscriptions": _SQL["count_subscriptions"],
        "logs": _SQL["count_logs"],
    }
    return int(await tx.fetchval(counting[kind].text, account_id, most))

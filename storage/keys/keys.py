"""Keys that clients show: made, listed, revoked, and what processes check them with."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from storage.key_model import Key, RateLimit
from storage.notifications import tell_key_changed
from storage.queries import load

if TYPE_CHECKING:
    import asyncpg

    from storage.database import Transaction

_SQL = load("keys/keys")


class LiveKey(NamedTuple):
    """A key that was not revoked, and the hash of its secret."""

    key: Key
    secret_hash: bytes


class NewKey(NamedTuple):
    """A key to make."""

    account_id: str
    name: str
    secret_hash: bytes
    limit: RateLimit | None
    expires_at: datetime | None


def _key(row: asyncpg.Record) -> Key:
    requests = row["rate_requests"]
    return Key(
        key_id=row["key_id"],
        kind=row["kind"],
        account_id=row["account_id"],
        name=row["key_name"],
        limit=None if requests is None else RateLimit(requests, row["rate_seconds"]),
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
    )


async def create(tx: Transaction, now: datetime | None, new: NewKey) -> Key | None:
    """The new key; None when the account has one of that name."""
    requests, seconds = new.limit or (None, None)
    row = await tx.fetchrow(
        _SQL["create"].text,
        now,
        new.secret_hash,
        new.account_id,
        new.name,
        requests,
        seconds,
        new.expires_at,
    )
    if row is None:
        return None
    await tell_key_changed(tx, row["key_id"])
    return _key(row)


async def count(tx: Transaction) -> int:
    """How many keys are not revoked."""
    found: int = await tx.fetchval(_SQL["count"].text)
    return found


async def page(
    tx: Transaction, account_id: str | None, *, after_id: int, with_revoked: bool, limit: int
) -> list[Key]:
    """Keys of an account, or of all, by number."""
    rows = await tx.fetch(_SQL["page"].text, account_id, after_id, with_revoked, limit)
    return [_key(row) for row in rows]


async def revoke(
    tx: Transaction, now: datetime | None, account_id: str | None, key_id: int
) -> Key | None:
    """The key that is revoked now, if not before; None: the account, or nobody, has none such."""
    row = await tx.fetchrow(_SQL["revoke"].text, now, account_id, key_id)
    if row is None:
        return None
    await tell_key_changed(tx, key_id)
    return _key(row)


async def live(tx: Transaction, key_ids: Iterable[int] | None) -> list[LiveKey]:
    """Those of these keys, or of all, that are not revoked."""
    rows = await tx.fetch(_SQL["live"].text, None if key_ids is None else list(key_ids))
    return [LiveKey(_key(row), row["secret_hash"]) for row in rows]


async def forget(tx: Transaction, now: datetime | None, seconds: int, limit: int) -> int:
    """Delete up to so many keys that were revoked so long ago; how many there were."""
    return len(await tx.fetch(_SQL["forget"].text, now, seconds, limit))

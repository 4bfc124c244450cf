"""API keys and access keys: create, list, revoke, and the data that verifies them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.key_model import ACCESS, API, Key, RateLimit
from queuegate.storage.notifications import notify_key_changed
from queuegate.storage.queries import load

if TYPE_CHECKING:
    import asyncpg

    from queuegate.storage.database import Transaction

_SQL = load("keys/keys")


class LiveKey(NamedTuple):
    """An active key, and the data that verifies it."""

    key: Key
    secret_hash: bytes | None
    """Of an API key."""
    secret: bytes | None
    """Of an access key, encrypted."""
    previous_secret: bytes | None
    """The previous secret, valid until ``key.previous_until``."""


class NewKey(NamedTuple):
    """A key to create."""

    account_id: str
    name: str
    limit: RateLimit | None
    expires_at: datetime | None
    is_administrator: bool
    secret_hash: bytes | None = None
    """Of an API key."""
    access_key: str | None = None
    """Of an access key."""
    secret: bytes | None = None
    """Of an access key, encrypted."""
    policy: str | None = None
    """Permissions of the key."""


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
        is_administrator=row["is_administrator"],
        disabled_at=row["disabled_at"],
        access_key=row["access_key"],
        previous_until=row["previous_until"],
        policy=row["policy"],
    )


async def create(tx: Transaction, now: datetime | None, new: NewKey) -> Key | None:
    """Create a key; return None if the account has one of that name."""
    requests, seconds = new.limit or (None, None)
    row = await tx.fetchrow(
        _SQL["create"].text,
        now,
        API if new.access_key is None else ACCESS,
        new.secret_hash,
        new.access_key,
        new.secret,
        new.account_id,
        new.name,
        requests,
        seconds,
        new.expires_at,
        new.is_administrator,
        new.policy,
    )
    return await _changed(tx, row)


async def count(tx: Transaction) -> int:
    """Count the keys that are not revoked."""
    found: int = await tx.fetchval(_SQL["count"].text)
    return found


async def page(
    tx: Transaction, account_id: str | None, *, after_id: int, with_revoked: bool, limit: int
) -> list[Key]:
    """Return keys of an account, or of all, by number."""
    rows = await tx.fetch(_SQL["page"].text, account_id, after_id, with_revoked, limit)
    return [_key(row) for row in rows]


async def revoke(
    tx: Transaction, now: datetime | None, account_id: str | None, key_id: int
) -> Key | None:
    """Revoke a key, if it is not revoked; return None if it does not exist in the account."""
    row = await tx.fetchrow(_SQL["revoke"].text, now, account_id, key_id)
    return await _changed(tx, row)


async def rotate(
    tx: Transaction,
    now: datetime | None,
    account_id: str | None,
    key_id: int,
    *,
    secret: bytes,
    overlap_seconds: int,
) -> Key | None:
    """Replace the secret of a key; the previous one stays valid for ``overlap_seconds``. Returns
    None if the account has no such access key that is not revoked. ``account_id`` None is any
    account."""
    row = await tx.fetchrow(_SQL["rotate"].text, now, account_id, key_id, secret, overlap_seconds)
    return await _changed(tx, row)


async def disable(
    tx: Transaction,
    now: datetime | None,
    account_id: str | None,
    key_id: int,
    *,
    is_disabled: bool,
) -> Key | None:
    """Disable or enable a key; return None if it does not exist or is revoked."""
    row = await tx.fetchrow(_SQL["disable"].text, now, account_id, key_id, is_disabled)
    return await _changed(tx, row)


async def give_policy(
    tx: Transaction, account_id: str | None, key_id: int, policy: str | None
) -> Key | None:
    """Set or remove the policy of a key; return None if it does not exist or is revoked."""
    row = await tx.fetchrow(_SQL["give_policy"].text, account_id, key_id, policy)
    return await _changed(tx, row)


async def _changed(tx: Transaction, row: asyncpg.Record | None) -> Key | None:
    if row is None:
        return None
    await notify_key_changed(tx, row["key_id"])
    return _key(row)


async def live(tx: Transaction, key_ids: Iterable[int] | None) -> list[LiveKey]:
    """Return the active ones of these keys, or of all."""
    rows = await tx.fetch(_SQL["live"].text, None if key_ids is None else list(key_ids))
    return [
        LiveKey(_key(row), row["secret_hash"], row["secret"], row["previous_secret"])
        for row in rows
    ]


async def sealed(tx: Transaction, limit: int) -> list[tuple[str, bytes]]:
    """Return access keys with their encrypted secrets, of some keys that are not revoked."""
    rows = await tx.fetch(_SQL["sealed"].text, limit)
    return [(row["access_key"], row["secret"]) for row in rows]


async def sample(tx: Transaction) -> tuple[str, bytes] | None:
    """Return one access key with its encrypted secret; None: there are none. The common encryption
    key cannot change until the transaction ends."""
    row = await tx.fetchrow(_SQL["sample"].text)
    return None if row is None else (row["access_key"], row["secret"])


class Sealed(NamedTuple):
    """An access key with its encrypted secrets."""

    key_id: int
    access_key: str
    secret: bytes
    previous_secret: bytes | None


async def all_sealed(tx: Transaction) -> list[Sealed]:
    """Return all encrypted secrets, and lock keys against changes until the transaction ends."""
    await tx.execute(_SQL["hold"].text)
    return [Sealed(**row) for row in await tx.fetch(_SQL["all_sealed"].text)]


async def seal_again(tx: Transaction, changed: list[Sealed]) -> None:
    """Store re-encrypted secrets. They are the same, so no process is notified."""
    await tx.execute(
        _SQL["seal_again"].text,
        [key.key_id for key in changed],
        [key.secret for key in changed],
        [key.previous_secret for key in changed],
    )


async def has_administrator(tx: Transaction) -> bool:
    """Return True if an administrator's key is not revoked."""
    found: bool = await tx.fetchval(_SQL["has_administrator"].text)
    return found


async def forget_revoked(tx: Transaction, now: datetime | None, seconds: int, limit: int) -> int:
    """Delete at most ``limit`` keys revoked ``seconds`` ago; return the count."""
    return len(await tx.fetch(_SQL["forget"].text, now, seconds, limit))

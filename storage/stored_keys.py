"""API keys and access keys, quotas, and the rate windows of producers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.lanes import ClockNow, Entry, Lane, Reply
from queuegate.storage.model import ACCESS, API, KINDS, CountedKind, Key, Quota, RateLimit
from queuegate.storage.notifications import Notice, notify
from queuegate.storage.queries import Query, load

if TYPE_CHECKING:
    import asyncpg

    from queuegate.storage.database import Connection, Database, Transaction


_SQL = load("stored_keys")


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
    requests, seconds = row[4:6]
    limit = None if requests is None else RateLimit(requests, seconds)
    return Key(*[*row[:4], limit, *row[6:14]])


async def create(tx: Transaction, now: datetime | None, new: NewKey) -> Key | None:
    """Create a key; return None if the account has one of that name."""
    requests, seconds = new.limit or (None, None)
    return await _changed(
        tx,
        _SQL["create"],
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


async def count(tx: Transaction) -> int:
    """Count the keys that are not revoked."""
    return await _SQL["count"].value(tx)


async def page(
    tx: Transaction, account_id: str | None, *, after_id: int, with_revoked: bool, limit: int
) -> list[Key]:
    """Return keys of an account, or of all, by number."""
    return await _SQL["page"].all(tx, _key, account_id, after_id, with_revoked, limit)


async def revoke(
    tx: Transaction, now: datetime | None, account_id: str | None, key_id: int
) -> Key | None:
    """Revoke a key, if it is not revoked; return None if it does not exist in the account."""
    return await _changed(tx, _SQL["revoke"], now, account_id, key_id)


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
    return await _changed(tx, _SQL["rotate"], now, account_id, key_id, secret, overlap_seconds)


async def disable(
    tx: Transaction, now: datetime | None, account_id: str | None, key_id: int, *, is_disabled: bool
) -> Key | None:
    """Disable or enable a key; return None if it does not exist or is revoked."""
    return await _changed(tx, _SQL["disable"], now, account_id, key_id, is_disabled)


async def give_policy(
    tx: Transaction, account_id: str | None, key_id: int, policy: str | None
) -> Key | None:
    """Set or remove the policy of a key; return None if it does not exist or is revoked."""
    return await _changed(tx, _SQL["give_policy"], account_id, key_id, policy)


async def _changed(tx: Transaction, change: Query, *parameters: object) -> Key | None:
    row = await change.row(tx, *parameters)
    if row is None:
        return None
    await notify(tx, Notice.KEY_CHANGED, row["key_id"])
    return _key(row)


async def live(tx: Transaction, key_ids: Iterable[int] | None) -> list[LiveKey]:
    """Return the active ones of these keys, or of all."""
    rows = await _SQL["live"].rows(tx, None if key_ids is None else list(key_ids))
    return [
        LiveKey(_key(row), row["secret_hash"], row["secret"], row["previous_secret"])
        for row in rows
    ]


async def sealed(tx: Transaction, limit: int) -> list[tuple[str, bytes]]:
    """Return access keys with their encrypted secrets, of some keys that are not revoked."""
    rows = await _SQL["sealed"].rows(tx, limit)
    return [(row["access_key"], row["secret"]) for row in rows]


async def sample(tx: Transaction) -> tuple[str, bytes] | None:
    """Return one access key with its encrypted secret; None: there are none. The common encryption
    key cannot change until the transaction ends."""
    row = await _SQL["sample"].row(tx)
    return None if row is None else (row["access_key"], row["secret"])


class Sealed(NamedTuple):
    """An access key with its encrypted secrets."""

    key_id: int
    access_key: str
    secret: bytes
    previous_secret: bytes | None


async def all_sealed(tx: Transaction) -> list[Sealed]:
    """Return all encrypted secrets, and lock keys against changes until the transaction ends."""
    await _SQL["hold"].run(tx)
    return [Sealed(**row) for row in await _SQL["all_sealed"].rows(tx)]


async def seal_again(tx: Transaction, changed: list[Sealed]) -> None:
    """Store re-encrypted secrets. They are the same, so no process is notified."""
    await _SQL["seal_again"].run(
        tx,
        [key.key_id for key in changed],
        [key.secret for key in changed],
        [key.previous_secret for key in changed],
    )


async def has_administrator(tx: Transaction) -> bool:
    """Return True if an administrator's key is not revoked."""
    return bool(await _SQL["has_administrator"].value(tx))


async def forget_revoked(tx: Transaction, now: datetime | None, seconds: int, limit: int) -> int:
    """Delete at most ``limit`` keys revoked ``seconds`` ago; return the count."""
    return len(await _SQL["forget"].rows(tx, now, seconds, limit))


def _quota(row: asyncpg.Record) -> Quota:
    rates = [
        None if row[f"{what}_count"] is None else RateLimit(row[f"{what}_count"], seconds)
        for what, seconds in (("request", row["request_seconds"]), ("byte", row["byte_seconds"]))
    ]
    counts = row["queues"], row["topics"], row["subscriptions"], row["logs"]
    return Quota(rates[0], *counts, rates[1])


async def read_quotas(tx: Transaction, most: int) -> dict[str, Quota]:
    """Return at most ``most`` quotas by subject."""
    return {row["subject"]: _quota(row) for row in await _SQL["all"].rows(tx, most)}


async def count_quotas(tx: Transaction) -> int:
    """Return the number of quotas."""
    return await _SQL["count_quotas"].value(tx)


async def put_quota(tx: Transaction, subject: str, quota: Quota) -> None:
    """Set the quota of a subject; the commit notifies every process."""
    requests, in_bytes = quota.requests or (None, None), quota.bytes or (None, None)
    await _SQL["put"].run(tx, subject, *requests, *quota.counts, *in_bytes)
    await notify(tx, Notice.QUOTAS_CHANGED)


async def remove_quota(tx: Transaction, subject: str) -> bool:
    """Remove the quota of a subject, so that the settings apply; return False if it had none."""
    found: int | None = await _SQL["remove"].value(tx, subject)
    await notify(tx, Notice.QUOTAS_CHANGED)
    return found is not None


async def count_alone(tx: Transaction, kind: CountedKind, account_id: str, most: int) -> int:
    """Count these things of the account, at most ``most``, and lock the count until the transaction
    ends. A thing created in the transaction thus cannot exceed a quota checked with the count."""
    await _SQL["count_alone_from_here"].run(tx, KINDS.index(kind), account_id)
    counting = {
        "queues": _SQL["count_queues"],
        "topics": _SQL["count_topics"],
        "subscriptions": _SQL["count_subscriptions"],
        "logs": _SQL["count_logs"],
    }
    return await counting[kind].value(tx, account_id, most)


_TAKE = _SQL["take"].text


class Granted(NamedTuple):
    """Permits of a process; times are relative to the request."""

    permits: int
    slot: int
    """The slot that counts them; returned permits name it."""
    lease_seconds: float
    """The seconds in which they may be used."""
    hold_seconds: float
    """The seconds without further permits; 0: unknown."""


class PermitRequest(Entry[Granted]):
    """A request for permits of one producer, made only after the reply to the previous one."""

    __slots__ = ("key", "limit", "needed", "per_slot", "returned", "returned_slot")

    def __init__(
        self, key: tuple[str, str], limit: RateLimit, needed: int, reply: Reply[Granted]
    ) -> None:
        super().__init__(reply)
        self.key = key
        """(account, producer)."""
        self.limit = limit
        self.needed = needed
        self.per_slot = 0.0
        """Recent requests per hundredth of a window."""
        self.returned = 0
        """Unused permits of ``returned_slot``."""
        self.returned_slot = 0

    def party(self) -> str:
        """Return an ARN, which contains the account."""
        account_id, producer_id = self.key
        return f"arn:aws:queuegate::{account_id}:{producer_id}"


class RateLane:
    """One connection for all requests of this process."""

    def __init__(self, database: Database, now: ClockNow) -> None:
        # Windows lost in a crash need not be on disk.
        settings = {"synchronous_commit": "off", "plan_cache_mode": "force_generic_plan"}
        self._now = now
        self.lane: Lane[PermitRequest] = Lane("rates", database, self._flush, settings=settings)

    async def _flush(
        self, connection: Connection, entries: list[PermitRequest]
    ) -> list[PermitRequest]:
        entries = sorted(entries, key=lambda entry: entry.key)
        row = await connection.fetchrow(
            _TAKE,
            self.lane.now_of(entries[0].party(), self._now),
            [entry.key[0] for entry in entries],
            [entry.key[1] for entry in entries],
            [entry.limit.requests for entry in entries],
            [entry.limit.window_seconds for entry in entries],
            [entry.needed for entry in entries],
            [entry.per_slot for entry in entries],
            [entry.returned for entry in entries],
            [entry.returned_slot for entry in entries],
        )
        assert row is not None
        for entry, permits, slot, lease_ms, hold_ms in zip(entries, *row, strict=True):
            entry.done(Granted(permits, slot, lease_ms / 1000, hold_ms / 1000))
        return []


async def forget_windows(tx: Transaction, now: datetime | None, limit: int) -> int:
    """Delete at most ``limit`` expired windows; return the count."""
    return len(await _SQL["forget_windows"].rows(tx, now, limit))

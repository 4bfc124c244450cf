"""API keys and quotas, as callers create, list, find, change, rotate and remove them.

A bearer key is sent as ``qg_<number>_<secret>``. The number finds the key. The secret has 256
random bits, of which the database stores the SHA-256: nobody can try them all, so a slow hash has
no use. An access key signs requests, as AWS's do. Verifying a signature takes the secret itself, so
the database stores it encrypted (``key_cache``). ``rates.Quotas`` enforces quotas.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.access import policies
from queuegate.gateway.operations.access.key_cache import KeySecrets, hash_of, new_secret
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol.policy_documents import PolicyKind
from queuegate.storage import stored_keys
from queuegate.storage.model import ACCESS, API, Key, Quota, RateLimit
from queuegate.storage.storage_errors import (
    AuthorizationError,
    InvalidParameterValue,
    KeyDoesNotExist,
    KeyExists,
    KeyUnfit,
    OverLimit,
    TooManyKeys,
)
from queuegate.storage.stored_keys import NewKey

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.database import Transaction


PREFIX = "qg_"
"""Prefix of our bearer keys, and of no other bearer token."""
_SECRET_BYTES = 32
_ACCESS_PREFIX = "AKQG"
_ACCESS_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_ACCESS_LENGTH = 16
LONGEST_OVERLAP_SECONDS = 30 * 86_400
"""Maximum seconds for which two secrets of a key are valid."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,80}", re.ASCII)
_LAST_YEAR = datetime(9999, 1, 1, tzinfo=UTC)
"""In the last hours of year 9999, an instant cannot be stored, or is read as infinity."""
_PATIENCE_SECONDS = 1.0


class NewApiKey(NamedTuple):
    """A request for a key."""

    name: str
    limit: RateLimit | None = None
    expires_at: datetime | None = None
    kind: str = API
    is_administrator: bool = False
    policy: str | None = None
    """Permissions of the key, in JSON; None: everything in its account."""


def token(key: Key, secret: str) -> str:
    """Return the bearer token of a key. The token cannot be computed again."""
    return f"{PREFIX}{key.key_id}_{secret}"


def _check(now: datetime | None, wanted: NewApiKey) -> None:
    if not _NAME.fullmatch(wanted.name):
        raise InvalidParameterValue(
            f"A key cannot be called '{wanted.name[:100]}'. Allowed are letters, digits, periods, "
            "hyphens and underscores, at most 80 of them."
        )
    if wanted.expires_at is not None and wanted.expires_at <= (now or datetime.now(UTC)):
        raise InvalidParameterValue("The key would have expired already.")
    if wanted.expires_at is not None and wanted.expires_at >= _LAST_YEAR:
        raise InvalidParameterValue(
            f"The key can expire before {_LAST_YEAR.year}; without an instant it never does."
        )


async def insert(
    tx: Transaction,
    now: datetime | None,
    account_id: str,
    wanted: NewApiKey,
    key_secrets: KeySecrets | None = None,
) -> tuple[Key, str]:
    """Insert a key of an account and return it with its secret. Raises InvalidParameterValue,
    KeyExists, KeyUnfit, PolicyRefused and TooManyKeys."""
    _check(now, wanted)
    policy = policies.checked_key_policy(wanted.policy, is_administrator=wanted.is_administrator)
    if await stored_keys.count(tx) >= LIMITS.keys:
        raise TooManyKeys(LIMITS.keys)
    new = NewKey(
        account_id,
        wanted.name,
        wanted.limit,
        wanted.expires_at,
        wanted.is_administrator,
        policy=policy,
    )
    if wanted.kind == ACCESS:
        access_key = _ACCESS_PREFIX + "".join(
            secrets.choice(_ACCESS_LETTERS) for _ in range(_ACCESS_LENGTH)
        )
        secret, closed = await new_secret(tx, access_key, key_secrets)
        new = new._replace(access_key=access_key, secret=closed)
    else:
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        new = new._replace(secret_hash=hash_of(secret))
    key = await stored_keys.create(tx, now, new)
    if key is None:
        raise KeyExists(wanted.name)
    policies.warn_of(wanted.policy, PolicyKind.IDENTITY, f"key {key.name}")
    return key, secret


async def create_key(
    engine: Engine, caller: Caller, wanted: NewApiKey, account_id: str | None = None
) -> tuple[Key, str]:
    """Create a key of the caller's account, or of another one. Return it with its secret, for a
    bearer key with the token. All processes accept the key when this returns.

    Only administrators may create access keys, administrators' keys and keys of other accounts.
    Raises AuthorizationError, InvalidParameterValue, KeyExists, KeyUnfit, PolicyRefused and
    TooManyKeys.
    """
    account_id = account_id or caller.account_id
    if account_id != caller.account_id or wanted.kind == ACCESS or wanted.is_administrator:
        _check_administrator(caller)
    async with engine.database.transaction() as tx:
        now = engine.clock.of(account_id).now()
        key, secret = await insert(tx, now, account_id, wanted, engine.keys.secrets)
        engine.wakeups.expect_to_know(key.key_id)
    await _wait_until_reloaded(engine, key.key_id)
    return key, secret if key.kind == ACCESS else token(key, secret)


def _check_administrator(caller: Caller) -> None:
    if not caller.is_administrator:
        raise AuthorizationError(
            "This takes the key of an administrator: `queuegate keys create --administrator` makes "
            "one."
        )


def _reach(caller: Caller) -> str | None:
    """Return the account whose keys the caller may change; None: all accounts."""
    return None if caller.is_administrator else caller.account_id


async def list_keys(
    engine: Engine,
    caller: Caller,
    *,
    after_id: int,
    with_revoked: bool,
    limit: int,
    account_id: str | None = None,
) -> list[Key]:
    """Return keys of the caller's account by number; for administrators, also of another account.
    Raises AuthorizationError."""
    account_id = account_id or caller.account_id
    if account_id != caller.account_id:
        _check_administrator(caller)
    async with engine.database.transaction() as tx:
        return await stored_keys.page(
            tx, account_id, after_id=after_id, with_revoked=with_revoked, limit=limit
        )


async def find_key(engine: Engine, caller: Caller, key_id: int) -> Key:
    """Return a key that the caller may change. Raises KeyDoesNotExist."""
    async with engine.database.transaction() as tx:
        return await _find(tx, caller, key_id)


async def _find(tx: Transaction, caller: Caller, key_id: int) -> Key:
    found = await stored_keys.page(
        tx, _reach(caller), after_id=key_id - 1, with_revoked=True, limit=1
    )
    for key in found:
        if key.key_id == key_id:
            return key
    raise KeyDoesNotExist(key_id)


_Change = Callable[["Transaction", datetime | None], Awaitable["Key | None"]]


async def _change(engine: Engine, caller: Caller, key_id: int, change: _Change) -> Key:
    async with engine.database.transaction() as tx:
        key = await _find(tx, caller, key_id)
        if key.kind == ACCESS or key.is_administrator:
            _check_administrator(caller)
        changed = await change(tx, engine.clock.of(key.account_id).now())
        if changed is None:
            raise KeyDoesNotExist(key_id)
        engine.wakeups.expect_to_know(key_id)
    await _wait_until_reloaded(engine, key_id)
    return changed


async def revoke_key(engine: Engine, caller: Caller, key_id: int) -> Key:
    """Revoke a key: all processes refuse it when this returns. Revoking a revoked key changes
    nothing. Raises AuthorizationError and KeyDoesNotExist."""
    reach = _reach(caller)
    return await _change(
        engine, caller, key_id, lambda tx, now: stored_keys.revoke(tx, now, reach, key_id)
    )


async def change_key(
    engine: Engine,
    caller: Caller,
    key_id: int,
    *,
    is_disabled: bool | None = None,
    policy: str | None = None,
) -> Key:
    """Disable or enable a key; set its policy, or remove it with an empty text. None leaves a
    setting as it is. Raises AuthorizationError, KeyDoesNotExist (also for revoked keys), KeyUnfit
    and PolicyRefused."""

    async def change(tx: Transaction, now: datetime | None) -> Key | None:
        changed: Key | None = await _find(tx, caller, key_id)
        if policy is not None and changed is not None:
            changed = await policies.give(tx, changed, policy)
        if is_disabled is not None:
            changed = await stored_keys.disable(tx, now, None, key_id, is_disabled=is_disabled)
        return changed

    return await _change(engine, caller, key_id, change)


async def rotate_key(
    engine: Engine, caller: Caller, key_id: int, overlap_seconds: int
) -> tuple[Key, str]:
    """Replace the secret of an access key and return the new one. The previous secret stays valid
    for ``overlap_seconds``. Raises AuthorizationError, KeyDoesNotExist (also for revoked keys) and
    KeyUnfit."""
    made = ""

    async def renew(tx: Transaction, now: datetime | None) -> Key | None:
        nonlocal made
        key, made = await rotate(
            tx, now, await _find(tx, caller, key_id), overlap_seconds, engine.keys.secrets
        )
        return key

    key = await _change(engine, caller, key_id, renew)
    return key, made


async def rotate(
    tx: Transaction,
    now: datetime | None,
    key: Key,
    overlap_seconds: int,
    key_secrets: KeySecrets | None,
) -> tuple[Key, str]:
    """Rotate a key that was read in this transaction. Raises KeyDoesNotExist and KeyUnfit."""
    if key.access_key is None:
        raise KeyUnfit(f"Key {key.key_id} does not sign: make another one, and revoke this one.")
    secret, closed = await new_secret(tx, key.access_key, key_secrets)
    changed = await stored_keys.rotate(
        tx, now, None, key.key_id, secret=closed, overlap_seconds=overlap_seconds
    )
    if changed is None:
        raise KeyDoesNotExist(key.key_id)
    return changed, secret


async def _wait_until_reloaded(engine: Engine, key_id: int) -> None:
    """Reload the key here, and wait up to 1 s until the other processes have reloaded it."""
    engine.keys.changed(key_id)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await engine.keys.settle()
    await engine.wakeups.wait_for_key(key_id)


_SUBJECT = re.compile(r"[0-9]{12}|key-[1-9][0-9]{0,17}").fullmatch


def _checked_quota(subject: str, quota: Quota) -> None:
    """Raise InvalidParameterValue for an unknown subject, or for limits that the subject cannot
    have."""
    if not _SUBJECT(subject):
        raise InvalidParameterValue("A quota is of an account of 12 digits, or of a key: key-17.")
    if subject.startswith("key-") and any(one is not None for one in quota.counts):
        raise InvalidParameterValue(
            "A key has requests and bytes; all other quotas are its account's."
        )
    if quota == Quota():
        raise InvalidParameterValue("A quota needs a limit.")


async def put(tx: Transaction, subject: str, quota: Quota) -> None:
    """Set the quota of an account or a key. Raises InvalidParameterValue and OverLimit."""
    _checked_quota(subject, quota)
    await stored_keys.put_quota(tx, subject, quota)
    if await stored_keys.count_quotas(tx) > LIMITS.quotas:
        raise OverLimit(f"There can be {LIMITS.quotas} quotas.")


def _check_sets_quotas(engine: Engine, caller: Caller) -> None:
    if not (caller.is_administrator or engine.rules.opens_quotas):
        raise AuthorizationError("Quotas are for administrators: this takes the key of one.")


async def list_quotas(engine: Engine, caller: Caller) -> dict[str, Quota]:
    """Return all stored quotas. Raises AuthorizationError."""
    _check_sets_quotas(engine, caller)
    async with engine.database.transaction() as tx:
        return await stored_keys.read_quotas(tx, LIMITS.quotas)


async def put_quota(engine: Engine, caller: Caller, subject: str, quota: Quota) -> None:
    """Set a quota; all processes use it within 1 s. Raises AuthorizationError,
    InvalidParameterValue and OverLimit."""
    _check_sets_quotas(engine, caller)
    async with engine.database.transaction() as tx:
        await put(tx, subject, quota)
    await engine.quotas.load()


async def remove_quota(engine: Engine, caller: Caller, subject: str) -> None:
    """Remove the stored quota of an account or a key, if there is one. Raises
    AuthorizationError."""
    _check_sets_quotas(engine, caller)
    async with engine.database.transaction() as tx:
        await stored_keys.remove_quota(tx, subject)
    await engine.quotas.load()

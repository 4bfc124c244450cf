"""Quotas of accounts and keys, as administrators list, set and remove them. ``rates.Quotas``
enforces quotas."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage import stored_keys
from queuegate.storage.model import Quota
from queuegate.storage.storage_errors import AuthorizationError, InvalidParameterValue, OverLimit

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.database import Transaction


_SUBJECT = re.compile(r"[0-9]{12}|key-[1-9][0-9]{0,17}").fullmatch


def checked(subject: str, quota: Quota) -> None:
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
    checked(subject, quota)
    await stored_keys.put_quota(tx, subject, quota)
    if await stored_keys.count_quotas(tx) > LIMITS.quotas:
        raise OverLimit(f"There can be {LIMITS.quotas} quotas.")


def _check_administrator(engine: Engine, caller: Caller) -> None:
    if not (caller.is_administrator or engine.rules.opens_quotas):
        raise AuthorizationError("Quotas are for administrators: this takes the key of one.")


async def list_quotas(engine: Engine, caller: Caller) -> dict[str, Quota]:
    """Return all stored quotas. Raises AuthorizationError."""
    _check_administrator(engine, caller)
    async with engine.database.transaction() as tx:
        return await stored_keys.read_quotas(tx, LIMITS.quotas)


async def put_quota(engine: Engine, caller: Caller, subject: str, quota: Quota) -> None:
    """Set a quota; all processes use it within 1 s. Raises AuthorizationError,
    InvalidParameterValue and OverLimit."""
    _check_administrator(engine, caller)
    async with engine.database.transaction() as tx:
        await put(tx, subject, quota)
    await engine.quotas.load()


async def remove_quota(engine: Engine, caller: Caller, subject: str) -> None:
    """Remove the stored quota of an account or a key, if there is one. Raises
    AuthorizationError."""
    _check_administrator(engine, caller)
    async with engine.database.transaction() as tx:
        await stored_keys.remove_quota(tx, subject)
    await engine.quotas.load()

"""SMS: attributes of an account, opted-out numbers, and the numbers of the sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_SQL = load("topics/sms")


class Namespace(NamedTuple):
    """The owner of settings and numbers: a region of an account."""

    account_id: str
    region: str


class SandboxNumber(NamedTuple):
    """A phone number that may receive messages while the account is in the sandbox."""

    phone_number: str
    is_verified: bool


async def sms_attributes(tx: Transaction, owner: Namespace) -> dict[str, str]:
    """Return the attributes that were set."""
    text = await tx.fetchval(_SQL["attributes"].text, *owner)
    found: dict[str, str] = json.loads(text) if text is not None else {}
    return found


async def change_sms_attributes(
    tx: Transaction, owner: Namespace, changes: Mapping[str, str], unset: Sequence[str]
) -> None:
    """Set ``changes``, delete ``unset``, leave the others."""
    await tx.execute(_SQL["change_attributes"].text, *owner, json.dumps(dict(changes)), list(unset))


async def is_opted_out(tx: Transaction, owner: Namespace, phone_number: str) -> bool:
    """Return True if that number has opted out."""
    return bool(await tx.fetchval(_SQL["is_opted_out"].text, *owner, phone_number))


async def opt_out(tx: Transaction, owner: Namespace, phone_number: str) -> None:
    """Stop messages to that number."""
    await tx.execute(_SQL["opt_out"].text, *owner, phone_number)


async def opt_in(tx: Transaction, owner: Namespace, phone_number: str) -> None:
    """Allow messages to that number again."""
    await tx.execute(_SQL["opt_in"].text, *owner, phone_number)


async def list_opted_out(
    tx: Transaction, owner: Namespace, *, after_number: str, limit: int
) -> list[str]:
    """Return opted-out numbers in byte order, behind that one."""
    rows = await tx.fetch(_SQL["list_opted_out"].text, *owner, after_number, limit)
    return [row["phone_number"] for row in rows]


async def add_sandbox_number(
    tx: Transaction,
    owner: Namespace,
    phone_number: str,
    *,
    language_code: str,
    one_time_password: str,
) -> bool:
    """Add the number, or replace its password; return False if it is verified already."""
    added = await tx.fetchval(
        _SQL["add_sandbox_number"].text, *owner, phone_number, language_code, one_time_password
    )
    return added is not None


async def verify_sandbox_number(
    tx: Transaction, owner: Namespace, phone_number: str, one_time_password: str
) -> bool | None:
    """Mark the number as verified if the password is right; return whether it is, None without such
    a number."""
    is_right: bool | None = await tx.fetchval(
        _SQL["verify_sandbox_number"].text, *owner, phone_number, one_time_password
    )
    return is_right


async def delete_sandbox_number(tx: Transaction, owner: Namespace, phone_number: str) -> bool:
    """Delete the number; return False if there was none."""
    return await tx.fetchval(_SQL["delete_sandbox_number"].text, *owner, phone_number) is not None


async def list_sandbox_numbers(
    tx: Transaction, owner: Namespace, *, after_number: str, limit: int
) -> list[SandboxNumber]:
    """Return numbers of the sandbox in byte order, behind that one."""
    rows = await tx.fetch(_SQL["list_sandbox_numbers"].text, *owner, after_number, limit)
    return [SandboxNumber(*row) for row in rows]

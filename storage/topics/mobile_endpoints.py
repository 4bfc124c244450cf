"""Mobile endpoints: platform applications, their devices, and phone numbers of SMS."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import asyncpg

from queuegate.storage.model import ApplicationName, PlatformApplication, PlatformEndpoint
from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction


_SQL = load("topics/mobile_endpoints")

_TOKEN_INDEX = "platform_endpoints_token"


def application_arn(identity: ApplicationName) -> str:
    """Return the ARN of a platform application (docs/contract/sns.md 3.9)."""
    account_id, region, platform, name = identity
    return f"arn:aws:sns:{region}:{account_id}:app/{platform}/{name}"


def endpoint_arn(identity: ApplicationName, endpoint_id: UUID) -> str:
    """Return the ARN of an endpoint of that application (docs/contract/sns.md 3.9)."""
    account_id, region, platform, name = identity
    return f"arn:aws:sns:{region}:{account_id}:endpoint/{platform}/{name}/{endpoint_id}"


def _application(row: asyncpg.Record) -> PlatformApplication:
    identity = ApplicationName(*row[1:5])
    attributes = json.loads(row["attributes"])
    return PlatformApplication(
        row["application_id"], identity, application_arn(identity), attributes
    )


def _endpoint(row: asyncpg.Record) -> PlatformEndpoint:
    identity = ApplicationName(*row[4:8])
    return PlatformEndpoint(
        row["endpoint_id"],
        row["position"],
        endpoint_arn(identity, row["endpoint_id"]),
        *identity[:3],
        row["token"],
        json.loads(row["attributes"]),
        row["application_enabled"] != "false",
    )


async def create_application(
    tx: Transaction, now: datetime | None, identity: ApplicationName, attributes: Mapping[str, str]
) -> PlatformApplication | None:
    """Create an application; return None if the name exists."""
    text = json.dumps(dict(attributes))
    return await _SQL["create_application"].first(tx, _application, now, *identity, text)


async def find_application(
    tx: Transaction, identity: ApplicationName
) -> PlatformApplication | None:
    """Return the application of that name, locked against deletion until the transaction ends."""
    return await _SQL["find_application"].first(tx, _application, *identity)


async def merge_application_attributes(
    tx: Transaction, application_id: int, attributes: Mapping[str, str]
) -> None:
    """Set these attributes and leave the others."""
    await _SQL["merge_application_attributes"].run(tx, application_id, json.dumps(dict(attributes)))


async def delete_application(tx: Transaction, identity: ApplicationName) -> None:
    """Delete the application, if it is there, and its endpoints."""
    await _SQL["delete_application"].run(tx, *identity)


async def list_applications(
    tx: Transaction, account_id: str, region: str, *, after_application_id: int, limit: int
) -> list[PlatformApplication]:
    """Return applications in order of creation, behind that one."""
    return await _SQL["list_applications"].all(
        tx, _application, account_id, region, after_application_id, limit
    )


async def create_endpoint(
    tx: Transaction,
    now: datetime | None,
    application_id: int,
    *,
    endpoint_id: UUID,
    token: str,
    attributes: Mapping[str, str],
) -> bool:
    """Add a device; return False if the application has one with that token."""
    text = json.dumps(dict(attributes))
    row = await _SQL["create_endpoint"].row(tx, now, endpoint_id, application_id, token, text)
    return row is not None


async def find_endpoint_by_token(
    tx: Transaction, application_id: int, token: str
) -> PlatformEndpoint | None:
    """Return the application's endpoint with that token."""
    return await _SQL["find_endpoint_by_token"].first(tx, _endpoint, application_id, token)


async def find_endpoint(tx: Transaction, endpoint_id: UUID) -> PlatformEndpoint | None:
    """Return the endpoint of that id."""
    return await _SQL["find_endpoint"].first(tx, _endpoint, endpoint_id)


async def existing_endpoints(tx: Transaction, endpoint_ids: Collection[UUID]) -> set[UUID]:
    """Return the endpoints that exist."""
    rows = await _SQL["existing_endpoints"].by_key.rows(tx, list(endpoint_ids))
    return {row["endpoint_id"] for row in rows}


async def lock_endpoint(tx: Transaction, endpoint_id: UUID) -> PlatformEndpoint | None:
    """Lock and return the endpoint, until the transaction ends."""
    return await _SQL["lock_endpoint"].first(tx, _endpoint, endpoint_id)


async def set_endpoint(
    tx: Transaction, endpoint_id: UUID, token: str, attributes: Mapping[str, str]
) -> bool:
    """Replace token and attributes; return False, unchanged, if another one has the token."""
    text = json.dumps(dict(attributes))
    try:
        async with tx.transaction():
            await _SQL["set_endpoint"].run(tx, endpoint_id, token, text)
    except asyncpg.UniqueViolationError as error:
        if error.constraint_name != _TOKEN_INDEX:
            raise
        return False
    return True


async def find_other_with_token(tx: Transaction, endpoint_id: UUID, token: str) -> UUID | None:
    """Return the endpoint with that token in the same application."""
    return await _SQL["find_endpoint_of_same_application"].value(tx, endpoint_id, token)


async def delete_endpoint(tx: Transaction, endpoint_id: UUID) -> None:
    """Delete the endpoint if it is there."""
    await _SQL["delete_endpoint"].run(tx, endpoint_id)


async def list_endpoints(
    tx: Transaction, application_id: int, *, after_position: int, limit: int
) -> list[PlatformEndpoint]:
    """Return endpoints of the application in order of creation, behind that position."""
    return await _SQL["list_endpoints"].all(tx, _endpoint, application_id, after_position, limit)


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
    text: str | None = await _SQL["attributes"].value(tx, *owner)
    found: dict[str, str] = json.loads(text or "{}")
    return found


async def change_sms_attributes(
    tx: Transaction, owner: Namespace, changes: Mapping[str, str], unset: Sequence[str]
) -> None:
    """Set ``changes``, delete ``unset``, leave the others."""
    await _SQL["change_attributes"].run(tx, *owner, json.dumps(dict(changes)), list(unset))


async def is_opted_out(tx: Transaction, owner: Namespace, phone_number: str) -> bool:
    """Return True if that number has opted out."""
    return bool(await _SQL["is_opted_out"].value(tx, *owner, phone_number))


async def opt_out(tx: Transaction, owner: Namespace, phone_number: str) -> None:
    """Stop messages to that number."""
    await _SQL["opt_out"].run(tx, *owner, phone_number)


async def opt_in(tx: Transaction, owner: Namespace, phone_number: str) -> None:
    """Allow messages to that number again."""
    await _SQL["opt_in"].run(tx, *owner, phone_number)


async def list_opted_out(
    tx: Transaction, owner: Namespace, *, after_number: str, limit: int
) -> list[str]:
    """Return opted-out numbers in byte order, behind that one."""
    rows = await _SQL["list_opted_out"].rows(tx, *owner, after_number, limit)
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
    parameters = *owner, phone_number, language_code, one_time_password
    return bool(await _SQL["add_sandbox_number"].value(tx, *parameters))


async def verify_sandbox_number(
    tx: Transaction, owner: Namespace, phone_number: str, one_time_password: str
) -> bool | None:
    """Verify the number with the password; return whether it is right, None without a number."""
    return await _SQL["verify_sandbox_number"].value(tx, *owner, phone_number, one_time_password)


async def delete_sandbox_number(tx: Transaction, owner: Namespace, phone_number: str) -> bool:
    """Delete the number; return False if there was none."""
    return bool(await _SQL["delete_sandbox_number"].value(tx, *owner, phone_number))


async def list_sandbox_numbers(
    tx: Transaction, owner: Namespace, *, after_number: str, limit: int
) -> list[SandboxNumber]:
    """Return numbers of the sandbox in byte order, behind that one."""
    return await _SQL["list_sandbox_numbers"].all(
        tx, SandboxNumber._make, *owner, after_number, limit
    )

"""Mobile push: applications on push services, and endpoints, each a device of one of them
(docs/contract/sns.md 3.9). Nothing is pushed: see the outbox.

Credentials of push services are kept, and told to nobody.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from queuegate.gateway.operations.caller import Caller
from queuegate.storage.errors import NotFound, PushTokenTaken, Unavailable
from queuegate.storage.model import ApplicationName, PlatformApplication, PlatformEndpoint
from queuegate.storage.topics import platforms

if TYPE_CHECKING:
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.database import Transaction

_ENDPOINT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ATTEMPTS = 5


async def create_application(
    engine: Engine, caller: Caller, platform: str, name: str, attributes: Mapping[str, str]
) -> PlatformApplication:
    """The new application, or the one that has the name."""
    identity = ApplicationName(caller.account_id, caller.region, platform, name)
    for _ in range(_ATTEMPTS):
        async with engine.database.transaction() as tx:
            now = engine.clock.of(caller.account_id).now()
            application = await platforms.create_application(tx, now, identity, attributes)
            if application is None:
                application = await platforms.find_application(tx, identity)
        if application is not None:
            return application
    raise Unavailable("The application is being created and deleted by others.")


async def _found(tx: Transaction, caller: Caller, identity: ApplicationName) -> PlatformApplication:
    """The caller's application, not deleted until the transaction ends."""
    application = None
    if identity[:2] == (caller.account_id, caller.region):
        application = await platforms.find_application(tx, identity)
    if application is None:
        raise NotFound("PlatformApplication does not exist")
    return application


async def find_application(
    engine: Engine, caller: Caller, identity: ApplicationName
) -> PlatformApplication:
    """Raises NotFound."""
    async with engine.database.transaction() as tx:
        return await _found(tx, caller, identity)


async def delete_application(engine: Engine, caller: Caller, identity: ApplicationName) -> None:
    """Delete it and its endpoints; one that does not exist is fine."""
    if identity[:2] == (caller.account_id, caller.region):
        async with engine.database.transaction() as tx:
            await platforms.delete_application(tx, identity)


async def change_application(
    engine: Engine, caller: Caller, identity: ApplicationName, attributes: Mapping[str, str]
) -> None:
    """Set these attributes and leave the others. Raises NotFound."""
    async with engine.database.transaction() as tx:
        application = await _found(tx, caller, identity)
        await platforms.merge_application_attributes(tx, application.application_id, attributes)


async def list_applications(
    engine: Engine, caller: Caller, *, after_id: int, limit: int
) -> list[PlatformApplication]:
    """The caller's applications in order of creation."""
    async with engine.database.transaction() as tx:
        return await platforms.list_applications(
            tx, caller.account_id, caller.region, after_application_id=after_id, limit=limit
        )


async def create_endpoint(
    engine: Engine,
    caller: Caller,
    identity: ApplicationName,
    token: str,
    attributes: Mapping[str, str],
) -> str:
    """The ARN of the new endpoint, or of the one with this token and these attributes. Raises
    NotFound, and PushTokenTaken when the one with the token has others."""
    for _ in range(_ATTEMPTS):
        async with engine.database.transaction() as tx:
            application = await _found(tx, caller, identity)
            endpoint_id = uuid4()
            if await platforms.create_endpoint(
                tx,
                engine.clock.of(caller.account_id).now(),
                application.application_id,
                endpoint_id=endpoint_id,
                token=token,
                attributes=attributes,
            ):
                return platforms.endpoint_arn(identity, endpoint_id)
            existing = await platforms.find_endpoint_by_token(tx, application.application_id, token)
        if existing is not None:
            if existing.attributes != attributes:
                raise PushTokenTaken(existing.arn)
            return existing.arn
    raise Unavailable("The endpoint is being created and deleted by others.")


def _owned(caller: Caller, endpoint: PlatformEndpoint | None, arn: str) -> PlatformEndpoint:
    """The endpoint if it is the caller's and all of the ARN is right."""
    whose = (caller.account_id, caller.region)
    if endpoint is None or endpoint.arn != arn or (endpoint.account_id, endpoint.region) != whose:
        raise NotFound("Endpoint does not exist")
    return endpoint


def _id_of(arn: str) -> UUID | None:
    """What the ARN of an endpoint ends with; None when no endpoint can have it."""
    last = arn.rpartition("/")[2]
    return UUID(last) if _ENDPOINT_ID.fullmatch(last) else None


async def find_missing(engine: Engine, arns: Iterable[str]) -> set[str]:
    """Those of the ARNs, which are well-formed, whose endpoint is not there (any more)."""
    ids = {arn: _id_of(arn) for arn in arns}
    existing: set[UUID | None] = set()
    if wanted := {one for one in ids.values() if one is not None}:
        async with engine.database.transaction() as tx:
            existing |= await platforms.existing_endpoints(tx, wanted)
    return {arn for arn, one in ids.items() if one not in existing}


async def find_endpoint(engine: Engine, caller: Caller, arn: str) -> PlatformEndpoint:
    """Raises NotFound."""
    endpoint_id, endpoint = _id_of(arn), None
    if endpoint_id is not None:
        async with engine.database.transaction() as tx:
            endpoint = await platforms.find_endpoint(tx, endpoint_id)
    return _owned(caller, endpoint, arn)


async def _locked(tx: Transaction, caller: Caller, arn: str) -> PlatformEndpoint:
    endpoint_id = _id_of(arn)
    endpoint = None if endpoint_id is None else await platforms.lock_endpoint(tx, endpoint_id)
    return _owned(caller, endpoint, arn)


async def delete_endpoint(engine: Engine, caller: Caller, arn: str) -> None:
    """Raises NotFound."""
    async with engine.database.transaction() as tx:
        endpoint = await _locked(tx, caller, arn)
        await platforms.delete_endpoint(tx, endpoint.endpoint_id)


async def change_endpoint(
    engine: Engine,
    caller: Caller,
    arn: str,
    work_out: Callable[[PlatformEndpoint], tuple[str, Mapping[str, str]]],
) -> None:
    """``work_out`` says what token and attributes become, of the endpoint as it is now.

    Raises NotFound, and PushTokenTaken for the token of another endpoint of the application.
    """
    async with engine.database.transaction() as tx:
        endpoint = await _locked(tx, caller, arn)
        token, attributes = work_out(endpoint)
        if not await platforms.set_endpoint(tx, endpoint.endpoint_id, token, attributes):
            other = await platforms.find_other_with_token(tx, endpoint.endpoint_id, token)
            if other is None:
                raise Unavailable("The endpoint with this token is just being deleted.")
            raise PushTokenTaken(endpoint.arn.rpartition("/")[0] + f"/{other}")


async def list_endpoints(
    engine: Engine, caller: Caller, identity: ApplicationName, *, after_position: int, limit: int
) -> list[PlatformEndpoint]:
    """Endpoints of the application in order of creation. Raises NotFound."""
    async with engine.database.transaction() as tx:
        application = await _found(tx, caller, identity)
        return await platforms.list_endpoints(
            tx, application.application_id, after_position=after_position, limit=limit
        )

"""Mobile messaging: SMS settings and numbers, push applications and endpoints, and the outbox.

The outbox stores messages to endpoints that only AWS reaches.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar
from uuid import UUID, uuid4

from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.queues import json_messages
from queuegate.gateway.operations.runtime.identifiers import new_id
from queuegate.storage.model import (
    ApplicationName,
    NewOutboxMessage,
    PlatformApplication,
    PlatformEndpoint,
)
from queuegate.storage.storage_errors import NotFound, OptedOut, PushTokenTaken, Unavailable
from queuegate.storage.topics import mobile_endpoints, stored_outbox
from queuegate.storage.topics.mobile_endpoints import Namespace
from queuegate.storage.topics.stored_outbox import OutboxFilter, OutboxMessage

if TYPE_CHECKING:
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.gateway.operations.topics.topic_publishing import PublishMessage
    from queuegate.storage.database import Transaction


_CLEARED_AT_ONCE = 2_000


def _message(
    caller: Caller, protocol: str, destination: str, kind: str, text: str
) -> NewOutboxMessage:
    place = caller.account_id, caller.region
    return NewOutboxMessage(
        *place, protocol, destination, kind, None, None, new_id(), None, text, None
    )


async def keep(
    engine: Engine,
    caller: Caller,
    protocol: str,
    destination: str,
    text: str,
    request: PublishMessage,
) -> str:
    """Store a message to an endpoint, without a topic, in the outbox. Return its id."""
    attributes = json_messages.stored(request.attributes) if request.attributes else None
    kept = _message(caller, protocol, destination, "Notification", text)
    kept = kept._replace(subject=request.subject, attributes=attributes)
    async with engine.database.transaction() as tx:
        await stored_outbox.insert(tx, engine.clock.of(caller.account_id).now(), [kept])
    return kept.message_id


async def list_outbox(
    engine: Engine, wanted: OutboxFilter, *, after_id: int, limit: int
) -> tuple[list[OutboxMessage], int | None]:
    """Return messages after ``after_id`` in order of writing, up to ``limit``, fewer if they are
    large; and the id to continue after, None: no more messages."""
    async with engine.database.transaction() as tx:
        messages, is_last = await stored_outbox.page(
            tx, wanted, after_id=after_id, limit=limit, most_bytes=engine.limits.outbox_page_bytes
        )
    return messages, None if is_last else messages[-1].outbox_id


async def find_in_outbox(engine: Engine, account_id: str, outbox_id: int) -> OutboxMessage | None:
    """Return the message of that id in the account."""
    async with engine.database.transaction() as tx:
        return await stored_outbox.find(tx, account_id, outbox_id)


async def clear_outbox(engine: Engine, wanted: OutboxFilter) -> int:
    """Delete all messages written so far, in batches. Return their number."""
    async with engine.database.transaction() as tx:
        last_id = await stored_outbox.last_id(tx, wanted.account_id)
    after_id: int | None = 0
    deleted = 0
    while after_id is not None and after_id < last_id:
        async with engine.database.transaction() as tx:
            count, after_id = await stored_outbox.clear(
                tx, wanted, after_id=after_id, last_id=last_id, limit=_CLEARED_AT_ONCE
            )
        deleted += count
    return deleted


_PASSWORDS = 1_000_000
_P = ParamSpec("_P")
_R = TypeVar("_R")


def _owner(caller: Caller) -> Namespace:
    return Namespace(caller.account_id, caller.region)


def _of_owner(
    statement: Callable[Concatenate[Transaction, Namespace, _P], Awaitable[_R]],
) -> Callable[Concatenate[Engine, Caller, _P], Awaitable[_R]]:
    """Return the operation that runs this statement for the caller in a transaction."""

    async def operation(
        engine: Engine, caller: Caller, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> _R:
        async with engine.database.transaction() as tx:
            return await statement(tx, _owner(caller), *args, **kwargs)

    return operation


attributes = _of_owner(mobile_endpoints.sms_attributes)
change_attributes = _of_owner(mobile_endpoints.change_sms_attributes)
is_opted_out = _of_owner(mobile_endpoints.is_opted_out)
opt_in = _of_owner(mobile_endpoints.opt_in)
opt_out = _of_owner(mobile_endpoints.opt_out)
"""Also for the owner of a number, who cannot answer STOP here."""
list_opted_out = _of_owner(mobile_endpoints.list_opted_out)
verify_sandbox_number = _of_owner(mobile_endpoints.verify_sandbox_number)
delete_sandbox_number = _of_owner(mobile_endpoints.delete_sandbox_number)
list_sandbox_numbers = _of_owner(mobile_endpoints.list_sandbox_numbers)


async def check_wants_messages(engine: Engine, caller: Caller, number: str) -> None:
    if await is_opted_out(engine, caller, number):
        raise OptedOut(f"The phone number {number} has opted out of receiving SMS messages")


async def add_sandbox_number(
    engine: Engine, caller: Caller, number: str, *, language_code: str
) -> None:
    """Add a number and send it a one-time password: to the outbox, as kind VerificationCode. An
    unverified number gets a new password; a verified one stays verified and gets none."""
    password = f"{secrets.randbelow(_PASSWORDS):06}"
    text = f"Your verification code is {password}"
    message = _message(caller, "sms", number, "VerificationCode", text)
    async with engine.database.transaction() as tx:
        is_pending = await mobile_endpoints.add_sandbox_number(
            tx, _owner(caller), number, language_code=language_code, one_time_password=password
        )
        if is_pending:
            await stored_outbox.insert(tx, engine.clock.of(caller.account_id).now(), [message])


_ENDPOINT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ATTEMPTS = 5


async def create_application(
    engine: Engine, caller: Caller, platform: str, name: str, attributes: Mapping[str, str]
) -> PlatformApplication:
    """Return the new application, or the existing one of that name."""
    identity = ApplicationName(caller.account_id, caller.region, platform, name)
    for _ in range(_ATTEMPTS):
        async with engine.database.transaction() as tx:
            now = engine.clock.of(caller.account_id).now()
            application = await mobile_endpoints.create_application(tx, now, identity, attributes)
            if application is None:
                application = await mobile_endpoints.find_application(tx, identity)
        if application is not None:
            return application
    raise Unavailable("The application is being created and deleted by others.")


async def _found(tx: Transaction, caller: Caller, identity: ApplicationName) -> PlatformApplication:
    """Lock and return the caller's application."""
    application = None
    if identity[:2] == (caller.account_id, caller.region):
        application = await mobile_endpoints.find_application(tx, identity)
    if application is None:
        raise NotFound("PlatformApplication does not exist")
    return application


async def find_application(
    engine: Engine, caller: Caller, identity: ApplicationName
) -> PlatformApplication:
    async with engine.database.transaction() as tx:
        return await _found(tx, caller, identity)


async def delete_application(engine: Engine, caller: Caller, identity: ApplicationName) -> None:
    """Delete an application with its endpoints, if there is one."""
    if identity[:2] == (caller.account_id, caller.region):
        async with engine.database.transaction() as tx:
            await mobile_endpoints.delete_application(tx, identity)


async def change_application(
    engine: Engine, caller: Caller, identity: ApplicationName, attributes: Mapping[str, str]
) -> None:
    """Set these attributes and leave the others. Raises NotFound."""
    async with engine.database.transaction() as tx:
        application = await _found(tx, caller, identity)
        await mobile_endpoints.merge_application_attributes(
            tx, application.application_id, attributes
        )


async def list_applications(
    engine: Engine, caller: Caller, *, after_id: int, limit: int
) -> list[PlatformApplication]:
    async with engine.database.transaction() as tx:
        return await mobile_endpoints.list_applications(
            tx, caller.account_id, caller.region, after_application_id=after_id, limit=limit
        )


async def create_endpoint(
    engine: Engine,
    caller: Caller,
    identity: ApplicationName,
    token: str,
    attributes: Mapping[str, str],
) -> str:
    """Return the ARN of the new endpoint, or of the existing one with this token and these
    attributes. Raises NotFound, and PushTokenTaken if the endpoint with the token has other
    attributes."""
    for _ in range(_ATTEMPTS):
        async with engine.database.transaction() as tx:
            application = await _found(tx, caller, identity)
            endpoint_id = uuid4()
            if await mobile_endpoints.create_endpoint(
                tx,
                engine.clock.of(caller.account_id).now(),
                application.application_id,
                endpoint_id=endpoint_id,
                token=token,
                attributes=attributes,
            ):
                return mobile_endpoints.endpoint_arn(identity, endpoint_id)
            existing = await mobile_endpoints.find_endpoint_by_token(
                tx, application.application_id, token
            )
        if existing is not None:
            if existing.attributes != attributes:
                raise PushTokenTaken(existing.arn)
            return existing.arn
    raise Unavailable("The endpoint is being created and deleted by others.")


def _owned(caller: Caller, endpoint: PlatformEndpoint | None, arn: str) -> PlatformEndpoint:
    """Return the endpoint if it is the caller's and the whole ARN matches."""
    namespace = (caller.account_id, caller.region)
    if (
        endpoint is None
        or endpoint.arn != arn
        or (endpoint.account_id, endpoint.region) != namespace
    ):
        raise NotFound("Endpoint does not exist")
    return endpoint


def _id_of(arn: str) -> UUID | None:
    """Return the id in the ARN of an endpoint; None: not a valid id."""
    last = arn.rpartition("/")[2]
    return UUID(last) if _ENDPOINT_ID.fullmatch(last) else None


async def find_missing(engine: Engine, arns: Iterable[str]) -> set[str]:
    """Return those of the ARNs, all well-formed, whose endpoint does not exist."""
    ids = {arn: _id_of(arn) for arn in arns}
    existing: set[UUID | None] = set()
    if wanted := {one for one in ids.values() if one is not None}:
        async with engine.database.transaction() as tx:
            existing |= await mobile_endpoints.existing_endpoints(tx, wanted)
    return {arn for arn, one in ids.items() if one not in existing}


async def find_endpoint(engine: Engine, caller: Caller, arn: str) -> PlatformEndpoint:
    """Return an endpoint. Raises NotFound."""
    endpoint_id, endpoint = _id_of(arn), None
    if endpoint_id is not None:
        async with engine.database.transaction() as tx:
            endpoint = await mobile_endpoints.find_endpoint(tx, endpoint_id)
    return _owned(caller, endpoint, arn)


async def _locked(tx: Transaction, caller: Caller, arn: str) -> PlatformEndpoint:
    endpoint_id = _id_of(arn)
    endpoint = (
        None if endpoint_id is None else await mobile_endpoints.lock_endpoint(tx, endpoint_id)
    )
    return _owned(caller, endpoint, arn)


async def delete_endpoint(engine: Engine, caller: Caller, arn: str) -> None:
    """Delete an endpoint. Raises NotFound."""
    async with engine.database.transaction() as tx:
        endpoint = await _locked(tx, caller, arn)
        await mobile_endpoints.delete_endpoint(tx, endpoint.endpoint_id)


async def change_endpoint(
    engine: Engine,
    caller: Caller,
    arn: str,
    work_out: Callable[[PlatformEndpoint], tuple[str, Mapping[str, str]]],
) -> None:
    """Change an endpoint. ``work_out`` returns its new token and attributes. Raises NotFound, and
    PushTokenTaken for the token of another endpoint of the application."""
    async with engine.database.transaction() as tx:
        endpoint = await _locked(tx, caller, arn)
        token, attributes = work_out(endpoint)
        if not await mobile_endpoints.set_endpoint(tx, endpoint.endpoint_id, token, attributes):
            other = await mobile_endpoints.find_other_with_token(tx, endpoint.endpoint_id, token)
            if other is None:
                raise Unavailable("The endpoint with this token is just being deleted.")
            raise PushTokenTaken(endpoint.arn.rpartition("/")[0] + f"/{other}")


async def list_endpoints(
    engine: Engine, caller: Caller, identity: ApplicationName, *, after_position: int, limit: int
) -> list[PlatformEndpoint]:
    """Return endpoints of the application in order of creation. Raises NotFound."""
    async with engine.database.transaction() as tx:
        application = await _found(tx, caller, identity)
        return await mobile_endpoints.list_endpoints(
            tx, application.application_id, after_position=after_position, limit=limit
        )

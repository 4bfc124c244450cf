"""Publish to one push endpoint or phone number: kept in the outbox, sent nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gateway.operations.identifiers import new_id
from gateway.operations.queues import message_attributes
from gateway.operations.topics import publish_checks, push_endpoints, sms
from storage.errors import InvalidParameter
from storage.model import NewOutboxMessage
from storage.topics import outbox

if TYPE_CHECKING:
    from gateway.operations.caller import Caller
    from gateway.operations.engine import Engine
    from gateway.operations.queues.message_attributes import Values

_SMS_CHARACTERS = 1_600


class DirectMessage(NamedTuple):
    """What to send."""

    message: str | None
    subject: str | None = None
    structure: str | None = None
    attributes: Values | None = None


async def send_text(
    engine: Engine, caller: Caller, phone_number: str, request: DirectMessage
) -> str:
    """The id of an SMS to the number. Refuses numbers that are none or have opted out."""
    text = _checked(request, ("sms",))
    if len(text) > _SMS_CHARACTERS:
        raise InvalidParameter("Message too long")
    number = await sms.check_phone_for_publish(engine, caller, phone_number)
    return await _keep(engine, caller, ("sms", number, text), request)


async def push(engine: Engine, caller: Caller, target_arn: str, request: DirectMessage) -> str:
    """The id of a message to the endpoint. Refuses missing and disabled ones."""
    endpoint = await push_endpoints.endpoint_for_publish(engine, caller, target_arn)
    text = _checked(request, (endpoint.platform, "default"))
    return await _keep(engine, caller, ("application", target_arn, text), request)


def _checked(request: DirectMessage, keys: tuple[str, ...]) -> str:
    """The text for the first of these keys that a message in JSON has."""
    encoded = publish_checks.check_message(request.message)
    assert request.message is not None
    publish_checks.check_subject(request.subject)
    size = len(encoded) + publish_checks.check_attributes(request.attributes)
    if size > publish_checks.MESSAGE_BYTES:
        raise InvalidParameter("Message too long")
    texts = publish_checks.check_structure(request.structure, request.message)
    if texts is None:
        return request.message
    return next((texts[key] for key in keys if key in texts), texts["default"])


async def _keep(
    engine: Engine, caller: Caller, message: tuple[str, str, str], request: DirectMessage
) -> str:
    protocol, destination, text = message
    message_id = new_id()
    kept = NewOutboxMessage(
        account_id=caller.account_id,
        region=caller.region,
        protocol=protocol,
        destination=destination,
        kind="Notification",
        topic_arn=None,
        subscription_arn=None,
        message_id=message_id,
        subject=request.subject,
        body=text,
        attributes=message_attributes.stored(request.attributes) if request.attributes else None,
    )
    async with engine.database.transaction() as tx:
        await outbox.insert(tx, engine.clock.of(caller.account_id).now(), [kept])
    return message_id

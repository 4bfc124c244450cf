"""Publish to one push endpoint or phone number: kept in the outbox, sent nowhere."""

from __future__ import annotations

from queuegate.gateway.faces.aws.sns import publish_checks, push_endpoints
from queuegate.gateway.faces.aws.sns.errors import (
    InvalidParameter,
)
from queuegate.gateway.faces.aws.sns.sms import number_to_publish_to
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.topics import mobile
from queuegate.gateway.operations.topics.topic_publishing import PublishMessage

_SMS_CHARACTERS = 1_600


async def send_text(
    engine: Engine, caller: Caller, phone_number: str, request: PublishMessage
) -> str:
    """The id of an SMS to the number. Refuses numbers that are none or have opted out."""
    text = _checked(request, ("sms",))
    if len(text) > _SMS_CHARACTERS:
        raise InvalidParameter("Message too long")
    number = await number_to_publish_to(engine, caller, phone_number)
    return await mobile.keep(engine, caller, "sms", number, text, request)


async def push(engine: Engine, caller: Caller, target_arn: str, request: PublishMessage) -> str:
    """The id of a message to the endpoint. Refuses missing and disabled ones."""
    endpoint = await push_endpoints.endpoint_for_publish(engine, caller, target_arn)
    text = _checked(request, (endpoint.platform, "default"))
    return await mobile.keep(engine, caller, "application", target_arn, text, request)


def _checked(request: PublishMessage, keys: tuple[str, ...]) -> str:
    """The text for the first of these keys that a message in JSON has."""
    encoded = publish_checks.check_message(request.message)
    assert request.message is not None
    publish_checks.check_subject(request.subject)
    size = len(encoded) + publish_checks.check_attributes(request.attributes)
    if size > LIMITS.published_bytes:
        raise InvalidParameter("Message too long")
    texts = publish_checks.check_structure(request.structure, request.message)
    if texts is None:
        return request.message
    return next((texts[key] for key in keys if key in texts), texts["default"])

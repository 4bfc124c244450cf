"""Checks of published messages, with the texts of SNS (docs/contract/sns.md 3.2 and 3.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from queuegate.gateway.faces.aws.aws_refusals import (
    InvalidParameter,
    ParameterValueInvalid,
    ValidationFailed,
)
from queuegate.gateway.operations.queues.json_messages import Values
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.topics.fan_out import FanOutMessage
from queuegate.gateway.operations.topics.topic_publishing import PublishMessage, outgoing
from queuegate.protocol import names
from queuegate.storage.model import Topic

_SUBJECT_CHARACTERS = 100
_NAME_BYTES = 256
_NAME_TEXT = (
    " was found in the message attribute name. Can only include alphanumeric characters, hyphens, "
    "underscores, or dots."
)
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.")


def check(
    engine: Engine,
    topic: Topic,
    request: PublishMessage,
    *,
    is_of_batch: bool = False,
) -> FanOutMessage:
    """Check one message. The limit of bytes applies to all messages of a batch together."""
    message, subject, structure, attributes, _, _, _ = request
    encoded = check_message(message)
    if subject is not None:
        check_subject(subject)
    texts = check_structure(structure, message) if structure and message else None
    attribute_bytes = check_attributes(attributes) if attributes else 0
    new = outgoing(
        engine,
        topic,
        request,
        message_bytes=len(encoded),
        attribute_bytes=attribute_bytes,
        texts=texts,
    )
    if new.size_bytes > topic.maximum_message_bytes and not is_of_batch:
        raise InvalidParameter("Message too long")
    return new


def check_message(message: str | None) -> bytes:
    """Return the message in UTF-8. It must be present, not empty, and valid for queues."""
    if message is None:
        raise ValidationFailed("message")
    if not message:
        raise InvalidParameter("Empty message")
    try:
        encoded = message.encode()
    except UnicodeEncodeError:
        raise InvalidParameter("Message Reason: the message is not valid Unicode") from None
    if names.invalid_utf8(encoded):
        raise InvalidParameter("Message Reason: the message has characters that XML cannot express")
    return encoded


def check_subject(subject: str | None) -> None:
    """Check the subject: 1 to 100 characters on one line."""
    if subject is None:
        return
    if (
        not 1 <= len(subject) <= _SUBJECT_CHARACTERS
        or names.invalid_characters(subject)
        or any(character < " " or character == "\x7f" for character in subject)
    ):
        raise InvalidParameter("Subject")


def check_structure(structure: str | None, message: str) -> dict[str, str] | None:
    """Return the texts by protocol of a message in JSON; None for a plain message."""
    if structure is None or structure == "":
        return None
    if structure != "json":
        raise InvalidParameter("MessageStructure")
    try:
        members = orjson.loads(message)
    except (ValueError, RecursionError):
        members = None
    if not isinstance(members, dict):
        raise InvalidParameter("Message Structure - JSON message body failed to parse")
    texts = {name: text for name, text in members.items() if isinstance(text, str)}
    if "default" not in texts:
        raise InvalidParameter("Message Structure - No default entry in JSON message body")
    if any(names.invalid_characters(text) for text in texts.values()):
        raise InvalidParameter("Message Reason: the message has characters that XML cannot express")
    return texts


def check_attributes(values: Values | None) -> int:
    """Return the bytes of message attributes. Raises ParameterValueInvalid."""
    size = 0
    for name, value in (values or {}).items():
        _check_name(name)
        size += len(name.encode()) + _check_value(name, value)
    return size


def _check_name(name: str) -> None:
    if len(name.encode(errors="replace")) > _NAME_BYTES:
        raise ParameterValueInvalid("Length of message attribute name must be less than 256 bytes.")
    if not name:
        raise ParameterValueInvalid("The message attribute name must not be empty.")
    for character in name:
        if character not in _PLAIN and (character < "\x80" or names.invalid_characters(character)):
            raise ParameterValueInvalid(
                f"Invalid non-alphanumeric character '#x{ord(character):X}'{_NAME_TEXT}"
            )
    for place, character in (("starting", name[0]), ("ending", name[-1])):
        if character == ".":
            raise ParameterValueInvalid(
                f"Invalid message attribute name {place} with character '.' was found."
            )
    if ".." in name:
        raise ParameterValueInvalid("Message attribute name can not have successive '.' character.")


def _check_value(name: str, value: Mapping[str, Any]) -> int:
    data_type = value.get("DataType")
    if data_type is None:
        raise ValidationFailed(f"messageAttributes.{name}.member.dataType")
    if not names.is_topic_data_type(data_type):
        raise ParameterValueInvalid(
            f"The message attribute '{name}' has an invalid message attribute type, the set of "
            "supported type prefixes is Binary, Number, and String."
        )
    kind = names.base_type(data_type)
    field, other = ("Binary", "String") if kind == "Binary" else ("String", "Binary")
    payload = value.get(f"{field}Value")
    if not payload:
        if value.get(f"{other}Value"):
            raise ParameterValueInvalid(
                f"The message attribute '{name}' with type '{data_type}' must use field '{field}'."
            )
        raise ParameterValueInvalid(
            f"The message attribute '{name}' must contain non-empty message attribute value for "
            f"message attribute type '{data_type}'."
        )
    type_bytes = len(data_type.encode())
    if isinstance(payload, bytes):
        return type_bytes + len(payload)
    if names.invalid_characters(payload):
        raise ParameterValueInvalid(
            f"The message attribute '{name}' has characters that XML cannot express."
        )
    if kind == "Number" and not names.is_number(payload):
        raise ParameterValueInvalid(f"Could not cast message attribute '{name}' value to number.")
    return type_bytes + len(payload.encode())

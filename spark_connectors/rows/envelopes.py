"""The document that SNS puts around a message when raw delivery is off."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

from spark_connectors.rows.columns import Attribute
from spark_connectors.transport.http.json_text import loads


class Envelope(NamedTuple):
    """What was in it."""

    message: str
    topic_arn: str
    subject: str | None
    attributes: list[Attribute]


def envelope_of(body: str | None) -> Envelope | None:
    """The envelope that a body is; None for any other body, however broken. Raises nothing."""
    # Most bodies of a queue without envelopes end here, without being parsed.
    if body is None or '"Notification"' not in body or '"TopicArn"' not in body:
        return None
    try:
        document = loads(body.encode())
    except (ValueError, RecursionError):  # a body of a million brackets is the latter
        return None
    if not isinstance(document, dict) or document.get("Type") != "Notification":
        return None
    message, topic_arn = document.get("Message"), document.get("TopicArn")
    if not isinstance(message, str) or not isinstance(topic_arn, str):
        return None
    attributes = document.get("MessageAttributes")
    return Envelope(message, topic_arn, _text(document.get("Subject")), _attributes(attributes))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _attributes(given: object) -> list[Attribute]:
    if not isinstance(given, dict):
        return []
    return [_attribute(name, value) for name, value in given.items() if isinstance(value, dict)]


def _attribute(name: str, value: dict[str, Any]) -> Attribute:
    """One attribute. Bytes that are no base64 stay the text that they are."""
    kind, text = _text(value.get("Type")), _text(value.get("Value"))
    if kind is not None and text is not None and kind.split(".")[0] == "Binary":
        try:
            return Attribute(name, kind, None, base64.b64decode(text, validate=True))
        except ValueError:
            pass
    return Attribute(name, kind, text, None)

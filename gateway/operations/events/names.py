"""Routing keys and patterns as callers write them, and which of them are topics.

A pattern that can be the name of a standard topic is that topic: what is published to either
reaches the subscriptions of both APIs. All others are kept apart from what SNS sees.
"""

from __future__ import annotations

from queuegate.protocol import names, routing_keys
from queuegate.protocol.errors import Malformed
from queuegate.storage.errors import InvalidParameterValue


def checked_key(text: str) -> str:
    """The routing key. Raises InvalidParameterValue."""
    try:
        routing_keys.check_key(text)
    except Malformed as error:
        raise InvalidParameterValue(str(error)) from None
    return text


def checked_pattern(text: str) -> str:
    """The pattern. Raises InvalidParameterValue."""
    try:
        routing_keys.check_pattern(text)
    except Malformed as error:
        raise InvalidParameterValue(str(error)) from None
    return text


def is_topic(pattern: str) -> bool:
    """Whether the pattern is a topic, and not only like one."""
    return names.is_standard_topic_name(pattern)

"""What is said all over the face of channels."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from queuegate.gateway.faces.json.endpoints import Call
from queuegate.gateway.faces.json.message_members import QUEUE_NAME_PATTERN
from queuegate.gateway.operations.access.authorization import known_own_queue
from queuegate.gateway.operations.channels.channels import find_channel, find_existing_channel
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage.model import Queue

ChannelName = Annotated[
    str,
    Meta(
        description="A channel, which is a queue of yours: letters, digits, hyphens and "
        "underscores. One that is not there is made.",
        examples=["alerts"],
        extra_json_schema={"pattern": QUEUE_NAME_PATTERN, "maxLength": 80},
    ),
]
"""Documented, not checked here: the operation does."""

Window = Annotated[
    int,
    Meta(
        ge=1,
        le=LIMITS.visibility_timeout_seconds,
        description="Seconds in which a message has to be acknowledged, or somebody else gets it.",
    ),
]


class ChannelQuery(Struct, forbid_unknown_fields=True):
    """Which channel."""

    channel: ChannelName


async def channel_of(call: Call, name: str) -> Queue:
    """The channel of that name, for whoever has the right that the endpoint needs."""
    return await find_channel(call.engine, call.caller, call.right, name)


def known_channel_of(call: Call, name: str) -> Queue | None:
    """The same, if nobody has to be asked."""
    return known_own_queue(call.engine, call.caller, call.right, name)


async def existing_channel_of(call: Call, name: str) -> Queue:
    """The same, and refused if it is not there."""
    return await find_existing_channel(call.engine, call.caller, call.right, name)

"""Fields that many endpoints of the native API share: names of queues, pauses."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, UnsetType

from queuegate.gateway.faces.json.message_members import QUEUE_NAME_PATTERN

QueueName = Annotated[
    str,
    Meta(
        description="A queue of yours. Without its suffix `.fifo` a FIFO queue is found, too.",
        examples=["jobs"],
        extra_json_schema={"pattern": QUEUE_NAME_PATTERN, "maxLength": 80},
    ),
]
"""A queue in a path or a body. Documented, not checked: what none can be called does not exist."""

PausedAt = Annotated[
    datetime | UnsetType, Meta(description="Start of the pause; absent: it is not paused.")
]

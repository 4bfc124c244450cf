"""What a message is made of, on faces of JSON: the same members mean the same on all of them, and
queues are called the same."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from msgspec import Meta, Raw

from queuegate.gateway.operations.runtime.limits import LIMITS

QUEUE_NAME_PATTERN = r"^([A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo)$"
"""What a queue may be called (docs/contract/sqs.md 2.1)."""
BIGGEST_ID = (1 << 63) - 1
"""Ids of messages, archived ones and positions are bigints."""
_HEADER_NAME = (
    r"^(?!([Aa][Ww][Ss]|[Aa][Mm][Aa][Zz][Oo][Nn])\.)"
    r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"
)
_FIFO_ID = "^[!-~]{1,128}$"

HeaderName = Annotated[str, Meta(extra_json_schema={"pattern": _HEADER_NAME, "maxLength": 256})]
Headers = Annotated[
    dict[HeaderName, Raw],
    Meta(
        description="Anything about the message, as JSON. SQS receivers see each header as a "
        "message attribute: strings as String, numbers as Number, the rest as String.boolean, "
        "String.null and String.json.",
        extra_json_schema={"maxProperties": LIMITS.headers},
    ),
]
JsonMessage = Annotated[
    Raw, Meta(description="Any JSON value. SQS receivers get its text, as you wrote it.")
]
MessageId = Annotated[
    int,
    Meta(
        ge=1,
        le=BIGGEST_ID,
        description="Of a message; unique in its queue.",
        examples=[1042],
    ),
]
Delay = Annotated[
    int,
    Meta(
        ge=0,
        le=LIMITS.delay_seconds,
        description="Seconds until the message becomes visible. Absent or null: the queue's.",
    ),
]
FifoId = Annotated[str, Meta(extra_json_schema={"pattern": _FIFO_ID, "maxLength": 128})]
AttemptId = Annotated[str, Meta(pattern=_FIFO_ID, max_length=128)]
"""Checked here, for only receives of FIFO queues look at it."""
Timeout = Annotated[
    int,
    Meta(
        ge=0,
        le=LIMITS.visibility_timeout_seconds,
        description="Seconds for which others do not see what you receive.",
    ),
]
Priority = Annotated[
    int,
    Meta(
        ge=0, le=LIMITS.priority, description="10 is the most urgent and comes first, 0 the least."
    ),
]
Ttl = Annotated[
    int,
    Meta(
        ge=1,
        le=LIMITS.ttl_seconds,
        description="Seconds after which nobody gets it any more. Absent or null: as long as the "
        "queue keeps messages, normally four days.",
    ),
]


def instant_of(milliseconds: int) -> datetime:
    """When that is, since the epoch."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)

"""What the methods of the text face take in their URL."""

from __future__ import annotations

import re
from typing import Annotated, Any

from msgspec import Meta, Struct

from queuegate.gateway.faces.json.parameters import decode_query
from queuegate.gateway.operations.queues.queues import DEFAULT_QUEUE
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage.errors import MalformedInput

_BROKEN = re.compile(rb"%(?![0-9A-Fa-f]{2})").search

Timeout = Annotated[
    int,
    Meta(
        ge=0,
        le=LIMITS.text_visibility_timeout_seconds,
        description="Seconds for which nobody else gets it, from now on.",
    ),
]
Id = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 128})]
Receipt = Annotated[str, Meta(description="What `Message-Receipt-Id` said as you received it.")]


class Common(Struct, forbid_unknown_fields=True, rename="kebab", kw_only=True):
    """What every method takes."""

    queue: Annotated[str, Meta(description="The name of the queue.")] = DEFAULT_QUEUE


class Enqueue(Common, rename="kebab", kw_only=True):
    """Of POST."""

    group_id: Annotated[
        Id | None,
        Meta(
            description="One message of a group is received at a time, the oldest first. Text and "
            "FIFO queues need it."
        ),
    ] = None
    deduplication_id: Annotated[
        Id | None,
        Meta(
            description="A message with the same one in its group is a duplicate until this one is "
            "deleted. Absent: the SHA-1 of the payload."
        ),
    ] = None
    ttl: Annotated[
        Annotated[int, Meta(ge=1, le=LIMITS.ttl_seconds)] | None,
        Meta(description="Seconds after which nobody gets it any more."),
    ] = None


class Dequeue(Common, rename="kebab", kw_only=True):
    """Of GET."""

    visibility_timeout: Timeout = 60
    wait: Annotated[
        int,
        Meta(
            ge=0, le=LIMITS.receive_wait_seconds, description="Seconds to wait until there is one."
        ),
    ] = 0


class Delete(Common, rename="kebab", kw_only=True):
    """Of DELETE."""

    receipt_id: Receipt


class Change(Common, rename="kebab", kw_only=True):
    """Of PATCH."""

    receipt_id: Receipt
    visibility_timeout: Timeout


def read(kind: type[Struct] | None, query: bytes) -> Any:
    """The parameters of a query string; each may come once. Raises MalformedInput."""
    broken = _BROKEN(query)
    if broken is not None:
        raise MalformedInput(
            f"The query string is not percent-encoded at its byte {broken.start()}: a `%` is "
            "written `%25`."
        )
    return decode_query(kind, query)

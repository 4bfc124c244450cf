"""What the methods of the text face take in their URL."""

from __future__ import annotations

import re
from typing import Annotated, Any

from msgspec import Meta, Struct

from gateway.faces.json.parameters import decode_query
from gateway.operations.limits import LIMITS
from gateway.operations.queues.text_queues import DEFAULT_QUEUE
from storage.errors import MalformedInput

_BROKEN = re.compile(rb"%(?![0-9A-Fa-f]{2})").search

Timeout = Annotated[int, Meta(ge=0, le=LIMITS.text_visibility_timeout_seconds)]


class Common(Struct, forbid_unknown_fields=True, rename="kebab", kw_only=True):
    """What every method takes."""

    queue: str = DEFAULT_QUEUE


class Enqueue(Common, rename="kebab", kw_only=True):
    """Of POST."""

    group_id: str | None = None
    deduplication_id: str | None = None
    ttl: Annotated[int, Meta(ge=1, le=LIMITS.ttl_seconds)] | None = None


class Dequeue(Common, rename="kebab", kw_only=True):
    """Of GET."""

    visibility_timeout: Timeout = 60
    wait: Annotated[int, Meta(ge=0, le=LIMITS.receive_wait_seconds)] = 0


class Delete(Common, rename="kebab", kw_only=True):
    """Of DELETE."""

    receipt_id: str


class Change(Common, rename="kebab", kw_only=True):
    """Of PATCH."""

    receipt_id: str
    visibility_timeout: Timeout


def read(kind: type[Struct], query: bytes) -> Any:
    """The parameters of a query string; each may come once. Raises MalformedInput."""
    broken = _BROKEN(query)
    if broken is not None:
        raise MalformedInput(
            f"The query string is not percent-encoded at its byte {broken.start()}: a `%` is "
            "written `%25`."
        )
    return decode_query(kind, query)

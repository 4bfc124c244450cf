"""Refusals on faces of JSON: their status, by kind, and what they are in below `/v1`."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from queuegate.storage.errors import Kind, OverLimit, Rejected

_STATUSES: Mapping[Kind, int] = {
    Kind.ABSENT: 404,
    Kind.BUSY: 409,
    Kind.DISABLED: 409,
    Kind.EXISTS: 409,
    Kind.FORBIDDEN: 403,
    Kind.FULL: 429,
    Kind.INVALID: 400,
    Kind.LIMIT: 409,
    Kind.MALFORMED: 400,
    Kind.THROTTLED: 429,
    Kind.TOO_LARGE: 413,
    Kind.UNKNOWN: 404,
    Kind.UNSUPPORTED: 400,
}


def status_of(refusal: Rejected) -> int:
    """The status of a refusal. Of messages in flight there may be fewer in a moment."""
    return 429 if isinstance(refusal, OverLimit) else _STATUSES[refusal.kind]


class Error(Struct):
    """Why a request was refused. The text says what to change."""

    error: str

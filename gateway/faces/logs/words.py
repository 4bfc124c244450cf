"""What is said all over the face of logs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from gateway.faces.json.endpoints import Call
from gateway.faces.json.message_members import BIGGEST_ID
from gateway.operations.access import find_log
from gateway.operations.limits import LIMITS
from storage.log_model import Log

_NAME_PATTERN = "^[A-Za-z0-9_-]{1,80}$"

LogName = Annotated[
    str,
    Meta(
        description="A log of yours: letters, digits, hyphens and underscores.",
        examples=["orders"],
        extra_json_schema={"pattern": _NAME_PATTERN, "maxLength": 80},
    ),
]
"""Documented, not checked here: the operation does."""

PartitionNumber = Annotated[
    int, Meta(ge=0, le=2_147_483_647, description="Of a partition, from 0 in each log.")
]
Offset = Annotated[
    int, Meta(ge=0, le=BIGGEST_ID, description="Of a record in its partition, from 0.")
]
Key = Annotated[str, Meta(extra_json_schema={"maxLength": LIMITS.record_key_length})]


class LogPath(Struct, forbid_unknown_fields=True):
    """Which log."""

    log: LogName


async def log_of(call: Call) -> Log:
    """The log that the path names, for whoever has the right that the endpoint needs."""
    return await find_log(call.engine, call.caller, call.right, call.path.log)

"""What is said all over the face of logs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from queuegate.gateway.faces.json.endpoints import Call
from queuegate.gateway.faces.json.message_members import BIGGEST_ID
from queuegate.gateway.operations.access.authorization import find_log, known_log
from queuegate.gateway.operations.logs.consumer_groups import find_group
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage.log_model import Group, Log

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

GroupName = Annotated[
    str,
    Meta(
        description="A group of readers of the log: letters, digits, hyphens and underscores.",
        examples=["billing"],
        extra_json_schema={"pattern": _NAME_PATTERN, "maxLength": 80},
    ),
]
SubscriberName = Annotated[
    str,
    Meta(
        description="One of the readers: letters, digits, hyphens and underscores.",
        examples=["worker-1"],
        extra_json_schema={"pattern": _NAME_PATTERN, "maxLength": 80},
    ),
]

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


class GroupPath(LogPath, forbid_unknown_fields=True):
    """Which group."""

    group: GroupName


class SubscriberPath(GroupPath, forbid_unknown_fields=True):
    """Which subscriber."""

    subscriber: SubscriberName


async def log_of(call: Call) -> Log:
    """The log that the path names, for whoever has the right that the endpoint needs."""
    return await find_log(call.engine, call.caller, call.right, call.path.log)


async def group_of(call: Call) -> tuple[Log, Group]:
    """The log and the group that the path names."""
    log = await log_of(call)
    return log, await find_group(call.engine, log, call.path.group)


def known_group_of(call: Call) -> tuple[Log, Group] | None:
    """The same if this process knows them, without asking the database."""
    log = known_log(call.engine, call.caller, call.right, call.path.log)
    group = None if log is None else call.engine.logs.cached_group(log, call.path.group)
    return None if log is None or group is None else (log, group)

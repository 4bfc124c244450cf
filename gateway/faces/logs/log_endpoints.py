"""Endpoints of logs: settings and partitions; names and paths of the face."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from queuegate.gateway.faces.json.json_endpoints import (
    PAGED,
    Answer,
    Answered,
    Call,
    Endpoint,
    next_page,
    schema_name,
)
from queuegate.gateway.faces.json.json_fields import BIGGEST_ID
from queuegate.gateway.operations.access.authorization import find_log, known_log
from queuegate.gateway.operations.logs.consumer_groups import find_group
from queuegate.gateway.operations.logs.logs import (
    change_log,
    counts,
    create_log,
    delete_log,
    list_logs,
    partition_states,
    purge_log,
)
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage.model import ConsumerGroup, LogCounts, LogRetention, StoredLog

_NAME_PATTERN = "^[A-Za-z0-9_-]{1,80}$"

LogName = Annotated[
    str,
    Meta(
        description="Name of a log of the account: letters, digits, hyphens and underscores.",
        examples=["orders"],
        extra_json_schema={"pattern": _NAME_PATTERN, "maxLength": 80},
    ),
]
"""Documented, not validated: the operation validates it."""

GroupName = Annotated[
    str,
    Meta(
        description="Name of a consumer group: letters, digits, hyphens and underscores.",
        examples=["billing"],
        extra_json_schema={"pattern": _NAME_PATTERN, "maxLength": 80},
    ),
]
SubscriberName = Annotated[
    str,
    Meta(
        description="Name of a subscriber: letters, digits, hyphens and underscores.",
        examples=["worker-1"],
        extra_json_schema={"pattern": _NAME_PATTERN, "maxLength": 80},
    ),
]

PartitionNumber = Annotated[
    int, Meta(ge=0, le=2_147_483_647, description="Number of a partition, from 0 in each log.")
]
Offset = Annotated[
    int, Meta(ge=0, le=BIGGEST_ID, description="Offset of a record in its partition, from 0.")
]
Key = Annotated[str, Meta(extra_json_schema={"maxLength": LIMITS.record_key_length})]


class LogPath(Struct, forbid_unknown_fields=True):
    """A log."""

    log: LogName


class GroupPath(LogPath, forbid_unknown_fields=True):
    """A group of a log."""

    group: GroupName


class SubscriberPath(GroupPath, forbid_unknown_fields=True):
    """A subscriber of a group."""

    subscriber: SubscriberName


async def log_of(call: Call) -> StoredLog:
    """Return the log in the path. The caller needs the permission of the endpoint."""
    return await find_log(call.engine, call.caller, call.right, call.path.log)


async def group_of(call: Call) -> tuple[StoredLog, ConsumerGroup]:
    """Return the log and the group in the path."""
    log = await log_of(call)
    return log, await find_group(call.engine, log, call.path.group)


def known_group_of(call: Call) -> tuple[StoredLog, ConsumerGroup] | None:
    """Return the log and the group in the path if both are cached."""
    log = known_log(call.engine, call.caller, call.right, call.path.log)
    group = None if log is None else call.engine.logs.cached_group(log, call.path.group)
    return None if log is None or group is None else (log, group)


_TAG = "logs"
_LONGEST_SECONDS = 2_147_483_647

Partitions = Annotated[
    int,
    Meta(
        ge=1,
        le=LIMITS.shared_partitions,
        description="Number of partitions, which keys share. Cannot be changed. Null: each key has "
        "its own partition, created with its first record.",
    ),
]
RetainConsumed = Annotated[
    int,
    Meta(
        ge=0,
        le=_LONGEST_SECONDS,
        description="Retention in seconds of records that every group has finished, if the log has "
        "groups. Null: such records are not deleted.",
    ),
]
MaxAge = Annotated[
    int,
    Meta(
        ge=1,
        le=_LONGEST_SECONDS,
        description="Maximum age of records in seconds, read or not. Null: no limit.",
    ),
]
MaxBytes = Annotated[
    int,
    Meta(
        ge=1,
        le=BIGGEST_ID,
        description="Maximum bytes of payloads and metadata, read or not. Each partition deletes "
        "its share of the excess, the oldest records first. Null: no limit.",
    ),
]
_DEFAULTS = LogRetention()


@schema_name("Settings")
class LogSettingsBody(Struct, forbid_unknown_fields=True):
    """Settings to change. Absent members stay unchanged."""

    retain_consumed: RetainConsumed | UnsetType | None = UNSET
    max_age: MaxAge | UnsetType | None = UNSET
    max_bytes: MaxBytes | UnsetType | None = UNSET

    def after(self, before: LogRetention) -> LogRetention:
        """Apply these settings to others."""
        given = self.retain_consumed, self.max_age, self.max_bytes
        return LogRetention(
            *(old if new is UNSET else new for new, old in zip(given, before, strict=True))
        )


class NewLog(LogSettingsBody, forbid_unknown_fields=True, kw_only=True):
    """A log to create. Absent members have their defaults."""

    log: LogName
    partitions: Partitions | None = None


@schema_name("Log")
class LogShown(Struct):
    """A log."""

    log: str
    created_at: datetime
    partitions: Partitions | None
    partition_count: Annotated[int, Meta(ge=0, description="Number of existing partitions.")]
    records: Annotated[int, Meta(ge=0, description="Number of stored records.")]
    bytes: Annotated[int, Meta(ge=0, description="Bytes of payloads and metadata.")]
    oldest_at: Annotated[
        datetime | None,
        Meta(description="Publish time of the oldest record. Null: the log is empty."),
    ]
    groups: Annotated[int, Meta(ge=0, description="Number of consumer groups.")]
    retain_consumed: RetainConsumed | None
    max_age: MaxAge | None
    max_bytes: MaxBytes | None


class Logs(Struct):
    """Logs, by name in byte order."""

    logs: list[LogShown]


class LogsQuery(Struct, forbid_unknown_fields=True):
    """A page of a listing."""

    prefix: Annotated[str, Meta(max_length=80, description="Prefix of names.")] = ""
    max: Annotated[int, Meta(ge=1, le=LIMITS.listed, description="Maximum number of results.")] = (
        100
    )
    after: Annotated[
        str, Meta(max_length=80, description="Only later names: the last name of the page before.")
    ] = ""


@schema_name("Purged")
class PurgedRecords(Struct):
    """The number of deleted records."""

    records: Annotated[int, Meta(ge=0)]


class PartitionsQuery(Struct, forbid_unknown_fields=True):
    """A page of a listing."""

    after: Annotated[int, Meta(ge=-1, le=2_147_483_647, description="Only higher numbers.")] = -1
    max: Annotated[
        int, Meta(ge=1, le=LIMITS.partitions_listed, description="Maximum number of results.")
    ] = 1000


@schema_name("Partition")
class PartitionShown(Struct):
    """A partition of a log."""

    partition: PartitionNumber
    key: Annotated[Key | None, Meta(description="Null: keys share the partition.")]
    start: Annotated[Offset, Meta(description="Offset of the first stored record.")]
    end: Annotated[Offset, Meta(description="Offset of the next record.")]
    last_published_at: datetime | None


class PartitionsShown(Struct):
    """Partitions, by number."""

    partitions: list[PartitionShown]
    log_created_at: Annotated[
        datetime, Meta(description="A changed time means that the log was deleted and recreated.")
    ]


def _shown(log: StoredLog, held: LogCounts) -> LogShown:
    return LogShown(
        log.name,
        log.created_at,
        log.partition_count,
        held.partition_count,
        held.record_count,
        held.byte_count,
        held.oldest_at,
        held.group_count,
        *log.settings,
    )


async def _show(call: Call, logs: Sequence[StoredLog]) -> list[LogShown]:
    held = await counts(call.engine, logs)
    return [_shown(log, one) for log, one in zip(logs, held, strict=True)]


async def _create(call: Call) -> Answer:
    new: NewLog = call.body
    settings = new.after(_DEFAULTS)
    log, is_new = await create_log(call.engine, call.caller, new.log, new.partitions, settings)
    [shown] = await _show(call, [log])
    return Answer(201 if is_new else 200, shown)


async def _list(call: Call) -> Answer:
    query: LogsQuery = call.query
    found, has_more = await list_logs(
        call.engine, call.caller, prefix=query.prefix, after=query.after, limit=query.max
    )
    headers = {}
    if has_more:
        more = {"prefix": query.prefix} if query.prefix else {}
        headers = next_page("/v1/logs", max=query.max, after=found[-1].name, **more)
    return Answer(200, Logs(await _show(call, found)), headers)


async def _get(call: Call) -> Answer:
    [shown] = await _show(call, [await log_of(call)])
    return Answer(200, shown)


async def _change(call: Call) -> Answer:
    log = await change_log(call.engine, await log_of(call), call.body.after)
    [shown] = await _show(call, [log])
    return Answer(200, shown)


async def _delete(call: Call) -> Answer:
    await delete_log(call.engine, await log_of(call))
    return Answer(204)


async def _purge(call: Call) -> Answer:
    return Answer(200, PurgedRecords(await purge_log(call.engine, await log_of(call))))


async def _list_partitions(call: Call) -> Answer:
    query: PartitionsQuery = call.query
    log = await log_of(call)
    found, has_more = await partition_states(call.engine, log, after=query.after, limit=query.max)
    shown = [
        PartitionShown(
            one.number, one.key, one.start_offset, one.next_offset, one.last_published_at
        )
        for one in found
    ]
    headers = {}
    if has_more:
        place = f"/v1/logs/{log.name}/partitions"
        headers = next_page(place, max=query.max, after=found[-1].number)
    return Answer(200, PartitionsShown(shown, log.created_at), headers)


EXAMPLE = {
    "log": "orders",
    "created_at": "2030-01-31T09:00:00Z",
    "partitions": None,
    "partition_count": 12,
    "records": 4800,
    "bytes": 2400000,
    "oldest_at": "2030-01-31T09:00:00Z",
    "groups": 2,
    "retain_consumed": 3600,
    "max_age": None,
    "max_bytes": None,
}
_PARTITION = {
    "partition": 0,
    "key": "shop-1",
    "start": 0,
    "end": 400,
    "last_published_at": "2030-01-31T09:00:00Z",
}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        "/v1/logs",
        "createLog",
        "Create a log",
        "A log that exists with the same settings is a success. A publish to a missing log creates "
        "it, too, with the defaults.",
        _TAG,
        _create,
        (
            Answered(201, LogShown, "The log.", EXAMPLE),
            Answered(200, LogShown, "The log existed.", EXAMPLE),
        ),
        refusals=(409,),
        body=NewLog,
        example={"log": "orders", "partitions": 16, "max_age": 604800},
        right="log:CreateLog",
    ),
    Endpoint(
        "GET",
        "/v1/logs",
        "listLogs",
        "List logs",
        "Lists logs by name. The header Link leads to the next page.",
        _TAG,
        _list,
        (Answered(200, Logs, "Logs.", {"logs": [EXAMPLE]}, headers=PAGED),),
        query=LogsQuery,
        refusals=(),
        right="log:ListLogs",
        resource="*",
    ),
    Endpoint(
        "GET",
        "/v1/logs/{log}",
        "getLog",
        "Get a log",
        "Returns the settings and the counts of records and bytes.",
        _TAG,
        _get,
        (Answered(200, LogShown, "The log.", EXAMPLE),),
        path_params=LogPath,
        right="log:GetLog",
    ),
    Endpoint(
        "PATCH",
        "/v1/logs/{log}",
        "changeLog",
        "Change the retention of a log",
        "Expired records are deleted in the background, within two minutes.",
        _TAG,
        _change,
        (Answered(200, LogShown, "The log.", EXAMPLE),),
        path_params=LogPath,
        body=LogSettingsBody,
        example={"retain_consumed": 86400},
        right="log:UpdateLog",
    ),
    Endpoint(
        "DELETE",
        "/v1/logs/{log}",
        "deleteLog",
        "Delete a log",
        "Deletes its records and groups, too. Its dead-letter log stays.",
        _TAG,
        _delete,
        (Answered(204, None, "The log is deleted."),),
        path_params=LogPath,
        right="log:DeleteLog",
    ),
    Endpoint(
        "POST",
        "/v1/logs/{log}/purge",
        "purgeLog",
        "Delete all records of a log",
        "Offsets continue, and groups keep their positions.",
        _TAG,
        _purge,
        (Answered(200, PurgedRecords, "The number of deleted records.", {"records": 4800}),),
        path_params=LogPath,
        right="log:PurgeLog",
    ),
    Endpoint(
        "GET",
        "/v1/logs/{log}/partitions",
        "listPartitions",
        "List the partitions of a log",
        "Lists partitions by number. The header Link leads to the next page.",
        _TAG,
        _list_partitions,
        (
            Answered(
                200,
                PartitionsShown,
                "Partitions.",
                {"partitions": [_PARTITION], "log_created_at": EXAMPLE["created_at"]},
                headers=PAGED,
            ),
        ),
        path_params=LogPath,
        query=PartitionsQuery,
        right="log:GetLog",
    ),
)

"""Endpoints of logs: settings and partitions; names and paths of the face."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from queuegate.gateway.faces.json.json_endpoints import PAGED, Answer, Call, Endpoints, next_page
from queuegate.gateway.faces.json.json_fields import BIGGEST_ID, about, example, schema_name
from queuegate.gateway.operations.access.authorization import find_log, known_log
from queuegate.gateway.operations.logs import logs
from queuegate.gateway.operations.logs.consumer_groups import find_group
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage.model import ConsumerGroup, LogRetention, StoredLog

_NAME_PATTERN = "^[A-Za-z0-9_-]{1,80}$"

LogName = Annotated[
    str,
    about("Name of a log of the account: letters, digits, hyphens and underscores."),
    Meta(examples=["orders"], extra_json_schema={"pattern": _NAME_PATTERN, "maxLength": 80}),
]
"""Documented, not validated: the operation validates it."""

GroupName = Annotated[
    str,
    about("Name of a consumer group: letters, digits, hyphens and underscores."),
    Meta(examples=["billing"], extra_json_schema={"pattern": _NAME_PATTERN, "maxLength": 80}),
]
SubscriberName = Annotated[
    str,
    about("Name of a subscriber: letters, digits, hyphens and underscores."),
    Meta(examples=["worker-1"], extra_json_schema={"pattern": _NAME_PATTERN, "maxLength": 80}),
]

PartitionNumber = Annotated[
    int, about("Number of a partition, from 0 in each log.", ge=0, le=2_147_483_647)
]
Offset = Annotated[int, about("Offset of a record in its partition, from 0.", ge=0, le=BIGGEST_ID)]
Key = Annotated[str, Meta(extra_json_schema={"maxLength": LIMITS.record_key_length})]


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


_LONGEST_SECONDS = 2_147_483_647

Partitions = Annotated[
    int,
    about(
        "Number of partitions, which keys share. Cannot be changed. Null: each key has "
        "its own partition, created with its first record."
    ),
    Meta(ge=1, le=LIMITS.shared_partitions),
]
RetainConsumed = Annotated[
    int,
    about(
        "Retention in seconds of records that every group has finished, if the log has "
        "groups. Null: such records are not deleted."
    ),
    Meta(ge=0, le=_LONGEST_SECONDS),
]
MaxAge = Annotated[
    int,
    about(
        "Maximum age of records in seconds, read or not. Null: no limit.", ge=1, le=_LONGEST_SECONDS
    ),
]
MaxBytes = Annotated[
    int,
    about(
        "Maximum bytes of payloads and metadata, read or not. Each partition deletes "
        "its share of the excess, the oldest records first. Null: no limit."
    ),
    Meta(ge=1, le=BIGGEST_ID),
]
_DEFAULTS = LogRetention()


@schema_name("Settings")
class LogSettingsBody(Struct, forbid_unknown_fields=True):
    """Settings to change. Absent members stay unchanged."""

    retain_consumed: Annotated[RetainConsumed | UnsetType | None, example(86400)] = UNSET
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

    log: Annotated[str, example("orders")]
    created_at: datetime
    partitions: Partitions | None
    partition_count: Annotated[int, about("Number of existing partitions.", 12, ge=0)]
    records: Annotated[int, about("Number of stored records.", 4800, ge=0)]
    bytes: Annotated[int, about("Bytes of payloads and metadata.", 2400000, ge=0)]
    oldest_at: Annotated[
        datetime | None,
        about("Publish time of the oldest record. Null: the log is empty.", "2030-01-31T09:00:00Z"),
    ]
    groups: Annotated[int, about("Number of consumer groups.", 2, ge=0)]
    retain_consumed: Annotated[RetainConsumed | None, example(3600)]
    max_age: MaxAge | None
    max_bytes: MaxBytes | None


class Logs(Struct):
    """Logs, by name in byte order."""

    logs: list[LogShown]


class LogsQuery(Struct, forbid_unknown_fields=True):
    """A page of a listing."""

    prefix: Annotated[str, about("Prefix of names.", max_length=80)] = ""
    max: Annotated[int, about("Maximum number of results.", ge=1, le=LIMITS.listed)] = 100
    after: Annotated[
        str, about("Only later names: the last name of the page before.", max_length=80)
    ] = ""


@schema_name("Purged")
class PurgedRecords(Struct):
    """The number of deleted records."""

    records: Annotated[int, Meta(ge=0), example(4800)]


class PartitionsQuery(Struct, forbid_unknown_fields=True):
    """A page of a listing."""

    after: Annotated[int, about("Only higher numbers.", ge=-1, le=2_147_483_647)] = -1
    max: Annotated[int, about("Maximum number of results.", ge=1, le=LIMITS.partitions_listed)] = (
        1000
    )


@schema_name("Partition")
class PartitionShown(Struct):
    """A partition of a log."""

    partition: PartitionNumber
    key: Annotated[Key | None, about("Null: keys share the partition.", "shop-1")]
    start: Annotated[Offset, about("Offset of the first stored record.")]
    end: Annotated[Offset, about("Offset of the next record.", 400)]
    last_published_at: Annotated[datetime | None, example("2030-01-31T09:00:00Z")]


class PartitionsShown(Struct):
    """Partitions, by number."""

    partitions: list[PartitionShown]
    log_created_at: Annotated[
        datetime, about("A changed time means that the log was deleted and recreated.")
    ]


async def _show(call: Call, found: Sequence[StoredLog]) -> list[LogShown]:
    return [
        LogShown(
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
        for log, held in zip(found, await logs.counts(call.engine, found), strict=True)
    ]


endpoint = Endpoints("logs", log=LogName)


@endpoint(
    "POST /v1/logs",
    "log:CreateLog",
    refusals=(409,),
    example={"log": "orders", "partitions": 16, "max_age": 604800},
)
async def create_log(call: Call, body: NewLog) -> Answer[LogShown]:
    """Create a log. A log that exists with the same settings is a success. A publish to a missing
    log creates it, too, with the defaults. Returns 201: The log. Returns 200: The log existed."""
    settings = body.after(_DEFAULTS)
    log, is_new = await logs.create_log(
        call.engine, call.caller, body.log, body.partitions, settings
    )
    [shown] = await _show(call, [log])
    return Answer(201 if is_new else 200, shown)


@endpoint("GET /v1/logs", "log:ListLogs", resource="*", refusals=(), headers=PAGED)
async def list_logs(call: Call, query: LogsQuery) -> Answer[Logs]:
    """List logs. Lists logs by name. The header Link leads to the next page. Returns 200: Logs."""
    found, has_more = await logs.list_logs(
        call.engine, call.caller, prefix=query.prefix, after=query.after, limit=query.max
    )
    after = found[-1].name if has_more else None
    headers = next_page("/v1/logs", max=query.max, after=after, prefix=query.prefix or None)
    return Answer(200, Logs(await _show(call, found)), headers)


@endpoint("GET /v1/logs/{log}", "log:GetLog")
async def get_log(call: Call) -> Answer[LogShown]:
    """Get a log. Returns the settings and the counts of records and bytes. Returns 200: The log."""
    [shown] = await _show(call, [await log_of(call)])
    return Answer(200, shown)


@endpoint("PATCH /v1/logs/{log}", "log:UpdateLog")
async def change_log(call: Call, body: LogSettingsBody) -> Answer[LogShown]:
    """Change the retention of a log. Expired records are deleted in the background, within two
    minutes. Returns 200: The log."""
    log = await logs.change_log(call.engine, await log_of(call), body.after)
    [shown] = await _show(call, [log])
    return Answer(200, shown)


@endpoint("DELETE /v1/logs/{log}", "log:DeleteLog")
async def delete_log(call: Call) -> Answer[None]:
    """Delete a log. Deletes its records and groups, too. Its dead-letter log stays. Returns 204:
    The log is deleted."""
    await logs.delete_log(call.engine, await log_of(call))
    return Answer(204)


@endpoint("POST /v1/logs/{log}/purge", "log:PurgeLog")
async def purge_log(call: Call) -> Answer[PurgedRecords]:
    """Delete all records of a log. Offsets continue, and groups keep their positions. Returns 200:
    The number of deleted records."""
    return Answer(200, PurgedRecords(await logs.purge_log(call.engine, await log_of(call))))


@endpoint("GET /v1/logs/{log}/partitions", "log:GetLog", headers=PAGED)
async def list_partitions(call: Call, query: PartitionsQuery) -> Answer[PartitionsShown]:
    """List the partitions of a log. Lists partitions by number. The header Link leads to the next
    page. Returns 200: Partitions."""
    log = await log_of(call)
    found, has_more = await logs.partition_states(
        call.engine, log, after=query.after, limit=query.max
    )
    shown = [
        PartitionShown(
            one.number, one.key, one.start_offset, one.next_offset, one.last_published_at
        )
        for one in found
    ]
    after = found[-1].number if has_more else None
    headers = next_page(f"/v1/logs/{log.name}/partitions", max=query.max, after=after)
    return Answer(200, PartitionsShown(shown, log.created_at), headers)

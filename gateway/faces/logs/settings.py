"""Logs as a whole: what they keep."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from queuegate.gateway.faces.json.endpoints import (
    PAGED,
    Answer,
    Answered,
    Call,
    Endpoint,
    next_page,
)
from queuegate.gateway.faces.json.message_members import BIGGEST_ID
from queuegate.gateway.faces.logs.words import (
    Key,
    LogName,
    LogPath,
    Offset,
    PartitionNumber,
    log_of,
)
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
from queuegate.storage.log_model import Log as StoredLog
from queuegate.storage.log_model import LogCounts, LogSettings

_TAG = "logs"
_LONGEST_SECONDS = 2_147_483_647

Partitions = Annotated[
    int,
    Meta(
        ge=1,
        le=LIMITS.shared_partitions,
        description="So many partitions, which keys share: it stays with that. Null: each key has "
        "a partition of its own, made with its first record.",
    ),
]
RetainConsumed = Annotated[
    int,
    Meta(
        ge=0,
        le=_LONGEST_SECONDS,
        description="Seconds for which a record is kept that every group has dealt with, if there "
        "is a group. Null: that is no reason to drop it.",
    ),
]
MaxAge = Annotated[
    int,
    Meta(
        ge=1,
        le=_LONGEST_SECONDS,
        description="Seconds for which a record is kept at most, whoever has read it. Null: no "
        "record is too old.",
    ),
]
MaxBytes = Annotated[
    int,
    Meta(
        ge=1,
        le=BIGGEST_ID,
        description="Bytes of payloads and metadata that are kept at most, whoever has read them; "
        "each partition gives its share of what is too much, its oldest records first. Null: any "
        "number.",
    ),
]
_DEFAULTS = LogSettings()


class Settings(Struct, forbid_unknown_fields=True):
    """What to set; what is absent stays as it is."""

    retain_consumed: RetainConsumed | UnsetType | None = UNSET
    max_age: MaxAge | UnsetType | None = UNSET
    max_bytes: MaxBytes | UnsetType | None = UNSET

    def after(self, before: LogSettings) -> LogSettings:
        """What these settings make of others."""
        given = self.retain_consumed, self.max_age, self.max_bytes
        return LogSettings(
            *(old if new is UNSET else new for new, old in zip(given, before, strict=True))
        )


class NewLog(Settings, forbid_unknown_fields=True, kw_only=True):
    """A log to make; what is absent is as by default."""

    log: LogName
    partitions: Partitions | None = None


class Log(Struct):
    """A log."""

    log: str
    created_at: datetime
    partitions: Partitions | None
    partition_count: Annotated[int, Meta(ge=0, description="There are now.")]
    records: Annotated[int, Meta(ge=0, description="That are kept.")]
    bytes: Annotated[int, Meta(ge=0, description="Of their payloads and metadata.")]
    oldest_at: Annotated[
        datetime | None,
        Meta(description="When the oldest of them was published. Null: there is none."),
    ]
    groups: Annotated[int, Meta(ge=0, description="Of readers.")]
    retain_consumed: RetainConsumed | None
    max_age: MaxAge | None
    max_bytes: MaxBytes | None


class Logs(Struct):
    """Logs, by name in byte order."""

    logs: list[Log]


class ListQuery(Struct, forbid_unknown_fields=True):
    """Which ones to list."""

    prefix: Annotated[str, Meta(max_length=80, description="Only names that begin so.")] = ""
    max: Annotated[int, Meta(ge=1, le=LIMITS.listed, description="At most so many.")] = 100
    after: Annotated[
        str, Meta(max_length=80, description="Only names behind this one: the last one you got.")
    ] = ""


class Purged(Struct):
    """What went."""

    records: Annotated[int, Meta(ge=0)]


class PartitionsQuery(Struct, forbid_unknown_fields=True):
    """Which ones to list."""

    after: Annotated[
        int, Meta(ge=-1, le=2_147_483_647, description="Only numbers behind this one.")
    ] = -1
    max: Annotated[int, Meta(ge=1, le=LIMITS.partitions_listed, description="At most so many.")] = (
        1000
    )


class Partition(Struct):
    """What a partition holds."""

    partition: PartitionNumber
    key: Annotated[Key | None, Meta(description="Null: keys share it.")]
    start: Annotated[Offset, Meta(description="Of the first record that is kept.")]
    end: Annotated[Offset, Meta(description="To be given to the next record.")]
    last_published_at: datetime | None


class PartitionsShown(Struct):
    """Partitions, by number."""

    partitions: list[Partition]
    log_created_at: Annotated[
        datetime, Meta(description="Another time than before means another log of that name.")
    ]


def _shown(log: StoredLog, held: LogCounts) -> Log:
    return Log(
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


async def _show(call: Call, logs: Sequence[StoredLog]) -> list[Log]:
    held = await counts(call.engine, logs)
    return [_shown(log, one) for log, one in zip(logs, held, strict=True)]


async def _create(call: Call) -> Answer:
    new: NewLog = call.body
    settings = new.after(_DEFAULTS)
    log, is_new = await create_log(call.engine, call.caller, new.log, new.partitions, settings)
    [shown] = await _show(call, [log])
    return Answer(201 if is_new else 200, shown)


async def _list(call: Call) -> Answer:
    query: ListQuery = call.query
    found, has_more = await list_logs(
        call.engine, call.caller, prefix=query.prefix, after=query.after, limit=query.max
    )
    headers = {}
    if has_more:
        more = {"prefix": query.prefix} if query.prefix else {}
        headers = next_page("/v1/logs", max=query.max, after=found[-1].name, **more)
    return Answer(200, Logs(await _show(call, found)), headers)


async def _look(call: Call) -> Answer:
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
    return Answer(200, Purged(await purge_log(call.engine, await log_of(call))))


async def _list_partitions(call: Call) -> Answer:
    query: PartitionsQuery = call.query
    log = await log_of(call)
    found, has_more = await partition_states(call.engine, log, after=query.after, limit=query.max)
    shown = [
        Partition(one.number, one.key, one.start_offset, one.next_offset, one.last_published_at)
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
        "Make a log",
        "One that is there with the same settings is as good. Who publishes to a log that is not "
        "there makes it, too, as by default.",
        _TAG,
        _create,
        (
            Answered(201, Log, "The log.", EXAMPLE),
            Answered(200, Log, "It was there.", EXAMPLE),
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
        "When there are more, the header Link leads to them.",
        _TAG,
        _list,
        (Answered(200, Logs, "Logs.", {"logs": [EXAMPLE]}, headers=PAGED),),
        query=ListQuery,
        refusals=(),
        right="log:ListLogs",
        resource="*",
    ),
    Endpoint(
        "GET",
        "/v1/logs/{log}",
        "getLog",
        "Look at a log",
        "Its settings, and what it holds.",
        _TAG,
        _look,
        (Answered(200, Log, "The log.", EXAMPLE),),
        path_params=LogPath,
        right="log:GetLog",
    ),
    Endpoint(
        "PATCH",
        "/v1/logs/{log}",
        "changeLog",
        "Change what a log keeps",
        "It is collected in the background: what is to go is gone within a minute or two.",
        _TAG,
        _change,
        (Answered(200, Log, "The log.", EXAMPLE),),
        path_params=LogPath,
        body=Settings,
        example={"retain_consumed": 86400},
        right="log:UpdateLog",
    ),
    Endpoint(
        "DELETE",
        "/v1/logs/{log}",
        "deleteLog",
        "Delete a log",
        "With its records and groups. The log of its dead letters stays.",
        _TAG,
        _delete,
        (Answered(204, None, "It is gone."),),
        path_params=LogPath,
        right="log:DeleteLog",
    ),
    Endpoint(
        "POST",
        "/v1/logs/{log}/purge",
        "purgeLog",
        "Drop all records of a log",
        "Offsets go on where they are, and so do groups.",
        _TAG,
        _purge,
        (Answered(200, Purged, "How many there were.", {"records": 4800}),),
        path_params=LogPath,
        right="log:PurgeLog",
    ),
    Endpoint(
        "GET",
        "/v1/logs/{log}/partitions",
        "listPartitions",
        "List the partitions of a log",
        "By number. When there are more, the header Link leads to them.",
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

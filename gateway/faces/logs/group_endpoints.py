"""Endpoints of consumer groups: settings, positions, seek and commit."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
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
from queuegate.gateway.faces.json.json_fields import QueueName
from queuegate.gateway.faces.logs.log_endpoints import (
    GroupName,
    GroupPath,
    Key,
    LogName,
    LogPath,
    Offset,
    PartitionNumber,
    PartitionsQuery,
    SubscriberName,
    group_of,
    log_of,
)
from queuegate.gateway.operations.access.authorization import SEND, Effect, find_own_queue
from queuegate.gateway.operations.logs.consumer_groups import (
    EARLIEST,
    LATEST,
    change_group,
    delete_group,
    list_groups,
    make_group,
    position_states,
    progress_of,
    seek,
    seek_offsets,
)
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage.model import ConsumerGroup, ConsumerGroupSettings, StoredLog
from queuegate.storage.storage_errors import MalformedInput

_TAG = "groups"
_LONGEST_SECONDS = LIMITS.visibility_timeout_seconds
_DEFAULTS = ConsumerGroupSettings()

Start = Annotated[
    str,
    Meta(
        max_length=40,
        description=f"First record of the group. `{EARLIEST}`: the first stored one; `{LATEST}`: "
        "the next published one; a time: the first one published at or after it.",
    ),
]
BatchSize = Annotated[
    int,
    Meta(
        ge=1,
        le=LIMITS.fetched_records,
        description="Maximum records in flight for each partition. 1: strict order.",
    ),
]
Visibility = Annotated[
    float,
    Meta(
        gt=0, le=_LONGEST_SECONDS, description="Visibility timeout of fetched records in seconds."
    ),
]
MaxAttempts = Annotated[
    int, Meta(ge=1, le=LIMITS.deliveries, description="Attempts until a record is dead-lettered.")
]
Lease = Annotated[
    float,
    Meta(
        ge=0.3,
        le=3_600,
        description="Seconds from a heartbeat until the subscriber loses its partitions.",
    ),
]


@schema_name("Backoff")
class GroupBackoff(Struct, forbid_unknown_fields=True):
    """Seconds until redelivery after a nack without a delay: `initial`, multiplied by `factor` at
    each further nack, at most `most`."""

    initial: Annotated[float, Meta(ge=0, le=_LONGEST_SECONDS)] = _DEFAULTS.backoff_seconds
    factor: Annotated[float, Meta(ge=1, le=100)] = _DEFAULTS.backoff_factor
    most: Annotated[float, Meta(ge=0, le=_LONGEST_SECONDS)] = _DEFAULTS.most_backoff_seconds


class GroupSettingsGiven(Struct, forbid_unknown_fields=True):
    """Settings to change. Absent members stay unchanged."""

    batch_size: BatchSize | UnsetType = UNSET
    visibility_timeout: Visibility | UnsetType = UNSET
    max_attempts: MaxAttempts | UnsetType = UNSET
    backoff: GroupBackoff | UnsetType = UNSET
    lease: Lease | UnsetType = UNSET
    dead_letter_log: Annotated[
        LogName | UnsetType | None,
        Meta(description="Null: the name of the log with `_dlq`. Created when it is needed."),
    ] = UNSET
    queue: Annotated[
        QueueName | UnsetType | None,
        Meta(
            description="A queue of the account that receives the records of the group, in order "
            "and each once. Such a group has no subscribers. Null: none."
        ),
    ] = UNSET

    def after(self, before: ConsumerGroupSettings) -> ConsumerGroupSettings:
        """Apply these settings to others."""
        given: dict[str, object] = {
            "batch_size": self.batch_size,
            "visibility_timeout_seconds": self.visibility_timeout,
            "max_attempts": self.max_attempts,
            "lease_seconds": self.lease,
            "dead_letter_log": self.dead_letter_log,
            "queue": self.queue,
        }
        if self.backoff is not UNSET:
            given["backoff_seconds"] = self.backoff.initial
            given["backoff_factor"] = self.backoff.factor
            given["most_backoff_seconds"] = self.backoff.most
        set_ones = {name: value for name, value in given.items() if value is not UNSET}
        return before._replace(**set_ones)  # type: ignore[arg-type]


@schema_name("NewGroup")
class NewGroupBody(GroupSettingsGiven, forbid_unknown_fields=True, kw_only=True):
    """A group to create. Absent members have their defaults."""

    start: Start = EARLIEST


@schema_name("Subscriber")
class SubscriberShown(Struct):
    """A live subscriber."""

    subscriber: SubscriberName
    live_until: datetime
    partitions: Annotated[int, Meta(ge=0, description="Number of held partitions.")]


@schema_name("Group")
class GroupShown(Struct):
    """A consumer group and its progress."""

    group: GroupName
    created_at: datetime
    start: Start
    batch_size: BatchSize
    visibility_timeout: Visibility
    max_attempts: MaxAttempts
    backoff: GroupBackoff
    lease: Lease
    dead_letter_log: LogName | None
    queue: QueueName | None
    lag: Annotated[
        int, Meta(ge=0, description="Sum of the offsets beyond the watermark of each partition.")
    ]
    in_flight: Annotated[int, Meta(ge=0, description="Records in flight.")]
    watermark_age_seconds: Annotated[
        float,
        Meta(ge=0, description="Age of the oldest record beyond a watermark. 0: no such record."),
    ]
    subscribers: list[SubscriberShown]


class Groups(Struct):
    """The groups of a log, by name."""

    groups: list[GroupShown]


@schema_name("Position")
class GroupPosition(Struct):
    """The position of a group in a partition."""

    partition: PartitionNumber
    key: Annotated[Key | None, Meta(description="Null: keys share the partition.")]
    watermark: Annotated[
        int, Meta(ge=-1, description="All records up to this offset are finished. -1: none is.")
    ]
    end: Annotated[Offset, Meta(description="Offset of the next record.")]
    lag: Annotated[int, Meta(ge=0)]
    in_flight: Annotated[int, Meta(ge=0)]
    held_by: SubscriberName | None
    barrier_until: Annotated[
        datetime | None, Meta(description="End of a postponement: no delivery before.")
    ]


class Positions(Struct):
    """The positions of a group, by partition."""

    partitions: list[GroupPosition]


class PlaceToGoOn(Struct, forbid_unknown_fields=True):
    """The next record of a partition."""

    partition: PartitionNumber
    offset: Offset


Places = Annotated[list[PlaceToGoOn], Meta(min_length=1, max_length=LIMITS.places_given)]


class Seek(Struct, forbid_unknown_fields=True):
    """The new position: in all partitions, or in some."""

    to: Start | UnsetType = UNSET
    offsets: Places | UnsetType = UNSET


class Commit(Struct, forbid_unknown_fields=True):
    """Positions of the reader."""

    offsets: Places


def _instant(text: str) -> datetime:
    try:
        found = msgspec.convert(text, datetime, strict=False)
    except msgspec.ValidationError:
        found = None
    if found is None or found.tzinfo is None or not 1970 <= found.year < 9_999:
        raise MalformedInput(f"A time must be `{EARLIEST}`, `{LATEST}` or RFC 3339 with an offset.")
    return found.astimezone(UTC)


def _start_of(text: str) -> str | None:
    if text == EARLIEST:
        return None
    return text if text == LATEST else _instant(text).isoformat()


async def _show(call: Call, log: StoredLog, group: ConsumerGroup) -> GroupShown:
    progress, live = await progress_of(call.engine, log, group)
    settings = group.settings
    age = 0.0
    if progress.oldest_at is not None:
        age = max(progress.now_ms / 1000 - progress.oldest_at.timestamp(), 0.0)
    return GroupShown(
        group.name,
        group.created_at,
        settings.start or EARLIEST,
        settings.batch_size,
        settings.visibility_timeout_seconds,
        settings.max_attempts,
        GroupBackoff(
            settings.backoff_seconds, settings.backoff_factor, settings.most_backoff_seconds
        ),
        settings.lease_seconds,
        settings.dead_letter_log,
        settings.queue,
        progress.lag,
        progress.in_flight,
        age,
        [SubscriberShown(*one) for one in live],
    )


async def _find_queue(call: Call, settings: GroupSettingsGiven) -> None:
    """Complete the name of the queue. The caller needs permission to send to it."""
    if isinstance(settings.queue, str):
        found = await find_own_queue(call.engine, call.caller, SEND, settings.queue)
        settings.queue = found.name


async def _create(call: Call) -> Answer:
    log = await log_of(call)
    new: NewGroupBody = call.body or NewGroupBody()
    await _find_queue(call, new)
    settings = new.after(_DEFAULTS)._replace(start=_start_of(new.start))
    group, is_new = await make_group(call.engine, log, call.path.group, settings)
    return Answer(201 if is_new else 200, await _show(call, log, group))


async def _list(call: Call) -> Answer:
    log = await log_of(call)
    found = await list_groups(call.engine, log)
    return Answer(200, Groups([await _show(call, log, group) for group in found]))


async def _get(call: Call) -> Answer:
    log, group = await group_of(call)
    return Answer(200, await _show(call, log, group))


async def _change(call: Call) -> Answer:
    log = await log_of(call)
    await _find_queue(call, call.body)
    group = await change_group(call.engine, log, call.path.group, call.body.after)
    return Answer(200, await _show(call, log, group))


async def _delete(call: Call) -> Answer:
    await delete_group(call.engine, await log_of(call), call.path.group)
    return Answer(204)


async def _list_partitions(call: Call) -> Answer:
    query: PartitionsQuery = call.query
    log, group = await group_of(call)
    found, has_more = await position_states(
        call.engine, log, group, after=query.after, limit=query.max
    )
    shown = [
        GroupPosition(
            one.number,
            one.key,
            one.watermark,
            one.next_offset,
            one.next_offset - 1 - one.watermark,
            one.in_flight,
            one.held_by,
            one.barrier_until,
        )
        for one in found
    ]
    headers = {}
    if has_more:
        place = f"/v1/logs/{log.name}/groups/{group.name}/partitions"
        headers = next_page(place, max=query.max, after=found[-1].number)
    return Answer(200, Positions(shown), headers)


async def _seek(call: Call) -> Answer:
    body: Seek = call.body
    if (body.to is UNSET) is (body.offsets is UNSET):
        raise MalformedInput("Send either `to` or `offsets`.")
    log, group = await group_of(call)
    if body.offsets is not UNSET:
        await seek_offsets(call.engine, log, group, _offsets_of(body.offsets))
    elif body.to is not UNSET:
        to = body.to if body.to in (EARLIEST, LATEST) else _instant(body.to)
        await seek(call.engine, group, to)
    return Answer(204)


async def _commit(call: Call) -> Answer:
    log, group = await group_of(call)
    offsets = _offsets_of(call.body.offsets)
    await seek_offsets(call.engine, log, group, offsets, spares_held=True)
    return Answer(204)


def _offsets_of(places: list[PlaceToGoOn]) -> dict[int, int]:
    return {place.partition: place.offset for place in places}


_GROUP = {
    "group": "billing",
    "created_at": "2030-01-31T09:00:00Z",
    "start": EARLIEST,
    "batch_size": 10,
    "visibility_timeout": 30,
    "max_attempts": 5,
    "backoff": {"initial": 1, "factor": 2, "most": 300},
    "lease": 30,
    "dead_letter_log": None,
    "queue": None,
    "lag": 12,
    "in_flight": 2,
    "watermark_age_seconds": 1.5,
    "subscribers": [
        {"subscriber": "worker-1", "live_until": "2030-01-31T09:00:30Z", "partitions": 12}
    ],
}
_POSITION = {
    "partition": 0,
    "key": "shop-1",
    "watermark": 396,
    "end": 400,
    "lag": 3,
    "in_flight": 2,
    "held_by": "worker-1",
    "barrier_until": None,
}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "PUT",
        "/v1/logs/{log}/groups/{group}",
        "createGroup",
        "Create a group",
        "A group that exists with the same settings is a success. The first subscriber of a "
        "missing group creates it, too, with the defaults. A group with `queue` has no "
        "subscribers: its records become messages of that queue.",
        _TAG,
        _create,
        (
            Answered(201, GroupShown, "The group.", _GROUP),
            Answered(200, GroupShown, "The group existed.", _GROUP),
        ),
        refusals=(404, 409),
        path_params=GroupPath,
        body=NewGroupBody,
        body_is_optional=True,
        example={"start": LATEST, "batch_size": 1, "max_attempts": 3},
        right="log:CreateGroup",
    ),
    Endpoint(
        "GET",
        "/v1/logs/{log}/groups",
        "listGroups",
        "List the groups of a log",
        "Lists all groups by name.",
        _TAG,
        _list,
        (Answered(200, Groups, "Groups.", {"groups": [_GROUP]}),),
        path_params=LogPath,
        right="log:GetGroup",
    ),
    Endpoint(
        "GET",
        "/v1/logs/{log}/groups/{group}",
        "getGroup",
        "Get a group",
        "Returns settings, lag and live subscribers.",
        _TAG,
        _get,
        (Answered(200, GroupShown, "The group.", _GROUP),),
        path_params=GroupPath,
        right="log:GetGroup",
    ),
    Endpoint(
        "PATCH",
        "/v1/logs/{log}/groups/{group}",
        "changeGroup",
        "Change a group",
        "Records in flight keep their visibility timeout.",
        _TAG,
        _change,
        (Answered(200, GroupShown, "The group.", _GROUP),),
        path_params=GroupPath,
        body=GroupSettingsGiven,
        example={"visibility_timeout": 60},
        right="log:UpdateGroup",
    ),
    Endpoint(
        "DELETE",
        "/v1/logs/{log}/groups/{group}",
        "deleteGroup",
        "Delete a group",
        "Deletes its positions and subscribers, too. The records stay.",
        _TAG,
        _delete,
        (Answered(204, None, "The group is deleted."),),
        path_params=GroupPath,
        right="log:DeleteGroup",
    ),
    Endpoint(
        "GET",
        "/v1/logs/{log}/groups/{group}/partitions",
        "listPositions",
        "List the positions of a group",
        "Lists positions by partition. The header Link leads to the next page.",
        _TAG,
        _list_partitions,
        (Answered(200, Positions, "Positions.", {"partitions": [_POSITION]}, headers=PAGED),),
        path_params=GroupPath,
        query=PartitionsQuery,
        right="log:GetGroup",
    ),
    Endpoint(
        "POST",
        "/v1/logs/{log}/groups/{group}/seek",
        "seekGroup",
        "Set the position of a group",
        "Records in flight are released, and their receipts become invalid.",
        _TAG,
        _seek,
        (Answered(204, None, "The position is set."),),
        path_params=GroupPath,
        body=Seek,
        example={"to": EARLIEST},
        right="log:SeekGroup",
    ),
    Endpoint(
        "POST",
        "/v1/logs/{log}/groups/{group}/commit",
        "commitGroup",
        "Commit the offsets of an external reader",
        "The offsets are those of the records to read next. The lag of the group then is that of "
        "the reader, and retention may delete the records that it has read. Refused for partitions "
        "that a live subscriber holds.",
        _TAG,
        _commit,
        (Answered(204, None, "The offsets are committed."),),
        refusals=(404, 409),
        path_params=GroupPath,
        body=Commit,
        example={"offsets": [{"partition": 0, "offset": 400}]},
        right="log:SeekGroup",
        effect=Effect.DATA,
    ),
)

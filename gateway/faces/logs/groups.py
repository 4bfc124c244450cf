"""Groups: their settings, where they are, and where they go on."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from queuegate.gateway.faces.json.endpoints import (
    PAGED,
    Answer,
    Answered,
    Call,
    Endpoint,
    next_page,
)
from queuegate.gateway.faces.logs.settings import PartitionsQuery
from queuegate.gateway.faces.logs.words import (
    GroupName,
    GroupPath,
    Key,
    LogName,
    LogPath,
    Offset,
    PartitionNumber,
    SubscriberName,
    group_of,
    log_of,
)
from queuegate.gateway.faces.rest.words import QueueName
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
from queuegate.storage.errors import MalformedInput
from queuegate.storage.log_model import Group as StoredGroup
from queuegate.storage.log_model import GroupSettings, Log

_TAG = "groups"
_LONGEST_SECONDS = LIMITS.visibility_timeout_seconds
_DEFAULTS = GroupSettings()

Start = Annotated[
    str,
    Meta(
        max_length=40,
        description=f"`{EARLIEST}`: with the first record that is kept; `{LATEST}`: with the next "
        "one that is published; a time: with the first that was published then or later.",
    ),
]
BatchSize = Annotated[
    int,
    Meta(
        ge=1,
        le=LIMITS.fetched_records,
        description="So many records of a partition are out at once. 1: strict order.",
    ),
]
Visibility = Annotated[
    float,
    Meta(gt=0, le=_LONGEST_SECONDS, description="Seconds for which a record is its subscriber's."),
]
MaxAttempts = Annotated[
    int, Meta(ge=1, le=LIMITS.deliveries, description="After so many a record is a dead letter.")
]
Lease = Annotated[
    float,
    Meta(
        ge=0.3,
        le=3_600,
        description="Seconds from a heartbeat until a subscriber's partitions go to others.",
    ),
]


class Backoff(Struct, forbid_unknown_fields=True):
    """For how many seconds a record waits after a nack that does not say: `initial`, and each time
    `factor` times as long, up to `most`."""

    initial: Annotated[float, Meta(ge=0, le=_LONGEST_SECONDS)] = _DEFAULTS.backoff_seconds
    factor: Annotated[float, Meta(ge=1, le=100)] = _DEFAULTS.backoff_factor
    most: Annotated[float, Meta(ge=0, le=_LONGEST_SECONDS)] = _DEFAULTS.most_backoff_seconds


class GroupSettingsGiven(Struct, forbid_unknown_fields=True):
    """What to set; what is absent stays as it is."""

    batch_size: BatchSize | UnsetType = UNSET
    visibility_timeout: Visibility | UnsetType = UNSET
    max_attempts: MaxAttempts | UnsetType = UNSET
    backoff: Backoff | UnsetType = UNSET
    lease: Lease | UnsetType = UNSET
    dead_letter_log: Annotated[
        LogName | UnsetType | None,
        Meta(description="Null: that of the log's name with `_dlq`. It is made when needed."),
    ] = UNSET
    queue: Annotated[
        QueueName | UnsetType | None,
        Meta(
            description="A queue of yours, into which the records of the group are moved, in order "
            "and each once. Nobody fetches them, then. Null: none."
        ),
    ] = UNSET

    def after(self, before: GroupSettings) -> GroupSettings:
        """What these settings make of others."""
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


class NewGroup(GroupSettingsGiven, forbid_unknown_fields=True, kw_only=True):
    """A group to make; what is absent is as by default."""

    start: Start = EARLIEST


class Subscriber(Struct):
    """A live subscriber."""

    subscriber: SubscriberName
    live_until: datetime
    partitions: Annotated[int, Meta(ge=0, description="That it holds.")]


class Group(Struct):
    """A group of readers, and where it is."""

    group: GroupName
    created_at: datetime
    start: Start
    batch_size: BatchSize
    visibility_timeout: Visibility
    max_attempts: MaxAttempts
    backoff: Backoff
    lease: Lease
    dead_letter_log: LogName | None
    queue: QueueName | None
    lag: Annotated[
        int, Meta(ge=0, description="Offsets beyond the watermarks of all partitions together.")
    ]
    in_flight: Annotated[int, Meta(ge=0, description="Records that subscribers have.")]
    watermark_age_seconds: Annotated[
        float,
        Meta(ge=0, description="Of the oldest record beyond a watermark; 0: there is none."),
    ]
    subscribers: list[Subscriber]


class Groups(Struct):
    """The groups of a log, by name."""

    groups: list[Group]


class Position(Struct):
    """Where a group is in a partition."""

    partition: PartitionNumber
    key: Annotated[Key | None, Meta(description="Null: keys share it.")]
    watermark: Annotated[
        int, Meta(ge=-1, description="All up to this offset is done. -1: nothing is.")
    ]
    end: Annotated[Offset, Meta(description="To be given to the next record.")]
    lag: Annotated[int, Meta(ge=0)]
    in_flight: Annotated[int, Meta(ge=0)]
    held_by: SubscriberName | None
    barrier_until: Annotated[
        datetime | None, Meta(description="Before that nothing is delivered: it was postponed.")
    ]


class Positions(Struct):
    """Where a group is, by partition."""

    partitions: list[Position]


class PlaceToGoOn(Struct, forbid_unknown_fields=True):
    """The next record of a partition."""

    partition: PartitionNumber
    offset: Offset


Places = Annotated[list[PlaceToGoOn], Meta(min_length=1, max_length=LIMITS.places_given)]


class Seek(Struct, forbid_unknown_fields=True):
    """Where to go on: either in all partitions, or in some."""

    to: Start | UnsetType = UNSET
    offsets: Places | UnsetType = UNSET


class Commit(Struct, forbid_unknown_fields=True):
    """Where to go on."""

    offsets: Places


def _instant(text: str) -> datetime:
    try:
        found = msgspec.convert(text, datetime, strict=False)
    except msgspec.ValidationError:
        found = None
    if found is None or found.tzinfo is None or not 1970 <= found.year < 9_999:
        raise MalformedInput(
            f"A time is `{EARLIEST}`, `{LATEST}` or as in RFC 3339, with its offset."
        )
    return found.astimezone(UTC)


def _start_of(text: str) -> str | None:
    if text == EARLIEST:
        return None
    return text if text == LATEST else _instant(text).isoformat()


async def _show(call: Call, log: Log, group: StoredGroup) -> Group:
    progress, live = await progress_of(call.engine, log, group)
    settings = group.settings
    age = 0.0
    if progress.oldest_at is not None:
        age = max(progress.now_ms / 1000 - progress.oldest_at.timestamp(), 0.0)
    return Group(
        group.name,
        group.created_at,
        settings.start or EARLIEST,
        settings.batch_size,
        settings.visibility_timeout_seconds,
        settings.max_attempts,
        Backoff(settings.backoff_seconds, settings.backoff_factor, settings.most_backoff_seconds),
        settings.lease_seconds,
        settings.dead_letter_log,
        settings.queue,
        progress.lag,
        progress.in_flight,
        age,
        [Subscriber(*one) for one in live],
    )


async def _find_queue(call: Call, settings: GroupSettingsGiven) -> None:
    """Say the queue by its whole name, to whoever may send to it."""
    if isinstance(settings.queue, str):
        found = await find_own_queue(call.engine, call.caller, SEND, settings.queue)
        settings.queue = found.name


async def _make(call: Call) -> Answer:
    log = await log_of(call)
    new: NewGroup = call.body or NewGroup()
    await _find_queue(call, new)
    settings = new.after(_DEFAULTS)._replace(start=_start_of(new.start))
    group, is_new = await make_group(call.engine, log, call.path.group, settings)
    return Answer(201 if is_new else 200, await _show(call, log, group))


async def _list(call: Call) -> Answer:
    log = await log_of(call)
    found = await list_groups(call.engine, log)
    return Answer(200, Groups([await _show(call, log, group) for group in found]))


async def _look(call: Call) -> Answer:
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
        Position(
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
        raise MalformedInput("Either `to` or `offsets` says where to go on.")
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
        "Make a group",
        "One that is there with the same settings is as good. A subscriber that joins a group that "
        "is not there makes it, too, as by default. With `queue` it has no subscribers: its "
        "records become messages of that queue.",
        _TAG,
        _make,
        (
            Answered(201, Group, "The group.", _GROUP),
            Answered(200, Group, "It was there.", _GROUP),
        ),
        refusals=(404, 409),
        path_params=GroupPath,
        body=NewGroup,
        body_is_optional=True,
        example={"start": LATEST, "batch_size": 1, "max_attempts": 3},
        right="log:CreateGroup",
    ),
    Endpoint(
        "GET",
        "/v1/logs/{log}/groups",
        "listGroups",
        "List the groups of a log",
        "All of them, by name.",
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
        "Look at a group",
        "Its settings, how far behind it is, and who is in it.",
        _TAG,
        _look,
        (Answered(200, Group, "The group.", _GROUP),),
        path_params=GroupPath,
        right="log:GetGroup",
    ),
    Endpoint(
        "PATCH",
        "/v1/logs/{log}/groups/{group}",
        "changeGroup",
        "Change a group",
        "What is out stays out for as long as it was told.",
        _TAG,
        _change,
        (Answered(200, Group, "The group.", _GROUP),),
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
        "With its places and subscribers; the records stay for others.",
        _TAG,
        _delete,
        (Answered(204, None, "It is gone."),),
        path_params=GroupPath,
        right="log:DeleteGroup",
    ),
    Endpoint(
        "GET",
        "/v1/logs/{log}/groups/{group}/partitions",
        "listPositions",
        "Where a group is",
        "In each partition, by number. When there are more, the header Link leads to them.",
        _TAG,
        _list_partitions,
        (Answered(200, Positions, "Places.", {"partitions": [_POSITION]}, headers=PAGED),),
        path_params=GroupPath,
        query=PartitionsQuery,
        right="log:GetGroup",
    ),
    Endpoint(
        "POST",
        "/v1/logs/{log}/groups/{group}/seek",
        "seekGroup",
        "Let a group go on elsewhere",
        "Whatever is out is given up, and its receipts are void.",
        _TAG,
        _seek,
        (Answered(204, None, "It goes on there."),),
        path_params=GroupPath,
        body=Seek,
        example={"to": EARLIEST},
        right="log:SeekGroup",
    ),
    Endpoint(
        "POST",
        "/v1/logs/{log}/groups/{group}/commit",
        "commitGroup",
        "Say how far a reader is that keeps offsets of its own",
        "The offsets are those of the records to be read next: so the lag of the group is the "
        "reader's, and what it has read may be collected. Refused for partitions that a live "
        "subscriber holds.",
        _TAG,
        _commit,
        (Answered(204, None, "It is known."),),
        refusals=(404, 409),
        path_params=GroupPath,
        body=Commit,
        example={"offsets": [{"partition": 0, "offset": 400}]},
        right="log:SeekGroup",
        effect=Effect.DATA,
    ),
)

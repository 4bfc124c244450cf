"""Endpoints of consumer groups: settings, positions, seek and commit."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from queuegate.gateway.faces.json.json_endpoints import PAGED, Answer, Call, Endpoints, next_page
from queuegate.gateway.faces.json.json_fields import QueueName, about, example, schema_name
from queuegate.gateway.faces.logs import log_endpoints
from queuegate.gateway.operations.access.authorization import SEND, Effect, find_own_queue
from queuegate.gateway.operations.logs import consumer_groups
from queuegate.gateway.operations.logs.consumer_groups import EARLIEST, LATEST
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage.model import ConsumerGroup, ConsumerGroupSettings, StoredLog
from queuegate.storage.storage_errors import MalformedInput

_LONGEST_SECONDS = LIMITS.visibility_timeout_seconds
_DEFAULTS = ConsumerGroupSettings()

Start = Annotated[
    str,
    about(
        f"First record of the group. `{EARLIEST}`: the first stored one; `{LATEST}`: "
        "the next published one; a time: the first one published at or after it.",
        max_length=40,
    ),
]
BatchSize = Annotated[
    int,
    about("Maximum records in flight for each partition. 1: strict order."),
    Meta(ge=1, le=LIMITS.fetched_records),
]
Visibility = Annotated[
    float, about("Visibility timeout of fetched records in seconds.", gt=0, le=_LONGEST_SECONDS)
]
MaxAttempts = Annotated[
    int, about("Attempts until a record is dead-lettered.", ge=1, le=LIMITS.deliveries)
]
Lease = Annotated[
    float,
    about("Seconds from a heartbeat until the subscriber loses its partitions.", ge=0.3, le=3_600),
]


@schema_name("Backoff")
class GroupBackoff(Struct, forbid_unknown_fields=True):
    """Seconds until redelivery after a nack without a delay: `initial`, multiplied by `factor` at
    each further nack, at most `most`."""

    initial: Annotated[float, Meta(ge=0, le=_LONGEST_SECONDS), example(1)] = (
        _DEFAULTS.backoff_seconds
    )
    factor: Annotated[float, Meta(ge=1, le=100), example(2)] = _DEFAULTS.backoff_factor
    most: Annotated[float, Meta(ge=0, le=_LONGEST_SECONDS), example(300)] = (
        _DEFAULTS.most_backoff_seconds
    )


class GroupSettingsGiven(Struct, forbid_unknown_fields=True):
    """Settings to change. Absent members stay unchanged."""

    batch_size: BatchSize | UnsetType = UNSET
    visibility_timeout: Annotated[Visibility | UnsetType, example(60)] = UNSET
    max_attempts: MaxAttempts | UnsetType = UNSET
    backoff: GroupBackoff | UnsetType = UNSET
    lease: Lease | UnsetType = UNSET
    dead_letter_log: Annotated[
        log_endpoints.LogName | UnsetType | None,
        about("Null: the name of the log with `_dlq`. Created when it is needed."),
    ] = UNSET
    queue: Annotated[
        QueueName | UnsetType | None,
        about(
            "A queue of the account that receives the records of the group, in order "
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

    subscriber: log_endpoints.SubscriberName
    live_until: Annotated[datetime, example("2030-01-31T09:00:30Z")]
    partitions: Annotated[int, about("Number of held partitions.", 12, ge=0)]


@schema_name("Group")
class GroupShown(Struct):
    """A consumer group and its progress."""

    group: log_endpoints.GroupName
    created_at: datetime
    start: Annotated[Start, example("earliest")]
    batch_size: Annotated[BatchSize, example(10)]
    visibility_timeout: Annotated[Visibility, example(30)]
    max_attempts: Annotated[MaxAttempts, example(5)]
    backoff: GroupBackoff
    lease: Annotated[Lease, example(30)]
    dead_letter_log: log_endpoints.LogName | None
    queue: QueueName | None
    lag: Annotated[
        int, about("Sum of the offsets beyond the watermark of each partition.", 12, ge=0)
    ]
    in_flight: Annotated[int, about("Records in flight.", 2, ge=0)]
    watermark_age_seconds: Annotated[
        float, about("Age of the oldest record beyond a watermark. 0: no such record.", 1.5, ge=0)
    ]
    subscribers: list[SubscriberShown]


class Groups(Struct):
    """The groups of a log, by name."""

    groups: list[GroupShown]


@schema_name("Position")
class GroupPosition(Struct):
    """The position of a group in a partition."""

    partition: log_endpoints.PartitionNumber
    key: Annotated[log_endpoints.Key | None, about("Null: keys share the partition.", "shop-1")]
    watermark: Annotated[
        int, about("All records up to this offset are finished. -1: none is.", 396, ge=-1)
    ]
    end: Annotated[log_endpoints.Offset, about("Offset of the next record.", 400)]
    lag: Annotated[int, Meta(ge=0), example(3)]
    in_flight: Annotated[int, Meta(ge=0), example(2)]
    held_by: Annotated[log_endpoints.SubscriberName | None, example("worker-1")]
    barrier_until: Annotated[datetime | None, about("End of a postponement: no delivery before.")]


class Positions(Struct):
    """The positions of a group, by partition."""

    partitions: list[GroupPosition]


class PlaceToGoOn(Struct, forbid_unknown_fields=True):
    """The next record of a partition."""

    partition: log_endpoints.PartitionNumber
    offset: log_endpoints.Offset


Places = Annotated[list[PlaceToGoOn], Meta(min_length=1, max_length=LIMITS.places_given)]


class Seek(Struct, forbid_unknown_fields=True):
    """The new position: in all partitions, or in some."""

    to: Annotated[Start | UnsetType, example("earliest")] = UNSET
    offsets: Places | UnsetType = UNSET


class Commit(Struct, forbid_unknown_fields=True):
    """Positions of the reader."""

    offsets: Annotated[Places, example([{"partition": 0, "offset": 400}])]


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
    progress, live = await consumer_groups.progress_of(call.engine, log, group)
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


endpoint = Endpoints("groups", log=log_endpoints.LogName, group=log_endpoints.GroupName)


@endpoint(
    "PUT /v1/logs/{log}/groups/{group}",
    "log:CreateGroup",
    refusals=(404, 409),
    example={"start": LATEST, "batch_size": 1, "max_attempts": 3},
)
async def create_group(call: Call, body: NewGroupBody | None) -> Answer[GroupShown]:
    """Create a group. A group that exists with the same settings is a success. The first subscriber
    of a missing group creates it, too, with the defaults. A group with `queue` has no subscribers:
    its records become messages of that queue. Returns 201: The group. Returns 200: The group
    existed."""
    log = await log_endpoints.log_of(call)
    new = body or NewGroupBody()
    await _find_queue(call, new)
    settings = new.after(_DEFAULTS)._replace(start=_start_of(new.start))
    group, is_new = await consumer_groups.make_group(call.engine, log, call.path.group, settings)
    return Answer(201 if is_new else 200, await _show(call, log, group))


@endpoint("GET /v1/logs/{log}/groups", "log:GetGroup")
async def list_groups(call: Call) -> Answer[Groups]:
    """List the groups of a log. Lists all groups by name. Returns 200: Groups."""
    log = await log_endpoints.log_of(call)
    found = await consumer_groups.list_groups(call.engine, log)
    return Answer(200, Groups([await _show(call, log, group) for group in found]))


@endpoint("GET /v1/logs/{log}/groups/{group}", "log:GetGroup")
async def get_group(call: Call) -> Answer[GroupShown]:
    """Get a group. Returns settings, lag and live subscribers. Returns 200: The group."""
    log, group = await log_endpoints.group_of(call)
    return Answer(200, await _show(call, log, group))


@endpoint("PATCH /v1/logs/{log}/groups/{group}", "log:UpdateGroup")
async def change_group(call: Call, body: GroupSettingsGiven) -> Answer[GroupShown]:
    """Change a group. Records in flight keep their visibility timeout. Returns 200: The group."""
    log = await log_endpoints.log_of(call)
    await _find_queue(call, body)
    group = await consumer_groups.change_group(call.engine, log, call.path.group, body.after)
    return Answer(200, await _show(call, log, group))


@endpoint("DELETE /v1/logs/{log}/groups/{group}", "log:DeleteGroup")
async def delete_group(call: Call) -> Answer[None]:
    """Delete a group. Deletes its positions and subscribers, too. The records stay. Returns 204:
    The group is deleted."""
    await consumer_groups.delete_group(
        call.engine, await log_endpoints.log_of(call), call.path.group
    )
    return Answer(204)


@endpoint("GET /v1/logs/{log}/groups/{group}/partitions", "log:GetGroup", headers=PAGED)
async def list_positions(call: Call, query: log_endpoints.PartitionsQuery) -> Answer[Positions]:
    """List the positions of a group. Lists positions by partition. The header Link leads to the
    next page. Returns 200: Positions."""
    log, group = await log_endpoints.group_of(call)
    found, has_more = await consumer_groups.position_states(
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
    place = f"/v1/logs/{log.name}/groups/{group.name}/partitions"
    headers = next_page(place, max=query.max, after=found[-1].number if has_more else None)
    return Answer(200, Positions(shown), headers)


@endpoint("POST /v1/logs/{log}/groups/{group}/seek", "log:SeekGroup")
async def seek_group(call: Call, body: Seek) -> Answer[None]:
    """Set the position of a group. Records in flight are released, and their receipts become
    invalid. Returns 204: The position is set."""
    if (body.to is UNSET) is (body.offsets is UNSET):
        raise MalformedInput("Send either `to` or `offsets`.")
    log, group = await log_endpoints.group_of(call)
    if body.offsets is not UNSET:
        await consumer_groups.seek_offsets(call.engine, log, group, _offsets_of(body.offsets))
    elif body.to is not UNSET:
        to = body.to if body.to in (EARLIEST, LATEST) else _instant(body.to)
        await consumer_groups.seek(call.engine, group, to)
    return Answer(204)


@endpoint(
    "POST /v1/logs/{log}/groups/{group}/commit",
    "log:SeekGroup",
    effect=Effect.DATA,
    refusals=(404, 409),
)
async def commit_group(call: Call, body: Commit) -> Answer[None]:
    """Commit the offsets of an external reader. The offsets are those of the records to read next.
    The lag of the group then is that of the reader, and retention may delete the records that it
    has read. Refused for partitions that a live subscriber holds. Returns 204: The offsets are
    committed."""
    log, group = await log_endpoints.group_of(call)
    offsets = _offsets_of(body.offsets)
    await consumer_groups.seek_offsets(call.engine, log, group, offsets, spares_held=True)
    return Answer(204)


def _offsets_of(places: list[PlaceToGoOn]) -> dict[int, int]:
    return {place.partition: place.offset for place in places}

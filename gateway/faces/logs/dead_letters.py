"""Dead letters of a log: look at them, publish them again, drop them."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from queuegate.gateway.faces.json.endpoints import Answer, Answered, Call, Endpoint
from queuegate.gateway.faces.logs.groups import Places
from queuegate.gateway.faces.logs.reading import Record, shown_record
from queuegate.gateway.faces.logs.settings import Purged
from queuegate.gateway.faces.logs.words import GroupName, LogPath, log_of
from queuegate.gateway.operations.access.authorization import find_log
from queuegate.gateway.operations.logs.consumer_groups import dead_letter_log_of
from queuegate.gateway.operations.logs.log_dead_letters import (
    find_dead_letter_log,
    list_dead_letters,
    purge,
    requeue,
)
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage.errors import MalformedInput
from queuegate.storage.log_model import Log

_TAG = "dead letters"


class DeadLettersQuery(Struct, forbid_unknown_fields=True):
    """Which ones to list."""

    group: Annotated[GroupName | None, Meta(description="Of this one. Absent: of all.")] = None
    max: Annotated[int, Meta(ge=1, le=LIMITS.listed, description="At most so many.")] = 100


class PurgeQuery(Struct, forbid_unknown_fields=True):
    """Which ones to drop."""

    group: Annotated[GroupName | None, Meta(description="Of this one. Absent: of all.")] = None


class DeadLetters(Struct):
    """Dead letters: the oldest of each partition first."""

    log: Annotated[str, Meta(description="Where they are.")]
    records: list[Record]


class WhichDeadLetters(Struct, forbid_unknown_fields=True):
    """Which ones: all, or those at these places of the log where they are."""

    all: bool = False
    offsets: Places | UnsetType = UNSET
    group: Annotated[GroupName | UnsetType, Meta(description="With `all`: those of this one.")] = (
        UNSET
    )


class Requeued(Struct):
    """What became of them."""

    requeued: Annotated[int, Meta(ge=0, description="Were published again.")]
    orphans: Annotated[
        int, Meta(ge=0, description="Stay: their log or their group is gone, or they are none.")
    ]
    has_more: Annotated[bool, Meta(description="True: ask again for the rest.")]


async def _dead_log(call: Call, group: str | None) -> tuple[Log, str, Log | None]:
    """The log, and the one that its dead letters are in, if there was any."""
    log = await log_of(call)
    name = await dead_letter_log_of(call.engine, log, group)
    return log, name, await find_dead_letter_log(call.engine, call.caller, call.right, name)


async def _list(call: Call) -> Answer:
    query: DeadLettersQuery = call.query
    log, name, dead = await _dead_log(call, query.group)
    if dead is None:
        return Answer(200, DeadLetters(name, []))
    found = await list_dead_letters(
        call.engine, dead, source=log.name, group=query.group, most=query.max
    )
    return Answer(200, DeadLetters(name, [shown_record(*one) for one in found]))


def _which(call: Call) -> tuple[str | None, list[tuple[int, int]] | None]:
    body: WhichDeadLetters = call.body
    if body.all is (body.offsets is not UNSET):
        raise MalformedInput("Either `all` or `offsets` says which dead letters.")
    group = None if body.group is UNSET else body.group
    if body.offsets is UNSET:
        return group, None
    return group, [(one.partition, one.offset) for one in body.offsets]


async def _requeue(call: Call) -> Answer:
    group, places = _which(call)
    log, name, dead = await _dead_log(call, group)
    if dead is None and places is None:
        return Answer(200, Requeued(0, 0, has_more=False))
    if dead is None:
        dead = await find_log(call.engine, call.caller, call.right, name)
    most = LIMITS.listed
    done = await requeue(call.engine, dead, places, source=log.name, group=group, most=most)
    has_more = places is None and sum(done) >= most
    return Answer(200, Requeued(*done, has_more))


async def _purge(call: Call) -> Answer:
    query: PurgeQuery = call.query
    log, _, dead = await _dead_log(call, query.group)
    count = 0
    if dead is not None:
        count = await purge(call.engine, dead, source=log.name, group=query.group)
    return Answer(200, Purged(count))


_DEAD = {
    "log": "orders_dlq",
    "records": [
        {
            "partition": 0,
            "offset": 3,
            "key": "shop-1",
            "payload": '{"order": 42}',
            "published_at": "2030-01-31T09:00:00Z",
            "failure": {
                "failed_at": "2030-01-31T09:00:00Z",
                "failure_count": 5,
                "last_error": "it has no price",
                "original_topic": "orders",
                "original_group": "billing",
                "original_partition": 0,
                "original_offset": 400,
            },
        }
    ],
}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "GET",
        "/v1/logs/{log}/dead-letters",
        "listDeadLetters",
        "Look at the dead letters of a log",
        "They are records of another log, which groups can read like any. `group` is needed for "
        "those of a group that has a dead-letter log of its own.",
        _TAG,
        _list,
        (Answered(200, DeadLetters, "Dead letters.", _DEAD),),
        path_params=LogPath,
        query=DeadLettersQuery,
        right="log:ReadRecords",
    ),
    Endpoint(
        "POST",
        "/v1/logs/{log}/dead-letters/requeue",
        "requeueDeadLetters",
        "Publish dead letters again",
        "Each to the log that it came from, behind its other records, and for the group that gave "
        f"it up: others do not see it. With `all`, {LIMITS.listed} at a time.",
        _TAG,
        _requeue,
        (
            Answered(
                200,
                Requeued,
                "What became of them.",
                {"requeued": 1, "orphans": 0, "has_more": False},
            ),
        ),
        path_params=LogPath,
        body=WhichDeadLetters,
        example={"all": True},
        right="log:RequeueRecords",
    ),
    Endpoint(
        "POST",
        "/v1/logs/{log}/dead-letters/purge",
        "purgeDeadLetters",
        "Drop the dead letters of a log",
        "All of them, or those of one group.",
        _TAG,
        _purge,
        (Answered(200, Purged, "How many there were.", {"records": 1}),),
        path_params=LogPath,
        query=PurgeQuery,
        right="log:PurgeLog",
    ),
)

"""Endpoints of the dead letters of a log: list, requeue, purge."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from queuegate.gateway.faces.json.json_endpoints import (
    Answer,
    Answered,
    Call,
    Endpoint,
    schema_name,
)
from queuegate.gateway.faces.logs.group_endpoints import Places
from queuegate.gateway.faces.logs.log_endpoints import GroupName, LogPath, PurgedRecords, log_of
from queuegate.gateway.faces.logs.record_endpoints import RecordShown, shown_record
from queuegate.gateway.operations.access.authorization import find_log
from queuegate.gateway.operations.logs.consumer_groups import dead_letter_log_of
from queuegate.gateway.operations.logs.log_records import (
    find_dead_letter_log,
    list_dead_letters,
    purge,
    requeue,
)
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage.model import StoredLog
from queuegate.storage.storage_errors import MalformedInput

_TAG = "dead letters"


class DeadLettersQuery(Struct, forbid_unknown_fields=True):
    """A page of dead letters."""

    group: Annotated[GroupName | None, Meta(description="Absent: all groups.")] = None
    max: Annotated[int, Meta(ge=1, le=LIMITS.listed, description="Maximum number of results.")] = (
        100
    )


class PurgeQuery(Struct, forbid_unknown_fields=True):
    """Dead letters to delete."""

    group: Annotated[GroupName | None, Meta(description="Absent: all groups.")] = None


@schema_name("DeadLetters")
class LogDeadLetters(Struct):
    """Dead letters, the oldest of each partition first."""

    log: Annotated[str, Meta(description="The dead-letter log.")]
    records: list[RecordShown]


class WhichDeadLetters(Struct, forbid_unknown_fields=True):
    """Dead letters: all, or those at offsets of the dead-letter log."""

    all: bool = False
    offsets: Places | UnsetType = UNSET
    group: Annotated[GroupName | UnsetType, Meta(description="With `all`: only of this group.")] = (
        UNSET
    )


@schema_name("Requeued")
class RequeuedRecords(Struct):
    """The numbers of dead letters."""

    requeued: Annotated[int, Meta(ge=0, description="Published again.")]
    orphans: Annotated[
        int, Meta(ge=0, description="Unchanged: no dead letter, or its log or group was deleted.")
    ]
    has_more: Annotated[bool, Meta(description="True: repeat the request for the rest.")]


async def _dead_log(call: Call, group: str | None) -> tuple[StoredLog, str, StoredLog | None]:
    """Return the log, the name of its dead-letter log, and that log if it exists."""
    log = await log_of(call)
    name = await dead_letter_log_of(call.engine, log, group)
    return log, name, await find_dead_letter_log(call.engine, call.caller, call.right, name)


async def _list(call: Call) -> Answer:
    query: DeadLettersQuery = call.query
    log, name, dead = await _dead_log(call, query.group)
    if dead is None:
        return Answer(200, LogDeadLetters(name, []))
    found = await list_dead_letters(
        call.engine, dead, source=log.name, group=query.group, most=query.max
    )
    return Answer(200, LogDeadLetters(name, [shown_record(*one) for one in found]))


def _which(call: Call) -> tuple[str | None, list[tuple[int, int]] | None]:
    body: WhichDeadLetters = call.body
    if body.all is (body.offsets is not UNSET):
        raise MalformedInput("Send either `all` or `offsets`.")
    group = None if body.group is UNSET else body.group
    if body.offsets is UNSET:
        return group, None
    return group, [(one.partition, one.offset) for one in body.offsets]


async def _requeue(call: Call) -> Answer:
    group, places = _which(call)
    log, name, dead = await _dead_log(call, group)
    if dead is None and places is None:
        return Answer(200, RequeuedRecords(0, 0, has_more=False))
    if dead is None:
        dead = await find_log(call.engine, call.caller, call.right, name)
    most = LIMITS.listed
    done = await requeue(call.engine, dead, places, source=log.name, group=group, most=most)
    has_more = places is None and sum(done) >= most
    return Answer(200, RequeuedRecords(*done, has_more))


async def _purge(call: Call) -> Answer:
    query: PurgeQuery = call.query
    log, _, dead = await _dead_log(call, query.group)
    count = 0
    if dead is not None:
        count = await purge(call.engine, dead, source=log.name, group=query.group)
    return Answer(200, PurgedRecords(count))


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
        "List the dead letters of a log",
        "Dead letters are records of another log, which groups can read. `group` is required for a "
        "group with its own dead-letter log.",
        _TAG,
        _list,
        (Answered(200, LogDeadLetters, "Dead letters.", _DEAD),),
        path_params=LogPath,
        query=DeadLettersQuery,
        right="log:ReadRecords",
    ),
    Endpoint(
        "POST",
        "/v1/logs/{log}/dead-letters/requeue",
        "requeueDeadLetters",
        "Publish dead letters again",
        "Publishes each to the end of its source log, only for the group that dead-lettered it. "
        f"With `all`, at most {LIMITS.listed} in one request.",
        _TAG,
        _requeue,
        (
            Answered(
                200,
                RequeuedRecords,
                "The result.",
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
        "Delete the dead letters of a log",
        "Deletes all of them, or those of one group.",
        _TAG,
        _purge,
        (Answered(200, PurgedRecords, "The number of deleted records.", {"records": 1}),),
        path_params=LogPath,
        query=PurgeQuery,
        right="log:PurgeLog",
    ),
)

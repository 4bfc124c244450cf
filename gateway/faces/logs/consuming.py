"""Subscribers: heartbeats, fetching, and what becomes of records."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from queuegate.gateway.faces.json.endpoints import Answer, Answered, Begun, Call, Endpoint
from queuegate.gateway.faces.json.message_members import BIGGEST_ID
from queuegate.gateway.faces.logs.groups import Visibility
from queuegate.gateway.faces.logs.publishing import Encoding, RecordId
from queuegate.gateway.faces.logs.reading import failure_of, payload_of
from queuegate.gateway.faces.logs.words import (
    GroupPath,
    Key,
    Offset,
    PartitionNumber,
    SubscriberPath,
    group_of,
    known_group_of,
)
from queuegate.gateway.operations.logs.consumer_groups import find_or_make_group, heartbeat, leave
from queuegate.gateway.operations.logs.logs import find_or_make_log, partitions_numbered
from queuegate.gateway.operations.logs.record_deliveries import (
    FetchOutcome,
    FetchRequest,
    Settlement,
    fetch,
    receipt_of,
    settle,
    start_fetching,
    start_settling,
)
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage.errors import MalformedInput
from queuegate.storage.log_model import Delivered, Do, Outcome
from queuegate.storage.log_model import Group as StoredGroup

_TAG = "subscribers"
CONSUME = "log:ConsumeRecords"

Session = Annotated[
    int, Meta(ge=1, le=BIGGEST_ID, description="That a heartbeat answered: one at a time is live.")
]
Receipt = Annotated[
    str, Meta(max_length=100, description="Of this delivery of the record: what to do goes by it.")
]
Seconds = Annotated[float, Meta(ge=0, le=LIMITS.visibility_timeout_seconds)]
SomePartitions = Annotated[list[PartitionNumber], Meta(min_length=1, max_length=LIMITS.read_ranges)]
ErrorText = Annotated[str, Meta(max_length=LIMITS.error_length)]
Doing = Literal["ack", "nack", "postpone", "extend", "reject", "release"]
Became = Literal["done", "dead_lettered", "superseded", "gone"]


class Heartbeat(Struct, forbid_unknown_fields=True):
    """A sign of life."""

    session: Annotated[
        Session | UnsetType,
        Meta(
            description="Absent: the subscriber joins, with a new session that ends any it has had."
        ),
    ] = UNSET


class HeldPartition(Struct):
    """A partition that the subscriber holds."""

    partition: PartitionNumber
    key: Annotated[Key | None, Meta(description="Null: keys share it.")]


class Standing(Struct):
    """How the subscriber stands."""

    session: Session
    live_until: Annotated[
        datetime, Meta(description="Without another heartbeat its partitions go to others then.")
    ]
    heartbeat_seconds: Annotated[float, Meta(description="When to send the next one.")]
    visibility_timeout: Visibility
    share: Annotated[int, Meta(ge=0, description="How many partitions it should hold at most.")]
    partitions: list[HeldPartition]


class LeaveQuery(Struct, forbid_unknown_fields=True):
    """How to leave."""

    session: Session
    release: Annotated[
        bool,
        Meta(
            description="True: what the subscriber has not finished is there for others at once, "
            "as if it had not been delivered."
        ),
    ] = False


class FetchAsked(Struct, forbid_unknown_fields=True):
    """What to fetch."""

    session: Session
    max: Annotated[
        int, Meta(ge=1, le=LIMITS.fetched_records, description="At most so many records.")
    ] = 100
    wait: Annotated[
        float,
        Meta(ge=0, le=LIMITS.read_wait_seconds, description="Seconds to wait until there is one."),
    ] = 0
    partitions: Annotated[
        SomePartitions | UnsetType,
        Meta(description="Of these. Absent: of all that the subscriber holds."),
    ] = UNSET


class FetchedRecord(Struct, omit_defaults=True):
    """A record; it is the subscriber's until `visible_until`."""

    partition: PartitionNumber
    key: Key
    offset: Offset
    payload: str
    published_at: datetime
    attempt: Annotated[int, Meta(ge=1, description="How many times the group got it.")]
    receipt: Receipt
    visible_until: Annotated[datetime, Meta(description="When somebody may get it again.")]
    encoding: Encoding | UnsetType = UNSET
    id: RecordId | UnsetType = UNSET
    metadata: Annotated[
        Raw | UnsetType,
        Meta(extra_json_schema={"type": "object", "additionalProperties": {"type": "string"}}),
    ] = UNSET
    failed_at: Annotated[datetime | UnsetType, Meta(description="It is a dead letter.")] = UNSET
    failure_count: int | UnsetType = UNSET
    last_error: str | UnsetType | None = UNSET
    original_topic: str | UnsetType | None = UNSET


class FetchedRecords(Struct):
    """What there was: by offset in each partition, what is there again before what is new."""

    records: list[FetchedRecord]
    rebalance: Annotated[
        bool,
        Meta(description="True: the next heartbeat changes what the subscriber holds. Send it."),
    ]


class DeliveryDone(Struct, forbid_unknown_fields=True):
    """What to do with a record."""

    receipt: Receipt
    do: Annotated[
        Doing,
        Meta(
            description="`ack`: it is done. `nack`: it comes again after `delay`, or as the "
            "group's back-off has it; after the last attempt it is a dead letter. `postpone`: it "
            "comes again after `delay`, nothing else of its partition before that, and attempts "
            "count anew. `extend`: it is the subscriber's for `delay` from now. `reject`: a dead "
            "letter now. `release`: nobody has looked at it; it is there at once, and the attempt "
            "does not count."
        ),
    ]
    delay: Annotated[
        Seconds | UnsetType | None, Meta(description="`postpone` and `extend` need it.")
    ] = UNSET
    error: Annotated[
        ErrorText | UnsetType | None,
        Meta(description="For the dead letter that may come of it."),
    ] = UNSET


class DeliveriesDone(Struct, forbid_unknown_fields=True):
    """What to do with records: all of it, or nothing."""

    deliveries: Annotated[list[DeliveryDone], Meta(min_length=1, max_length=LIMITS.fetched_records)]


class DeliveryResult(Struct):
    """What became of one."""

    result: Annotated[
        Became,
        Meta(
            description="`superseded`: nothing; it was delivered again, or given back, after that "
            "receipt. `gone`: nothing; the group is through with it. An ack of what is acked is "
            "`done`."
        ),
    ]


class DeliveryResults(Struct):
    """What became of each, in order."""

    results: list[DeliveryResult]


async def _beat(call: Call) -> Answer:
    body: Heartbeat = call.body or Heartbeat()
    path: SubscriberPath = call.path
    session = None if body.session is UNSET else body.session
    if session is None:
        log = await find_or_make_log(call.engine, call.caller, call.right, path.log)
        group = await find_or_make_group(call.engine, log, path.group)
    else:
        log, group = await group_of(call)
    found = await heartbeat(call.engine, log, group, path.subscriber, session)
    standing = Standing(
        found.session,
        found.live_until,
        group.settings.lease_seconds / 3,
        group.settings.visibility_timeout_seconds,
        found.share,
        [HeldPartition(one.number, one.key) for one in found.partitions],
    )
    return Answer(200, standing)


async def _leave(call: Call) -> Answer:
    log, group = await group_of(call)
    query: LeaveQuery = call.query
    await leave(
        call.engine, log, group, call.path.subscriber, query.session, releases=query.release
    )
    return Answer(204)


async def _fetch(call: Call) -> Answer:
    log, group = await group_of(call)
    asked: FetchAsked = call.body
    partition_ids = None
    if asked.partitions is not UNSET:
        partitions = await partitions_numbered(call.engine, log, asked.partitions)
        partition_ids = [partitions[number].partition_id for number in asked.partitions]
    request = _request(call)._replace(partition_ids=partition_ids)
    return _fetched(group, await fetch(call.engine, log, group, request))


def _begin_fetching(call: Call) -> Begun | None:
    known = known_group_of(call)
    asked: FetchAsked = call.body
    if known is None or asked.partitions is not UNSET:
        return None
    log, group = known
    return Begun(
        partial(start_fetching, call.engine, log, group, _request(call)),
        partial(_fetched, group),
    )


def _request(call: Call) -> FetchRequest:
    asked: FetchAsked = call.body
    return FetchRequest(call.path.subscriber, asked.session, asked.max, asked.wait)


def _fetched(group: StoredGroup, outcome: FetchOutcome) -> Answer:
    # Most have one time together.
    times = {one.visible_until_ms for one in outcome.records}
    until = {ms: datetime.fromtimestamp(ms / 1000, UTC) for ms in times}
    records = [_shown(group, one, until[one.visible_until_ms]) for one in outcome.records]
    return Answer(200, FetchedRecords(records, not outcome.is_settled))


def _shown(group: StoredGroup, delivered: Delivered, until: datetime) -> FetchedRecord:
    record = delivered.record
    payload, encoding = payload_of(record.payload)
    shown = FetchedRecord(
        delivered.number,
        delivered.key or "",
        record.offset,
        payload,
        record.published_at,
        delivered.attempt,
        receipt_of(group, delivered),
        until,
        encoding,
        record.record_id or UNSET,
        UNSET if record.metadata is None else Raw(record.metadata.encode()),
    )
    if record.failure is not None:
        failure = failure_of(record.failure)
        shown.failed_at = failure.failed_at
        shown.failure_count = failure.failure_count
        shown.last_error = failure.last_error
        shown.original_topic = failure.original_topic
        shown.id = failure.original_id or UNSET
    return shown


async def _settle(call: Call) -> Answer:
    settlements = _settlements(call)
    log, group = await group_of(call)
    return _settled(await settle(call.engine, log, group, settlements))


def _begin_settling(call: Call) -> Begun | None:
    known = known_group_of(call)
    if known is None:
        return None
    log, group = known
    return Begun(partial(start_settling, call.engine, log, group, _settlements(call)), _settled)


def _settlements(call: Call) -> list[Settlement]:
    body: DeliveriesDone = call.body
    settlements = []
    for one in body.deliveries:
        delay = one.delay if isinstance(one.delay, float) else None
        if delay is None and one.do in ("postpone", "extend"):
            raise MalformedInput(f"`{one.do}` needs a `delay`.")
        error = one.error if isinstance(one.error, str) else ""
        settlements.append(Settlement(one.receipt, Do(one.do), delay, error))
    return settlements


_RESULTS = {outcome: msgspec.json.encode(DeliveryResult(outcome.value)) for outcome in Outcome}


def _settled(outcomes: list[Outcome]) -> Answer:
    results = b",".join([_RESULTS[outcome] for outcome in outcomes])
    return Answer(200, Raw(b'{"results":[' + results + b"]}"))


_RECEIPT = "7.1042.400.31"
_FETCHED = {
    "partition": 0,
    "key": "shop-1",
    "offset": 400,
    "payload": '{"order": 42}',
    "published_at": "2030-01-31T09:00:00Z",
    "attempt": 1,
    "receipt": _RECEIPT,
    "visible_until": "2030-01-31T09:00:30Z",
    "id": "42",
}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "PUT",
        "/v1/logs/{log}/groups/{group}/subscribers/{subscriber}",
        "sendHeartbeat",
        "Join a group, and stay in it",
        "Partitions are shared out evenly among the live subscribers of a group, one holder each. "
        "Without a session log and group are made if they are not there; a session that was dead "
        "for long enough to lose its partitions is replaced by another. Refused with 409 when "
        "the subscriber is live in a later session.",
        _TAG,
        _beat,
        (
            Answered(
                200,
                Standing,
                "What it holds.",
                {
                    "session": 31,
                    "live_until": "2030-01-31T09:00:30Z",
                    "heartbeat_seconds": 10,
                    "visibility_timeout": 30,
                    "share": 2,
                    "partitions": [{"partition": 0, "key": "shop-1"}],
                },
            ),
        ),
        refusals=(404, 409),
        path_params=SubscriberPath,
        body=Heartbeat,
        body_is_optional=True,
        example={"session": 31},
        right=CONSUME,
    ),
    Endpoint(
        "DELETE",
        "/v1/logs/{log}/groups/{group}/subscribers/{subscriber}",
        "leaveGroup",
        "Leave a group",
        "Its partitions go to others at once. Whoever has left with that session leaves again.",
        _TAG,
        _leave,
        (Answered(204, None, "It has left."),),
        path_params=SubscriberPath,
        query=LeaveQuery,
        right=CONSUME,
    ),
    Endpoint(
        "POST",
        "/v1/logs/{log}/groups/{group}/subscribers/{subscriber}/fetch",
        "fetchRecords",
        "Fetch records",
        "Of the partitions that the subscriber holds. Answers as soon as there is one, or when "
        "what it holds is to change. Large records come in parts. Refused with 409 for another "
        "session than the live one.",
        _TAG,
        _fetch,
        (
            Answered(
                200,
                FetchedRecords,
                "Records; none when the wait was in vain.",
                {"records": [_FETCHED], "rebalance": False},
            ),
        ),
        begin=_begin_fetching,
        may_wait=True,
        refusals=(404, 409),
        path_params=SubscriberPath,
        body=FetchAsked,
        example={"session": 31, "max": 100, "wait": 20},
        right=CONSUME,
    ),
    Endpoint(
        "POST",
        "/v1/logs/{log}/groups/{group}/deliveries",
        "settleDeliveries",
        "Acknowledge records, or give them back",
        "By their receipts, which count until the record is delivered again, whoever holds the "
        "partition meanwhile. All of it is on disk when this is answered, or nothing.",
        _TAG,
        _settle,
        (
            Answered(
                200, DeliveryResults, "What became of each.", {"results": [{"result": "done"}]}
            ),
        ),
        begin=_begin_settling,
        carries_messages=True,
        path_params=GroupPath,
        body=DeliveriesDone,
        example={"deliveries": [{"receipt": _RECEIPT, "do": "ack"}]},
        right=CONSUME,
    ),
)

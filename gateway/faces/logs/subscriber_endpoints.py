"""Endpoints of subscribers: heartbeats, fetches and settlement of records."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from queuegate.gateway.faces.json.json_endpoints import (
    Answer,
    Answered,
    Call,
    Endpoint,
    PreparedCall,
    schema_name,
)
from queuegate.gateway.faces.json.json_fields import BIGGEST_ID
from queuegate.gateway.faces.logs.group_endpoints import Visibility
from queuegate.gateway.faces.logs.log_endpoints import (
    GroupPath,
    Key,
    Offset,
    PartitionNumber,
    SubscriberPath,
    group_of,
    known_group_of,
)
from queuegate.gateway.faces.logs.record_endpoints import Encoding, RecordId, failure_of, payload_of
from queuegate.gateway.operations.logs.consumer_groups import (
    FetchOutcome,
    FetchRequest,
    Settlement,
    fetch,
    find_or_make_group,
    heartbeat,
    leave,
    receipt_of,
    settle,
    start_fetching,
    start_settling,
)
from queuegate.gateway.operations.logs.logs import find_or_make_log, partitions_numbered
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage.model import ConsumerGroup, Delivered, ReceiptAction, RecordOutcome
from queuegate.storage.storage_errors import MalformedInput

_TAG = "subscribers"
CONSUME = "log:ConsumeRecords"

Session = Annotated[
    int, Meta(ge=1, le=BIGGEST_ID, description="Session of a heartbeat. One at a time is live.")
]
Receipt = Annotated[
    str, Meta(max_length=100, description="Receipt of this delivery, for its settlement.")
]
Seconds = Annotated[float, Meta(ge=0, le=LIMITS.visibility_timeout_seconds)]
SomePartitions = Annotated[list[PartitionNumber], Meta(min_length=1, max_length=LIMITS.read_ranges)]
ErrorText = Annotated[str, Meta(max_length=LIMITS.error_length)]
Doing = Literal["ack", "nack", "postpone", "extend", "reject", "release"]
SettlementResult = Literal["done", "dead_lettered", "superseded", "gone"]


class Heartbeat(Struct, forbid_unknown_fields=True):
    """A heartbeat."""

    session: Annotated[
        Session | UnsetType,
        Meta(description="Absent: the subscriber joins, and a new session replaces its sessions."),
    ] = UNSET


class HeldPartition(Struct):
    """A partition that the subscriber holds."""

    partition: PartitionNumber
    key: Annotated[Key | None, Meta(description="Null: keys share the partition.")]


@schema_name("Standing")
class SubscriberState(Struct):
    """The state of the subscriber."""

    session: Session
    live_until: Annotated[
        datetime, Meta(description="When its partitions are reassigned without a heartbeat.")
    ]
    heartbeat_seconds: Annotated[float, Meta(description="Interval of heartbeats.")]
    visibility_timeout: Visibility
    share: Annotated[int, Meta(ge=0, description="Fair maximum of held partitions.")]
    partitions: list[HeldPartition]


class LeaveQuery(Struct, forbid_unknown_fields=True):
    """The session to end."""

    session: Session
    release: Annotated[
        bool,
        Meta(
            description="True: release unfinished records at once, as if they had not been "
            "delivered."
        ),
    ] = False


class FetchAsked(Struct, forbid_unknown_fields=True):
    """Limits of a fetch."""

    session: Session
    max: Annotated[
        int, Meta(ge=1, le=LIMITS.fetched_records, description="Maximum number of records.")
    ] = 100
    wait: Annotated[
        float,
        Meta(ge=0, le=LIMITS.read_wait_seconds, description="Seconds to wait for a record."),
    ] = 0
    partitions: Annotated[
        SomePartitions | UnsetType,
        Meta(description="Partitions to fetch from. Absent: all held partitions."),
    ] = UNSET


class FetchedRecord(Struct, omit_defaults=True):
    """A delivered record, hidden from other subscribers until `visible_until`."""

    partition: PartitionNumber
    key: Key
    offset: Offset
    payload: str
    published_at: datetime
    attempt: Annotated[int, Meta(ge=1, description="Number of deliveries to the group.")]
    receipt: Receipt
    visible_until: Annotated[datetime, Meta(description="When the record is redelivered.")]
    encoding: Encoding | UnsetType = UNSET
    id: RecordId | UnsetType = UNSET
    metadata: Annotated[
        Raw | UnsetType,
        Meta(extra_json_schema={"type": "object", "additionalProperties": {"type": "string"}}),
    ] = UNSET
    failed_at: Annotated[datetime | UnsetType, Meta(description="Present for a dead letter.")] = (
        UNSET
    )
    failure_count: int | UnsetType = UNSET
    last_error: str | UnsetType | None = UNSET
    original_topic: str | UnsetType | None = UNSET


class FetchedRecords(Struct):
    """Records by offset in each partition, redeliveries before new records."""

    records: list[FetchedRecord]
    rebalance: Annotated[
        bool,
        Meta(description="True: send a heartbeat, which changes the held partitions."),
    ]


class DeliveryDone(Struct, forbid_unknown_fields=True):
    """The settlement of a record."""

    receipt: Receipt
    do: Annotated[
        Doing,
        Meta(
            description="`ack`: finish the record. `nack`: redeliver it after `delay` or the "
            "back-off of the group; after the last attempt dead-letter it. `postpone`: redeliver "
            "it after `delay`, with attempts from 0, and deliver nothing else of its partition "
            "before. `extend`: hide it for `delay` from now. `reject`: dead-letter it now. "
            "`release`: redeliver it at once, without counting the attempt."
        ),
    ]
    delay: Annotated[
        Seconds | UnsetType | None, Meta(description="Required for `postpone` and `extend`.")
    ] = UNSET
    error: Annotated[
        ErrorText | UnsetType | None,
        Meta(description="Error text for a dead letter."),
    ] = UNSET


class DeliveriesDone(Struct, forbid_unknown_fields=True):
    """Settlements, of which all are done or none."""

    deliveries: Annotated[list[DeliveryDone], Meta(min_length=1, max_length=LIMITS.fetched_records)]


class DeliveryResult(Struct):
    """The result of one settlement."""

    result: Annotated[
        SettlementResult,
        Meta(
            description="`superseded`: no effect, because the record was redelivered or released "
            "after this receipt. `gone`: no effect, because the group has finished the record. A "
            "repeated ack is `done`."
        ),
    ]


class DeliveryResults(Struct):
    """The result of each settlement, in order."""

    results: list[DeliveryResult]


async def _heartbeat(call: Call) -> Answer:
    body: Heartbeat = call.body or Heartbeat()
    path: SubscriberPath = call.path
    session = None if body.session is UNSET else body.session
    if session is None:
        log = await find_or_make_log(call.engine, call.caller, call.right, path.log)
        group = await find_or_make_group(call.engine, log, path.group)
    else:
        log, group = await group_of(call)
    found = await heartbeat(call.engine, log, group, path.subscriber, session)
    standing = SubscriberState(
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


def _prepare_fetching(call: Call) -> PreparedCall | None:
    known = known_group_of(call)
    asked: FetchAsked = call.body
    if known is None or asked.partitions is not UNSET:
        return None
    log, group = known
    return PreparedCall(
        partial(start_fetching, call.engine, log, group, _request(call)),
        partial(_fetched, group),
    )


def _request(call: Call) -> FetchRequest:
    asked: FetchAsked = call.body
    return FetchRequest(call.path.subscriber, asked.session, asked.max, asked.wait)


def _fetched(group: ConsumerGroup, outcome: FetchOutcome) -> Answer:
    # Most records share one time.
    times = {one.visible_until_ms for one in outcome.records}
    until = {ms: datetime.fromtimestamp(ms / 1000, UTC) for ms in times}
    records = [_shown(group, one, until[one.visible_until_ms]) for one in outcome.records]
    return Answer(200, FetchedRecords(records, not outcome.is_settled))


def _shown(group: ConsumerGroup, delivered: Delivered, until: datetime) -> FetchedRecord:
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


def _prepare_settling(call: Call) -> PreparedCall | None:
    known = known_group_of(call)
    if known is None:
        return None
    log, group = known
    return PreparedCall(
        partial(start_settling, call.engine, log, group, _settlements(call)), _settled
    )


def _settlements(call: Call) -> list[Settlement]:
    body: DeliveriesDone = call.body
    settlements = []
    for one in body.deliveries:
        delay = one.delay if isinstance(one.delay, float) else None
        if delay is None and one.do in ("postpone", "extend"):
            raise MalformedInput(f"`{one.do}` requires a `delay`.")
        error = one.error if isinstance(one.error, str) else ""
        settlements.append(Settlement(one.receipt, ReceiptAction(one.do), delay, error))
    return settlements


_RESULTS = {
    outcome: msgspec.json.encode(DeliveryResult(outcome.value)) for outcome in RecordOutcome
}


def _settled(outcomes: list[RecordOutcome]) -> Answer:
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
        "Partitions are assigned evenly to the live subscribers of a group, one holder each. A "
        "heartbeat without a session creates a missing log or group. A session that has lost its "
        "partitions is replaced by a new session. 409: the subscriber is live in a later session.",
        _TAG,
        _heartbeat,
        (
            Answered(
                200,
                SubscriberState,
                "The state of the subscriber.",
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
        "Reassigns the partitions of the subscriber at once. Repeated requests succeed.",
        _TAG,
        _leave,
        (Answered(204, None, "The subscriber has left."),),
        path_params=SubscriberPath,
        query=LeaveQuery,
        right=CONSUME,
    ),
    Endpoint(
        "POST",
        "/v1/logs/{log}/groups/{group}/subscribers/{subscriber}/fetch",
        "fetchRecords",
        "Fetch records",
        "Fetches records of the held partitions. Answers as soon as a record is available, or when "
        "the held partitions change. Large records arrive in several answers. 409: the session is "
        "not the live one.",
        _TAG,
        _fetch,
        (
            Answered(
                200,
                FetchedRecords,
                "Records. May be empty after the wait.",
                {"records": [_FETCHED], "rebalance": False},
            ),
        ),
        prepare=_prepare_fetching,
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
        "Settle records",
        "Acknowledges, returns or rejects records by their receipts. A receipt is valid until the "
        "record is redelivered, even if another subscriber holds the partition. All settlements "
        "are durable when the answer arrives, or none is done.",
        _TAG,
        _settle,
        (Answered(200, DeliveryResults, "The results.", {"results": [{"result": "done"}]}),),
        prepare=_prepare_settling,
        carries_messages=True,
        path_params=GroupPath,
        body=DeliveriesDone,
        example={"deliveries": [{"receipt": _RECEIPT, "do": "ack"}]},
        right=CONSUME,
    ),
)

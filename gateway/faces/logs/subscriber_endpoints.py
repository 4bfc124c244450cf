"""Endpoints of subscribers: heartbeats, fetches and settlement of records."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from queuegate.gateway.faces.json.json_endpoints import Answer, Call, Endpoints, PreparedCall
from queuegate.gateway.faces.json.json_fields import BIGGEST_ID, about, example, schema_name
from queuegate.gateway.faces.logs.group_endpoints import Visibility
from queuegate.gateway.faces.logs.log_endpoints import (
    GroupName,
    Key,
    LogName,
    Offset,
    PartitionNumber,
    SubscriberName,
    group_of,
    known_group_of,
)
from queuegate.gateway.faces.logs.record_endpoints import Encoding, RecordId, failure_of, payload_of
from queuegate.gateway.operations.logs import consumer_groups
from queuegate.gateway.operations.logs.consumer_groups import (
    FetchOutcome,
    FetchRequest,
    Settlement,
    find_or_make_group,
    heartbeat,
    leave,
)
from queuegate.gateway.operations.logs.logs import find_or_make_log, partitions_numbered
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage.model import ConsumerGroup, Delivered, ReceiptAction, RecordOutcome
from queuegate.storage.storage_errors import MalformedInput

CONSUME = "log:ConsumeRecords"

Session = Annotated[
    int, about("Session of a heartbeat. One at a time is live.", ge=1, le=BIGGEST_ID)
]
Receipt = Annotated[str, about("Receipt of this delivery, for its settlement.", max_length=100)]
Seconds = Annotated[float, Meta(ge=0, le=LIMITS.visibility_timeout_seconds)]
SomePartitions = Annotated[list[PartitionNumber], Meta(min_length=1, max_length=LIMITS.read_ranges)]
ErrorText = Annotated[str, Meta(max_length=LIMITS.error_length)]
Doing = Literal["ack", "nack", "postpone", "extend", "reject", "release"]
SettlementResult = Literal["done", "dead_lettered", "superseded", "gone"]


class Heartbeat(Struct, forbid_unknown_fields=True):
    """A heartbeat."""

    session: Annotated[
        Session | UnsetType,
        about("Absent: the subscriber joins, and a new session replaces its sessions."),
        example(31),
    ] = UNSET


class HeldPartition(Struct):
    """A partition that the subscriber holds."""

    partition: PartitionNumber
    key: Annotated[Key | None, about("Null: keys share the partition.", "shop-1")]


@schema_name("Standing")
class HeartbeatAnswer(Struct):
    """The state of the subscriber."""

    session: Annotated[Session, example(31)]
    live_until: Annotated[
        datetime,
        about("When its partitions are reassigned without a heartbeat.", "2030-01-31T09:00:30Z"),
    ]
    heartbeat_seconds: Annotated[float, about("Interval of heartbeats.", 10)]
    visibility_timeout: Annotated[Visibility, example(30)]
    share: Annotated[int, about("Fair maximum of held partitions.", 2, ge=0)]
    partitions: list[HeldPartition]


class LeaveQuery(Struct, forbid_unknown_fields=True):
    """The session to end."""

    session: Session
    release: Annotated[
        bool, about("True: release unfinished records at once, as if they had not been delivered.")
    ] = False


class FetchAsked(Struct, forbid_unknown_fields=True):
    """Limits of a fetch."""

    session: Annotated[Session, example(31)]
    max: Annotated[
        int, about("Maximum number of records.", ge=1, le=LIMITS.fetched_records), example(100)
    ] = 100
    wait: Annotated[
        float,
        about("Seconds to wait for a record.", ge=0, le=LIMITS.read_wait_seconds),
        example(20),
    ] = 0
    partitions: Annotated[
        SomePartitions | UnsetType, about("Partitions to fetch from. Absent: all held partitions.")
    ] = UNSET


class FetchedRecord(Struct, omit_defaults=True):
    """A delivered record, hidden from other subscribers until `visible_until`."""

    partition: PartitionNumber
    key: Annotated[Key, example("shop-1")]
    offset: Annotated[Offset, example(400)]
    payload: Annotated[str, example('{"order": 42}')]
    published_at: datetime
    attempt: Annotated[int, about("Number of deliveries to the group.", 1, ge=1)]
    receipt: Annotated[Receipt, example("7.1042.400.31")]
    visible_until: Annotated[
        datetime, about("When the record is redelivered.", "2030-01-31T09:00:30Z")
    ]
    encoding: Encoding | UnsetType = UNSET
    id: Annotated[RecordId | UnsetType, example("42")] = UNSET
    metadata: Annotated[
        Raw | UnsetType,
        Meta(extra_json_schema={"type": "object", "additionalProperties": {"type": "string"}}),
    ] = UNSET
    failed_at: Annotated[datetime | UnsetType, about("Present for a dead letter.")] = UNSET
    failure_count: int | UnsetType = UNSET
    last_error: str | UnsetType | None = UNSET
    original_topic: str | UnsetType | None = UNSET


class FetchedRecords(Struct):
    """Records by offset in each partition, redeliveries before new records."""

    records: list[FetchedRecord]
    rebalance: Annotated[bool, about("True: send a heartbeat, which changes the held partitions.")]


class DeliveryDone(Struct, forbid_unknown_fields=True):
    """The settlement of a record."""

    receipt: Receipt
    do: Annotated[
        Doing,
        about(
            "`ack`: finish the record. `nack`: redeliver it after `delay` or the "
            "back-off of the group; after the last attempt dead-letter it. `postpone`: redeliver "
            "it after `delay`, with attempts from 0, and deliver nothing else of its partition "
            "before. `extend`: hide it for `delay` from now. `reject`: dead-letter it now. "
            "`release`: redeliver it at once, without counting the attempt."
        ),
    ]
    delay: Annotated[Seconds | UnsetType | None, about("Required for `postpone` and `extend`.")] = (
        UNSET
    )
    error: Annotated[ErrorText | UnsetType | None, about("Error text for a dead letter.")] = UNSET


class DeliveriesDone(Struct, forbid_unknown_fields=True):
    """Settlements, of which all are done or none."""

    deliveries: Annotated[
        list[DeliveryDone],
        Meta(min_length=1, max_length=LIMITS.fetched_records),
        example([{"receipt": "7.1042.400.31", "do": "ack"}]),
    ]


class DeliveryResult(Struct):
    """The result of one settlement."""

    result: Annotated[
        SettlementResult,
        about(
            "`superseded`: no effect, because the record was redelivered or released "
            "after this receipt. `gone`: no effect, because the group has finished the record. A "
            "repeated ack is `done`.",
            "done",
        ),
    ]


class DeliveryResults(Struct):
    """The result of each settlement, in order."""

    results: list[DeliveryResult]


endpoint = Endpoints("subscribers", log=LogName, group=GroupName, subscriber=SubscriberName)


@endpoint(
    "PUT /v1/logs/{log}/groups/{group}/subscribers/{subscriber}", CONSUME, refusals=(404, 409)
)
async def send_heartbeat(call: Call, body: Heartbeat | None) -> Answer[HeartbeatAnswer]:
    """Join a group, and stay in it. Partitions are assigned evenly to the live subscribers of a
    group, one holder each. A heartbeat without a session creates a missing log or group. A session
    that has lost its partitions is replaced by a new session. 409: the subscriber is live in a
    later session. Returns 200: The state of the subscriber."""
    path = call.path
    session = None if body is None or body.session is UNSET else body.session
    if session is None:
        log = await find_or_make_log(call.engine, call.caller, call.right, path.log)
        group = await find_or_make_group(call.engine, log, path.group)
    else:
        log, group = await group_of(call)
    found = await heartbeat(call.engine, log, group, path.subscriber, session)
    standing = HeartbeatAnswer(
        found.session,
        found.live_until,
        group.settings.lease_seconds / 3,
        group.settings.visibility_timeout_seconds,
        found.share,
        [HeldPartition(one.number, one.key) for one in found.partitions],
    )
    return Answer(200, standing)


@endpoint("DELETE /v1/logs/{log}/groups/{group}/subscribers/{subscriber}", CONSUME)
async def leave_group(call: Call, query: LeaveQuery) -> Answer[None]:
    """Leave a group. Reassigns the partitions of the subscriber at once. Repeated requests succeed.
    Returns 204: The subscriber has left."""
    log, group = await group_of(call)
    await leave(
        call.engine, log, group, call.path.subscriber, query.session, releases=query.release
    )
    return Answer(204)


def _prepare_fetching(call: Call) -> PreparedCall | None:
    known = known_group_of(call)
    asked: FetchAsked = call.body
    if known is None or asked.partitions is not UNSET:
        return None
    log, group = known
    return PreparedCall(
        partial(consumer_groups.start_fetching, call.engine, log, group, _request(call)),
        partial(_fetched, group),
    )


@endpoint(
    "POST /v1/logs/{log}/groups/{group}/subscribers/{subscriber}/fetch",
    CONSUME,
    refusals=(404, 409),
    prepare=_prepare_fetching,
    may_wait=True,
)
async def fetch_records(call: Call, body: FetchAsked) -> Answer[FetchedRecords]:
    """Fetch records. Fetches records of the held partitions. Answers as soon as a record is
    available, or when the held partitions change. Large records arrive in several answers. 409: the
    session is not the live one. Returns 200: Records. May be empty after the wait."""
    log, group = await group_of(call)
    partition_ids = None
    if body.partitions is not UNSET:
        partitions = await partitions_numbered(call.engine, log, body.partitions)
        partition_ids = [partitions[number].partition_id for number in body.partitions]
    request = _request(call)._replace(partition_ids=partition_ids)
    return _fetched(group, await consumer_groups.fetch(call.engine, log, group, request))


def _request(call: Call) -> FetchRequest:
    asked: FetchAsked = call.body
    return FetchRequest(call.path.subscriber, asked.session, asked.max, asked.wait)


def _fetched(group: ConsumerGroup, outcome: FetchOutcome) -> Answer[FetchedRecords]:
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
        consumer_groups.receipt_of(group, delivered),
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


def _prepare_settling(call: Call) -> PreparedCall | None:
    known = known_group_of(call)
    if known is None:
        return None
    log, group = known
    return PreparedCall(
        partial(consumer_groups.start_settling, call.engine, log, group, _settlements(call)),
        _settled,
    )


@endpoint(
    "POST /v1/logs/{log}/groups/{group}/deliveries",
    CONSUME,
    prepare=_prepare_settling,
    carries_messages=True,
)
async def settle_deliveries(call: Call, body: DeliveriesDone) -> Answer[DeliveryResults]:
    """Settle records. Acknowledges, returns or rejects records by their receipts. A receipt is
    valid until the record is redelivered, even if another subscriber holds the partition. All
    settlements are durable when the answer arrives, or none is done. Returns 200: The results."""
    settlements = _settlements(call)
    log, group = await group_of(call)
    return _settled(await consumer_groups.settle(call.engine, log, group, settlements))


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


def _settled(outcomes: list[RecordOutcome]) -> Answer[DeliveryResults]:
    results = b",".join([_RESULTS[outcome] for outcome in outcomes])
    return Answer(200, Raw(b'{"results":[' + results + b"]}"))

"""Endpoints of records and dead letters: publish, read by offset, requeue, delete.

Bulk reads answer in columns. Other reads answer one object for each record.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from queuegate.gateway.faces.json.json_endpoints import Answer, Call, Endpoints, PreparedCall
from queuegate.gateway.faces.json.json_fields import (
    BIGGEST_ID,
    Instant,
    about,
    example,
    schema_name,
)
from queuegate.gateway.faces.logs.group_endpoints import Places
from queuegate.gateway.faces.logs.log_endpoints import (
    GroupName,
    Key,
    LogName,
    Offset,
    PartitionNumber,
    PurgedRecords,
    log_of,
)
from queuegate.gateway.operations.access.authorization import PUBLISH_RECORDS, find_log, known_log
from queuegate.gateway.operations.logs import log_records
from queuegate.gateway.operations.logs.consumer_groups import dead_letter_log_of
from queuegate.gateway.operations.logs.log_records import (
    RangeRecords,
    ReadLimits,
    RecordPosition,
    RecordRange,
    RecordToPublish,
)
from queuegate.gateway.operations.runtime.background_tasks import yield_to_loop
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage.model import Appended, LogPartition, StoredLog, StoredRecord
from queuegate.storage.storage_errors import MalformedInput

_HUGE = 1_048_576

RecordId = Annotated[
    str, Meta(extra_json_schema={"minLength": 1, "maxLength": LIMITS.record_id_length})
]
Encoding = Literal["base64"]
Payload = Annotated[
    str,
    about(
        f"Any text, or binary data in base64. Maximum with metadata: {LIMITS.message_bytes} bytes."
    ),
]


@schema_name("NewRecord")
class NewRecordBody(Struct, forbid_unknown_fields=True):
    """A record to publish."""

    key: Annotated[Key, about("Records of one key share a partition, in order.")]
    payload: Payload
    encoding: Annotated[Encoding | UnsetType, about("Encoding of the payload. Absent: text.")] = (
        UNSET
    )
    id: Annotated[
        RecordId | UnsetType,
        about(
            "Identity of the record. A second record with this key and id is a "
            "duplicate while the first is stored."
        ),
    ] = UNSET
    metadata: Annotated[
        dict[str, str] | UnsetType,
        about(
            "Metadata of the record.", extra_json_schema={"maxProperties": LIMITS.record_metadata}
        ),
    ] = UNSET


class NewRecords(Struct, forbid_unknown_fields=True):
    """Records to publish."""

    records: Annotated[
        list[NewRecordBody],
        Meta(min_length=1, max_length=LIMITS.published_records),
        example(
            [
                {
                    "key": "shop-1",
                    "payload": '{"order": 42}',
                    "id": "42",
                    "metadata": {"tenant": "acme"},
                },
                {"key": "shop-2", "payload": "AAEC", "encoding": "base64"},
            ]
        ),
    ]


class PublishedRecord(Struct, omit_defaults=True):
    """The position of a record."""

    partition: PartitionNumber
    offset: Offset
    id: RecordId | UnsetType = UNSET
    duplicate: Annotated[
        bool, about("True: a record with this id is stored, so this one was dropped.")
    ] = False


class PublishedRecords(Struct):
    """The positions of the records, in order."""

    records: Annotated[
        list[PublishedRecord],
        example([{"partition": 0, "offset": 400, "id": "42"}, {"partition": 1, "offset": 12}]),
    ]


def _publication(new: NewRecordBody) -> RecordToPublish:
    payload = new.payload.encode() if new.encoding is UNSET else _decoded(new.payload)
    metadata = None
    if new.metadata is not UNSET and new.metadata:
        if len(new.metadata) > LIMITS.record_metadata:
            raise MalformedInput(
                f"A record has at most {LIMITS.record_metadata} members in its `metadata`."
            )
        metadata = msgspec.json.encode(new.metadata).decode()
    return RecordToPublish(new.key, payload, None if new.id is UNSET else new.id, metadata)


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (NotBase64, ValueError):
        raise MalformedInput("A `payload` with `encoding` base64 is not base64.") from None


def _publications(call: Call) -> list[RecordToPublish]:
    return [_publication(new) for new in call.body.records]


endpoint = Endpoints("records", log=LogName)


async def _publish_anyway(
    call: Call, publications: list[RecordToPublish]
) -> Answer[PublishedRecords]:
    published = await log_records.publish_records(
        call.engine, call.caller, call.right, call.path.log, publications
    )
    return _done(published, publications)


def _prepare_publishing(call: Call) -> PreparedCall | None:
    engine = call.engine
    log = known_log(engine, call.caller, call.right, call.path.log)
    if log is None:
        return None
    publications = _publications(call)
    partitions = log_records.known_partitions(engine, log, publications)
    if partitions is None:
        return None
    log_records.check(engine, publications)
    if not engine.rates.take_at_once(call.caller, len(publications)):
        return None

    def answer(appended: Appended | None) -> Answer[Any] | Awaitable[Answer[Any]]:
        if appended is None:
            # The log was deleted, and may have been recreated.
            engine.logs.forget(log)
            return _publish_anyway(call, publications)
        return _done(RecordPosition(partitions, *appended), publications)

    return PreparedCall(
        partial(log_records.start_publishing, engine, log, publications, partitions), answer
    )


@endpoint(
    "POST /v1/logs/{log}/records",
    PUBLISH_RECORDS,
    refusals=(404, 409, 429),
    prepare=_prepare_publishing,
    carries_messages=True,
)
async def publish_records(call: Call, body: NewRecords) -> Answer[PublishedRecords]:
    """Publish up to {limits.published_records} records. Publishes all records or none, in their
    order within each partition. They are durable when the answer arrives. Creates a missing log,
    and the missing partition of a key. Returns 201: The positions."""
    if len(call.request.body) > _HUGE:
        # Decoding of megabytes of base64 would block the event loop.
        publications = await asyncio.to_thread(_publications, call)
    else:
        publications = _publications(call)
    await call.engine.rates.take(call.caller, len(publications))
    return await _publish_anyway(call, publications)


def _done(
    published: RecordPosition, publications: list[RecordToPublish]
) -> Answer[PublishedRecords]:
    partitions, offsets, duplicates = published
    if duplicates is None:
        records = [
            PublishedRecord(partition.number, offset)
            for partition, offset in zip(partitions, offsets, strict=True)
        ]
    else:
        records = [
            PublishedRecord(partition.number, offset, given.record_id or UNSET, is_duplicate)
            for partition, offset, given, is_duplicate in zip(
                partitions, offsets, publications, duplicates, strict=True
            )
        ]
    return Answer(201, PublishedRecords(records))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_READ_BYTES = 1_048_576


@schema_name("Range")
class RecordRangeBody(
    Struct, forbid_unknown_fields=True, rename={"from_offset": "from", "to_offset": "to"}
):
    """A range of offsets in a partition."""

    partition: PartitionNumber
    from_offset: Annotated[Offset, about("First offset.")] = 0
    to_offset: Annotated[
        Offset, about("End of the range, exclusive. Absent: the end of the partition.")
    ] = BIGGEST_ID


@schema_name("Read")
class ReadBody(Struct, forbid_unknown_fields=True):
    """Ranges to read."""

    ranges: Annotated[
        list[RecordRangeBody],
        Meta(min_length=1, max_length=LIMITS.read_ranges),
        example([{"partition": 0, "from": 400, "to": 402}]),
    ]
    max_bytes: Annotated[
        int,
        about(
            "Approximate maximum bytes of payloads and metadata. At least one record is returned."
        ),
        Meta(ge=1, le=LIMITS.read_bytes),
        example(1048576),
    ] = _READ_BYTES
    wait: Annotated[
        int,
        about(
            "Seconds to wait for a record in any of the ranges.", ge=0, le=LIMITS.read_wait_seconds
        ),
    ] = 0


@schema_name("Columns")
class RecordColumns(Struct, omit_defaults=True):
    """Records of a range in columns. Each list has one element for each record, in the order of
    offsets. A list of only null is absent."""

    partition: PartitionNumber
    start: Annotated[Offset, about("Offset of the first stored record of the partition.")]
    next: Annotated[
        Offset,
        about(
            "Offset to continue at. After the last record: the end of the range or of "
            "the partition.",
            402,
        ),
    ]
    offsets: Annotated[list[Offset], example([400, 401])]
    published_at_us: Annotated[
        list[int],
        about("Publish times in microseconds since 1970.", [1896080400000000, 1896080400000000]),
    ]
    payloads: Annotated[list[str], example(['{"order": 42}', "AAEC"])]
    key: Annotated[Key | UnsetType, about("Key of all records. Absent: see `keys`.", "shop-1")] = (
        UNSET
    )
    keys: list[Key | None] | UnsetType = UNSET
    encodings: Annotated[
        list[Encoding | None] | UnsetType,
        about(
            "Encodings of the payloads. Null: text. Other bytes are in base64.", [None, "base64"]
        ),
    ] = UNSET
    ids: Annotated[list[RecordId | None] | UnsetType, example(["42", None])] = UNSET
    metadata: Annotated[
        list[dict[str, str] | None] | UnsetType, example([{"tenant": "acme"}, None])
    ] = UNSET
    failures: Annotated[
        list[RecordFailure | None] | UnsetType, about("Failures of dead letters.")
    ] = UNSET


@schema_name("Failure")
class RecordFailure(Struct, omit_defaults=True):
    """The failure of a dead letter."""

    failed_at: datetime
    failure_count: Annotated[int, Meta(ge=0)]
    last_error: str | None = None
    original_topic: str | None = None
    original_group: str | None = None
    original_partition: int | None = None
    original_offset: int | None = None
    original_id: str | None = None


@schema_name("Ranges")
class RecordRanges(Struct):
    """The records of each range, in order."""

    ranges: list[RecordColumns]


@schema_name("Record")
class RecordShown(Struct, omit_defaults=True):
    """A record."""

    partition: PartitionNumber
    offset: Annotated[Offset, example(400)]
    key: Annotated[Key, example("shop-1")]
    payload: Annotated[str, example('{"order": 42}')]
    published_at: datetime
    encoding: Encoding | UnsetType = UNSET
    id: Annotated[RecordId | UnsetType, example("42")] = UNSET
    metadata: Annotated[
        Raw | UnsetType,
        Meta(extra_json_schema={"type": "object", "additionalProperties": {"type": "string"}}),
        example({"tenant": "acme"}),
    ] = UNSET
    failure: Annotated[RecordFailure | UnsetType, about("Present for a dead letter.")] = UNSET


@schema_name("Records")
class RecordsPage(Struct):
    """Records of a partition, in order."""

    records: list[RecordShown]
    next: Annotated[Offset, about("Offset to continue at.", 401)]


class RecordsQuery(Struct, forbid_unknown_fields=True, rename={"from_offset": "from"}):
    """A page of records of a partition."""

    partition: PartitionNumber = 0
    from_offset: Annotated[Offset, about("First offset.")] = 0
    max: Annotated[int, about("Maximum number of results.", ge=1, le=LIMITS.listed)] = 100
    key: Annotated[
        Annotated[str, Meta(max_length=LIMITS.record_key_length)] | None,
        about("Only records of this key, in its partition instead of `partition`.", "shop-1"),
    ] = None


class RecordPath(Struct, forbid_unknown_fields=True):
    """A record."""

    log: str
    partition: PartitionNumber
    offset: Offset


class OffsetsAsked(Struct, forbid_unknown_fields=True):
    """A time, and partitions to search."""

    at: Instant
    partitions: Annotated[
        Annotated[list[PartitionNumber], Meta(max_length=LIMITS.partitions_listed)] | UnsetType,
        about("Absent: all partitions."),
        example([0]),
    ] = UNSET


class OffsetAt(Struct):
    """The offset of a partition at the time."""

    partition: PartitionNumber
    offset: Annotated[Offset, example(400)]


class Offsets(Struct):
    """The offsets of partitions at the time, by number."""

    offsets: list[OffsetAt]


@endpoint("POST /v1/logs/{log}/read", "log:ReadRecords", may_wait=True)
async def read_records(call: Call, body: ReadBody) -> Answer[RecordRanges]:
    """Read many records. Reads ranges of offsets in columns, independently of groups. Continue at
    `next` until it is `to`. Missing offsets were deleted, are below `start`, or are for one group
    only. No record can appear later at an offset below a returned one. Returns 200: Records."""
    found = await log_records.read_records(
        call.engine,
        await log_of(call),
        [RecordRange(one.partition, one.from_offset, one.to_offset) for one in body.ranges],
        ReadLimits(LIMITS.read_records, body.max_bytes),
        body.wait,
    )
    written: list[Any] = []
    for one in found:
        written.append(Raw(msgspec.json.encode(_columns(one))))
        if one.records:
            await yield_to_loop()
    return Answer(200, RecordRanges(written))


def _columns(found: RangeRecords) -> RecordColumns:
    partition = found.partition
    columns = RecordColumns(partition.number, found.start_offset, found.next_offset, [], [], [])
    if partition.key is not None:
        columns.key = partition.key
    if not found.records:
        return columns
    offsets, published, keys, ids, metadata, failures, payloads = zip(*found.records, strict=True)
    columns.offsets = list(offsets)
    columns.published_at_us = [(one - _EPOCH) // _MICROSECOND for one in published]
    try:
        columns.payloads = [one.decode() for one in payloads]
    except UnicodeDecodeError:
        texts = [payload_of(one) for one in payloads]
        columns.payloads = [text for text, _ in texts]
        columns.encodings = [None if one is UNSET else one for _, one in texts]
    if partition.key is None:
        columns.keys = list(keys)
    if any(ids):
        columns.ids = list(ids)
    if any(metadata):
        columns.metadata = [one and msgspec.json.decode(one) for one in metadata]
    if any(failures):
        columns.failures = [one and failure_of(one) for one in failures]
    return columns


def payload_of(payload: bytes) -> tuple[str, Encoding | UnsetType]:
    """Return the payload as text and no encoding, or in base64 if it is not UTF-8."""
    try:
        return payload.decode(), UNSET
    except UnicodeDecodeError:
        return b64encode(payload).decode(), "base64"


def failure_of(text: str) -> RecordFailure:
    """Decode the stored failure of a dead letter."""
    return msgspec.json.decode(text, type=RecordFailure)


def shown_record(partition: LogPartition, record: StoredRecord) -> RecordShown:
    """Show a record as an object."""
    payload, encoding = payload_of(record.payload)
    return RecordShown(
        partition.number,
        record.offset,
        record.key or partition.key or "",
        payload,
        record.published_at,
        encoding,
        record.record_id or UNSET,
        UNSET if record.metadata is None else Raw(record.metadata.encode()),
        UNSET if record.failure is None else failure_of(record.failure),
    )


@endpoint("GET /v1/logs/{log}/records", "log:ReadRecords")
async def list_records(call: Call, query: RecordsQuery) -> Answer[RecordsPage]:
    """List records. Lists records of one partition in order, independently of groups. With `key`,
    a request searches {limits.listed} records: continue at `next` until it does not grow. Returns
    200: Records."""
    log, key = await log_of(call), query.key
    number = (
        query.partition if key is None else await log_records.number_of_key(call.engine, log, key)
    )
    if number is None:
        return Answer(200, RecordsPage([], query.from_offset))
    wanted = RecordRange(number, query.from_offset, BIGGEST_ID)
    most = ReadLimits(query.max if key is None else LIMITS.listed, LIMITS.read_bytes)
    [found] = await log_records.read_records(call.engine, log, [wanted], most)
    records = [one for one in found.records if key is None or one.key in (None, key)]
    end = found.next_offset if len(records) <= query.max else records[query.max].offset
    shown = [shown_record(found.partition, record) for record in records[: query.max]]
    return Answer(200, RecordsPage(shown, end))


@endpoint(
    "GET /v1/logs/{log}/records/{partition}/{offset}", "log:ReadRecords", path_params=RecordPath
)
async def get_record(call: Call) -> Answer[RecordShown]:
    """Get a record. Independent of groups. Returns 200: The record."""
    partition, record = await log_records.read_record(
        call.engine, await log_of(call), call.path.partition, call.path.offset
    )
    return Answer(200, shown_record(partition, record))


@endpoint(
    "DELETE /v1/logs/{log}/records/{partition}/{offset}", "log:DeleteRecord", path_params=RecordPath
)
async def delete_record(call: Call) -> Answer[None]:
    """Delete a record. Deletes the record for all groups. Other records keep their offsets. Returns
    204: The record is deleted."""
    await log_records.delete_record(
        call.engine, await log_of(call), call.path.partition, call.path.offset
    )
    return Answer(204)


@endpoint("POST /v1/logs/{log}/offsets", "log:ReadRecords")
async def find_offsets(call: Call, body: OffsetsAsked) -> Answer[Offsets]:
    """Find the offsets of a time. Returns for each partition the offset of the first record
    published at or after the time. Without such a record it is the `end` of the partition. Returns
    200: Offsets."""
    numbers = None if body.partitions is UNSET else body.partitions
    found = await log_records.offsets_at(call.engine, await log_of(call), numbers, body.at)
    return Answer(200, Offsets([OffsetAt(*one) for one in found]))


class DeadLettersQuery(Struct, forbid_unknown_fields=True):
    """A page of dead letters."""

    group: Annotated[GroupName | None, about("Absent: all groups.")] = None
    max: Annotated[int, about("Maximum number of results.", ge=1, le=LIMITS.listed)] = 100


class PurgeQuery(Struct, forbid_unknown_fields=True):
    """Dead letters to delete."""

    group: Annotated[GroupName | None, about("Absent: all groups.")] = None


@schema_name("DeadLetters")
class LogDeadLetters(Struct):
    """Dead letters, the oldest of each partition first."""

    log: Annotated[str, about("The dead-letter log.", "orders_dlq")]
    records: Annotated[
        list[RecordShown],
        example(
            [
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
            ]
        ),
    ]


class WhichDeadLetters(Struct, forbid_unknown_fields=True):
    """Dead letters: all, or those at offsets of the dead-letter log."""

    all: Annotated[bool, example(True)] = False
    offsets: Places | UnsetType = UNSET
    group: Annotated[GroupName | UnsetType, about("With `all`: only of this group.")] = UNSET


@schema_name("Requeued")
class RequeuedDeadLetters(Struct):
    """The numbers of dead letters."""

    requeued: Annotated[int, about("Published again.", 1, ge=0)]
    orphans: Annotated[
        int, about("Unchanged: no dead letter, or its log or group was deleted.", ge=0)
    ]
    has_more: Annotated[bool, about("True: repeat the request for the rest.")]


async def _dead_log(call: Call, group: str | None) -> tuple[StoredLog, str, StoredLog | None]:
    """Return the log, the name of its dead-letter log, and that log if it exists."""
    log = await log_of(call)
    name = await dead_letter_log_of(call.engine, log, group)
    dead = await log_records.find_dead_letter_log(call.engine, call.caller, call.right, name)
    return log, name, dead


dead_letters = Endpoints("dead letters", log=LogName)


@dead_letters("GET /v1/logs/{log}/dead-letters", "log:ReadRecords")
async def list_dead_letters(call: Call, query: DeadLettersQuery) -> Answer[LogDeadLetters]:
    """List the dead letters of a log. Dead letters are records of another log, which groups can
    read. `group` is required for a group with its own dead-letter log. Returns 200: Dead
    letters."""
    log, name, dead = await _dead_log(call, query.group)
    if dead is None:
        return Answer(200, LogDeadLetters(name, []))
    found = await log_records.list_dead_letters(
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


@dead_letters("POST /v1/logs/{log}/dead-letters/requeue", "log:RequeueRecords")
async def requeue_dead_letters(call: Call, body: WhichDeadLetters) -> Answer[RequeuedDeadLetters]:
    """Publish dead letters again. Publishes each to the end of its source log, only for the group
    that dead-lettered it. With `all`, at most {limits.listed} in one request. Returns 200: The
    result."""
    group, places = _which(call)
    log, name, dead = await _dead_log(call, group)
    if dead is None and places is None:
        return Answer(200, RequeuedDeadLetters(0, 0, has_more=False))
    if dead is None:
        dead = await find_log(call.engine, call.caller, call.right, name)
    most = LIMITS.listed
    done = await log_records.requeue(
        call.engine, dead, places, source=log.name, group=group, most=most
    )
    has_more = places is None and sum(done) >= most
    return Answer(200, RequeuedDeadLetters(*done, has_more))


@dead_letters("POST /v1/logs/{log}/dead-letters/purge", "log:PurgeLog", shows={200: {"records": 1}})
async def purge_dead_letters(call: Call, query: PurgeQuery) -> Answer[PurgedRecords]:
    """Delete the dead letters of a log. Deletes all of them, or those of one group. Returns 200:
    The number of deleted records."""
    log, _, dead = await _dead_log(call, query.group)
    count = 0
    if dead is not None:
        count = await log_records.purge(call.engine, dead, source=log.name, group=query.group)
    return Answer(200, PurgedRecords(count))

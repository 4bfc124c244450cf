"""Endpoints of records: publish, read by offset, delete.

Bulk reads answer in columns. Other reads answer one object for each record.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
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
from queuegate.gateway.faces.logs.log_endpoints import Key, LogPath, Offset, PartitionNumber, log_of
from queuegate.gateway.operations.access.authorization import PUBLISH_RECORDS, known_log
from queuegate.gateway.operations.logs.log_records import (
    RangeRecords,
    ReadLimits,
    RecordPosition,
    RecordRange,
    RecordToPublish,
    check,
    delete_record,
    known_partitions,
    offsets_at,
    publish_records,
    read_record,
    read_records,
    start_publishing,
)
from queuegate.gateway.operations.runtime.background_tasks import yield_to_loop
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage.model import Appended, LogPartition, StoredRecord
from queuegate.storage.storage_errors import MalformedInput

_TAG = "records"
_HUGE = 1_048_576

RecordId = Annotated[
    str,
    Meta(
        extra_json_schema={"minLength": 1, "maxLength": LIMITS.record_id_length},
    ),
]
Encoding = Literal["base64"]
Payload = Annotated[
    str,
    Meta(
        description="Any text, or binary data in base64. Maximum with metadata: "
        f"{LIMITS.message_bytes} bytes."
    ),
]


@schema_name("NewRecord")
class NewRecordBody(Struct, forbid_unknown_fields=True):
    """A record to publish."""

    key: Annotated[Key, Meta(description="Records of one key share a partition, in order.")]
    payload: Payload
    encoding: Annotated[
        Encoding | UnsetType, Meta(description="Encoding of the payload. Absent: text.")
    ] = UNSET
    id: Annotated[
        RecordId | UnsetType,
        Meta(
            description="Identity of the record. A second record with this key and id is a "
            "duplicate while the first is stored."
        ),
    ] = UNSET
    metadata: Annotated[
        dict[str, str] | UnsetType,
        Meta(
            description="Metadata of the record.",
            extra_json_schema={"maxProperties": LIMITS.record_metadata},
        ),
    ] = UNSET


class NewRecords(Struct, forbid_unknown_fields=True):
    """Records to publish."""

    records: Annotated[list[NewRecordBody], Meta(min_length=1, max_length=LIMITS.published_records)]


class PublishedRecord(Struct, omit_defaults=True):
    """The position of a record."""

    partition: PartitionNumber
    offset: Offset
    id: RecordId | UnsetType = UNSET
    duplicate: Annotated[
        bool, Meta(description="True: a record with this id is stored, so this one was dropped.")
    ] = False


class PublishedRecords(Struct):
    """The positions of the records, in order."""

    records: list[PublishedRecord]


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


async def _publish(call: Call) -> Answer:
    if len(call.request.body) > _HUGE:
        # Decoding of megabytes of base64 would block the event loop.
        publications = await asyncio.to_thread(_publications, call)
    else:
        publications = _publications(call)
    await call.engine.rates.take(call.caller, len(publications))
    return await _publish_anyway(call, publications)


async def _publish_anyway(call: Call, publications: list[RecordToPublish]) -> Answer:
    published = await publish_records(
        call.engine, call.caller, call.right, call.path.log, publications
    )
    return _done(published, publications)


def _prepare_publishing(call: Call) -> PreparedCall | None:
    engine = call.engine
    log = known_log(engine, call.caller, call.right, call.path.log)
    if log is None:
        return None
    publications = _publications(call)
    partitions = known_partitions(engine, log, publications)
    if partitions is None:
        return None
    check(engine, publications)
    if not engine.rates.take_at_once(call.caller, len(publications)):
        return None

    def answer(appended: Appended | None) -> Answer | Awaitable[Answer]:
        if appended is None:
            # The log was deleted, and may have been recreated.
            engine.logs.forget(log)
            return _publish_anyway(call, publications)
        return _done(RecordPosition(partitions, *appended), publications)

    return PreparedCall(partial(start_publishing, engine, log, publications, partitions), answer)


def _done(published: RecordPosition, publications: list[RecordToPublish]) -> Answer:
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


_NEW = {
    "records": [
        {"key": "shop-1", "payload": '{"order": 42}', "id": "42", "metadata": {"tenant": "acme"}},
        {"key": "shop-2", "payload": "AAEC", "encoding": "base64"},
    ]
}
_PUBLISHED = {
    "records": [{"partition": 0, "offset": 400, "id": "42"}, {"partition": 1, "offset": 12}]
}


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_READ_BYTES = 1_048_576

Instant = Annotated[datetime, Meta(tz=True)]


@schema_name("Range")
class RecordRangeBody(
    Struct, forbid_unknown_fields=True, rename={"from_offset": "from", "to_offset": "to"}
):
    """A range of offsets in a partition."""

    partition: PartitionNumber
    from_offset: Annotated[Offset, Meta(description="First offset.")] = 0
    to_offset: Annotated[
        Offset, Meta(description="End of the range, exclusive. Absent: the end of the partition.")
    ] = BIGGEST_ID


@schema_name("Read")
class ReadBody(Struct, forbid_unknown_fields=True):
    """Ranges to read."""

    ranges: Annotated[list[RecordRangeBody], Meta(min_length=1, max_length=LIMITS.read_ranges)]
    max_bytes: Annotated[
        int,
        Meta(
            ge=1,
            le=LIMITS.read_bytes,
            description="Approximate maximum bytes of payloads and metadata. At least one record "
            "is returned.",
        ),
    ] = _READ_BYTES
    wait: Annotated[
        int,
        Meta(
            ge=0,
            le=LIMITS.read_wait_seconds,
            description="Seconds to wait for a record in any of the ranges.",
        ),
    ] = 0


@schema_name("Columns")
class RecordColumns(Struct, omit_defaults=True):
    """Records of a range in columns. Each list has one element for each record, in the order of
    offsets. A list of only null is absent."""

    partition: PartitionNumber
    start: Annotated[
        Offset, Meta(description="Offset of the first stored record of the partition.")
    ]
    next: Annotated[
        Offset,
        Meta(
            description="Offset to continue at. After the last record: the end of the range or of "
            "the partition."
        ),
    ]
    offsets: list[Offset]
    published_at_us: Annotated[
        list[int], Meta(description="Publish times in microseconds since 1970.")
    ]
    payloads: list[str]
    key: Annotated[Key | UnsetType, Meta(description="Key of all records. Absent: see `keys`.")] = (
        UNSET
    )
    keys: list[Key | None] | UnsetType = UNSET
    encodings: Annotated[
        list[Encoding | None] | UnsetType,
        Meta(description="Encodings of the payloads. Null: text. Other bytes are in base64."),
    ] = UNSET
    ids: list[RecordId | None] | UnsetType = UNSET
    metadata: list[dict[str, str] | None] | UnsetType = UNSET
    failures: Annotated[
        list[RecordFailure | None] | UnsetType, Meta(description="Failures of dead letters.")
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


class _RawRanges(Struct):
    ranges: list[Raw]


@schema_name("Record")
class RecordShown(Struct, omit_defaults=True):
    """A record."""

    partition: PartitionNumber
    offset: Offset
    key: Key
    payload: str
    published_at: datetime
    encoding: Encoding | UnsetType = UNSET
    id: RecordId | UnsetType = UNSET
    metadata: Annotated[
        Raw | UnsetType,
        Meta(extra_json_schema={"type": "object", "additionalProperties": {"type": "string"}}),
    ] = UNSET
    failure: Annotated[
        RecordFailure | UnsetType, Meta(description="Present for a dead letter.")
    ] = UNSET


@schema_name("Records")
class RecordsPage(Struct):
    """Records of a partition, in order."""

    records: list[RecordShown]
    next: Annotated[Offset, Meta(description="Offset to continue at.")]


class RecordsQuery(Struct, forbid_unknown_fields=True, rename={"from_offset": "from"}):
    """A page of records of a partition."""

    partition: PartitionNumber = 0
    from_offset: Annotated[Offset, Meta(description="First offset.")] = 0
    max: Annotated[int, Meta(ge=1, le=LIMITS.listed, description="Maximum number of results.")] = (
        100
    )


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
        Meta(description="Absent: all partitions."),
    ] = UNSET


class OffsetAt(Struct):
    """The offset of a partition at the time."""

    partition: PartitionNumber
    offset: Offset


class Offsets(Struct):
    """The offsets of partitions at the time, by number."""

    offsets: list[OffsetAt]


async def _read(call: Call) -> Answer:
    asked: ReadBody = call.body
    found = await read_records(
        call.engine,
        await log_of(call),
        [RecordRange(one.partition, one.from_offset, one.to_offset) for one in asked.ranges],
        ReadLimits(LIMITS.read_records, asked.max_bytes),
        asked.wait,
    )
    written = []
    for one in found:
        written.append(Raw(msgspec.json.encode(_columns(one))))
        if one.records:
            await yield_to_loop()
    return Answer(200, _RawRanges(written))


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


async def _list(call: Call) -> Answer:
    query: RecordsQuery = call.query
    wanted = RecordRange(query.partition, query.from_offset, BIGGEST_ID)
    most = ReadLimits(query.max, LIMITS.read_bytes)
    [found] = await read_records(call.engine, await log_of(call), [wanted], most)
    shown = [shown_record(found.partition, record) for record in found.records]
    return Answer(200, RecordsPage(shown, found.next_offset))


async def _get(call: Call) -> Answer:
    partition, record = await read_record(
        call.engine, await log_of(call), call.path.partition, call.path.offset
    )
    return Answer(200, shown_record(partition, record))


async def _delete(call: Call) -> Answer:
    await delete_record(call.engine, await log_of(call), call.path.partition, call.path.offset)
    return Answer(204)


async def _offsets(call: Call) -> Answer:
    asked: OffsetsAsked = call.body
    numbers = None if asked.partitions is UNSET else asked.partitions
    found = await offsets_at(call.engine, await log_of(call), numbers, asked.at)
    return Answer(200, Offsets([OffsetAt(*one) for one in found]))


_RECORD = {
    "partition": 0,
    "offset": 400,
    "key": "shop-1",
    "payload": '{"order": 42}',
    "published_at": "2030-01-31T09:00:00Z",
    "id": "42",
    "metadata": {"tenant": "acme"},
}
_COLUMNS = {
    "partition": 0,
    "start": 0,
    "next": 402,
    "offsets": [400, 401],
    "published_at_us": [1896080400000000, 1896080400000000],
    "payloads": ['{"order": 42}', "AAEC"],
    "key": "shop-1",
    "encodings": [None, "base64"],
    "ids": ["42", None],
    "metadata": [{"tenant": "acme"}, None],
}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        "/v1/logs/{log}/records",
        "publishRecords",
        f"Publish up to {LIMITS.published_records} records",
        "Publishes all records or none, in their order within each partition. They are durable "
        "when the answer arrives. Creates a missing log, and the missing partition of a key.",
        _TAG,
        _publish,
        (Answered(201, PublishedRecords, "The positions.", _PUBLISHED),),
        prepare=_prepare_publishing,
        refusals=(404, 409, 429),
        carries_messages=True,
        path_params=LogPath,
        body=NewRecords,
        example=_NEW,
        right=PUBLISH_RECORDS,
    ),
    Endpoint(
        "POST",
        "/v1/logs/{log}/read",
        "readRecords",
        "Read many records",
        "Reads ranges of offsets in columns, independently of groups. Continue at `next` until it "
        "is `to`. Missing offsets were deleted, are below `start`, or are for one group only. No "
        "record can appear later at an offset below a returned one.",
        _TAG,
        _read,
        (Answered(200, RecordRanges, "Records.", {"ranges": [_COLUMNS]}),),
        path_params=LogPath,
        body=ReadBody,
        example={"ranges": [{"partition": 0, "from": 400, "to": 402}], "max_bytes": 1048576},
        right="log:ReadRecords",
        may_wait=True,
    ),
    Endpoint(
        "POST",
        "/v1/logs/{log}/offsets",
        "findOffsets",
        "Find the offsets of a time",
        "Returns for each partition the offset of the first record published at or after the time. "
        "Without such a record it is the `end` of the partition.",
        _TAG,
        _offsets,
        (Answered(200, Offsets, "Offsets.", {"offsets": [{"partition": 0, "offset": 400}]}),),
        path_params=LogPath,
        body=OffsetsAsked,
        example={"at": "2030-01-31T09:00:00Z", "partitions": [0]},
        right="log:ReadRecords",
    ),
    Endpoint(
        "GET",
        "/v1/logs/{log}/records",
        "listRecords",
        "List records",
        "Lists records of one partition in order, independently of groups.",
        _TAG,
        _list,
        (Answered(200, RecordsPage, "Records.", {"records": [_RECORD], "next": 401}),),
        path_params=LogPath,
        query=RecordsQuery,
        right="log:ReadRecords",
    ),
    Endpoint(
        "GET",
        "/v1/logs/{log}/records/{partition}/{offset}",
        "getRecord",
        "Get a record",
        "Independent of groups.",
        _TAG,
        _get,
        (Answered(200, RecordShown, "The record.", _RECORD),),
        path_params=RecordPath,
        right="log:ReadRecords",
    ),
    Endpoint(
        "DELETE",
        "/v1/logs/{log}/records/{partition}/{offset}",
        "deleteRecord",
        "Delete a record",
        "Deletes the record for all groups. Other records keep their offsets.",
        _TAG,
        _delete,
        (Answered(204, None, "The record is deleted."),),
        path_params=RecordPath,
        right="log:DeleteRecord",
    ),
)

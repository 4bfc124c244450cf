"""Reading records by offset: in columns for those who read much, one by one for people."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from queuegate.gateway.faces.json.endpoints import Answer, Answered, Call, Endpoint
from queuegate.gateway.faces.json.message_members import BIGGEST_ID
from queuegate.gateway.faces.logs.publishing import Encoding, RecordId
from queuegate.gateway.faces.logs.words import Key, LogPath, Offset, PartitionNumber, log_of
from queuegate.gateway.operations.logs.log_records import (
    RangeRecords,
    ReadLimits,
    RecordRange,
    delete_record,
    offsets_at,
    read_record,
    read_records,
)
from queuegate.gateway.operations.runtime.background_tasks import yield_to_loop
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage.log_model import Partition
from queuegate.storage.log_model import Record as StoredRecord

_TAG = "records"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_READ_BYTES = 1_048_576

Instant = Annotated[datetime, Meta(tz=True)]


class Range(Struct, forbid_unknown_fields=True, rename={"from_offset": "from", "to_offset": "to"}):
    """Offsets of a partition."""

    partition: PartitionNumber
    from_offset: Annotated[Offset, Meta(description="The first one.")] = 0
    to_offset: Annotated[
        Offset, Meta(description="Before this one. Absent: as far as it goes.")
    ] = BIGGEST_ID


class Read(Struct, forbid_unknown_fields=True):
    """What to read."""

    ranges: Annotated[list[Range], Meta(min_length=1, max_length=LIMITS.read_ranges)]
    max_bytes: Annotated[
        int,
        Meta(
            ge=1,
            le=LIMITS.read_bytes,
            description="Of payloads and metadata, about; at least one record comes.",
        ),
    ] = _READ_BYTES
    wait: Annotated[
        int,
        Meta(
            ge=0,
            le=LIMITS.read_wait_seconds,
            description="Seconds to wait until there is one in any of the ranges.",
        ),
    ] = 0


class Columns(Struct, omit_defaults=True):
    """Records of a range. Each list has an element for each of them, in order of their offsets; a
    list that is not there would hold nothing but null."""

    partition: PartitionNumber
    start: Annotated[
        Offset, Meta(description="Of the first record that the partition keeps, of any.")
    ]
    next: Annotated[
        Offset,
        Meta(
            description="Where to go on: where the range ends, or as yet the partition, if nothing "
            "is left of it."
        ),
    ]
    offsets: list[Offset]
    published_at_us: Annotated[
        list[int], Meta(description="When they were published: microseconds since 1970.")
    ]
    payloads: list[str]
    key: Annotated[
        Key | UnsetType, Meta(description="Of all records. Absent: `keys` has them.")
    ] = UNSET
    keys: list[Key | None] | UnsetType = UNSET
    encodings: Annotated[
        list[Encoding | None] | UnsetType,
        Meta(description="Of the payloads; null: it is the text. Bytes that are no text are not."),
    ] = UNSET
    ids: list[RecordId | None] | UnsetType = UNSET
    metadata: list[dict[str, str] | None] | UnsetType = UNSET
    failures: Annotated[list[Failure | None] | UnsetType, Meta(description="Of dead letters.")] = (
        UNSET
    )


class Failure(Struct, omit_defaults=True):
    """What became of a dead letter before."""

    failed_at: datetime
    failure_count: Annotated[int, Meta(ge=0)]
    last_error: str | None = None
    original_topic: str | None = None
    original_group: str | None = None
    original_partition: int | None = None
    original_offset: int | None = None
    original_id: str | None = None


class Ranges(Struct):
    """What was there of each range, in their order."""

    ranges: list[Columns]


class _RawRanges(Struct):
    ranges: list[Raw]


class Record(Struct, omit_defaults=True):
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
    failure: Annotated[Failure | UnsetType, Meta(description="It is a dead letter.")] = UNSET


class Records(Struct):
    """Records of a partition, in order."""

    records: list[Record]
    next: Annotated[Offset, Meta(description="Where to go on.")]


class RecordsQuery(Struct, forbid_unknown_fields=True, rename={"from_offset": "from"}):
    """Which ones to look at."""

    partition: PartitionNumber = 0
    from_offset: Annotated[Offset, Meta(description="The first one.")] = 0
    max: Annotated[int, Meta(ge=1, le=LIMITS.listed, description="At most so many.")] = 100


class RecordPath(Struct, forbid_unknown_fields=True):
    """Which record."""

    log: str
    partition: PartitionNumber
    offset: Offset


class OffsetsAsked(Struct, forbid_unknown_fields=True):
    """For which partitions, and which time."""

    at: Instant
    partitions: Annotated[
        Annotated[list[PartitionNumber], Meta(max_length=LIMITS.partitions_listed)] | UnsetType,
        Meta(description="Absent: all of them."),
    ] = UNSET


class OffsetAt(Struct):
    """Where a partition was at that time."""

    partition: PartitionNumber
    offset: Offset


class Offsets(Struct):
    """Where partitions were at that time, by number."""

    offsets: list[OffsetAt]


async def _read(call: Call) -> Answer:
    asked: Read = call.body
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


def _columns(found: RangeRecords) -> Columns:
    partition = found.partition
    columns = Columns(partition.number, found.start_offset, found.next_offset, [], [], [])
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
    """A payload as JSON carries it, and how: as the text that it is, else in base64."""
    try:
        return payload.decode(), UNSET
    except UnicodeDecodeError:
        return b64encode(payload).decode(), "base64"


def failure_of(text: str) -> Failure:
    """What became of a dead letter, from what is stored of it."""
    return msgspec.json.decode(text, type=Failure)


def shown_record(partition: Partition, record: StoredRecord) -> Record:
    """A record as an object."""
    payload, encoding = payload_of(record.payload)
    return Record(
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
    return Answer(200, Records(shown, found.next_offset))


async def _look(call: Call) -> Answer:
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
        "/v1/logs/{log}/read",
        "readRecords",
        "Read many records",
        "By offset, beside all groups. What is there of each range, in columns; go on at `next` "
        "until it is `to`. Offsets that do not come were deleted, are below `start`, or are for "
        "one group alone: nothing can come later at an offset below one that you got.",
        _TAG,
        _read,
        (Answered(200, Ranges, "Records.", {"ranges": [_COLUMNS]}),),
        path_params=LogPath,
        body=Read,
        example={"ranges": [{"partition": 0, "from": 400, "to": 402}], "max_bytes": 1048576},
        right="log:ReadRecords",
        may_wait=True,
    ),
    Endpoint(
        "POST",
        "/v1/logs/{log}/offsets",
        "findOffsets",
        "Find where to begin for a time",
        "The offset of the first record of each partition that was published then or later; where "
        "there is none, the `end` of the partition.",
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
        "Look at records",
        "Of one partition, in order, beside all groups.",
        _TAG,
        _list,
        (Answered(200, Records, "Records.", {"records": [_RECORD], "next": 401}),),
        path_params=LogPath,
        query=RecordsQuery,
        right="log:ReadRecords",
    ),
    Endpoint(
        "GET",
        "/v1/logs/{log}/records/{partition}/{offset}",
        "getRecord",
        "Look at a record",
        "Beside all groups.",
        _TAG,
        _look,
        (Answered(200, Record, "The record.", _RECORD),),
        path_params=RecordPath,
        right="log:ReadRecords",
    ),
    Endpoint(
        "DELETE",
        "/v1/logs/{log}/records/{partition}/{offset}",
        "deleteRecord",
        "Delete a record",
        "For all groups. The others keep their offsets.",
        _TAG,
        _delete,
        (Answered(204, None, "It is gone."),),
        path_params=RecordPath,
        right="log:DeleteRecord",
    ),
)

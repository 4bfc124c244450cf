"""Publishing records."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Awaitable
from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from queuegate.gateway.faces.json.endpoints import Answer, Answered, Begun, Call, Endpoint
from queuegate.gateway.faces.logs.words import Key, LogPath, Offset, PartitionNumber
from queuegate.gateway.operations.access.authorization import PUBLISH_RECORDS, known_log
from queuegate.gateway.operations.logs.log_records import (
    RecordPosition,
    RecordToPublish,
    check,
    known_partitions,
    publish_records,
    start_publishing,
)
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage.errors import MalformedInput
from queuegate.storage.log_model import Appended

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
        description=f"Any text; bytes in base64. {LIMITS.message_bytes} bytes are the most, "
        "metadata included."
    ),
]


class NewRecord(Struct, forbid_unknown_fields=True):
    """A record to publish."""

    key: Annotated[Key, Meta(description="Records of one key are in one partition, in order.")]
    payload: Payload
    encoding: Annotated[
        Encoding | UnsetType, Meta(description="Of the payload. Absent: it is the text.")
    ] = UNSET
    id: Annotated[
        RecordId | UnsetType,
        Meta(
            description="Another record of this key with this id is not published again, as long "
            "as this one is kept."
        ),
    ] = UNSET
    metadata: Annotated[
        dict[str, str] | UnsetType,
        Meta(
            description="Anything about it.",
            extra_json_schema={"maxProperties": LIMITS.record_metadata},
        ),
    ] = UNSET


class NewRecords(Struct, forbid_unknown_fields=True):
    """Records to publish."""

    records: Annotated[list[NewRecord], Meta(min_length=1, max_length=LIMITS.published_records)]


class PublishedRecord(Struct, omit_defaults=True):
    """Where a record is."""

    partition: PartitionNumber
    offset: Offset
    id: RecordId | UnsetType = UNSET
    duplicate: Annotated[
        bool, Meta(description="True: it was there, by its id, and was not published again.")
    ] = False


class PublishedRecords(Struct):
    """Where the records are, in their order."""

    records: list[PublishedRecord]


def _publication(new: NewRecord) -> RecordToPublish:
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
        raise MalformedInput("A `payload` is not base64, as its `encoding` says.") from None


def _publications(call: Call) -> list[RecordToPublish]:
    return [_publication(new) for new in call.body.records]


async def _publish(call: Call) -> Answer:
    if len(call.request.body) > _HUGE:
        # Megabytes of base64 take long.
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


def _begin_publishing(call: Call) -> Begun | None:
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
            # The log is gone, and may have been made again.
            engine.logs.forget(log)
            return _publish_anyway(call, publications)
        return _done(RecordPosition(partitions, *appended), publications)

    return Begun(partial(start_publishing, engine, log, publications, partitions), answer)


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


_EXAMPLE = {
    "records": [
        {"key": "shop-1", "payload": '{"order": 42}', "id": "42", "metadata": {"tenant": "acme"}},
        {"key": "shop-2", "payload": "AAEC", "encoding": "base64"},
    ]
}
_PUBLISHED = {
    "records": [{"partition": 0, "offset": 400, "id": "42"}, {"partition": 1, "offset": 12}]
}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        "/v1/logs/{log}/records",
        "publishRecords",
        f"Publish up to {LIMITS.published_records} records",
        "All of them or none. They are on disk when this is answered, and in their order within "
        "each partition. The log is made if it is not there, and so is the partition of a key.",
        _TAG,
        _publish,
        (Answered(201, PublishedRecords, "Where they are.", _PUBLISHED),),
        begin=_begin_publishing,
        refusals=(404, 409, 429),
        carries_messages=True,
        path_params=LogPath,
        body=NewRecords,
        example=_EXAMPLE,
        right=PUBLISH_RECORDS,
    ),
)

"""Publishing records to a log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.logs.logs import (
    find_or_make_log,
    partitions_numbered,
    partitions_of_keys,
)
from queuegate.gateway.operations.replies import answered
from queuegate.storage.errors import Unavailable
from queuegate.storage.log_errors import RecordInvalid
from queuegate.storage.log_model import Appended, Log, NewRecord, Partition
from queuegate.storage.logs.logs import number_of
from queuegate.storage.logs.records import Append

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.lanes import Reply

_ATTEMPTS = 5
_RECORD_OVERHEAD_BYTES = 64


class Publication(NamedTuple):
    """A record to publish."""

    key: str
    payload: bytes
    record_id: str | None = None
    metadata: str | None = None
    """An object of texts, as JSON."""


class Published(NamedTuple):
    """What became of records; each list has one element for each."""

    partitions: list[Partition]
    offsets: list[int]
    duplicates: list[bool] | None
    """Whether the record was there, by its id; None: no record has one."""


async def publish_records(
    engine: Engine, caller: Caller, right: str, name: str, publications: Sequence[Publication]
) -> Published:
    """Publish records to the caller's log of that name, which is made if it is not there: all of
    them, or none. They are on disk, in their order within each partition, when this returns.

    Raises LogNameInvalid, AccessDenied, RecordInvalid, TooManyPartitions.
    """
    check(engine, publications)
    for _ in range(_ATTEMPTS):
        log = await find_or_make_log(engine, caller, right, name)
        partitions = await partitions_of(engine, log, publications)
        if partitions is not None:
            appended: Appended | None = await answered(
                start_publishing, engine, log, publications, partitions
            )
            if appended is not None:
                return Published(partitions, *appended)
        # It was deleted, with a notification that has not arrived here.
        engine.logs.forget(log)
    raise Unavailable("The log is being deleted and made again.")


def known_partitions(
    engine: Engine, log: Log, publications: Sequence[Publication]
) -> list[Partition] | None:
    """Where these records go, if this process knows it."""
    found = []
    by_key, by_number = engine.logs.by_key(log), engine.logs.by_number(log)
    for publication in publications:
        if log.partition_count is None:
            partition = by_key.get(publication.key)
        else:
            partition = by_number.get(number_of(log.partition_count, publication.key))
        if partition is None:
            return None
        found.append(partition)
    return found


async def partitions_of(
    engine: Engine, log: Log, publications: Sequence[Publication]
) -> list[Partition] | None:
    """Where these records go; partitions for new keys are made. None: the log is gone. Raises
    TooManyPartitions."""
    keys = [*dict.fromkeys(one.key for one in publications)]
    if log.partition_count is None:
        by_key = await partitions_of_keys(engine, log, keys)
        return None if by_key is None else [by_key[one.key] for one in publications]
    numbers = {key: number_of(log.partition_count, key) for key in keys}
    by_number = await partitions_numbered(engine, log, numbers.values())
    return [by_number[numbers[one.key]] for one in publications]


def start_publishing(
    engine: Engine,
    log: Log,
    publications: Sequence[Publication],
    partitions: Sequence[Partition],
    reply: Reply[Appended | None],
) -> None:
    """Hand records, which were checked, to the lane, with where they go. The reply is None when the
    log is gone: nothing was done."""
    is_shared = log.partition_count is not None
    size = 0
    is_plain = True
    records = []
    for publication, partition in zip(publications, partitions, strict=True):
        key, payload, record_id, metadata = publication
        if record_id is not None:
            is_plain = False
        size += len(payload) + _RECORD_OVERHEAD_BYTES
        records.append(
            NewRecord(
                partition.partition_id, payload, key if is_shared else None, record_id, metadata
            )
        )
    engine.append.lane.submit(Append(log.arn, records, reply, size, is_plain=is_plain))


def check(engine: Engine, publications: Sequence[Publication]) -> None:
    """Raise RecordInvalid for a record that cannot be kept."""
    limits = engine.limits
    for key, payload, record_id, metadata in publications:
        if len(key) > limits.record_key_length:
            raise RecordInvalid(f"its key has more than {limits.record_key_length} characters.")
        if record_id is not None and not 0 < len(record_id) <= limits.record_id_length:
            raise RecordInvalid(f"its id must have 1 to {limits.record_id_length} characters.")
        if "\x00" in key or (record_id is not None and "\x00" in record_id):
            raise RecordInvalid("its key or its id holds a NUL character.")
        size = len(payload) if metadata is None else len(payload) + len(metadata)
        if size > limits.message_bytes:
            raise RecordInvalid(
                f"its payload and metadata have {size} bytes; {limits.message_bytes} are the most."
            )

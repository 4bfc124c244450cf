"""Copies of published messages for logs: whether a log takes one, and in which partition."""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from queuegate.gateway.operations.logs.publishing import Publication, check, partitions_of
from queuegate.gateway.operations.topics.fan_out import Chosen, CopyMaker, LogCopy
from queuegate.gateway.operations.topics.topic_cache import LogName, Target
from queuegate.protocol import envelopes
from queuegate.storage.log_errors import RecordInvalid, TooManyPartitions

if TYPE_CHECKING:
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.log_model import Log, Partition

PARTITION_KEY = "Queuegate.PartitionKey"
"""The message attribute that says which key a record gets; on FIFO topics the group id does."""
_MOST_METADATA = 100
_TRIES = 3


async def copy_for(engine: Engine, maker: CopyMaker, target: Target) -> LogCopy | None:
    """Where the copy for a log goes; None: there is no such log, or it cannot take the message.

    An envelope gets its signature here: nobody fills it in later.
    """
    publication = _publication(maker, target)
    if publication is None:
        return None
    try:
        check(engine, [publication])
        found = await _find_partition(engine, target, publication)
    except (RecordInvalid, TooManyPartitions):
        return None
    if found is None:
        return None
    log, partition = found
    signature = None
    if maker.is_signed and not target.is_raw:
        [text] = await engine.signer.sign_many([envelopes.to_sign(maker.body_for(target))])
        signature = text, engine.signer.fingerprint
    return LogCopy(
        target,
        partition.partition_id,
        None if log.partition_count is None else publication.key,
        publication.metadata,
        signature,
    )


def _publication(maker: CopyMaker, target: Target) -> Publication | None:
    """The copy as a record; None: it has more attributes than a record has metadata."""
    outgoing = maker.outgoing
    values = outgoing.attributes or {}
    metadata = None
    if target.is_raw and values:
        if len(values) > _MOST_METADATA:
            return None
        metadata = orjson.dumps({name: _text(value) for name, value in values.items()}).decode()
    key = outgoing.group_id if maker.is_of_fifo else _text(values.get(PARTITION_KEY, {}))
    payload = maker.body_for(target).encode()
    return Publication(key or "", payload, outgoing.message_id, metadata)


def _text(value: Mapping[str, Any]) -> str:
    """The value of a message attribute: binary ones in base64."""
    text: str | None = value.get("StringValue")
    if text is None:
        return binascii.b2a_base64(value.get("BinaryValue", b""), newline=False).decode()
    return text


async def _find_partition(
    engine: Engine, target: Target, publication: Publication
) -> tuple[Log, Partition] | None:
    assert target.log is not None
    for _ in range(_TRIES):
        log = await engine.logs.find(*target.log)
        if log is None:
            return None
        partitions = await partitions_of(engine, log, [publication])
        if partitions is not None:
            return log, partitions[0]
        # It was deleted, with a notification that has not arrived here.
        engine.logs.forget(log)
    return None


def forget_gone(
    engine: Engine, chosen: Iterable[Chosen], gone_partitions: frozenset[int]
) -> set[LogName]:
    """Forget the logs whose partitions turned out to be gone; their names."""
    if not gone_partitions:
        return set()
    names = {
        copy.target.log
        for one in chosen
        for copy in one.logs
        if copy.partition_id in gone_partitions and copy.target.log is not None
    }
    for name in names:
        known = engine.logs.cached(*name)
        if known is not None:
            engine.logs.forget(known)
    return names

"""Dead letters: records that a group gave up, written to another log in the same transaction.

A dead letter has no id of its own: another group may have given up the same record. The record's id
is in the failure and stays there when it is republished for its group, so that it is not taken for
a duplicate of the first publish.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from queuegate.storage.logs import log_groups, stored_logs, stored_records
from queuegate.storage.model import (
    ConsumerGroup,
    LogPartition,
    LogRetention,
    NewLogRecord,
    StoredLog,
    StoredRecord,
)
from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction


_SQL = load("logs/record_dead_letters")

_SUFFIX = "_dlq"
_MOST_NAME = 80


class FailedRecord(NamedTuple):
    """A record that a group gives up."""

    log: StoredLog
    group: ConsumerGroup
    partition_id: int
    number: int
    """The number of the partition."""
    offset: int
    attempts: int
    error: str


class Requeued(NamedTuple):
    """The result of a requeue."""

    partition_ids: set[int]
    """Target partitions."""
    requeued: int
    orphans: int
    """Dead letters that stay because their log or group is deleted."""


class _Letter(NamedTuple):
    """A record in transit between logs."""

    key: str
    payload: bytes
    metadata: str | None
    failure: str
    only_group_id: int | None = None


def log_name(log: StoredLog, group: ConsumerGroup | None = None) -> str:
    """Return the name of the dead-letter log of a group, or the default one."""
    named = group and group.settings.dead_letter_log
    return named or log.name[: _MOST_NAME - len(_SUFFIX)] + _SUFFIX


async def write(
    tx: Transaction, now: datetime | None, now_ms: int, dead: Sequence[FailedRecord]
) -> dict[int, int]:
    """Write dead letters to logs, which are created if needed.

    Returns the target partitions with their logs. Records past retention are left out.
    """
    rows = await _SQL["read_records"].rows(
        tx, [one.partition_id for one in dead], [one.offset for one in dead]
    )
    letters: dict[tuple[str, str, str], list[_Letter]] = {}
    failed_at = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds")
    for place, key, record_id, metadata, failure, payload in rows:
        one = dead[place]
        told: dict[str, Any] = {
            "failed_at": failed_at,
            "failure_count": one.attempts,
            "last_error": one.error.replace("\x00", "\ufffd"),
            "original_topic": one.log.name,
            "original_group": one.group.name,
            "original_partition": one.number,
            "original_offset": one.offset,
        }
        original_id = record_id or id_in(failure)
        if original_id is not None:
            told["original_id"] = original_id
        owner = one.log.account_id, one.log.region
        letters.setdefault((*owner, log_name(one.log, one.group)), []).append(
            _Letter(key or "", payload, metadata, json.dumps(told))
        )
    made: list[NewLogRecord] = []
    log_ids: dict[int, int] = {}
    for (account_id, region, name), some in sorted(letters.items()):
        log = await _find_or_make(tx, now, account_id, region, name)
        partitions = await stored_logs.partitions_for(tx, log, {one.key for one in some})
        for letter in some:
            partition_id = partitions[letter.key].partition_id
            made.append(_record(log, partition_id, letter))
            log_ids[partition_id] = log.log_id
    if made:
        # One append: partitions of all owners are locked in the order of their ids.
        await stored_records.append(tx, now, made)
    return log_ids


def id_in(failure: str | None) -> str | None:
    """Return the id that a record had before it failed."""
    if failure is None:
        return None
    found: str | None = json.loads(failure).get("original_id")
    return found


async def _find_or_make(
    tx: Transaction, now: datetime | None, account_id: str, region: str, name: str
) -> StoredLog:
    """Find or create a log and lock it until the transaction ends."""
    while True:
        log = await stored_logs.find(tx, account_id, region, name)
        if log is None:
            log = await stored_logs.insert(
                tx, now, (account_id, region), name, None, LogRetention()
            )
        if log is not None and await stored_logs.lock(tx, log.log_id) is not None:
            return log


def _record(log: StoredLog, partition_id: int, letter: _Letter) -> NewLogRecord:
    return NewLogRecord(
        partition_id,
        letter.payload,
        letter.key if log.partition_count is not None else None,
        None,
        letter.metadata,
        letter.failure,
        letter.only_group_id,
    )


async def first(
    tx: Transaction, log_id: int, source: str, group: str | None, limit: int
) -> list[tuple[int, int]]:
    """Return partition and offset of the oldest dead letters in a log that come from another one,
    given up by a group, or by any."""
    return await _SQL["first_records"].all(tx, tuple, log_id, source, group, limit)


async def list_records(
    tx: Transaction, log_id: int, source: str, group: str | None, limit: int
) -> list[tuple[LogPartition, StoredRecord]]:
    """Return the dead letters of ``first`` as records."""
    rows = await _SQL["list_records"].rows(tx, log_id, source, group, limit)
    return [(LogPartition(*row[:3]), StoredRecord(*row[3:])) for row in map(tuple, rows)]


async def delete(tx: Transaction, places: Sequence[tuple[int, int]]) -> int:
    """Delete records; return the count."""
    partition_ids, offsets = zip(*places, strict=True)
    return len(await _SQL["take_records"].rows(tx, partition_ids, offsets))


async def requeue(
    tx: Transaction, now: datetime | None, log: StoredLog, places: Sequence[tuple[int, int]]
) -> Requeued:
    """Publish dead letters again to their log and for their group, and delete them here.

    Records that are no dead letters, or have no group any more, stay. Logs and groups are locked by
    name, then partitions by id, sources and targets together: the lock order of the project.
    """
    rows = await _SQL["read_records"].rows(
        tx, [place[0] for place in places], [place[1] for place in places]
    )
    keys: dict[tuple[str, str], dict[tuple[int, int], str]] = {}
    for place, key, *_, failure, _ in rows:
        told = json.loads(failure or "{}")
        names = told.get("original_topic", ""), told.get("original_group", "")
        keys.setdefault(names, {})[places[place]] = key or ""
    wanted: dict[tuple[int, int], tuple[StoredLog, ConsumerGroup, int]] = {}
    for names, some in sorted(keys.items()):
        target = await _target(tx, log, *names)
        if target is not None:
            partitions = await stored_logs.partitions_for(tx, target[0], some.values())
            wanted |= {at: (*target, partitions[key].partition_id) for at, key in some.items()}
    appended = {partition_id for _, _, partition_id in wanted.values()}
    await stored_records.lock_partitions(
        tx, appended | {partition_id for partition_id, _ in wanted}
    )
    taken = await _SQL["take_records"].rows(
        tx, [place[0] for place in wanted], [place[1] for place in wanted]
    )
    made = []
    for partition_id, offset, key, metadata, failure, payload in taken:
        source, group, to_partition_id = wanted[partition_id, offset]
        letter = _Letter(key or "", payload, metadata, failure, group.group_id)
        made.append(_record(source, to_partition_id, letter))
    if made:
        await stored_records.append(tx, now, made)
    return Requeued(appended, len(taken), len(rows) - len(wanted))


async def _target(
    tx: Transaction, log: StoredLog, log_name: str, group_name: str
) -> tuple[StoredLog, ConsumerGroup] | None:
    """Return a log and a group, locked until the transaction ends."""
    source = await stored_logs.find(tx, log.account_id, log.region, log_name)
    if source is None or await stored_logs.lock(tx, source.log_id) is None:
        return None
    group = await log_groups.find(tx, source.log_id, group_name)
    if group is None or not await log_groups.lock(tx, group.group_id):
        return None
    return source, group

"""Clean-up of log records past their retention, and of deleted logs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from queuegate.scheduler.sweeps import Job, Sweep
from queuegate.storage.database import probe_by_key
from queuegate.storage.logs import stored_records

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_PARTITIONS_PER_LOOK = 1_000
_RETIRED_AT_ONCE = 16
_RECORDS_OF_EACH = 1_000
"""Bounds the wait of appends to these partitions to some milliseconds."""
_SWEPT_AT_ONCE = 100
_REMOVED_OF_EACH = 100
_LOGS_PER_ROUND = 100


async def _look(job: Job, tx: Transaction, after: int) -> tuple[list[int], int | None]:
    await probe_by_key(tx)
    return await stored_records.find_retirable(
        tx, job.now(), after, _PARTITIONS_PER_LOOK, job.whose()
    )


async def _retire(job: Job, tx: Transaction, found: list[int], _: int) -> tuple[int, list[int]]:
    await probe_by_key(tx)
    some = found[:_RETIRED_AT_ONCE]
    counts = await stored_records.retire(tx, job.now(), some, _RECORDS_OF_EACH)
    # Partitions that reached the limit may have more records.
    more = some if any(count >= _RECORDS_OF_EACH for count in counts) else []
    return sum(counts), more + found[_RETIRED_AT_ONCE:]


async def _retire_records(job: Job, rows: int) -> int:
    """Advance the start of partitions past records that all groups have read, or that exceed the
    log's age or size."""
    return await job.go_through(rows, 0, partial(_look, job), partial(_retire, job))


RETIRE_RECORDS = Sweep("retire records of logs", _retire_records, 15.0, 50_000, "logs", "logs")


async def _remove_records(job: Job, rows: int) -> int:
    """Remove records that no consumer can read: retired, purged, or of deleted logs."""
    handled = 0
    while handled < rows:
        async with job.transaction() as tx:
            await probe_by_key(tx)
            found = await stored_records.find_unswept(tx, _SWEPT_AT_ONCE)
            if not found:
                await stored_records.remove_logs(tx, _LOGS_PER_ROUND)
                break
            # Count partitions without a record, too, so that the loop ends.
            handled += len(found) + await stored_records.sweep(tx, found, _REMOVED_OF_EACH)
    return handled


REMOVE_RECORDS = Sweep("remove records of logs", _remove_records, 5.0, 10_000, chore="logs")

"""Background work: web hooks, schedules, replays, move tasks, retention, clean-up.

No worker needs a leader: any number of processes may run the same workers. Web hooks (`delivery/`),
schedules (`fire.py`) and dead letters (`bury.py`) need parts of the gateway, which assembles them.
This module assembles the others.
"""

from __future__ import annotations

from collections.abc import Callable

from queuegate.scheduler import collect
from queuegate.scheduler.chores import Chores
from queuegate.scheduler.clocks import ClockNow, Clocks, EachClock, WhoseNow
from queuegate.scheduler.collect_logs import REMOVE_RECORDS, RETIRE_RECORDS
from queuegate.scheduler.expire import EXPIRE, REMOVE_OVERDUE
from queuegate.scheduler.move import MoveMessages
from queuegate.scheduler.replay import Needs, ReplayArchives
from queuegate.scheduler.send_waiting import send_waiting
from queuegate.scheduler.worker import Worker

_TOMBSTONE_SECONDS = 120


def all_workers(
    chores: Chores,
    clocks: Clocks,
    on_moved: Callable[[int, int], None],
    replays: Needs,
    *,
    queue_recreate_seconds: int = 60,
    outbox_days: int = 14,
) -> list[Worker]:
    """Return all workers except those for web hooks, schedules and dead letters, not started.

    They call ``on_moved(queue_id, count)`` after the commit of messages from a move task, a replay
    or a queue's capacity wait. Replays stop while the disk is full; the other workers add no data.
    All workers use the database of ``chores`` and share its idle probe.
    """
    database = chores.database
    keep_seconds = max(queue_recreate_seconds, _TOMBSTONE_SECONDS)

    def moving(now: ClockNow, whose: WhoseNow) -> MoveMessages:
        return MoveMessages(database, now, on_moved, whose)

    def replaying(now: ClockNow, whose: WhoseNow) -> ReplayArchives:
        return ReplayArchives(database, now, on_moved, replays, whose)

    sweeps = (
        EXPIRE,
        REMOVE_OVERDUE,
        send_waiting(on_moved),
        collect.FOLD_COUNTERS,
        collect.FORGET_DEDUPLICATION,
        collect.collect_outbox(days=outbox_days),
        collect.remove_deleted_queues(keep_seconds=keep_seconds),
        collect.REMOVE_UNCONFIRMED,
        collect.FORGET_TOPIC_DEDUPLICATION,
        collect.FORGET_KEYS,
        collect.FORGET_RATES,
        collect.REMOVE_SCHEDULE_GROUPS,
        collect.TRIM_ARCHIVES,
        collect.COLLECT_ARCHIVES,
        RETIRE_RECORDS,
        REMOVE_RECORDS,
    )
    return [
        Worker(
            EachClock(database, clocks, "move tasks", moving),
            most_rows=500,
            chores=(chores, "move tasks"),
        ),
        Worker(
            EachClock(database, clocks, "replays", replaying),
            most_rows=2_000,
            chores=(chores, "replays"),
        ),
        *[sweep.worker(database, clocks, chores) for sweep in sweeps],
    ]

"""Background work: web hooks, schedules, replays, move tasks, retention, clean-up.

No worker needs a leader: any number of processes may run the same workers. The gateway assembles
the workers for web hooks, schedules and delivery limits. This module assembles the others.
"""

from __future__ import annotations

from collections.abc import Callable

from queuegate.scheduler import sweeps
from queuegate.scheduler.move_tasks import MoveMessages
from queuegate.scheduler.replay import ReplayArchives, ReplayCallbacks
from queuegate.scheduler.worker import AllClocks, EachClock, IdleProbe, Worker

_TOMBSTONE_SECONDS = 120


def all_workers(
    chores: IdleProbe,
    clocks: AllClocks,
    on_moved: Callable[[int, int], None],
    replays: ReplayCallbacks,
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
    moving = EachClock(
        database,
        clocks,
        "move_tasks",
        lambda now, whose: MoveMessages(database, now, on_moved, whose),
    )
    replaying = EachClock(
        database,
        clocks,
        "replays",
        lambda now, whose: ReplayArchives(database, now, on_moved, replays, whose),
    )
    to_sweep = (
        sweeps.expire,
        sweeps.remove_overdue,
        sweeps.send_waiting(on_moved),
        sweeps.fold_counters,
        sweeps.forget_deduplication,
        sweeps.collect_outbox(days=outbox_days),
        sweeps.remove_deleted_queues(keep_seconds=keep_seconds),
        sweeps.remove_unconfirmed,
        sweeps.forget_topic_deduplication,
        sweeps.forget_keys,
        sweeps.stop_recordings,
        sweeps.forget_rates,
        sweeps.remove_schedule_groups,
        sweeps.trim_archives,
        sweeps.collect_archives,
        sweeps.retire_records,
        sweeps.remove_records,
    )
    return [
        Worker(moving, most_rows=500, chores=(chores, "move tasks")),
        Worker(replaying, most_rows=2_000, chores=(chores, "replays")),
        *[sweep.worker(database, clocks, chores) for sweep in to_sweep],
    ]

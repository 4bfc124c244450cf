"""Background work: web hooks, schedules, replays, move tasks, retention, tidying up.

None of it has a leader: as many processes as wanted may do the same work. Web hooks (`delivery/`)
and schedules (`fire.py`) need parts of the gateway, which puts them together; the rest is here.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from scheduler.clocks import ClockNow, Clocks, EachClock, WhoseNow, earliest
from scheduler.collect import FoldCounters, ForgetDeduplication, RemoveDeletedQueues
from scheduler.collect_archives import CollectArchives
from scheduler.collect_outbox import CollectOutbox
from scheduler.collect_schedules import RemoveScheduleGroups
from scheduler.collect_topics import ForgetTopicDeduplication, RemoveUnconfirmed, TrimArchives
from scheduler.expire import ExpireMessages
from scheduler.move import MoveMessages
from scheduler.replay import ReplayArchives
from scheduler.worker import Worker
from storage.database import Database

if TYPE_CHECKING:
    from scheduler.worker import Job
    from storage.clocks.moved_accounts import Holding

_TOMBSTONE_SECONDS = 120


def all_workers(
    database: Database,
    clocks: Clocks,
    on_moved: Callable[[int, int], None],
    *,
    queue_recreate_seconds: int = 60,
    outbox_days: int = 14,
    has_room: Callable[[], bool] = lambda: True,
) -> list[Worker]:
    """Every worker but those for web hooks and schedules, not started.

    ``on_moved(queue_id, count)`` is called after the commit of messages that a move task or a
    replay brought. While ``has_room()`` says no, replays wait: move tasks add nothing.
    """
    keep_seconds = max(queue_recreate_seconds, _TOMBSTONE_SECONDS)

    def slowest() -> datetime | None:
        return earliest(clocks)

    def each(holding: Holding, make: Callable[[ClockNow, WhoseNow], Job]) -> EachClock:
        return EachClock(database, clocks, holding, make)

    return [
        Worker(
            each("move tasks", lambda now, whose: MoveMessages(database, now, on_moved, whose)),
            most_rows=500,
        ),
        Worker(
            each(
                "replays",
                lambda now, whose: ReplayArchives(database, now, on_moved, whose, has_room),
            ),
            most_rows=2_000,
        ),
        Worker(each("queues", partial(ExpireMessages, database)), most_rows=2_000),
        Worker(FoldCounters(database), most_rows=10_000),
        Worker(ForgetDeduplication(database, slowest), most_rows=5_000),
        Worker(each("outbox", partial(CollectOutbox, database, days=outbox_days)), most_rows=2_000),
        Worker(RemoveDeletedQueues(database, slowest, keep_seconds=keep_seconds), most_rows=2_000),
        Worker(each("topics", partial(RemoveUnconfirmed, database)), most_rows=1_000),
        Worker(ForgetTopicDeduplication(database, slowest), most_rows=5_000),
        Worker(RemoveScheduleGroups(database), most_rows=2_000),
        Worker(each("topics", partial(TrimArchives, database)), most_rows=2_000),
        Worker(each("queues", partial(CollectArchives, database)), most_rows=2_000),
    ]

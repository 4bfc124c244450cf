"""The engine of a process with nothing around it: no settings, no server, nothing that runs."""

from __future__ import annotations

from typing import Any

from gateway.operations.clock import Clock
from gateway.operations.engine import Engine, Rules
from gateway.operations.limits import LIMITS
from gateway.operations.looking import connect
from gateway.operations.queues.in_flight import InFlight
from gateway.operations.queues.queue_cache import QueueCache
from gateway.operations.series import Series
from gateway.operations.topics.signing import Signer
from gateway.operations.topics.topic_cache import TopicCache
from gateway.operations.wakeups import Wakeups
from storage.database import Database
from storage.queues.bounded_lane import BoundedLane
from storage.queues.fifo_lanes import FifoLanes
from storage.queues.standard_lanes import StandardLanes
from storage.topics.publishing import PublishLane


def engine_on(
    database: Database, clock: Clock, wakeups: Wakeups | None = None, **others: Any
) -> Engine:
    """The real parts. ``others`` are further fields of it; whoever calls closes it."""
    standard = StandardLanes(database, clock.now)
    fields: dict[str, Any] = {"rules": Rules(), **others}
    engine = Engine(
        database=database,
        queues=QueueCache(database),
        standard=standard,
        fifo=FifoLanes(database, clock.now),
        bounded=BoundedLane(database, clock.now, standard.lower_marks),
        wakeups=wakeups or Wakeups(database),
        clock=clock,
        series=Series(),
        in_flight=InFlight(database, LIMITS.in_flight_messages),
        topics=TopicCache(database),
        publish=PublishLane(database, clock.now, standard.lower_marks),
        signer=Signer(database),
        **fields,
    )
    connect(engine)
    engine.wakeups.on_topic_changed = engine.topics.forget
    return engine

"""The engine of a process with nothing around it: no settings, no server, nothing that runs."""

from __future__ import annotations

from typing import Any

from queuegate.gateway.operations.queues.queue_cache import InFlightCounts, QueueCache
from queuegate.gateway.operations.runtime.account_clocks import Clock
from queuegate.gateway.operations.runtime.engine import Engine, EngineRules
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.runtime.poller import connect
from queuegate.gateway.operations.runtime.wakeups import Wakeups
from queuegate.gateway.operations.telemetry.series import Series
from queuegate.gateway.operations.topics.message_signing import EnvelopeSigner
from queuegate.gateway.operations.topics.topic_cache import TopicCache
from queuegate.storage.database import Database
from queuegate.storage.queues.fifo_lanes import FifoLanes
from queuegate.storage.queues.standard_lanes import StandardLanes
from queuegate.storage.topics.publishing import PublishLane


def engine_on(
    database: Database, clock: Clock, wakeups: Wakeups | None = None, **others: Any
) -> Engine:
    """The real parts. ``others`` are further fields of it; whoever calls closes it."""
    standard = StandardLanes(database, clock.now)
    fields: dict[str, Any] = {"rules": EngineRules(), **others}
    engine = Engine(
        database=database,
        queues=QueueCache(database),
        standard=standard,
        fifo=FifoLanes(database, clock.now, standard.visibility),
        wakeups=wakeups or Wakeups(database),
        clock=clock,
        series=Series(),
        in_flight=InFlightCounts(database, LIMITS.in_flight_messages),
        topics=TopicCache(database),
        publish=PublishLane(database, clock.now, standard.lower_marks),
        signer=EnvelopeSigner(database),
        **fields,
    )
    connect(engine)
    engine.wakeups.on["topic_changed"] = engine.topics.forget
    return engine

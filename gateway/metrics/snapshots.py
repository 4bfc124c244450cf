"""Snapshots for a scrape: counters of this process, and gauges of the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.telemetry.series import Series
from queuegate.storage.logs import stored_logs
from queuegate.storage.queues import depths
from queuegate.storage.topics.web_hook_deliveries import DeliveryGauges

if TYPE_CHECKING:
    from queuegate.gateway.operations.queues.fair_queueing import FairGauges
    from queuegate.gateway.operations.runtime.engine import Engine


class ProcessSnapshot(NamedTuple):
    """Counters of this process at one moment."""

    series: Series
    pool_size: int
    pool_idle: int
    acquire_timeouts: int
    parked_receives: int
    fault_rules: int

    @classmethod
    def of(cls, engine: Engine) -> ProcessSnapshot:
        """Copy the counters of the engine, for a thread to read while the engine counts on."""
        size, idle = engine.database.pool_counts()
        return cls(
            engine.series.copy(),
            size,
            idle,
            engine.database.acquire_timeouts,
            engine.wakeups.parked_count() + engine.readers.waiting_count(),
            0 if engine.faults is None else len(engine.faults),
        )


class DatabaseSnapshot(NamedTuple):
    """Gauges of the database at one moment."""

    depths: list[depths.Depth]
    titled: list[depths.TitledDepth]
    priorities: list[depths.PriorityAge]
    deliveries: DeliveryGauges | None
    groups: list[stored_logs.GroupGauges]
    paused: list[tuple[str, ...]]
    fair: list[FairGauges]
    ages: Sequence[tuple[str, str, str, float]] = ()


NOTHING_STORED = DatabaseSnapshot([], [], [], None, [], [], [])

"""What every operation works with: one object per process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.operations.limits import LIMITS, Limits

if TYPE_CHECKING:
    from gateway.operations.clock import Clock
    from gateway.operations.in_flight import InFlight
    from gateway.operations.queue_cache import QueueCache
    from gateway.operations.series import Series
    from gateway.operations.wakeups import Wakeups
    from storage.database import Database
    from storage.fifo import FifoLanes
    from storage.messages import StandardLanes


@dataclass(slots=True)
class Rules:
    """Rules of AWS that a tester may relax; the defaults are AWS's."""

    purge_interval_seconds: int = 60
    queue_recreate_seconds: int = 60
    default_visibility_timeout_seconds: int = 30


@dataclass(slots=True)
class Engine:
    """The database, the lanes, the caches and the wakeups of this process."""

    database: Database
    queues: QueueCache
    standard: StandardLanes
    fifo: FifoLanes
    wakeups: Wakeups
    clock: Clock
    series: Series
    in_flight: InFlight
    rules: Rules
    limits: Limits = LIMITS
    stopping: bool = False
    """Set when the gateway drains: long polls end, and no new one waits."""

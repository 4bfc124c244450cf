"""The engine: the state of a process that every operation uses."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from queuegate.gateway.operations.access.console_sessions import ConsoleSessions
from queuegate.gateway.operations.access.key_cache import Keys
from queuegate.gateway.operations.access.rates import Quotas, Rates
from queuegate.gateway.operations.channels.consumer_registry import ConsumerRegistry
from queuegate.gateway.operations.logs.group_readers import GroupReaders
from queuegate.gateway.operations.logs.log_cache import LogCache
from queuegate.gateway.operations.queues.fair_queueing import Fairness
from queuegate.gateway.operations.queues.receipt_handles import ReceiptHandles
from queuegate.gateway.operations.runtime.limits import LIMITS, Limits
from queuegate.gateway.operations.runtime.siblings import Siblings
from queuegate.gateway.operations.runtime.time_keeper import TimeKeeper
from queuegate.gateway.operations.telemetry.event_recordings import EventRecordings
from queuegate.gateway.operations.telemetry.series import Series, Throughput
from queuegate.storage.logs.log_deliveries import DeliveryLane
from queuegate.storage.logs.stored_records import AppendLane
from queuegate.storage.queue_model import QueueKind
from queuegate.storage.queues.kinds import FIFO, PRIORITISED, SERIAL, STANDARD
from queuegate.storage.storage_errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from queuegate.gateway.operations.access.policies import Authority, PolicyChecks
    from queuegate.gateway.operations.queues.queue_cache import InFlightCounts, QueueCache
    from queuegate.gateway.operations.runtime.account_clocks import Clock
    from queuegate.gateway.operations.runtime.wakeups import Wakeups
    from queuegate.gateway.operations.topics.message_signing import EnvelopeSigner
    from queuegate.gateway.operations.topics.topic_cache import TopicCache
    from queuegate.protocol.urls import RegionIn
    from queuegate.storage.database import Database
    from queuegate.storage.lanes import Lane
    from queuegate.storage.queues.fifo_lanes import FifoLanes
    from queuegate.storage.queues.standard_lanes import StandardLanes
    from queuegate.storage.topics.publishing import PublishLane


@dataclass(slots=True)
class EngineRules:
    """Rules of AWS that a tester may relax. The defaults are AWS's."""

    purge_interval_seconds: int = 60
    queue_recreate_seconds: int = 60
    default_visibility_timeout_seconds: int = 30
    private_webhooks: bool = False
    """Allow web hooks at private addresses."""
    cert_url_base: str | None = None
    """Base URL of the signing certificate for clients; None: the gateway's own URL."""
    sign_queue_envelopes: bool = True
    """Sign envelopes in queues, as on AWS. Envelopes for web hooks are always signed."""
    outbox_days: int = 14
    schedule_preview_count: int = 5
    schedule_list_max: int = 1000
    region: str = "us-east-1"
    """Region of queue URLs without one."""
    region_in_queue_urls: RegionIn = "none"
    channel_ack_window_seconds: int = 30
    """Default of channels that are created at first use, as is the next setting."""
    channel_max_deliveries: int = 5
    """0: no limit."""
    opens_quotas: bool = False
    """Everybody may set quotas: data is ephemeral, and there are no administrators."""
    push_heartbeat_seconds: int = 20


@dataclass(slots=True)
class Engine:
    """The database, lanes, caches and wakeups of a process."""

    database: Database
    queues: QueueCache
    standard: StandardLanes
    fifo: FifoLanes
    wakeups: Wakeups
    clock: Clock
    series: Series
    in_flight: InFlightCounts
    topics: TopicCache
    publish: PublishLane
    signer: EnvelopeSigner
    rules: EngineRules
    fairness: Fairness = field(init=False)
    lanes_of: dict[QueueKind, StandardLanes | FifoLanes] = field(init=False)
    keeper: TimeKeeper = field(init=False)
    keys: Keys = field(init=False)
    rates: Rates = field(init=False)
    quotas: Quotas = field(init=False)
    logs: LogCache = field(init=False)
    append: AppendLane = field(init=False)
    deliver: DeliveryLane = field(init=False)
    readers: GroupReaders = field(init=False)
    events: EventRecordings = field(init=False)
    receipts: ReceiptHandles = field(default_factory=ReceiptHandles)
    console: ConsoleSessions = field(default_factory=ConsoleSessions)
    throughput: Throughput = field(default_factory=Throughput)
    consumers: ConsumerRegistry = field(default_factory=ConsumerRegistry)
    siblings: Siblings = field(default_factory=Siblings)
    limits: Limits = LIMITS
    authority: Authority | None = None
    """The authorizer (``access.authorization``); None: everything is allowed."""
    policies: PolicyChecks | None = None
    """Policies of queues, topics and keys; None: not checked. Set only together with an authority,
    which alone the hot path checks."""
    verifies: bool = False
    account_of_key: Callable[[str], str] = lambda _: ""
    """Returns the account of requests that are signed with an access key."""
    faults: Any = None
    """Faults on purpose (``operations.runtime.faults.Faults``); None: there are no rules."""
    faults_reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    on_faults: Callable[[bool], object] = bool
    """Called with True when there are rules for faults, with False when there are none."""
    stopping: bool = False
    """True while the gateway drains: long polls end, and no new one waits."""
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the gateway starts to drain."""
    refuses_sends: str = ""
    """The reason why sends are refused at present; empty: they are not."""
    _refused_count: int = 0

    def __post_init__(self) -> None:
        self.keeper = TimeKeeper(self.database, self.series.clock)
        self.keys = Keys(self.database, self.clock, self.wakeups)
        self.rates = Rates(self.database, self.clock, self.series)
        self.quotas = Quotas(self.database, self.series, self.rates, self.wakeups)
        self.fairness = Fairness(self.database, self.queues, self.clock, self.standard.fair)
        self.logs = LogCache(self.database)
        self.append = AppendLane(self.database, self.clock.now)
        self.deliver = DeliveryLane(self.database, self.clock.now)
        self.readers = GroupReaders(self.wakeups)
        self.events = EventRecordings(self.database, self.clock, self.wakeups)
        self.lanes_of = {
            STANDARD: self.standard,
            PRIORITISED: self.standard,
            FIFO: self.fifo,
            SERIAL: self.fifo,
        }

    @property
    def lanes(self) -> tuple[Lane[Any], ...]:
        """Return all lanes, for metrics and traces."""
        return (
            *{lane: None for kind in self.lanes_of.values() for lane in kind.lanes},
            self.publish.lane,
            self.append.lane,
            self.deliver.lane,
            self.rates.lane,
        )

    async def close(self) -> None:
        """Finish submitted entries and close all connections except the pool's and that of the
        wakeups. The pool releases messages that are leased for disconnected clients."""
        parts: tuple[Any, ...] = (
            self.fairness,
            *self.lanes_of.values(),
            self.publish,
            self.append,
            self.deliver,
            self.rates,
            self.keys,
            self.quotas,
            self.events,
            self.signer,
        )
        for part in parts:
            await part.close()

    def refuse_sends(self, reason: str) -> None:
        """Refuse operations that add messages from now on; empty: accept them again."""
        self.refuses_sends = reason
        for lane in self._adding_lanes():
            lane.refuse(reason)

    def refused_count(self) -> int:
        """Return the number of calls that were refused for this reason."""
        return self._refused_count + sum(lane.refused_count for lane in self._adding_lanes())

    def _adding_lanes(self) -> tuple[Lane[Any], ...]:
        sends = {one.send: None for one in self.lanes_of.values()}
        return (*sends, self.standard.large_send, self.publish.lane, self.append.lane)

    def check_room(self) -> None:
        """Raise Unavailable while sends are refused, for operations that add messages without a
        lane."""
        if self.refuses_sends:
            self._refused_count += 1
            error = Unavailable(self.refuses_sends)
            error.log_level = logging.DEBUG
            raise error

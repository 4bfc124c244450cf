"""What every operation works with: one object per process."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from queuegate.gateway.operations.channels.consumers import Consumers
from queuegate.gateway.operations.channels.throughput import Throughput
from queuegate.gateway.operations.keys import Keys
from queuegate.gateway.operations.limits import LIMITS, Limits
from queuegate.gateway.operations.logs.log_cache import LogCache
from queuegate.gateway.operations.logs.readers import Readers
from queuegate.gateway.operations.queues.fairness import Fairness
from queuegate.gateway.operations.queues.receipt_handles import ReceiptHandles
from queuegate.gateway.operations.quotas import Quotas
from queuegate.gateway.operations.rates import Rates
from queuegate.storage.errors import Unavailable
from queuegate.storage.logs.deliveries import DeliveryLane
from queuegate.storage.logs.records import AppendLane
from queuegate.storage.queues.fair_lane import FairLane
from queuegate.storage.queues.kinds import FIFO, PRIORITISED, SERIAL, STANDARD, QueueKind
from queuegate.storage.queues.priority_lanes import PriorityLanes
from queuegate.storage.queues.serial_lanes import SerialLanes

if TYPE_CHECKING:
    from collections.abc import Callable

    from queuegate.gateway.operations.access import Authority
    from queuegate.gateway.operations.clock import Clock
    from queuegate.gateway.operations.policies import Policies
    from queuegate.gateway.operations.queues.in_flight import InFlight
    from queuegate.gateway.operations.queues.queue_cache import QueueCache
    from queuegate.gateway.operations.series import Series
    from queuegate.gateway.operations.topics.signing import Signer
    from queuegate.gateway.operations.topics.topic_cache import TopicCache
    from queuegate.gateway.operations.wakeups import Wakeups
    from queuegate.protocol.queue_urls import RegionIn
    from queuegate.storage.database import Database
    from queuegate.storage.lanes import Lane
    from queuegate.storage.queues.bounded_lane import BoundedLane
    from queuegate.storage.queues.fifo_lanes import FifoLanes
    from queuegate.storage.queues.message_entries import ChangeVisibility, Delete, Receive
    from queuegate.storage.queues.standard_lanes import StandardLanes
    from queuegate.storage.topics.publishing import PublishLane


@dataclass(slots=True)
class Rules:
    """Rules of AWS that a tester may relax; the defaults are AWS's."""

    purge_interval_seconds: int = 60
    queue_recreate_seconds: int = 60
    default_visibility_timeout_seconds: int = 30
    private_webhooks: bool = False
    """Whether web hooks may be at addresses that are not the internet's (protocol.addresses)."""
    cert_url_base: str | None = None
    """Where clients reach the certificate of the key that signs. None: where they reach us."""
    sign_queue_envelopes: bool = True
    """Whether envelopes in queues are signed, as on AWS; those for web hooks always are."""
    outbox_days: int = 14
    """How long messages stay in the outbox."""
    schedule_preview_count: int = 5
    """How many coming times of a schedule are shown."""
    schedule_list_max: int = 1000
    """Most schedules of one listing."""
    region: str = "us-east-1"
    """Of queues whose URL need not name one."""
    region_in_queue_urls: RegionIn = "none"
    """The part of a queue URL that names the region."""
    channel_ack_window_seconds: int = 30
    """Of a channel that is made when it is first used, as is the next one."""
    channel_max_deliveries: int = 5
    """0: no number is too high."""
    opens_quotas: bool = False
    """Everybody may set quotas: the data is ephemeral, and nothing says who is an administrator."""
    push_heartbeat_seconds: int = 20
    """How often a connection to which messages are pushed is written to."""


class _Part(Protocol):
    async def close(self) -> None: ...


class QueueLanes(_Part, Protocol):
    """The lanes of queues of one kind."""

    @property
    def send(self) -> Lane[Any]:
        """Of ``Send``."""

    @property
    def receive(self) -> Lane[Receive]: ...

    @property
    def lease(self) -> Lane[Receive]:
        """The same, on disk before the reply."""

    @property
    def delete(self) -> Lane[Delete]: ...

    @property
    def visibility(self) -> Lane[ChangeVisibility]: ...


@dataclass(slots=True)
class Engine:
    """The database, the lanes, the caches and the wakeups of this process."""

    database: Database
    queues: QueueCache
    standard: StandardLanes
    fifo: FifoLanes
    bounded: BoundedLane
    """Sends to queues that hold only so many messages."""
    wakeups: Wakeups
    clock: Clock
    series: Series
    in_flight: InFlight
    topics: TopicCache
    publish: PublishLane
    signer: Signer
    rules: Rules
    prioritised: PriorityLanes = field(init=False)
    serial: SerialLanes = field(init=False)
    fair: FairLane = field(init=False)
    """Of receives from standard queues with noisy message groups."""
    fairness: Fairness = field(init=False)
    lanes_of: dict[QueueKind, QueueLanes] = field(init=False)
    """By the kind of a queue."""
    keys: Keys = field(init=False)
    """Those by which callers say who they are."""
    rates: Rates = field(init=False)
    """How often callers may send."""
    quotas: Quotas = field(init=False)
    """What accounts may have, and how often they may ask anything."""
    logs: LogCache = field(init=False)
    append: AppendLane = field(init=False)
    """Of records to logs."""
    deliver: DeliveryLane = field(init=False)
    """Of records to groups, and what becomes of them."""
    readers: Readers = field(init=False)
    """Subscribers of groups that fetch here."""
    receipts: ReceiptHandles = field(default_factory=ReceiptHandles)
    throughput: Throughput = field(default_factory=Throughput)
    consumers: Consumers = field(default_factory=Consumers)
    """To whom this process pushes messages of channels."""
    limits: Limits = LIMITS
    authority: Authority | None = None
    """Who may do what (``operations.access``); None: everybody everything."""
    policies: Policies | None = None
    """What policies of queues and topics say; None: nobody asks them. Together with an authority
    only: the hot path asks whether there is one."""
    verifies: bool = False
    """True if signatures are verified."""
    account_of_key: Callable[[str], str] = lambda _: ""
    """The account in which requests that are signed with an access key act."""
    stopping: bool = False
    """Set when the gateway drains: long polls end, and no new one waits."""
    refuses_sends: str = ""
    _refused_count: int = 0
    """Why nothing that adds messages is taken at the moment; empty: it is."""

    def __post_init__(self) -> None:
        self.keys = Keys(self.database, self.clock, self.wakeups)
        self.rates = Rates(self.database, self.clock, self.series)
        self.quotas = Quotas(self.database, self.series, self.rates, self.wakeups)
        self.prioritised = PriorityLanes(self.standard)
        self.fair = FairLane(self.standard)
        self.fairness = Fairness(self.database, self.queues, self.clock, self.fair)
        self.serial = SerialLanes(self.database, self.clock.now)
        self.logs = LogCache(self.database)
        self.append = AppendLane(self.database, self.clock.now)
        self.deliver = DeliveryLane(self.database, self.clock.now)
        self.readers = Readers(self.wakeups)
        self.lanes_of = {
            STANDARD: self.standard,
            PRIORITISED: self.prioritised,
            FIFO: self.fifo,
            SERIAL: self.serial,
        }

    @property
    def lanes(self) -> tuple[Lane[Any], ...]:
        """All lanes, for observing them."""
        kinds = self.standard, self.prioritised, self.fifo, self.serial
        lanes = [lane for kind in kinds for lane in kind.lanes]
        return (
            *lanes,
            self.fair.receive,
            self.bounded.send,
            self.publish.lane,
            self.append.lane,
            self.deliver.lane,
            self.rates.lane,
        )

    async def close(self) -> None:
        """Finish what was handed in, and let go of all connections but those of the pool and the
        one of the wakeups. What is leased for callers who have gone is given back by the pool."""
        parts: tuple[_Part, ...] = (
            self.fairness,
            *self.lanes_of.values(),
            self.fair.receive,
            self.bounded,
            self.publish,
            self.append,
            self.deliver,
            self.rates,
            self.keys,
            self.quotas,
            self.signer,
        )
        for part in parts:
            await part.close()

    def refuse_sends(self, reason: str) -> None:
        """Refuse what adds messages from now on, and nothing else; empty: take it again."""
        self.refuses_sends = reason
        for lane in self._adding_lanes():
            lane.refuse(reason)

    def refused_count(self) -> int:
        """Return the number of calls that were refused so since the start."""
        return self._refused_count + sum(lane.refused_count for lane in self._adding_lanes())

    def _adding_lanes(self) -> tuple[Lane[Any], ...]:
        sends = [one.send for one in self.lanes_of.values()]
        return (*sends, self.bounded.send, self.publish.lane, self.append.lane)

    def check_room(self) -> None:
        """``Unavailable`` while sends are refused: for what adds messages without a lane."""
        if self.refuses_sends:
            self._refused_count += 1
            error = Unavailable(self.refuses_sends)
            error.log_level = logging.DEBUG
            raise error

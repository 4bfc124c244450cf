"""Deliveries of records to subscribers: fetch records, and settle them by receipt."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.logs.consumer_groups import check_has_subscribers
from queuegate.gateway.operations.logs.group_readers import GroupReader
from queuegate.gateway.operations.runtime.background_tasks import spawn
from queuegate.gateway.operations.runtime.replies import answered
from queuegate.storage.lanes import NULL_REPLY, Reply
from queuegate.storage.logs.log_deliveries import Change, Fetch, Fetched, Settle
from queuegate.storage.model import ReceiptAction, RecordOutcome
from queuegate.storage.storage_errors import MalformedInput, SubscriberFenced, Unavailable

if TYPE_CHECKING:
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.model import ConsumerGroup, Delivered, StoredLog


_BIGGEST = 2**63 - 1
_NO_PARTITION = -1
_RECEIPT = re.compile(r"([0-9]{1,20})\.([0-9]{1,20})\.([0-9]{1,20})\.([0-9]{1,20})")


class Settlement(NamedTuple):
    """An instruction for a delivered record."""

    receipt: str
    do: ReceiptAction
    delay_seconds: float | None = None
    """For a nack (None: the group's back-off), a postponement or an extension."""
    error: str = ""


def receipt_of(group: ConsumerGroup, delivered: Delivered) -> str:
    """Return the receipt of a delivery: group, partition, offset and number of the delivery."""
    offset = delivered.record.offset
    return f"{group.group_id}.{delivered.partition_id}.{offset}.{delivered.delivery}"


async def settle(
    engine: Engine, log: StoredLog, group: ConsumerGroup, settlements: Sequence[Settlement]
) -> list[RecordOutcome]:
    """Settle all records or none; return an outcome for each. The result is on disk when this
    returns.

    Raises MalformedInput for an invalid receipt.
    """
    outcomes: list[RecordOutcome] = await answered(start_settling, engine, log, group, settlements)
    return outcomes


def start_settling(
    engine: Engine,
    log: StoredLog,
    group: ConsumerGroup,
    settlements: Sequence[Settlement],
    reply: Reply[list[RecordOutcome]],
) -> None:
    """Settle records and reply."""
    changes = [_change(group, one) for one in settlements]
    engine.deliver.lane.submit(Settle(log, group, changes, reply))


def _change(group: ConsumerGroup, settlement: Settlement) -> Change:
    numbers = _numbers(settlement.receipt)
    group_id, partition_id, offset, delivery = numbers
    if group_id != group.group_id:
        # A receipt of another group, or of a deleted one.
        partition_id = _NO_PARTITION
    delay = settlement.delay_seconds
    delay_ms = None if delay is None else round(delay * 1000)
    return Change(partition_id, (offset, delivery), settlement.do, delay_ms, settlement.error)


def _numbers(receipt: str) -> tuple[int, int, int, int]:
    found = _RECEIPT.fullmatch(receipt)
    if found is not None:
        group_id, partition_id, offset, delivery = map(int, found.groups())
        if max(partition_id, offset, delivery) <= _BIGGEST:
            return group_id, partition_id, offset, delivery
    raise MalformedInput("A `receipt` is invalid.")


class FetchRequest(NamedTuple):
    """A request for records."""

    name: str
    session: int
    most: int = 100
    wait_seconds: float = 0
    partition_ids: Sequence[int] | None = None
    """None: all that the subscriber holds."""


class FetchOutcome(NamedTuple):
    """The result of a fetch."""

    records: list[Delivered]
    is_settled: bool
    """False: partitions have to be rebalanced, by a heartbeat."""


class Fetching:
    """A fetch under way. Its entry replies to it.

    Call ``cancel`` when the client disconnects: records of a flush under way are given back.
    """

    __slots__ = ("_deadline", "_done", "_engine", "_entry", "_group", "_log", "_reader", "_reply",
                 "_request", "_timer")  # fmt: skip

    def __init__(
        self,
        engine: Engine,
        log: StoredLog,
        group: ConsumerGroup,
        request: FetchRequest,
        reply: Reply[FetchOutcome],
    ) -> None:
        self._engine = engine
        self._log = log
        self._group = group
        self._request = request
        self._reply = reply
        self._deadline = asyncio.get_running_loop().time() + request.wait_seconds
        self._reader: GroupReader
        self._timer: asyncio.TimerHandle | None = None
        self._entry: Fetch | None = None
        self._done = False
        self._look()

    def cancel(self) -> None:
        """End the fetch: the client has disconnected."""
        self._done = True
        if self._entry is not None:
            self._entry.gone = True
            self._leave_to_others(self._entry)
        self._rest()

    def give_back(self, outcome: FetchOutcome) -> None:
        """Make records visible to others if the answer did not reach the client."""
        if outcome.records:
            spawn(give_back(self._engine, self._log, self._group, outcome.records))

    def wake(self) -> None:
        """Fetch again: there may be records."""
        self._rest()
        if not self._done:
            self._look()

    def _look(self, left: Sequence[int] | None = None) -> None:
        """Submit a fetch of the partitions that are left, or of all."""
        request = self._request
        # A fetch with an outdated session may have ended the reader.
        self._reader = self._engine.readers.of(self._group, request.name, request.session)
        partition_ids = left or request.partition_ids
        if partition_ids is None:
            partition_ids = self._reader.take(request.most)
            if partition_ids is not None and not partition_ids:
                self._nothing(is_settled=True)
                return
        self._entry = Fetch(
            self._log,
            self._group,
            (request.name, request.session),
            request.most,
            partition_ids,
            self,
        )
        self._engine.deliver.lane.submit(self._entry)

    def done(self, fetched: Fetched) -> None:
        """Reply with the records, fetch what is left, or park."""
        self._entry = None
        reader = self._reader
        if fetched.held is not None:
            reader.holds(fetched.held)
        reader.lost(fetched.lost)
        if fetched.due_in_ms is not None:
            reader.look_in(fetched.due_in_ms / 1000)
        if self._done:
            self.give_back(FetchOutcome(fetched.records, True))
        elif not fetched.is_known:
            self._engine.readers.forget(reader)
            self.failed(SubscriberFenced(self._request.name))
        elif fetched.records:
            self._finish(FetchOutcome(fetched.records, fetched.is_settled))
        elif fetched.left and fetched.is_settled:
            self._look(fetched.left)
            return
        else:
            self._nothing(is_settled=fetched.is_settled and not fetched.lost)
        for partition_id in fetched.left:
            reader.hint(partition_id)

    def _nothing(self, *, is_settled: bool) -> None:
        loop = asyncio.get_running_loop()
        if not is_settled or loop.time() >= self._deadline or self._engine.stopping:
            self._finish(FetchOutcome([], is_settled))
            return
        self._timer = loop.call_at(self._deadline, self._expired)
        self._reader.wait(self)

    def _expired(self) -> None:
        self._rest()
        self._finish(FetchOutcome([], True))

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._reader.leave(self)

    def failed(self, error: BaseException) -> None:
        """Reply with an error."""
        entry, self._entry = self._entry, None
        if not self._done:
            if entry is not None:
                self._leave_to_others(entry)
            self._done = True
            reply, self._reply = self._reply, NULL_REPLY
            reply.failed(error)

    def _leave_to_others(self, entry: Fetch) -> None:
        """Leave hints that were not followed to other fetches of this subscriber."""
        if self._request.partition_ids is None:
            for partition_id in entry.partition_ids or ():
                self._reader.hint(partition_id)
            if entry.partition_ids is None:
                self._reader.look_soon()

    def _finish(self, outcome: FetchOutcome) -> None:
        self._done = True
        # Break the reference cycle with the caller, as Entry.done does.
        reply, self._reply = self._reply, NULL_REPLY
        reply.done(outcome)


async def fetch(
    engine: Engine, log: StoredLog, group: ConsumerGroup, request: FetchRequest
) -> FetchOutcome:
    """Deliver records from partitions that a subscriber holds; in each partition by offset,
    redeliveries first. Wait for the first record, unless partitions have to be rebalanced.
    Cancelling gives delivered records back.

    Raises SubscriberFenced if the subscriber is not in the group with this session, and
    GroupInvalid for a group that feeds a queue.
    """
    outcome: FetchOutcome = await answered(start_fetching, engine, log, group, request)
    return outcome


def start_fetching(
    engine: Engine,
    log: StoredLog,
    group: ConsumerGroup,
    request: FetchRequest,
    reply: Reply[FetchOutcome],
) -> Fetching:
    """Start a fetch that replies."""
    check_has_subscribers(group)
    return Fetching(engine, log, group, request, reply)


async def give_back(
    engine: Engine, log: StoredLog, group: ConsumerGroup, delivered: Sequence[Delivered]
) -> None:
    """Make records visible to others after the client has disconnected."""
    changes = [
        Change(one.partition_id, (one.record.offset, one.delivery), ReceiptAction.RELEASE)
        for one in delivered
    ]

    def submit(reply: Reply[object]) -> None:
        engine.deliver.lane.submit(Settle(log, group, changes, reply))

    try:
        await answered(submit)
    except Unavailable:
        # They stay hidden until their leases expire.
        return

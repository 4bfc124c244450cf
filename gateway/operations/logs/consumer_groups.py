"""Consumer groups of a log: create, find, list, change, delete and seek; subscribers and their
heartbeats; deliveries, and their settlements by receipt."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.logs.group_readers import GroupReader
from queuegate.gateway.operations.logs.logs import locked, partitions_numbered
from queuegate.gateway.operations.runtime.background_tasks import spawn
from queuegate.gateway.operations.runtime.replies import answered
from queuegate.protocol import names
from queuegate.storage.lanes import NULL_REPLY, Reply
from queuegate.storage.logs import log_deliveries, log_groups, record_dead_letters
from queuegate.storage.logs.log_deliveries import Change, Fetch, Fetched, Settle
from queuegate.storage.logs.log_groups import BEGINNING
from queuegate.storage.model import (
    ConsumerGroup,
    ConsumerGroupSettings,
    Delivered,
    GroupProgress,
    LogPartition,
    LogSubscriber,
    PositionState,
    ReceiptAction,
    RecordOutcome,
    StoredLog,
)
from queuegate.storage.notifications import Notice, notify
from queuegate.storage.storage_errors import (
    GroupDoesNotExist,
    GroupExists,
    GroupInvalid,
    LogNameInvalid,
    MalformedInput,
    PartitionHeld,
    SubscriberFenced,
    TooManyGroups,
    TooManySubscribers,
    Unavailable,
)

if TYPE_CHECKING:
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.database import Transaction
    from queuegate.storage.logs.log_groups import SubscriberHeartbeat


EARLIEST, LATEST = "earliest", "latest"


class CreatedGroup(NamedTuple):
    """``is_new`` False: the group existed."""

    group: ConsumerGroup
    is_new: bool


async def make_group(
    engine: Engine, log: StoredLog, name: str, settings: ConsumerGroupSettings
) -> CreatedGroup:
    """Return the new group, or an existing one of that name with the same settings. Raises
    GroupInvalid, LogDoesNotExist, TooManyGroups, and GroupExists if the settings differ."""
    made = await _make(engine, log, name, settings)
    if made.group.settings != settings:
        raise GroupExists(name)
    return made


async def find_group(engine: Engine, log: StoredLog, name: str) -> ConsumerGroup:
    """Return the group of that name. Raises GroupDoesNotExist."""
    group = await engine.logs.find_group(log, name)
    if group is None:
        raise GroupDoesNotExist(name)
    return group


async def find_or_make_group(engine: Engine, log: StoredLog, name: str) -> ConsumerGroup:
    """Return the group of that name, created with default settings if there is none. Raises
    GroupInvalid, LogDoesNotExist and TooManyGroups."""
    group = await engine.logs.find_group(log, name)
    return group or (await _make(engine, log, name, ConsumerGroupSettings())).group


async def _make(
    engine: Engine, log: StoredLog, name: str, settings: ConsumerGroupSettings
) -> CreatedGroup:
    if not names.is_standard_queue_name(name):
        raise GroupInvalid(
            f"A group cannot be called '{name[:100]}'. Allowed are 1 to 80 letters, digits, "
            "hyphens and underscores."
        )
    check(log, settings)
    engine.check_room()
    now = engine.clock.of(log.account_id).now()
    async with engine.database.transaction() as tx:
        await locked(tx, log)
        group = await log_groups.insert(tx, now, log.log_id, name, settings, _start_at(settings))
        if group is None:
            found = await log_groups.find(tx, log.log_id, name)
            assert found is not None
            return CreatedGroup(found, False)
        most = engine.limits.log_groups
        if len(await log_groups.list_groups(tx, log.log_id)) > most:
            raise TooManyGroups(most)
        if settings.start is not None:
            # Resolve the start now, so that later moves of the clock do not matter.
            await log_groups.lock(tx, group.group_id)
        if settings.start == LATEST:
            await log_groups.seek_all(tx, group.group_id, log_groups.LAST)
        if settings.queue is not None:
            # Notify the worker that feeds the queue.
            await notify(tx, Notice.LOG_CHANGED, log.log_id)
    return CreatedGroup(group, True)


def _start_at(settings: ConsumerGroupSettings) -> datetime | None:
    if settings.start is None:
        return BEGINNING
    return None if settings.start == LATEST else datetime.fromisoformat(settings.start)


def check(log: StoredLog, settings: ConsumerGroupSettings) -> None:
    """Raise GroupInvalid for settings that no group of this log can have."""
    name = settings.dead_letter_log
    if name == log.name:
        raise GroupInvalid("The dead letters of a log cannot go to the log itself.")
    if name is not None and not names.is_standard_queue_name(name):
        raise LogNameInvalid(name)


async def list_groups(engine: Engine, log: StoredLog) -> list[ConsumerGroup]:
    async with engine.database.transaction() as tx:
        return await log_groups.list_groups(tx, log.log_id)


async def progress_of(
    engine: Engine, log: StoredLog, group: ConsumerGroup
) -> tuple[GroupProgress, list[LogSubscriber]]:
    now = engine.clock.of(log.account_id).now()
    async with engine.database.transaction() as tx:
        live = await log_groups.list_subscribers(tx, now, group.group_id)
        return await log_groups.progress(tx, now, group.group_id), live


async def change_group(
    engine: Engine,
    log: StoredLog,
    name: str,
    change: Callable[[ConsumerGroupSettings], ConsumerGroupSettings],
) -> ConsumerGroup:
    """Return the group with new settings, computed by ``change`` from the present ones. Raises
    GroupDoesNotExist and GroupInvalid."""
    async with engine.database.transaction() as tx:
        group = await _locked(tx, await find_group(engine, log, name))
        settings = change(group.settings)
        check(log, settings)
        await log_groups.update(tx, group.group_id, settings)
        await notify(tx, Notice.LOG_CHANGED, log.log_id)
    engine.logs.changed(log.log_id)
    return ConsumerGroup(group.group_id, group.log_id, group.name, group.created_at, settings)


async def _locked(tx: Transaction, group: ConsumerGroup) -> ConsumerGroup:
    """Return the group as it is now, with a position in every partition. No subscriber can join or
    leave until the transaction ends."""
    if not await log_groups.lock(tx, group.group_id):
        raise GroupDoesNotExist(group.name)
    found = await log_groups.find(tx, group.log_id, group.name)
    assert found is not None
    return found


async def delete_group(engine: Engine, log: StoredLog, name: str) -> None:
    """Delete a group with its positions; records stay. Raises GroupDoesNotExist."""
    group = await find_group(engine, log, name)
    async with engine.database.transaction() as tx:
        if not await log_groups.delete(tx, group.group_id):
            raise GroupDoesNotExist(name)
        await notify(tx, Notice.LOG_CHANGED, log.log_id)
    engine.logs.changed(log.log_id)
    engine.readers.group_changed(group)


async def position_states(
    engine: Engine, log: StoredLog, group: ConsumerGroup, *, after: int, limit: int
) -> tuple[list[PositionState], bool]:
    """Return a group's positions by partition number, after ``after``, and True if there are
    more."""
    now = engine.clock.of(log.account_id).now()
    async with engine.database.transaction() as tx:
        found = await log_groups.position_states(
            tx, now, group.group_id, after=after, limit=limit + 1
        )
    return found[:limit], len(found) > limit


async def seek(engine: Engine, group: ConsumerGroup, to: str | datetime) -> None:
    """Move a group in all partitions to `earliest`, `latest`, or the first records that were
    published at a time or later. Receipts of unacknowledged records become invalid. Raises
    GroupDoesNotExist."""
    async with engine.database.transaction() as tx:
        group = await _locked(tx, group)
        if to == LATEST:
            await log_groups.seek_all(tx, group.group_id, log_groups.LAST)
        elif isinstance(to, datetime):
            await log_groups.seek_time(tx, group.group_id, to)
        else:
            await log_groups.seek_all(tx, group.group_id, 0)
    engine.readers.group_changed(group)


async def seek_offsets(
    engine: Engine,
    log: StoredLog,
    group: ConsumerGroup,
    offsets: Mapping[int, int],
    *,
    spares_held: bool = False,
) -> None:
    """Move a group in these partitions to these offsets, or to the nearest retained ones.
    ``spares_held``: raise PartitionHeld and do nothing if a live subscriber holds one of them.
    Raises PartitionDoesNotExist and GroupDoesNotExist."""
    partitions = await partitions_numbered(engine, log, offsets)
    places = {partitions[number].partition_id: offset for number, offset in offsets.items()}
    async with engine.database.transaction() as tx:
        group = await _locked(tx, group)
        if spares_held:
            now = engine.clock.of(log.account_id).now()
            held = await log_groups.find_held(tx, now, group.group_id, [*places])
            if held is not None:
                raise PartitionHeld(held)
        await log_groups.seek_offsets(tx, group.group_id, places)
    engine.readers.group_changed(group)


async def dead_letter_log_of(engine: Engine, log: StoredLog, group_name: str | None) -> str:
    """Return the name of the dead-letter log of a group, or of groups without a setting. Raises
    GroupDoesNotExist."""
    if group_name is None:
        return record_dead_letters.log_name(log)
    return record_dead_letters.log_name(log, await find_group(engine, log, group_name))


class SubscriberState(NamedTuple):
    """The state of a subscriber after a heartbeat."""

    session: int
    live_until: datetime
    share: int
    """Maximum number of partitions for this subscriber."""
    partitions: list[LogPartition]


def check_has_subscribers(group: ConsumerGroup) -> None:
    """Raise GroupInvalid for a group that feeds a queue instead."""
    if group.settings.queue is not None:
        raise GroupInvalid(
            f"The group '{group.name}' feeds the queue '{group.settings.queue}': receive from that."
        )


async def heartbeat(
    engine: Engine, log: StoredLog, group: ConsumerGroup, name: str, session: int | None
) -> SubscriberState:
    """Keep a subscriber in a group, or add it. A new session starts without a session, or if the
    given one has expired and was removed. Partitions are rebalanced when subscribers join, leave or
    expire, and when partitions are added. Raises SubscriberFenced if the subscriber is live in a
    later session, GroupDoesNotExist, GroupInvalid and TooManySubscribers."""
    if not names.is_standard_queue_name(name):
        raise GroupInvalid(
            f"A subscriber cannot be called '{name[:100]}'. Allowed are 1 to 80 letters, digits, "
            "hyphens and underscores."
        )
    check_has_subscribers(group)
    now = engine.clock.of(log.account_id).now()
    lease = group.settings.lease_seconds
    beat = None
    if session is not None:
        async with engine.database.transaction() as tx:
            beat = await log_groups.renew(
                tx, now, group.group_id, name, session, lease_seconds=lease
            )
            if beat is not None and beat.is_settled:
                held = await log_groups.held_partitions(tx, group.group_id, name)
                engine.readers.holds(group, name, session, held)
                return SubscriberState(session, beat.live_until, beat.share, held)
    # A transaction of its own: the group is locked before its subscribers.
    is_joining = beat is None
    async with engine.database.transaction() as tx:
        if beat is None:
            session, beat = await _join(engine, tx, now, group, name, session)
        assert session is not None
        balanced = await log_groups.balance(tx, now, group.group_id, name, session)
        if balanced is None:
            raise SubscriberFenced(name)
        held = await log_groups.held_partitions(tx, group.group_id, name)
    engine.readers.holds(group, name, session, held)
    if is_joining or balanced.released or balanced.removed:
        engine.readers.group_changed(group)
    return SubscriberState(session, beat.live_until, balanced.share, held)


async def _join(
    engine: Engine,
    tx: Transaction,
    now: datetime | None,
    group: ConsumerGroup,
    name: str,
    session: int | None,
) -> tuple[int, SubscriberHeartbeat]:
    lease = group.settings.lease_seconds
    joined = await log_groups.join(tx, now, group.group_id, name, session, lease_seconds=lease)
    if joined is None:
        raise SubscriberFenced(name)
    if not joined:
        raise GroupDoesNotExist(group.name)
    beat = await log_groups.renew(tx, now, group.group_id, name, joined, lease_seconds=lease)
    assert beat is not None
    most = engine.limits.log_subscribers
    if beat.live_subscribers > most:
        raise TooManySubscribers(most)
    return joined, beat


async def leave(
    engine: Engine, log: StoredLog, group: ConsumerGroup, name: str, session: int, *, releases: bool
) -> None:
    """Remove a subscriber; its partitions are free at once. Its unacknowledged records stay hidden
    until their leases expire, or with ``releases`` become visible at once, as if not delivered.
    Nothing happens if the subscriber, or its session, is no longer in the group."""
    now = engine.clock.of(log.account_id).now()
    async with engine.database.transaction() as tx:
        # The group first: everyone who locks both locks it before positions.
        if releases and await log_groups.lock(tx, group.group_id):
            await log_deliveries.release(tx, now, group, name, session)
        has_left = await log_groups.leave(tx, group.group_id, name, session)
    if has_left:
        engine.readers.left(group, name, session)
        engine.readers.group_changed(group)


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
    returns. Raises MalformedInput for an invalid receipt."""
    outcomes: list[RecordOutcome] = await answered(start_settling, engine, log, group, settlements)
    return outcomes


def start_settling(
    engine: Engine,
    log: StoredLog,
    group: ConsumerGroup,
    settlements: Sequence[Settlement],
    reply: Reply[list[RecordOutcome]],
) -> None:
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
    """A fetch under way. Its entry replies to it. Call ``cancel`` when the client disconnects:
    records of a flush under way are given back."""

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
            spawn(release(self._engine, self._log, self._group, outcome.records))

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
        asker = request.name, request.session
        self._entry = Fetch(self._log, self._group, asker, request.most, partition_ids, self)
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
    Cancelling gives delivered records back. Raises SubscriberFenced if the subscriber is not in the
    group with this session, and GroupInvalid for a group that feeds a queue."""
    outcome: FetchOutcome = await answered(start_fetching, engine, log, group, request)
    return outcome


def start_fetching(
    engine: Engine,
    log: StoredLog,
    group: ConsumerGroup,
    request: FetchRequest,
    reply: Reply[FetchOutcome],
) -> Fetching:
    check_has_subscribers(group)
    return Fetching(engine, log, group, request, reply)


async def release(
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

"""Deliveries of records to groups: the lane, with its entries of fetches and settlements.

A flush loads positions, lets ``storage.logs.positions`` decide, reads the records to deliver and
stores the changes, in that order. It takes no locks, and stores nothing if one of the positions has
changed meanwhile. Then, and to write dead letters, it is repeated with locks in one transaction.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from queuegate.storage.database import RECEIVE_PLANNER, Database
from queuegate.storage.lanes import ClockNow, Entry, Lane, Reply
from queuegate.storage.logs import record_dead_letters
from queuegate.storage.logs.positions import Due, Position
from queuegate.storage.logs.record_dead_letters import FailedRecord
from queuegate.storage.model import (
    ConsumerGroup,
    Delivered,
    ReceiptAction,
    RecordOutcome,
    StoredLog,
    StoredRecord,
)
from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Connection, Transaction


class Change(NamedTuple):
    """One operation on a record."""

    partition_id: int
    receipt: tuple[int, int]
    """The offset and the delivery number."""
    do: ReceiptAction
    delay_ms: int | None = None
    error: str = ""
    """The error of a resulting dead letter."""


def runs_of(changes: Sequence[Change]) -> Iterator[tuple[Change, int]]:
    """Yield each run of acks of one delivery with consecutive offsets, as its first entry and
    length; any other entry by itself."""
    if not changes:
        return
    first, count = changes[0], 1
    for change in changes[1:]:
        offset, number = first.receipt
        if (
            change.do is ReceiptAction.ACK is first.do
            and change.receipt == (offset + count, number)
            and change.partition_id == first.partition_id
        ):
            count += 1
        else:
            yield first, count
            first, count = change, 1
    yield first, count


class Fetched(NamedTuple):
    """The result of a fetch."""

    records: list[Delivered]
    is_known: bool
    """False: the subscriber is not in the group, or has another session."""
    is_settled: bool
    """False: a heartbeat must rebalance its partitions."""
    left: list[int]
    """Partitions that have more."""
    due_in_ms: int | None
    """Time until another partition has records, as a full poll can tell."""
    held: Sequence[int] | None
    """Partitions that the subscriber holds; None: not all were polled."""
    lost: list[int]
    """Partitions that the subscriber does not hold."""
    again: int
    """The number of redelivered records."""


class Fetch(Entry[Fetched]):
    """A fetch of at most ``most`` records from partitions that a subscriber holds.

    ``partition_ids`` are the partitions to poll; None: all it holds.
    """

    __slots__ = ("group", "log", "most", "name", "partition_ids", "session")

    def __init__(
        self,
        log: StoredLog,
        group: ConsumerGroup,
        subscriber: tuple[str, int],
        most: int,
        partition_ids: Sequence[int] | None,
        reply: Reply[Fetched],
    ) -> None:
        super().__init__(reply)
        self.log = log
        self.group = group
        self.name, self.session = subscriber
        self.most = most
        self.partition_ids = partition_ids

    def party(self) -> str:
        """Return the log."""
        return self.log.arn


class Settle(Entry[list[RecordOutcome]]):
    """Operations on records of a group, applied all or none."""

    __slots__ = ("changes", "group", "log")

    def __init__(
        self,
        log: StoredLog,
        group: ConsumerGroup,
        changes: Sequence[Change],
        reply: Reply[list[RecordOutcome]],
    ) -> None:
        super().__init__(reply, 64 * len(changes))
        self.log = log
        self.group = group
        self.changes = changes

    def party(self) -> str:
        """Return the log."""
        return self.log.arn


_SQL = load("logs/log_deliveries")
_LOOK = _SQL["look"].text
_LOCK = _SQL["lock"].text
_LOAD = _SQL["load"].text
_READ = _SQL["read"].text
_STORE = _SQL["store"].text
_LOCK_HELD = _SQL["lock_held"].text

_UNKNOWN, _DEAD, _UNSETTLED = 0, 1, 2
"""Standings of a subscriber: ``subscriber_standing`` in functions/log_groups.sql."""
_READ_BYTES: Final = 4 << 20
"""Bytes that a flush reads. The next fetch continues."""
_LOOKED_AT: Final = 1_000
"""Limit of non-empty partitions of a subscriber that a poll returns."""
_TURN: Final = 2_000
"""Spans and positions processed before a yield to the event loop."""
_MOST_CHANGES: Final = 1_000
"""Receipts of a flush, unless its first entry has more."""
_MOST_NUMBERS: Final = 20_000
"""Limit of span numbers of positions per fetch. It leaves the others."""
_LOCK_SECONDS = 1.0
"""Period in which flushes begin with locks after a repeated one."""
_EXPIRED = "The visibility timeout of the last attempt ended."

Key = tuple[int, int]
"""A group and a partition."""


@dataclass(slots=True)
class _Loaded:
    """A position with the bounds of its partition, from one snapshot."""

    held_by: str | None
    number: int
    key: str | None
    start_offset: int
    next_offset: int
    version: int
    position: Position
    group: ConsumerGroup
    is_changed: bool = False
    is_given: bool = False
    """A fetch of this flush has claimed it."""
    due_at: int | None = None
    """The next delivery time after this flush."""


@dataclass(slots=True)
class _Given:
    """The deliverable part of a partition for a fetch."""

    fetch: Fetch
    partition_id: int
    loaded: _Loaded
    dues: list[Due]
    records: list[StoredRecord] = field(default_factory=list)


@dataclass(slots=True)
class _Look:
    """The partitions of a fetch."""

    partition_ids: Sequence[int]
    standing: int | None = None
    """None: not requested."""
    next_at: int | None = None
    held: Sequence[int] | None = None
    rest: Sequence[int] = ()
    """Further partitions with records, for the next fetch."""


class _Again(Exception):
    """Nothing was stored: repeat the flush with locks."""


class DeliveryLane:
    """One lane, which connects at its first entry.

    ``on_due`` receives the milliseconds until a group's next delivery in each partition polled;
    None: after the next publish.
    """

    def __init__(self, database: Database, clock_now: ClockNow) -> None:
        self._now = clock_now
        self._locks_until = 0.0
        self.on_due: Callable[[int, int, int | None], None] = lambda *_: None
        self.on_buried: Callable[[list[FailedRecord], dict[int, int]], None] = lambda *_: None
        """Called with dead letters, their target partitions and the logs of these."""
        self.on_delivered: Callable[[Fetch, Fetched], None] = lambda *_: None
        """Called with a fetch that got records."""
        self.lane: Lane[Fetch | Settle] = Lane(
            "deliver", database, self._flush, settings=RECEIVE_PLANNER
        )

    async def close(self) -> None:
        """Finish the pending entries and close the connection."""
        await self.lane.close()

    async def _flush(
        self, connection: Connection, batch: list[Fetch | Settle]
    ) -> list[Fetch | Settle]:
        batch, left = _portion(batch)
        now = self.lane.now_of(batch[0].party(), self._now)
        time = asyncio.get_running_loop().time
        flush = _Flush(batch, now)
        try:
            if time() < self._locks_until:
                raise _Again
            await flush.run(connection, is_locked=False)
        except _Again:
            flush = _Flush(batch, now)
            async with connection.transaction():
                await flush.run(connection, is_locked=True)
            if not flush.dead:
                self._locks_until = time() + _LOCK_SECONDS
        self._tell(flush)
        return left

    def _tell(self, flush: _Flush) -> None:
        if flush.dead:
            self.on_buried(flush.dead, flush.appended_to)
        for (group_id, partition_id), loaded in flush.loaded.items():
            in_ms = None if loaded.due_at is None else loaded.due_at - flush.now_ms
            self.on_due(group_id, partition_id, in_ms)
        for settle, outcomes in flush.settled:
            settle.done(outcomes)
        for fetch, fetched in flush.fetched:
            if fetched.records:
                self.on_delivered(fetch, fetched)
            fetch.done(fetched)


def _portion(batch: list[Fetch | Settle]) -> tuple[list[Fetch | Settle], list[Fetch | Settle]]:
    """Split off the entries of one flush; the others wait for the next one."""
    changes = 0
    for place, entry in enumerate(batch):
        changes += len(entry.changes) if isinstance(entry, Settle) else 0
        if changes > _MOST_CHANGES and place:
            return batch[:place], batch[place:]
    return batch, []


class _Flush:
    """One attempt at a flush, which answers nothing before its end."""

    def __init__(self, batch: Sequence[Fetch | Settle], now: datetime | None) -> None:
        self._now = now
        self._fetches = [entry for entry in batch if isinstance(entry, Fetch)]
        self._settles = [entry for entry in batch if isinstance(entry, Settle)]
        self.now_ms = 0
        self.loaded: dict[Key, _Loaded] = {}
        self.dead: list[FailedRecord] = []
        self.appended_to: dict[int, int] = {}
        self.settled: list[tuple[Settle, list[RecordOutcome]]] = []
        self.fetched: list[tuple[Fetch, Fetched]] = []
        self._left: set[Key] = set()
        """Positions that fetches have not examined."""
        self._turn = _TURN
        self._again: Counter[int] = Counter()
        """Redelivered records, by the identity of their fetch."""

    async def run(self, tx: Transaction, *, is_locked: bool) -> None:
        """Execute all entries. Raises ``_Again`` if it needs locks and has none."""
        looks = await self._look(tx)
        await self._load(tx, looks, is_locked=is_locked)
        for settle in self._settles:
            self.settled.append((settle, await self._settle(settle)))
        given = self._choose(looks)
        await self._read(tx, given)
        delivered = self._deliver(given)
        if self.dead and not is_locked:
            raise _Again
        if self.dead:
            self.appended_to = await record_dead_letters.write(
                tx, self._now, self.now_ms, self.dead
            )
        await self._store(tx)
        await self._answer(looks, delivered)

    async def _give_way(self, position: Position) -> None:
        """Yield to the event loop after a share of work."""
        self._turn -= 1 + len(position.spans)
        if self._turn < 0:
            self._turn = _TURN
            await asyncio.sleep(0)

    async def _look(self, tx: Transaction) -> list[_Look]:
        looks = [_Look(fetch.partition_ids or ()) for fetch in self._fetches]
        asking = [place for place, one in enumerate(self._fetches) if one.partition_ids is None]
        if asking:
            fetches = [self._fetches[place] for place in asking]
            rows = await tx.fetch(
                _LOOK,
                self._now,
                [fetch.group.group_id for fetch in fetches],
                [fetch.name for fetch in fetches],
                [fetch.session for fetch in fetches],
                _LOOKED_AT,
            )
            for place, standing, found, next_at, held_ids, now_ms in rows:
                self.now_ms = now_ms
                partition_ids = found or ()
                if len(partition_ids) == _LOOKED_AT:
                    next_at = now_ms
                most = fetches[place].most
                looks[asking[place]] = _Look(
                    partition_ids[:most], standing, next_at, held_ids or (), partition_ids[most:]
                )
        return looks

    async def _load(self, tx: Transaction, looks: list[_Look], *, is_locked: bool) -> None:
        groups, readers = self._wanted(looks)
        if not groups:
            return
        keys = sorted(groups)
        group_ids, partition_ids = zip(*keys, strict=True)
        if is_locked:
            await tx.execute(_LOCK, group_ids, partition_ids)
        rows = await tx.fetch(
            _LOAD,
            self._now,
            _text(group_ids),
            _text(partition_ids),
            _text(readers.get(key, 0) for key in keys),
            [fetch.group.group_id for fetch in self._fetches],
            [fetch.name for fetch in self._fetches],
            [fetch.session for fetch in self._fetches],
            _MOST_NUMBERS,
        )
        for place, standing, now_ms, held_by, number, partition_key, *rest in rows:
            key = keys[place]
            self.now_ms = now_ms
            if standing is not None:
                looks[abs(readers[key]) - 1].standing = standing
            if number is None:
                continue
            start, end, version, *columns = rest
            if columns[-1] is None:
                self._left.add(key)
                continue
            position = Position(*columns)
            self.loaded[key] = _Loaded(
                held_by, number, partition_key, start, end, version, position, groups[key]
            )
            await self._give_way(position)

    def _wanted(self, looks: list[_Look]) -> tuple[dict[Key, ConsumerGroup], dict[Key, int]]:
        """Return positions to load, and the fetch of each, encoded as for the statement."""
        groups: dict[Key, ConsumerGroup] = {}
        readers: dict[Key, int] = {}
        for settle in self._settles:
            for change in settle.changes:
                groups[settle.group.group_id, change.partition_id] = settle.group
        for place, (fetch, look) in enumerate(zip(self._fetches, looks, strict=True), 1):
            for partition_id in look.partition_ids:
                key = fetch.group.group_id, partition_id
                readers.setdefault(key, -place if key in groups else place)
                groups[key] = fetch.group
        return groups, readers

    async def _settle(self, settle: Settle) -> list[RecordOutcome]:
        outcomes: list[RecordOutcome] = []
        for change, count in runs_of(settle.changes):
            loaded = self.loaded.get((settle.group.group_id, change.partition_id))
            if loaded is None:
                outcomes += [RecordOutcome.GONE] * count
                continue
            await self._give_way(loaded.position)
            offset, number = change.receipt
            end = offset + count
            while offset < end:
                acked = loaded.position.ack(offset, number, end - offset) if count > 1 else 0
                if acked:
                    loaded.is_changed = True
                    outcomes += [RecordOutcome.DONE] * acked
                    offset += acked
                else:
                    outcomes.append(self._settle_one(settle, loaded, change, offset))
                    offset += 1
        return outcomes

    def _settle_one(
        self, settle: Settle, loaded: _Loaded, change: Change, offset: int
    ) -> RecordOutcome:
        attempts = loaded.position.attempts(offset)
        outcome = loaded.position.settle(
            self.now_ms,
            settle.group.policy,
            (offset, change.receipt[1]),
            change.do,
            change.delay_ms,
        )
        if outcome is RecordOutcome.DEAD:
            place = settle.log, settle.group, change.partition_id, loaded.number, offset
            self.dead.append(FailedRecord(*place, attempts, change.error))
        loaded.is_changed |= outcome in (RecordOutcome.DONE, RecordOutcome.DEAD)
        return outcome

    def _choose(self, looks: list[_Look]) -> list[_Given]:
        """Return the deliverable parts for each fetch, in the order of its partitions."""
        given: list[_Given] = []
        for fetch, look in zip(self._fetches, looks, strict=True):
            room = fetch.most
            if look.standing in (None, _UNKNOWN, _DEAD):
                continue
            for partition_id in look.partition_ids:
                loaded = self.loaded.get((fetch.group.group_id, partition_id))
                if loaded is None or loaded.held_by != fetch.name or loaded.is_given or room <= 0:
                    continue
                loaded.position.pass_over(loaded.start_offset)
                dues = loaded.position.due(
                    self.now_ms, fetch.group.policy, end=loaded.next_offset, most=room
                )
                if dues:
                    loaded.is_given = True
                    room -= sum(due.length for due in dues if not due.is_spent)
                    given.append(_Given(fetch, partition_id, loaded, dues))
        return given

    async def _read(self, tx: Transaction, given: list[_Given]) -> None:
        """Read the deliverable records, and drop those beyond the bytes of a flush."""
        ranges = [(one, due) for one in given for due in one.dues]
        if not ranges:
            return
        rows = await tx.fetch(
            _READ,
            _text(one.fetch.group.group_id for one, _ in ranges),
            _text(one.partition_id for one, _ in ranges),
            _text(due.first for _, due in ranges),
            _text(due.last for _, due in ranges),
            _READ_BYTES,
        )
        total = 0
        for row in rows:
            place, *columns, total = row
            ranges[place][0].records.append(StoredRecord(*columns))
        if total < _READ_BYTES:
            return
        last_place, last_offset = rows[-1][0], rows[-1][1]
        for place, (one, due) in enumerate(ranges):
            if place == last_place:
                one.dues[one.dues.index(due)] = due._replace(last=last_offset)
            elif place > last_place:
                one.dues.remove(due)

    def _deliver(self, given: list[_Given]) -> dict[int, list[Delivered]]:
        """Return the deliveries of each fetch, by its identity."""
        delivered: dict[int, list[Delivered]] = {}
        for one in given:
            if not one.dues:
                continue
            policy, loaded = one.fetch.group.policy, one.loaded
            attempts = {
                offset: due.attempts
                for due in one.dues
                if due.attempts
                for offset in range(due.first, due.last + 1)
            }
            loaded.is_changed = True
            present = {record.offset for record in one.records}
            spent = loaded.position.deliver(self.now_ms, policy, one.dues, present)
            gone = {offset for offset, _ in spent}
            where = one.fetch.log, one.fetch.group, one.partition_id, loaded.number
            self.dead += [FailedRecord(*where, *record, _EXPIRED) for record in spent]
            if attempts:
                self._again[id(one.fetch)] += len((present - gone) & attempts.keys())
            number = loaded.position.deliveries
            until = self.now_ms + policy.visibility_ms
            delivered.setdefault(id(one.fetch), []).extend(
                Delivered(
                    one.partition_id,
                    loaded.number,
                    loaded.key if record.key is None else record.key,
                    record,
                    attempts.get(record.offset, 0) + 1,
                    number,
                    until,
                )
                for record in one.records
                if record.offset not in gone
            )
        return delivered

    async def _store(self, tx: Transaction) -> None:
        changed = [
            (*key, one.version, one.position) for key, one in self.loaded.items() if one.is_changed
        ]
        if changed and not await store(tx, changed):
            raise _Again

    async def _answer(self, looks: list[_Look], delivered: Mapping[int, list[Delivered]]) -> None:
        for one in self.loaded.values():
            one.due_at = one.position.next_due(self.now_ms, one.group.policy, end=one.next_offset)
            await self._give_way(one.position)
        for fetch, look in zip(self._fetches, looks, strict=True):
            lost, left = [], list(look.rest)
            for partition_id in look.partition_ids:
                key = fetch.group.group_id, partition_id
                loaded = self.loaded.get(key)
                if key in self._left:
                    left.append(partition_id)
                elif loaded is None or loaded.held_by != fetch.name:
                    lost.append(partition_id)
                elif loaded.due_at is not None and loaded.due_at <= self.now_ms:
                    left.append(partition_id)
            due_in_ms = None if look.next_at is None else max(look.next_at - self.now_ms, 0)
            fetched = Fetched(
                delivered.get(id(fetch), []),
                look.standing != _UNKNOWN,
                look.standing not in (_UNKNOWN, _DEAD, _UNSETTLED),
                left,
                due_in_ms,
                look.held,
                lost,
                self._again[id(fetch)],
            )
            self.fetched.append((fetch, fetched))


async def store(tx: Transaction, changed: Sequence[tuple[int, int, int, Position]]) -> bool:
    """Store positions of (group, partition, version), all or, if one has changed, none."""
    spans: list[int] = []
    lows, highs = [], []
    group_ids, partition_ids, versions, positions = zip(*changed, strict=True)
    for position in positions:
        lows.append(len(spans) + 1)
        spans += position.stored()
        highs.append(len(spans))
    stored: int = await tx.fetchval(
        _STORE,
        _text(group_ids),
        _text(partition_ids),
        _text(versions),
        _text(position.watermark for position in positions),
        _text(position.head for position in positions),
        _text(position.deliveries for position in positions),
        _text(position.barrier_until for position in positions),
        _text(lows),
        _text(highs),
        _text(spans),
    )
    return stored == len(changed)


def _text(numbers: Iterable[int]) -> str:
    """Return the text of an array."""
    return "{" + ",".join(map(str, numbers)) + "}"


async def release(
    tx: Transaction, now: datetime | None, group: ConsumerGroup, name: str, session: int
) -> None:
    """Release the unfinished records of a subscriber in the partitions that it holds."""
    changed = []
    rows = await tx.fetch(_LOCK_HELD, now, group.group_id, name, session)
    for partition_id, version, held_since, now_ms, *columns in rows:
        position = Position(*columns)
        if position.give_back(now_ms, held_since):
            changed.append((group.group_id, partition_id, version, position))
    if changed:
        await store(tx, changed)

"""A log as plain Python: what it holds, and what each group has done with it.

The model is told what was done and answered; it says whether a log could have answered so. What a
position is, ``storage/logs/positions.py`` says; here it is an entry for each offset, and slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from queuegate.storage.model import (
    ConsumerGroupSettings,
    LogRetention,
    ReceiptAction,
    RecordOutcome,
)
from tests.simulation.model import Impossible


class ModelRecord(NamedTuple):
    """A record that is kept."""

    payload: str
    published_at: datetime
    record_id: str | None = None
    only_group: str | None = None


class Letter(NamedTuple):
    """A dead letter."""

    group: str
    number: int
    offset: int
    attempts: int
    payload: str
    key: str


class Receipt(NamedTuple):
    """A receipt that a fetch gave for a record."""

    number: int
    offset: int
    delivery: int


@dataclass
class ModelPartition:
    """A partition: ``records`` by offset, without those that are gone."""

    key: str
    start: int = 0
    end: int = 0
    records: dict[int, ModelRecord] = field(default_factory=dict)

    def known(self, record_id: str | None) -> int | None:
        """The offset of the record with this id."""
        return next(
            (n for n, one in self.records.items() if record_id and one.record_id == record_id), None
        )

    def append(self, record: ModelRecord) -> int:
        self.records[self.end] = record
        self.end += 1
        return self.end - 1

    def begin_at(self, start: int) -> None:
        self.start = start
        self.records = {n: one for n, one in self.records.items() if n >= start}


@dataclass
class State:
    """Of an offset between watermark and head."""

    visible_at: int = 0
    attempts: int = 0
    delivery: int = 0
    """0: it waits."""
    is_done: bool = False


@dataclass
class ModelPosition:
    """The position of a group in a partition."""

    watermark: int
    head: int
    deliveries: int = 0
    barrier_until: int = 0
    states: dict[int, State] = field(default_factory=dict)
    holder: str | None = None
    held_since: int = 0

    def copy(self) -> ModelPosition:
        return replace(self, states={offset: replace(one) for offset, one in self.states.items()})

    def out(self, now: int) -> int:
        """Return how many records are delivered and hidden."""
        return sum(one.delivery > 0 and one.visible_at > now for one in self.states.values())

    def due(
        self, now: int, settings: ConsumerGroupSettings, end: int, most: int
    ) -> dict[int, bool]:
        """Return the offsets that a fetch may get, in order; True if their attempts are spent."""
        found: dict[int, bool] = {}
        if now < self.barrier_until:
            return found
        room = min(most, settings.batch_size - self.out(now))
        steps = settings.batch_size
        for offset, state in sorted(self.states.items()):
            if state.is_done or state.visible_at > now:
                continue
            is_spent = state.attempts >= settings.max_attempts
            if (steps if is_spent else room) > 0:
                found[offset] = is_spent
                steps -= is_spent
                room -= not is_spent
        found.update(dict.fromkeys(range(self.head + 1, min(end, self.head + 1 + room)), False))
        return found

    def finish(self, offset: int) -> None:
        self.states[offset] = State(is_done=True)
        while self.watermark < self.head and self.states[self.watermark + 1].is_done:
            self.watermark += 1
            del self.states[self.watermark]

    def pass_over(self, start: int) -> None:
        """There is nothing below it any more."""
        if start - 1 > self.watermark:
            self.watermark = start - 1
            self.head = max(self.head, self.watermark)
            self.states = {n: one for n, one in self.states.items() if n >= start}
            if self.watermark < self.head and self.states[start].is_done:
                self.finish(start)

    def seek(self, offset: int) -> None:
        self.watermark = self.head = offset - 1
        self.states.clear()
        self.barrier_until = 0


class ModelSubscriber(NamedTuple):
    """A subscriber with its last session."""

    session: int
    live_until: datetime


@dataclass
class ModelGroup:
    """A group. Positions by number of their partition."""

    name: str
    settings: ConsumerGroupSettings
    positions: dict[int, ModelPosition] = field(default_factory=dict)
    subscribers: dict[str, ModelSubscriber] = field(default_factory=dict)
    sessions: set[int] = field(default_factory=set)
    """All that there ever were."""

    def copy(self) -> ModelGroup:
        return replace(
            self,
            positions={number: one.copy() for number, one in self.positions.items()},
            subscribers={**self.subscribers},
            sessions={*self.sessions},
        )

    def is_live(self, name: str | None, now: datetime) -> bool:
        one = self.subscribers.get(name or "")
        return one is not None and one.live_until > now

    def held_by(self, name: str) -> list[int]:
        return [n for n, one in sorted(self.positions.items()) if one.holder == name]

    def is_holder(self, name: str, session: int) -> bool:
        one = self.subscribers.get(name)
        return one is not None and one.session == session

    def join(self, name: str, session: int, live_until: datetime, held: Iterable[int]) -> None:
        """A heartbeat was answered so."""
        before = self.subscribers.get(name)
        self.subscribers[name] = ModelSubscriber(session, live_until)
        self.sessions.add(session)
        is_new = before is None or before.session != session
        held = set(held)
        for number, position in self.positions.items():
            if number in held and (is_new or position.holder != name):
                position.holder, position.held_since = name, position.deliveries
            elif number not in held and position.holder == name:
                position.holder = None

    def leave(self, name: str, *, releases: bool, now: int) -> None:
        del self.subscribers[name]
        for position in self.positions.values():
            if position.holder != name:
                continue
            position.holder = None
            for state in position.states.values() if releases else ():
                if state.delivery > position.held_since and state.visible_at > now:
                    state.visible_at, state.delivery = now, 0
                    state.attempts -= 1


class Delivery(NamedTuple):
    """A record as a fetch gave it, or would have."""

    number: int
    offset: int
    attempt: int
    delivery: int
    payload: str


@dataclass
class ModelLog:
    """A log whose keys have partitions of their own."""

    settings: LogRetention
    partitions: list[ModelPartition] = field(default_factory=list)
    groups: dict[str, ModelGroup] = field(default_factory=dict)
    letters: list[Letter] = field(default_factory=list)

    def copy(self) -> ModelLog:
        return ModelLog(
            self.settings,
            [replace(one, records={**one.records}) for one in self.partitions],
            {name: one.copy() for name, one in self.groups.items()},
            [*self.letters],
        )

    def number_of(self, key: str) -> int:
        """Of the partition of a key, which is made if there is none."""
        for number, partition in enumerate(self.partitions):
            if partition.key == key:
                return number
        self.partitions.append(ModelPartition(key))
        return len(self.partitions) - 1

    def make_positions(self, group: ModelGroup) -> None:
        """Start the group at the first kept record of each partition where it has no position."""
        for number, partition in enumerate(self.partitions):
            before = partition.start - 1
            group.positions.setdefault(number, ModelPosition(before, before))

    def present(self, group: ModelGroup, number: int) -> dict[int, ModelRecord]:
        """The records of a partition that are for this group."""
        records = self.partitions[number].records
        return {n: one for n, one in records.items() if one.only_group in (None, group.name)}

    # Delivering

    def deliver(
        self, group: ModelGroup, numbers: Sequence[int], now: int, most: int
    ) -> list[Delivery]:
        """Return the records that a fetch gets from these partitions of its subscriber."""
        found: list[Delivery] = []
        for number in numbers:
            if most <= 0:
                break
            end = self.partitions[number].end
            passed = group.positions[number].copy()
            passed.pass_over(self.partitions[number].start)
            dues = passed.due(now, group.settings, end, most)
            if dues:
                group.positions[number] = passed
                most -= sum(not is_spent for is_spent in dues.values())
                found += self._deliver(group, number, dues, now)
        return found

    def _deliver(
        self, group: ModelGroup, number: int, dues: dict[int, bool], now: int
    ) -> list[Delivery]:
        position, present = group.positions[number], self.present(group, number)
        position.deliveries += 1
        until = now + round(group.settings.visibility_timeout_seconds * 1000)
        found = []
        for offset in dues:
            position.head = max(position.head, offset)
            position.states.setdefault(offset, State())
        for offset, is_spent in dues.items():
            attempts = position.states[offset].attempts
            if is_spent and offset in present:
                self._bury(group, number, offset, attempts)
            if is_spent or offset not in present:
                position.finish(offset)
                continue
            position.states[offset] = State(until, attempts + 1, position.deliveries)
            found.append(
                Delivery(number, offset, attempts + 1, position.deliveries, present[offset].payload)
            )
        return found

    def _bury(self, group: ModelGroup, number: int, offset: int, attempts: int) -> None:
        """Dead-letter a record, unless it is not kept any more."""
        partition = self.partitions[number]
        record = partition.records.get(offset)
        if record is not None:
            self.letters.append(
                Letter(group.name, number, offset, attempts, record.payload, partition.key)
            )

    def left(self, group: ModelGroup, numbers: Sequence[int], now: int) -> list[tuple[int, int]]:
        """Return what a fetch would get of these partitions, by partition and offset."""
        found = []
        for number in numbers:
            position, partition = group.positions[number].copy(), self.partitions[number]
            position.pass_over(partition.start)
            present = self.present(group, number)
            dues = position.due(now, group.settings, partition.end, 1_000)
            found += [
                (number, offset)
                for offset, is_spent in dues.items()
                if offset in present and not is_spent
            ]
        return found

    def check_delivered(self, group: ModelGroup, got: Sequence[Delivery], now: int) -> None:
        """Check the promises of each partition. Call before ``deliver``."""
        for number in {one.number for one in got}:
            mine = [one for one in got if one.number == number]
            position = group.positions[number].copy()
            position.pass_over(self.partitions[number].start)
            self._check_each(group, position, mine, now)
            if position.out(now) + len(mine) > group.settings.batch_size:
                raise Impossible(f"more than {group.settings.batch_size} are out: {mine}")
            offsets = [one.offset for one in mine]
            skipped = [
                offset
                for offset in range(position.watermark + 1, offsets[-1])
                if offset not in offsets and self._is_due(group, number, position, offset, now)
            ]
            if skipped or offsets != sorted(offsets):
                raise Impossible(f"{mine} skipped {skipped}")

    def _check_each(
        self, group: ModelGroup, position: ModelPosition, mine: list[Delivery], now: int
    ) -> None:
        for one in mine:
            state = position.states.get(one.offset, State())
            if one.offset <= position.watermark or state.is_done:
                raise Impossible(f"{one} was done before")
            if now < position.barrier_until or state.visible_at > now:
                raise Impossible(f"{one} is hidden until {state.visible_at}")
            if one.attempt != state.attempts + 1:
                raise Impossible(f"{one} is another attempt than {state.attempts} + 1")
            record = self.present(group, one.number).get(one.offset)
            if record is None or record.payload != one.payload:
                raise Impossible(f"{one} is not what was published: {record}")
            if one.delivery <= position.deliveries:
                raise Impossible(f"{one} has a receipt that was there before")

    def _is_due(
        self, group: ModelGroup, number: int, position: ModelPosition, offset: int, now: int
    ) -> bool:
        state = position.states.get(offset, State())
        is_open = not state.is_done and state.attempts < group.settings.max_attempts
        return is_open and state.visible_at <= now and offset in self.present(group, number)

    # Receipts

    def settle(
        self, group: ModelGroup, receipt: Receipt, do: ReceiptAction, delay: float | None, now: int
    ) -> RecordOutcome:
        """Do this with a receipt, and what comes of it."""
        number, offset, delivery = receipt
        position = group.positions[number]
        state = position.states.get(offset)
        if offset > position.head:
            return RecordOutcome.SUPERSEDED
        if state is None or state.is_done:
            return RecordOutcome.DONE if do is ReceiptAction.ACK else RecordOutcome.GONE
        if state.delivery != delivery:
            return RecordOutcome.SUPERSEDED
        is_last = do is ReceiptAction.NACK and state.attempts >= group.settings.max_attempts
        if do is ReceiptAction.REJECT or is_last:
            self._bury(group, number, offset, state.attempts)
            position.finish(offset)
            return RecordOutcome.DEAD
        later = now + round((delay or 0) * 1000)
        if do is ReceiptAction.ACK:
            position.finish(offset)
        elif do is ReceiptAction.EXTEND:
            state.visible_at = later
        elif do is ReceiptAction.POSTPONE:
            position.barrier_until = max(position.barrier_until, later)
            position.states[offset] = State(later)
        elif do is ReceiptAction.RELEASE:
            position.states[offset] = State(now, state.attempts - 1)
        else:
            if delay is None:
                later = now + _backoff_ms(group.settings, state.attempts)
            position.states[offset] = State(later, state.attempts)
        return RecordOutcome.DONE

    # Records that go

    def collect(self, now: datetime) -> None:
        """Let partitions begin behind what nobody needs any more."""
        consumed_until, age_until = (
            now - timedelta(seconds=seconds) if seconds is not None else None
            for seconds in (self.settings.retain_consumed_seconds, self.settings.max_age_seconds)
        )
        for number, partition in enumerate(self.partitions):
            consumed_to = self.consumed_to(number)
            for offset, record in sorted(partition.records.items()):
                is_old = age_until is not None and record.published_at <= age_until
                is_read = consumed_until is not None and record.published_at <= consumed_until
                if not is_old and not (is_read and offset < consumed_to):
                    break
                partition.begin_at(offset + 1)

    def consumed_to(self, number: int) -> int:
        """Return the next offset of the slowest group."""
        nothing = ModelPosition(-1, -1)
        found = [one.positions.get(number, nothing) for one in self.groups.values()]
        return min(one.watermark for one in found) + 1

    def requeue(self, letters: Iterable[Letter], now: datetime) -> None:
        """These go back, for their group alone, in this order."""
        for letter in letters:
            self.letters.remove(letter)
            record = ModelRecord(letter.payload, now, None, letter.group)
            self.partitions[self.number_of(letter.key)].append(record)


def _backoff_ms(settings: ConsumerGroupSettings, attempts: int) -> int:
    seconds = settings.backoff_seconds * settings.backoff_factor ** (attempts - 1)
    return round(min(seconds, settings.most_backoff_seconds) * 1000)

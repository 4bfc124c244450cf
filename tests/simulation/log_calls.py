"""Calls of simulated log clients; each reports its result to the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from queuegate.gateway.operations.access.authorization import PUBLISH_RECORDS
from queuegate.gateway.operations.logs import consumer_groups, log_records
from queuegate.gateway.operations.logs.consumer_groups import (
    FetchRequest,
    Settlement,
    fetch,
    settle,
)
from queuegate.gateway.operations.logs.log_records import RecordToPublish, publish_records
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.scheduler.sweeps import remove_records, retire_records
from queuegate.storage.model import ConsumerGroup, Delivered, ReceiptAction, StoredLog
from queuegate.storage.storage_errors import PartitionHeld, SubscriberFenced
from tests.simulation.log_model import Delivery, ModelGroup, ModelLog, ModelRecord, Receipt
from tests.simulation.log_world import Seen
from tests.simulation.model import Impossible
from tests.simulation.world import CALLER, StandingClock

Answer = Any
"""What a call answered, the refusal included; None: it crashed before anybody knew."""


class Call:
    """One of them. ``now`` is the instant at which all of it happens."""

    def __init__(self, clock: StandingClock) -> None:
        self.now = clock.instant_now
        self.now_ms = round(self.now.timestamp() * 1000)
        self.clock = clock

    async def call(self, engine: Engine) -> Answer:
        raise NotImplementedError

    def happened(self, model: ModelLog, answer: Answer, seen: Seen) -> None:
        """It was done, and answered so. Raises Impossible."""
        raise NotImplementedError

    def crashed(self, model: ModelLog, seen: Seen) -> list[ModelLog]:
        """Return the possible states when the call's result is unknown."""
        before, after = model.copy(), model.copy()
        self.happened(after, None, seen)
        return [before, after]


class Publish(Call):
    """Of records (key, payload, id)."""

    def __init__(
        self, clock: StandingClock, log: StoredLog, records: Sequence[tuple[str, str, str | None]]
    ) -> None:
        super().__init__(clock)
        self.log = log
        self.records = records

    def __str__(self) -> str:
        return f"{self.records}"

    async def call(self, engine: Engine) -> Answer:
        some = [RecordToPublish(key, payload.encode(), one) for key, payload, one in self.records]
        found = await publish_records(engine, CALLER, PUBLISH_RECORDS, self.log.name, some)
        repeats = found.duplicates or [False] * len(some)
        return [
            (partition.number, offset, is_repeat)
            for partition, offset, is_repeat in zip(
                found.partitions, found.offsets, repeats, strict=True
            )
        ]

    def happened(self, model: ModelLog, answer: Answer, seen: Seen) -> None:
        places = []
        for key, payload, record_id in self.records:
            number = model.number_of(key)
            known = model.partitions[number].known(record_id)
            if known is None:
                record = ModelRecord(payload, self.now, record_id)
                places.append((number, model.partitions[number].append(record), False))
            else:
                places.append((number, known, True))
        if answer not in (None, places):
            raise Impossible(f"published to {answer}, not {places}")

    def crashed(self, model: ModelLog, seen: Seen) -> list[ModelLog]:
        """Partitions are made before, and may be left without a record."""
        between = model.copy()
        for key, _, _ in self.records:
            between.number_of(key)
        return [*super().crashed(model, seen), between]


@dataclass(eq=False)
class Client:
    """A subscriber with a session, or one that had it."""

    group: ConsumerGroup
    name: str
    session: int | None = None

    def __str__(self) -> str:
        return f"{self.group.name}/{self.name}.{self.session}"

    def in_model(self, model: ModelLog) -> ModelGroup:
        return model.groups[self.group.name]


class Beat(Call):
    """A heartbeat."""

    def __init__(self, clock: StandingClock, log: StoredLog, client: Client) -> None:
        super().__init__(clock)
        self.log = log
        self.client = client
        self.session = client.session

    def __str__(self) -> str:
        return f"{self.client}"

    async def call(self, engine: Engine) -> Answer:
        client = self.client
        return await consumer_groups.heartbeat(
            engine, self.log, client.group, client.name, self.session
        )

    def happened(self, model: ModelLog, answer: Answer, seen: Seen) -> None:
        group, name = self.client.in_model(model), self.client.name
        before = group.subscribers.get(name)
        is_mine = before is not None and before.session == self.session
        is_live = group.is_live(name, self.now)
        is_fenced = isinstance(answer, SubscriberFenced)
        if is_fenced != (is_live and self.session is not None and not is_mine):
            raise Impossible(f"{self} heard {answer}, after {before}")
        if is_fenced:
            return
        session = answer.session
        if is_mine and is_live and session != self.session:
            raise Impossible(f"{self} was renewed as {session}")
        if session in group.sessions and not (is_mine and session == self.session):
            raise Impossible(f"{self} became {session}, which somebody was before")
        if answer.live_until != self.now + timedelta(seconds=group.settings.lease_seconds):
            raise Impossible(f"{self} is live until {answer.live_until}")
        model.make_positions(group)
        held = [one.number for one in answer.partitions]
        for number in held:
            holder = group.positions[number].holder
            if holder != name and group.is_live(holder, self.now):
                raise Impossible(f"{number} has two live leases: {holder}'s and {self}'s")
        if len(held) > answer.share:
            raise Impossible(f"{self} holds {held}, more than its share {answer.share}")
        group.join(name, session, answer.live_until, held)
        self.client.session = session

    def crashed(self, model: ModelLog, seen: Seen) -> list[ModelLog]:
        """It may have come to nothing, or not have heard of its session."""
        after = model.copy()
        group, name = self.client.in_model(after), self.client.name
        if len({number for one, number in seen.positions if one == group.name}) > len(
            group.positions
        ):
            after.make_positions(group)
        for other in {name, *group.subscribers}:
            one = seen.subscribers.get((group.name, other))
            if one is not None:
                held = [
                    number
                    for (of, number), position in seen.positions.items()
                    if of == group.name and position.holder == other
                ]
                group.join(other, one.session, one.live_until, held)
        return [after]


class Leave(Call):
    """Leaving a group."""

    def __init__(
        self, clock: StandingClock, log: StoredLog, client: Client, *, releases: bool
    ) -> None:
        super().__init__(clock)
        self.log = log
        self.client = client
        self.releases = releases

    def __str__(self) -> str:
        return f"{self.client} {self.releases}"

    async def call(self, engine: Engine) -> Answer:
        one = self.client
        assert one.session is not None
        await consumer_groups.leave(
            engine, self.log, one.group, one.name, one.session, releases=self.releases
        )
        return "left"

    def happened(self, model: ModelLog, answer: Answer, seen: Seen) -> None:
        group, name = self.client.in_model(model), self.client.name
        assert self.client.session is not None
        is_there = (group.name, name) in seen.subscribers
        if group.is_holder(name, self.client.session) and not is_there:
            group.leave(name, releases=self.releases, now=self.now_ms)

    def crashed(self, model: ModelLog, seen: Seen) -> list[ModelLog]:
        """A subscriber that was removed as dead releases nothing."""
        gone, *others = super().crashed(model, seen)
        group = self.client.in_model(gone)
        if (group.name, self.client.name) not in seen.subscribers:
            group.subscribers.pop(self.client.name, None)
        return [gone, *others]


class Fetch(Call):
    """Of partitions by number, or (None) of all that the subscriber holds, and then without a
    limit: which of them are looked at depends on hints, and is seen afterwards."""

    def __init__(
        self, clock: StandingClock, log: StoredLog, client: Client, ids: list[int] | None, most: int
    ) -> None:
        super().__init__(clock)
        self.log = log
        self.client = client
        self.ids = ids
        self.most = most
        self.numbers: list[int] | None = None

    def __str__(self) -> str:
        return f"{self.client} {self.numbers} {self.most}"

    async def call(self, engine: Engine) -> Answer:
        one = self.client
        assert one.session is not None
        request = FetchRequest(one.name, one.session, self.most, 0, self.ids)
        return (await fetch(engine, self.log, one.group, request)).records

    def happened(self, model: ModelLog, answer: Answer, seen: Seen) -> None:
        group, name = self.client.in_model(model), self.client.name
        assert self.client.session is not None
        is_mine = group.is_holder(name, self.client.session)
        is_live = is_mine and group.is_live(name, self.now)
        if isinstance(answer, SubscriberFenced):
            if is_live:
                raise Impossible(f"{self} is live, and was fenced")
            return
        got = None if answer is None else _deliveries(answer)
        if not is_live:
            if got or (got is not None and not is_mine):
                raise Impossible(f"{self} holds nothing, and got {got}")
            return
        held = group.held_by(name)
        if got is not None:
            strange = {one.number for one in got}.difference(held)
            if strange:
                raise Impossible(f"{self} got something of {strange}, which it does not hold")
            model.check_delivered(group, got, self.now_ms)
        looked = self._looked_at(group, held, seen)
        wanted = model.deliver(group, looked, self.now_ms, self.most)
        # It looks again where all that it was given is not kept any more, or is a dead letter.
        while not wanted and (again := _further(group, looked, seen)):
            before = [group.positions[number].deliveries for number in again]
            wanted = model.deliver(group, again, self.now_ms, self.most)
            if before == [group.positions[number].deliveries for number in again]:
                break
        if got is not None and Counter(got) != Counter(wanted):
            raise Impossible(f"{self} got {got}, not {wanted}")

    def _looked_at(self, group: ModelGroup, held: list[int], seen: Seen) -> list[int]:
        if self.numbers is not None:
            return [number for number in self.numbers if number in held]
        return _further(group, held, seen)


def _further(group: ModelGroup, numbers: Sequence[int], seen: Seen) -> list[int]:
    """Partitions of which there were further deliveries."""
    return [
        number
        for number in numbers
        if seen.positions[group.name, number].deliveries != group.positions[number].deliveries
    ]


def _deliveries(records: Sequence[Delivered]) -> list[Delivery]:
    return [
        Delivery(
            one.number, one.record.offset, one.attempt, one.delivery, one.record.payload.decode()
        )
        for one in records
    ]


class Settle(Call):
    """Several receipts of a group, with what is done with each, and its delay."""

    def __init__(
        self,
        clock: StandingClock,
        log: StoredLog,
        group: ConsumerGroup,
        todo: Sequence[tuple[Receipt, ReceiptAction, float | None]],
        ids: Sequence[int],
    ) -> None:
        super().__init__(clock)
        self.log = log
        self.group = group
        self.todo = todo
        self.ids = ids

    def __str__(self) -> str:
        return f"{self.group.name} {self.todo}"

    async def call(self, engine: Engine) -> Answer:
        some = [
            Settlement(
                f"{self.group.group_id}.{self.ids[one.number]}.{one.offset}.{one.delivery}",
                do,
                delay,
                "it does not fit",
            )
            for one, do, delay in self.todo
        ]
        return await settle(engine, self.log, self.group, some)

    def happened(self, model: ModelLog, answer: Answer, seen: Seen) -> None:
        group = model.groups[self.group.name]
        outcomes = [
            model.settle(group, receipt, do, delay, self.now_ms) for receipt, do, delay in self.todo
        ]
        if answer not in (None, outcomes):
            raise Impossible(f"receipts came to {answer}, not {outcomes}")


class Seek(Call):
    """To `earliest`, `latest` or a time; or to offsets, by number: as a commit if it spares who is
    live."""

    def __init__(
        self,
        clock: StandingClock,
        log: StoredLog,
        group: ConsumerGroup,
        to: str | datetime | dict[int, int],
        *,
        spares_held: bool = False,
    ) -> None:
        super().__init__(clock)
        self.log = log
        self.group = group
        self.to = to
        self.spares_held = spares_held

    def __str__(self) -> str:
        return f"{self.group.name} to {self.to} {self.spares_held}"

    async def call(self, engine: Engine) -> Answer:
        if isinstance(self.to, dict):
            await consumer_groups.seek_offsets(
                engine, self.log, self.group, self.to, spares_held=self.spares_held
            )
        else:
            await consumer_groups.seek(engine, self.group, self.to)
        return "done"

    def happened(self, model: ModelLog, answer: Answer, seen: Seen) -> None:
        group = model.groups[self.group.name]
        if isinstance(self.to, dict) and self.spares_held:
            holders = {
                position.holder for number, position in group.positions.items() if number in self.to
            }
            is_held = any(group.is_live(name, self.now) for name in holders)
            if isinstance(answer, PartitionHeld) != is_held:
                raise Impossible(f"{self}: {answer}, held by {holders}")
            if is_held:
                return
        model.make_positions(group)
        for number, position in group.positions.items():
            if not isinstance(self.to, dict) or number in self.to:
                low, high = self._places(model, number)
                found = seen.positions[group.name, number].watermark + 1
                if not low <= found <= high:
                    raise Impossible(f"{self}: {number} goes on at {found}, not {low} to {high}")
                position.seek(found)

    def _places(self, model: ModelLog, number: int) -> tuple[int, int]:
        """Between which offsets it may go on: where records are missing it is all the same."""
        partition = model.partitions[number]
        if isinstance(self.to, dict):
            place = max(min(self.to[number], partition.end), partition.start)
        elif isinstance(self.to, datetime):
            to = self.to
            before = [n for n, one in partition.records.items() if one.published_at < to]
            later = [n for n, one in partition.records.items() if one.published_at >= to]
            return (
                max(before, default=partition.start - 1) + 1,
                min(later, default=partition.end),
            )
        else:
            place = partition.end if self.to == consumer_groups.LATEST else partition.start
        return place, place


class Collect(Call):
    """Both sweeps."""

    def __str__(self) -> str:
        return ""

    async def call(self, engine: Engine) -> Answer:
        for sweep in (retire_records, remove_records):
            await sweep.job(engine.database, self.clock.now).run_round(10_000)
        return "done"

    def happened(self, model: ModelLog, answer: Answer, seen: Seen) -> None:
        if model.settings.max_age_seconds is None:
            for number, (_, start, _, _) in enumerate(seen.partitions):
                if start > max(model.consumed_to(number), model.partitions[number].start):
                    raise Impossible(f"collection of {number} passed a watermark, to {start}")
        model.collect(self.now)


class Requeue(Call):
    """Some dead letters of a group, or of all."""

    def __init__(
        self, clock: StandingClock, log: StoredLog, dead: StoredLog, group: str | None, most: int
    ):
        super().__init__(clock)
        self.log = log
        self.dead = dead
        self.group = group
        self.most = most

    def __str__(self) -> str:
        return f"{self.most} of {self.group}"

    async def call(self, engine: Engine) -> Answer:
        return await log_records.requeue(
            engine, self.dead, None, source=self.log.name, group=self.group, most=self.most
        )

    def happened(self, model: ModelLog, answer: Answer, seen: Seen) -> None:
        left = Counter(seen.letters)
        taken = []
        for letter in model.letters:
            left[letter] -= 1
            if left[letter] < 0:
                taken.append(letter)
        there = sum(self.group in (None, letter.group) for letter in model.letters)
        if answer is not None and len(taken) != min(there, self.most):
            raise Impossible(f"{len(taken)} of {there} were requeued: {answer}")
        model.requeue(taken, self.now)

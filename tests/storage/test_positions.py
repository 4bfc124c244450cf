"""A group's position in a partition, against a model that keeps each record by itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from queuegate.storage.logs.positions import MOST_SPANS, WINDOW, Position, Spent
from queuegate.storage.model import GroupDeliveryPolicy, ReceiptAction, RecordOutcome

POLICY = GroupDeliveryPolicy(
    batch_size=10,
    visibility_ms=30_000,
    max_attempts=3,
    backoff_ms=1_000,
    backoff_factor=2,
    most_backoff_ms=3_000,
)
DELAYS = st.integers(0, 40_000)


class Reader:
    """A group of one partition, all of whose records are there."""

    def __init__(self, end: int, **settings: int) -> None:
        self.position = Position()
        self.policy = POLICY._replace(**settings)
        self.end = end
        self.now = 1_000_000

    def fetch(self, most: int = 1_000, *, missing: tuple[int, ...] = ()) -> list[int]:
        """The offsets that are delivered."""
        position = self.position
        dues = position.due(self.now, self.policy, end=self.end, most=most)
        offsets = [one for due in dues for one in range(due.first, due.last + 1)]
        present = set(offsets) - {*missing}
        self.dead = position.deliver(self.now, self.policy, dues, present) if dues else []
        spent = {one for due in dues if due.is_spent for one in range(due.first, due.last + 1)}
        return sorted(present - spent)

    def settle(
        self, offset: int, do: ReceiptAction, *, number: int = 0, delay: int | None = None
    ) -> RecordOutcome:
        """By the receipt of the last delivery, or of another."""
        receipt = offset, number or self.position.deliveries
        return self.position.settle(self.now, self.policy, receipt, do, delay)

    def ack(self, *offsets: int) -> list[RecordOutcome]:
        return [self.settle(offset, ReceiptAction.ACK) for offset in offsets]


def test_a_batch_is_one_span_and_acked_it_is_none() -> None:
    reader = Reader(end=10)
    assert reader.fetch() == list(range(10))
    assert len(reader.position.spans) == 1
    assert reader.position.stored() == [1_030_000, 10, 1_030_000, 1, 1]
    for offset in range(10):
        assert reader.ack(offset) == [RecordOutcome.DONE]
        assert len(reader.position.spans) <= 1
    assert (reader.position.watermark, reader.position.stored()) == (9, [])


def test_neighbours_are_acked_together() -> None:
    reader = Reader(end=10)
    reader.fetch()
    position = reader.position
    assert position.ack(2, 1, 3) == 3
    assert [reader.settle(one, ReceiptAction.ACK) for one in range(2, 5)] == [
        RecordOutcome.DONE
    ] * 3
    assert (position.watermark, [span[:2] for span in position.spans]) == (
        -1,
        [(0, 1), (2, 4), (5, 9)],
    )
    # What is done, was given back or had another delivery is not among them.
    assert [position.ack(3, 1, 1), position.ack(5, 2, 1), position.ack(10, 1, 1)] == [0, 0, 0]
    reader.settle(6, ReceiptAction.NACK)
    assert [position.ack(5, 1, 5), position.ack(6, 1, 4), position.ack(7, 1, 100)] == [1, 0, 3]
    assert position.ack(0, 1, 10) == 2
    assert (position.watermark, [span[:2] for span in position.spans]) == (5, [(6, 6), (7, 9)])


def test_what_is_acked_in_another_order_leaves_few_spans() -> None:
    reader = Reader(end=10)
    reader.fetch()
    reader.ack(*range(9, 0, -1))
    assert [span.is_done for span in reader.position.spans] == [False, True]
    reader.ack(0)
    assert (reader.position.watermark, reader.position.spans) == (9, [])


def test_nothing_new_is_delivered_beside_a_thousand_spans() -> None:
    """Each fetch reads and writes all of them."""
    reader = Reader(end=5_000, batch_size=1_000)
    for at in range(MOST_SPANS):
        reader.now += 1
        [offset] = reader.fetch(1)
        assert offset == at
        reader.settle(offset, ReceiptAction.NACK, delay=100_000)
    assert reader.fetch() == []
    reader.now += 100_000
    assert reader.fetch() == [*range(MOST_SPANS)]
    reader.ack(*range(MOST_SPANS))
    assert reader.fetch(1) == [MOST_SPANS]


def test_five_messages_of_which_the_third_is_nacked_for_thirty_seconds() -> None:
    # The seed's example, with its offsets 1 to 5.
    reader = Reader(end=6)
    reader.position.seek(1)
    assert reader.fetch() == [1, 2, 3, 4, 5]
    assert reader.settle(3, ReceiptAction.NACK, delay=30_000) is RecordOutcome.DONE
    assert reader.ack(1, 2, 4, 5) == [RecordOutcome.DONE] * 4
    assert reader.position.watermark == 2
    reader.now += 29_999
    assert reader.fetch() == []
    reader.now += 1
    assert reader.fetch() == [3]
    assert reader.position.attempts(3) == 2
    reader.ack(3)
    assert (reader.position.watermark, reader.position.spans) == (5, [])


def test_later_records_flow_past_a_nacked_one() -> None:
    reader = Reader(end=3, batch_size=1)
    assert reader.fetch() == [0]
    assert reader.fetch() == []
    reader.settle(0, ReceiptAction.NACK, delay=10_000)
    assert reader.fetch() == [1]
    reader.now += 10_000
    assert reader.fetch() == []
    reader.ack(1)
    assert reader.fetch() == [0]


def test_with_a_batch_of_one_the_next_record_waits_for_the_one_before() -> None:
    reader = Reader(end=3, batch_size=1)
    order = []
    while records := reader.fetch():
        assert reader.fetch() == []
        order += records
        reader.ack(*records)
    assert order == [0, 1, 2]


def test_a_nack_waits_longer_after_each_attempt() -> None:
    reader = Reader(end=1, max_attempts=10)
    waits = []
    for _ in range(4):
        assert reader.fetch() == [0]
        reader.settle(0, ReceiptAction.NACK)
        waits.append(reader.position.spans[0].visible_at - reader.now)
        reader.now = reader.position.spans[0].visible_at
    assert waits == [1_000, 2_000, 3_000, 3_000]
    assert POLICY._replace(backoff_factor=1e300, most_backoff_ms=5_000).delay_ms(1_000) == 5_000


def test_the_last_attempt_that_fails_makes_a_dead_letter() -> None:
    reader = Reader(end=2)
    for _ in range(2):
        assert reader.fetch(1) == [0]
        assert reader.settle(0, ReceiptAction.NACK, delay=0) is RecordOutcome.DONE
    assert reader.fetch(1) == [0]
    assert reader.position.attempts(0) == 3
    assert reader.settle(0, ReceiptAction.NACK, delay=0) is RecordOutcome.DEAD
    assert reader.position.watermark == 0
    assert reader.settle(0, ReceiptAction.NACK, delay=0) is RecordOutcome.GONE


def test_the_last_attempt_that_expires_makes_a_dead_letter_and_takes_nobodys_place() -> None:
    reader = Reader(end=3, batch_size=1)
    for _ in range(3):
        assert reader.fetch() == [0]
        reader.now += 30_000
    assert reader.fetch() == [1]
    assert reader.dead == [Spent(0, 3)]
    assert reader.position.watermark == 0


def test_a_rejected_record_is_a_dead_letter_at_once() -> None:
    reader = Reader(end=1)
    reader.fetch()
    assert reader.settle(0, ReceiptAction.REJECT) is RecordOutcome.DEAD
    assert reader.position.watermark == 0


def test_a_postponed_record_holds_its_partition_and_counts_anew() -> None:
    reader = Reader(end=5, batch_size=2)
    assert reader.fetch() == [0, 1]
    assert reader.settle(0, ReceiptAction.POSTPONE, delay=60_000) is RecordOutcome.DONE
    assert reader.ack(0) == [RecordOutcome.SUPERSEDED]
    reader.ack(1)
    reader.now += 59_999
    assert reader.fetch() == []
    reader.now += 1
    assert reader.fetch() == [0, 2]
    assert reader.position.attempts(0) == 1


def test_a_shorter_postponement_does_not_end_a_longer_one() -> None:
    reader = Reader(end=2)
    reader.fetch()
    reader.settle(0, ReceiptAction.POSTPONE, delay=60_000)
    reader.settle(1, ReceiptAction.POSTPONE, delay=10_000)
    assert reader.position.barrier_until == reader.now + 60_000


def test_extended_visibility_counts_no_attempt_and_keeps_the_receipt() -> None:
    reader = Reader(end=1)
    reader.fetch()
    reader.now += 29_000
    assert reader.settle(0, ReceiptAction.EXTEND, delay=60_000) is RecordOutcome.DONE
    reader.now += 59_999
    assert reader.fetch() == []
    assert reader.position.attempts(0) == 1
    assert reader.ack(0) == [RecordOutcome.DONE]


def test_a_receipt_counts_until_the_record_is_delivered_again() -> None:
    reader = Reader(end=2)
    assert reader.fetch(1) == [0]
    reader.now += 30_000
    assert reader.fetch(1) == [0]
    assert reader.settle(0, ReceiptAction.ACK, number=1) is RecordOutcome.SUPERSEDED
    assert reader.settle(0, ReceiptAction.EXTEND, number=1, delay=1_000) is RecordOutcome.SUPERSEDED
    reader.now += 30_000
    # Its visibility is over, and yet nobody else has it.
    assert reader.settle(0, ReceiptAction.ACK, number=2) is RecordOutcome.DONE
    # An ack may be repeated.
    assert reader.settle(0, ReceiptAction.ACK, number=2) is RecordOutcome.DONE
    assert reader.settle(0, ReceiptAction.EXTEND, number=2, delay=1_000) is RecordOutcome.GONE
    # Nobody has had it.
    assert reader.settle(1, ReceiptAction.ACK, number=2) is RecordOutcome.SUPERSEDED
    assert reader.settle(7, ReceiptAction.ACK, number=2) is RecordOutcome.SUPERSEDED


def test_forged_numbers_find_nothing() -> None:
    reader = Reader(end=3)
    reader.fetch()
    reader.settle(1, ReceiptAction.NACK, delay=0)
    reader.ack(2)
    for number in (-1, 0, 2):
        receipt = 1, number
        assert (
            reader.position.settle(0, POLICY, receipt, ReceiptAction.ACK)
            is RecordOutcome.SUPERSEDED
        )


def test_records_that_are_not_there_are_done() -> None:
    reader = Reader(end=5)
    assert reader.fetch(missing=(0, 1, 3)) == [2, 4]
    assert reader.position.watermark == 1
    reader.ack(2, 4)
    assert (reader.position.watermark, reader.position.spans) == (4, [])


def test_what_was_collected_is_passed_over() -> None:
    reader = Reader(end=20)
    reader.fetch()
    assert reader.position.pass_over(4) == 4
    assert (reader.position.watermark, reader.position.head) == (3, 9)
    assert reader.position.in_flight(reader.now) == 6
    assert reader.position.pass_over(15) == 11
    assert (reader.position.watermark, reader.position.head) == (14, 14)
    assert reader.position.pass_over(15) == 0


def test_seek_makes_receipts_void_for_ever() -> None:
    reader = Reader(end=5)
    reader.fetch()
    reader.position.seek(0)
    assert reader.ack(0) == [RecordOutcome.SUPERSEDED]
    assert reader.fetch() == [0, 1, 2, 3, 4]
    assert reader.settle(0, ReceiptAction.ACK, number=1) is RecordOutcome.SUPERSEDED
    assert reader.ack(0) == [RecordOutcome.DONE]


def test_what_is_given_back_was_never_delivered() -> None:
    reader = Reader(end=4, batch_size=2)
    reader.fetch()
    before = reader.position.deliveries
    assert reader.position.give_back(reader.now, before) == 0
    assert reader.position.give_back(reader.now, 0) == 2
    assert reader.ack(0) == [RecordOutcome.SUPERSEDED]
    assert reader.fetch() == [0, 1]
    assert reader.position.attempts(0) == 1


def test_the_head_stays_within_the_window() -> None:
    reader = Reader(end=3 * WINDOW, batch_size=WINDOW)
    reader.fetch(WINDOW)
    reader.ack(*range(1, WINDOW))
    assert reader.fetch() == []
    reader.ack(0)
    assert reader.fetch(1) == [WINDOW]


def test_something_is_due_when_records_or_times_come() -> None:
    reader = Reader(end=0, batch_size=1)

    def due_in() -> int | None:
        due = reader.position.next_due(reader.now, reader.policy, end=reader.end)
        return None if due is None else due - reader.now

    assert due_in() is None
    reader.end = 2
    assert due_in() == 0
    reader.fetch()
    # Its place in the batch comes free when it is acked, or when its visibility ends.
    assert due_in() == 30_000
    reader.settle(0, ReceiptAction.NACK, delay=10_000)
    assert due_in() == 0
    reader.fetch()
    assert due_in() == 10_000
    reader.settle(1, ReceiptAction.POSTPONE, delay=70_000)
    assert due_in() == 70_000


@dataclass(slots=True)
class One:
    """The model's knowledge of a record."""

    state: str = "new"
    visible_at: int = 0
    attempts: int = 0
    number: int = 0


@dataclass(slots=True)
class Model:
    """A group in a partition, one record at a time."""

    records: list[One] = field(default_factory=list)
    barrier_until: int = 0
    number: int = 0
    start: int = 0

    def watermark(self) -> int:
        for offset, one in enumerate(self.records):
            if one.state != "done":
                return offset - 1
        return len(self.records) - 1

    def head(self) -> int:
        known = [offset for offset, one in enumerate(self.records) if one.state != "new"]
        return max([*known, self.watermark()])

    def fetch(
        self, now: int, policy: GroupDeliveryPolicy, most: int, missing: set[int]
    ) -> tuple[Any, Any]:
        """Return the delivered records, and those that died."""
        given: list[int] = []
        dead: list[Spent] = []
        if now < self.barrier_until:
            return given, dead
        flying = sum(one.state == "out" and one.visible_at > now for one in self.records)
        room, steps = min(most, policy.batch_size - flying), policy.batch_size
        last = self.watermark() + WINDOW
        self.number += 1
        for offset, one in enumerate(self.records):
            is_due = one.state in ("out", "waiting") and one.visible_at <= now
            is_due = is_due or (one.state == "new" and offset <= last)
            is_spent = one.attempts >= policy.max_attempts
            if not is_due or (steps if is_spent else room) <= 0:
                continue
            steps, room = (steps - 1, room) if is_spent else (steps, room - 1)
            if offset in missing:
                self.records[offset] = One("done")
            elif is_spent:
                dead.append(Spent(offset, one.attempts))
                self.records[offset] = One("done")
            else:
                given.append(offset)
                out = now + policy.visibility_ms
                self.records[offset] = One("out", out, one.attempts + 1, self.number)
        return given, dead

    def settle(
        self,
        now: int,
        policy: GroupDeliveryPolicy,
        offset: int,
        number: int,
        do: ReceiptAction,
        delay: int | None,
    ) -> RecordOutcome:
        if offset >= len(self.records):
            return RecordOutcome.SUPERSEDED
        one = self.records[offset]
        if one.state == "done":
            return RecordOutcome.DONE if do is ReceiptAction.ACK else RecordOutcome.GONE
        if one.state != "out" or one.number != number:
            return RecordOutcome.SUPERSEDED
        if do is ReceiptAction.EXTEND:
            one.visible_at = now + (delay or 0)
        elif do is ReceiptAction.POSTPONE:
            self.barrier_until = max(self.barrier_until, now + (delay or 0))
            self.records[offset] = One("waiting", now + (delay or 0))
        elif do is ReceiptAction.RELEASE:
            self.records[offset] = One("waiting", now, one.attempts - 1)
        elif do is ReceiptAction.NACK and one.attempts < policy.max_attempts:
            wait = policy.delay_ms(one.attempts) if delay is None else delay
            self.records[offset] = One("waiting", now + wait, one.attempts)
        else:
            self.records[offset] = One("done")
            return RecordOutcome.DONE if do is ReceiptAction.ACK else RecordOutcome.DEAD
        return RecordOutcome.DONE


class Histories(RuleBasedStateMachine):
    """Whatever happens, in any order: a position and the model say the same."""

    @initialize(batch_size=st.integers(1, 5), max_attempts=st.integers(1, 3))
    def begin(self, batch_size: int, max_attempts: int) -> None:
        self.policy = POLICY._replace(batch_size=batch_size, max_attempts=max_attempts)
        self.position = Position()
        self.model = Model()
        self.now = 1_000_000
        self.receipts: list[tuple[int, int]] = [(0, 0), (3, -1)]

    @rule(count=st.integers(1, 6))
    def publish(self, count: int) -> None:
        self.model.records += [One() for _ in range(count)]

    @rule(most=st.integers(1, 8), missing=st.sets(st.integers(0, 12), max_size=2))
    def fetch(self, most: int, missing: set[int]) -> None:
        end = len(self.model.records)
        dues = self.position.due(self.now, self.policy, end=end, most=most)
        offsets = [one for due in dues for one in range(due.first, due.last + 1)]
        assert offsets == sorted(offsets)
        spent = {one for due in dues if due.is_spent for one in range(due.first, due.last + 1)}
        given, dead = self.model.fetch(self.now, self.policy, most, missing)
        if dues:
            present = set(offsets) - missing
            assert self.position.deliver(self.now, self.policy, dues, present) == dead
            assert sorted(present - spent) == given
        else:
            assert (given, dead) == ([], [])
        self.model.number = self.position.deliveries
        for offset in given:
            self.model.records[offset].number = self.position.deliveries
            self.receipts.append((offset, self.position.deliveries))

    @rule(data=st.data(), do=st.sampled_from(ReceiptAction), delay=st.none() | DELAYS)
    def settle(self, data: st.DataObject, do: ReceiptAction, delay: int | None) -> None:
        receipt = data.draw(st.sampled_from(self.receipts))
        expected = self.model.settle(self.now, self.policy, *receipt, do, delay)
        assert self.position.settle(self.now, self.policy, receipt, do, delay) is expected

    @rule(milliseconds=DELAYS)
    def wait(self, milliseconds: int) -> None:
        self.now += milliseconds

    @rule(since=st.integers(0, 30))
    def give_back(self, since: int) -> None:
        self.position.give_back(self.now, since)
        for offset, one in enumerate(self.model.records):
            if one.state == "out" and one.number > since and one.visible_at > self.now:
                self.model.records[offset] = One("waiting", self.now, one.attempts - 1)

    @rule(offset=st.integers(0, 30))
    def seek(self, offset: int) -> None:
        offset = min(offset, len(self.model.records))
        self.position.seek(offset)
        self.model.barrier_until = 0
        for place in range(len(self.model.records)):
            self.model.records[place] = One("done" if place < offset else "new")

    @rule(start=st.integers(0, 8))
    def collect(self, start: int) -> None:
        start = min(start, len(self.model.records))
        passed = max(start - 1 - self.model.watermark(), 0)
        for place in range(start):
            self.model.records[place] = One("done")
        assert self.position.pass_over(start) == passed

    @rule()
    def store(self) -> None:
        """A position that is stored and loaded is the same."""
        one = self.position
        stored = one.stored()
        self.position = Position(one.watermark, one.head, one.deliveries, one.barrier_until, stored)
        assert self.position.spans == one.spans
        assert not stored or stored[0] == min(s.visible_at for s in one.spans if not s.is_done)

    @invariant()
    def is_as_the_model_says(self) -> None:
        position, model = self.position, self.model
        assert position.watermark == model.watermark()
        assert position.head == model.head()
        assert position.barrier_until == model.barrier_until
        at = position.watermark + 1
        for span in position.spans:
            assert span.first == at
            at = span.last + 1
            for offset in range(span.first, at):
                one = model.records[offset]
                assert span.is_done == (one.state == "done")
                if not span.is_done:
                    assert (span.visible_at, span.attempts) == (one.visible_at, one.attempts)
                    assert span.number == (one.number if one.state == "out" else 0)
        assert at == position.head + 1
        assert not position.spans or not position.spans[0].is_done
        joined = zip(position.spans, position.spans[1:], strict=False)
        assert all(one[2:] != other[2:] for one, other in joined)
        due = position.next_due(self.now, self.policy, end=len(model.records))
        is_due = bool(position.due(self.now, self.policy, end=len(model.records), most=1))
        assert is_due == (due == self.now)
        assert due is None or due >= self.now
        flying = [one for one in model.records if one.state == "out" and one.visible_at > self.now]
        assert position.in_flight(self.now) == len(flying)


TestHistories = Histories.TestCase

"""Requests are full, within their limits, and never let a row of a FIFO group be overtaken."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_connectors.sink.packing import Batching, Destination, OutgoingRow, Packer
from spark_connectors.transport import MessageEntry

Row = OutgoingRow[MessageEntry]
MOST = 1000
FIFO = Destination.of("http://localhost:9324/000000000000/orders.fifo", MOST)
PLAIN = Destination.of("http://localhost:9324/000000000000/orders", MOST)
TOPIC = Destination.of("arn:aws:sns:us-east-1:000000000000:news", MOST // 4, is_topic=True)
STRICT = Batching(10)
RELAXED = STRICT._replace(one_per_group=False)


def make_rows(
    groups: Sequence[str], *, size: int | Sequence[int] = 1, destination: Destination = FIFO
) -> list[Row]:
    sizes = itertools.repeat(size) if isinstance(size, int) else size
    return [
        OutgoingRow(
            MessageEntry(f"{group}-{position}", group_id=group), each, destination, position
        )
        for position, (group, each) in enumerate(zip(groups, sizes, strict=False))
    ]


def packed(batching: Batching, rows: Sequence[Row]) -> list[list[Row]]:
    """The requests for rows that all wait at once, none of which fails."""
    packer: Packer[MessageEntry] = Packer(batching)
    packer.add(rows)
    requests = []
    while request := packer.take(0.0):
        requests.append(request)
        packer.settle(request, [])
    assert packer.row_count == packer.byte_count == 0
    assert packer.next_ready_at() is None
    return requests


GROUPS = st.lists(st.sampled_from("abcdefghijklmnopqrst"), max_size=120)
SIZES = st.lists(st.integers(1, MOST), min_size=120, max_size=120)


@given(GROUPS)
def test_strict_requests_are_as_few_as_can_be(groups: list[str]) -> None:
    requests = packed(STRICT, make_rows(groups))
    largest = max(Counter(groups).values(), default=0)
    assert len(requests) == max(-(-len(groups) // 10), largest)


@given(GROUPS)
def test_relaxed_and_plain_requests_are_full(groups: list[str]) -> None:
    for batching, destination in ((RELAXED, FIFO), (STRICT, PLAIN)):
        requests = packed(batching, make_rows(groups, destination=destination))
        assert len(requests) == -(-len(groups) // 10)


@given(GROUPS, SIZES, st.sampled_from([STRICT, RELAXED]), st.sampled_from([FIFO, PLAIN]))
def test_requests_keep_to_their_limits(
    groups: list[str], sizes: list[int], batching: Batching, destination: Destination
) -> None:
    rows = make_rows(groups, size=sizes, destination=destination)
    requests = packed(batching, rows)
    assert sorted(row.position for request in requests for row in request) == list(
        range(len(groups))
    )
    for request in requests:
        assert len(request) <= 10
        assert sum(row.size for row in request) <= MOST
        if destination.is_fifo and batching.one_per_group:
            assert len({row.entry.group_id for row in request}) == len(request)


@given(SIZES)
def test_plain_requests_by_bytes_are_at_most_twice_what_is_needed(sizes: list[int]) -> None:
    requests = packed(
        STRICT._replace(most_entries=10**6),
        make_rows("p" * len(sizes), size=sizes, destination=PLAIN),
    )
    assert len(requests) <= 2 * -(-sum(sizes) // MOST)


@given(st.lists(st.sampled_from([FIFO, PLAIN, TOPIC]), max_size=60))
def test_a_request_has_one_destination_and_its_limit(places: list[Destination]) -> None:
    packer: Packer[MessageEntry] = Packer(STRICT)
    packer.add(
        OutgoingRow(MessageEntry("x", group_id=str(n % 7)), 100, place, n)
        for n, place in enumerate(places)
    )
    sent: Counter[Destination] = Counter()
    while request := packer.take(0.0):
        (destination,) = {row.destination for row in request}
        assert sum(row.size for row in request) <= (250 if destination.is_topic else MOST)
        sent[destination] += len(request)
        packer.settle(request, [])
    assert sent == Counter(places)


class Model:
    """A service in which entries fail in passing as a list of truths says, and what it took.

    ``closes_groups``: once an entry failed, the rest of its group in the request fails as well.
    """

    def __init__(self, failing: Sequence[bool], *, closes_groups: bool) -> None:
        self._failing = iter(failing)
        self._closes_groups = closes_groups
        self.taken: list[Row] = []

    def send(self, request: list[Row]) -> list[Row]:
        failed: list[Row] = []
        closed: set[str | None] = set()
        for row in request:
            group = row.entry.group_id
            if next(self._failing, False) or group in closed:
                failed.append(row)
                if self._closes_groups:
                    closed.add(group)
            else:
                self.taken.append(row)
        return failed

    def by_group(self) -> dict[str | None, list[int]]:
        found: dict[str | None, list[int]] = defaultdict(list)
        for row in self.taken:
            found[row.entry.group_id].append(row.position)
        return dict(found)


def drain(
    packer: Packer[MessageEntry], service: Model, rows: list[Row], *, under_way: int, rest: float
) -> None:
    """Send everything, rows coming in small portions and several requests under way at once."""
    clock = 0.0
    pending: list[list[Row]] = []
    while rows or packer.row_count or pending:
        packer.add(rows[:15])
        del rows[:15]
        request = packer.take(clock)
        if request:
            pending.append(request)
        if pending and (not request or len(pending) == under_way):
            answered = pending.pop(0)
            failed = service.send(answered)
            for position, row in enumerate(failed):
                row.ready_at = clock + rest * (position % 3)
            packer.settle(answered, failed)
        elif not request:
            ready_at = packer.next_ready_at()
            if ready_at is not None:
                clock = max(clock, ready_at)
        clock += 1.0


@settings(max_examples=300)
@given(
    GROUPS,
    st.lists(st.booleans(), max_size=80),
    st.integers(1, 4),
    st.floats(0, 9, allow_nan=False),
)
def test_strict_keeps_every_group_in_order_whatever_fails(
    groups: list[str], failing: list[bool], under_way: int, rest: float
) -> None:
    service = Model(failing, closes_groups=False)
    drain(Packer(STRICT), service, make_rows(groups), under_way=under_way, rest=rest)
    assert service.by_group() == in_order(groups)


@settings(max_examples=300)
@given(GROUPS, st.lists(st.booleans(), max_size=80), st.floats(0, 9, allow_nan=False))
def test_relaxed_keeps_order_where_the_service_closes_groups(
    groups: list[str], failing: list[bool], rest: float
) -> None:
    service = Model(failing, closes_groups=True)
    drain(Packer(RELAXED), service, make_rows(groups), under_way=1, rest=rest)
    assert service.by_group() == in_order(groups)


def test_relaxed_loses_order_where_the_service_does_not() -> None:
    service = Model([True], closes_groups=False)
    drain(Packer(RELAXED), service, make_rows("aaa"), under_way=1, rest=1)
    assert service.by_group() == {"a": [1, 2, 0]}


@given(GROUPS, st.lists(st.booleans(), max_size=80), st.integers(1, 4))
def test_every_row_arrives_once(groups: list[str], failing: list[bool], under_way: int) -> None:
    service = Model(failing, closes_groups=False)
    rows = make_rows(groups, destination=PLAIN)
    drain(Packer(STRICT), service, rows, under_way=under_way, rest=2.0)
    assert sorted(row.position for row in service.taken) == list(range(len(groups)))


def in_order(groups: Sequence[str]) -> dict[str | None, list[int]]:
    found: dict[str | None, list[int]] = defaultdict(list)
    for position, group in enumerate(groups):
        found[group].append(position)
    return dict(found)


def test_a_group_that_rests_holds_nobody_else_up() -> None:
    packer: Packer[MessageEntry] = Packer(STRICT)
    packer.add(make_rows("aab"))
    first = packer.take(0.0)
    assert [row.entry.body for row in first] == ["a-0", "b-2"]
    first[0].ready_at = 5.0
    packer.settle(first, first[:1])
    packer.add(make_rows("bc"))
    assert [row.entry.body for row in packer.take(1.0)] == ["b-0", "c-1"]
    assert packer.take(1.0) == []
    assert packer.next_ready_at() == 5.0
    assert [row.entry.body for row in packer.take(5.0)] == ["a-0"]

"""What callers hand to the lane of deliveries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from queuegate.storage.lanes import Entry, Reply
from queuegate.storage.log_model import Delivered, Group, Log
from queuegate.storage.logs.positions import Do, Outcome


class Change(NamedTuple):
    """What is done with a record."""

    partition_id: int
    receipt: tuple[int, int]
    """Its offset, and the number of its delivery."""
    do: Do
    delay_ms: int | None = None
    error: str = ""
    """Of a dead letter that comes of it."""


def runs_of(changes: Sequence[Change]) -> Iterator[tuple[Change, int]]:
    """The first of each run of acks of one delivery, offset by offset, and how many these are; what
    is no ack is by itself."""
    if not changes:
        return
    first, count = changes[0], 1
    for change in changes[1:]:
        offset, number = first.receipt
        if (
            change.do is Do.ACK is first.do
            and change.receipt == (offset + count, number)
            and change.partition_id == first.partition_id
        ):
            count += 1
        else:
            yield first, count
            first, count = change, 1
    yield first, count


class Fetched(NamedTuple):
    """What a fetch got."""

    records: list[Delivered]
    is_known: bool
    """False: the subscriber is not in the group, or with another session."""
    is_settled: bool
    """False: its partitions are to be chosen anew, with a heartbeat."""
    left: list[int]
    """Partitions that have something left."""
    due_in_ms: int | None
    """When another partition has something, as far as a look at all of them can tell."""
    held: Sequence[int] | None
    """What the subscriber holds; None: not all was looked at."""
    lost: list[int]
    """Partitions that it does not hold."""
    again: int
    """How many of the records were delivered before."""


class Fetch(Entry[Fetched]):
    """Up to ``most`` records of partitions that a subscriber holds.

    ``partition_ids`` are those that are looked at; None: all that it holds.
    """

    __slots__ = ("group", "log", "most", "name", "partition_ids", "session")

    def __init__(
        self,
        log: Log,
        group: Group,
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
        """The log."""
        return self.log.arn


class Settle(Entry[list[Outcome]]):
    """What is done with records of a group: all of it, or nothing."""

    __slots__ = ("changes", "group", "log")

    def __init__(
        self, log: Log, group: Group, changes: Sequence[Change], reply: Reply[list[Outcome]]
    ) -> None:
        super().__init__(reply, 64 * len(changes))
        self.log = log
        self.group = group
        self.changes = changes

    def party(self) -> str:
        """The log."""
        return self.log.arn

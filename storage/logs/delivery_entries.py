"""Entries of the lane of deliveries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from queuegate.storage.lanes import Entry, Reply
from queuegate.storage.log_model import ConsumerGroup, Delivered, StoredLog
from queuegate.storage.logs.positions import ReceiptAction, RecordOutcome


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

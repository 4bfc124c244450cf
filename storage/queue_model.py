"""Queues and messages as storage returns them, and the interface of every kind of queue."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol
from uuid import UUID

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction


QUEUE_DEFAULTS: Mapping[str, str] = {
    "VisibilityTimeout": "30",
    "MaximumMessageSize": "1048576",
    "MessageRetentionPeriod": "345600",
    "DelaySeconds": "0",
    "ReceiveMessageWaitTimeSeconds": "0",
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "queue",
    "FifoThroughputLimit": "perQueue",
    "SqsManagedSseEnabled": "true",
    "KmsDataKeyReusePeriodSeconds": "300",
}
"""Defaults of queue attributes that are not stored (docs/contract/sqs.md 2.2)."""


class NewMessage(NamedTuple):
    """A validated message to send, for ``storage.queues.messages.row_of``."""

    body: str
    attributes: str | None = None
    """Message attributes as JSON: {name: {"DataType", "StringValue" | "BinaryValue" base64}}."""
    system: str | None = None
    """Rare system attributes as a JSON object; the group id of standard queues is added to it."""
    delay_seconds: int | None = None
    """None: the queue's delay."""
    group_id: str | None = None
    deduplication_id: str | None = None
    """None: by content if the queue says so, else the message has no duplicates."""
    digest: bytes | None = None
    """The MD5 of the body, or UNSIGNED; None: not computed yet."""
    dedup_key: str | None = None
    """Replaces the key of the deduplication id: an intentional repetition."""
    priority: int | None = None
    """1 to 10, the most urgent; None: 0, the least. Standard queues only."""
    ttl_seconds: int | None = None
    """Lifetime; None: only the queue's retention ends it."""


UNSIGNED = bytes(16)
"""Replaces the MD5 of a body: an SNS envelope, signed when it is received
(``protocol.sns_envelopes``)."""


class SentMessage(NamedTuple):
    """The result of one message. For a duplicate: id and number of the first one."""

    message_id: str
    sequence: int | None
    """None: not requested."""
    is_duplicate: bool = False
    sent_at_us: int | None = None
    """Send time in microseconds since the epoch; queues with groups only."""


Handle = tuple[int, str | None, int, int]
"""(queue_id, group_id, sequence, receive_count): the contents of a receipt. A standard queue has no
groups, and accepts the receipt of any receive."""

ReceiptOutcome = Literal["ok", "gone", "expired"]
"""The result of one handle: done, deleted before, or expired handle of an existing message."""


class Received(NamedTuple):
    """One message, as all faces show it: of a receive, or at rest. Instants are milliseconds since
    the epoch.

    A named tuple, because receives build thousands of them a second straight from rows.
    """

    queue_id: int
    sequence: int
    message_id: UUID
    receive_count: int
    body: str
    sender_id: str
    attributes: str | None
    """Message attributes as JSON: {name: {"DataType", "StringValue" | "BinaryValue" base64}}."""
    system: str | None
    """Rare system attributes as a JSON object: AWSTraceHeader, MessageGroupId, ..."""
    sent_at_ms: int
    first_received_at_ms: int | None
    """None: never received."""
    group_id: str | None = None
    """FIFO only, as is deduplication_id; a standard queue's group id is in ``system``."""
    deduplication_id: str | None = None
    leased_at: datetime | None = None
    """The ``now`` of the statement that received it."""
    body_md5: bytes | None = None
    """As reported to the sender; None if not stored (FIFO); or UNSIGNED."""
    priority: int | None = None
    """0 to 10; None: its queue has no priorities, equivalent to 0."""
    expires_at_ms: int | None = None
    """End of its lifetime; None: only the queue's retention ends it."""

    @property
    def sent_at_us(self) -> int:
        """Return the send time in microseconds since the epoch; exact in strict FIFO queues."""
        return self.sent_at_ms * 1000

    def system_members(self) -> Mapping[str, str]:
        """Return the rare system attributes of the message."""
        members: dict[str, str] = json.loads(self.system) if self.system else {}
        return members


class ReceivedInTurn(Received):
    """A message of a strict FIFO queue with its exact send time, which copies lose."""

    exact_us = 0

    @property
    def sent_at_us(self) -> int:
        return self.exact_us or super().sent_at_us


class ArchivedCopy(NamedTuple):
    """One message of an archive, as its receiver deleted it."""

    message: Received
    archived_at: datetime
    sent_at: datetime


MessageState = Literal["visible", "in_flight", "delayed"]
"""The states of messages in the counters of queues (docs/contract/sqs.md 2.12)."""


class Browsed(NamedTuple):
    """One message of a queue. ``visible_at``: the instant from which it is receivable."""

    message: Received
    state: MessageState
    visible_at: datetime
    expires_at: datetime | None
    """End of its lifetime; None: only the queue's retention ends it."""


class MoveFailure(StrEnum):
    """The stored reason why a move task failed."""

    QUEUE_GONE = "queue gone"
    SOURCE_UNKNOWN = "source unknown"
    TOO_LONG = "too long"


class MoveTask(NamedTuple):
    """One message move task. ``destination_arn`` None: back to the source of each message."""

    task_id: UUID
    source_queue_id: int
    source_arn: str
    destination_arn: str | None
    max_per_second: int | None
    status: str
    """RUNNING, COMPLETED, CANCELLED or FAILED."""
    failure_reason: str | None
    """One of ``MoveFailure``; a text for a task that failed in an older version."""
    to_move_count: int
    moved_count: int
    started_at: datetime


@dataclass(frozen=True, slots=True)
class Counts:
    """Message counts of a queue; the three add up to all messages."""

    visible: int
    in_flight: int
    delayed: int


@dataclass(frozen=True, slots=True)
class Queue:
    """One live queue as every process caches it.

    ``attributes`` has the settable attributes under AWS's names as strings, without defaults; the
    typed fields below have the same values with defaults, for the hot path.
    """

    queue_id: int
    account_id: str
    region: str
    name: str
    arn: str
    is_fifo: bool
    kind: QueueKind
    """The behaviour of the queue; ``is_fifo`` is for display and comparison."""
    attributes: Mapping[str, str]
    tags: Mapping[str, str]
    created_at: datetime
    modified_at: datetime
    visibility_timeout_seconds: int
    delay_seconds: int
    maximum_message_size_bytes: int
    retention_seconds: int
    receive_wait_seconds: int
    content_based_deduplication: bool
    deduplication_per_group: bool
    dead_letter_arn: str | None
    max_receive_count: int
    """Deliveries before a message moves to the dead-letter queue; 0 without a redrive policy."""
    is_archiving: bool
    """Deleted messages are kept in ``message_archive``."""
    archive_days: int | None
    """Days in the archive; None: unlimited."""
    grouped_from: datetime | None = None
    """Start of ``deduplication_per_group``; None: it always applied."""
    title: str = ""
    """The owner's name for the queue: its name, unless that would be invalid."""
    is_serial: bool = False
    """A strict FIFO queue: one message of a group in flight, and a deduplication id is new when its
    message is deleted. Faces do not show such a queue as FIFO."""
    has_priorities: bool = False
    """A message with a priority or an expiry was ever sent to it."""
    most_messages: int | None = None
    """Capacity in messages; None: unbounded."""
    max_deliveries: int | None = None
    """Deliveries before a message moves to the queue's own dead-letter queue, created for the first
    of them; None: only by redrive policy."""
    paused_at: datetime | None = None
    """Start of the pause in which receives find nothing; None: the queue is not paused."""

    @property
    def makes_deduplication_ids(self) -> bool:
        """Return True if the queue derives missing deduplication ids from the content."""
        return self.content_based_deduplication or self.is_serial

    def deduplicates_per_group(self, at: datetime) -> bool:
        """Return True if an id at that instant is new unless its own group has had it. After a
        change of the scope, ids of the whole queue stay valid for 5 minutes (docs/contract/sqs.md
        2.7)."""
        return self.deduplication_per_group and (
            self.grouped_from is None or at >= self.grouped_from
        )


Row = tuple[
    int,
    str,
    str,
    str,
    str | None,
    str | None,
    int,
    bytes | None,
    str | None,
    str | None,
    str | None,
    int | None,
    int | None,
]
"""(queue_id, message_id, body, sender_id, attributes, system, delay_seconds, body_md5, group_id,
deduplication_id, dedup_key, priority, ttl_seconds). Only queues with groups use group and
deduplication; they store no body_md5 and have no priorities."""

QUEUE_ID: Final = 0
MESSAGE_ID: Final = 1
BODY: Final = 2
ATTRIBUTES: Final = 4
DELAY_SECONDS: Final = 6
GROUP_ID: Final = 8
DEDUP_KEY: Final = 10
PRIORITY: Final = 11
TTL_SECONDS: Final = 12


class Sent(NamedTuple):
    """The result of rows for any queues."""

    gone: frozenset[int]
    """Deleted queues: their rows were not written."""
    sequences: Sequence[int | None]
    """One for each row, None if its queue is deleted; may be empty if not requested."""
    sent_at: dict[int, datetime]
    """By queue with a scan watermark, the instant of the first write."""
    repeats: Mapping[int, str] = {}
    """By position, from 0: rows that are duplicates, and the ids of the first messages."""
    sent_at_us: Sequence[int | None] = ()
    """One for each row of queues with groups, in microseconds; None for duplicates."""
    prioritised: Sequence[int] = ()
    """Queues whose receives go by priority since this commit."""

    def messages(self, rows: Sequence[Row]) -> list[SentMessage | None]:
        """Return one for each of these rows, sent with sequences; None if its queue is deleted."""
        return [
            None
            if sequence is None
            else SentMessage(
                self.repeats.get(place, row[MESSAGE_ID]),
                sequence,
                place in self.repeats,
                self.sent_at_us[place] if self.sent_at_us else None,
            )
            for place, (row, sequence) in enumerate(zip(rows, self.sequences, strict=True))
        ]


LAST = (1 << 63) - 1
"""The highest possible message number."""


class BrowsePosition(NamedTuple):
    """The position of a message; positions of one queue sort in page order.

    Standard queues have no groups: the group is empty.
    """

    group_id: str
    sequence: int


START = BrowsePosition("", 0)
"""Before every message."""
END = BrowsePosition("\x7f", LAST)
"""Behind every message: group ids are printable ASCII."""


class BrowseFilter(NamedTuple):
    """A filter: behind ``after``, up to ``until``, in the queue since ``as_of``. None: any.

    Milliseconds since the epoch, compared with the values that receives show, bounds included.
    """

    as_of: int
    after: BrowsePosition = START
    until: BrowsePosition = END
    group_id: str | None = None
    sent_since_ms: int | None = None
    sent_until_ms: int | None = None
    min_receives: int | None = None
    max_receives: int | None = None
    state: MessageState | None = None
    message_ids: list[UUID] | None = None


class BrowsedMessages(NamedTuple):
    """Messages in order of position. ``next``: more may follow behind it; None: the end."""

    messages: list[Browsed]
    next: BrowsePosition | None


class Ages(NamedTuple):
    """Send times of the oldest and the newest message, None for an empty queue; and the present."""

    oldest_at: datetime | None
    newest_at: datetime | None
    now: datetime


class ExpiredQueue(NamedTuple):
    """A queue whose oldest message is past its retention."""

    queue_id: int
    retention_seconds: int


FindQueue = Callable[["Transaction", str], Awaitable[Queue | None]]
"""Returns the live queue of an ARN."""


class ClaimedTask(NamedTuple):
    """A running task, locked by this transaction."""

    task_id: UUID
    source_queue_id: int
    source_arn: str
    destination_arn: str | None
    max_per_second: int | None
    last_sequence: int
    """The next batch begins behind this number; 0 at the beginning of a pass."""
    end_sequence: int
    age: timedelta
    only: Sequence[BrowsePosition] | None = None
    """The messages that may move; None: all."""


class MovedBatch(NamedTuple):
    """The result of one batch. ``last_sequence`` is None if there was nothing to examine."""

    looked_at: int
    last_sequence: int | None
    arrived: list[tuple[int, int]]
    """(queue_id, messages received)."""
    without_source: int
    """Messages that stayed because their source is unknown."""
    without_queue: int
    """Messages that stayed because their source queue is deleted."""
    is_short: bool = False
    """Some stayed because their queue is full."""

    @property
    def moved_count(self) -> int:
        return sum(count for _, count in self.arrived)


class WatchedQueue(NamedTuple):
    """A queue with parked receivers. ``mark``: nothing visible is stored before this position."""

    queue_id: int
    mark: datetime
    retention_seconds: int


class NextVisible(NamedTuple):
    """The next visible message of a queue: now, or in so many milliseconds."""

    queue_id: int
    ready: bool
    in_ms: int


class PurgeStep(NamedTuple):
    """One batch of a purge. ``after``: the start of the next one; None: the last batch."""

    messages: int
    after: int | None


class Lease(Protocol):
    """A message and its last lease."""

    @property
    def sequence(self) -> int: ...

    @property
    def receive_count(self) -> int: ...

    @property
    def group_id(self) -> str | None: ...


Order = Literal["standard", "FIFO", "serial"]
"""The ordering guarantee of a queue: messages move between queues with the same one."""


class QueueKind(Protocol):
    """The interface of every kind of queue."""

    order: Order

    has_groups: bool
    """Messages are in ordered groups: each message blocks those behind it."""

    counts_in_flight: bool
    """The lane of receives enforces the limit of messages in flight."""

    async def send(
        self,
        tx: Transaction,
        now: datetime | None,
        rows: Iterable[Row],
        *,
        wants_sequences: bool = False,
    ) -> Sent:
        """Write messages for any queues of this kind, except for deleted queues."""

    async def find_repeats(
        self, tx: Transaction, now: datetime | None, rows: list[Row]
    ) -> set[str]:
        """Return the deduplication keys of these rows, all for one queue, that would be duplicates.
        Exact while no other client sends to the queue and no key is deleted."""

    async def release(
        self, tx: Transaction, now: datetime | None, messages: list[Received]
    ) -> None:
        """Undo the lease of messages of one queue for a disconnected caller."""

    async def prior_counts(self, tx: Transaction, received: list[Received]) -> dict[int, int]:
        """Return by sequence the receives of messages of one queue before a redrive policy moved
        them there; messages never moved may be missing."""

    async def bury(
        self,
        tx: Transaction,
        now: datetime | None,
        queue: Queue,
        target: Queue,
        messages: Sequence[Lease],
    ) -> int:
        """Move leased messages to a dead-letter queue of the same kind; return the count. Returns 0
        if the target is deleted. The target may be the queue itself."""

    async def hold(
        self, tx: Transaction, now: datetime | None, queue: Queue, messages: Sequence[Lease]
    ) -> None:
        """Hide leased messages that do not fit into the dead-letter queue, for the queue's
        visibility timeout, at least 1 s."""

    async def count(self, tx: Transaction, now: datetime | None, queue_id: int) -> Counts:
        """Return the three counters of docs/contract/sqs.md 2.12, in bounded work."""

    async def ages(self, tx: Transaction, now: datetime | None, queue_id: int) -> Ages:
        """Return the ages of the oldest and the newest message."""

    async def next_visible(
        self, tx: Transaction, now: datetime | None, asked: list[WatchedQueue]
    ) -> list[NextVisible]:
        """Return the next visible message of each queue; unknown queues are absent."""

    async def set_delay(
        self, tx: Transaction, now: datetime | None, queue_id: int, delay_seconds: int
    ) -> int:
        """Apply a new DelaySeconds to messages sent before, where the contract says so
        (docs/contract/sqs.md 2.7); return the number changed."""

    async def last_number(self, tx: Transaction) -> int:
        """Return a number that separates present messages of this kind from later ones.

        A statement of its own, so that later reads see all present messages.
        """

    async def purge(
        self, tx: Transaction, queue_id: int, *, up_to: int, after: int, limit: int
    ) -> PurgeStep:
        """Delete a batch of messages up to number ``up_to`` in any state, with their deduplication
        ids and receive attempts. Begin with ``after`` 0."""

    async def clear_deleted(self, tx: Transaction, queue_id: int, limit: int) -> int:
        """Remove at most ``limit`` messages of a deleted queue; return the number of rows."""

    async def find_expired(
        self,
        tx: Transaction,
        now: datetime | None,
        after: int,
        limit: int,
        *whose: object,
    ) -> tuple[list[ExpiredQueue], int | None]:
        """Find queues with messages past their retention (``storage.queries.Query.scan``). Examines
        queues that are not empty."""

    async def expire(
        self, tx: Transaction, now: datetime | None, expired: list[ExpiredQueue], limit: int
    ) -> tuple[int, list[ExpiredQueue]]:
        """Delete about ``limit`` messages of these queues past their retention. Returns the count,
        and the queues that may have more."""

    async def read_page(
        self,
        tx: Transaction,
        now: datetime | None,
        queue: Queue,
        wanted: BrowseFilter,
        *,
        limit: int,
        most_bytes: int,
    ) -> BrowsedMessages:
        """Browse the next messages, at most ``limit`` and ``most_bytes``, at least one if any.

        Examines at most 20,000 messages, so it may find fewer than exist. Messages past their
        retention are left out.
        """

    async def find_ends(
        self, tx: Transaction, queue_id: int, as_of: int, parts: int
    ) -> list[BrowsePosition]:
        """Return positions that divide the queue into at most ``parts`` parts of similar size.

        Returns the last position of each part except the last part, ascending. Exact up to 50,000
        messages. Above, it samples the table's pages at a bounded cost; for a queue that is a small
        part of a large table, parts may be few and uneven.
        """

    async def move_batch(
        self,
        tx: Transaction,
        now: datetime | None,
        task: ClaimedTask,
        *,
        source: Queue,
        target: Queue | None,
        find: FindQueue,
        limit: int,
    ) -> MovedBatch:
        """Move at most ``limit`` receivable messages. Without a target each returns to its source
        queue, which ``find`` finds."""

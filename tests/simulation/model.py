"""SQS and SNS as plain Python: what a queue holds and may hand out, and who hears a topic.

The model is told what was done and answered; it says whether SQS could have answered so.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import queuegate.storage.queue_model

DEDUPLICATION = timedelta(minutes=5)
_BURIALS_AT_ONCE = 5


class Impossible(AssertionError):
    """The answer contradicts the model."""


@dataclass(eq=False)
class Message:
    """One message. ``was_received``: in this queue; the count goes on in a dead-letter queue."""

    body: str
    message_id: str
    visible_at: datetime
    sent_at: datetime
    group_id: str | None = None
    receive_count: int = 0
    was_received: bool = False
    priority: int = 0
    expires_at: datetime | None = None
    deduplication_id: str | None = None
    is_plain: bool = True
    """Sent without a priority or an end, to a queue where nothing had either."""

    def is_expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def is_in_flight(self, now: datetime) -> bool:
        return self.was_received and self.visible_at > now

    def is_delayed(self, now: datetime) -> bool:
        return not self.was_received and self.visible_at > now


@dataclass(eq=False)
class Handle:
    """The receipt handle of one message from one receive."""

    queue: ModelQueue
    message: Message
    receive_count: int
    text: str
    said: queuegate.storage.queue_model.Handle
    """What the text says."""

    @property
    def is_superseded(self) -> bool:
        """Return True if the message was received again since."""
        return self.receive_count < self.message.receive_count


class Deduplication:
    """The sends that a FIFO queue or topic accepted in the last five minutes."""

    accepted: dict[str, tuple[datetime, str]]
    """deduplication id -> (first accepted at, message id)"""

    def original(self, deduplication_id: str | None, now: datetime) -> str | None:
        """The message id of which this is a duplicate."""
        first = self.accepted.get(deduplication_id or "")
        if first is None or first[0] + DEDUPLICATION <= now:
            return None
        return first[1]


@dataclass(eq=False)
class ModelTopic(Deduplication):
    """A topic and the queues that are subscribed to it, each for one kind of message or all."""

    name: str
    is_fifo: bool
    arn: str = ""
    subscribers: dict[ModelQueue, str | None] = field(default_factory=dict)
    arns: dict[ModelQueue, str] = field(default_factory=dict)
    accepted: dict[str, tuple[datetime, str]] = field(default_factory=dict)


@dataclass(eq=False)
class ModelQueue(Deduplication):
    """A queue. ``messages`` stand in the order of sending."""

    name: str
    is_fifo: bool
    visibility_seconds: int = 30
    is_serial: bool = False
    """One message of a group is out at a time; a deduplication id lasts as long as its message."""
    most_messages: int | None = None
    delay_seconds: int = 0
    max_receive_count: int = 0
    dead_letters: ModelQueue | None = None
    has_priorities: bool = False
    has_expired: bool = False
    """Something has, and nobody has removed it yet."""
    messages: list[Message] = field(default_factory=list)
    handles: list[Handle] = field(default_factory=list)
    accepted: dict[str, tuple[datetime, str]] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        return self.most_messages is not None and len(self.messages) >= self.most_messages

    @property
    def takes_messages(self) -> bool:
        """From others than receivers."""
        return not self.name.startswith("dead")

    @property
    def receives_topics(self) -> bool:
        return self.takes_messages and not self.is_serial and self.most_messages is None

    def repeated_by(self, message: Message, deduplication_id: str | None) -> str | None:
        """The id of the message that this one repeats."""
        if not self.is_serial:
            return self.original(deduplication_id, message.sent_at)
        same = (message.group_id, deduplication_id)
        return next(
            (m.message_id for m in self.messages if (m.group_id, m.deduplication_id) == same), None
        )

    def send(self, message: Message, deduplication_id: str | None = None) -> None:
        """Put it behind all others."""
        self.messages.append(message)
        self._prioritise(message)
        message.deduplication_id = deduplication_id
        if deduplication_id is not None:
            self.accepted[deduplication_id] = (message.sent_at, message.message_id)

    def _prioritise(self, message: Message) -> None:
        """From then on what is sent here has a priority."""
        self.has_priorities = self.has_priorities or not message.is_plain
        message.is_plain = not self.has_priorities

    def expire(self, now: datetime) -> None:
        """Nobody gets or counts what has expired, in flight or not."""
        kept = [message for message in self.messages if not message.is_expired(now)]
        self.has_expired = self.has_expired or len(kept) < len(self.messages)
        self.messages = kept

    def receivable(self, now: datetime) -> dict[str, list[Message]]:
        """By group, in order, what a receive may get. A standard message is its own group."""
        found: dict[str, list[Message]] = defaultdict(list)
        blocked: set[str] = set()
        for message in self.messages:
            group = message.group_id or message.message_id
            if message.visible_at > now:
                blocked.add(group)
            if group not in blocked:
                found[group].append(message)
                if self.is_serial:
                    blocked.add(group)
        return found

    def is_dead(self, message: Message) -> bool:
        """Return True if the next receive moves the message to the dead-letter queue."""
        return self.dead_letters is not None and message.receive_count >= self.max_receive_count

    def receive(
        self, now: datetime, limit: int, got: list[tuple[str, int]], moved: set[str]
    ) -> list[Message]:
        """The messages of (body, count) pairs, in flight no longer than the caller says next.

        ``moved``: bodies that this receive took to the dead-letter queue.
        """
        receivable = self.receivable(now)
        by_body = {m.body: m for messages in receivable.values() for m in messages}
        self._check_moved(by_body, moved)
        received = []
        for body, count in got:
            message = by_body.get(body)
            if message is None:
                raise Impossible(f"{body} is not receivable in {self.name}")
            if body in moved or self.is_dead(message):
                raise Impossible(f"{body} belongs into the dead-letter queue")
            if count != message.receive_count + 1:
                raise Impossible(f"{body}: count {count} after {message.receive_count}")
            received.append(message)
        self._check_amount(receivable, received, limit, moved)
        self._check_order(receivable, received, moved)
        return received

    def _check_moved(self, by_body: dict[str, Message], moved: set[str]) -> None:
        for body in moved:
            if body not in by_body or not self.is_dead(by_body[body]):
                raise Impossible(f"{body} was moved too early")

    def _check_amount(
        self,
        receivable: dict[str, list[Message]],
        received: list[Message],
        limit: int,
        moved: set[str],
    ) -> None:
        everything = [message for messages in receivable.values() for message in messages]
        alive = [message for message in everything if not self.is_dead(message)]
        if len(set(received)) != len(received) or len(received) > limit:
            raise Impossible(f"{len(received)} messages of {limit}, or one of them twice")
        left = [message for message in everything if message not in received]
        if len(everything) == len(alive):
            if len(received) != min(limit, len(alive)) and not self._may_wait(left):
                bodies = [message.body for message in left]
                raise Impossible(f"{len(received)} of {limit} messages, and {bodies} were left")
            self._check_priorities(alive, received)
        elif not received and len(moved) >= _BURIALS_AT_ONCE:
            # Those before it were all dead letters: a receive gives up after a few rounds.
            return
        elif self._may_wait([message for message in left if message.body not in moved]):
            return
        elif alive and not received:
            raise Impossible(f"nothing, although there is something; {len(moved)} were moved")
        elif not received and len(moved) != len(everything):
            raise Impossible("a dead letter was left behind")

    def _may_wait(self, left: list[Message]) -> bool:
        """Return True if a receive may leave the messages behind expired ones until their removal
        (storage/queues/priorities.sql)."""
        return self.has_expired and all(message.is_plain for message in left)

    def _check_priorities(self, alive: list[Message], received: list[Message]) -> None:
        """Check that no message left in a standard queue is more urgent than one received."""
        stays = [message.priority for message in alive if message not in received]
        if received and max(stays, default=0) > min(message.priority for message in received):
            raise Impossible(f"something more urgent stays in {self.name}")

    def _check_order(
        self, receivable: dict[str, list[Message]], received: list[Message], moved: set[str]
    ) -> None:
        """Check that the messages that left a group are its first, in order."""
        if not self.is_fifo:
            return
        if self.is_serial:
            heads = [messages[0] for messages in receivable.values()]
            first = sorted(heads, key=self.messages.index)[: len(received)]
            if set(received) != set(first):
                raise Impossible(f"something older stays in {self.name}")
        for messages in receivable.values():
            mine = [message for message in received if message in messages]
            left = [message for message in messages if message in mine or message.body in moved]
            if left != messages[: len(left)]:
                raise Impossible(f"gap in group {messages[0].group_id}")
            if mine != [message for message in messages if message in mine]:
                raise Impossible(f"wrong order in group {messages[0].group_id}")

    def bury(self, message: Message, now: datetime) -> None:
        """Move it to the dead-letter queue."""
        assert self.dead_letters is not None
        self.messages.remove(message)
        message.was_received = not self.is_fifo
        message.visible_at = now
        message.expires_at = None
        if self.is_fifo:
            message.sent_at = now
        self.dead_letters.messages.append(message)
        if not message.is_plain:
            self.dead_letters.has_priorities = True

    def find(self, handle: Handle) -> Message | None:
        """The message of a handle, if it is still in this queue."""
        return handle.message if handle.message in self.messages else None

    def accepts(self, handle: Handle, now: datetime, *, to_delete: bool) -> bool:
        """Return True if a delete or a change of visibility with this handle takes effect."""
        message = self.find(handle)
        if message is None:
            return to_delete
        if self.is_fifo:
            is_last = handle.receive_count == message.receive_count
            return is_last and (self.is_serial or message.visible_at > now)
        return True

    def is_last(self, handle: Handle, now: datetime) -> bool:
        """Return True if a delete by the last receiver alone takes effect."""
        is_last = handle.receive_count == handle.message.receive_count
        return (
            self.find(handle) is not None and is_last and self.accepts(handle, now, to_delete=True)
        )

    def is_numbered(self, handle: Handle, now: datetime) -> bool:
        """Return True if a delete by number takes effect."""
        message = self.find(handle)
        return message is not None and (not self.is_fifo or message.is_in_flight(now))

    def set_delay(self, seconds: int) -> None:
        """A FIFO queue's delay holds for what was sent before, too (docs/contract/sqs.md 2.7)."""
        changed = seconds != self.delay_seconds
        self.delay_seconds = seconds
        if self.is_fifo and changed:
            for message in self.messages:
                if not message.was_received:
                    message.visible_at = message.sent_at + timedelta(seconds=seconds)

    def purge(self) -> None:
        self.messages.clear()
        self.accepted.clear()

    def counts(self, now: datetime) -> tuple[int, int, int]:
        """(visible, in flight, delayed)"""
        in_flight = sum(message.is_in_flight(now) for message in self.messages)
        delayed = sum(message.is_delayed(now) for message in self.messages)
        return len(self.messages) - in_flight - delayed, in_flight, delayed

"""The consumers of this process, with the messages that are pushed and not acknowledged.

Tokens and event ids name the process that pushed a message, because only this process knows the
consumer and the order of its messages. Neither grants a right: a token is checked like any receipt
handle, and an event id only says which messages may be redelivered earlier, to a consumer that has
the right to receive them.
"""

from __future__ import annotations

import asyncio
import re
from datetime import datetime
from enum import Enum, auto
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

if TYPE_CHECKING:
    from asyncio import TimerHandle

    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.storage.queue_model import Queue, Received


_MARK = "~"
_EVENT = re.compile(r"([0-9a-f.]{1,40})~([0-9a-f]{1,24})~([0-9]{1,15})").fullmatch


class PushEvent(NamedTuple):
    """One message that was sent to a consumer."""

    process: str
    consumer: int
    number: int
    """Counts from 1 for each consumer."""


def event_id(event: PushEvent) -> str:
    """Return the event id: letters, digits and ``.~``, which URLs need not escape."""
    return f"{event.process}{_MARK}{event.consumer:x}{_MARK}{event.number}"


def read_event_id(text: str) -> PushEvent | None:
    """Return the event of an id; None: not our id."""
    found = _EVENT(text)
    return None if found is None else PushEvent(found[1], int(found[2], 16), int(found[3]))


def pushed_token(token: str, process: str) -> str:
    """Return the token that acknowledges a message, with the process to notify."""
    return f"{token}{_MARK}{process}"


def receipt_of(token: str) -> str:
    return token.partition(_MARK)[0]


def number_of(group_id: str | None, sequence: int) -> int:
    """Return a number that is unique among pushed messages: messages in groups are numbered
    apart."""
    return sequence if group_id is None else -sequence


def process_of(token: str) -> str:
    """Return the process that pushed the message; empty: the message was not pushed."""
    return token.partition(_MARK)[2]


_MOST_DISCONNECTED = 10_000


class PushedMessage(NamedTuple):
    """A message to push to a consumer."""

    message: Received
    until: datetime
    event_id: str
    token: str


class ConsumerEnding(Enum):
    """The reason why a consumer gets no more messages."""

    DRAINING = auto()
    """This gateway stops; other gateways have the remaining messages."""
    RESUMED = auto()
    CHANNEL_GONE = auto()
    KEY_GONE = auto()
    """The key has expired, was revoked, or may no longer receive."""
    FAILED = auto()


class ConsumerWriter(Protocol):
    """The writer of a consumer's connection."""

    kind: ClassVar[str]
    address: str
    """Address of the client; empty: unknown."""

    def push(self, messages: list[PushedMessage]) -> list[int]:
        """Write messages. Return for each the number of bytes written so far."""

    def sent_bytes(self) -> int:
        """Return the number of bytes that have left the process."""

    def beat(self) -> None:
        """Send a heartbeat, or close the connection if the peer has disconnected."""

    def end(self, ending: ConsumerEnding) -> None:
        """Write the reason and close the connection."""


class RegisteredConsumer(Protocol):
    """A consumer, as the registry uses it."""

    number: int
    bucket: int
    """The share of the heartbeats to which the consumer belongs."""
    outlet: ConsumerWriter | None
    out: dict[int, UnacknowledgedMessage]
    credit: int
    caller: Caller
    is_paused: bool

    @property
    def channel(self) -> Queue: ...
    def go_on(self) -> None: ...
    def check_key(self) -> None: ...
    def forget_ended(self) -> None: ...
    def forget_all(self) -> None: ...
    def end(self, ending: ConsumerEnding, last: int | None = None) -> None: ...


class UnacknowledgedMessage(NamedTuple):
    """A message that was sent and not acknowledged."""

    consumer: RegisteredConsumer
    number: int
    """Number of its event."""
    message: Received
    """Without body."""
    until: datetime
    end_bytes: int

    def message_number(self) -> int:
        return number_of(self.message.group_id, self.message.sequence)


class ConsumerRegistry:
    """The connected consumers of a process, and disconnected ones with unacknowledged messages."""

    def __init__(self) -> None:
        self._by_number: dict[int, RegisteredConsumer] = {}
        self._by_message: dict[int, UnacknowledgedMessage] = {}
        self._disconnected: dict[RegisteredConsumer, None] = {}
        self._beats: list[dict[RegisteredConsumer, None]] = [{}]
        self._tick_seconds = 1.0
        self._turn = 0
        self._next = 0
        self._timer: TimerHandle | None = None

    def beat_every(self, ticks: int, tick_seconds: float = 1.0) -> None:
        """Set the heartbeat interval in ticks. Call before the first consumer connects."""
        self._beats = [{} for _ in range(ticks)]
        self._tick_seconds = tick_seconds

    def find(self, number: int) -> RegisteredConsumer | None:
        """Return a consumer of this process. None, also if it has disconnected without
        unacknowledged messages."""
        return self._by_number.get(number)

    def of_channel(self, queue_id: int) -> list[RegisteredConsumer]:
        """Return the consumers of a channel, disconnected ones, too."""
        return [one for one in self._by_number.values() if one.channel.queue_id == queue_id]

    def add(self, consumer: RegisteredConsumer) -> None:
        self._by_number[consumer.number] = consumer
        # Spread heartbeats over the interval.
        consumer.bucket = self._next
        self._beats[self._next][consumer] = None
        self._next = (self._next + 1) % len(self._beats)
        if self._timer is None:
            self._start()

    def remove(self, consumer: RegisteredConsumer) -> None:
        """Unregister a consumer. It can be resumed while messages are unacknowledged."""
        self._beats[consumer.bucket].pop(consumer, None)
        self._disconnected[consumer] = None
        self._forget(consumer)
        if len(self._disconnected) > _MOST_DISCONNECTED:
            oldest = next(iter(self._disconnected))
            oldest.forget_all()
            self._forget(oldest)

    def _forget(self, consumer: RegisteredConsumer) -> None:
        if not consumer.out:
            self._disconnected.pop(consumer, None)
            self._by_number.pop(consumer.number, None)

    def sent(self, out: UnacknowledgedMessage) -> None:
        number = out.message_number()
        before = self._by_message.get(number)
        if before is not None:
            # Received again after the end of its window.
            before.consumer.out.pop(out.message.sequence, None)
        self._by_message[number] = out

    def finished(self, numbers: list[int]) -> list[int]:
        """Remove messages that were acknowledged, given back or received by others. Return those
        that this process did not push."""
        elsewhere = []
        have_room: dict[RegisteredConsumer, None] = {}
        for number in numbers:
            out = self._by_message.pop(number, None)
            if out is None:
                elsewhere.append(number)
                continue
            out.consumer.out.pop(out.message.sequence, None)
            have_room[out.consumer] = None
        for consumer in have_room:
            # After all credit is returned, so that one receive uses all of it.
            consumer.go_on()
        return elsewhere

    def drop(self, out: UnacknowledgedMessage) -> None:
        number = out.message_number()
        if self._by_message.get(number) is out:
            del self._by_message[number]

    def resume(self, number: int, last: int) -> None:
        """End a consumer that has reconnected after event ``last``: later messages are redelivered
        at once."""
        consumer = self.find(number)
        if consumer is not None:
            consumer.end(ConsumerEnding.RESUMED, last)

    def go_on(self) -> None:
        """Receive again: the clock was moved, and windows may have ended."""
        for consumer in [*self._by_number.values()]:
            consumer.go_on()

    def check_keys(self) -> None:
        for consumer in [*self._by_number.values()]:
            consumer.check_key()

    def _start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._tick_seconds, self._tick)

    def _tick(self) -> None:
        """Send this tick's share of the heartbeats."""
        self._timer = None
        self._turn = (self._turn + 1) % len(self._beats)
        for consumer in [*self._beats[self._turn]]:
            consumer.check_key()
            if consumer.outlet is not None:
                consumer.outlet.beat()
        for consumer in [*self._disconnected]:
            consumer.forget_ended()
            self._forget(consumer)
        if self._by_number:
            self._start()

"""Consumers to whom messages of a channel are pushed: how many each may hold, and what becomes of
them when it goes.

A consumer that waits is a parked receive and nothing else: no task, no timer, no statement. It has
as many messages as its credit that it has not acknowledged and whose windows have not ended. The
process that pushed a message hears of its acknowledgement, wherever that was, because the token
names the process (``pushed_tokens``); a hint that is lost costs credit until the window ends.

What was sent to a consumer that has gone is remembered until then: who resumes behind an event gets
at once what was sent after it. Where the process that remembers has gone, too, the window decides.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from queuegate.gateway.operations.access import may
from queuegate.gateway.operations.channels.acknowledging import token_of
from queuegate.gateway.operations.channels.pushed_tokens import (
    Event,
    event_id,
    number_of,
    pushed_token,
)
from queuegate.gateway.operations.queues.finishing import change_last
from queuegate.gateway.operations.queues.receiving import Leasing, Receiving, release, spawn
from queuegate.storage.errors import OverLimit, QueueDoesNotExist, Unavailable

if TYPE_CHECKING:
    from asyncio import TimerHandle

    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.model import Queue, Received

_log = logging.getLogger("queuegate.channels")

_MESSAGES_AT_ONCE = 10
_BYTES_AT_ONCE = 1_048_576
_AGAIN_SECONDS = 1.0
_MOST_GONE = 10_000
_NUMBER_BITS = 63


class Pushed(NamedTuple):
    """One message as it goes to a consumer."""

    message: Received
    until: datetime
    """When its window ends."""
    event_id: str
    token: str
    """What it is acknowledged by."""


_RECEIVE: Final = "sqs:ReceiveMessage"


class Ending(Enum):
    """Why a consumer gets no more."""

    DRAINING = auto()
    """This gateway stops; another has the rest."""
    RESUMED = auto()
    """It came back on another connection."""
    CHANNEL_GONE = auto()
    KEY_GONE = auto()
    """Its key was revoked or has expired, or it may not receive any more."""
    FAILED = auto()


class Outlet(Protocol):
    """The wire to a consumer."""

    def push(self, messages: list[Pushed]) -> list[int]:
        """Write messages; how many bytes were written at the end of each, since the beginning."""

    def sent_bytes(self) -> int:
        """How many of these have left the process."""

    def beat(self) -> None:
        """Show the peer that we are there, and hang up if it is not."""

    def end(self, ending: Ending) -> None:
        """Write a last word and close; the consumer has ended."""


class _Out(NamedTuple):
    """A message that was sent and not acknowledged."""

    consumer: Consumer
    number: int
    """Of its event."""
    message: Received
    """Without its body."""
    until: datetime
    """When the window ends, by the clock of the channel's account."""
    end_bytes: int

    def message_number(self) -> int:
        """What it is known by among all that is out."""
        return number_of(self.message.group_id, self.message.sequence)


class Consumers:
    """Those of one process, and those that have gone of whom something is still out."""

    def __init__(self) -> None:
        self._by_number: dict[int, Consumer] = {}
        self._by_message: dict[int, _Out] = {}
        self._gone: dict[Consumer, None] = {}
        self._beats: list[dict[Consumer, None]] = [{}]
        self._tick_seconds = 1.0
        self._turn = 0
        self._next = 0
        self._timer: TimerHandle | None = None

    def beat_every(self, ticks: int, tick_seconds: float = 1.0) -> None:
        """How far the beats of one heart are apart. Before the first begins."""
        self._beats = [{} for _ in range(ticks)]
        self._tick_seconds = tick_seconds

    def find(self, number: int) -> Consumer | None:
        """A consumer of this process; None also for one that has gone with nothing out."""
        return self._by_number.get(number)

    def add(self, consumer: Consumer) -> None:
        """A consumer begins."""
        self._by_number[consumer.number] = consumer
        # They take turns, so that not all hearts beat in the same second.
        consumer.bucket = self._next
        self._beats[self._next][consumer] = None
        self._next = (self._next + 1) % len(self._beats)
        if self._timer is None:
            self._start()

    def remove(self, consumer: Consumer) -> None:
        """It has ended; it can be resumed for as long as something is out."""
        self._beats[consumer.bucket].pop(consumer, None)
        self._gone[consumer] = None
        self._forget(consumer)
        if len(self._gone) > _MOST_GONE:
            oldest = next(iter(self._gone))
            oldest.forget_all()
            self._forget(oldest)

    def _forget(self, consumer: Consumer) -> None:
        if not consumer.out:
            self._gone.pop(consumer, None)
            self._by_number.pop(consumer.number, None)

    def sent(self, out: _Out) -> None:
        """A message went out to one of them."""
        number = out.message_number()
        before = self._by_message.get(number)
        if before is not None:
            # Its window ended, and so it was received again.
            before.consumer.out.pop(out.message.sequence, None)
        self._by_message[number] = out

    def finished(self, numbers: list[int]) -> list[int]:
        """These messages are no longer with who had them: acknowledged, given back, or received by
        somebody else; those that none of this process had."""
        elsewhere = []
        have_room: dict[Consumer, None] = {}
        for number in numbers:
            out = self._by_message.pop(number, None)
            if out is None:
                elsewhere.append(number)
                continue
            out.consumer.out.pop(out.message.sequence, None)
            have_room[out.consumer] = None
        for consumer in have_room:
            # For all that it has room for: it would receive one, and then the rest.
            consumer.go_on()
        return elsewhere

    def drop(self, out: _Out) -> None:
        """The same of one message, by whoever sent it out."""
        number = out.message_number()
        if self._by_message.get(number) is out:
            del self._by_message[number]

    def resume(self, number: int, last: int) -> None:
        """A consumer came back that has seen events up to ``last``: what was sent to it after that
        is there again at once."""
        consumer = self.find(number)
        if consumer is not None:
            consumer.end(Ending.RESUMED, last)

    def go_on(self) -> None:
        """The clock was moved: windows may have ended."""
        for consumer in [*self._by_number.values()]:
            consumer.go_on()

    def check_keys(self) -> None:
        """End those whose keys are not good any more."""
        for consumer in [*self._by_number.values()]:
            consumer.check_key()

    def _start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._tick_seconds, self._tick)

    def _tick(self) -> None:
        """A part of the hearts beats; the others have their seconds."""
        self._timer = None
        self._turn = (self._turn + 1) % len(self._beats)
        for consumer in [*self._beats[self._turn]]:
            consumer.check_key()
            if consumer.outlet is not None:
                consumer.outlet.beat()
        for consumer in [*self._gone]:
            consumer.forget_ended()
            self._forget(consumer)
        if self._by_number:
            self._start()


class Consumer:
    """One connection to which messages of a channel go. It is what its receives reply to."""

    __slots__ = (
        "_at_once",
        "_caller",
        "_channel",
        "_engine",
        "_events",
        "_is_paused",
        "_limit",
        "_receiving",
        "_seen",
        "_timer",
        "_window_seconds",
        "bucket",
        "credit",
        "number",
        "out",
        "outlet",
    )

    def __init__(
        self,
        engine: Engine,
        channel: Queue,
        outlet: Outlet,
        credit: int,
        window_seconds: int | None = None,
        *,
        caller: Caller,
    ) -> None:
        self._engine = engine
        self._caller = caller
        self._window_seconds = window_seconds
        self._channel = channel
        self.outlet: Outlet | None = outlet
        """None: it has gone."""
        self.credit = credit
        """How many messages may be out: sent, not acknowledged, and within their windows."""
        self.number = channel.queue_id << _NUMBER_BITS | secrets.randbits(_NUMBER_BITS)
        """Nobody guesses it, and it is that of a consumer of this channel."""
        self.bucket = 0
        self.out: dict[int, _Out] = {}
        """By the number of the message, the oldest event first."""
        self._events = 0
        self._at_once = _MESSAGES_AT_ONCE
        self._limit = 0
        self._receiving: Receiving | None = None
        self._seen: int | None = None
        self._timer: TimerHandle | None = None
        self._is_paused = False

    @property
    def channel(self) -> Queue:
        """As it was at the last look."""
        return self._channel

    def open(self, resumed: Event | None = None) -> None:
        """Begin; behind that event, if it had one before."""
        self._engine.consumers.add(self)
        if resumed is not None:
            self._resume(resumed)
        self.go_on()

    def _resume(self, event: Event) -> None:
        if event.consumer >> _NUMBER_BITS != self._channel.queue_id:
            # Of another channel, to which it may have no right.
            return
        if event.process == self._engine.wakeups.process:
            self._engine.consumers.resume(event.consumer, event.number)
        else:
            self._engine.wakeups.resumed_here(event.consumer, event.number)

    def pause(self) -> None:
        """The consumer does not read: receive nothing more for it."""
        self._is_paused = True
        self._stop_receiving()

    def resume(self) -> None:
        """It reads again."""
        self._is_paused = False
        self.go_on()

    def check_key(self) -> None:
        """End it if its key is not good any more, or may not receive."""
        if self.outlet is None:
            return
        is_good = self._engine.keys.still_takes(self._caller)
        if not (is_good and may(self._engine, self._caller, _RECEIVE, self._channel)):
            self.end(Ending.KEY_GONE)

    def set_credit(self, credit: int) -> None:
        """So many messages may be out from now on; 0: no more come."""
        self.credit = credit
        if credit <= len(self.out):
            self._stop_receiving()
        self.go_on()

    def go_on(self) -> None:
        """Receive, if there is room and nothing is being received."""
        if self.outlet is None or self._is_paused or self._receiving is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if len(self.out) >= self.credit:
            self.forget_ended()
        room = self.credit - len(self.out)
        if room <= 0:
            self._wait_for_windows()
        elif not self._engine.series.traffic.may_answer(self._caller.account_id):
            self._go_on_in(_AGAIN_SECONDS)
        elif not may(self._engine, self._caller, _RECEIVE, self._channel):
            self.end(Ending.KEY_GONE)
        else:
            self._receive(min(room, self._at_once))

    def _receive(self, limit: int) -> None:
        seconds = self._window()
        self._limit = limit
        self._receiving = receiving = Leasing(
            self._engine, self._channel, limit=limit, visibility_seconds=seconds, reply=self
        )
        seen, self._seen = self._seen, None
        receiving.listen(seen)

    def _window(self) -> int:
        asked = self._window_seconds
        return self._channel.visibility_timeout_seconds if asked is None else asked

    def _stop_receiving(self) -> None:
        receiving, self._receiving = self._receiving, None
        if receiving is not None:
            receiving.cancel()

    def _wait_for_windows(self) -> None:
        """Nothing may be sent until something is acknowledged, or a window ends."""
        if self.out:
            left = min(out.until for out in self.out.values()) - self._now()
            self._go_on_in(max(left.total_seconds(), 0.0) + 0.001)

    def _now(self) -> datetime:
        return self._engine.clock.of(self._channel.account_id).instant()

    def _go_on_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self.go_on)

    # What a receive replies

    def done(self, received: list[Received]) -> None:
        """Send them. None: the gateway stops."""
        receiving, self._receiving = self._receiving, None
        outlet = self.outlet
        if not received or receiving is None or outlet is None:
            return
        window = timedelta(seconds=self._window())
        self._channel = receiving.queue
        if len(received) < self._limit:
            self._seen = receiving.arrivals
        biggest = max([len(one.body) for one in received])
        self._at_once = max(1, min(_MESSAGES_AT_ONCE, _BYTES_AT_ONCE // (biggest + 1)))
        pushed = [self._pushed(one, (one.leased_at or self._now()) + window) for one in received]
        ends = outlet.push(pushed)
        self._engine.series.push.pushed_count += len(pushed)
        first = self._events - len(received) + 1
        for place, (one, end_bytes) in enumerate(zip(pushed, ends, strict=True)):
            kept = one.message._replace(body="", attributes=None, system=None)
            out = _Out(self, first + place, kept, one.until, end_bytes)
            self._engine.consumers.sent(out)
            self.out[kept.sequence] = out
        self.go_on()

    def _pushed(self, message: Received, until: datetime) -> Pushed:
        self._events += 1
        process = self._engine.wakeups.process
        token = pushed_token(token_of(self._engine, self._channel, message), process)
        return Pushed(message, until, event_id(Event(process, self.number, self._events)), token)

    def failed(self, error: BaseException) -> None:
        """Nothing came of it."""
        self._receiving = None
        if isinstance(error, Unavailable | OverLimit):
            # The database comes back, and who waits need not connect anew for that.
            self._go_on_in(_AGAIN_SECONDS)
        elif isinstance(error, QueueDoesNotExist):
            self.end(Ending.CHANNEL_GONE)
        else:
            _log.error("a receive of a consumer failed", exc_info=error)
            self.end(Ending.FAILED)

    # The end

    def lost(self, sent_bytes: int) -> None:
        """The connection is gone, and so much of what was written has left us: the rest is there
        again at once, as if it had never been received."""
        self._stop_receiving()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        unsent = self._taken_back(lambda out: out.end_bytes > sent_bytes)
        if unsent:
            spawn(release(self._engine, self._channel, [out.message for out in unsent]))
        if self.outlet is not None:
            self.outlet = None
            self._engine.consumers.remove(self)

    def end(self, ending: Ending, last: int | None = None) -> None:
        """End it from here. ``last``: the last event that the consumer has seen; what was sent
        after it may have arrived all the same, so that counts as delivered."""
        outlet = self.outlet
        if outlet is not None:
            self.lost(outlet.sent_bytes())
        if last is not None:
            unseen = self._taken_back(lambda out: out.number > last)
            if unseen:
                spawn(_show(self._engine, self._channel, [out.message for out in unseen]))
        if outlet is not None:
            outlet.end(ending)

    def _taken_back(self, comes_back: Callable[[_Out], bool]) -> list[_Out]:
        back = [out for out in self.out.values() if comes_back(out)]
        for out in back:
            self._drop(out)
        return back

    def forget_ended(self) -> None:
        """Messages whose windows have ended are not with this consumer any more."""
        now = self._now()
        for out in [out for out in self.out.values() if out.until <= now]:
            self._drop(out)

    def forget_all(self) -> None:
        """Nothing can be resumed of it."""
        for out in [*self.out.values()]:
            self._drop(out)

    def _drop(self, out: _Out) -> None:
        self.out.pop(out.message.sequence, None)
        self._engine.consumers.drop(out)


async def _show(engine: Engine, channel: Queue, messages: list[Received]) -> None:
    """End the windows of messages that nobody else has received since."""
    handles = [(one.queue_id, one.group_id, one.sequence, one.receive_count) for one in messages]
    try:
        await change_last(engine, channel, handles, 0)
    except Unavailable as error:
        _log.log(error.log_level, "%d messages stay hidden: %s", len(messages), error)

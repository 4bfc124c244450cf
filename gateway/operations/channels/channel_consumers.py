"""Consumers of channels: messages are pushed to each, up to its credit, and acknowledged or given
back.

An idle consumer is a parked receive: no task, no timer, no statement. A consumer has at most as
many messages as its credit that are neither acknowledged nor past their windows. The process that
pushed a message learns of its acknowledgement in any process, because the token names the process
(``consumer_registry``). A lost hint costs credit until the window ends.

Acknowledging and giving back take effect only for the last receiver of a message. Messages of a
consumer that has disconnected are remembered until their windows end: a consumer that resumes after
an event gets later messages at once. If the gateway that pushed the messages has stopped,
redelivery starts when the window ends.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import orjson

from queuegate.gateway.operations.access.authorization import may
from queuegate.gateway.operations.channels.consumer_registry import (
    ConsumerEnding,
    ConsumerWriter,
    PushedMessage,
    PushEvent,
    UnacknowledgedMessage,
    event_id,
    number_of,
    process_of,
    pushed_token,
    receipt_of,
)
from queuegate.gateway.operations.queues.deletions import change_last, finish_last
from queuegate.gateway.operations.queues.receives import Leasing, Receiving, release
from queuegate.gateway.operations.runtime.background_tasks import spawn
from queuegate.gateway.operations.runtime.replies import Client, Reply, Then, answered
from queuegate.storage.storage_errors import (
    OverLimit,
    QueueDoesNotExist,
    ReceiptHandleIsInvalid,
    Unavailable,
)

if TYPE_CHECKING:
    from asyncio import TimerHandle

    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.queue_model import Handle, Queue, ReceiptOutcome, Received


CONNECTIONS: Final = "connections"
"""The question to other processes of the gateway; the number of a channel follows."""


def connections_here(engine: Engine, number: str) -> bytes:
    """Return the push connections of a channel to this process, as JSON."""
    consumers = engine.consumers.of_channel(int(number))[: engine.limits.listed]
    return orjson.dumps(
        [
            {
                "process": engine.wakeups.process,
                "kind": outlet.kind,
                "key": (one.caller.producer and one.caller.producer.name) or one.caller.user_name,
                "address": outlet.address,
                "credit": one.credit,
                "unacknowledged": len(one.out),
                "is_paused": one.is_paused,
            }
            for one in consumers
            if (outlet := one.outlet) is not None
        ]
    )


def token_of(engine: Engine, channel: Queue, message: Received) -> str:
    return engine.receipts.handle_of(message, engine.clock.of(channel.account_id).seconds())


def start_acknowledging(
    engine: Engine, channel: Queue, tokens: Sequence[str], reply: Reply[list[ReceiptOutcome]]
) -> None:
    """Delete received messages, with the outcomes of ``finish_last``. Raises ReceiptHandleIsInvalid
    and then changes nothing."""
    handles = _handles(engine, channel, tokens)

    def done(outcomes: list[ReceiptOutcome]) -> None:
        reply.done(outcomes)
        _return_credit(engine, tokens, handles)

    finish_last(engine, channel, handles, Then(done, reply.failed))


async def acknowledge(
    engine: Engine, caller: Caller, channel: Queue, tokens: Sequence[str]
) -> list[ReceiptOutcome]:
    """Delete received messages and wait for it."""
    outcomes: list[ReceiptOutcome] = await answered(start_acknowledging, engine, channel, tokens)
    return outcomes


async def nack(
    engine: Engine, caller: Caller, channel: Queue, tokens: Sequence[str], delay_seconds: int
) -> list[ReceiptOutcome]:
    """Make received messages visible after a delay; 0: at once. Their receive counts stay. Outcomes
    and errors are as of ``acknowledge``."""
    handles = _handles(engine, channel, tokens)
    outcomes = await change_last(engine, channel, handles, delay_seconds)
    _return_credit(engine, tokens, handles)
    return outcomes


def _return_credit(engine: Engine, tokens: Sequence[str], handles: list[Handle]) -> None:
    """Return credit to the consumers to which these messages were pushed, here or in the process
    that a token names. The outcomes do not matter: the callers no longer have the messages."""
    if not "".join([process_of(token) for token in tokens]):
        return
    processes = {
        number_of(group_id, sequence): process_of(token)
        for (_, group_id, sequence, _), token in zip(handles, tokens, strict=True)
    }
    pushed = [number for number, process in processes.items() if process]
    for number in engine.consumers.finished(pushed):
        engine.wakeups.finished_here(number, processes[number])


def _handles(engine: Engine, channel: Queue, tokens: Sequence[str]) -> list[Handle]:
    handles = []
    for token in tokens:
        receipt = engine.receipts.read(channel, receipt_of(token), engine.clock)
        if receipt is None:
            raise ReceiptHandleIsInvalid(token)
        handles.append(receipt.handle)
    return handles


_log = logging.getLogger("queuegate.channels")
_MESSAGES_AT_ONCE = 10
_BYTES_AT_ONCE = 1_048_576
_AGAIN_SECONDS = 1.0
_NUMBER_BITS = 63
_RECEIVE: Final = "sqs:ReceiveMessage"


class PushConsumer:
    """A connection to which messages of a channel are pushed. Its receives reply to it."""

    __slots__ = ("_at_once", "_channel", "_engine", "_events", "_limit", "_receiving", "_seen",
                 "_timer", "_window_seconds", "bucket", "caller", "credit", "is_paused",
                 "number", "out", "outlet")  # fmt: skip

    def __init__(
        self,
        engine: Engine,
        channel: Queue,
        outlet: ConsumerWriter,
        credit: int,
        window_seconds: int | None = None,
        *,
        caller: Caller,
    ) -> None:
        self._engine = engine
        self.caller = caller
        self._window_seconds = window_seconds
        self._channel = channel
        self.outlet: ConsumerWriter | None = outlet
        """None: the consumer has disconnected."""
        self.credit = credit
        """Maximum number of messages that are sent, not acknowledged, and within their windows."""
        self.number = channel.queue_id << _NUMBER_BITS | secrets.randbits(_NUMBER_BITS)
        """Random, and specific to the channel."""
        self.bucket = 0
        self.out: dict[int, UnacknowledgedMessage] = {}
        """By message number, in the order of events."""
        self._events = 0
        self._at_once = _MESSAGES_AT_ONCE
        self._limit = 0
        self._receiving: Receiving | None = None
        self._seen: int | None = None
        self._timer: TimerHandle | None = None
        self.is_paused = False

    @property
    def channel(self) -> Queue:
        """Return the channel as of the last receive."""
        return self._channel

    def open(self, resumed: PushEvent | None = None) -> None:
        """Start receiving; after that event, if the consumer resumes."""
        self._engine.consumers.add(self)
        if resumed is not None:
            self._resume(resumed)
        self.go_on()

    def _resume(self, event: PushEvent) -> None:
        if event.consumer >> _NUMBER_BITS != self._channel.queue_id:
            # An event of another channel, to which the consumer may have no right.
            return
        if event.process == self._engine.wakeups.process:
            self._engine.consumers.resume(event.consumer, event.number)
        else:
            self._engine.wakeups.resumed_here(event.consumer, event.number)

    def pause(self) -> None:
        self.is_paused = True
        self._stop_receiving()

    def resume(self) -> None:
        self.is_paused = False
        self.go_on()

    def check_key(self) -> None:
        """End the consumer if its key is no longer valid or may not receive."""
        if self.outlet is None:
            return
        is_good = self._engine.keys.still_takes(self.caller)
        if not (is_good and may(self._engine, self.caller, _RECEIVE, self._channel)):
            self.end(ConsumerEnding.KEY_GONE)

    def set_credit(self, credit: int) -> None:
        self.credit = credit
        if credit <= len(self.out):
            self._stop_receiving()
        self.go_on()

    def go_on(self) -> None:
        """Receive, if there is credit and no receive is under way."""
        if self.outlet is None or self.is_paused or self._receiving is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if len(self.out) >= self.credit:
            self.forget_ended()
        room = self.credit - len(self.out)
        if room <= 0:
            # Receive when the first window ends, unless an acknowledgement comes earlier.
            if self.out:
                left = min(out.until for out in self.out.values()) - self._now()
                self._go_on_in(max(left.total_seconds(), 0.0) + 0.001)
        elif not self._engine.series.traffic.may_answer(self.caller.account_id):
            self._go_on_in(_AGAIN_SECONDS)
        elif not may(self._engine, self.caller, _RECEIVE, self._channel):
            self.end(ConsumerEnding.KEY_GONE)
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

    def _now(self) -> datetime:
        return self._engine.clock.of(self._channel.account_id).instant()

    def _go_on_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self.go_on)

    def client(self) -> Client:
        """Return the client, for the list of waiting receivers."""
        return self.caller, self.caller.origin

    def done(self, received: list[Received]) -> None:
        """Push the messages. None: the gateway stops."""
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
            out = UnacknowledgedMessage(self, first + place, kept, one.until, end_bytes)
            self._engine.consumers.sent(out)
            self.out[kept.sequence] = out
        self.go_on()

    def _pushed(self, message: Received, until: datetime) -> PushedMessage:
        self._events += 1
        process = self._engine.wakeups.process
        token = pushed_token(token_of(self._engine, self._channel, message), process)
        return PushedMessage(
            message, until, event_id(PushEvent(process, self.number, self._events)), token
        )

    def failed(self, error: BaseException) -> None:
        """End the consumer, or receive again in 1 s if the database is unavailable."""
        self._receiving = None
        if isinstance(error, Unavailable | OverLimit):
            # The consumer stays connected until the database is available again.
            self._go_on_in(_AGAIN_SECONDS)
        elif isinstance(error, QueueDoesNotExist):
            self.end(ConsumerEnding.CHANNEL_GONE)
        else:
            _log.error("a receive of a consumer failed", exc_info=error)
            self.end(ConsumerEnding.FAILED)

    def lost(self, sent_bytes: int) -> None:
        """Release the messages that did not leave this process before the connection was lost, as
        if they had not been received."""
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

    def end(self, ending: ConsumerEnding, last: int | None = None) -> None:
        """End the consumer. ``last`` is the last event that the consumer has seen. Later messages
        may have arrived all the same, so their receive counts stay."""
        outlet = self.outlet
        if outlet is not None:
            self.lost(outlet.sent_bytes())
        if last is not None:
            unseen = self._taken_back(lambda out: out.number > last)
            if unseen:
                spawn(_show(self._engine, self._channel, [out.message for out in unseen]))
        if outlet is not None:
            outlet.end(ending)

    def _taken_back(
        self, comes_back: Callable[[UnacknowledgedMessage], bool]
    ) -> list[UnacknowledgedMessage]:
        back = [out for out in self.out.values() if comes_back(out)]
        for out in back:
            self._drop(out)
        return back

    def forget_ended(self) -> None:
        """Return the credit of messages whose windows have ended."""
        now = self._now()
        for out in [out for out in self.out.values() if out.until <= now]:
            self._drop(out)

    def forget_all(self) -> None:
        """Forget all messages: the consumer can no longer be resumed."""
        for out in [*self.out.values()]:
            self._drop(out)

    def _drop(self, out: UnacknowledgedMessage) -> None:
        self.out.pop(out.message.sequence, None)
        self._engine.consumers.drop(out)


async def _show(engine: Engine, channel: Queue, messages: list[Received]) -> None:
    """End the windows of messages, unless they have been received again."""
    handles = [(one.queue_id, one.group_id, one.sequence, one.receive_count) for one in messages]
    try:
        await change_last(engine, channel, handles, 0)
    except Unavailable as error:
        _log.log(error.log_level, "%d messages stay hidden: %s", len(messages), error)

"""Receives: one ReceiveMessage from its first lookup to its answer, and receives of many messages.

``Receiving`` looks up messages, parks if there are none, and repeats until the deadline. It uses
callbacks instead of a coroutine, so a receive that finds messages at once costs no task.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Generator, Sequence
from datetime import datetime, timedelta
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from queuegate.gateway.operations.queues.queues import dead_letter_queue
from queuegate.gateway.operations.queues.stored_messages import signed
from queuegate.gateway.operations.runtime.background_tasks import run_in_steps, spawn
from queuegate.gateway.operations.runtime.replies import answered
from queuegate.gateway.operations.runtime.wakeups import place_of_pause
from queuegate.storage.lanes import NULL_REPLY, Reply
from queuegate.storage.queue_model import UNSIGNED, Queue, Received
from queuegate.storage.queues import queue_dead_letters
from queuegate.storage.queues.kinds import PRIORITISED, STANDARD
from queuegate.storage.queues.messages import Receive
from queuegate.storage.queues.queue_dead_letters import BEGINNING
from queuegate.storage.storage_errors import OverLimit, QueueDoesNotExist, Unavailable

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller, RequestOrigin
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.database import Transaction


_log = logging.getLogger("queuegate.receiving")
_DEAD_LETTERED_AT_ONCE = 5
_LOOKS = 500
_PAUSE_SECONDS = 1.0
_LONG_BYTES = 65_536
"""Messages below that together do not count while they become an answer."""
_IN_FLIGHT_TEXT = (
    "Too many messages are in flight: the limit of a queue is {}. Delete messages, or wait until "
    "their visibility timeouts end."
)


class Receiving:
    """A receive under way. Its entries reply to it.

    Call ``cancel`` when the client disconnects: its leased messages are released at once.
    """

    __slots__ = ("_arrivals", "_burials", "_deadline", "_done", "_engine", "_entry", "_held",
                 "_limit", "_looked", "_parked", "_queue", "_reply", "_timer", "_visibility_ms",
                 "attempt_id")  # fmt: skip

    def __init__(
        self,
        engine: Engine,
        queue: Queue,
        *,
        limit: int,
        visibility_seconds: int,
        reply: Reply[list[Received]],
    ) -> None:
        self._engine = engine
        self._queue = queue
        self._limit = limit
        self._visibility_ms = visibility_seconds * 1000
        self._reply = reply
        if engine.faults is not None:
            self._limit, self._visibility_ms, self._reply = engine.faults.receive(
                queue, limit, self._visibility_ms, reply
            )
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._parked = False
        self._done = False
        self._arrivals = 0
        self._burials = 0
        self._looked = 0.0
        self._entry: Receive | None = None
        self._held = 0
        self.attempt_id: str | None = None

    def start(self, wait_seconds: float) -> None:
        """Look up messages; wait up to ``wait_seconds`` if there are none."""
        if wait_seconds > 0:
            self._deadline = asyncio.get_running_loop().time() + wait_seconds
        self._look_up()

    def listen(self, seen: int | None = None) -> None:
        """Wait without a deadline. ``seen``: the queue was empty after so many ``arrivals``; look
        up messages only if there were more."""
        self._deadline = math.inf
        if seen is None:
            self.wake()
        else:
            self._looked = perf_counter()
            self._arrivals = seen
            self._nothing()

    @property
    def queue(self) -> Queue:
        """Return the queue as of the last lookup."""
        return self._queue

    @property
    def arrivals(self) -> int:
        """Return the number of arrivals in the queue before the last lookup."""
        return self._arrivals

    def client(self) -> tuple[str, str, float]:
        """Return the key and the address of the client, and the seconds that it goes on waiting.
        Empty: unknown."""
        find = getattr(self._reply, "client", None)
        caller, origin = (None, None) if find is None else find()
        key = ""
        if caller is not None:
            named = caller.producer.name if caller.producer is not None else ""
            key = named or caller.access_key or caller.account_id
        seconds = self._deadline - asyncio.get_running_loop().time()
        return key, "" if origin is None else origin.address, seconds

    def cancel(self) -> None:
        """Stop, because the client has disconnected, and release messages that a flush under way
        leases."""
        if self._done:
            return
        self._done = True
        if self._entry is not None:
            self._entry.gone = True
            # Pass on a wakeup that may have been for a message.
            self._engine.wakeups.wake_next(self._queue.queue_id)
        self._unpark()

    def give_back(self, received: list[Received]) -> None:
        """Release messages if the answer did not reach the client."""
        if received:
            spawn(release(self._engine, self._queue, received))

    def wake(self) -> None:
        """Look up messages: there may be some."""
        self._parked = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._done:
            return
        queue = self._queue
        if self._engine.stopping and self._deadline == math.inf:
            self._finish([])
        elif self._engine.stopping or self._engine.queues.by_id(queue.queue_id) is queue:
            self._look_up()
        else:
            spawn(self._reload_queue())

    def take(self) -> Receive | None:
        """Accept messages that are being sent, instead of looking them up."""
        engine, queue = self._engine, self._queue
        if (
            self._done
            or engine.stopping
            or queue.kind is not STANDARD
            # Only a lookup can lease messages with a visibility timeout of 0.
            or not self._visibility_ms
            or engine.queues.by_id(queue.queue_id) is not queue
            or engine.in_flight.must_count(queue.queue_id)
        ):
            return None
        self._parked = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._looked = perf_counter()
        self._arrivals = engine.wakeups.arrivals(queue.queue_id)
        return self._asked()

    async def _reload_queue(self) -> None:
        """Reload the queue, which was changed or deleted during the wait, and look up messages."""
        before = self._queue
        try:
            queue = await self._engine.queues.find(before.account_id, before.region, before.name)
            if queue.queue_id != before.queue_id:
                raise QueueDoesNotExist
        except BaseException as error:
            self.failed(error)
            if isinstance(error, QueueDoesNotExist | Unavailable):
                return
            raise
        self._queue = queue
        if not self._done:
            self._look_up()

    def _look_up(self) -> None:
        queue = self._queue
        engine = self._engine
        self._looked = perf_counter()
        self._arrivals = engine.wakeups.arrivals(queue.queue_id)
        if queue.paused_at is not None:
            self._nothing()
        elif engine.in_flight.must_count(queue.queue_id):
            spawn(self._count_first())
        else:
            self._ask()

    async def _count_first(self) -> None:
        """Count messages in flight before handing out more, and return none at the limit."""
        engine, queue = self._engine, self._queue
        try:
            full = await engine.in_flight.is_full(engine.clock.of(queue.account_id).now(), queue)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller must get an answer
            self.failed(error)
            return
        if self._done:
            return
        if not full:
            self._ask()
        elif self._deadline:
            # A long poll waits instead of failing: messages are deleted or time out.
            self._pause()
        else:
            self.failed(OverLimit(_IN_FLIGHT_TEXT.format(engine.in_flight.limit)))

    def _hold(self, size_bytes: int) -> None:
        """Count so many bytes for the account of the queue."""
        traffic, change = self._engine.series.traffic, size_bytes - self._held
        self._held = size_bytes
        traffic.hold(change, self._queue.account_id, is_answer=True)

    def _hold_received(self, received: Sequence[Received]) -> None:
        """Count what came in place of what was expected."""
        size = sum([len(one.body) + len(one.attributes or "") for one in received])
        size = size if size > _LONG_BYTES else 0
        if received:
            traffic = self._engine.series.traffic
            traffic.learn(self._queue.queue_id, size // len(received))
        self._hold(size)

    def taken(self) -> Callable[[], None]:
        """Leave what is counted to the caller, who is answering; the function ends that."""
        traffic, held, self._held = self._engine.series.traffic, self._held, 0
        return partial(traffic.hold, -held, self._queue.account_id, is_answer=True)

    def _ask(self) -> None:
        engine, queue = self._engine, self._queue
        expected, noisy = engine.series.traffic.message_bytes, engine.standard.fair.noisy
        message_bytes = 0
        if expected and (message_bytes := expected.get(queue.queue_id, 0)):
            self._hold(message_bytes * self._limit)
        kind = queue.kind
        is_slow = message_bytes > 0 or (noisy and queue.queue_id in noisy)
        if kind is PRIORITISED or (is_slow and kind is STANDARD):
            engine.standard.ordered.submit(self._asked())
        else:
            engine.lanes_of[kind].receive.submit(self._asked())

    def _asked(self) -> Receive:
        queue = self._queue
        self._entry = Receive(
            queue.queue_id,
            self._limit,
            self._visibility_ms,
            queue.retention_seconds,
            self,
            self.attempt_id,
        )
        self._entry.variant = queue.kind
        return self._entry

    def done(self, result: list[Received]) -> None:  # noqa: C901 - calls cost more than branches
        """Reply with the messages that were looked up or handed off, or park."""
        was_handed = self._entry is not None and self._entry.is_handed
        self._entry = None
        if self._held or (result and len(result[0].body) > _LONG_BYTES):
            self._hold_received(() if self._done else result)
        if self._done:
            if result:
                spawn(release(self._engine, self._queue, result))
            return
        queue = self._queue
        if not result:
            self._nothing()
            return
        if not queue.kind.counts_in_flight:
            self._engine.in_flight.handed_out(queue.queue_id, len(result))
            if queue.kind is STANDARD:
                self._note_groups(result)
        if len(result) == self._limit and not was_handed:
            self._engine.wakeups.wake_next(queue.queue_id)
        most = queue.max_receive_count
        if most:
            for message in result:
                if message.receive_count > most:
                    spawn(self._dead_letter(result))
                    return
        self._answer(result)

    def _note_groups(self, received: list[Received]) -> None:
        """Sample the queue for fair queueing, if its messages have groups."""
        fairness = self._engine.fairness
        if self._queue.queue_id not in fairness.watched:
            for message in received:
                if message.system is not None:
                    break
            else:
                return
        fairness.received(self._queue.queue_id, received)

    def _answer(self, received: list[Received]) -> None:
        """Reply, after envelopes without a signature have got theirs."""
        for message in received:
            if message.body_md5 == UNSIGNED:
                spawn(self._sign(received))
                return
        self._finish(received)

    async def _sign(self, received: list[Received]) -> None:
        """Add signatures, off the event loop. Release the messages if the client disconnects
        meanwhile."""
        try:
            envelopes = await signed(self._engine, received)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller must get an answer
            spawn(release(self._engine, self._queue, received))
            self.failed(error)
            return
        if self._done:
            await release(self._engine, self._queue, received)
            return
        self._finish(envelopes)

    def _nothing(self) -> None:
        if not self._deadline:
            self._finish([])
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= self._deadline or self._engine.stopping:
            self._finish([])
            return
        queue = self._queue
        if self._engine.queues.by_id(queue.queue_id) is not queue:
            # The queue was changed or deleted meanwhile, and no further wakeup would come.
            spawn(self._reload_queue())
            return
        if self._engine.wakeups.arrivals(queue.queue_id) != self._arrivals:
            self._look_up()
            return
        self._parked = True
        self._engine.wakeups.park(self._place(), self)
        if self._deadline < math.inf:
            self._timer = loop.call_at(self._deadline, self._expired)

    def _expired(self) -> None:
        self._unpark()
        self._finish([])

    def _unpark(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._parked:
            self._parked = False
            self._engine.wakeups.leave(self._place(), self)

    def _place(self) -> int:
        """Return the place to park at. Sends hand nothing to receives of a paused queue."""
        queue = self._queue
        return queue.queue_id if queue.paused_at is None else place_of_pause(queue.queue_id)

    def failed(self, error: BaseException) -> None:
        """Reply with an error."""
        self._entry = None
        if self._held:
            self._hold(0)
        if not self._done:
            self._done = True
            reply, self._reply = self._reply, NULL_REPLY
            reply.failed(error)

    def _finish(self, result: list[Received]) -> None:
        if self._done:
            return
        self._done = True
        if result:
            self._engine.series.received(self._queue, result, perf_counter() - self._looked)
        # Break the reference cycle with the caller, as Entry.done does.
        reply, self._reply = self._reply, NULL_REPLY
        reply.done(result)
        if self._held:
            self._hold(0)

    async def _dead_letter(self, received: list[Received]) -> None:
        """Dead-letter messages that exceed the maximum receive count, then reply with the
        others."""
        most = self._queue.max_receive_count
        dead = [message for message in received if message.receive_count > most]
        try:
            buried = await _move_to_dead_letter(self._engine, self._queue, dead)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller must get an answer
            # They stay in flight and above the maximum: the next receive moves them.
            self.failed(error)
            return
        gone = {message.sequence for message in buried}
        alive = [message for message in received if message.sequence not in gone]
        if self._done:
            if alive:
                await release(self._engine, self._queue, alive)
        elif alive:
            self._answer(alive)
        else:
            # Queues that are each other's dead-letter queue, or their own, pass the same messages
            # on forever (so does AWS). After a few rounds, a long poll pauses between lookups, and
            # a short poll ends.
            self._burials += 1
            if self._burials < _DEAD_LETTERED_AT_ONCE:
                self._look_up()
            else:
                self._pause()

    def _pause(self) -> None:
        """Look up messages again in 1 s; end with none at the deadline."""
        loop = asyncio.get_running_loop()
        if not self._deadline or loop.time() >= self._deadline or self._engine.stopping:
            self._finish([])
            return
        pause = min(_PAUSE_SECONDS, self._deadline - loop.time())
        self._timer = loop.call_later(pause, self.wake)


class Leasing(Receiving):
    """A receive for a consumer of a channel. Its leases are on disk before the reply; if a crash of
    the database undid them, two consumers would hold the same delivery."""

    __slots__ = ()

    def _ask(self) -> None:
        self._engine.lanes_of[self._queue.kind].lease.submit(self._asked())


async def _move_to_dead_letter(
    engine: Engine, queue: Queue, dead: list[Received]
) -> list[Received]:
    """Dead-letter messages. Return the messages that were moved, or deleted meanwhile.

    None if the target does not exist: the source delivers the messages again, as on AWS. A queue
    with dead letters of its own gets a new dead-letter queue.
    """
    target = await dead_letter_queue(engine, queue)
    has_own = queue.max_deliveries is not None
    if target is None and not has_own:
        return []
    now = engine.clock.of(queue.account_id).now()
    async with engine.database.transaction() as tx:
        dead = await _without_young(tx, queue, target, dead)
        if not dead:
            return []
        if target is None:
            target = await queue_dead_letters.find_or_make(tx, now, queue)
        if target is None:
            return dead
        moved = await queue_dead_letters.dead_letter(tx, now, queue, target, dead)
        if has_own and not queue.kind.has_groups:
            # Also earlier messages above the maximum: many may have waited for a dead-letter queue
            # with capacity.
            others = await queue_dead_letters.dead_letter_due(
                tx, now, queue, after=BEGINNING, looks=_LOOKS, holds=True
            )
            moved += others.moved
    if target.arn != queue.dead_letter_arn:
        # Reply only after this process knows the new dead-letter queue.
        engine.wakeups.queue_changed(queue.queue_id)
    if moved:
        engine.series.dead_lettered(queue, moved)
        if queue.kind is PRIORITISED and target.kind is STANDARD:
            # Reply only after this process receives from the target by priority.
            engine.wakeups.queue_changed(target.queue_id)
        engine.wakeups.arrived(target.queue_id, moved)
        if queue.kind.has_groups:
            # Later messages of their groups.
            engine.wakeups.arrived(queue.queue_id, moved)
        return dead
    # Its notification may still be on the way: ask the database if the target exists.
    engine.queues.forget(target.queue_id)
    is_bounded = target.most_messages is not None
    return (
        dead if has_own or is_bounded or await dead_letter_queue(engine, queue) is not None else []
    )


async def _without_young(
    tx: Transaction, queue: Queue, target: Queue | None, dead: list[Received]
) -> list[Received]:
    """Leave out dead letters of other queues that were not received often enough here. Their
    receive counts include those from the source. Not if the target would send them back: such
    queues pass them on (docs/contract/sqs.md 2.10)."""
    if target is not None and target.dead_letter_arn == queue.arn:
        return dead
    before = await queue.kind.prior_counts(tx, dead)
    most = queue.max_receive_count
    return [m for m in dead if m.receive_count - before.get(m.sequence, 0) > most]


async def release(engine: Engine, queue: Queue, received: list[Received]) -> None:
    """Release messages that were leased for a client that has disconnected."""
    try:
        async with engine.database.transaction() as tx:
            await queue.kind.release(tx, engine.clock.of(queue.account_id).now_of_sends(), received)
    except Unavailable as error:
        text = "%d messages stay hidden until their timeout: %s"
        _log.log(error.log_level, text, len(received), error)
        return
    engine.wakeups.arrived(queue.queue_id, len(received))


_Shown = TypeVar("_Shown")
MESSAGES_AT_ONCE = 10
"""Maximum messages of the first lookup."""
_MOST_AT_ONCE = 100
"""Maximum messages of one lookup, whatever their size: as many as ten receives of SQS."""
_SHOWN_AT_ONCE = 65_536
"""Bytes of messages to process before yielding to the event loop."""


class ReceiveMany(NamedTuple):
    """A request to receive messages, within its limits. None: the queue's setting."""

    max_messages: int = 1
    visibility_timeout_seconds: int | None = None
    wait_seconds: int | None = None
    attempt_id: str | None = None
    """For FIFO queues: a repeated attempt gets the same messages, as in SQS."""
    most_bytes: int = 2 << 20
    """Maximum size: lease no more messages beyond it."""
    kind: type[Receiving] = Receiving
    """``Leasing`` for a consumer of a channel."""
    origin: RequestOrigin | None = None
    """The origin of the request, for the list of waiting receivers."""

    def part(self, after: int) -> ReceiveMany:
        """Return the request without the first messages, as a receive of its own for attempts."""
        if self.attempt_id is None:
            return self
        return self._replace(attempt_id=f"{self.attempt_id}#{after}")

    def visibility_of(self, queue: Queue) -> int:
        """Return the visibility timeout in seconds."""
        if self.visibility_timeout_seconds is None:
            return queue.visibility_timeout_seconds
        return self.visibility_timeout_seconds

    def wait_of(self, queue: Queue) -> int:
        """Return the wait time in seconds."""
        return queue.receive_wait_seconds if self.wait_seconds is None else self.wait_seconds


async def receive_many(
    engine: Engine, caller: Caller, queue: Queue, request: ReceiveMany
) -> list[Received]:
    """Lease messages, oldest first, maybe none.

    A long poll returns the first message as soon as there is one, and does not wait for more. Ten
    messages are leased first; their sizes predict how many more fit into ``most_bytes``. Messages
    that do not fit are released. Cancelling releases leased messages.
    """
    wait = request.wait_of(queue)
    found: list[Received] = []
    size = 0
    limit = min(MESSAGES_AT_ONCE, request.max_messages)
    try:
        while True:
            part = await answered(
                _receive_some,
                engine,
                queue,
                request.part(len(found)),
                limit,
                wait,
                client=(caller, request.origin),
            )
            found += part
            sizes = [len(one.body) + len(one.attributes or "") for one in part]
            size += sum(sizes)
            room = request.max_messages - len(found)
            # Parts of a FIFO receive may be short while other groups have messages.
            least = MESSAGES_AT_ONCE if queue.kind.has_groups else limit
            if len(part) < min(least, limit) or not room or size >= request.most_bytes:
                return _fitting(engine, queue, request, found)
            wait = 0
            limit = _next_limit(queue, (request.most_bytes - size) // max(1, *sizes), room)
    except OverLimit:
        if not found:
            raise
        return found
    except BaseException:
        if found:
            spawn(release(engine, queue, found))
        raise


async def receive_shown(
    engine: Engine,
    caller: Caller,
    queue: Queue,
    request: ReceiveMany,
    show: Callable[[Received, datetime], _Shown],
) -> list[_Shown]:
    """Receive messages and convert them with ``show``, the most urgent first. ``show`` gets a
    message and the end of its visibility timeout."""
    received = await receive_many(engine, caller, queue, request)
    return await show_received(engine, queue, request, received, show)


def start_receiving(
    engine: Engine, queue: Queue, request: ReceiveMany, reply: Reply[list[Received]]
) -> Receiving:
    """Lease at most ``MESSAGES_AT_ONCE`` messages, as ``receive_many`` does."""
    wait = request.wait_of(queue)
    return _receive_some(engine, queue, request, request.max_messages, wait, reply)


def is_short(received: list[Received]) -> bool:
    """Return True if the messages are short enough to convert without yielding."""
    left = _SHOWN_AT_ONCE
    for one in received:
        left -= len(one.body)
        if one.attributes:
            left -= len(one.attributes)
    return left >= 0


async def show_received(
    engine: Engine,
    queue: Queue,
    request: ReceiveMany,
    received: list[Received],
    show: Callable[[Received, datetime], _Shown],
) -> list[_Shown]:
    """Convert received messages, yielding to the event loop in between. Cancelling releases
    them."""
    try:
        return await run_in_steps(shown_in_steps(engine, queue, request, received, show))
    except BaseException:
        spawn(release(engine, queue, received))
        raise


def shown_in_steps(
    engine: Engine,
    queue: Queue,
    request: ReceiveMany,
    received: list[Received],
    show: Callable[[Received, datetime], _Shown],
) -> Generator[None, None, list[_Shown]]:
    """Convert received messages in steps."""
    # Each part is in order, but a later part may have more urgent messages.
    received.sort(key=lambda one: -(one.priority or 0))
    present = engine.clock.of(queue.account_id).instant()
    hidden = timedelta(seconds=request.visibility_of(queue))
    shown = []
    size = 0
    for one in received:
        shown.append(show(one, (one.leased_at or present) + hidden))
        size += len(one.body)
        if size > _SHOWN_AT_ONCE:
            size = 0
            yield
    return shown


def _next_limit(queue: Queue, fitting: int, room: int) -> int:
    limit = min(room, max(MESSAGES_AT_ONCE, min(fitting, _MOST_AT_ONCE)))
    if queue.kind.has_groups and limit > MESSAGES_AT_ONCE:
        # Groups have ten messages for each receive, and the lane limits each part to that.
        limit -= limit % MESSAGES_AT_ONCE
    return limit


def _fitting(
    engine: Engine, queue: Queue, request: ReceiveMany, found: list[Received]
) -> list[Received]:
    """Return the messages that fit into an answer; release the others."""
    size = count = 0
    while count < len(found) and size < request.most_bytes:
        size += len(found[count].body) + len(found[count].attributes or "")
        count += 1
    if len(found) <= count + MESSAGES_AT_ONCE:
        return found
    spawn(release(engine, queue, found[count:]))
    return found[:count]


def _receive_some(
    engine: Engine,
    queue: Queue,
    request: ReceiveMany,
    limit: int,
    wait: int,
    reply: Reply[list[Received]],
) -> Receiving:
    seconds = request.visibility_of(queue)
    receiving = request.kind(engine, queue, limit=limit, visibility_seconds=seconds, reply=reply)
    receiving.attempt_id = request.attempt_id
    receiving.start(wait)
    return receiving

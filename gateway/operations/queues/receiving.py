"""One ReceiveMessage from its first look to its answer: look, wait, look again, until the deadline.

Callback based instead of a coroutine: a receive that finds something at once costs no task.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from queuegate.gateway.operations.queues.dead_letters import dead_letter_queue
from queuegate.gateway.operations.waiters import place_of_pause
from queuegate.protocol import envelopes
from queuegate.storage.errors import OverLimit, QueueDoesNotExist, Unavailable
from queuegate.storage.lanes import NOBODY, Reply
from queuegate.storage.model import UNSIGNED, Queue, Received
from queuegate.storage.queues import burials, own_dead_letters
from queuegate.storage.queues.kinds import STANDARD
from queuegate.storage.queues.message_entries import Receive
from queuegate.storage.queues.own_dead_letters import BEGINNING

if TYPE_CHECKING:
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.database import Transaction

_log = logging.getLogger("queuegate.receiving")

_BURIALS_AT_ONCE = 5
_LOOKS = 500
_PAUSE_SECONDS = 1.0
_LONG_BYTES = 65_536
"""Messages below that together do not count while they become an answer."""
_IN_FLIGHT_TEXT = (
    "Too many messages are in flight: the limit of a queue is {}. Delete messages, or wait until "
    "their visibility timeouts end."
)


class Receiving:
    """A receive under way. It is what its entries reply to.

    ``cancel`` when the caller goes away: what was leased for it is released at once.
    """

    __slots__ = (
        "_arrivals",
        "_burials",
        "_deadline",
        "_done",
        "_engine",
        "_entry",
        "_held",
        "_limit",
        "_looked",
        "_parked",
        "_queue",
        "_reply",
        "_timer",
        "_visibility_ms",
        "attempt_id",
    )

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
        """Look at once; wait up to ``wait_seconds`` for something when there is nothing."""
        if wait_seconds > 0:
            self._deadline = asyncio.get_running_loop().time() + wait_seconds
        self._look()

    def listen(self, seen: int | None = None) -> None:
        """Wait for as long as it takes. ``seen``: nothing was left after so many arrivals
        (``arrivals``); there is a look when there were more."""
        self._deadline = math.inf
        if seen is None:
            self.wake()
        else:
            self._looked = perf_counter()
            self._arrivals = seen
            self._nothing()

    @property
    def queue(self) -> Queue:
        """As it was at the last look."""
        return self._queue

    @property
    def arrivals(self) -> int:
        """How many arrivals the queue had seen before the last look."""
        return self._arrivals

    def cancel(self) -> None:
        """The caller has gone: stop, and give back what a flush under way may still lease."""
        if self._done:
            return
        self._done = True
        if self._entry is not None:
            self._entry.gone = True
            # We may have been woken for a message that is there for whoever waits behind us.
            self._engine.wakeups.wake_next(self._queue.queue_id)
        self._unpark()

    def give_back(self, received: list[Received]) -> None:
        """Show messages again whose answer did not reach the caller."""
        if received:
            spawn(release(self._engine, self._queue, received))

    def wake(self) -> None:
        """Something may be there."""
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
            self._look()
        else:
            spawn(self._look_anew())

    def take(self) -> Receive | None:
        """Go on with what is being sent, instead of a look for it."""
        engine, queue = self._engine, self._queue
        if (
            self._done
            or engine.stopping
            or queue.kind is not STANDARD
            # To be seen at once by everybody is what only a look can give.
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

    async def _look_anew(self) -> None:
        """The queue was changed or deleted while we waited: go on with what it is now."""
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
            self._look()

    def _look(self) -> None:
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
        """Many were handed out: a queue whose messages in flight are at the limit gives no more."""
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
            # A long poll gets no error; some will be deleted, or time out.
            self._pause()
        else:
            self.failed(OverLimit(_IN_FLIGHT_TEXT.format(engine.in_flight.limit)))

    def _hold(self, size_bytes: int) -> None:
        """Count so many bytes for the account of the queue."""
        traffic, change = self._engine.series.traffic, size_bytes - self._held
        self._held = size_bytes
        traffic.hold(change, self._queue.account_id, is_answer=True)

    def _hold_received(self, received: Sequence[Received]) -> None:
        """Count what came in place of what was expected, if it may be much."""
        if not (self._held or (received and len(received[0].body) > _LONG_BYTES)):
            return
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
        expected = engine.series.traffic.expected(queue.queue_id)
        if expected:
            self._hold(expected * self._limit)
        if queue.queue_id in engine.fair.noisy and queue.kind is STANDARD:
            engine.fair.receive.submit(self._asked())
        else:
            engine.lanes_of[queue.kind].receive.submit(self._asked())

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
        return self._entry

    def done(self, result: list[Received]) -> None:
        """The lane has looked, or was handed something."""
        was_handed = self._entry is not None and self._entry.is_handed
        self._entry = None
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
                    spawn(self._bury(result))
                    return
        self._hand_over(result)

    def _note_groups(self, received: list[Received]) -> None:
        """Let the queue be fair to its message groups, if it has some. A plain one costs a look."""
        fairness = self._engine.fairness
        if self._queue.queue_id not in fairness.watched:
            for message in received:
                if message.system is not None:
                    break
            else:
                return
        fairness.received(self._queue.queue_id, received)

    def _hand_over(self, received: list[Received]) -> None:
        """Answer; envelopes whose signature is still to be made get it first."""
        for message in received:
            if message.body_md5 == UNSIGNED:
                spawn(self._sign(received))
                return
        self._finish(received)

    async def _sign(self, received: list[Received]) -> None:
        """Fill in signatures, off the event loop. A caller who goes meanwhile gets nothing."""
        places = [place for place, m in enumerate(received) if m.body_md5 == UNSIGNED]
        try:
            items = [envelopes.to_sign(received[place].body) for place in places]
            signatures = await self._engine.signer.sign_many(items)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller must get an answer
            spawn(release(self._engine, self._queue, received))
            self.failed(error)
            return
        if self._done:
            await release(self._engine, self._queue, received)
            return
        received = list(received)
        fingerprint = self._engine.signer.fingerprint
        for place, signature in zip(places, signatures, strict=True):
            body = envelopes.with_signature(received[place].body, signature, fingerprint)
            received[place] = received[place]._replace(body=body, body_md5=None)
        self._finish(received)

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
            # It was changed or deleted meanwhile, and nobody would say so again.
            spawn(self._look_anew())
            return
        if self._engine.wakeups.arrivals(queue.queue_id) != self._arrivals:
            self._look()
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
        """Return where to park: sends hand nothing to receives of a paused queue."""
        queue = self._queue
        return queue.queue_id if queue.paused_at is None else place_of_pause(queue.queue_id)

    def failed(self, error: BaseException) -> None:
        """Nothing comes of it."""
        self._entry = None
        if self._held:
            self._hold(0)
        if not self._done:
            self._done = True
            reply, self._reply = self._reply, NOBODY
            reply.failed(error)

    def _finish(self, result: list[Received]) -> None:
        if self._done:
            return
        self._done = True
        if result:
            self._engine.series.received(self._queue, result, perf_counter() - self._looked)
        # Callers keep us, too: as in Entry.done.
        reply, self._reply = self._reply, NOBODY
        reply.done(result)
        if self._held:
            self._hold(0)

    async def _bury(self, received: list[Received]) -> None:
        """Move what was received once too often to the dead-letter queue, then answer the rest."""
        most = self._queue.max_receive_count
        dead = [message for message in received if message.receive_count > most]
        try:
            buried = await _move_to_dead_letter(self._engine, self._queue, dead)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller must get an answer
            # They stay in flight and over the limit: the next receive moves them.
            self.failed(error)
            return
        gone = {message.sequence for message in buried}
        alive = [message for message in received if message.sequence not in gone]
        if self._done:
            if alive:
                await release(self._engine, self._queue, alive)
        elif alive:
            self._hand_over(alive)
        else:
            self._look_behind()

    def _look_behind(self) -> None:
        """Nothing is left for this caller, but there may be more behind what was moved.

        Queues that are each other's dead-letter queue, or their own, hand the same messages round
        for ever (so does AWS): after a few rounds a long poll paces itself, a short one gives up.
        """
        self._burials += 1
        if self._burials < _BURIALS_AT_ONCE:
            self._look()
            return
        self._pause()

    def _pause(self) -> None:
        """Look again in a second; a short poll, or one whose time is over, ends empty."""
        loop = asyncio.get_running_loop()
        if not self._deadline or loop.time() >= self._deadline or self._engine.stopping:
            self._finish([])
            return
        pause = min(_PAUSE_SECONDS, self._deadline - loop.time())
        self._timer = loop.call_later(pause, self.wake)


class Leasing(Receiving):
    """A receive by a consumer of a channel. Its leases are on disk before the reply: if a crash of
    the database undid them, two consumers would hold the same delivery."""

    __slots__ = ()

    def _ask(self) -> None:
        self._engine.lanes_of[self._queue.kind].lease.submit(self._asked())


async def _move_to_dead_letter(
    engine: Engine, queue: Queue, dead: list[Received]
) -> list[Received]:
    """Those that nobody may get any more: they were moved, or deleted meanwhile.

    None when the target does not exist (any more): AWS keeps delivering from the source; a queue
    that has dead letters of its own gets a queue for them.
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
            target = await own_dead_letters.find_or_make(tx, now, queue)
        if target is None:
            return dead
        moved = await burials.bury(tx, now, queue, target, dead)
        if has_own and not queue.kind.has_groups:
            # All that is in front of what can be received: many may wait for room.
            others = await burials.bury_due(
                tx, now, queue, after=BEGINNING, looks=_LOOKS, holds=True
            )
            moved += others.moved
    if target.arn != queue.dead_letter_arn:
        # The answer must not come before this process knows of the new dead-letter queue.
        engine.wakeups.queue_changed(queue.queue_id)
    if moved:
        engine.series.buried(queue, moved)
        engine.wakeups.arrived(target.queue_id, moved)
        if queue.kind.has_groups:
            # What waited behind them.
            engine.wakeups.arrived(queue.queue_id, moved)
        return dead
    # Its own notification may be on the way: ask the database whether the target is there.
    engine.queues.forget(target.queue_id)
    is_bounded = target.most_messages is not None
    return (
        dead if has_own or is_bounded or await dead_letter_queue(engine, queue) is not None else []
    )


async def _without_young(
    tx: Transaction, queue: Queue, target: Queue | None, dead: list[Received]
) -> list[Received]:
    """A dead letter of another queue may be received here as often as if it were new, whatever its
    count shows. Not where the target would send it back: such queues hand it round
    (docs/contract/sqs.md 2.10)."""
    if target is not None and target.dead_letter_arn == queue.arn:
        return dead
    before = await queue.kind.prior_counts(tx, dead)
    most = queue.max_receive_count
    return [m for m in dead if m.receive_count - before.get(m.sequence, 0) > most]


async def release(engine: Engine, queue: Queue, received: list[Received]) -> None:
    """Show messages again that were leased for a caller who has gone."""
    try:
        async with engine.database.transaction() as tx:
            await queue.kind.release(tx, engine.clock.of(queue.account_id).now(), received)
    except Unavailable as error:
        text = "%d messages stay hidden until their timeout: %s"
        _log.log(error.log_level, text, len(received), error)
        return
    engine.wakeups.arrived(queue.queue_id, len(received))


_running: set[asyncio.Task[None]] = set()


def spawn(work: Coroutine[None, None, None]) -> None:
    """Run work that nobody waits for, until ``settle``."""
    task = asyncio.get_running_loop().create_task(work)
    _running.add(task)
    task.add_done_callback(_running.discard)


async def settle() -> None:
    """Wait for moves and releases under way: a stopping gateway leaves none behind."""
    while _running:
        await asyncio.gather(*_running, return_exceptions=True)

"""Random clients, crashes and clock jumps, one step at a time, checked against the model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, ClassVar

from queuegate.gateway.operations.queues.deletions import finish_by_number, finish_last
from queuegate.gateway.operations.queues.json_messages import Values
from queuegate.gateway.operations.queues.queues import CreateQueue as OtherQueue
from queuegate.gateway.operations.queues.queues import create_queue as create_other_queue
from queuegate.gateway.operations.queues.sends import PRIORITY, TTL
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.runtime.replies import Reply
from queuegate.scheduler.move_tasks import MoveMessages
from queuegate.scheduler.sweeps import remove_overdue
from queuegate.storage.queue_model import Queue, Received
from queuegate.storage.storage_errors import Rejected
from tests.operations.sqs import (
    create_queue,
    get_queue_attributes,
    purge_queue,
    set_queue_attributes,
    start_message_move_task,
)
from tests.simulation.model import Handle, Impossible, Message, ModelQueue
from tests.simulation.stepping import Stepping
from tests.simulation.topics import Topics
from tests.simulation.world import CALLER, World
from tests.sqs_calls import (
    ReceiveMessage,
    SendMessage,
    SendResult,
    answered,
    change_message_visibility,
    delete_message,
    receive_message,
    send_message,
)
from tests.waiting import until_async

_SMALL = 3
"""How many messages the small queue holds."""
_COUNTERS = [f"ApproximateNumberOfMessages{name}" for name in ("", "NotVisible", "Delayed")]


class Noting:
    """A reply that keeps what it passes on."""

    def __init__(self, heard: list[object], reply: Reply[None]) -> None:
        self._heard = heard
        self._reply = reply

    def done(self, result: None) -> None:
        self._heard.append(result)
        self._reply.done(result)

    def failed(self, error: BaseException) -> None:
        self._heard.append(error)
        self._reply.failed(error)


class Simulation(Stepping):
    """Of queues and topics."""

    steps: ClassVar[Sequence[tuple[int, str]]] = (
        (24, "send"),
        (24, "receive"),
        (18, "delete"),
        (4, "finish_last"),
        (4, "finish_by_number"),
        (8, "change_visibility"),
        (8, "count"),
        (6, "jump"),
        (3, "set_attributes"),
        (3, "move_back"),
        (14, "publish"),
        (6, "subscribe"),
        (2, "unsubscribe"),
        (6, "remove_expired"),
        (1, "purge"),
        (2, "crash"),
        (2, "crash_during_send"),
        (2, "crash_during_delete"),
        (2, "crash_during_receive"),
        (2, "crash_during_publish"),
    )

    def __init__(self, world: World, seed: int) -> None:
        super().__init__(world, seed)
        self.queues: list[ModelQueue] = []
        self.topics = Topics(world, self.random)

    async def run(self, steps: int) -> None:
        """Raises Impossible, or whatever else should not happen."""
        await self._make_queues()
        await self.topics.make([queue for queue in self.queues if queue.receives_topics])
        busy = [queue for queue in self.queues if self.world.busy in (None, queue.name)]
        for number in range(steps):
            name = self.choose_step(number)
            queue = self.random.choice(busy)
            step: Callable[[Engine, Queue, ModelQueue], Awaitable[None]] = getattr(self, "_" + name)
            self.log.append(f"{number} {name} {queue.name}")
            self._expire()
            engine = self.random.choice(self.world.engines)
            await step(engine, await self.world.queue(engine, queue.name), queue)
            await self.world.pass_seconds(self.random.choice((0.001, 0.01, 0.5, 1.5)))
        for queue in self.queues:
            await self._drain(queue)

    def _expire(self) -> None:
        for queue in self.queues:
            queue.expire(self.world.clock.instant_now)

    async def _make_queues(self) -> None:
        engine = self.world.engines[0]
        for suffix in ("", ".fifo"):
            is_fifo = bool(suffix)
            fifo = {"FifoQueue": "true"} if is_fifo else {}
            dead = await create_queue(engine, CALLER, f"dead{suffix}", fifo)
            policy = f'{{"deadLetterTargetArn":"{dead.arn}","maxReceiveCount":3}}'
            attributes = {**fifo, "RedrivePolicy": policy}
            await create_queue(engine, CALLER, f"work{suffix}", attributes)
            await create_queue(engine, CALLER, f"plain{suffix}", fifo)
            letters = ModelQueue(f"dead{suffix}", is_fifo)
            work = ModelQueue(f"work{suffix}", is_fifo, max_receive_count=3, dead_letters=letters)
            self.queues += [work, ModelQueue(f"plain{suffix}", is_fifo), letters]
        await create_other_queue(engine, CALLER, OtherQueue("small", most_messages=_SMALL))
        await create_other_queue(engine, CALLER, OtherQueue("turns", is_serial=True))
        self.queues += [
            ModelQueue("small", False, most_messages=_SMALL),
            ModelQueue("turns", True, is_serial=True),
        ]

    # Steps

    def _new_message(self, queue: ModelQueue) -> tuple[SendMessage, Message, str | None]:
        body = self.new_body()
        now = self.world.clock.instant_now
        delay = queue.delay_seconds
        if not queue.is_fifo:
            given = self.random.choice((None, None, 0, 5, 60))
            delay = delay if given is None else given
            priority, ttl = self._urgency()
            request = SendMessage(body, given, _urgency_attributes(priority, ttl))
            group = deduplication = None
        else:
            priority = ttl = None
            group = self.random.choice("abc")
            known = 4 if queue.is_serial else 40
            deduplication = self.random.choice((body, str(self.random.randint(1, known))))
            request = SendMessage(body, group_id=group, deduplication_id=deduplication)
        message = Message(body, "", now + timedelta(seconds=delay), now, group)
        message.priority = priority or 0
        message.is_plain = priority is None and ttl is None
        message.expires_at = None if ttl is None else now + timedelta(seconds=ttl)
        return request, message, deduplication

    def _urgency(self) -> tuple[int | None, int | None]:
        """Priority and time to live, for some."""
        return (
            self.random.choice((None, None, None, 0, 1, 5, 10)),
            self.random.choice((None, None, None, 2, 40, 400)),
        )

    def _sent(self, queue: ModelQueue, message: Message, deduplication: str | None) -> None:
        original = queue.repeated_by(message, deduplication)
        if original is None:
            queue.send(message, deduplication)
        elif original != message.message_id:
            raise Impossible(f"{message.body} is a duplicate of {original}")

    async def _send(self, engine: Engine, queue: Queue, model: ModelQueue) -> None:
        if not model.takes_messages:
            return
        request, message, deduplication = self._new_message(model)
        try:
            sent: SendResult = await answered(send_message, engine, CALLER, queue, request)
        except Rejected:
            if not model.is_full:
                raise
            self.note(f"{request} has no room")
            return
        if model.is_full:
            raise Impossible(f"{model.name} holds more than it may")
        message.message_id = sent.message_id
        self.note(f"{request}")
        if not message.is_plain and not model.has_priorities:
            self.world.notify_others()
        self._sent(model, message, deduplication)

    async def _receive(self, engine: Engine, queue: Queue, model: ModelQueue) -> None:
        limit = self.random.randint(1, 10)
        seconds = self.random.choice((None, 0, 1, 5, 60))
        request = ReceiveMessage(limit, seconds, 0)
        received: list[Received] = await answered(receive_message, engine, CALLER, queue, request)
        await self._received(queue, model, request, received)

    async def _received(
        self, queue: Queue, model: ModelQueue, request: ReceiveMessage, received: list[Received]
    ) -> None:
        now = self.world.clock.instant_now
        limit, seconds = request.max_messages or 1, request.visibility_timeout_seconds
        got = [(message.body, message.receive_count) for message in received]
        self.note(f"{limit} for {seconds} s -> {got}")
        moved: set[str] = set()
        if model.dead_letters is not None:
            left = await self.world.bodies(queue)
            moved = {message.body for message in model.messages} - set(left)
        messages = model.receive(now, limit, got, moved)
        for message in [message for message in model.messages if message.body in moved]:
            model.bury(message, now)
            if not message.is_plain:
                self.world.notify_others()
        hidden = model.visibility_seconds if seconds is None else seconds
        for message, given in zip(messages, received, strict=True):
            message.receive_count += 1
            message.was_received = True
            message.visible_at = now + timedelta(seconds=hidden)
            text = self.world.receipts.handle_of(given, self.world.clock.seconds())
            said = (given.queue_id, given.group_id, given.sequence, given.receive_count)
            model.handles.append(Handle(model, message, message.receive_count, text, said))

    def _some_handle(self, model: ModelQueue) -> Handle | None:
        """Mostly a young one."""
        if not model.handles:
            return None
        if self.random.random() < 0.2:
            return self.random.choice(model.handles)
        return self.random.choice(model.handles[-8:])

    async def _delete(self, engine: Engine, queue: Queue, model: ModelQueue) -> None:
        handle = self._some_handle(model)
        if handle is None:
            return
        expected = model.accepts(handle, self.world.clock.instant_now, to_delete=True)
        accepted = await _accepted(delete_message, engine, CALLER, queue, handle.text)
        self.note(f"{handle.message.body} {accepted}")
        if accepted != expected:
            raise Impossible(f"delete of {handle.message.body}: {accepted}")
        if accepted and model.find(handle):
            model.messages.remove(handle.message)

    async def _finish_last(self, engine: Engine, queue: Queue, model: ModelQueue) -> None:
        now = self.world.clock.instant_now
        lost = [one for one in model.handles if one.is_superseded and model.find(one)]
        handle = self.random.choice(lost[-8:]) if lost else self._some_handle(model)
        if handle is None or handle.message.is_expired(now):
            return
        [outcome] = await answered(finish_last, engine, queue, [handle.said])
        self._finished(handle, outcome == "ok", model.is_last(handle, now))

    async def _finish_by_number(self, engine: Engine, queue: Queue, model: ModelQueue) -> None:
        now = self.world.clock.instant_now
        handle = self._some_handle(model)
        if handle is None or handle.message.is_expired(now):
            return
        deleted = await finish_by_number(engine, CALLER, queue, [handle.said[2]])
        self._finished(handle, bool(deleted), model.is_numbered(handle, now))

    def _finished(self, handle: Handle, was_deleted: bool, expected: bool) -> None:
        self.note(f"{handle.message.body} {was_deleted}")
        if was_deleted != expected:
            raise Impossible(f"finish of {handle.message.body}: {was_deleted}")
        if was_deleted:
            handle.queue.messages.remove(handle.message)

    async def _change_visibility(self, engine: Engine, queue: Queue, model: ModelQueue) -> None:
        handle = self._some_handle(model)
        now = self.world.clock.instant_now
        if handle is None or handle.message.is_expired(now):
            # It may or may not have been removed already.
            return
        seconds = self.random.choice((0, 2, 30, 300))
        expected = model.accepts(handle, now, to_delete=False)
        accepted = await _accepted(
            change_message_visibility, engine, CALLER, queue, handle.text, seconds
        )
        self.note(f"{handle.message.body} {seconds} s {accepted}")
        if accepted != expected:
            raise Impossible(f"change of {handle.message.body}: {accepted}")
        if accepted:
            handle.message.visible_at = now + timedelta(seconds=seconds)

    async def _count(self, engine: Engine, queue: Queue, model: ModelQueue) -> None:
        answer = await get_queue_attributes(engine, CALLER, queue, _COUNTERS)
        counts = tuple(int(answer[name]) for name in _COUNTERS)
        expected = model.counts(self.world.clock.instant_now)
        if counts != expected:
            raise Impossible(f"{model.name} counts {counts}, not {expected}")

    async def _jump(self, engine: Engine, queue: Queue, model: ModelQueue) -> None:
        seconds = self.random.choice((3.3, 31.7, 65.2, 301.4))
        self.note(f"{seconds} s")
        await self.world.pass_seconds(seconds)
        self.world.forget_marks()

    async def _set_attributes(self, engine: Engine, queue: Queue, model: ModelQueue) -> None:
        if not model.takes_messages:
            return
        delay, visibility = self.random.choice((0, 0, 3, 40)), self.random.choice((1, 10, 30))
        if model.is_serial:
            # What was received keeps the delay that it had, and its place by that.
            delay = 0
        self.note(f"delay {delay}, visibility {visibility}")
        attributes = {"DelaySeconds": str(delay), "VisibilityTimeout": str(visibility)}
        await set_queue_attributes(engine, CALLER, queue, attributes)
        self.world.notify_others()
        model.set_delay(delay)
        model.visibility_seconds = visibility

    async def _remove_expired(self, engine: Engine, queue: Queue, model: ModelQueue) -> None:
        """Of all queues, every one that has."""
        self._expire()
        await remove_overdue.job(engine.database, self.world.clock.now).run_round(10_000)
        self.world.forget_marks()
        for one in self.queues:
            one.has_expired = False

    async def _purge(self, engine: Engine, queue: Queue, model: ModelQueue) -> None:
        await purge_queue(engine, CALLER, queue)
        model.purge()

    async def _move_back(self, engine: Engine, queue: Queue, model: ModelQueue) -> None:
        """A move task returns the dead letters that are not in flight."""
        letters = model.dead_letters
        if letters is None:
            return
        dead = await self.world.queue(engine, letters.name)
        await start_message_move_task(engine, CALLER, dead.arn)
        job = MoveMessages(engine.database, self.world.clock.now, lambda *_: None)
        await until_async(
            lambda: job._run_batch(self.random.randint(1, 20)), lambda moved: moved is None
        )
        now = self.world.clock.instant_now
        self.world.notify_others()
        there = await self.world.bodies(queue)
        for messages in letters.receivable(now).values():
            for message in messages:
                letters.messages.remove(message)
                if message.body not in there:
                    raise Impossible(f"{message.body} was not moved back")
                delay = 0 if model.is_fifo else model.delay_seconds
                visible_at = now + timedelta(seconds=delay)
                new_id = there[message.body]
                back = Message(message.body, new_id, visible_at, now, message.group_id)
                back.priority, back.is_plain = message.priority, message.is_plain
                model.send(back)
                # It has no more than it had.
                back.is_plain = message.is_plain

    # Topics

    async def _subscribe(self, engine: Engine, queue: Queue, model: ModelQueue) -> None:
        if model.receives_topics:
            self.note(await self.topics.subscribe(engine, model))

    async def _unsubscribe(self, engine: Engine, queue: Queue, model: ModelQueue) -> None:
        self.note(await self.topics.unsubscribe(engine))

    async def _publish(self, engine: Engine, queue: Queue, model: ModelQueue) -> None:
        self.note(await self.topics.publish(engine, self.new_body()))

    async def _crash_during_publish(self, engine: Engine, queue: Queue, model: ModelQueue) -> None:
        turns = self.turns()
        self.note(await self.topics.publish_and_crash(engine, self.new_body(), turns))

    # Crashes

    async def _crash(self, engine: Engine, queue: Queue, model: ModelQueue) -> None:
        await self.world.crash()

    async def _crash_during_send(self, engine: Engine, queue: Queue, model: ModelQueue) -> None:
        if not model.takes_messages:
            return
        request, message, deduplication = self._new_message(model)
        original = model.repeated_by(message, deduplication)
        turns = self.turns()
        answer = await self.world.crash_during(
            turns, answered(send_message, engine, CALLER, queue, request)
        )
        there = await self.world.bodies(queue)
        self.note(f"{request} after {turns}: {answer}, {message.body in there}")
        if isinstance(answer, SendResult) and original is None and message.body not in there:
            raise Impossible(f"{message.body} was acknowledged and is lost")
        if message.body in there:
            if model.is_full:
                raise Impossible(f"{model.name} holds more than it may")
            message.message_id = there[message.body]
            self._sent(model, message, deduplication)

    async def _crash_during_delete(self, engine: Engine, queue: Queue, model: ModelQueue) -> None:
        handle = self._some_handle(model)
        if handle is None or model.find(handle) is None:
            return
        expected = model.accepts(handle, self.world.clock.instant_now, to_delete=True)
        done: list[object] = []

        def delete(reply: Reply[None]) -> None:
            delete_message(engine, CALLER, queue, handle.text, Noting(done, reply))

        await self.world.crash_during(self.turns(), answered(delete))
        is_there = handle.message.body in await self.world.bodies(queue)
        self.note(f"{handle.message.body} {done}: {is_there}")
        if done == [None] and is_there:
            raise Impossible(f"{handle.message.body} was deleted and is there")
        if not is_there:
            if not expected:
                raise Impossible(f"{handle.message.body} was deleted by an expired handle")
            model.messages.remove(handle.message)

    async def _crash_during_receive(self, engine: Engine, queue: Queue, model: ModelQueue) -> None:
        """Crash during a receive: a leased message without a receiver stays in flight."""
        if model.is_fifo or model.dead_letters is not None:
            return
        now = self.world.clock.instant_now
        request = ReceiveMessage(5, 20, 0)
        await self.world.crash_during(
            self.turns(), answered(receive_message, engine, CALLER, queue, request)
        )
        leases = await self.world.leases(queue.queue_id)
        for message in model.messages:
            count, visible_at = leases[message.body]
            if count == message.receive_count:
                continue
            if count != message.receive_count + 1 or message.visible_at > now:
                raise Impossible(f"{message.body} was received out of turn")
            message.receive_count, message.was_received = count, True
            message.visible_at = visible_at

    async def _drain(self, model: ModelQueue) -> None:
        """In the end everything that the model holds comes out, and nothing else."""
        if not model.takes_messages:
            return
        engine = self.world.engines[0]
        for _ in range(10 * len(model.messages) + 10):
            self.log.append(f"drain {model.name}")
            await self.world.pass_seconds(301)
            queue = await self.world.queue(engine, model.name)
            await self._remove_expired(engine, queue, model)
            await self._receive(engine, queue, model)
            now = self.world.clock.instant_now
            for handle in model.handles:
                if model.find(handle) and model.accepts(handle, now, to_delete=True):
                    await answered(delete_message, engine, CALLER, queue, handle.text)
                    model.messages.remove(handle.message)
            model.handles.clear()
            if not model.messages:
                break
        await self._count(engine, queue, model)
        if model.messages:
            raise Impossible(f"{len(model.messages)} messages never came out of {model.name}")


def _urgency_attributes(priority: int | None, ttl: int | None) -> Values | None:
    given = {PRIORITY: priority, TTL: ttl}
    return {
        name: {"DataType": "Number", "StringValue": str(value)}
        for name, value in given.items()
        if value is not None
    } or None


async def _accepted(call: Callable[..., Any], *arguments: Any) -> bool:
    try:
        await answered(call, *arguments)
    except Rejected:
        return False
    return True

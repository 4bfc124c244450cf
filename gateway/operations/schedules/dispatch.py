"""Invocations of schedules: their messages, and dispatch within the transaction of the worker that
fires them; manual runs.

An absent target, or one that refuses its message, fails alone. Statements verify cached queues: if
one was deleted, nothing is written, and everything is looked up again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import orjson

from queuegate.gateway.operations.access.authorization import PUBLISH, SEND, check_found
from queuegate.gateway.operations.access.caller import NOWHERE, Caller
from queuegate.gateway.operations.queues import sends
from queuegate.gateway.operations.runtime.background_tasks import yield_to_loop
from queuegate.gateway.operations.runtime.identifiers import new_id
from queuegate.gateway.operations.schedules.stored_schedules import SCHEDULE_HEADER, text_of
from queuegate.gateway.operations.topics import topic_publishing
from queuegate.gateway.operations.topics.fan_out import (
    FanOutMessage,
    PreparedMessage,
    Publisher,
    Queues,
    forget_gone,
)
from queuegate.gateway.operations.topics.topic_publishing import PublishMessage
from queuegate.protocol import arns
from queuegate.protocol.digests import counted_bytes, md5_of_bytes, with_bytes
from queuegate.storage.account_events import event_of_fire, note
from queuegate.storage.database import probe_by_key
from queuegate.storage.model import NewOutboxMessage, Schedule, Topic
from queuegate.storage.queue_model import NewMessage, Queue
from queuegate.storage.queues.capacity import Addressed, CopyToQueue, capacity_of
from queuegate.storage.queues.messages import row_of
from queuegate.storage.schedule_fires import Dispatched, Fire, InvocationFailure, savepoint
from queuegate.storage.storage_errors import (
    InvalidParameterValue,
    QueueDoesNotExist,
    QueueFull,
    Rejected,
    Unavailable,
)
from queuegate.storage.topics import publishing as stored
from queuegate.storage.topics.publishing import Copies, Message, WrittenPublications

if TYPE_CHECKING:
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.gateway.operations.topics.topic_cache import Audience
    from queuegate.storage.database import Transaction


Check = Callable[["Engine", "Topic", PublishMessage], FanOutMessage]
Words = Callable[[Rejected, str], tuple[str, str]]
TRIES = 3
"""Attempts, if queues are deleted after messages were prepared for them."""
_MOST_LOCKS = 500
"""Advisory locks are in shared memory, which has capacity for some thousands."""
_MOST_AT_ONCE = 1 << 20
"""Characters of messages, which take a few milliseconds."""
_COPY = 1_000
"""Cost of a subscription's copy, in characters."""
_MOST_COPIES = 100_000
_MOST_TOGETHER = 1 << 30
"""Copies and characters that a schedule sends at once when it catches up. More would exceed the
time of a transaction, and would be retried forever, before all others."""


class ReadyDispatch(NamedTuple):
    """A prepared message: for a queue, for a topic, or, with neither, for the outbox."""

    message: Message
    queue: Queue | None
    prepared: PreparedMessage | None

    @property
    def may_be_full(self) -> bool:
        """Return True if the message is for a bounded queue."""
        return self.queue is not None and self.queue.most_messages is not None

    @property
    def copy_count(self) -> int:
        """Return the number of rows."""
        return 1 if self.prepared is None else len(self.prepared.chosen.targets)

    @property
    def queues(self) -> Queues:
        """Return the possible target queues."""
        if self.prepared is not None:
            return self.prepared.queues
        queue = self.queue
        return {} if queue is None else {(queue.account_id, queue.region, queue.name): queue}


class _QueueDeleted(Exception):
    """A cached queue was deleted: roll back."""


class _YieldBySize:
    """A counter of work, which yields to the event loop after a few milliseconds."""

    def __init__(self) -> None:
        self._size = 0

    async def after(self, size: int) -> None:
        """Count so many characters."""
        self._size += size
        if self._size > _MOST_AT_ONCE:
            self._size = 0
            await yield_to_loop()


class PreparedGroups(NamedTuple):
    """The messages of groups of invocations; none for a group that fails."""

    ready: list[list[ReadyDispatch]]
    failures: list[InvocationFailure | None]
    """Of the first groups, as many as were processed."""


class WrittenInvocations(NamedTuple):
    """Messages that were written and not committed."""

    ready: list[list[ReadyDispatch]]
    outcome: WrittenPublications


class Dispatcher:
    """A dispatcher of one process. ``base_url`` is its URL for links in envelopes. ``check`` checks
    messages of other APIs' schedules; those of ours were checked at creation. ``words`` has the
    code and the text of a refusal by kind of target."""

    def __init__(
        self,
        engine: Engine,
        base_url: str,
        check: Check | None = None,
        words: Words = lambda refusal, kind: (type(refusal).__name__, str(refusal)),
    ) -> None:
        self._engine = engine
        self._base_url = base_url
        self._check = check
        self._words = words

    async def __call__(
        self, tx: Transaction, now: datetime | None, groups: Sequence[Sequence[Fire]]
    ) -> Dispatched:
        """Write the messages of groups of invocations, each group all or none; only the first
        groups if all take too many locks. If this raises, nothing was written, and the transaction
        can continue, except after Unavailable. Lookups use the pool: ``tx`` must not hold the
        connection that they need."""
        for _ in range(TRIES):
            prepared = await self.prepare(groups)
            written = await self._write_each(tx, now, prepared, groups)
            if written is not None:
                return Dispatched(prepared.failures, functools.partial(self._committed, written))
        # Queues were deleted in each attempt.
        raise QueueDoesNotExist

    async def _write_each(
        self,
        tx: Transaction,
        now: datetime | None,
        prepared: PreparedGroups,
        groups: Sequence[Sequence[Fire]],
    ) -> list[WrittenInvocations] | None:
        """Write the prepared messages. A group fails if its queue is full. None: a queue was
        deleted, and nothing was written."""
        ready = prepared.ready
        bounded = [one.message.bounded for some in ready for one in some if one.message.bounded]
        if not bounded:
            written = await self.write(tx, now, ready)
            return None if written is None else [written]
        # All at once and in order, before other locks.
        await capacity_of(tx, frozenset[int]().union(*bounded), now)
        done: list[WrittenInvocations] = []
        try:
            async with savepoint(tx):
                for places in _parts(ready):
                    done += await self._write_part(tx, now, prepared, groups, places)
        except _QueueDeleted:
            return None
        return done

    async def _write_part(
        self,
        tx: Transaction,
        now: datetime | None,
        prepared: PreparedGroups,
        groups: Sequence[Sequence[Fire]],
        places: list[int],
    ) -> list[WrittenInvocations]:
        """Write the groups at these places; none if a queue is full, and then there is only one
        group."""
        try:
            written = await self.write(tx, now, [prepared.ready[place] for place in places])
        except QueueFull as refusal:
            [place] = places
            kind = groups[place][0].target["kind"]
            prepared.failures[place] = InvocationFailure(*self._words(refusal, kind))
            return []
        if written is None:
            raise _QueueDeleted
        return [written]

    async def write(
        self,
        tx: Transaction,
        now: datetime | None,
        ready: list[list[ReadyDispatch]],
        *,
        wants_places: bool = False,
    ) -> WrittenInvocations | None:
        """Write the prepared messages. Call ``committed`` after the commit. None: a queue was
        deleted, and nothing was written; prepare again."""
        engine = self._engine
        engine.check_room()

        def clock_of(queue_id: int) -> Callable[[], datetime | None]:
            return engine.clock.of(engine.queues.account_of(queue_id) or "").now

        messages = [one.message for some in ready for one in some]
        try:
            async with savepoint(tx):
                outcome = await stored.write(
                    tx,
                    now,
                    messages,
                    wants_places=wants_places,
                    clock_of=clock_of if engine.clock.accounts else None,
                )
                if outcome.gone or outcome.gone_partitions:
                    raise _QueueDeleted
        except _QueueDeleted:
            for queue_id in outcome.gone:
                self._engine.queues.forget(queue_id)
            chosen = [one.prepared.chosen for some in ready for one in some if one.prepared]
            forget_gone(self._engine, chosen, outcome.gone_partitions)
            return None
        return WrittenInvocations(ready, outcome)

    def _committed(self, written: list[WrittenInvocations]) -> None:
        for one in written:
            self.committed(one)

    def committed(self, written: WrittenInvocations) -> None:
        """Wake receivers of the messages, in all processes, and count."""
        engine = self._engine
        for queue_id, sent_at in written.outcome.sent.items():
            engine.standard.lower_marks((queue_id,), sent_at)
        counts: dict[int, tuple[Queue, int]] = {}
        ready = [one for some in written.ready for one in some]
        outcomes = zip(written.outcome.written, written.outcome.elsewhere, strict=True)
        for one, (outcome, elsewhere) in zip(ready, outcomes, strict=True):
            if one.prepared is not None:
                one.prepared.committed(elsewhere, is_duplicate=outcome.is_duplicate)
            elif one.queue is not None:
                queue_id = one.queue.queue_id
                _, count = counts.get(queue_id, (one.queue, 0))
                counts[queue_id] = (one.queue, count + 1 + elsewhere[queue_id])
        for queue, count in counts.values():
            if count:
                engine.wakeups.arrived(queue.queue_id, count)
                engine.series.copied(queue, count)

    async def prepare(self, groups: Sequence[Sequence[Fire]]) -> PreparedGroups:
        """Look up targets and make the messages, without writing."""
        targets = [fire.target for group in groups for fire in group]
        names = {
            (target["account_id"], target["region"], target["queue_name"])
            for target in targets
            if target["kind"] == "queue"
        }
        queues = await self._engine.queues.find_many(names)
        ready: list[list[ReadyDispatch]] = []
        failures: list[InvocationFailure | None] = []
        locks = 0
        yields = _YieldBySize()
        for group in groups:
            if locks > _MOST_LOCKS:
                break
            try:
                ready.append(await self._all_ready(group, queues, yields))
                failures.append(None)
                locks += sum([one.message.lock_count for one in ready[-1]])
            except Rejected as refusal:
                ready.append([])
                failures.append(InvocationFailure(*self._words(refusal, group[0].target["kind"])))
        return PreparedGroups(ready, failures)

    async def _all_ready(
        self, group: Sequence[Fire], queues: Queues, yields: _YieldBySize
    ) -> list[ReadyDispatch]:
        found: list[ReadyDispatch] = []
        copies = size = 0
        for fire in group:
            one = await self._ready(fire, queues)
            found.append(one)
            length = len(text_of(fire))
            copies += one.copy_count
            size += one.copy_count * length
            if len(found) > 1 and (copies > _MOST_COPIES or size > _MOST_TOGETHER):
                raise InvalidParameterValue(
                    f"{len(group)} missed times are too much to make up for at once, for so many "
                    "subscriptions: lower catchup_limit."
                )
            await yields.after(length + one.copy_count * _COPY)
        return found

    async def _ready(self, fire: Fire, queues: Queues) -> ReadyDispatch:
        fire = filled(fire)
        target = fire.target
        if target.get("error") is not None:
            # The refusal was known at creation; it counts as a failure only now, as on AWS.
            raise InvalidParameterValue(target["error"])
        if target["kind"] == "queue":
            queue = queues[target["account_id"], target["region"], target["queue_name"]]
            if queue is None:
                raise QueueDoesNotExist
            self._check_right(fire, SEND, queue)
            return ReadyDispatch(message_for(self._engine, fire, queue), queue, None)
        if target["kind"] == "outbox":
            return ReadyDispatch(kept_message(fire), None, None)
        audience = await self._audience(fire)
        if not target.get("is_event"):
            self._check_right(fire, PUBLISH, audience.topic)
        deduplication_id = target.get("deduplication_id")
        if deduplication_id is None and fire.group_name is None and audience.topic.is_fifo:
            deduplication_id = own_deduplication_id(fire)
        text, (attributes, attribute_bytes) = text_of(fire), attributes_of(fire)
        request = PublishMessage(
            text,
            target.get("subject"),
            target.get("structure"),
            with_bytes(orjson.loads(attributes)) if attributes else None,
            target.get("group_id"),
            deduplication_id,
        )
        caller = Caller(fire.account_id, fire.region, fire.account_id)
        publisher = Publisher(caller, self._base_url)
        message = (
            topic_publishing.outgoing(
                self._engine,
                audience.topic,
                request,
                message_bytes=len(text.encode()),
                attribute_bytes=attribute_bytes,
            )
            if self._check is None
            else self._check(self._engine, audience.topic, request)
        )
        prepared = await topic_publishing.prepare(self._engine, publisher, audience, message)
        return ReadyDispatch(prepared.message, None, prepared)

    def _check_right(self, fire: Fire, right: str, resource: Queue | Topic) -> None:
        """Raise the refusal of the authority or the target's policy. Rights may have changed since
        the schedule was created."""
        if self._engine.authority is not None:
            place = fire.account_id, fire.region, fire.account_id
            role_arn = fire.target.get("role_arn") or ""
            if f"::{fire.account_id}:role/" not in role_arn:
                role_arn = ""
            caller = Caller(*place, role_arn=role_arn, origin=NOWHERE, agent="")
            check_found(self._engine, caller, right, resource)

    async def _audience(self, fire: Fire) -> Audience:
        target = fire.target
        place = (target["account_id"], target["region"], target["topic_name"])
        if target.get("is_event"):
            return await self._engine.topics.event_audience(*place)
        return await self._engine.topics.find(*place)


def _parts(ready: list[list[ReadyDispatch]]) -> list[list[int]]:
    """Yield the places of groups to be written together; groups for bounded queues are alone."""
    apart = [place for place, some in enumerate(ready) if any(one.may_be_full for one in some)]
    return [[place for place in range(len(ready)) if place not in apart], *([one] for one in apart)]


class RunMessage(NamedTuple):
    """A message of a manual run: its queue and its number."""

    queue_id: int
    queue_name: str
    sequence: int


class ScheduleRun(NamedTuple):
    """The result of a manual run."""

    run_id: str
    scheduled_for: datetime
    messages: tuple[RunMessage, ...]
    """Messages in queues, without deliveries to web hooks."""
    out_of_band: bool = True


async def _write(engine: Engine, dispatcher: Dispatcher, fire: Fire) -> WrittenInvocations:
    """Look up first, so that no lookup waits for a connection while this holds one."""
    for _ in range(TRIES):
        prepared = await dispatcher.prepare([[fire]])
        failure = prepared.failures[0]
        if failure is not None:
            engine.series.schedules.failed(1)
            raise InvalidParameterValue(f"The schedule cannot be run: {failure.message}")
        async with engine.database.transaction() as tx:
            await probe_by_key(tx)
            now = engine.clock.of(fire.account_id).now()
            written = await dispatcher.write(tx, now, prepared.ready, wants_places=True)
            if written is not None:
                await note(tx, engine.events.rings, [event_of_fire(fire, None)])
        if written is not None:
            return written
    raise Unavailable("The queues of the schedule are being created and deleted by others.")


async def run_now(
    engine: Engine, caller: Caller, schedule: Schedule, *, base_url: str = ""
) -> ScheduleRun:
    """Fire a schedule once, in one transaction, even if it is paused. Its next time and its counts
    stay. Raises InvalidParameterValue with the reason if the target refuses the message."""
    run_id = str(uuid4())
    instant = engine.clock.of(schedule.account_id).instant()
    fire = Fire(
        schedule.schedule_id,
        schedule.account_id,
        schedule.region,
        schedule.group_name,
        schedule.name,
        schedule.target,
        instant,
        run_id,
        out_of_band=True,
    )
    dispatcher = Dispatcher(engine, base_url)
    written = await _write(engine, dispatcher, fire)
    dispatcher.committed(written)
    engine.series.schedules.fired(1)
    [[ready]] = written.ready
    names = {queue.queue_id: queue.name for queue in ready.queues.values() if queue is not None}
    messages = [
        RunMessage(place.queue_id, names[place.queue_id], place.sequence)
        for places in written.outcome.places
        for place in places
    ]
    return ScheduleRun(run_id, instant, tuple(messages))


_PLACEHOLDER = "<aws.scheduler."
_FILLED = ("body", "message", "subject", "attributes", "group_id", "deduplication_id")
_DEFAULT_GROUP = "default"
_JSON = "String.json"
_LOCKS = 2
"""Maximum advisory locks of a message for a FIFO queue: group and deduplication id."""


def written(instant: datetime) -> str:
    """Return the time in RFC 3339 and UTC, with a fraction only if there is one."""
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")


def filled(fire: Fire) -> Fire:
    """Return the invocation with the placeholders of EventBridge Scheduler filled in, where its
    target allows them (docs/contract/scheduler.md 4.2)."""
    target = fire.target
    if not target.get("substitutes"):
        return fire
    changed = {
        name: _filled(fire, text)
        for name in _FILLED
        if (text := target.get(name)) and _PLACEHOLDER in text
    }
    return fire._replace(target={**target, **changed}) if changed else fire


def _filled(fire: Fire, text: str) -> str:
    group = fire.group_name or _DEFAULT_GROUP
    for name, value in (
        ("schedule-arn", arns.schedule_arn(fire.region, fire.account_id, group, fire.name)),
        ("scheduled-time", written(fire.scheduled_for)),
        ("execution-id", fire.execution_id),
        ("attempt-number", str(fire.attempt)),
    ):
        text = text.replace(f"<aws.scheduler.{name}>", value)
    return text


def attributes_of(fire: Fire) -> tuple[str | None, int]:
    """Return the stored message attributes and their size in bytes, with the schedule's header if
    the target asks for it (docs/seeds.md 1.4)."""
    kept: str | None = fire.target.get("attributes")
    has_header = fire.target.get("schedule_header")
    if not kept and not has_header:
        return None, 0
    values: dict[str, dict[str, str]] = orjson.loads(kept) if kept else {}
    if has_header:
        values[SCHEDULE_HEADER] = {"DataType": _JSON, "StringValue": _header(fire)}
        kept = orjson.dumps(values).decode()
    return kept, counted_bytes(with_bytes(values))


def _header(fire: Fire) -> str:
    return orjson.dumps(
        {
            "name": fire.name,
            "scheduled_for": written(fire.scheduled_for),
            "out_of_band": fire.out_of_band,
        }
    ).decode()


def message_for(engine: Engine, fire: Fire, queue: Queue) -> Message:
    """Return the message of an invocation for its queue, sent now. Raises a refusal if the queue
    has changed since the schedule was created, and cannot store the message."""
    text = text_of(fire)
    stored, attribute_bytes = attributes_of(fire)
    encoded = sends.utf8_of(text)
    target = fire.target
    system, group_id = target.get("system"), target.get("group_id")
    deduplication_id = None
    if queue.kind.has_groups:
        deduplication_id = target.get("deduplication_id")
        if deduplication_id is None and fire.group_name is None:
            # A deduplication id from the content would make all invocations within five minutes
            # duplicates.
            deduplication_id = own_deduplication_id(fire)
    elif system:
        # The group id is that of the target when the queue was checked.
        group_id = None
    delay, urgency = target.get("delay_seconds"), sends.urgency_of_stored(stored, engine.limits)
    place, digest = (group_id, deduplication_id), md5_of_bytes(encoded)
    new = NewMessage(text, stored, system, delay, *place, digest, None, *urgency)
    sends.check(engine, queue, new, len(encoded) + attribute_bytes)
    message_id = new_id()
    instant = engine.clock.of(queue.account_id).instant
    row = row_of(queue, new, message_id, fire.account_id, instant)
    if queue.most_messages is not None:
        copy = CopyToQueue(Addressed(queue, row), must_fit=not target.get("may_wait"))
        ids = frozenset((queue.queue_id,))
        return Message(message_id, None, lambda _: Copies(bounded=[copy]), _LOCKS, ids)
    copies = Copies({queue.kind: [row]})
    return Message(message_id, None, lambda _: copies, _LOCKS if queue.kind.has_groups else 0)


def kept_message(fire: Fire) -> Message:
    """Return the message for a target that cannot be invoked here, for the outbox."""
    target, message_id = fire.target, new_id()
    to = fire.account_id, fire.region, target["protocol"], target["arn"]
    row = NewOutboxMessage(*to, "Invocation", None, None, message_id, None, text_of(fire), None)
    return Message(message_id, None, lambda _: Copies(outbox=[row]))


def own_deduplication_id(fire: Fire) -> str:
    """Return the deduplication id of a schedule and a time, the same in every process."""
    if fire.out_of_band:
        return f"run-{fire.execution_id}"
    return f"schedule-{fire.schedule_id}-{fire.scheduled_for.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}"

"""Sends what schedules fire: within the transaction of whoever fires them.

A target that is gone, or that refuses its message, fails alone. What a cache says of queues is
checked by the statement that writes: when a queue turns out to be gone, nothing is written, and all
is looked up again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import orjson

from queuegate.gateway.operations.access import PUBLISH, SEND, check_found
from queuegate.gateway.operations.caller import NOWHERE, Caller
from queuegate.gateway.operations.queues.queue_cache import QueueName
from queuegate.gateway.operations.schedules.fired_messages import (
    attributes_of,
    filled,
    kept_message,
    message_for,
    own_deduplication_id,
    text_of,
)
from queuegate.gateway.operations.topics import publishing
from queuegate.gateway.operations.topics.fan_out import Outgoing, Queues
from queuegate.gateway.operations.topics.log_copies import forget_gone
from queuegate.gateway.operations.topics.preparing import Prepared, Publisher
from queuegate.gateway.operations.topics.publishing import PublishMessage
from queuegate.gateway.operations.turns import give_way
from queuegate.protocol.attribute_values import with_bytes
from queuegate.storage.errors import InvalidParameterValue, QueueDoesNotExist, QueueFull, Rejected
from queuegate.storage.queues.rooms import rooms
from queuegate.storage.schedules.schedule_fires import Dispatched, Failure, Fire, savepoint
from queuegate.storage.topics import publishing as stored
from queuegate.storage.topics.publishing import Message, Outcome

if TYPE_CHECKING:
    from queuegate.gateway.operations.engine import Engine
    from queuegate.gateway.operations.topics.topic_cache import Audience
    from queuegate.storage.database import Transaction
    from queuegate.storage.model import Queue, Topic

Check = Callable[["Engine", "Topic", PublishMessage], Outgoing]
Words = Callable[[Rejected, str], tuple[str, str]]
TRIES = 3
"""Of whoever finds that a queue is gone that was there when the messages were prepared."""
_MOST_LOCKS = 500
"""Advisory locks live in shared memory, which has room for some thousands."""
_MOST_AT_ONCE = 1 << 20
"""Characters of messages: a few milliseconds of work."""
_COPY = 1_000
"""A copy for a subscription is as much work as so many characters."""
_MOST_COPIES = 100_000
_MOST_TOGETHER = 1 << 30
"""Copies and their characters that a schedule which catches up sends at once. More would not get
through in the time that a transaction has, and would be tried again for ever, before all others."""


class Ready(NamedTuple):
    """A message that is ready to be written: for a queue, prepared for a topic, or, with neither,
    for the outbox."""

    message: Message
    queue: Queue | None
    prepared: Prepared | None

    @property
    def may_be_full(self) -> bool:
        """Whether it is for a queue that holds only so many messages."""
        return self.queue is not None and self.queue.most_messages is not None

    @property
    def copy_count(self) -> int:
        """How many rows it becomes."""
        return 1 if self.prepared is None else len(self.prepared.chosen.targets)

    @property
    def queues(self) -> Queues:
        """The queues that it may go to."""
        if self.prepared is not None:
            return self.prepared.queues
        return {} if self.queue is None else {_name_of(self.queue): self.queue}


class _Gone(Exception):
    """A queue is gone that the cache still had: what was written for the others goes back."""


class _Turns:
    """Of a thousand long messages others have their turn in between."""

    def __init__(self) -> None:
        self._size = 0

    async def after(self, size: int) -> None:
        """So many characters were worked on."""
        self._size += size
        if self._size > _MOST_AT_ONCE:
            self._size = 0
            await give_way()


class PreparedGroups(NamedTuple):
    """The messages of groups of fires; none of a group that cannot be sent."""

    ready: list[list[Ready]]
    failures: list[Failure | None]
    """Of the first groups, as many as were looked at."""


class Written(NamedTuple):
    """Messages that were written, not committed yet."""

    ready: list[list[Ready]]
    outcome: Outcome


class Dispatcher:
    """Sends for one process. ``base_url``: where clients of this gateway reach it, for the links in
    envelopes of topics. ``check``: what may be published, and how it is refused, where schedules of
    other APIs fire, too; those in our own form were checked when they were made. ``words``: the
    code and the text of a refusal by a kind of target, where they are kept."""

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
        """Write the messages of groups of fires, each group all or none; of the first groups only,
        when all take too many locks. When this raises, nothing was written, and the transaction
        goes on; but after Unavailable it is of no more use.

        What is not cached is looked up meanwhile: ``tx`` must not hold a connection of the pool
        that these lookups need.
        """
        for _ in range(TRIES):
            prepared = await self.prepare(groups)
            written = await self._write_each(tx, now, prepared, groups)
            if written is not None:
                return Dispatched(prepared.failures, functools.partial(self._committed, written))
        # Queues that come and go as fast as we look.
        raise QueueDoesNotExist

    async def _write_each(
        self,
        tx: Transaction,
        now: datetime | None,
        prepared: PreparedGroups,
        groups: Sequence[Sequence[Fire]],
    ) -> list[Written] | None:
        """Write what was prepared; a group that finds its queue full is a failure. None: a queue is
        gone, and nothing was written."""
        ready = prepared.ready
        bounded = [one.message.bounded for some in ready for one in some if one.message.bounded]
        if not bounded:
            written = await self.write(tx, now, ready)
            return None if written is None else [written]
        # All at once and in their order, before anything else is locked.
        await rooms(tx, frozenset[int]().union(*bounded), now)
        done: list[Written] = []
        try:
            async with savepoint(tx):
                for places in _parts(ready):
                    done += await self._write_part(tx, now, prepared, groups, places)
        except _Gone:
            return None
        return done

    async def _write_part(
        self,
        tx: Transaction,
        now: datetime | None,
        prepared: PreparedGroups,
        groups: Sequence[Sequence[Fire]],
        places: list[int],
    ) -> list[Written]:
        """Write the groups at these places; none when a queue is full: then it is one group."""
        try:
            written = await self.write(tx, now, [prepared.ready[place] for place in places])
        except QueueFull as refusal:
            [place] = places
            kind = groups[place][0].target["kind"]
            prepared.failures[place] = Failure(*self._words(refusal, kind))
            return []
        if written is None:
            raise _Gone
        return [written]

    async def write(
        self,
        tx: Transaction,
        now: datetime | None,
        ready: list[list[Ready]],
        *,
        wants_places: bool = False,
    ) -> Written | None:
        """Write what was prepared; ``committed`` is to be called after the commit. None: a queue is
        gone, and nothing was written; prepare anew."""
        self._engine.check_room()
        messages = [one.message for some in ready for one in some]
        try:
            async with savepoint(tx):
                outcome = await stored.write(
                    tx,
                    now,
                    messages,
                    wants_places=wants_places,
                    clock_of=self._clock_of if self._engine.clock.accounts else None,
                )
                if outcome.gone or outcome.gone_partitions:
                    raise _Gone
        except _Gone:
            for queue_id in outcome.gone:
                self._engine.queues.forget(queue_id)
            chosen = [one.prepared.chosen for some in ready for one in some if one.prepared]
            forget_gone(self._engine, chosen, outcome.gone_partitions)
            return None
        return Written(ready, outcome)

    def _clock_of(self, queue_id: int) -> Callable[[], datetime | None]:
        engine = self._engine
        return engine.clock.of(engine.queues.account_of(queue_id) or "").now

    def _committed(self, written: list[Written]) -> None:
        for one in written:
            self.committed(one)

    def committed(self, written: Written) -> None:
        """Wake who waits for the messages, here and elsewhere, and count them."""
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
        """Look up what is needed and make the messages, without writing anything."""
        targets = [fire.target for group in groups for fire in group]
        names = {
            (target["account_id"], target["region"], target["queue_name"])
            for target in targets
            if target["kind"] == "queue"
        }
        queues = await self._engine.queues.find_many(names)
        ready: list[list[Ready]] = []
        failures: list[Failure | None] = []
        locks = 0
        turns = _Turns()
        for group in groups:
            if locks > _MOST_LOCKS:
                break
            try:
                ready.append(await self._all_ready(group, queues, turns))
                failures.append(None)
                locks += sum([one.message.lock_count for one in ready[-1]])
            except Rejected as refusal:
                ready.append([])
                failures.append(Failure(*self._words(refusal, group[0].target["kind"])))
        return PreparedGroups(ready, failures)

    async def _all_ready(self, group: Sequence[Fire], queues: Queues, turns: _Turns) -> list[Ready]:
        found: list[Ready] = []
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
            await turns.after(length + one.copy_count * _COPY)
        return found

    async def _ready(self, fire: Fire, queues: Queues) -> Ready:
        fire = filled(fire)
        target = fire.target
        if target.get("error") is not None:
            # It was known when the schedule was made, and is a failure only now, as on AWS.
            raise InvalidParameterValue(target["error"])
        if target["kind"] == "queue":
            queue = queues[target["account_id"], target["region"], target["queue_name"]]
            if queue is None:
                raise QueueDoesNotExist
            self._check_right(fire, SEND, queue)
            return Ready(message_for(self._engine, fire, queue), queue, None)
        if target["kind"] == "outbox":
            return Ready(kept_message(fire), None, None)
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
            publishing.outgoing(
                self._engine,
                audience.topic,
                request,
                message_bytes=len(text.encode()),
                attribute_bytes=attribute_bytes,
            )
            if self._check is None
            else self._check(self._engine, audience.topic, request)
        )
        prepared = await publishing.prepare(self._engine, publisher, audience, message)
        return Ready(prepared.message, None, prepared)

    def _check_right(self, fire: Fire, right: str, resource: Queue | Topic) -> None:
        """Raise what the authority or a policy of the target says to whoever made the schedule, of
        one that was made while more was allowed, too."""
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


def _parts(ready: list[list[Ready]]) -> list[list[int]]:
    """The places of groups to be written together: those for a queue that may be full are alone."""
    apart = [place for place, some in enumerate(ready) if any(one.may_be_full for one in some)]
    return [[place for place in range(len(ready)) if place not in apart], *([one] for one in apart)]


def _name_of(queue: Queue) -> QueueName:
    return queue.account_id, queue.region, queue.name

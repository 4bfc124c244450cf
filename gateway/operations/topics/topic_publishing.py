"""Publishing to topics: checks, and entries for lanes (docs/contract/sns.md 3.5, 3.6).

A publish submits an entry to a lane and returns. ``reply`` gets the result or the exception after
the commit. One publish is one transaction. It needs no task if all its queues are cached and can
store it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.queues import json_messages, sends
from queuegate.gateway.operations.queues.queue_cache import QueueName
from queuegate.gateway.operations.queues.sends import NOT_URGENT
from queuegate.gateway.operations.runtime.background_tasks import spawn
from queuegate.gateway.operations.runtime.identifiers import new_id
from queuegate.gateway.operations.runtime.replies import Then
from queuegate.gateway.operations.topics.fan_out import (
    ChosenCopies,
    CopyMaker,
    CopyOrigin,
    FanOutMessage,
    PreparedMessage,
    Publisher,
    Queues,
    choose,
    choose_gently,
    delivered,
    forget_gone,
    look_up,
    message_for,
    named,
    origin_of,
    takes_copies,
)
from queuegate.gateway.operations.topics.topic_cache import Audience, LogName, SubscriptionTarget
from queuegate.protocol import names, opaque_tokens
from queuegate.protocol.digests import content_based_id
from queuegate.protocol.urls import WEB
from queuegate.storage.model import Topic
from queuegate.storage.queue_model import Queue, QueueKind, Row
from queuegate.storage.queues.kinds import PRIORITISED, STANDARD
from queuegate.storage.queues.messages import FanOut
from queuegate.storage.storage_errors import (
    DeduplicationIdMissing,
    DeduplicationIdUnfit,
    IdInvalid,
    MessageIncomplete,
)
from queuegate.storage.topics.publishing import Publication, Written
from queuegate.storage.topics.publishing import WrittenPublications as WrittenOut

if TYPE_CHECKING:
    from queuegate.gateway.operations.queues.json_messages import Values
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.lanes import Reply
    from queuegate.storage.queue_model import Sent


_log = logging.getLogger("queuegate.publishing")

_MOST_ON_SEND_LANE_BYTES = 1 << 20
_MOST_ON_SEND_LANE_COPIES = 1_000
_MOST_COUNTED_BYTES = 4 << 20
"""Bytes of copies that are made at once. Copies are made when they are written, so a long message
for a thousand queues takes little memory."""
_MOST_TO_FILTER_BYTES = 1 << 20
"""Bytes of messages, times subscriptions, to filter without yielding to the event loop."""
_TRIES = 3
_LOOKED_UP = frozenset({"sqs", "log"})
"""Protocols whose endpoints may be deleted, or unable to store a copy."""


class PublishMessage(NamedTuple):
    """One message of a publisher; None: absent."""

    message: str | None
    subject: str | None = None
    structure: str | None = None
    """The face's value for messages with texts by protocol."""
    attributes: Values | None = None
    group_id: str | None = None
    deduplication_id: str | None = None
    delay_seconds: int | None = None
    """Delay of copies in standard queues; None: each queue's own."""


class PublishResult(NamedTuple):
    """The result for one message."""

    message_id: str
    sequence_number: str | None = None
    places: Sequence[tuple[Queue, int]] = ()
    """The copies in queues: queue and sequence. Only if requested."""
    delivery_count: int = 0
    """Number of deliveries to web hooks that were written. Only if places are requested."""


def outgoing(
    engine: Engine,
    topic: Topic,
    request: PublishMessage,
    *,
    message_bytes: int,
    attribute_bytes: int,
    texts: dict[str, str] | None = None,
) -> FanOutMessage:
    """Return a checked message with all that needs no database. ``texts`` are those by protocol,
    with one for ``default``. Raises leaves of InvalidParameterValue for ids that do not fit the
    topic."""
    message, subject, _, attributes, group_id, deduplication_id, delay_seconds = request
    assert message is not None
    if topic.is_fifo or group_id is not None or deduplication_id is not None:
        check_ids(topic, group_id, deduplication_id)
        if topic.is_fifo and deduplication_id is None:
            deduplication_id = content_based_id(message)
    return FanOutMessage(
        new_id(),
        message,
        texts,
        subject,
        attributes or None,
        json_messages.stored(attributes) if attributes else None,
        engine.clock.of(topic.account_id).instant(),
        group_id,
        deduplication_id,
        message_bytes + attribute_bytes,
        attribute_bytes,
        delay_seconds,
        sends.urgency_of(attributes, engine.limits) if attributes else NOT_URGENT,
    )


def check_ids(topic: Topic, group_id: str | None, deduplication_id: str | None) -> None:
    """Check that a message has the ids that a FIFO topic requires, or none that a standard topic
    refuses."""
    if topic.is_fifo and not group_id:
        raise MessageIncomplete("group_id")
    if not topic.is_fifo and deduplication_id is not None:
        raise DeduplicationIdUnfit(deduplication_id, topic.name)
    if group_id is not None and not names.is_fifo_id(group_id):
        raise IdInvalid("group_id", group_id)
    if deduplication_id is not None and not names.is_fifo_id(deduplication_id):
        raise IdInvalid("deduplication_id", deduplication_id)
    if topic.is_fifo and deduplication_id is None and not topic.content_based_deduplication:
        raise DeduplicationIdMissing(topic.name)


def publish(
    engine: Engine,
    publisher: Publisher,
    audience: Audience,
    messages: list[FanOutMessage],
    reply: Reply[list[PublishResult]],
    *,
    wants_places: bool = False,
) -> None:
    """Publish messages to a topic in order; the reply has a result for each. On a FIFO topic, a
    duplicate within five minutes gets the id and number of the first message and has no copies.
    ``wants_places``: return the places of the copies of one message."""
    publishing = _Publishing(engine, publisher, audience, messages, reply)
    publishing.wants_places = wants_places
    publishing.start()


async def prepare(
    engine: Engine, publisher: Publisher, audience: Audience, message: FanOutMessage
) -> PreparedMessage:
    """Prepare a message to be written (``storage.topics.publishing.write``) in the caller's
    transaction. Call ``committed`` on the result after the commit."""
    engine.series.topics.of(audience.topic).published += 1
    targets = await choose_gently(audience.targets, message)
    origin, [chosen], queues = await look_up(
        engine, publisher, audience, [ChosenCopies(message, targets)]
    )
    return PreparedMessage(
        engine, audience.topic, chosen, queues, message_for(origin, chosen, queues)
    )


class _Publishing:
    """A publish under way."""

    def __init__(
        self,
        engine: Engine,
        publisher: Publisher,
        audience: Audience,
        messages: list[FanOutMessage],
        reply: Reply[list[PublishResult]],
    ) -> None:
        self._engine = engine
        self._publisher = publisher
        self._audience = audience
        self._messages = messages
        self._reply = reply
        self.failed = reply.failed
        self._outcomes: list[Written] = []
        self._chosen: dict[str, Sequence[SubscriptionTarget]] = {}
        self._tries = 0
        self.wants_places = False
        self._places: list[tuple[Queue, int]] = []

    def start(self) -> None:
        """Publish at once if everything is cached; otherwise in a task."""
        audience = self._audience
        self._engine.series.topics.of(audience.topic).published += len(self._messages)
        if audience.has_filters:
            size = sum([outgoing.size_bytes for outgoing in self._messages])
            if size * len(audience.targets) > _MOST_TO_FILTER_BYTES:
                spawn(self._filter_first())
                return
        self._begin()

    async def _filter_first(self) -> None:
        """Filter in a task that yields: much text for many filters may take a second."""
        try:
            for outgoing in self._messages:
                chosen = await choose_gently(self._audience.targets, outgoing)
                self._chosen[outgoing.message_id] = chosen
            self._begin()
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller must get an answer
            self._reply.failed(error)

    def _begin(self) -> None:
        audience = self._audience
        origin = origin_of(self._engine, self._publisher, self._audience)
        may_reach = self._engine.policies is None or self._may_reach()
        if (
            may_reach
            and origin is not None
            and audience.only_queues
            and not audience.topic.is_fifo
            and self._send_plainly(origin)
        ):
            return
        chosen = [ChosenCopies(one, self._targets(one)) for one in self._messages]
        queues = self._known_queues(chosen) if may_reach else None
        if origin is None or queues is None:
            spawn(self._look_up(chosen))
        else:
            self._submit(origin, chosen, queues)

    def _targets(self, outgoing: FanOutMessage) -> Sequence[SubscriptionTarget]:
        audience = self._audience
        if not audience.has_filters:
            return audience.targets
        chosen = self._chosen.get(outgoing.message_id)
        if chosen is None:
            chosen = self._chosen[outgoing.message_id] = choose(audience.targets, outgoing)
        return chosen

    def _send_plainly(self, origin: CopyOrigin) -> bool:
        """Send copies for cached standard queues on the send lane. False, and nothing done: some
        copies need another lane."""
        cached = self._engine.queues.cached
        clocks = self._engine.clock.accounts
        own_clock = clocks.get(self._audience.topic.account_id)
        variant: QueueKind | None = None
        rows: list[Row] = []
        queues: list[Queue] = []
        size = 0
        for outgoing in self._messages:
            targets = self._targets(outgoing)
            size += outgoing.size_bytes * len(targets)
            if (
                size > _MOST_ON_SEND_LANE_BYTES
                or len(rows) + len(targets) > _MOST_ON_SEND_LANE_COPIES
            ):
                return False
            most = outgoing.most_bytes
            maker = CopyMaker(origin, outgoing)
            if outgoing.urgency is not NOT_URGENT:
                variant = PRIORITISED
            for target in targets:
                assert target.queue is not None
                queue = cached(*target.queue)
                if queue is not None and queue.kind is not STANDARD:
                    if queue.kind is not PRIORITISED:
                        return False
                    # Its statement writes copies for both kinds.
                    variant = PRIORITISED
                if (
                    queue is None
                    or queue.most_messages is not None
                    or most > queue.maximum_message_size_bytes
                    or (target.has_few_attributes and outgoing.has_many_attributes)
                    or (clocks and clocks.get(queue.account_id) is not own_clock)
                ):
                    return False
                rows.append(maker.row(target, queue))
                queues.append(queue)
        if rows:
            entry = FanOut(
                rows,
                Then(partial(self._sent_plainly, queues=queues), self.failed),
                size,
                wants_sequences=self.wants_places,
            )
            entry.variant = variant
            self._engine.standard.send.submit(entry)
        else:
            # No caller is left to reply to.
            self._answer()
        return True

    def _may_reach(self) -> bool:
        """Return True if the policies of all cached queues allow the copies; otherwise each is
        checked along with its capacity."""
        cached, topic = self._engine.queues.cached, self._audience.topic
        return all(
            takes_copies(self._engine, topic, target, queue)
            for outgoing in self._messages
            for target in self._targets(outgoing)
            if target.queue is not None and (queue := cached(*target.queue)) is not None
        )

    def _sent_plainly(self, sent: Sent, queues: list[Queue]) -> None:
        """Reply: the send lane has written the copies."""
        engine, gone = self._engine, sent.gone
        if self.wants_places:
            for queue, sequence in zip(queues, sent.sequences, strict=True):
                if sequence is not None:
                    self._places.append((queue, sequence))
        count = 0
        for queue in queues:
            if queue.queue_id not in gone:
                engine.wakeups.arrived(queue.queue_id, 1)
                engine.series.copied(queue, 1)
                count += 1
        engine.series.topics.of(self._audience.topic).queue_copies += count
        if gone:
            names = {(q.account_id, q.region, q.name) for q in queues if q.queue_id in gone}
            self._look_again(
                names, [ChosenCopies(one, self._targets(one)) for one in self._messages]
            )
        else:
            self._answer()

    def _known_queues(self, chosen: list[ChosenCopies]) -> Queues | None:
        """Return the cached queues of these targets; None: one is absent, or may be unable to store
        its copy, which then goes to another queue."""
        cached = self._engine.queues.cached
        queues: Queues = {}
        for outgoing, targets, *_ in chosen:
            most = outgoing.most_bytes
            for target in targets:
                name = target.queue
                if name is None:
                    if target.protocol in _LOOKED_UP:
                        return None
                    continue
                queue = queues[name] = cached(*name)
                if (
                    queue is None
                    or most > queue.maximum_message_size_bytes
                    or (target.has_few_attributes and outgoing.has_many_attributes)
                    or (queue.most_messages is not None and target.dead_letter is not None)
                ):
                    return None
        return queues

    async def _look_up(self, chosen: list[ChosenCopies]) -> None:
        """Load the key and find the queues, set aside copies that they cannot store, and
        continue."""
        try:
            found = await look_up(self._engine, self._publisher, self._audience, chosen)
            self._submit(*found)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller must get an answer
            self._reply.failed(error)

    def _submit(self, origin: CopyOrigin, chosen: list[ChosenCopies], queues: Queues) -> None:
        size = sum([one.outgoing.size_bytes * len(one.targets) for one in chosen])
        size = min(size, _MOST_COUNTED_BYTES)
        # A numbered message keeps its number.
        before = [one.sequence for one in self._outcomes] or [None] * len(chosen)
        messages = [
            message_for(origin, one, queues, sequence)
            for one, sequence in zip(chosen, before, strict=True)
        ]
        entry = Publication(
            messages,
            Then(partial(self._written, chosen=chosen, queues=queues), self.failed),
            size,
            wants_places=self.wants_places,
            topic_arn=self._audience.topic.arn,
        )
        self._engine.publish.lane.submit(entry)

    def _written(self, published: WrittenOut, chosen: list[ChosenCopies], queues: Queues) -> None:
        """Reply: the publish lane has written the messages."""
        outcomes, gone, everywhere, _, elsewhere, gone_partitions = published
        fresh = chosen
        if not self._outcomes:
            self._outcomes = outcomes
            # Duplicates keep their index, by which outcomes are found.
            fresh = [
                ChosenCopies(one.outgoing, ()) if outcome.is_duplicate else one
                for one, outcome in zip(chosen, outcomes, strict=True)
            ]
        if self.wants_places:
            for places in everywhere:
                self._places += named(places, queues)
        changes = Counter[int]()
        for one in elsewhere:
            changes.update(one)
        engine = self._engine
        topic = self._audience.topic
        delivered(engine, topic, fresh, queues, changes, gone, gone_partitions)
        if gone or gone_partitions:
            names = {name for name, queue in queues.items() if queue and queue.queue_id in gone}
            self._look_again(names, fresh, forget_gone(engine, fresh, gone_partitions))
        else:
            self._answer()

    def _look_again(
        self, names: set[QueueName], chosen: list[ChosenCopies], logs: Set[LogName] = frozenset()
    ) -> None:
        """Look up queues or logs again after some were deleted."""
        left = [
            ChosenCopies(outgoing, [t for t in targets if t.queue in names or t.log in logs])
            for outgoing, targets, *_ in chosen
        ]
        self._tries += 1
        if not any(one.targets for one in left):
            # Those of other publishes in the same flush.
            self._answer()
        elif self._tries < _TRIES:
            if not self._outcomes:
                self._outcomes = [Written(one.outgoing.message_id, None, False) for one in left]
            spawn(self._look_up(left))
        else:
            _log.warning("%s: queues or logs went away again and again", self._audience.topic.arn)
            self._answer()

    def _answer(self) -> None:
        places = tuple(self._places)
        if not self._outcomes:
            self._reply.done(
                [PublishResult(one.message_id, None, places) for one in self._messages]
            )
            return
        delivery_count = 0
        if self.wants_places:
            [message] = self._messages
            delivery_count = sum([target.protocol in WEB for target in self._targets(message)])
        number = opaque_tokens.topic_sequence_number
        self._reply.done(
            [
                PublishResult(
                    one.message_id,
                    None if one.sequence is None else number(one.sequence),
                    places,
                    delivery_count,
                )
                for one in self._outcomes
            ]
        )

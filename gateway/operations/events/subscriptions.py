"""Subscriptions to patterns of routing keys: of queues and web hooks, confirmed at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID, uuid4

import orjson

from gateway.operations.events.names import checked_pattern, is_topic
from gateway.operations.queues import queues
from gateway.operations.topics import subscription_attributes
from gateway.operations.topics.live_subscriptions import missing_subscription
from gateway.operations.topics.subscription_attributes import Subject
from gateway.operations.topics.subscription_endpoints import WEB, check_endpoint
from gateway.operations.topics.subscriptions import check_filter_policies
from protocol import arns
from protocol.errors import Malformed
from storage.errors import (
    InvalidParameterValue,
    OverLimit,
    SubscriptionExists,
    Unavailable,
)
from storage.notifications import namespace_number
from storage.topics import subscriptions, topics

if TYPE_CHECKING:
    from datetime import datetime

    from gateway.operations.caller import Caller
    from gateway.operations.engine import Engine
    from storage.database import Transaction
    from storage.model import Queue, Subscription, Topic

_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class SubscribeToEvents:
    """Either ``queue_name`` or ``endpoint``, a web hook's URL, whose ``protocol`` may be said.

    Policies are JSON texts in AWS's form. ``dead_letter_queue`` gets what a web hook does not take
    in all attempts, and what a queue cannot take.
    """

    pattern: str
    queue_name: str | None = None
    protocol: str | None = None
    endpoint: str | None = None
    wants_envelope: bool = False
    delivery_policy: str | None = None
    filter_policy: str | None = None
    filter_policy_scope: str | None = None
    dead_letter_queue: str | None = None


async def subscribe(engine: Engine, caller: Caller, request: SubscribeToEvents) -> Subscription:
    """The subscription of that endpoint to the pattern; nobody has to confirm it.

    To ask again for what is there changes nothing. A pattern that is a topic's name creates that
    topic when there is none. Raises InvalidParameterValue, InvalidParameter, AuthorizationError,
    QueueDoesNotExist, SubscriptionExists when the one that is there has other settings, and the
    refusals of limits.
    """
    pattern = checked_pattern(request.pattern)
    protocol, endpoint = await _endpoint(engine, caller, request)
    given = await _attributes(engine, caller, request)
    likeness = topics.passing(caller.account_id, caller.region, pattern)
    private = engine.rules.private_webhooks
    check_endpoint(likeness, protocol, endpoint, allow_private=private)
    subject = Subject(likeness, protocol, endpoint, engine.clock.of(caller.account_id).instant())
    attributes = subscription_attributes.normalise(subject, given, {}, in_subscribe=True)
    new = _New(engine, caller, pattern, protocol, endpoint, attributes)
    # A topic or pattern that goes away between the look at it and its lock is created anew.
    for _ in range(_ATTEMPTS):
        async with engine.database.transaction() as tx:
            topic = await new.locked_topic(tx)
            if topic is not None:
                subscription = await new.find_or_create(tx, topic)
        if topic is not None:
            _forget(engine, topic, subscription)
            return subscription
    raise Unavailable("The topic is being created and deleted by others.")


def _forget(engine: Engine, topic: Topic, subscription: Subscription) -> None:
    """What this process has cached is outdated."""
    engine.wakeups.topic_changed(topic.topic_id)
    if subscription.is_pattern:
        engine.wakeups.topic_changed(namespace_number(topic.account_id, topic.region))


async def _endpoint(engine: Engine, caller: Caller, request: SubscribeToEvents) -> tuple[str, str]:
    """(protocol, endpoint) as SNS has them."""
    if (request.queue_name is None) == (request.endpoint is None):
        raise InvalidParameterValue("Say either queue_name or endpoint.")
    if request.endpoint is not None:
        protocol = request.protocol or request.endpoint.partition(":")[0]
        if protocol not in WEB:
            raise InvalidParameterValue("endpoint is a URL that begins with http:// or https://.")
        return protocol, request.endpoint
    if request.protocol is not None:
        raise InvalidParameterValue("protocol goes with endpoint; a queue has none.")
    assert request.queue_name is not None
    queue = await queues.find(engine, caller, request.queue_name)
    if queue.is_fifo:
        raise InvalidParameterValue(
            f"'{queue.name}' is a FIFO queue. Events have no order: subscribe a standard queue."
        )
    return "sqs", queue.arn


async def _attributes(engine: Engine, caller: Caller, request: SubscribeToEvents) -> dict[str, str]:
    """The settings under SNS's names."""
    given = {"RawMessageDelivery": "false" if request.wants_envelope else "true"}
    if request.delivery_policy is not None:
        given["DeliveryPolicy"] = request.delivery_policy
    if request.filter_policy is not None:
        given["FilterPolicy"] = request.filter_policy
    if request.filter_policy_scope is not None:
        given["FilterPolicyScope"] = request.filter_policy_scope
    if request.dead_letter_queue is not None:
        queue = await queues.find(engine, caller, request.dead_letter_queue)
        given["RedrivePolicy"] = orjson.dumps({"deadLetterTargetArn": queue.arn}).decode()
    return given


@dataclass(frozen=True, slots=True)
class _New:
    """One subscription to make; ``attributes`` are normalised."""

    engine: Engine
    caller: Caller
    pattern: str
    protocol: str
    endpoint: str
    attributes: Mapping[str, str]

    async def locked_topic(self, tx: Transaction) -> Topic | None:
        """The topic that keeps the subscriptions of the pattern, locked; None: look again."""
        now = self.engine.clock.of(self.caller.account_id).now()
        topic = await _find_topic(tx, self.caller, self.pattern)
        if topic is None:
            topic = await self._create_topic(tx, now)
        return None if topic is None else await topics.lock(tx, topic.topic_id)

    async def _create_topic(self, tx: Transaction, now: datetime | None) -> Topic | None:
        caller, is_pattern = self.caller, not is_topic(self.pattern)
        if is_pattern:
            most = self.engine.limits.event_patterns
            place = (caller.account_id, caller.region)
            if await topics.count_patterns(tx, *place, limit=most) >= most:
                raise OverLimit(f"There can be subscriptions to {most} patterns.")
        new = topics.NewTopic(
            caller.account_id, caller.region, self.pattern, False, {}, {}, None, is_pattern
        )
        return await topics.create(tx, now, new)

    async def find_or_create(self, tx: Transaction, topic: Topic) -> Subscription:
        """The endpoint's subscription; the topic is locked."""
        now = self.engine.clock.of(self.caller.account_id).now()
        key = (topic.topic_id, self.protocol, self.endpoint)
        await subscriptions.delete_expired_of_endpoint(tx, now, *key)
        existing = await subscriptions.find_by_endpoint(tx, *key)
        if existing is not None:
            if not self._is_same(existing):
                raise SubscriptionExists(self.pattern)
            return existing
        if "FilterPolicy" in self.attributes:
            await check_filter_policies(self.engine, tx, topic, self.caller.account_id)
        new = subscriptions.NewSubscription(
            subscription_id=uuid4(),
            topic_id=topic.topic_id,
            protocol=self.protocol,
            endpoint=self.endpoint,
            account_id=self.caller.account_id,
            region=topic.region,
            attributes=self.attributes,
            token=None,
            is_native=True,
            user_name=self.caller.user_name,
        )
        await subscriptions.create(tx, now, new, token_seconds=0)
        created = await subscriptions.find_by_endpoint(tx, *key)
        assert created is not None
        return created

    def _is_same(self, existing: Subscription) -> bool:
        """A queue does not care which API made it; a web hook does, for its retries."""
        if not existing.is_confirmed:
            return False
        if not subscription_attributes.are_same(existing.attributes, self.attributes):
            return False
        return existing.is_native or self.protocol not in WEB


async def _find_topic(tx: Transaction, caller: Caller, pattern: str) -> Topic | None:
    find = topics.find if is_topic(pattern) else topics.find_pattern
    return await find(tx, caller.account_id, caller.region, pattern)


class SubscriptionPage(NamedTuple):
    """Oldest first. ``next_position`` None: there are no more; else the next page is behind it."""

    subscriptions: list[Subscription]
    next_position: int | None


def _page(found: list[Subscription], limit: int) -> SubscriptionPage:
    page = found[:limit]
    return SubscriptionPage(page, page[-1].position if len(found) > limit else None)


async def list_of_pattern(
    engine: Engine, caller: Caller, pattern: str, *, after_position: int, limit: int
) -> SubscriptionPage:
    """The subscriptions to exactly this pattern; those to a topic whichever API made them, also
    while they wait to be confirmed. Raises InvalidParameterValue."""
    checked_pattern(pattern)
    async with engine.database.transaction() as tx:
        topic = await _find_topic(tx, caller, pattern)
        if topic is None:
            return SubscriptionPage([], None)
        found = await subscriptions.page_of_topic(
            tx,
            engine.clock.of(caller.account_id).now(),
            topic_id=topic.topic_id,
            after_position=after_position,
            limit=limit + 1,
        )
    return _page(found, limit)


async def list_of_queue(
    engine: Engine, queue: Queue, *, after_position: int, limit: int
) -> SubscriptionPage:
    """The confirmed subscriptions of the queue, to topics and patterns, whoever's they are."""
    async with engine.database.transaction() as tx:
        found = await subscriptions.page_of_queue(
            tx, queue.arn, after_position=after_position, limit=limit + 1
        )
    return _page(found, limit)


async def unsubscribe(engine: Engine, caller: Caller, pattern: str, subscription_id: str) -> None:
    """Remove the subscription of that id to exactly this pattern.

    Raises InvalidParameterValue, and NotFound when there is none.
    """
    checked_pattern(pattern)
    now = engine.clock.of(caller.account_id).now()
    key = _parsed_id(subscription_id)
    async with engine.database.transaction() as tx:
        topic = await _find_topic(tx, caller, pattern)
        if topic is not None:
            topic = await topics.lock(tx, topic.topic_id)
        found = None if topic is None else await subscriptions.find(tx, key, now)
        if topic is None or found is None or found.topic_id != topic.topic_id:
            raise missing_subscription()
        await subscriptions.delete(tx, found)
    engine.wakeups.topic_changed(topic.topic_id)


def _parsed_id(text: str) -> UUID:
    try:
        return arns.subscription_id(text)
    except Malformed:
        raise missing_subscription() from None

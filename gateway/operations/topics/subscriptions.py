"""Subscriptions: subscribe, list, read and set attributes (docs/contract/sns.md 3.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

from gateway.operations.topics import subscription_attributes
from gateway.operations.topics.confirmations import (
    Confirmation,
    make_confirmation,
    new_token,
    send_confirmation,
    write_confirmation,
)
from gateway.operations.topics.live_subscriptions import current_subscription, locked_subscription
from gateway.operations.topics.live_topics import find_topic, missing_topic
from gateway.operations.topics.pages import position_behind
from gateway.operations.topics.push_endpoints import missing_endpoints
from gateway.operations.topics.subscription_attributes import REPLAY, Subject
from gateway.operations.topics.subscription_endpoints import (
    WEB,
    check_endpoint,
    is_confirmed_at_once,
)
from gateway.operations.topics.subscription_replays import begin_replay
from protocol.page_tokens import token_behind
from storage.errors import (
    FilterPolicyLimitExceeded,
    InvalidParameter,
    SubscriptionLimitExceeded,
    ValidationFailed,
)
from storage.model import Subscription, Topic
from storage.topics import replays, subscriptions, topics

if TYPE_CHECKING:
    from datetime import datetime

    from gateway.operations.caller import Caller
    from gateway.operations.engine import Engine
    from storage.database import Transaction

_PENDING = "pending confirmation"


@dataclass(frozen=True, slots=True)
class Subscribe:
    """``attributes`` as AWS names and spells them; ``base_url`` is how the caller reaches us, and
    where a request to confirm leads."""

    topic_arn: str | None
    protocol: str | None
    endpoint: str | None
    base_url: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    return_subscription_arn: bool = False


async def subscribe(engine: Engine, caller: Caller, request: Subscribe) -> str:
    """The ARN of the endpoint's subscription, or the text that says that it waits for its
    confirmation.

    The subscription and the request to confirm it are one transaction. An endpoint that is
    subscribed already keeps its subscription; one that has not confirmed it yet is asked again,
    with the same token. Raises ValidationFailed, InvalidParameter, AuthorizationError, NotFound and
    the refusals of limits.
    """
    topic = await find_topic(engine, caller, request.topic_arn)
    protocol, endpoint = _checked_endpoint(engine, topic, request)
    is_own = is_confirmed_at_once(caller.account_id, protocol, endpoint)
    if not is_own:
        await engine.signer.ready()
    new = _New(engine, caller, request, protocol, endpoint, is_own)
    confirmation = None
    async with engine.database.transaction() as tx:
        locked = await topics.lock(tx, topic.topic_id)
        if locked is None:
            raise missing_topic()
        subscription = await new.find_or_create(tx, locked)
        if not subscription.is_confirmed:
            confirmation = await new.ask(tx, locked, subscription)
    engine.wakeups.topic_changed(topic.topic_id)
    if confirmation is not None and protocol in WEB:
        engine.wakeups.deliveries_written()
    if confirmation is not None and protocol == "sqs":
        await send_confirmation(engine, caller, subscription, confirmation)
    shows_arn = subscription.is_confirmed or request.return_subscription_arn
    return subscription.arn if shows_arn else _PENDING


def _checked_endpoint(engine: Engine, topic: Topic, request: Subscribe) -> tuple[str, str]:
    protocol, endpoint = request.protocol, request.endpoint
    if protocol is None:
        raise ValidationFailed("protocol")
    allow_private = engine.rules.private_webhooks
    check_endpoint(topic, protocol, endpoint or "", allow_private=allow_private)
    return protocol, endpoint or ""


@dataclass(frozen=True, slots=True)
class _New:
    """One Subscribe. ``is_own``: nobody has to agree."""

    engine: Engine
    caller: Caller
    request: Subscribe
    protocol: str
    endpoint: str
    is_own: bool

    async def find_or_create(self, tx: Transaction, topic: Topic) -> Subscription:
        """The endpoint's subscription; the topic is locked."""
        if self.protocol == "application" and await missing_endpoints(tx, [self.endpoint]):
            # AWS writes no blank behind "arn".
            raise InvalidParameter(
                f"Endpoint does not exist for endpoint arn{self.endpoint}", prefix=""
            )
        clock = self.engine.clock.of(topic.account_id)
        now = clock.now()
        key = (topic.topic_id, self.protocol, self.endpoint)
        await subscriptions.delete_expired_of_endpoint(tx, now, *key)
        subject = Subject(topic, self.protocol, self.endpoint, clock.instant())
        given = self.request.attributes
        attributes = subscription_attributes.normalise(subject, given, {}, in_subscribe=True)
        existing = await subscriptions.find_by_endpoint(tx, *key)
        if existing is None:
            await self._create(tx, now, topic, attributes)
        else:
            subscription_attributes.check_same(existing, given, attributes)
            if existing.is_confirmed or not self.is_own:
                return existing
            await subscriptions.confirm(
                tx, existing, was_authenticated=True, authenticate_on_unsubscribe=True
            )
        found = await subscriptions.find_by_endpoint(tx, *key)
        assert found is not None
        if existing is None and REPLAY in attributes:
            await begin_replay(tx, now, found, attributes[REPLAY], self.request.base_url)
        return found

    async def _create(
        self, tx: Transaction, now: datetime | None, topic: Topic, attributes: Mapping[str, str]
    ) -> None:
        account_id, limits = self.caller.account_id, self.engine.limits
        if topic.is_fifo:
            most = limits.subscriptions_of_fifo_topic
            if await subscriptions.count_of_topic(tx, topic.topic_id, limit=most) >= most:
                raise SubscriptionLimitExceeded(f"A FIFO topic can have {most} subscriptions.")
        if subscription_attributes.has_new_filter_policy({}, attributes):
            await check_filter_policies(self.engine, tx, topic, account_id)
        new = subscriptions.NewSubscription(
            subscription_id=uuid4(),
            topic_id=topic.topic_id,
            protocol=self.protocol,
            endpoint=self.endpoint,
            account_id=account_id,
            region=topic.region,
            attributes=attributes,
            token=None if self.is_own else new_token(),
            user_name=self.caller.user_name,
        )
        await subscriptions.create(tx, now, new, token_seconds=limits.confirmation_seconds)

    async def ask(self, tx: Transaction, topic: Topic, subscription: Subscription) -> Confirmation:
        """Ask the endpoint to confirm; what it gets."""
        now = self.engine.clock.of(topic.account_id).now()
        seconds = self.engine.limits.confirmation_seconds
        token = await subscriptions.renew_token(
            tx, now, subscription.subscription_id, token_seconds=seconds
        )
        confirmation = make_confirmation(
            self.engine,
            "SubscriptionConfirmation",
            topic=topic,
            subscription=subscription,
            token=token,
            base_url=self.request.base_url,
        )
        await write_confirmation(tx, now, topic, subscription, confirmation)
        return confirmation


async def check_filter_policies(
    engine: Engine, tx: Transaction, topic: Topic, account_id: str
) -> None:
    """Refuse one more filter policy than a topic or an account may have."""
    most_of_topic = engine.limits.filter_policies_of_topic
    most_of_account = engine.limits.filter_policies_of_account
    of_topic, of_account = await subscriptions.count_filter_policies(
        tx,
        topic_id=topic.topic_id,
        account_id=account_id,
        region=topic.region,
        topic_limit=most_of_topic,
        account_limit=most_of_account,
    )
    if of_topic >= most_of_topic or of_account >= most_of_account:
        raise FilterPolicyLimitExceeded(
            f"There can be {most_of_topic} filter policies for a topic and {most_of_account} for "
            "an account."
        )


@dataclass(frozen=True, slots=True)
class GetSubscriptionAttributes:
    subscription_arn: str | None


async def get_subscription_attributes(
    engine: Engine, caller: Caller, request: GetSubscriptionAttributes
) -> dict[str, str]:
    """All attributes in AWS's order. Raises ValidationFailed, InvalidParameter, NotFound."""
    if request.subscription_arn is None:
        raise ValidationFailed("subscriptionArn")
    async with engine.database.transaction() as tx:
        now = engine.clock.of_arn(request.subscription_arn).now()
        subscription = await current_subscription(tx, request.subscription_arn, now)
        topic = await topics.find_by_id(tx, subscription.topic_id)
        if topic is None:
            raise missing_topic()
        status = None
        if REPLAY in subscription.attributes:
            status = await replays.status(tx, subscription)
    return subscription_attributes.read(subscription, topic, status)


@dataclass(frozen=True, slots=True)
class SetSubscriptionAttributes:
    """One attribute; without a value it is "", which takes policies away. ``base_url`` is how the
    caller reaches us, and where links in what is replayed lead."""

    subscription_arn: str | None
    attribute_name: str | None
    attribute_value: str | None
    base_url: str


async def set_subscription_attributes(
    engine: Engine, caller: Caller, request: SetSubscriptionAttributes
) -> None:
    """Set one attribute; a ReplayPolicy begins a replay or ends it.

    Raises ValidationFailed, InvalidParameter, NotFound, FilterPolicyLimitExceeded,
    ReplayLimitExceeded.
    """
    name, value = request.attribute_name, request.attribute_value or ""
    if request.subscription_arn is None:
        raise ValidationFailed("subscriptionArn")
    if name is None:
        raise ValidationFailed("attributeName")
    clock = engine.clock.of_arn(request.subscription_arn)
    now = clock.now()
    async with engine.database.transaction() as tx:
        subscription, topic = await locked_subscription(tx, request.subscription_arn, now)
        stored = subscription.attributes
        subject = Subject(topic, subscription.protocol, subscription.endpoint, clock.instant())
        attributes = subscription_attributes.normalise(subject, {name: value}, stored)
        if subscription_attributes.has_new_filter_policy(stored, attributes):
            await check_filter_policies(engine, tx, topic, subscription.account_id)
        if name == REPLAY:
            policy = attributes.get(REPLAY, "")
            await begin_replay(tx, now, subscription, policy, request.base_url)
        await subscriptions.set_attributes(tx, subscription, attributes)
    engine.wakeups.topic_changed(topic.topic_id)


@dataclass(frozen=True, slots=True)
class ListSubscriptions:
    next_token: str | None = None


@dataclass(frozen=True, slots=True)
class ListSubscriptionsByTopic:
    topic_arn: str | None
    next_token: str | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionPage:
    """``next_token`` None: there are no more."""

    subscriptions: list[Subscription]
    next_token: str | None


async def list_subscriptions(
    engine: Engine, caller: Caller, request: ListSubscriptions
) -> SubscriptionPage:
    """The caller's subscriptions in the caller's region, oldest first. Raises InvalidParameter."""
    size = engine.limits.list_subscriptions_page
    after = position_behind("subscriptions", request.next_token)
    async with engine.database.transaction() as tx:
        found = await subscriptions.page_of_account(
            tx,
            engine.clock.of(caller.account_id).now(),
            account_id=caller.account_id,
            region=caller.region,
            after_position=after,
            limit=size + 1,
        )
    return _page("subscriptions", found, size)


async def list_subscriptions_by_topic(
    engine: Engine, caller: Caller, request: ListSubscriptionsByTopic
) -> SubscriptionPage:
    """The topic's subscriptions, oldest first. Raises InvalidParameter, NotFound.

    Those of push endpoints that were deleted are left out of their page, which still leads to the
    next one, as on AWS (docs/contract/sns.md 3.4).
    """
    size = engine.limits.list_subscriptions_page
    topic = await find_topic(engine, caller, request.topic_arn)
    after = position_behind("by-topic", request.next_token)
    async with engine.database.transaction() as tx:
        found = await subscriptions.page_of_topic(
            tx,
            engine.clock.of(topic.account_id).now(),
            topic_id=topic.topic_id,
            after_position=after,
            limit=size + 1,
        )
        pushed = {one.endpoint for one in found if one.protocol == "application"}
        gone = await missing_endpoints(tx, pushed) if pushed else set()
    page = _page("by-topic", found, size)
    left = [one for one in page.subscriptions if one.endpoint not in gone]
    if len(left) == len(page.subscriptions):
        return page
    last = page.subscriptions[-1].position
    return SubscriptionPage(left, page.next_token or token_behind("by-topic", str(last)))


def _page(listing: str, found: list[Subscription], size: int) -> SubscriptionPage:
    token = None
    if len(found) > size:
        token = token_behind(listing, str(found[size - 1].position))
    return SubscriptionPage(found[:size], token)

"""Subscriptions: make, change, end and list them (docs/contract/sns.md 3.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from queuegate.gateway.operations.topics.confirmations import (
    Confirmation,
    new_token,
    send_confirmation,
    write_confirmation,
)
from queuegate.gateway.operations.topics.live_subscriptions import (
    current_subscription,
    locked_subscription,
)
from queuegate.gateway.operations.topics.live_topics import missing_topic
from queuegate.gateway.operations.topics.subscription_settings import Settings
from queuegate.gateway.operations.topics.topics import check_large_messages
from queuegate.protocol.endpoint_urls import WEB
from queuegate.storage.errors import (
    FilterPolicyLimitExceeded,
    ReplayLimitExceeded,
    SubscriptionExists,
    SubscriptionLimitExceeded,
)
from queuegate.storage.model import Subscription, Topic
from queuegate.storage.topics import replays, subscriptions, topics

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.database import Transaction
    from queuegate.storage.model import Queue


class Replay(NamedTuple):
    """What of a FIFO topic's archive is to be sent again; ``ending_at`` None: all to the end."""

    starting_at: datetime
    ending_at: datetime | None


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Who wants what. The endpoint and the attributes, in the form in which they are stored, were
    checked by the face that was asked.

    ``fits`` says whether a subscription of the endpoint that is there already is what is asked for.
    ``is_own``: nobody has to agree. ``base_url`` is how the caller reaches us, and where a request
    to confirm leads.
    """

    protocol: str
    endpoint: str
    attributes: Mapping[str, str]
    fits: Callable[[Subscription], bool]
    is_own: bool = True
    gets_events: bool = False
    base_url: str = ""
    replay: Replay | None = None


async def subscribe(
    engine: Engine, caller: Caller, topic: Topic, request: Subscribe
) -> Subscription:
    """The endpoint's subscription to the topic, which may wait to be confirmed.

    The subscription and the request to confirm it are one transaction. An endpoint that is
    subscribed already keeps its subscription; one that has not confirmed it yet is asked again,
    with the same token. Raises SubscriptionExists, NotFound and the refusals of limits.
    """
    if not request.is_own:
        await engine.signer.ready()
    confirmation = None
    async with engine.database.transaction() as tx:
        locked = await topics.lock(tx, topic.topic_id)
        if locked is None:
            raise missing_topic()
        subscription = await find_or_create(engine, caller, tx, locked, request)
        if not subscription.is_confirmed:
            confirmation = await _ask(engine, tx, locked, subscription, request.base_url)
    engine.wakeups.topic_changed(topic.topic_id)
    if confirmation is not None and request.protocol in WEB:
        engine.wakeups.deliveries_written()
    if confirmation is not None and request.protocol == "sqs":
        await send_confirmation(engine, caller, subscription, confirmation)
    return subscription


async def find_or_create(
    engine: Engine, caller: Caller, tx: Transaction, topic: Topic, request: Subscribe
) -> Subscription:
    """The endpoint's subscription; the topic is locked."""
    now = engine.clock.of(topic.account_id).now()
    key = (topic.topic_id, request.protocol, request.endpoint)
    await subscriptions.delete_expired_of_endpoint(tx, now, *key)
    existing = await subscriptions.find_by_endpoint(tx, *key)
    if existing is None:
        await _create(engine, caller, tx, topic, request)
    elif not request.fits(existing):
        raise SubscriptionExists(topic.name)
    elif existing.is_confirmed or not request.is_own:
        return existing
    else:
        await subscriptions.confirm(
            tx, existing, was_authenticated=True, authenticate_on_unsubscribe=True
        )
    found = await subscriptions.find_by_endpoint(tx, *key)
    assert found is not None
    if existing is None and request.replay is not None:
        await _begin_replay(tx, now, found, request.replay, request.base_url)
    return found


async def _create(
    engine: Engine, caller: Caller, tx: Transaction, topic: Topic, request: Subscribe
) -> None:
    account_id, limits = caller.account_id, engine.limits
    await engine.quotas.check_room(tx, account_id, "subscriptions")
    if topic.is_fifo:
        most = limits.subscriptions_of_fifo_topic
        if await subscriptions.count_of_topic(tx, topic.topic_id, limit=most) >= most:
            raise SubscriptionLimitExceeded(f"A FIFO topic can have {most} subscriptions.")
    if Settings.of(request.attributes).filter_policy:
        await _check_filter_policies(engine, tx, topic, account_id)
    new = subscriptions.NewSubscription(
        subscription_id=uuid4(),
        topic_id=topic.topic_id,
        protocol=request.protocol,
        endpoint=request.endpoint,
        account_id=account_id,
        region=topic.region,
        attributes=request.attributes,
        token=None if request.is_own else new_token(),
        gets_events=request.gets_events,
        user_name=caller.user_name,
    )
    now = engine.clock.of(topic.account_id).now()
    await subscriptions.create(tx, now, new, token_seconds=limits.confirmation_seconds)
    await check_large_messages(engine, tx, topic)


async def _ask(
    engine: Engine, tx: Transaction, topic: Topic, subscription: Subscription, base_url: str
) -> Confirmation:
    """Ask the endpoint to confirm; what it gets."""
    now = engine.clock.of(topic.account_id).now()
    seconds = engine.limits.confirmation_seconds
    token = await subscriptions.renew_token(
        tx, now, subscription.subscription_id, token_seconds=seconds
    )
    return await write_confirmation(
        engine,
        tx,
        "SubscriptionConfirmation",
        topic=topic,
        subscription=subscription,
        token=token,
        base_url=base_url,
    )


async def _check_filter_policies(
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


async def _begin_replay(
    tx: Transaction, now: datetime | None, subscription: Subscription, replay: Replay, base_url: str
) -> None:
    """The topic is locked. ``base_url`` is where links in envelopes lead."""
    asked = replays.Asked(replay.starting_at, replay.ending_at, base_url)
    if not await replays.begin(tx, now, subscription, asked):
        raise ReplayLimitExceeded("The subscription has a replay that is not finished.")


class Found(NamedTuple):
    """A subscription and what is to be known of its topic. ``replay_status`` None: no replay was
    asked for."""

    subscription: Subscription
    topic: Topic
    replay_status: str | None


async def find(engine: Engine, arn: str) -> Found:
    """The subscription of that ARN. Raises NotFound."""
    async with engine.database.transaction() as tx:
        subscription = await current_subscription(tx, arn, engine.clock.of_arn(arn).now())
        topic = await topics.find_by_id(tx, subscription.topic_id)
        if topic is None:
            raise missing_topic()
        # Only FIFO topics keep what could be sent again.
        status = await replays.status(tx, subscription) if topic.is_fifo else None
    return Found(subscription, topic, status)


class Change(NamedTuple):
    """What a subscription's attributes become; and the replay that begins, or with None ends, when
    it is about one."""

    attributes: Mapping[str, str]
    is_of_replay: bool = False
    replay: Replay | None = None


async def change(
    engine: Engine, arn: str, work_out: Callable[[Subscription, Topic], Change], *, base_url: str
) -> None:
    """Set attributes: ``work_out`` says what they become, of the subscription as it is now.
    ``base_url`` is where links in what is replayed lead.

    Raises NotFound, FilterPolicyLimitExceeded, ReplayLimitExceeded.
    """
    now = engine.clock.of_arn(arn).now()
    async with engine.database.transaction() as tx:
        subscription, topic = await locked_subscription(tx, arn, now)
        attributes, is_of_replay, replay = work_out(subscription, topic)
        had_filter = Settings.of(subscription.attributes).filter_policy
        if Settings.of(attributes).filter_policy and not had_filter:
            await _check_filter_policies(engine, tx, topic, subscription.account_id)
        if replay is not None:
            await _begin_replay(tx, now, subscription, replay, base_url)
        elif is_of_replay:
            await replays.remove(tx, subscription)
        await subscriptions.set_attributes(tx, subscription, attributes)
    engine.wakeups.topic_changed(topic.topic_id)


class SubscriptionPage(NamedTuple):
    """Oldest first. ``next_position`` None: there are no more; else the next page is behind it."""

    subscriptions: list[Subscription]
    next_position: int | None


def _page(found: list[Subscription], limit: int) -> SubscriptionPage:
    page = found[:limit]
    return SubscriptionPage(page, page[-1].position if len(found) > limit else None)


async def list_of_account(
    engine: Engine, caller: Caller, *, after_position: int, limit: int
) -> SubscriptionPage:
    """The caller's subscriptions in the caller's region."""
    async with engine.database.transaction() as tx:
        found = await subscriptions.page_of_account(
            tx,
            engine.clock.of(caller.account_id).now(),
            account_id=caller.account_id,
            region=caller.region,
            after_position=after_position,
            limit=limit + 1,
        )
    return _page(found, limit)


async def list_of_topic(
    engine: Engine, topic: Topic, *, after_position: int, limit: int
) -> SubscriptionPage:
    """The subscriptions to the topic, whichever API made them, also while they wait to be
    confirmed."""
    async with engine.database.transaction() as tx:
        found = await subscriptions.page_of_topic(
            tx,
            engine.clock.of(topic.account_id).now(),
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

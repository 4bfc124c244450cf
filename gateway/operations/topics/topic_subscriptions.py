"""Subscriptions to topics: create, find, change, list and delete them; their confirmations, and
offers to restore one that was deleted without credentials (docs/contract/sns.md 3.4)."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from queuegate.gateway.operations.queues.sends import MessageToSend, send_all
from queuegate.gateway.operations.runtime.identifiers import new_id
from queuegate.gateway.operations.runtime.replies import answered
from queuegate.gateway.operations.topics.fan_out import allows_copy
from queuegate.gateway.operations.topics.topic_cache import SubscriptionSettings
from queuegate.gateway.operations.topics.topics import check_large_messages, missing_topic
from queuegate.protocol import arns, sns_envelopes
from queuegate.protocol.malformed import refusing
from queuegate.protocol.sns_envelopes import ConfirmationKind, Confirming, Signing
from queuegate.protocol.urls import WEB
from queuegate.storage.model import NewDelivery, NewOutboxMessage, Topic, TopicSubscription
from queuegate.storage.queue_model import NewMessage, Queue
from queuegate.storage.storage_errors import (
    AuthorizationError,
    FilterPolicyLimitExceeded,
    NotFound,
    Rejected,
    ReplayLimitExceeded,
    SubscriptionExists,
    SubscriptionLimitExceeded,
    SubscriptionPending,
    TokenRefused,
)
from queuegate.storage.topics import (
    replays,
    stored_outbox,
    stored_topics,
    subscriptions,
    web_hook_deliveries,
)

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.database import Transaction


async def current_subscription(
    tx: Transaction, subscription_arn: str, now: datetime | None
) -> TopicSubscription:
    """Return the subscription as it is now. Raises NotFound."""
    with refusing(missing_subscription()):
        subscription_id = arns.parse_subscription(subscription_arn)[1]
    found = await subscriptions.find(tx, subscription_id, now)
    if found is None or found.arn != subscription_arn:
        raise missing_subscription()
    return found


async def locked_subscription(
    tx: Transaction, subscription_arn: str, now: datetime | None
) -> tuple[TopicSubscription, Topic]:
    """Lock and return the subscription and its topic. Raises NotFound."""
    seen = await current_subscription(tx, subscription_arn, now)
    topic = await stored_topics.lock(tx, seen.topic_id)
    if topic is None:
        raise missing_subscription()
    return await current_subscription(tx, subscription_arn, now), topic


def missing_subscription() -> NotFound:
    return NotFound("Subscription does not exist")


class SubscriptionReplay(NamedTuple):
    """A replay from a FIFO topic's archive; ``ending_at`` None: to the end."""

    starting_at: datetime
    ending_at: datetime | None


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A request for a subscription. The face has checked the endpoint and the attributes, which are
    in stored form. ``fits`` returns True for an existing subscription of the endpoint that
    satisfies the request. ``is_own``: no confirmation is needed. ``base_url`` is the URL of the
    request, for the link of a confirmation."""

    protocol: str
    endpoint: str
    attributes: Mapping[str, str]
    fits: Callable[[TopicSubscription], bool]
    is_own: bool = True
    gets_events: bool = False
    base_url: str = ""
    replay: SubscriptionReplay | None = None


async def subscribe(
    engine: Engine, caller: Caller, topic: Topic, request: Subscribe
) -> TopicSubscription:
    """Return the endpoint's subscription to the topic, which may need confirmation. The
    subscription and its confirmation request are one transaction. A subscribed endpoint keeps its
    subscription; an unconfirmed one gets another request with the same token. Raises
    SubscriptionExists, NotFound and errors of limits."""
    if not request.is_own:
        await engine.signer.ready()
    confirmation = None
    async with engine.database.transaction() as tx:
        locked = await stored_topics.lock(tx, topic.topic_id)
        if locked is None:
            raise missing_topic()
        subscription = await find_or_create(engine, caller, tx, locked, request)
        if not subscription.is_confirmed:
            confirmation = await _ask_for_confirmation(
                engine, tx, locked, subscription, request.base_url
            )
    engine.wakeups.topic_changed(topic.topic_id)
    if confirmation is not None and request.protocol in WEB:
        engine.wakeups.deliveries_written()
    if confirmation is not None and request.protocol == "sqs":
        await send_confirmation(engine, caller, subscription, confirmation)
    return subscription


async def find_or_create(
    engine: Engine, caller: Caller, tx: Transaction, topic: Topic, request: Subscribe
) -> TopicSubscription:
    """Return the endpoint's subscription, created if there is none. Call with the topic locked."""
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
    if SubscriptionSettings.of(request.attributes).filter_policy:
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


async def _ask_for_confirmation(
    engine: Engine, tx: Transaction, topic: Topic, subscription: TopicSubscription, base_url: str
) -> Confirmation:
    """Send a confirmation request to the endpoint, and return it."""
    now = engine.clock.of(topic.account_id).now()
    seconds = engine.limits.confirmation_seconds
    token = await subscriptions.renew_token(
        tx, now, subscription.subscription_id, token_seconds=seconds
    )
    return await write_confirmation(
        engine, tx, "SubscriptionConfirmation", topic, subscription, token, base_url
    )


async def _check_filter_policies(
    engine: Engine, tx: Transaction, topic: Topic, account_id: str
) -> None:
    """Raise if a topic or an account would have too many filter policies."""
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
    tx: Transaction,
    now: datetime | None,
    subscription: TopicSubscription,
    replay: SubscriptionReplay,
    base_url: str,
) -> None:
    """Start a replay. Call with the topic locked. ``base_url`` is for links in envelopes."""
    asked = replays.ReplayRequest(replay.starting_at, replay.ending_at, base_url)
    if not await replays.start(tx, now, subscription, asked):
        raise ReplayLimitExceeded("The subscription has a replay that is not finished.")


class FoundSubscription(NamedTuple):
    """A subscription and facts about its topic. ``replay_status`` None: no replay was requested."""

    subscription: TopicSubscription
    topic: Topic
    replay_status: str | None


async def find(engine: Engine, arn: str) -> FoundSubscription:
    """Return the subscription of that ARN. Raises NotFound."""
    async with engine.database.transaction() as tx:
        subscription = await current_subscription(tx, arn, engine.clock.of_arn(arn).now())
        topic = await stored_topics.find_by_id(tx, subscription.topic_id)
        if topic is None:
            raise missing_topic()
        # Only FIFO topics have an archive to replay.
        status = await replays.status(tx, subscription) if topic.is_fifo else None
    return FoundSubscription(subscription, topic, status)


async def pending_token(engine: Engine, arn: str) -> str:
    """Return the token that confirms a pending subscription, valid from now on for as long as a new
    one. Raises NotFound, also for a confirmed subscription."""
    async with engine.database.transaction() as tx:
        now = engine.clock.of_arn(arn).now()
        subscription = await current_subscription(tx, arn, now)
        if subscription.is_confirmed:
            raise missing_subscription()
        seconds = engine.limits.confirmation_seconds
        return await subscriptions.renew_token(
            tx, now, subscription.subscription_id, token_seconds=seconds
        )


class SubscriptionChange(NamedTuple):
    """New attributes of a subscription; and the replay to start, or None to end it, if the change
    is about one."""

    attributes: Mapping[str, str]
    is_of_replay: bool = False
    replay: SubscriptionReplay | None = None


async def change(
    engine: Engine,
    arn: str,
    work_out: Callable[[TopicSubscription, Topic], SubscriptionChange],
    *,
    base_url: str,
) -> None:
    """Change attributes: ``work_out`` returns the change of the present subscription. ``base_url``
    is for links in replayed envelopes. Raises NotFound, FilterPolicyLimitExceeded and
    ReplayLimitExceeded."""
    now = engine.clock.of_arn(arn).now()
    async with engine.database.transaction() as tx:
        subscription, topic = await locked_subscription(tx, arn, now)
        attributes, is_of_replay, replay = work_out(subscription, topic)
        had_filter = SubscriptionSettings.of(subscription.attributes).filter_policy
        if SubscriptionSettings.of(attributes).filter_policy and not had_filter:
            await _check_filter_policies(engine, tx, topic, subscription.account_id)
        if replay is not None:
            await _begin_replay(tx, now, subscription, replay, base_url)
        elif is_of_replay:
            await replays.remove(tx, subscription)
        await subscriptions.set_attributes(tx, subscription, attributes)
    engine.wakeups.topic_changed(topic.topic_id)


class SubscriptionPage(NamedTuple):
    """A page, oldest first. ``next_position``: continue after it; None: no more subscriptions."""

    subscriptions: list[TopicSubscription]
    next_position: int | None


def _page(found: list[TopicSubscription], limit: int) -> SubscriptionPage:
    page = found[:limit]
    return SubscriptionPage(page, page[-1].position if len(found) > limit else None)


async def list_of_account(
    engine: Engine, caller: Caller, *, after_position: int, limit: int
) -> SubscriptionPage:
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
    """Return the subscriptions to the topic, of both APIs, including unconfirmed ones."""
    async with engine.database.transaction() as tx:
        now = engine.clock.of(topic.account_id).now()
        found = await subscriptions.page_of_topic(
            tx, now, topic_id=topic.topic_id, after_position=after_position, limit=limit + 1
        )
    return _page(found, limit)


async def list_of_queue(
    engine: Engine, queue: Queue, *, after_position: int, limit: int
) -> SubscriptionPage:
    """Return the confirmed subscriptions of the queue to topics and patterns, of all owners."""
    async with engine.database.transaction() as tx:
        found = await subscriptions.page_of_queue(
            tx, queue.arn, after_position=after_position, limit=limit + 1
        )
    return _page(found, limit)


_NOTIFIED = WEB | {"email", "email-json"}


async def end(engine: Engine, caller: Caller, arn: str, *, base_url: str) -> None:
    """Delete the subscription. ``base_url`` is the URL of the request. A web hook or mail address
    is notified if somebody other than an owner deletes its subscription, and can restore the
    subscription with a token. Raises NotFound, SubscriptionPending, and AuthorizationError if
    credentials are required."""
    now = engine.clock.of_arn(arn).now()
    async with engine.database.transaction() as tx:
        subscription = await current_subscription(tx, arn, now)
    if subscription.protocol in _NOTIFIED:
        await engine.signer.ready()
    async with engine.database.transaction() as tx:
        subscription, topic = await locked_subscription(tx, arn, now)
        owners = (subscription.account_id, topic.account_id)
        is_owner = not caller.is_anonymous and caller.account_id in owners
        if not subscription.is_confirmed:
            raise SubscriptionPending("The subscription waits to be confirmed.")
        if subscription.authenticate_on_unsubscribe and not is_owner:
            # Only an owner may delete it (AWS's page of ConfirmSubscription).
            raise AuthorizationError("Unsubscribe requires authentication for this subscription")
        is_notified = not is_owner and subscription.protocol in _NOTIFIED
        if is_notified:
            await _notify(engine, tx, topic, subscription, base_url=base_url)
        await subscriptions.delete(tx, subscription)
    engine.wakeups.topic_changed(topic.topic_id)
    if is_notified and subscription.protocol in WEB:
        engine.wakeups.deliveries_written()


async def _notify(
    engine: Engine, tx: Transaction, topic: Topic, subscription: TopicSubscription, *, base_url: str
) -> None:
    """Notify the endpoint, and store for some time what is needed to restore the subscription."""
    now, token = engine.clock.of(topic.account_id).now(), new_token()
    seconds = engine.limits.confirmation_seconds
    await subscriptions.remember_ended(
        tx, now, subscription.subscription_id, token=token, token_seconds=seconds
    )
    await write_confirmation(
        engine, tx, "UnsubscribeConfirmation", topic, subscription, token, base_url
    )


_TOKEN_BYTES = 144
_SUBJECTS: Mapping[ConfirmationKind, str] = {
    "SubscriptionConfirmation": "AWS Notification - Subscription Confirmation",
    "UnsubscribeConfirmation": "AWS Notification - Unsubscribe Confirmation",
}


def new_token() -> str:
    """Return a random token of 288 hex digits, as in AWS."""
    return secrets.token_hex(_TOKEN_BYTES)


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A request for confirmation, or a notice that none is needed."""

    message_id: str
    envelope: str


async def write_confirmation(
    engine: Engine,
    tx: Transaction,
    kind: ConfirmationKind,
    topic: Topic,
    subscription: TopicSubscription,
    token: str,
    base_url: str,
) -> Confirmation:
    """Write a confirmation for a web hook, or into the outbox for endpoints that only AWS reaches.
    For queues, call ``send_confirmation`` after the commit. The signer is ready; the link starts
    with ``base_url``. Deliveries to web hooks are signed when they are sent; all others are signed
    here."""
    clock, message_id = engine.clock.of(topic.account_id), new_id()
    place = topic.account_id, topic.region
    certificate = sns_envelopes.cert_url(
        engine.rules.cert_url_base or base_url, engine.signer.fingerprint
    )
    confirming = Confirming(kind, message_id, token, topic.arn, subscription.arn, clock.instant())
    envelope = sns_envelopes.confirmation(
        confirming, base_url=base_url, signing=Signing(topic.signature_version, certificate)
    )
    if subscription.protocol not in WEB:
        signature = engine.signer.sign(*sns_envelopes.to_sign(envelope))
        envelope = sns_envelopes.with_signature(envelope, signature, engine.signer.fingerprint)
    if subscription.protocol in WEB:
        number = str(subscription.subscription_id)
        delivery = NewDelivery(
            number, kind, False, message_id, *place, topic.name, subscription.endpoint, envelope
        )
        await web_hook_deliveries.insert(tx, clock.now(), [delivery])
    elif subscription.protocol != "sqs":
        to = *place, subscription.protocol, subscription.endpoint
        about = topic.arn, subscription.arn
        message = NewOutboxMessage(*to, kind, *about, message_id, _SUBJECTS[kind], envelope, None)
        await stored_outbox.insert(tx, clock.now(), [message])
    return Confirmation(message_id, envelope)


async def send_confirmation(
    engine: Engine, caller: Caller, subscription: TopicSubscription, confirmation: Confirmation
) -> None:
    """Send a confirmation to a queue of another account. Nothing is sent if the queue does not
    exist or its policy forbids it, or it cannot store the message."""
    queue_arn = arns.parse_queue(subscription.endpoint)
    with contextlib.suppress(Rejected):
        queue = await engine.queues.find(queue_arn.account_id, queue_arn.region, queue_arn.resource)
        if not allows_copy(engine, queue, subscription.arn.rpartition(":")[0]):
            return
        ids = (str(subscription.subscription_id), confirmation.message_id)
        message = NewMessage(confirmation.envelope)
        if queue.kind.has_groups:
            message = message._replace(group_id=ids[0], deduplication_id=ids[1])
        await answered(send_all, engine, caller, queue, [MessageToSend(message)], False)


async def confirm(
    engine: Engine,
    account_id: str,
    token: str,
    *,
    region: str,
    is_signed: bool,
    authenticate_on_unsubscribe: bool,
) -> str:
    """Confirm the subscription of a token, if it is not, and return its ARN. The token decides; its
    topic only has to be in the same region. ``account_id`` selects the clock. Raises
    TokenRefused."""
    now = engine.clock.of(account_id).now()
    answer = {
        "was_authenticated": is_signed,
        "authenticate_on_unsubscribe": authenticate_on_unsubscribe,
    }
    async with engine.database.transaction() as tx:
        # In this order: a deleted subscription may be restored concurrently.
        place = await subscriptions.find_ended(tx, now, token) or (
            await subscriptions.find_by_token(tx, token, now)
        )
        if place is None:
            raise TokenRefused
        if place.region != region:
            raise TokenRefused(is_of_other_region=True)
        if await stored_topics.lock(tx, place.topic_id) is None:
            # Deleted meanwhile, with its subscriptions.
            raise TokenRefused
        ended = await subscriptions.find_ended(tx, now, token)
        if ended is not None:
            await subscriptions.restore(tx, now, ended, token=token, **answer)
        found = await subscriptions.find_by_token(tx, token, now)
        if found is None:
            raise TokenRefused
        if not found.is_confirmed:
            await subscriptions.confirm(tx, found, **answer)
    engine.wakeups.topic_changed(found.topic_id)
    return found.arn

"""Ends of subscriptions: calls of owners, and links that anybody may follow (sns.md 3.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuegate.gateway.operations.topics.confirmations import new_token, write_confirmation
from queuegate.gateway.operations.topics.live_subscriptions import (
    current_subscription,
    locked_subscription,
)
from queuegate.protocol.endpoint_urls import WEB
from queuegate.storage.errors import AuthorizationError, SubscriptionPending
from queuegate.storage.topics import subscriptions

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.database import Transaction
    from queuegate.storage.model import Subscription, Topic

_TOLD = WEB | {"email", "email-json"}


async def end(engine: Engine, caller: Caller, arn: str, *, base_url: str) -> None:
    """Remove the subscription. ``base_url``: how the caller reaches us.

    A web hook or mail address whose subscription somebody other than an owner ended is told so, and
    can restore it as it was with the token that it gets. Raises NotFound, SubscriptionPending, and
    AuthorizationError where credentials are needed.
    """
    now = engine.clock.of_arn(arn).now()
    async with engine.database.transaction() as tx:
        subscription = await current_subscription(tx, arn, now)
    if subscription.protocol in _TOLD:
        await engine.signer.ready()
    async with engine.database.transaction() as tx:
        subscription, topic = await locked_subscription(tx, arn, now)
        owners = (subscription.account_id, topic.account_id)
        is_owner = not caller.is_anonymous and caller.account_id in owners
        _check_may_end(subscription, is_owner=is_owner)
        is_told = not is_owner and subscription.protocol in _TOLD
        if is_told:
            await _tell(engine, tx, topic, subscription, base_url=base_url)
        await subscriptions.delete(tx, subscription)
    engine.wakeups.topic_changed(topic.topic_id)
    if is_told and subscription.protocol in WEB:
        engine.wakeups.deliveries_written()


def _check_may_end(subscription: Subscription, *, is_owner: bool) -> None:
    """Where credentials are needed, an owner's are (AWS's page of ConfirmSubscription)."""
    if not subscription.is_confirmed:
        raise SubscriptionPending("The subscription waits to be confirmed.")
    if subscription.authenticate_on_unsubscribe and not is_owner:
        raise AuthorizationError("Unsubscribe requires authentication for this subscription")


async def _tell(
    engine: Engine, tx: Transaction, topic: Topic, subscription: Subscription, *, base_url: str
) -> None:
    """Tell the endpoint, and keep for so long what it takes to restore the subscription."""
    now, token = engine.clock.of(topic.account_id).now(), new_token()
    seconds = engine.limits.confirmation_seconds
    await subscriptions.remember_ended(
        tx, now, subscription.subscription_id, token=token, token_seconds=seconds
    )
    await write_confirmation(
        engine,
        tx,
        "UnsubscribeConfirmation",
        topic=topic,
        subscription=subscription,
        token=token,
        base_url=base_url,
    )

"""The subscription of a request, found by its ARN (docs/contract/sns.md 3.4)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from protocol import arns
from protocol.errors import Malformed
from storage.errors import InvalidParameter, NotFound
from storage.model import Subscription, Topic
from storage.topics import subscriptions, topics

if TYPE_CHECKING:
    from storage.database import Transaction


def checked_subscription_id(subscription_arn: str) -> UUID:
    """The id in a subscription's ARN. Raises InvalidParameter."""
    missing = arns.missing_elements(subscription_arn)
    if missing is not None:
        raise InvalidParameter(f"SubscriptionArn Reason: {missing}")
    try:
        return arns.parse_subscription(subscription_arn)[1]
    except Malformed:
        raise InvalidParameter("SubscriptionId") from None


async def current_subscription(
    tx: Transaction, subscription_arn: str, now: datetime | None
) -> Subscription:
    """The subscription as it is now. Raises InvalidParameter and NotFound."""
    subscription_id = checked_subscription_id(subscription_arn)
    found = await subscriptions.find(tx, subscription_id, now)
    if found is None or found.arn != subscription_arn:
        raise missing_subscription()
    return found


async def locked_subscription(
    tx: Transaction, subscription_arn: str, now: datetime | None
) -> tuple[Subscription, Topic]:
    """The subscription as it is now, and its topic: neither is changed by others until the
    transaction ends. Raises InvalidParameter and NotFound."""
    seen = await current_subscription(tx, subscription_arn, now)
    topic = await topics.lock(tx, seen.topic_id)
    if topic is None:
        raise missing_subscription()
    return await current_subscription(tx, subscription_arn, now), topic


def missing_subscription() -> NotFound:
    """What SNS says when there is no subscription of that ARN."""
    return NotFound("Subscription does not exist")

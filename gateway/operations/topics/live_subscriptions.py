"""The subscription of a request, found by its ARN (docs/contract/sns.md 3.4)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from queuegate.protocol import arns
from queuegate.protocol.errors import Malformed
from queuegate.storage.errors import NotFound
from queuegate.storage.model import Subscription, Topic
from queuegate.storage.topics import subscriptions, topics

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction


async def current_subscription(
    tx: Transaction, subscription_arn: str, now: datetime | None
) -> Subscription:
    """The subscription as it is now. Raises NotFound."""
    try:
        subscription_id = arns.parse_subscription(subscription_arn)[1]
    except Malformed:
        raise missing_subscription() from None
    found = await subscriptions.find(tx, subscription_id, now)
    if found is None or found.arn != subscription_arn:
        raise missing_subscription()
    return found


async def locked_subscription(
    tx: Transaction, subscription_arn: str, now: datetime | None
) -> tuple[Subscription, Topic]:
    """The subscription as it is now, and its topic: neither is changed by others until the
    transaction ends. Raises NotFound."""
    seen = await current_subscription(tx, subscription_arn, now)
    topic = await topics.lock(tx, seen.topic_id)
    if topic is None:
        raise missing_subscription()
    return await current_subscription(tx, subscription_arn, now), topic


def missing_subscription() -> NotFound:
    """There is no subscription of that ARN."""
    return NotFound("Subscription does not exist")

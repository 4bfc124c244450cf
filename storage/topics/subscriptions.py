"""Subscriptions: the endpoints of topics, their confirmation, and the lifetime of tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from queuegate.storage.database import probe_by_key
from queuegate.storage.model import TopicSubscription
from queuegate.storage.notifications import Notice, notify
from queuegate.storage.queries import ALL_ACCOUNTS, AccountFilter, load
from queuegate.storage.topics import stored_topics

if TYPE_CHECKING:
    import asyncpg

    from queuegate.storage.database import Transaction

_SQL = load("topics/subscriptions")


@dataclass(frozen=True, slots=True)
class NewSubscription:
    """A subscription to create; confirmed at once if ``token`` is None.

    ``account_id`` and ``user_name`` are the subscriber's; the region is that of the topic.
    """

    subscription_id: UUID
    topic_id: int
    protocol: str
    endpoint: str
    account_id: str
    region: str
    attributes: Mapping[str, str]
    token: str | None
    gets_events: bool = False
    user_name: str | None = None


class EndedSubscription(NamedTuple):
    """The topic and region of a subscription that a link ended."""

    topic_id: int
    region: str


_PLAIN = (
    *("subscription_id", "topic_id", "protocol", "endpoint", "account_id", "region"),
    *("is_confirmed", "was_authenticated", "authenticate_on_unsubscribe", "position"),
    *("live_from", "is_pattern", "created_at", "paused_at"),
)
"""Members that are columns of the same name."""


def _subscription(row: asyncpg.Record) -> TopicSubscription:
    topic_arn = f"arn:aws:sns:{row['region']}:{row['topic_account_id']}:{row['topic_name']}"
    members: dict[str, Any] = {name: row[name] for name in _PLAIN}
    return TopicSubscription(
        **members,
        arn=f"{topic_arn}:{row['subscription_id']}",
        topic_arn=topic_arn,
        attributes=json.loads(row["attributes"]),
        gets_events=row["is_native"],
        user_name=row["user_name"] or row["account_id"],
    )


async def of_topics(tx: Transaction, topic_ids: Iterable[int]) -> list[TopicSubscription]:
    """Return all subscriptions of the topics in order of creation, unconfirmed ones too."""
    return await _SQL["of_topics"].by_key.all(tx, _subscription, list(topic_ids))


async def find(
    tx: Transaction, subscription_id: UUID, now: datetime | None = None
) -> TopicSubscription | None:
    """Return the subscription of that id, unless its confirmation is overdue."""
    return await _SQL["find"].first(tx, _subscription, subscription_id, now)


async def find_by_token(
    tx: Transaction, token: str, now: datetime | None = None
) -> TopicSubscription | None:
    """Return the subscription that the token confirms or has confirmed."""
    return await _SQL["find_by_token"].first(tx, _subscription, token, now)


async def find_by_endpoint(
    tx: Transaction, topic_id: int, protocol: str, endpoint: str
) -> TopicSubscription | None:
    """Return the endpoint's subscription to the topic."""
    return await _SQL["find_by_endpoint"].first(tx, _subscription, topic_id, protocol, endpoint)


async def delete_expired_of_endpoint(
    tx: Transaction, now: datetime | None, topic_id: int, protocol: str, endpoint: str
) -> None:
    """Delete the endpoint's subscription if its confirmation is overdue."""
    await _SQL["delete_expired_of_endpoint"].run(tx, now, topic_id, protocol, endpoint)


async def create(
    tx: Transaction, now: datetime | None, new: NewSubscription, *, token_seconds: int
) -> None:
    """Create a subscription of a new endpoint. The caller locks the topic."""
    await _SQL["create"].run(
        tx,
        now,
        new.subscription_id,
        new.topic_id,
        new.protocol,
        new.endpoint,
        new.account_id,
        new.region,
        json.dumps(dict(new.attributes)),
        new.token is None,
        new.gets_events,
        new.token,
        None if new.token is None else token_seconds,
        new.user_name,
    )
    await notify(tx, Notice.TOPIC_CHANGED, new.topic_id)


async def renew_token(
    tx: Transaction, now: datetime | None, subscription_id: UUID, *, token_seconds: int
) -> str:
    """Return the token of a pending subscription, valid for ``token_seconds`` from now."""
    return await _SQL["renew_token"].value(tx, now, subscription_id, token_seconds)


async def confirm(
    tx: Transaction,
    subscription: TopicSubscription,
    *,
    was_authenticated: bool,
    authenticate_on_unsubscribe: bool,
) -> None:
    """Confirm a pending subscription; a confirmed one stays as it is."""
    await _SQL["confirm"].run(
        tx,
        subscription.subscription_id,
        was_authenticated,
        authenticate_on_unsubscribe,
    )
    await notify(tx, Notice.TOPIC_CHANGED, subscription.topic_id)


async def set_attributes(
    tx: Transaction, subscription: TopicSubscription, attributes: Mapping[str, str]
) -> None:
    """Replace all attributes."""
    await _SQL["set_attributes"].run(tx, subscription.subscription_id, json.dumps(dict(attributes)))
    await notify(tx, Notice.TOPIC_CHANGED, subscription.topic_id)


async def set_paused(
    tx: Transaction, now: datetime | None, subscription: TopicSubscription, *, is_paused: bool
) -> None:
    """Pause or resume deliveries to the web hook of the subscription."""
    await _SQL["set_paused"].run(tx, now, subscription.subscription_id, is_paused)
    await notify(tx, Notice.TOPIC_CHANGED, subscription.topic_id)
    await notify(tx, Notice.DELIVERIES_WRITTEN)


async def delete(tx: Transaction, subscription: TopicSubscription) -> bool:
    """Delete a subscription and count that on its topic; return False if it is deleted already.

    The caller locks its topic. A pattern is deleted with its last subscription, unless that can be
    restored.
    """
    deleted = await _SQL["delete"].value(tx, subscription.subscription_id) is not None
    await notify(tx, Notice.TOPIC_CHANGED, subscription.topic_id)
    if deleted and subscription.is_pattern:
        await stored_topics.remove_unused_patterns(tx, [subscription.topic_id])
    return deleted


async def remember_ended(
    tx: Transaction, now: datetime | None, subscription_id: UUID, *, token: str, token_seconds: int
) -> None:
    """Keep the data for ``restore`` for so many seconds. Call before ``delete``."""
    await _SQL["remember_ended"].run(tx, now, subscription_id, token, token_seconds)


async def find_ended(tx: Transaction, now: datetime | None, token: str) -> EndedSubscription | None:
    """Return the topic and region of the ended subscription that the token can restore."""
    return await _SQL["find_ended"].first(tx, EndedSubscription._make, now, token)


async def restore(
    tx: Transaction,
    now: datetime | None,
    ended: EndedSubscription,
    *,
    token: str,
    was_authenticated: bool,
    authenticate_on_unsubscribe: bool,
) -> UUID | None:
    """Restore the ended subscription, confirmed; return the id of its endpoint's subscription.

    None if a concurrent call did so before: then ``find_by_token`` finds it.
    """
    subscription_id: UUID | None = await _SQL["restore"].value(
        tx, now, token, was_authenticated, authenticate_on_unsubscribe
    )
    await notify(tx, Notice.TOPIC_CHANGED, ended.topic_id)
    return subscription_id


async def count_of_topic(tx: Transaction, topic_id: int, *, limit: int) -> int:
    """Count the topic's subscriptions, up to ``limit``."""
    return await _SQL["count_of_topic"].by_key.value(tx, topic_id, limit)


async def takes_large_messages(
    tx: Transaction, topic_id: int, protocols: Iterable[str], *, most: int
) -> bool:
    """Return True if the topic has at most ``most`` subscriptions, all of these protocols."""
    await probe_by_key(tx)
    statement = _SQL["takes_large_messages"].text
    return bool(await tx.fetchval(statement, topic_id, list(protocols), most))


async def count_filter_policies(
    tx: Transaction,
    *,
    topic_id: int,
    account_id: str,
    region: str,
    topic_limit: int,
    account_limit: int,
) -> tuple[int, int]:
    """Count subscriptions with a filter policy: (of the topic, of the account), up to limits."""
    [row] = await _SQL["count_filter_policies"].by_key.rows(
        tx, topic_id, account_id, region, topic_limit, account_limit
    )
    return row["of_topic"], row["of_account"]


async def page_of_account(
    tx: Transaction,
    now: datetime | None,
    *,
    account_id: str,
    region: str,
    after_position: int,
    limit: int,
) -> list[TopicSubscription]:
    """Return the account's subscriptions to topics behind a position, in order of creation."""
    return await _SQL["page_of_account"].by_key.all(
        tx, _subscription, now, account_id, region, after_position, limit
    )


async def page_of_topic(
    tx: Transaction, now: datetime | None, *, topic_id: int, after_position: int, limit: int
) -> list[TopicSubscription]:
    """Return the topic's subscriptions behind a position, in order of creation."""
    return await _SQL["page_of_topic"].by_key.all(
        tx, _subscription, now, topic_id, after_position, limit
    )


async def page_of_queue(
    tx: Transaction, queue_arn: str, *, after_position: int, limit: int
) -> list[TopicSubscription]:
    """Return confirmed subscriptions of the queue behind a position, including patterns."""
    return await _SQL["page_of_queue"].by_key.all(
        tx, _subscription, queue_arn, after_position, limit
    )


async def delete_expired(
    tx: Transaction, now: datetime | None, limit: int, whose: AccountFilter = ALL_ACCOUNTS
) -> int:
    """Delete at most ``limit`` pending and as many ended ones, if expired; return the count."""
    pending = await _SQL["delete_expired"].by_key.rows(tx, now, limit, *whose)
    for topic_id in dict.fromkeys(row["topic_id"] for row in pending):
        await notify(tx, Notice.TOPIC_CHANGED, topic_id)
    ended = await _SQL["forget_ended"].rows(tx, now, limit, *whose)
    if ended:
        # A pattern without subscriptions was kept for restorable ones.
        await stored_topics.remove_unused_patterns(tx, {row["topic_id"] for row in ended})
    return len(pending) + len(ended)

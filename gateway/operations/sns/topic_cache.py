"""Topics of this process with whom they reach: filters compiled, endpoints taken apart.

Dropped when a notification says that the topic or one of its subscriptions changed; like queues
(``queue_cache``), a load that a notification overtakes is not kept.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import orjson

from gateway.operations.queue_cache import QueueName
from protocol import arns, filter_policies
from protocol.errors import Malformed
from protocol.filter_policies import FilterPolicy
from storage import subscriptions, topics
from storage.database import Database
from storage.errors import NotFound
from storage.model import Subscription, Topic

_MOST = 10_000
_ENVELOPES = frozenset({"sqs", "http", "https"})


class Target(NamedTuple):
    """One confirmed subscription, ready to be published to."""

    subscription_id: str
    arn: str
    protocol: str
    text_key: str
    """Which text of a message in JSON it gets: its protocol's, or its push platform's."""
    endpoint: str
    is_raw: bool
    policy: FilterPolicy | None
    by_body: bool
    """The policy looks at the message, not at its attributes."""
    queue: QueueName | None
    """Of protocol sqs; None when the endpoint cannot be a queue."""
    dead_letter: QueueName | None


class Audience(NamedTuple):
    """A topic and everybody that it reaches, in the order of subscribing."""

    topic: Topic
    targets: tuple[Target, ...]
    has_envelopes: bool
    """Somebody gets envelopes, which have to be signed."""
    has_filters: bool
    only_queues: bool
    known_live: int
    """The highest ``live_from`` of all its subscriptions: with this a replay tells later what was
    offered to whom."""


def _queue_name(arn_text: str) -> QueueName | None:
    try:
        arn = arns.parse_queue(arn_text)
    except Malformed:
        return None
    return arn.account_id, arn.region, arn.resource


def _text_key(protocol: str, endpoint: str) -> str:
    if protocol != "application":
        return protocol
    return endpoint.partition(":endpoint/")[2].partition("/")[0]


def target_of(subscription: Subscription) -> Target:
    """A subscription taken apart. Its attributes were checked when they were set."""
    attributes = subscription.attributes
    text = attributes.get("FilterPolicy")
    scope = attributes.get("FilterPolicyScope", "MessageAttributes")
    by_body = scope == "MessageBody"
    policy = None
    if text:
        policy = filter_policies.parse(text, "MessageBody" if by_body else "MessageAttributes")
    redrive = attributes.get("RedrivePolicy")
    dead_letter = orjson.loads(redrive)["deadLetterTargetArn"] if redrive else ""
    return Target(
        subscription_id=str(subscription.subscription_id),
        arn=subscription.arn,
        protocol=subscription.protocol,
        text_key=_text_key(subscription.protocol, subscription.endpoint),
        endpoint=subscription.endpoint,
        is_raw=attributes.get("RawMessageDelivery") == "true",
        policy=policy,
        by_body=by_body,
        queue=_queue_name(subscription.endpoint) if subscription.protocol == "sqs" else None,
        dead_letter=_queue_name(dead_letter) if dead_letter else None,
    )


class TopicCache:
    """Audiences by the ARN of their topic."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._epoch = 0
        self._by_id: dict[int, Audience] = {}
        self._loading: dict[tuple[int, str], asyncio.Task[Audience]] = {}
        self.by_arn: dict[str, Audience] = {}
        """What is cached, for the hot path; absence says nothing."""

    async def find(self, account_id: str, region: str, name: str) -> Audience:
        """The topic of that name and its audience; raises NotFound."""
        arn = arns.topic_arn(region, account_id, name)
        audience = self.by_arn.get(arn)
        if audience is not None:
            return audience
        # One load for all who ask at once, but never one that began before the last change.
        place = (self._epoch, arn)
        loading = self._loading.get(place)
        if loading is None:
            loading = asyncio.create_task(self._load(account_id, region, name))
            self._loading[place] = loading
            loading.add_done_callback(lambda done: self._loaded(place, done))
        # Whoever goes away must not take it from the others.
        return await asyncio.shield(loading)

    def _loaded(self, place: tuple[int, str], loading: asyncio.Task[Audience]) -> None:
        del self._loading[place]
        if not loading.cancelled():
            # When all who asked have gone, its failure is nobody's news.
            loading.exception()

    async def _load(self, account_id: str, region: str, name: str) -> Audience:
        epoch = self._epoch
        async with self._database.transaction() as tx:
            topic = await topics.find(tx, account_id, region, name)
            if topic is None:
                raise NotFound("Topic does not exist")
            found = await subscriptions.of_topic(tx, topic.topic_id)
        targets = tuple([target_of(one) for one in found if one.is_confirmed])
        has_envelopes = any(
            target.protocol in _ENVELOPES and not target.is_raw for target in targets
        )
        has_filters = any(one.policy is not None for one in targets)
        known_live = max([one.live_from for one in found], default=0)
        only_queues = all(one.queue is not None for one in targets)
        audience = Audience(topic, targets, has_envelopes, has_filters, only_queues, known_live)
        if epoch == self._epoch:
            if len(self.by_arn) >= _MOST:
                self.clear()
            self.by_arn[topic.arn] = audience
            self._by_id[topic.topic_id] = audience
        return audience

    def forget(self, topic_id: int | None) -> None:
        """Drop one topic, or all (None); no load under way brings its old state back."""
        if topic_id is None:
            self.clear()
            return
        self._epoch += 1
        audience = self._by_id.pop(topic_id, None)
        if audience is not None:
            self.by_arn.pop(audience.topic.arn, None)

    def clear(self) -> None:
        """Drop everything: after a lost notification connection nobody knows what changed."""
        self._epoch += 1
        self._by_id.clear()
        self.by_arn.clear()

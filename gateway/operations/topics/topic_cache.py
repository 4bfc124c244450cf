"""Topics and patterns of this process with whom they reach: filters compiled, endpoints apart.

Dropped when a notification says that the topic or one of its subscriptions changed; like queues
(``queue_cache``), a load that a notification overtakes is not kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from queuegate.gateway.operations.queues.queue_cache import QueueName
from queuegate.gateway.operations.topics.subscription_settings import Settings
from queuegate.gateway.operations.turns import give_way
from queuegate.protocol import arns, filter_policies, names
from queuegate.protocol.errors import Malformed
from queuegate.protocol.filter_policies import FilterPolicy
from queuegate.protocol.routing_keys import Trie
from queuegate.storage.database import Database
from queuegate.storage.errors import NotFound
from queuegate.storage.model import Subscription, Topic
from queuegate.storage.notifications import namespace_number
from queuegate.storage.topics import subscriptions, topics

_MOST = 10_000
_MOST_HELD = 1_000_000
"""References to targets, of eight bytes: of all audiences, and of all combinations of patterns."""
_AT_ONCE = 100
"""Patterns: a millisecond or two of work."""
_ENVELOPES = frozenset({"sqs", "http", "https", "log"})

Namespace = tuple[str, str]
"""(account, region)."""
LogName = tuple[str, str, str]
"""(account, region, name)."""
_Result = TypeVar("_Result")


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
    has_few_attributes: bool
    """It is raw, and SNS made it: more than ten attributes are refused, as AWS does."""
    log: LogName | None = None
    """Of protocol log."""
    gets_events: bool = False
    """It was made with the native API."""


class Audience(NamedTuple):
    """A topic and everybody that it reaches: its own subscriptions, then those of patterns, each in
    the order of subscribing."""

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


def _log_name(arn_text: str) -> LogName:
    arn = arns.parse_log(arn_text)
    return arn.account_id, arn.region, arn.resource


def _text_key(protocol: str, endpoint: str) -> str:
    if protocol != "application":
        return protocol
    return endpoint.partition(":endpoint/")[2].partition("/")[0]


def target_of(subscription: Subscription) -> Target:
    """A subscription taken apart. Its attributes were checked when they were set."""
    settings = Settings.of(subscription.attributes)
    dead_letter, is_raw = settings.dead_letter_arn, settings.is_raw
    return Target(
        subscription_id=str(subscription.subscription_id),
        arn=subscription.arn,
        protocol=subscription.protocol,
        text_key=_text_key(subscription.protocol, subscription.endpoint),
        endpoint=subscription.endpoint,
        is_raw=is_raw,
        policy=filter_policies.stored(settings.filter_policy, by_body=settings.filters_body),
        by_body=settings.filters_body,
        queue=_queue_name(subscription.endpoint) if subscription.protocol == "sqs" else None,
        dead_letter=_queue_name(dead_letter) if dead_letter else None,
        has_few_attributes=is_raw and not subscription.gets_events,
        log=_log_name(subscription.endpoint) if subscription.protocol == "log" else None,
        gets_events=subscription.gets_events,
    )


class _Listeners(NamedTuple):
    """What an audience is but for its topic."""

    targets: tuple[Target, ...] = ()
    has_envelopes: bool = False
    has_filters: bool = False
    only_queues: bool = True

    @classmethod
    def among(cls, found: Iterable[Subscription]) -> _Listeners:
        """Those of these subscriptions that are confirmed."""
        targets = tuple([target_of(one) for one in found if one.is_confirmed])
        return cls(
            targets,
            any(target.protocol in _ENVELOPES and not target.is_raw for target in targets),
            any(target.policy is not None for target in targets),
            all(target.queue is not None for target in targets),
        )

    def with_others(self, others: _Listeners) -> _Listeners:
        """Both together."""
        if not others.targets:
            return self
        return _Listeners(
            self.targets + others.targets,
            self.has_envelopes or others.has_envelopes,
            self.has_filters or others.has_filters,
            self.only_queues and others.only_queues,
        )


_NOBODY = _Listeners()


class _Patterns:
    """All patterns of one namespace, and who listens to each.

    Which patterns a key matches is found out by walking a tree; who listens then is remembered by
    those patterns, not by the key: a million keys that match the same ones take one place.
    """

    def __init__(self, ids: Iterable[int]) -> None:
        self.ids = frozenset(ids)
        self._listeners: dict[int, _Listeners] = {}
        self._trie: Trie[int] = Trie()
        self._together: dict[tuple[int, ...], _Listeners] = {}
        self._held = 0

    async def fill(self, names_by_id: Mapping[int, str], found: list[Subscription]) -> None:
        """Before the first use. Of thousands of patterns others have their turn in between."""
        by_pattern: dict[int, list[Subscription]] = {}
        for one in found:
            by_pattern.setdefault(one.topic_id, []).append(one)
        for number, (topic_id, some) in enumerate(by_pattern.items()):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await give_way()
            self._listeners[topic_id] = _Listeners.among(some)
            self._trie.add(names_by_id[topic_id], topic_id)

    def of_key(self, key: str) -> _Listeners:
        """Everybody who listens to a pattern that the key matches: the oldest pattern first."""
        matching = tuple(sorted(self._trie.match(key)))
        together = self._together.get(matching)
        if together is None:
            together = _NOBODY
            for topic_id in matching:
                together = together.with_others(self._listeners[topic_id])
            self._held += 1 + len(together.targets)
            if self._held > _MOST_HELD:
                self._together.clear()
                self._held = 1 + len(together.targets)
            self._together[matching] = together
        return together


class TopicCache:
    """Audiences by the ARN of their topic, and those of routing keys that are no topic.

    Whoever publishes to a standard topic also reaches the patterns of its namespace that match its
    name. So there are three things to drop: a topic with its audience, the patterns of a namespace
    with all audiences that they are part of, and the knowledge that there is no topic of a name.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._epoch = 0
        self._by_id: dict[int, Audience] = {}
        self._loading: dict[tuple[int, object], asyncio.Task[Any]] = {}
        self._patterns: dict[Namespace, _Patterns] = {}
        self._namespace_of: dict[int, Namespace] = {}
        self._absent: set[str] = set()
        self._held = 0
        self.by_arn: dict[str, Audience] = {}
        """What is cached of topics, for the hot path; absence says nothing."""

    async def find(self, account_id: str, region: str, name: str) -> Audience:
        """The topic of that name and its audience; raises NotFound."""
        arn = arns.topic_arn(region, account_id, name)
        audience = self.by_arn.get(arn)
        if audience is not None:
            return audience
        return await self._once(arn, lambda: self._load(account_id, region, name))

    async def event_audience(self, account_id: str, region: str, key: str) -> Audience:
        """Whom an event with this valid key reaches: the audience of the standard topic of that
        name, else that of the patterns alone, with a topic that exists for this event only. It asks
        the database nothing once the patterns are cached, unless the key could be a topic's name.
        """
        if names.is_standard_topic_name(key):
            arn = arns.topic_arn(region, account_id, key)
            if arn not in self._absent:
                try:
                    return await self.find(account_id, region, key)
                except NotFound:
                    pass
        patterns = await self._patterns_of((account_id, region))
        return Audience(topics.passing(account_id, region, key), *patterns.of_key(key), 0)

    async def _once(self, key: object, load: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
        """One load for all who ask at once, but never one that began before the last change."""
        place = (self._epoch, key)
        loading = self._loading.get(place)
        if loading is None:
            loading = asyncio.create_task(load())
            self._loading[place] = loading
            loading.add_done_callback(lambda done: self._loaded(place, done))
        # Whoever goes away must not take it from the others.
        result: _Result = await asyncio.shield(loading)
        return result

    def _loaded(self, place: tuple[int, object], loading: asyncio.Task[Any]) -> None:
        del self._loading[place]
        if not loading.cancelled():
            # When all who asked have gone, its failure is nobody's news.
            loading.exception()

    async def _load(self, account_id: str, region: str, name: str) -> Audience:
        epoch = self._epoch
        others = _NOBODY
        if names.is_standard_topic_name(name):
            # Before the transaction: nobody waits for a load with a connection in hand.
            others = (await self._patterns_of((account_id, region))).of_key(name)
        async with self._database.transaction() as tx:
            topic = await topics.find(tx, account_id, region, name)
            found = [] if topic is None else await subscriptions.of_topics(tx, [topic.topic_id])
        if topic is None:
            if epoch == self._epoch:
                self._keep_absence(arns.topic_arn(region, account_id, name))
            raise NotFound("Topic does not exist")
        known_live = max([one.live_from for one in found], default=0)
        audience = Audience(topic, *_Listeners.among(found).with_others(others), known_live)
        if epoch == self._epoch:
            if len(self.by_arn) >= _MOST or self._held > _MOST_HELD:
                self.clear()
            self._held += len(audience.targets)
            self.by_arn[topic.arn] = audience
            self._by_id[topic.topic_id] = audience
        return audience

    def _keep_absence(self, arn: str) -> None:
        if len(self._absent) >= _MOST:
            self._absent.clear()
        self._absent.add(arn)

    async def _patterns_of(self, namespace: Namespace) -> _Patterns:
        patterns = self._patterns.get(namespace)
        if patterns is not None:
            return patterns
        return await self._once(namespace, lambda: self._load_patterns(namespace))

    async def _load_patterns(self, namespace: Namespace) -> _Patterns:
        epoch = self._epoch
        async with self._database.transaction() as tx:
            names_by_id = await topics.list_patterns(tx, *namespace)
            found = await subscriptions.of_topics(tx, names_by_id) if names_by_id else []
        patterns = _Patterns(names_by_id)
        await patterns.fill(names_by_id, found)
        if epoch == self._epoch:
            if len(self._patterns) >= _MOST:
                self.clear()
            self._patterns[namespace] = patterns
            self._namespace_of.update(dict.fromkeys(patterns.ids, namespace))
        return patterns

    def forget(self, topic_id: int | None) -> None:
        """Drop one topic; or the patterns of a namespace, for the id of one of them or for what
        stands for them all (``storage.notifications.namespace_number``); or everything (None). No
        load under way brings the old state back."""
        if topic_id is None:
            self.clear()
            return
        self._epoch += 1
        if topic_id in self._by_id:
            self._drop(topic_id)
        elif topic_id in self._namespace_of:
            self._forget_patterns(self._namespace_of[topic_id])
        elif topic_id < 0:
            for namespace in [n for n in self._patterns if namespace_number(*n) == topic_id]:
                self._forget_patterns(namespace)
        else:
            # It may be new, and one whose name was looked up before.
            self._absent.clear()

    def _drop(self, topic_id: int) -> None:
        audience = self._by_id.pop(topic_id)
        self.by_arn.pop(audience.topic.arn, None)
        self._held -= len(audience.targets)

    def _forget_patterns(self, namespace: Namespace) -> None:
        """Drop them with the audiences that they may be part of."""
        for topic_id in self._patterns.pop(namespace).ids:
            del self._namespace_of[topic_id]
        for topic in [audience.topic for audience in self._by_id.values()]:
            if (topic.account_id, topic.region) == namespace:
                self._drop(topic.topic_id)

    def clear(self) -> None:
        """Drop everything: after a lost notification connection nobody knows what changed."""
        self._epoch += 1
        self._by_id.clear()
        self.by_arn.clear()
        self._patterns.clear()
        self._namespace_of.clear()
        self._absent.clear()
        self._held = 0

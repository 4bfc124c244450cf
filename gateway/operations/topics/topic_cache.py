"""A cache of audiences: topics and patterns with their subscriptions, filters compiled; settings of
subscriptions and their checks (docs/contract/sns.md 3.4).

Notifications of changed topics and subscriptions invalidate entries. As in ``queue_cache``, a load
that a notification overtakes is not cached.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

import orjson

from queuegate.gateway.operations.queues.queue_cache import QueueName
from queuegate.gateway.operations.runtime.background_tasks import SharedLoads, yield_to_loop
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol import arns, delivery_policies, filter_policies, names
from queuegate.protocol.filter_policies import FilterPolicy
from queuegate.protocol.malformed import Malformed, refusing
from queuegate.protocol.routing_keys import Trie
from queuegate.protocol.urls import WEB, is_basic, is_private
from queuegate.storage.database import Database
from queuegate.storage.model import Topic, TopicSubscription
from queuegate.storage.notifications import namespace_number
from queuegate.storage.storage_errors import (
    AuthorizationError,
    NotFound,
    SettingRefused,
    WebHookRefused,
)
from queuegate.storage.topics import stored_topics, subscriptions

_MOST = 10_000
_MOST_HELD = 1_000_000
"""References to targets, 8 bytes each, in all audiences and all combinations of patterns."""
_AT_ONCE = 100
"""Patterns that take a millisecond or two."""
_ENVELOPES = frozenset({"sqs", "http", "https", "log"})

Namespace = tuple[str, str]
LogName = tuple[str, str, str]


class SubscriptionTarget(NamedTuple):
    """A confirmed subscription, prepared for publishing."""

    subscription_id: str
    arn: str
    protocol: str
    text_key: str
    """Selects the text of a message in JSON: the protocol, or the push platform."""
    endpoint: str
    is_raw: bool
    policy: FilterPolicy | None
    by_body: bool
    """The filter applies to the message instead of its attributes."""
    queue: QueueName | None
    """For protocol sqs; None: the endpoint cannot be a queue."""
    dead_letter: QueueName | None
    has_few_attributes: bool
    """Raw delivery of SNS: messages with more than ten attributes are refused, as on AWS."""
    log: LogName | None = None
    gets_events: bool = False
    """Created with the native API."""


class Audience(NamedTuple):
    """A topic and its subscriptions, then those of patterns, each in the order of subscribing."""

    topic: Topic
    targets: tuple[SubscriptionTarget, ...]
    has_envelopes: bool
    """Some subscriptions get envelopes, which are signed."""
    has_filters: bool
    only_queues: bool
    known_live: int
    """The highest ``live_from`` of all subscriptions: shows replays which subscriptions a message
    was offered to."""


def _queue_name(arn_text: str) -> QueueName | None:
    try:
        arn = arns.parse_queue(arn_text)
    except Malformed:
        return None
    return arn.account_id, arn.region, arn.resource


def _log_name(arn_text: str) -> LogName:
    arn = arns.parse_log(arn_text)
    return arn.account_id, arn.region, arn.resource


def target_of(subscription: TopicSubscription) -> SubscriptionTarget:
    """Return the prepared form of a subscription. Its attributes were checked when they were
    set."""
    settings = SubscriptionSettings.of(subscription.attributes)
    dead_letter, is_raw = settings.dead_letter_arn, settings.is_raw
    text_key = subscription.protocol
    if text_key == "application":
        text_key = subscription.endpoint.partition(":endpoint/")[2].partition("/")[0]
    return SubscriptionTarget(
        subscription_id=str(subscription.subscription_id),
        arn=subscription.arn,
        protocol=subscription.protocol,
        text_key=text_key,
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
    """The subscriptions of an audience."""

    targets: tuple[SubscriptionTarget, ...] = ()
    has_envelopes: bool = False
    has_filters: bool = False
    only_queues: bool = True

    @classmethod
    def among(cls, found: Iterable[TopicSubscription]) -> _Listeners:
        """Return the confirmed ones of these subscriptions."""
        targets = tuple([target_of(one) for one in found if one.is_confirmed])
        return cls(
            targets,
            any(target.protocol in _ENVELOPES and not target.is_raw for target in targets),
            any(target.policy is not None for target in targets),
            all(target.queue is not None for target in targets),
        )

    def with_others(self, others: _Listeners) -> _Listeners:
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
    """All patterns of one namespace with their subscriptions. A tree finds the patterns that match
    a key. Subscriptions are cached by matching patterns, not by key: a million keys with the same
    patterns have one entry."""

    def __init__(self, ids: Iterable[int]) -> None:
        self.ids = frozenset(ids)
        self._listeners: dict[int, _Listeners] = {}
        self._trie: Trie[int] = Trie()
        self._together: dict[tuple[int, ...], _Listeners] = {}
        self._held = 0

    async def fill(self, names_by_id: Mapping[int, str], found: list[TopicSubscription]) -> None:
        """Fill the tree before its first use, yielding to the event loop in between."""
        by_pattern: dict[int, list[TopicSubscription]] = {}
        for one in found:
            by_pattern.setdefault(one.topic_id, []).append(one)
        for number, (topic_id, some) in enumerate(by_pattern.items()):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await yield_to_loop()
            self._listeners[topic_id] = _Listeners.among(some)
            self._trie.add(names_by_id[topic_id], topic_id)

    def of_key(self, key: str) -> _Listeners:
        """Return the subscriptions of all patterns that match the key, the oldest pattern first."""
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
    """Audiences of topics by ARN, and of routing keys without a topic. A message to a standard
    topic also reaches the matching patterns of its namespace. So there are three kinds of entries
    to invalidate: a topic with its audience, the patterns of a namespace with all audiences that
    have them, and names without a topic."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._epoch = 0
        self._by_id: dict[int, Audience] = {}
        self._loads = SharedLoads()
        """By epoch, so that no caller shares a load that started before the last change."""
        self._patterns: dict[Namespace, _Patterns] = {}
        self._namespace_of: dict[int, Namespace] = {}
        self._absent: set[str] = set()
        self._held = 0
        self.by_arn: dict[str, Audience] = {}
        """Cached topics, for the hot path; an absent topic is unknown."""

    async def find(self, account_id: str, region: str, name: str) -> Audience:
        arn = arns.topic_arn(region, account_id, name)
        audience = self.by_arn.get(arn)
        if audience is not None:
            return audience
        return await self._loads.once(
            (self._epoch, arn), lambda: self._load(account_id, region, name)
        )

    async def event_audience(self, account_id: str, region: str, key: str) -> Audience:
        """Return the audience of an event with this valid key: that of the standard topic of that
        name, or that of the patterns alone, with a topic for this event only. Takes no query once
        patterns are cached, unless the key could be a topic's name."""
        if names.is_standard_topic_name(key):
            arn = arns.topic_arn(region, account_id, key)
            if arn not in self._absent:
                try:
                    return await self.find(account_id, region, key)
                except NotFound:
                    pass
        patterns = await self._patterns_of((account_id, region))
        return Audience(stored_topics.passing(account_id, region, key), *patterns.of_key(key), 0)

    async def _load(self, account_id: str, region: str, name: str) -> Audience:
        epoch = self._epoch
        others = _NOBODY
        if names.is_standard_topic_name(name):
            # Before the transaction, so that no load is waited for with a connection in hand.
            others = (await self._patterns_of((account_id, region))).of_key(name)
        async with self._database.transaction() as tx:
            topic = await stored_topics.find(tx, account_id, region, name)
            found = [] if topic is None else await subscriptions.of_topics(tx, [topic.topic_id])
        if topic is None:
            if epoch == self._epoch:
                if len(self._absent) >= _MOST:
                    self._absent.clear()
                self._absent.add(arns.topic_arn(region, account_id, name))
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

    async def _patterns_of(self, namespace: Namespace) -> _Patterns:
        patterns = self._patterns.get(namespace)
        if patterns is not None:
            return patterns
        return await self._loads.once(
            (self._epoch, namespace), lambda: self._load_patterns(namespace)
        )

    async def _load_patterns(self, namespace: Namespace) -> _Patterns:
        epoch = self._epoch
        async with self._database.transaction() as tx:
            names_by_id = await stored_topics.list_patterns(tx, *namespace)
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
        """Invalidate one topic; or the patterns of a namespace, by the id of one of them or of the
        namespace (``storage.notifications.namespace_number``); or everything (None). Loads under
        way are not cached."""
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
            # The topic may be new, and its name cached as absent.
            self._absent.clear()

    def _drop(self, topic_id: int) -> None:
        audience = self._by_id.pop(topic_id)
        self.by_arn.pop(audience.topic.arn, None)
        self._held -= len(audience.targets)

    def _forget_patterns(self, namespace: Namespace) -> None:
        """Invalidate patterns with the audiences that may have them."""
        for topic_id in self._patterns.pop(namespace).ids:
            del self._namespace_of[topic_id]
        for topic in [audience.topic for audience in self._by_id.values()]:
            if (topic.account_id, topic.region) == namespace:
                self._drop(topic.topic_id)

    def clear(self) -> None:
        """Invalidate everything, because notifications may have been lost."""
        self._epoch += 1
        self._by_id.clear()
        self.by_arn.clear()
        self._patterns.clear()
        self._namespace_of.clear()
        self._absent.clear()
        self._held = 0


# Valid characters of a URL (RFC 3986); all others are escaped.
_URL = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")
# Only IPv6 addresses in brackets: other forms of the grammar cannot be looked up.
_HOST_AND_PORT = re.compile(
    r"([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f.]*:[0-9A-Fa-f:.]{1,44}\])(:[0-9]{0,5})?"
)


def check_web_hook(protocol: str, endpoint: str, *, allow_private: bool) -> None:
    """Raise WebHookRefused for an invalid URL or another protocol, and AuthorizationError for a
    private address. The endpoint need not be reachable."""
    if len(endpoint) > LIMITS.endpoint_length or not endpoint.isprintable():
        # A lone surrogate is not printable, either.
        raise WebHookRefused("Endpoint")
    if not endpoint.startswith(f"{protocol}://"):
        raise WebHookRefused("Endpoint must match the specified protocol")
    url = _split_url(endpoint)
    host = None if url is None else url.hostname
    if not host:
        raise WebHookRefused("Endpoint")
    if not allow_private and _is_inside(host):
        raise AuthorizationError("Not authorized to subscribe internal endpoints")


def _split_url(endpoint: str) -> SplitResult | None:
    """Return the parts of a URL; None: it is ambiguous. Only one `@` is allowed before the host,
    because with more, programs disagree about the host."""
    if _URL.fullmatch(endpoint) is None:
        return None
    try:
        url = urlsplit(endpoint)
        has_port = url.port != 0
    except ValueError:
        return None
    user_info, at, host_and_port = url.netloc.rpartition("@")
    is_odd = _HOST_AND_PORT.fullmatch(host_and_port) is None or (at and not is_basic(user_info))
    return url if has_port and not is_odd else None


def _is_inside(host: str) -> bool:
    """Return True if a host is private by its name or address. Names are looked up at delivery."""
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    if ":" in name:
        return is_private(name)
    try:
        # Accepts every form that a resolver does: 127.1, 0x7f000001, 2130706433.
        address = socket.inet_ntoa(socket.inet_aton(name))
    except OSError:
        return False
    return is_private(address)


_NAMES = (
    "RawMessageDelivery",
    "DeliveryPolicy",
    "FilterPolicy",
    "FilterPolicyScope",
    "RedrivePolicy",
)
_BY_ATTRIBUTES = "MessageAttributes"


class SubscriptionSettings(NamedTuple):
    """Settings of a subscription. Policies are JSON texts in SNS's form; None: there is none."""

    is_raw: bool = False
    delivery_policy: str | None = None
    filter_policy: str | None = None
    filter_scope: str | None = None
    """Input of the filter: MessageBody, or by default MessageAttributes."""
    redrive_policy: str | None = None

    @classmethod
    def of(cls, attributes: Mapping[str, str]) -> SubscriptionSettings:
        is_raw, *others = map(attributes.get, _NAMES)
        return cls(is_raw == "true", *others)

    @property
    def filters_body(self) -> bool:
        """Return True if the filter applies to the message instead of its attributes."""
        return self.filter_scope == "MessageBody"

    @property
    def dead_letter_arn(self) -> str | None:
        policy = self.redrive_policy
        return orjson.loads(policy)["deadLetterTargetArn"] if policy else None

    def stored(self) -> dict[str, str]:
        values = ("true" if self.is_raw else "false", *self[1:])
        return {name: value for name, value in zip(_NAMES, values, strict=True) if value}

    def meaning(self) -> tuple[object, ...]:
        policies = (self.delivery_policy, self.filter_policy, self.redrive_policy)
        return self.is_raw, self.filter_scope or _BY_ATTRIBUTES, *map(comparable, policies)


def comparable(policy: str | None) -> str | bytes | None:
    """Return a policy in a form that is equal for equal policies."""
    try:
        return policy and orjson.dumps(orjson.loads(policy), option=orjson.OPT_SORT_KEYS)
    except (ValueError, TypeError):
        # Nested too deeply to be written.
        return policy


def is_nothing(policy: str) -> bool:
    """Return True if the text removes a policy: "" or `{}`, with any white space."""
    text = policy.strip()
    return not text or (text[0] == "{" and text[-1] == "}" and not text[1:-1].strip())


def checked(settings: SubscriptionSettings, protocol: str) -> SubscriptionSettings:
    """Return valid settings of a subscription to a standard topic or a pattern. Raises
    SettingRefused."""
    delivery, policy = settings.delivery_policy, settings.filter_policy
    with refusing(SettingRefused):
        if delivery is not None:
            delivery = check_delivery_policy(protocol, delivery)
        if settings.redrive_policy is not None:
            check_dead_letter(settings.dead_letter_arn, is_fifo=False, endpoint="")
        if policy is not None and is_nothing(policy):
            policy = None
        if policy is not None:
            filter_policies.parse(
                policy, "MessageBody" if settings.filters_body else "MessageAttributes"
            )
    return settings._replace(delivery_policy=delivery or None, filter_policy=policy)


def check_delivery_policy(protocol: str, policy: str) -> str:
    """Return the policy as stored; "" for none. Raises Malformed."""
    if protocol not in WEB:
        raise Malformed(
            f"DeliveryPolicy: Delivery protocol [{protocol}] does not support a delivery policy."
        )
    return delivery_policies.parse_subscription(policy)


def check_dead_letter(arn: object, *, is_fifo: bool, endpoint: str) -> None:
    """Check that the dead-letter queue of a redrive policy fits the kind of topic. Raises
    Malformed."""
    with refusing(Malformed("RedrivePolicy: deadLetterTargetArn is an invalid arn")):
        queue = arns.parse_queue(arn if isinstance(arn, str) else "")
    takes_fifo = queue.resource.endswith(".fifo")
    if is_fifo and endpoint.endswith(".fifo") and not takes_fifo:
        raise Malformed(
            "RedrivePolicy: must use a FIFO queue as DLQ for a FIFO Subscription to a FIFO Topic."
        )
    if takes_fifo and not is_fifo:
        # Messages of a standard topic have no group.
        raise Malformed(
            "RedrivePolicy: must use a standard queue as DLQ for a Subscription to a standard "
            "Topic."
        )

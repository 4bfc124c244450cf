"""Settings of subscriptions in SNS's stored form, and checks of them and of web hooks' URLs
(docs/contract/sns.md 3.4)."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

import orjson

from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol import arns, delivery_policies, filter_policies
from queuegate.protocol.endpoint_urls import WEB, is_basic, is_private
from queuegate.protocol.malformed import Malformed
from queuegate.storage.storage_errors import AuthorizationError, SettingRefused, WebHookRefused

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
    """Raw delivery, without an envelope."""
    delivery_policy: str | None = None
    filter_policy: str | None = None
    filter_scope: str | None = None
    """Input of the filter: MessageBody, or by default MessageAttributes."""
    redrive_policy: str | None = None

    @classmethod
    def of(cls, attributes: Mapping[str, str]) -> SubscriptionSettings:
        """Return the settings of a subscription."""
        is_raw, *others = map(attributes.get, _NAMES)
        return cls(is_raw == "true", *others)

    @property
    def filters_body(self) -> bool:
        """Return True if the filter applies to the message instead of its attributes."""
        return self.filter_scope == "MessageBody"

    @property
    def dead_letter_arn(self) -> str | None:
        """Return the dead-letter queue."""
        policy = self.redrive_policy
        return orjson.loads(policy)["deadLetterTargetArn"] if policy else None

    def stored(self) -> dict[str, str]:
        """Return the attributes as stored."""
        values = ("true" if self.is_raw else "false", *self[1:])
        return {name: value for name, value in zip(_NAMES, values, strict=True) if value}

    def is_same(self, other: SubscriptionSettings) -> bool:
        """Return True if both have the same meaning."""
        return self._compared() == other._compared()

    def _compared(self) -> tuple[object, ...]:
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
    try:
        return _checked(settings, protocol)
    except Malformed as error:
        raise SettingRefused(str(error)) from None


def _checked(settings: SubscriptionSettings, protocol: str) -> SubscriptionSettings:
    delivery = settings.delivery_policy
    if delivery is not None:
        delivery = check_delivery_policy(protocol, delivery)
    if settings.redrive_policy is not None:
        check_dead_letter(settings.dead_letter_arn, is_fifo=False, endpoint="")
    policy = settings.filter_policy
    if policy is not None:
        policy = None if is_nothing(policy) else policy
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
    try:
        queue = arns.parse_queue(arn if isinstance(arn, str) else "")
    except Malformed:
        raise Malformed("RedrivePolicy: deadLetterTargetArn is an invalid arn") from None
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

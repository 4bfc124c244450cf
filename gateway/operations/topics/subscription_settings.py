"""What a subscriber can choose, apart from the form in which it is stored: that is SNS's, under
SNS's names, since there are databases with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import orjson

from queuegate.protocol import arns, delivery_policies, filter_policies
from queuegate.protocol.endpoint_urls import WEB
from queuegate.protocol.errors import Malformed
from queuegate.storage.errors import SettingRefused

_NAMES = (
    "RawMessageDelivery",
    "DeliveryPolicy",
    "FilterPolicy",
    "FilterPolicyScope",
    "RedrivePolicy",
)
_BY_ATTRIBUTES = "MessageAttributes"


class Settings(NamedTuple):
    """Policies are JSON texts in SNS's form; None: there is none."""

    is_raw: bool = False
    """The message alone, not its envelope."""
    delivery_policy: str | None = None
    filter_policy: str | None = None
    filter_scope: str | None = None
    """What the filter looks at: MessageAttributes unless it is MessageBody."""
    redrive_policy: str | None = None

    @classmethod
    def of(cls, attributes: Mapping[str, str]) -> Settings:
        """Those of a subscription."""
        is_raw, *others = map(attributes.get, _NAMES)
        return cls(is_raw == "true", *others)

    @property
    def filters_body(self) -> bool:
        """The filter looks at the message, not at its attributes."""
        return self.filter_scope == "MessageBody"

    @property
    def dead_letter_arn(self) -> str | None:
        """The queue for what cannot be delivered."""
        policy = self.redrive_policy
        return orjson.loads(policy)["deadLetterTargetArn"] if policy else None

    def stored(self) -> dict[str, str]:
        """As a subscription keeps them."""
        values = ("true" if self.is_raw else "false", *self[1:])
        return {name: value for name, value in zip(_NAMES, values, strict=True) if value}

    def is_same(self, other: Settings) -> bool:
        """Whether both mean the same."""
        return self._compared() == other._compared()

    def _compared(self) -> tuple[object, ...]:
        policies = (self.delivery_policy, self.filter_policy, self.redrive_policy)
        return self.is_raw, self.filter_scope or _BY_ATTRIBUTES, *map(comparable, policies)


def comparable(policy: str | None) -> str | bytes | None:
    """A policy in a form in which equal ones are equal."""
    try:
        return policy and orjson.dumps(orjson.loads(policy), option=orjson.OPT_SORT_KEYS)
    except (ValueError, TypeError):
        # Nested deeper than it can be written.
        return policy


def is_nothing(policy: str) -> bool:
    """Whether it takes a policy away: "" and `{}`, with any white space."""
    text = policy.strip()
    return not text or (text[0] == "{" and text[-1] == "}" and not text[1:-1].strip())


def checked(settings: Settings, protocol: str) -> Settings:
    """The settings of a subscription to a standard topic or a pattern. Raises SettingRefused."""
    try:
        return _checked(settings, protocol)
    except Malformed as error:
        raise SettingRefused(str(error)) from None


def _checked(settings: Settings, protocol: str) -> Settings:
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
    """The policy as it is kept; "" of none. Raises Malformed."""
    if protocol not in WEB:
        raise Malformed(
            f"DeliveryPolicy: Delivery protocol [{protocol}] does not support a delivery policy."
        )
    return delivery_policies.parse_subscription(policy)


def check_dead_letter(arn: object, *, is_fifo: bool, endpoint: str) -> None:
    """The queue that a redrive policy names must fit the kind of topic. Raises Malformed."""
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

"""Amazon resource names."""

import re
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from queuegate.protocol.malformed import Malformed
from queuegate.protocol.names import is_standard_queue_name, is_topic_name
from queuegate.protocol.routing_keys import is_pattern

_ARN = re.compile(
    r"arn:(aws[a-z-]{0,20}):([a-z0-9-]{1,63}):([a-z0-9-]{0,63}):([0-9]{12})?:([!-~]{1,512})"
)
_QUEUE_RESOURCE = re.compile(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo")
_SUBSCRIPTION_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_ELEMENTS = 6


class Arn(NamedTuple):
    """The parts of `arn:<partition>:<service>:<region>:<account_id>:<resource>`."""

    partition: str
    service: str
    region: str
    account_id: str
    resource: str


def parse(text: str) -> Arn:
    """Parse any ARN. Region and account may be empty, the resource may contain colons. Raises
    Malformed."""
    match = _ARN.fullmatch(text)
    if match is None:
        raise Malformed("The text is not an ARN.", kind="arn")
    partition, service, region, account_id, resource = match.groups(default="")
    return Arn(partition, service, region, account_id, resource)


def _parse_named(text: str, service: str, fits: Callable[[str], object], noun: str) -> Arn:
    """Parse the ARN of a resource: `resource` is its name, region and account are present. Raises
    Malformed."""
    arn = parse(text)
    whole = arn.service == service and arn.region and arn.account_id
    if not whole or not fits(arn.resource):
        raise Malformed(f"The ARN is not that of a {noun}.", kind="arn")
    return arn


def parse_queue(text: str) -> Arn:
    return _parse_named(text, "sqs", _QUEUE_RESOURCE.fullmatch, "queue")


def parse_log(text: str) -> Arn:
    return _parse_named(text, "log", is_standard_queue_name, "log")


def parse_topic(text: str) -> Arn:
    return _parse_named(text, "sns", is_topic_name, "topic")


def parse_subscribed(text: str) -> Arn:
    """Parse the ARN of a topic, or one with a pattern of routing keys as its name. Raises
    Malformed."""
    return _parse_named(text, "sns", lambda name: is_topic_name(name) or is_pattern(name), "topic")


def queue_arn(region: str, account_id: str, name: str) -> str:
    return f"arn:aws:sqs:{region}:{account_id}:{name}"


def log_arn(region: str, account_id: str, name: str) -> str:
    return f"arn:aws:log:{region}:{account_id}:{name}"


def missing_elements(text: str) -> str | None:
    """Return SNS's text for an ARN with too few colons; None: there are enough."""
    found = text.count(":") + 1
    if found >= _ELEMENTS:
        return None
    return f"An ARN must have at least {_ELEMENTS} elements, not {found}"


def parse_subscription(text: str) -> tuple[Arn, UUID]:
    """Return the topic's ARN and the subscription's id in the ARN of a subscription. The topic's
    name may be a pattern of routing keys. Raises Malformed."""
    topic, _, last = text.rpartition(":")
    key = subscription_id(last)
    return parse_subscribed(topic), key


def subscription_id(text: str) -> UUID:
    """Return the id in the ARN of a subscription. Raises Malformed."""
    if _SUBSCRIPTION_ID.fullmatch(text) is None:
        raise Malformed("The ARN is not that of a subscription.", kind="arn")
    return UUID(text)


def topic_arn(region: str, account_id: str, name: str) -> str:
    return f"arn:aws:sns:{region}:{account_id}:{name}"


def subscription_arn(topic: str, subscription_id: UUID) -> str:
    """Return the ARN of a subscription to the topic of that ARN."""
    return f"{topic}:{subscription_id}"


def user_arn(account_id: str, user_name: str) -> str:
    """Return the ARN of a user, which SNS and STS show as the signer."""
    return f"arn:aws:iam::{account_id}:user/{user_name}"


def schedule_arn(region: str, account_id: str, group: str, name: str) -> str:
    return f"arn:aws:scheduler:{region}:{account_id}:schedule/{group}/{name}"


def schedule_group_arn(region: str, account_id: str, name: str) -> str:
    return f"arn:aws:scheduler:{region}:{account_id}:schedule-group/{name}"

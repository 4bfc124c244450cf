"""Amazon resource names."""

import re
from typing import NamedTuple
from uuid import UUID

from protocol.errors import Malformed
from protocol.names import is_topic_name

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
    """Raises Malformed; region and account may be empty, the resource may contain colons."""
    match = _ARN.fullmatch(text)
    if match is None:
        raise Malformed("The text is not an ARN.", kind="arn")
    partition, service, region, account_id, resource = match.groups(default="")
    return Arn(partition, service, region, account_id, resource)


def parse_queue(text: str) -> Arn:
    """The ARN of a queue: `resource` is its name, region and account are there. Else raises
    Malformed.
    """
    arn = parse(text)
    whole = arn.service == "sqs" and arn.region and arn.account_id
    if not whole or _QUEUE_RESOURCE.fullmatch(arn.resource) is None:
        raise Malformed("The ARN is not that of a queue.", kind="arn")
    return arn


def queue_arn(region: str, account_id: str, name: str) -> str:
    return f"arn:aws:sqs:{region}:{account_id}:{name}"


def missing_elements(text: str) -> str | None:
    """What SNS says of a text with too few colons to be an ARN; None when there are enough."""
    found = text.count(":") + 1
    if found >= _ELEMENTS:
        return None
    return f"An ARN must have at least {_ELEMENTS} elements, not {found}"


def parse_topic(text: str) -> Arn:
    """The ARN of a topic: `resource` is its name, region and account are there. Else raises
    Malformed.
    """
    arn = parse(text)
    whole = arn.service == "sns" and arn.region and arn.account_id
    if not whole or not is_topic_name(arn.resource):
        raise Malformed("The ARN is not that of a topic.", kind="arn")
    return arn


def parse_subscription(text: str) -> tuple[Arn, UUID]:
    """The topic's ARN and the subscription's id of a subscription's ARN. Else raises Malformed."""
    topic, _, last = text.rpartition(":")
    if _SUBSCRIPTION_ID.fullmatch(last) is None:
        raise Malformed("The ARN is not that of a subscription.", kind="arn")
    return parse_topic(topic), UUID(last)


def topic_arn(region: str, account_id: str, name: str) -> str:
    return f"arn:aws:sns:{region}:{account_id}:{name}"


def subscription_arn(topic: str, subscription_id: UUID) -> str:
    """The ARN of a subscription to the topic of that ARN."""
    return f"{topic}:{subscription_id}"

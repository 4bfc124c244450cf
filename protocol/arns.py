"""Amazon resource names."""

import re
from typing import NamedTuple

from protocol.errors import Malformed

_ARN = re.compile(
    r"arn:(aws[a-z-]{0,20}):([a-z0-9-]{1,63}):([a-z0-9-]{0,63}):([0-9]{12})?:([!-~]{1,512})"
)
_QUEUE_RESOURCE = re.compile(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo")


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

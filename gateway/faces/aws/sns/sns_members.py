"""Members that SNS actions share: topic ARNs (docs/contract/sns.md 3.3, 3.4) and page tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from queuegate.gateway.faces.aws.aws_face import AwsCall
from queuegate.gateway.faces.aws.aws_refusals import InvalidParameter, ValidationFailed
from queuegate.gateway.operations.access.authorization import GrantedTopic, granted_topic
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.topics import topics
from queuegate.protocol import arns, opaque_tokens
from queuegate.protocol.arns import Arn
from queuegate.protocol.malformed import Malformed, refusing
from queuegate.storage.model import Topic


def checked_topic_arn(caller: Caller, topic_arn: str | None, member: str = "topicArn") -> Arn:
    """Parse the ARN of a topic in the caller's region.

    Raises InvalidParameter for another region, and the refusals of ``checked_arn``.
    """
    arn = checked_arn(member, topic_arn, arns.parse_topic)
    if arn.partition != "aws" or arn.region != caller.region:
        raise InvalidParameter(parameter(member))
    return arn


def parameter(member: str) -> str:
    """Return the parameter's name of a member as in ValidationFailed."""
    return member[0].upper() + member[1:]


def checked_arn(member: str, text: str | None, parse: Callable[[str], Arn]) -> Arn:
    """Parse an ARN. Raises ValidationFailed without one, and InvalidParameter if it is malformed.

    ``member`` is the parameter's name as in ValidationFailed.
    """
    if text is None:
        raise ValidationFailed(member)
    missing = arns.missing_elements(text)
    if missing is not None:
        raise InvalidParameter(f"{parameter(member)} Reason: {missing}")
    try:
        return parse(text)
    except Malformed:
        raise InvalidParameter(parameter(member)) from None


async def asked_topic(call: AwsCall, member: str = "topicArn") -> GrantedTopic:
    """Return the topic that the request names, if the caller has the right to the action. Raises
    AccessDenied, and the refusals of ``checked_topic_arn``."""
    given = call.members.get(parameter(member))
    arn = checked_topic_arn(call.caller, given, member)
    about = {
        f"sns:{name.lower()}": [call.members[name]]
        for name in ("Protocol", "Endpoint")
        if call.members.get(name)
    }
    return await granted_topic(call.engine, call.caller, call.right, arn, about)


async def find_topic(call: AwsCall, member: str = "topicArn") -> Topic:
    """Load the topic from the database, whatever its account. Raises NotFound."""
    return await topics.find_topic(call.engine, await asked_topic(call, member))


_MOST_DIGITS = 18


def token_after(listing: str, found: Sequence[Any], size: int) -> str | None:
    """Return the page token behind the first ``size`` entries; None: there are no more."""
    return opaque_tokens.token_behind(listing, str(found[size - 1])) if found[size:] else None


def last_of(listing: str, token: str | None) -> str:
    """Return the last entry in a page token; "" without one. Raises InvalidParameter."""
    with refusing(InvalidParameter("NextToken")):
        return opaque_tokens.last_of(listing, token) or ""


def position_behind(listing: str, token: str | None) -> int:
    """Return the last position in a page token; 0 without one. Raises InvalidParameter."""
    last = last_of(listing, token) or "0"
    if len(last) > _MOST_DIGITS or not (last.isascii() and last.isdigit()):
        raise InvalidParameter("NextToken")
    return int(last)

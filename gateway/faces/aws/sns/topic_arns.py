"""The topic that a request names (docs/contract/sns.md 3.3, 3.4)."""

from __future__ import annotations

from queuegate.gateway.faces.aws.face import Call
from queuegate.gateway.faces.aws.sns.errors import (
    InvalidParameter,
    ValidationFailed,
)
from queuegate.gateway.operations.access.authorization import GrantedTopic, granted_topic
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.topics import topics
from queuegate.protocol import arns
from queuegate.protocol.arns import Arn
from queuegate.protocol.errors import Malformed
from queuegate.storage.model import Topic


def checked_topic_arn(caller: Caller, topic_arn: str | None, member: str = "topicArn") -> Arn:
    """The parts of a topic's ARN in the caller's region.

    ``member`` is the parameter's name as in ValidationFailed. Raises that without an ARN, and
    InvalidParameter for a malformed one and for another region's.
    """
    if topic_arn is None:
        raise ValidationFailed(member)
    name = member[0].upper() + member[1:]
    missing = arns.missing_elements(topic_arn)
    if missing is not None:
        raise InvalidParameter(f"{name} Reason: {missing}")
    try:
        arn = arns.parse_topic(topic_arn)
    except Malformed:
        raise InvalidParameter(name) from None
    if arn.partition != "aws" or arn.region != caller.region:
        raise InvalidParameter(name)
    return arn


async def asked_topic(call: Call, member: str = "topicArn") -> GrantedTopic:
    """The topic that the request names, for whoever has the right to the action. Raises what
    ``checked_topic_arn`` raises, and AccessDenied."""
    given = call.members.get(member[0].upper() + member[1:])
    arn = checked_topic_arn(call.caller, given, member)
    about = {
        f"sns:{name.lower()}": [call.members[name]]
        for name in ("Protocol", "Endpoint")
        if call.members.get(name)
    }
    return await granted_topic(call.engine, call.caller, call.right, arn, about)


async def find_topic(call: Call, member: str = "topicArn") -> Topic:
    """The topic as the database has it now, whoever owns it. Raises NotFound."""
    return await topics.find_topic(call.engine, await asked_topic(call, member))

"""The topic of a request, found by its ARN (docs/contract/sns.md 3.3, 3.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.operations.caller import Caller
from protocol import arns
from protocol.arns import Arn
from protocol.errors import Malformed
from storage.errors import InvalidParameter, NotFound, ValidationFailed
from storage.model import Topic
from storage.topics import topics

if TYPE_CHECKING:
    from gateway.operations.engine import Engine
    from storage.database import Transaction


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


async def find_topic(
    engine: Engine, caller: Caller, topic_arn: str | None, member: str = "topicArn"
) -> Topic:
    """The topic as the database has it now, whoever owns it.

    Raises what ``checked_topic_arn`` raises, and NotFound.
    """
    arn = checked_topic_arn(caller, topic_arn, member)
    async with engine.database.transaction() as tx:
        return await current_topic(tx, arn)


async def current_topic(tx: Transaction, arn: Arn) -> Topic:
    """The topic as it is now. Raises NotFound."""
    topic = await topics.find(tx, arn.account_id, arn.region, arn.resource)
    if topic is None:
        raise missing_topic()
    return topic


async def locked_topic(tx: Transaction, arn: Arn) -> Topic:
    """The topic as it is now, unchanged by others until the transaction ends. Raises NotFound."""
    topic = await topics.lock(tx, (await current_topic(tx, arn)).topic_id)
    if topic is None:
        raise missing_topic()
    return topic


def missing_topic() -> NotFound:
    """What SNS says when there is no topic of that ARN."""
    return NotFound("Topic does not exist")

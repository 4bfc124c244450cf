"""The data protection policy of a topic: kept and given back (docs/contract/sns.md 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from gateway.operations.caller import Caller
from gateway.operations.limits import Limits
from gateway.operations.topics.live_topics import checked_topic_arn, current_topic, locked_topic
from protocol import names
from storage.errors import InvalidParameter, ValidationFailed
from storage.topics import topics

if TYPE_CHECKING:
    from gateway.operations.engine import Engine


def checked_policy(text: str | None, *, limits: Limits) -> str | None:
    """A JSON object, kept as it was written; "" means none. Raises InvalidParameter."""
    if not text:
        return None
    try:
        document = orjson.loads(text)
    except ValueError:
        document = None
    too_long = len(text) > limits.topic_policy_bytes
    if not isinstance(document, dict) or too_long or names.invalid_characters(text):
        raise InvalidParameter("DataProtectionPolicy")
    return text


async def get_data_protection_policy(
    engine: Engine, caller: Caller, resource_arn: str | None
) -> str | None:
    """The topic's policy as it was put; None: it has none. Raises NotFound."""
    arn = checked_topic_arn(caller, resource_arn, "resourceArn")
    async with engine.database.transaction() as tx:
        topic = await current_topic(tx, arn)
        return await topics.data_protection_policy(tx, topic.topic_id)


@dataclass(frozen=True, slots=True)
class PutDataProtectionPolicy:
    resource_arn: str | None
    policy: str | None


async def put_data_protection_policy(
    engine: Engine, caller: Caller, request: PutDataProtectionPolicy
) -> None:
    """Replace the topic's policy; "" removes it. Raises InvalidParameter, NotFound."""
    arn = checked_topic_arn(caller, request.resource_arn, "resourceArn")
    if request.policy is None:
        raise ValidationFailed("dataProtectionPolicy")
    policy = checked_policy(request.policy, limits=engine.limits)
    async with engine.database.transaction() as tx:
        topic = await locked_topic(tx, arn)
        await topics.set_data_protection_policy(tx, topic.topic_id, policy)

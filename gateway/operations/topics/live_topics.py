"""A topic, found by its ARN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuegate.storage.errors import NotFound
from queuegate.storage.model import Topic
from queuegate.storage.topics import topics

if TYPE_CHECKING:
    from queuegate.gateway.operations.access import GrantedTopic
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.database import Transaction


async def find_topic(engine: Engine, arn: GrantedTopic) -> Topic:
    """The topic as the database has it now, whoever owns it. Raises NotFound."""
    async with engine.database.transaction() as tx:
        return await current_topic(tx, arn)


async def current_topic(tx: Transaction, arn: GrantedTopic) -> Topic:
    """The topic as it is now. Raises NotFound."""
    topic = await topics.find(tx, arn.account_id, arn.region, arn.resource)
    if topic is None:
        raise missing_topic()
    return topic


async def locked_topic(tx: Transaction, arn: GrantedTopic) -> Topic:
    """The topic as it is now, unchanged by others until the transaction ends. Raises NotFound."""
    topic = await topics.lock(tx, (await current_topic(tx, arn)).topic_id)
    if topic is None:
        raise missing_topic()
    return topic


def missing_topic() -> NotFound:
    """There is no topic of that ARN."""
    return NotFound("Topic does not exist")

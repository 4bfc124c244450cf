"""The outbox: what AWS would send elsewhere is kept in it, and people list, find and clear it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuegate.gateway.operations.identifiers import new_id
from queuegate.gateway.operations.queues import message_attributes
from queuegate.storage.model import NewOutboxMessage
from queuegate.storage.topics import outbox
from queuegate.storage.topics.outbox import OutboxFilter, OutboxMessage

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.gateway.operations.topics.publishing import PublishMessage

_CLEARED_AT_ONCE = 2_000


async def keep(
    engine: Engine,
    caller: Caller,
    protocol: str,
    destination: str,
    text: str,
    request: PublishMessage,
) -> str:
    """The id of a message that goes to nobody's topic: it is kept, and sent nowhere."""
    kept = NewOutboxMessage(
        account_id=caller.account_id,
        region=caller.region,
        protocol=protocol,
        destination=destination,
        kind="Notification",
        topic_arn=None,
        subscription_arn=None,
        message_id=new_id(),
        subject=request.subject,
        body=text,
        attributes=message_attributes.stored(request.attributes) if request.attributes else None,
    )
    async with engine.database.transaction() as tx:
        await outbox.insert(tx, engine.clock.of(caller.account_id).now(), [kept])
    return kept.message_id


async def list_outbox(
    engine: Engine, wanted: OutboxFilter, *, after_id: int, limit: int
) -> tuple[list[OutboxMessage], int | None]:
    """Messages behind ``after_id`` in order of writing, up to ``limit``, fewer when they are large;
    and behind which id there are more, None: there are not."""
    async with engine.database.transaction() as tx:
        messages, is_last = await outbox.page(
            tx,
            wanted,
            after_id=after_id,
            limit=limit,
            most_bytes=engine.limits.outbox_page_bytes,
        )
    return messages, None if is_last else messages[-1].outbox_id


async def find_in_outbox(engine: Engine, account_id: str, outbox_id: int) -> OutboxMessage | None:
    """The message of that id, if it is that account's."""
    async with engine.database.transaction() as tx:
        return await outbox.find(tx, account_id, outbox_id)


async def clear_outbox(engine: Engine, wanted: OutboxFilter) -> int:
    """Delete what was written until now, in batches; how many messages."""
    async with engine.database.transaction() as tx:
        last_id = await outbox.last_id(tx, wanted.account_id)
    after_id: int | None = 0
    deleted = 0
    while after_id is not None and after_id < last_id:
        async with engine.database.transaction() as tx:
            count, after_id = await outbox.clear(
                tx, wanted, after_id=after_id, last_id=last_id, limit=_CLEARED_AT_ONCE
            )
        deleted += count
    return deleted

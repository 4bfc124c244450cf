"""The outbox as people look at it: list, find, clear. Nothing here is part of AWS."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.topics import outbox
from storage.topics.outbox import OutboxFilter, OutboxMessage

if TYPE_CHECKING:
    from gateway.operations.engine import Engine

_CLEARED_AT_ONCE = 2_000


class Listing(NamedTuple):
    """Messages in order of writing. ``next_id``: there are more behind it; None: there are not."""

    messages: list[OutboxMessage]
    next_id: int | None


async def list_outbox(
    engine: Engine, wanted: OutboxFilter, *, after_id: int, limit: int
) -> Listing:
    """Messages behind ``after_id``, up to ``limit``; fewer when they are large."""
    async with engine.database.transaction() as tx:
        messages, is_last = await outbox.page(
            tx,
            wanted,
            after_id=after_id,
            limit=limit,
            most_bytes=engine.limits.outbox_page_bytes,
        )
    return Listing(messages, None if is_last else messages[-1].outbox_id)


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
            batch = await outbox.clear(
                tx, wanted, after_id=after_id, last_id=last_id, limit=_CLEARED_AT_ONCE
            )
        deleted += batch.deleted
        after_id = batch.last_id
    return deleted

"""Resets of accounts, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuegate.gateway.operations.runtime import clock_moves
from queuegate.storage import account_reset

if TYPE_CHECKING:
    from queuegate.gateway.operations.runtime.engine import Engine


async def reset(engine: Engine, account_id: str | None) -> None:
    """Delete everything of an account but its keys and quotas, and put its clock back; None: of all
    accounts, and all clocks."""
    async with engine.database.transaction() as tx:
        gone = await account_reset.reset(tx, account_id)
    for queue_id in gone.queue_ids:
        engine.wakeups.queue_changed(queue_id)
        # Parked receives end now, not at their deadlines.
        engine.wakeups.arrived(queue_id, 1 << 30)
    for topic_id in gone.topic_ids:
        engine.wakeups.topic_changed(topic_id)
    moved = [account_id] if account_id is not None else [*engine.clock.accounts, None]
    for one in moved:
        if one in engine.clock.accounts or (one is None and engine.clock.now() is not None):
            back = clock_moves.Move(one, ahead_seconds=0, may_go_back=True)
            await clock_moves.move(engine, back)

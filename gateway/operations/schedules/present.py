"""The present that schedules count from: the database's, not that of a host."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from queuegate.storage.schedules import schedules

if TYPE_CHECKING:
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.database import Transaction


async def present_second(engine: Engine, tx: Transaction, account_id: str) -> datetime:
    """The present of an account, to a second: what counts from it then has no fractions of
    seconds."""
    now = engine.clock.of(account_id).now()
    return (await schedules.present(tx, now)).replace(microsecond=0)

"""The present that schedules count from: the database's, not that of a host."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from storage import schedules

if TYPE_CHECKING:
    from gateway.operations.engine import Engine
    from storage.database import Transaction


async def present_second(engine: Engine, tx: Transaction) -> datetime:
    """The present, to a second: what counts from it then has no fractions of seconds."""
    return (await schedules.present(tx, engine.clock.now())).replace(microsecond=0)

"""The planner's settings for statements that run now and then on tables of any size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.queries import load

if TYPE_CHECKING:
    from storage.database import Transaction

_PROBE_BY_KEY = load("planning")["probe_by_key"].text


async def probe_by_key(tx: Transaction) -> None:
    """Until the end of the transaction plans go by index, whatever the statistics say."""
    await tx.execute(_PROBE_BY_KEY)

"""The planner's settings: those of lanes, and for statements that run now and then on tables of any
size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

RECEIVE_PLANNER = {
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "plan_cache_mode": "force_generic_plan",
}
"""Pins the plans of statements that probe by key: prepared on an empty table and run on a full one,
a planner left to itself takes a sequential scan and keeps it (tests/storage/test_queries.py)."""

RELAXED_PLANNER = {**RECEIVE_PLANNER, "synchronous_commit": "off"}
"""The same of commits that do not wait for the disk: a crash of the database may undo the last."""

SEND_PLANNER = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off"}
"""The same of sends: they join what they were given with what they inserted, by the hash join."""

_PROBE_BY_KEY = load("planning")["probe_by_key"].text


async def probe_by_key(tx: Transaction) -> None:
    """Until the end of the transaction plans go by index, whatever the statistics say."""
    await tx.execute(_PROBE_BY_KEY)

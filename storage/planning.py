"""Planner settings of lanes, and of occasional statements on tables of any size."""

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
"""Pins the plans of statements that probe by key: prepared on an empty table, the planner would
choose a sequential scan and keep it (tests/storage/test_queries.py)."""

RELAXED_PLANNER = {**RECEIVE_PLANNER, "synchronous_commit": "off"}
"""As RECEIVE_PLANNER, with commits that do not wait for the disk: a database crash may undo the
last."""

SEND_PLANNER = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off"}
"""Planner settings of sends, which join their input with the inserted rows by hash join."""

_PROBE_BY_KEY = load("planning")["probe_by_key"].text


async def probe_by_key(tx: Transaction) -> None:
    """Force index plans until the transaction ends, regardless of statistics."""
    await tx.execute(_PROBE_BY_KEY)

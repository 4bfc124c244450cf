"""Saved states of accounts: copies of all rows, in the database of the account itself."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from queuegate.storage.account_reset import ResetObjects, notify_changed
from queuegate.storage.notifications import Notice, notify
from queuegate.storage.queries import load
from queuegate.storage.storage_errors import Kind, Rejected

if TYPE_CHECKING:
    from collections.abc import Mapping

    from queuegate.storage.database import Transaction


_SQL = load("account_states")

SEED = ".seed"
"""The state that a seed file has made: a reset goes back to it. No client can name it."""


class StateRefused(Rejected, kind=Kind.BUSY):
    """A state that cannot be saved or loaded; the text says why and what to do."""


class StateUnknown(StateRefused, kind=Kind.ABSENT):
    """No state has the name; the text lists those that exist."""


class SavedState(NamedTuple):
    """A saved state of an account."""

    name: str
    saved_at: datetime
    """By the account's clock."""
    counts: Mapping[str, int]
    """Rows by table; tables without rows are absent."""

    @classmethod
    def of(cls, row: Any) -> SavedState:
        """Return the state of a row."""
        return cls(row["state_name"], row["saved_at"], json.loads(row["counts"]))


async def save(
    tx: Transaction, now: datetime | None, account_id: str, name: str, *, most: int
) -> SavedState:
    """Save the account under this name, in place of an earlier state of the name. Clients are not
    interrupted. Raises StateRefused if the account has ``most`` other states."""
    state_id: int = await _SQL["take_name"].value(tx, now, account_id, name)
    if len(await list_states(tx, account_id)) > most:
        raise StateRefused(f"Account {account_id} has {most} states already: delete one of them.")
    await _SQL["clear_state"].run(tx, state_id)
    return await _SQL["save_state"].only(tx, SavedState.of, state_id, account_id)


async def hold_tables(tx: Transaction, patience_ms: int) -> None:
    """Lock the tables of states against all writers until the transaction ends, before a load.
    Raises Unavailable if clients hold locks longer."""
    await _SQL["hold_tables"].run(tx, f"{patience_ms}ms")


async def load_state(
    tx: Transaction, now: datetime | None, account_id: str, name: str
) -> tuple[SavedState, ResetObjects]:
    """Replace everything that a reset deletes by the saved state. Return the state, and what was
    there before or is there now. The caller holds the tables (``hold_tables``).

    Times move with the account's clock: what had 20 s left when it was saved has 20 s left again.
    Raises StateUnknown and StateRefused.
    """
    held = await _SQL["hold_state"].row(tx, now, account_id, name)
    if held is None:
        raise await _unknown(tx, account_id, name)
    if not held["is_current"]:
        raise StateRefused(
            f"The state {name} was saved with other tables, before an upgrade or a migration: it "
            "cannot be loaded. Delete it and save a new one."
        )
    objects = await _SQL["objects"].rows(tx, account_id)
    await _SQL["load_state"].run(tx, held["state_id"], account_id, held["age"])
    objects += await _SQL["objects"].rows(tx, account_id)
    found: dict[str, set[int]] = {"queue": set(), "topic": set(), "log": set()}
    patterns = set()
    for kind, object_id, region, is_pattern in objects:
        found[kind].add(object_id)
        if is_pattern:
            patterns.add((account_id, region))
    changed = ResetObjects(sorted(found["queue"]), sorted(found["topic"]))
    await notify_changed(tx, changed, patterns, found["log"])
    await notify(tx, Notice.DELIVERIES_WRITTEN)
    await notify(tx, Notice.SCHEDULES_CHANGED)
    return SavedState.of(held), changed


async def list_states(tx: Transaction, account_id: str) -> list[SavedState]:
    """Return the states of an account, by name."""
    return await _SQL["list_states"].all(tx, SavedState.of, account_id)


async def seeded_accounts(tx: Transaction, account_id: str | None) -> list[str]:
    """Return the account if a seed file has made a state of it; None: all such accounts."""
    return await _SQL["list_accounts"].all(tx, lambda row: row["account_id"], account_id, SEED)


async def delete(tx: Transaction, account_id: str, name: str) -> None:
    """Delete a state. Raises StateUnknown."""
    if await _SQL["delete_state"].value(tx, account_id, name) is None:
        raise await _unknown(tx, account_id, name)


async def _unknown(tx: Transaction, account_id: str, name: str) -> StateUnknown:
    known = ", ".join(state.name for state in await list_states(tx, account_id)) or "none"
    return StateUnknown(f"Account {account_id} has no state {name}. Its states: {known}.")

"""Resets and saved states of accounts, for tests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from queuegate.gateway.operations.runtime import clock_moves
from queuegate.storage import account_events, account_reset, account_states
from queuegate.storage.storage_errors import Away, Unavailable

if TYPE_CHECKING:
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.account_reset import ResetObjects
    from queuegate.storage.account_states import SavedState
    from queuegate.storage.database import Transaction

_T = TypeVar("_T")

# A load locks tables that clients write to. Attempts longer than 1 s, the deadlock timeout of
# PostgreSQL, interrupt a vacuum.
_PATIENCE_MS = (100, 200, 400, 800, 1_600, 3_000, 3_000)


async def reset(engine: Engine, account_id: str | None) -> None:
    """Delete everything of an account but its keys, quotas and saved states, and load what a seed
    file made of it, in one transaction. Then put its clock back. None: all accounts, and all
    clocks. Raises Unavailable if clients of a seeded account held locks for 9 s."""
    now = None if account_id is None else engine.clock.now()

    async def attempt(tx: Transaction, patience_ms: int) -> list[ResetObjects]:
        seeded = await account_states.seeded_accounts(tx, account_id)
        if seeded:
            await account_states.hold_tables(tx, patience_ms)
        changed = [await account_reset.reset(tx, account_id)]
        await account_events.stop(tx, account_id)
        for one in seeded:
            _, loaded = await account_states.load_state(tx, now, one, account_states.SEED)
            changed.append(loaded)
        return changed

    for changed in await _patiently(engine, attempt):
        _forget(engine, changed)
    moved = [account_id] if account_id is not None else [*engine.clock.accounts, None]
    for one in moved:
        if one in engine.clock.accounts or (one is None and engine.clock.is_moved):
            back = clock_moves.Move(one, ahead_seconds=0, may_go_back=True)
            await clock_moves.move(engine, back)


async def _patiently(engine: Engine, attempt: Callable[[Transaction, int], Awaitable[_T]]) -> _T:
    """Return what a transaction returns that waits for locks up to so many milliseconds. Raises
    Unavailable if clients held locks for 9 s."""
    for patience_ms in _PATIENCE_MS:
        try:
            async with engine.database.transaction() as tx:
                return await attempt(tx, patience_ms)
        except Away:
            raise
        except Unavailable:
            if patience_ms == _PATIENCE_MS[-1]:
                raise
            await asyncio.sleep(random.uniform(0, 0.05))
    raise AssertionError


def _forget(engine: Engine, changed: ResetObjects) -> None:
    """Drop caches of this process before the notification arrives, and wake parked receives."""
    for queue_id in changed.queue_ids:
        engine.wakeups.queue_changed(queue_id)
        # Parked receives look now, not at their deadlines.
        engine.wakeups.arrived(queue_id, 1 << 30)
    for topic_id in changed.topic_ids:
        engine.wakeups.topic_changed(topic_id)


async def save(engine: Engine, account_id: str, name: str) -> SavedState:
    """Save the account with its messages. Raises StateRefused for too many states."""
    engine.check_room()
    now = engine.clock.of(account_id).now()
    most = engine.limits.states_of_account
    async with engine.database.transaction() as tx:
        return await account_states.save(tx, now, account_id, name, most=most)


async def load(engine: Engine, account_id: str, name: str) -> SavedState:
    """Replace the account by a saved state in one transaction, and wake its receives. Raises
    StateUnknown and StateRefused; Unavailable if clients held locks for 9 s."""
    engine.check_room()

    async def attempt(tx: Transaction, patience_ms: int) -> tuple[SavedState, ResetObjects]:
        await account_states.hold_tables(tx, patience_ms)
        now = engine.clock.of(account_id).now()
        return await account_states.load_state(tx, now, account_id, name)

    state, changed = await _patiently(engine, attempt)
    _forget(engine, changed)
    return state


async def delete_state(engine: Engine, account_id: str, name: str) -> None:
    """Delete a saved state. Raises StateUnknown."""
    async with engine.database.transaction() as tx:
        await account_states.delete(tx, account_id, name)

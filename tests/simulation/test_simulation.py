"""Some seeds in every run; more with ``make simulate SEED=n`` or ``python -m tests.simulation``."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from gateway.operations.engine import Engine
from storage.queues.message_entries import Delete, FanOut, Send
from tests.simulation.running import Failed, simulate
from tests.simulation.world import World

_GIVEN = os.environ.get("QUEUEGATE_TEST_SEED")
SEEDS = [int(_GIVEN)] if _GIVEN else [1, 2, 3, 4]
STEPS = int(os.environ.get("QUEUEGATE_TEST_STEPS") or (2_000 if _GIVEN else 200))


@pytest.mark.parametrize("seed", SEEDS)
async def test_random_clients_see_nothing_that_sqs_could_not_do(
    database_dsn: str, seed: int
) -> None:
    """200 steps, each of which asks a real database what every queue holds."""
    await simulate(database_dsn, seed, STEPS)


class Forgetful(World):
    """Gateways that acknowledge one delete in three without carrying it out."""

    async def _open_engine(self) -> Engine:
        engine = await super()._open_engine()
        submit = engine.standard.delete.submit
        count = 0

        def forget(entry: Delete) -> None:
            nonlocal count
            count += 1
            if count % 3 == 0:
                entry.handles = [(0, None, 0, 0)]
            submit(entry)

        engine.standard.delete.submit = forget  # type: ignore[method-assign]
        return engine


async def test_the_model_notices_a_delete_that_was_not_done(database_dsn: str) -> None:
    with pytest.raises(Failed, match=r"seed 1, 100 steps: Impossible"):
        await simulate(database_dsn, 1, 100, Forgetful)


class Hasty(World):
    """Gateways whose FIFO receives forget their timeout."""

    async def _open_engine(self) -> Engine:
        engine = await super()._open_engine()
        submit = engine.fifo.receive.submit

        def hurry(entry):  # type: ignore[no-untyped-def]
            entry.visibility_ms = 0
            submit(entry)

        engine.fifo.receive.submit = hurry  # type: ignore[method-assign]
        return engine


async def test_the_model_notices_a_group_that_is_not_blocked(database_dsn: str) -> None:
    with pytest.raises(Failed, match=r"Impossible"):
        await simulate(database_dsn, 1, 400, Hasty)


class Partial(World):
    """Gateways that leave out the last of several copies."""

    async def _open_engine(self) -> Engine:
        engine = await super()._open_engine()
        for lane in (engine.standard.send, engine.prioritised.send):
            lane.submit = _leaving_out(lane.submit)  # type: ignore[method-assign, assignment]
        return engine


def _leaving_out(submit: Callable[[Send | FanOut], None]) -> Callable[[Send | FanOut], None]:
    def leave_out(entry: Send | FanOut) -> None:
        if isinstance(entry, FanOut) and len(entry.messages) > 1:
            entry.messages.pop()
        submit(entry)

    return leave_out


async def test_the_model_notices_a_copy_that_is_missing(database_dsn: str) -> None:
    with pytest.raises(Failed, match=r"Impossible: \d+ did not reach"):
        await simulate(database_dsn, 2, 400, Partial)

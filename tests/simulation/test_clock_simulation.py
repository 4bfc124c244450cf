"""Some seeds of clients beside a clock that steps; more with ``make simulate``."""

from __future__ import annotations

import pytest

from tests.simulation.clock_simulation import ClockSimulation
from tests.simulation.running import simulate
from tests.simulation.test_simulation import SEEDS, STEPS


@pytest.mark.parametrize("seed", SEEDS)
async def test_steps_and_pauses_hide_nothing_and_end_no_lease(database_dsn: str, seed: int) -> None:
    """200 steps, and each lets rounds come that keep the time."""
    await simulate(database_dsn, seed, STEPS, make=ClockSimulation)

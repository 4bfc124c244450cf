"""One simulation on one database, with everything needed to see what went wrong."""

from __future__ import annotations

import logging
from typing import Final

from tests.simulation.clock_simulation import ClockSimulation
from tests.simulation.log_simulation import LogSimulation
from tests.simulation.simulation import Simulation
from tests.simulation.stepping import Stepping
from tests.simulation.world import World

SIMULATIONS: Final[dict[str, type[Stepping]]] = {
    "queues": Simulation,
    "clocks": ClockSimulation,
    "logs": LogSimulation,
}
_STEPS_SHOWN = 60


class Failed(AssertionError):
    """A simulation failed; the text has its seed and its last steps."""


async def simulate(
    dsn: str,
    seed: int,
    steps: int,
    make_world: type[World] | None = None,
    make: type[Stepping] = Simulation,
) -> Stepping:
    """Run one seed. Raises Failed."""
    logging.getLogger("queuegate").setLevel(logging.CRITICAL)
    world = (make_world or make.make_world)(dsn)
    await world.open()
    simulation = make(world, seed)
    try:
        await simulation.run(steps)
    except Exception as error:
        [of] = [name for name, kind in SIMULATIONS.items() if kind is make]
        shown = "\n".join(simulation.log[-_STEPS_SHOWN:])
        raise Failed(
            f"seed {seed}, {steps} steps: {type(error).__name__}: {error}\n{shown}\n"
            f"again: {again(of, seed, steps)}"
        ) from error
    finally:
        logging.getLogger("queuegate").setLevel(logging.NOTSET)
        await world.close()
    return simulation


def again(of: str, seed: int, steps: int) -> str:
    """The command that does the same."""
    return f"python -m tests.simulation --seed {seed} --steps {steps} --of {of}"

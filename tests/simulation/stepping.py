"""Steps of a simulation, drawn from a seed and noted."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import ClassVar

from tests.simulation.world import World


class Stepping:
    """One run. The same seed makes the same steps."""

    steps: ClassVar[Sequence[tuple[int, str]]]
    """How often each, and its name: it is the method of that name behind a line."""
    make_world: ClassVar[type[World]] = World

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.seed = seed
        self.random = random.Random(seed)
        self.log: list[str] = []
        self.sent = 0

    async def run(self, steps: int) -> None:
        """Raises Impossible, or whatever else should not happen."""
        raise NotImplementedError

    def choose_step(self, number: int) -> str:
        """The name of that one. It does not hang on what was drawn before, which follows what
        crashes left."""
        self.random.seed(f"{self.seed} {number}")
        [(_, name)] = self.random.choices(self.steps, [weight for weight, _ in self.steps])
        return name

    def note(self, text: str) -> None:
        """Note the result of the step."""
        self.log[-1] += f": {text}"

    def new_body(self) -> str:
        """Of a message that there was not before."""
        self.sent += 1
        return str(self.sent)

    def turns(self) -> int:
        """Draw how many turns of the event loop a call gets before a crash."""
        return self.random.choice((0, 1, 2, 3, 5, 8, 13, 40, 100))

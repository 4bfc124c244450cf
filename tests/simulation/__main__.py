"""``python -m tests.simulation --seed 7 --steps 5000``: one seed, or new ones until stopped."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
from collections.abc import Iterator

from tests import databases
from tests.databases import Databases
from tests.simulation.running import SIMULATIONS, Failed, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", default="", help="the run to repeat; without it, random ones")
    parser.add_argument("--steps", type=int, default=2_000, help="steps of a run")
    parser.add_argument("--runs", type=int, default=0, help="random runs; 0: until stopped")
    parser.add_argument("--of", choices=SIMULATIONS, help="queues or logs; without it, in turn")
    arguments = parser.parse_args()
    try:
        return _run(databases.of_this_process(), arguments)
    except KeyboardInterrupt:
        return 130
    finally:
        databases.close()


def _seeds(arguments: argparse.Namespace) -> Iterator[int]:
    if arguments.seed:
        return iter([int(arguments.seed)])
    runs = itertools.count() if arguments.runs == 0 else range(arguments.runs)
    return (random.randrange(1 << 31) for _ in runs)


def _run(databases: Databases, arguments: argparse.Namespace) -> int:
    chosen = [arguments.of] if arguments.of else [*SIMULATIONS]
    for seed, of in ((seed, of) for seed in _seeds(arguments) for of in chosen):
        databases.empty()
        run = simulate(databases.shared, seed, arguments.steps, make=SIMULATIONS[of])
        try:
            simulation = asyncio.run(run)
        except Failed as failure:
            print(failure, file=sys.stderr)
            return 1
        print(
            f"{of}, seed {seed}: {arguments.steps} steps, {simulation.sent} messages, all possible"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

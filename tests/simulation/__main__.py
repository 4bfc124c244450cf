"""``python -m tests.simulation --seed 1-100 --steps 10000``: one seed, a range of them, or new ones
until stopped. A line for each run; at the end those that failed, and how to repeat them."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import time
from collections.abc import Iterable, Sequence

from tests import databases
from tests.databases import Databases
from tests.simulation.running import SIMULATIONS, Failed, again, simulate


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=_seeds, help="7, or 1-100; without it, random ones")
    parser.add_argument("--steps", type=int, default=2_000, help="steps of a run")
    parser.add_argument("--runs", type=int, default=0, help="random seeds; 0: until stopped")
    parser.add_argument("--of", choices=SIMULATIONS, help="which of them; without it, in turn")
    arguments = parser.parse_args(given)
    chosen = [arguments.of] if arguments.of else [*SIMULATIONS]
    seeds = arguments.seed or _random_seeds(arguments.runs)
    try:
        return _run(databases.of_this_process(), seeds, arguments.steps, chosen)
    except KeyboardInterrupt:
        return 130
    finally:
        databases.close()


def _seeds(text: str) -> Sequence[int]:
    first, _, last = text.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if not seeds:
        raise argparse.ArgumentTypeError(f"there is no seed in {text}")
    return seeds


def _random_seeds(runs: int) -> Iterable[int]:
    counted = itertools.count() if runs == 0 else range(runs)
    return (random.randrange(1 << 31) for _ in counted)


def _run(databases: Databases, seeds: Iterable[int], steps: int, chosen: list[str]) -> int:
    """1 when one of them failed; the others run all the same."""
    of_all = len(seeds) * len(chosen) if isinstance(seeds, Sequence) else None
    failed = []
    began = time.monotonic()
    number = 0
    for number, (seed, of) in enumerate(((seed, of) for seed in seeds for of in chosen), 1):
        databases.empty()
        started = time.monotonic()
        try:
            run = simulate(databases.shared, seed, steps, make=SIMULATIONS[of])
            came = f"{asyncio.run(run).sent} messages, all possible"
        except Failed as failure:
            print(failure, file=sys.stderr, flush=True)
            failed.append(again(of, seed, steps))
            came = "FAILED"
        place = f" ({number} of {of_all})" if of_all and of_all > 1 else ""
        took = time.monotonic() - started
        print(f"{of}, seed {seed}{place}: {steps} steps in {took:.0f} s, {came}", flush=True)
    minutes = (time.monotonic() - began) / 60
    print(f"{number - len(failed)} of {number} runs held, in {minutes:.1f} minutes")
    print(*[f"again: {command}" for command in failed], sep="\n", end="\n" if failed else "")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""``python -m tests.simulation --seed 7 --steps 5000``: one seed, or new ones until stopped."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
from collections.abc import Iterator

import asyncpg

from storage.embedded import EmbeddedPostgres
from storage.migrate import migrate
from tests.simulation.running import Failed, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", default="", help="the run to repeat; without it, random ones")
    parser.add_argument("--steps", type=int, default=2_000, help="steps of a run")
    parser.add_argument("--runs", type=int, default=0, help="random runs; 0: until stopped")
    arguments = parser.parse_args()
    server = EmbeddedPostgres(ephemeral=True)
    server.start()
    server.wait_ready()
    try:
        return asyncio.run(_run(server.dsn, _seeds(arguments), arguments.steps))
    except KeyboardInterrupt:
        return 130
    finally:
        server.stop()


def _seeds(arguments: argparse.Namespace) -> Iterator[int]:
    if arguments.seed:
        return iter([int(arguments.seed)])
    runs = itertools.count() if arguments.runs == 0 else range(arguments.runs)
    return (random.randrange(1 << 31) for _ in runs)


async def _run(dsn: str, seeds: Iterator[int], steps: int) -> int:
    for number, seed in enumerate(seeds):
        name = f"run_{number}"
        connection = await asyncpg.connect(dsn)
        await connection.execute(f"CREATE DATABASE {name}")
        await connection.close()
        place = dsn.replace("/postgres?", f"/{name}?")
        connection = await asyncpg.connect(place)
        await migrate(connection)
        await connection.close()
        try:
            simulation = await simulate(place, seed, steps)
        except Failed as failure:
            print(failure, file=sys.stderr)
            return 1
        print(f"seed {seed}: {steps} steps, {simulation.sent} messages: nothing impossible")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Draw requests and values anew for some minutes: python -m tests.fuzz [--minutes 10] [--seed N].

Each round sends requests whole and in pieces and compares the answers (tests/fuzz/differential.py),
sends requests at the limits of every operation, none of which may hold the event loop for more than
20 ms (tests/fuzz/loop_turns.py), and runs every property test, with a seed of its own, which it
prints. The first failure ends it; what failed with examples is then in tests/fuzz/found, and
`make test` repeats it.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time

from tests.fuzz.drawing import FOUND


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="begin no round after so many")
    parser.add_argument("--seed", type=int, help="one round with this seed")
    parser.add_argument("tests", nargs="*", default=["tests"], help="folders or files of tests")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return _round(arguments.seed, arguments.tests)
    deadline = time.monotonic() + arguments.minutes * 60
    rounds = 0
    while time.monotonic() < deadline:
        if failed := _round(random.randrange(1 << 31), arguments.tests):
            return failed
        rounds += 1
    print(f"make fuzz: {rounds} rounds found nothing")
    return 0


def _round(seed: int, tests: list[str]) -> int:
    print(f"make fuzz: seed {seed}", flush=True)
    if tests == ["tests"]:
        for drawn in ("tests.fuzz.differential", "tests.fuzz.loop_turns"):
            command = [sys.executable, "-m", drawn, "--seed", str(seed)]
            if failed := subprocess.run(command, check=False).returncode:
                return failed
    drawing = ["-m", "hypothesis", "--hypothesis-profile", "fuzz", "--draw-seed", str(seed)]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "--timeout", "1200", *drawing]
    failed = subprocess.run([*command, *tests], check=False).returncode
    if failed:
        print(
            f"make fuzz: failed; what was found is in {FOUND}: commit it with the mend.\n"
            f'To repeat the whole round: make fuzz ARGS="--seed {seed}"',
            file=sys.stderr,
        )
    return failed


if __name__ == "__main__":
    sys.exit(main())

"""`make mutate`: change the product in one place after another, in a copy, and see tests fail.

Prints mutations that no test notices. The exit code is 1 when there is one, when the text of a
mutation is not in the product once, or when its tests do not pass without it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutations.catalogue import ROOT, Lost, Mutation, mutations, place_of, product

_SPARK = ROOT / ".venvs/spark43/bin/python"
_FAILED = 1
_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".venvs", "__pycache__", ".*_cache", "build")


class Copy:
    """A copy of the tree, in which one mutation at a time is made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        shutil.copytree(ROOT, folder, ignore=_LEFT_OUT)
        self._texts = product(folder)
        self._changes = 0

    def outcome(self, mutation: Mutation) -> str:
        """Nothing where a test fails under the mutation; otherwise what is wrong."""
        file = place_of(mutation, self._texts)
        text = self._texts[file]
        self._write(file, text.replace(mutation.find, mutation.replace))
        try:
            code, said = self.run(mutation.tests)
        finally:
            self._write(file, text)
        if code == _FAILED:
            return ""
        return "SURVIVED" if not code else f"its tests did not run (exit code {code}):\n{said}"

    def run(self, tests: Sequence[str]) -> tuple[int, str]:
        """Run tests until one fails. Returns pytest's exit code and the end of what it said."""
        spark = [one for one in tests if one.startswith("tests/spark/")]
        others = [one for one in tests if one not in spark]
        code, said = self._pytest(Path(sys.executable), others) if others else (0, "")
        if code or not spark:
            return code, said
        return self._pytest(_SPARK, ["-c", "tests/spark/pytest.ini", *spark])

    def _pytest(self, python: Path, arguments: Sequence[str]) -> tuple[int, str]:
        environment = {
            **os.environ,
            "PYTHONPATH": str(self._folder),
            "QUEUEGATE_COMMAND": str(ROOT / ".venv/bin/queuegate"),
        }
        command = [str(python), "-m", "pytest", "-xq", "-p", "no:cacheprovider", *arguments]
        # Each test has a timeout of its own.
        done = subprocess.run(
            command, cwd=self._folder, env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, (done.stdout + done.stderr)[-2000:]

    def _write(self, file: Path, text: str) -> None:
        self._changes += 1
        (self._folder / file).write_text(text)
        # Compiled files are known by seconds and size: a second change may have both.
        at = time.time() + self._changes
        os.utime(self._folder / file, (at, at))


def chosen(names: Sequence[str]) -> list[Mutation]:
    """The mutations whose names contain one of these; without names all."""
    return [one for one in mutations() if not names or any(name in one.name for name in names)]


def left_of(wanted: Sequence[Mutation], place: Path, jobs: int) -> list[str] | None:
    """Make the mutations in so many copies below a directory. Returns the names of those that are
    not noticed; None where their tests do not pass without any."""
    copies: SimpleQueue[Copy] = SimpleQueue()
    for number in range(max(1, min(jobs, len(wanted)))):
        copies.put(Copy(place / str(number)))
    first = copies.get()
    code, said = first.run(sorted({test for one in wanted for test in one.tests}))
    copies.put(first)
    if code:
        print(f"The tests do not pass without a mutation (exit code {code}):\n{said}")
        return None

    def judged(mutation: Mutation) -> str:
        copy = copies.get()
        began = time.monotonic()
        try:
            wrong = copy.outcome(mutation)
        finally:
            copies.put(copy)
        seconds = time.monotonic() - began
        print(f"{seconds:6.1f} s  {mutation.name}: {wrong or 'noticed'}", flush=True)
        return wrong

    with ThreadPoolExecutor(copies.qsize()) as threads:
        outcomes = zip(wanted, threads.map(judged, wanted), strict=True)
        return [mutation.name for mutation, wrong in outcomes if wrong]


def main() -> int:
    """Make the mutations that were asked for. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="make mutate", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names; all mutations by default")
    parser.add_argument("--jobs", type=int, default=2, help="copies that are used side by side")
    asked = parser.parse_args()
    wanted = chosen(asked.names)
    texts = product()
    lost = [told for one in wanted if (told := _lost(texts, one))]
    if lost or not wanted:
        print("\n".join(lost) or "There is no such mutation.")
        return 1
    with tempfile.TemporaryDirectory(prefix="mutate-") as place:
        # PostgreSQL runs as another user where root runs the tests.
        Path(place).chmod(0o755)
        left = left_of(wanted, Path(place), asked.jobs)
    if left is None:
        return 1
    print(f"{len(wanted) - len(left)} of {len(wanted)} mutations are noticed.")
    if left:
        print("Not noticed: " + ", ".join(left))
    return 1 if left else 0


def _lost(texts: Mapping[Path, str], mutation: Mutation) -> str:
    try:
        place_of(mutation, texts)
    except Lost as told:
        return str(told)
    return ""


if __name__ == "__main__":
    sys.exit(main())

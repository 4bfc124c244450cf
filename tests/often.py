"""Run the tests again and again, and print which of them fail, how often, and in which order."""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic

_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+\.py(?:::(?:.+?))?)(?: - .*)?$", re.MULTILINE)
_SEED = re.compile(r"^order of tests: --order-seed (\d+)", re.MULTILINE)
_SUMMARY = re.compile(r"^=+ (.*\b(?:passed|failed|errors?)\b.* in [\d.]+s.*?) =+$", re.MULTILINE)
_NO_TEST = "no test: see the log"


def outcome(log: str, exit_code: int) -> tuple[list[str], str, str]:
    """(what failed, a seed of the order, pytest's last line) of a run."""
    failed = sorted({*_FAILED.findall(log)})
    if exit_code and not failed:
        failed = [_NO_TEST]
    seeds, summaries = _SEED.findall(log), _SUMMARY.findall(log)
    return failed, seeds[0] if seeds else "none", summaries[-1] if summaries else "no summary"


@contextlib.contextmanager
def _busy(count: int) -> Iterator[None]:
    """So many processes that do nothing but compute, as long as the context lasts."""
    command = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def run_often(command: Sequence[str], times: int) -> int:
    """Run the command so often; 1 when anything failed. Logs of failing runs are kept."""
    folder = Path(tempfile.mkdtemp(prefix="queuegate-often-"))
    counts: Counter[str] = Counter()
    seeds: dict[str, list[str]] = {}
    for number in range(1, times + 1):
        log = folder / f"run-{number}.log"
        began = monotonic()
        with log.open("w") as output:
            done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False)
        failed, seed, summary = outcome(log.read_text(errors="replace"), done.returncode)
        print(f"{number}/{times}  seed {seed}  {monotonic() - began:.0f} s  {summary}", flush=True)
        for one in failed:
            print(f"    {one}", flush=True)
            seeds.setdefault(one, []).append(seed)
        counts.update(failed)
        if not failed:
            log.unlink()
    if not counts:
        folder.rmdir()
        print(f"{times} runs: no failure")
        return 0
    print(f"{times} runs: {sum(counts.values())} failures; logs of failing runs: {folder}")
    for one, count in counts.most_common():
        print(f"{count:5}  {one}  (--order-seed {', '.join(seeds[one])})")
    return 1


def main() -> int:
    """Take the arguments, and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.often", description=__doc__)
    parser.add_argument("--times", type=int, default=20, help="how many runs (20)")
    parser.add_argument("--load", type=int, default=0, help="busy processes beside them (0)")
    parser.add_argument("command", nargs="+", help="what runs the tests: make test")
    given = parser.parse_args()
    with _busy(given.load):
        return run_often(given.command, given.times)


if __name__ == "__main__":
    sys.exit(main())

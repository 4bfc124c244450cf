"""``python -m tests.failover --seed 7 --messages 100000``: PostgreSQL under Patroni fails in all
ways under load, and nothing that was acknowledged is lost. The report is below build/failover."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.failover.failover_faults import ALL_FAULTS, FAULTS
from tests.failover.failover_report import report
from tests.failover.failover_run import FailoverRun, Outcome, Plan
from tests.failover.guarding import guarded
from tests.failover.patroni_cluster import PatroniCluster, missing

_REPORTS = Path("build/failover")


def main() -> int:
    """Take the arguments, and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.failover", description=__doc__)
    parser.add_argument("--seed", type=int, help="order and moments of the faults; drawn if absent")
    parser.add_argument("--messages", type=int, default=0, help="least acknowledged messages (0)")
    parser.add_argument("--rounds", type=int, default=1, help="least rounds of all faults (1)")
    parser.add_argument("--rate", type=float, default=400, help="messages a second; 0: no limit")
    parser.add_argument("--faults", default=",".join(FAULTS), help="names, separated by commas")
    parser.add_argument("--dcs", default="{}", help='changes of bootstrap.dcs: {"ttl": 30}')
    given = parser.parse_args()
    names = given.faults.split(",")
    if unknown := set(names) - ALL_FAULTS.keys():
        parser.error(f"no fault {', '.join(unknown)}; there are: {', '.join(ALL_FAULTS)}")
    if reason := missing():
        print(f"make failover: skipped: {reason}")
        return 0
    seed = random.randrange(1 << 31) if given.seed is None else given.seed
    folder = _REPORTS / f"{time.strftime('%Y%m%dT%H%M%S')}-seed-{seed}"
    folder.mkdir(parents=True)
    plan = Plan(seed, given.messages, given.rate, names, given.rounds, folder.absolute())
    scratch = Path(tempfile.mkdtemp(prefix="queuegate-failover-"))
    # PostgreSQL runs as another account if this is root.
    scratch.chmod(0o755)
    print(f"seed {seed}, report in {folder}", flush=True)
    return guarded(
        lambda: _run(plan, scratch, json.loads(given.dcs)),
        lambda: _clean(scratch, folder),
    )


def _run(plan: Plan, scratch: Path, dcs: dict[str, Any]) -> int:
    cluster = PatroniCluster(scratch, dcs)
    run = FailoverRun(plan, cluster)
    try:
        cluster.start()
        outcome = asyncio.run(run.go())
    finally:
        cluster.stop()
        (plan.folder / "outcome.json").write_text(json.dumps(asdict(run.outcome), indent=1))
        (plan.folder / "report.md").write_text(report(run.outcome))
    print(summary(outcome))
    return 1 if outcome.wrong else 0


def summary(outcome: Outcome) -> str:
    """Return the last lines of a run."""
    lines = [f"{name}: {count:,}" for name, count in outcome.acknowledged.items()]
    total = sum(outcome.acknowledged.values())
    late = sum(not fault["allowed"] for fault in outcome.faults)
    text = [
        f"{total:,} acknowledged messages ({', '.join(lines)}) in {outcome.seconds:.0f} s,",
        f"{len(outcome.faults)} faults ({late} with late answers), {outcome.unanswered:,} calls"
        " without an answer",
        *[f"WRONG: {text}" for text in outcome.wrong],
        "nothing is lost, back or out of order" if not outcome.wrong else "",
        f"again: make failover SEED={outcome.seed}",
    ]
    return "\n".join(line for line in text if line)


def _clean(scratch: Path, folder: Path) -> None:
    for log in scratch.glob("*.log"):
        shutil.copy(log, folder)
    shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())

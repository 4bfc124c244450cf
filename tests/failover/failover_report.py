"""The report of a run, as Markdown."""

from __future__ import annotations

import os
import platform
import subprocess
from collections import Counter
from typing import Any

from tests.failover.failover_run import ALLOWED_SECONDS, Outcome
from tests.failover.sdk_watch import MODES


def versions() -> str:
    """Return the versions of what is used."""
    commands = ("patroni --version", "etcd --version", "git log -1 --format=%h")
    found = [
        subprocess.run(command.split(), capture_output=True, text=True, check=False).stdout
        for command in commands
    ]
    lines = [text.splitlines()[0] for text in found if text]
    return ", ".join([*lines, f"Python {platform.python_version()}"])


def fault_table(faults: list[dict[str, Any]]) -> list[str]:
    """Return a row for each fault."""
    columns = ["Fault", "Patroni", "Plain client", "First answers", "Longest gap"]
    columns += [f"boto3 {mode}" for mode in MODES]
    rows = [columns, ["---"] * len(columns)]
    for fault in faults:
        after = [*fault["after_promotion"].items()]
        worst, best = (after[0], after[-1]) if after else (("", 0.0), ("", 0.0))
        rows.append(
            [
                fault["name"],
                f"{fault['patroni_seconds']:.1f} s" if fault["promoted"] else "the leader stayed",
                f"{fault['plain_client']:.1f} s" if "plain_client" in fault else "",
                f"{best[1]:.1f} to {worst[1]:.1f} s ({worst[0]})" if after else "no gap",
                f"{fault['longest_gap']:.1f} s",
                *[_seen_by(fault["sdk"][mode]) for mode in MODES],
            ]
        )
    return [f"| {' | '.join(row)} |" for row in rows]


def _seen_by(calls: list[dict[str, Any]]) -> str:
    """Return the errors that callers got, and the longest call."""
    errors = Counter(f"{one['operation']}: {one['error']}" for one in calls if one["error"])
    longest = max((one["seconds"] for one in calls), default=0.0)
    text = ", ".join(f"{count} {error}" for error, count in errors.items()) or "no error"
    return f"{text}; {longest:.1f} s"


def report(outcome: Outcome) -> str:
    """Return the whole report."""
    total = sum(outcome.acknowledged.values())
    late = [one["name"] for one in outcome.faults if not one["allowed"]]
    counts = [
        f"| {name} | {count:,} | {outcome.deleted[name]:,} | {outcome.repeated.get(name, 0):,} |"
        for name, count in outcome.acknowledged.items()
    ]
    lines = [
        f"# Failover, seed {outcome.seed}",
        "",
        f"{versions()}, {os.cpu_count()} CPUs; load average {outcome.load_average:.1f}.",
        "",
        f"{total:,} acknowledged messages in {outcome.seconds:.0f} s, {len(outcome.faults)} faults,"
        f" {outcome.unanswered:,} calls without an answer."
        f" Calls of boto3: {outcome.sdk_calls}.",
        "",
        "| Load | Acknowledged | Deletes acknowledged | Received again |",
        "| --- | --- | --- | --- |",
        *counts,
        "",
        *fault_table(outcome.faults),
        "",
        f"Later than {ALLOWED_SECONDS:g} s after the promotion: {', '.join(late) or 'none'}.",
        "",
        "## Wrong",
        "",
        *([f"- {text}" for text in outcome.wrong] or ["Nothing is lost, back or out of order."]),
    ]
    return "\n".join(lines) + "\n"

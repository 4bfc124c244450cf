"""The report: a matrix of cases and clients, for people (.md) and for programs (.json)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from conformance.cases import CASES
from conformance.running import Run
from queuegate.protocol.service_detection import SERVICES

FOLDER = Path(__file__).resolve().parent / "report"


def _cell(run: Run, case: str) -> str:
    if run.skipped:
        return "skipped"
    outcome = run.outcomes.get(case)
    if outcome is None:
        return ""
    return "**failed**" if outcome.fault else "ok"


def markdown(runs: list[Run]) -> str:
    """The report as a page."""
    heads = [f"{run.name}" for run in runs]
    lines = [
        "# Official clients against Queuegate",
        "",
        "| client | version | wire of SQS | cases | "
        + " | ".join(f"actions of {name.upper()}" for name in SERVICES)
        + " |",
        "| --- " * (4 + len(SERVICES)) + "|",
    ]
    for run in runs:
        passed = len(run.outcomes) - len(run.failed)
        cases = f"skipped: {run.skipped}" if run.skipped else f"{passed} of {len(run.outcomes)}"
        actions = " | ".join(
            f"{len(run.actions.get(name, ()))} of {len(service.actions)}"
            for name, service in SERVICES.items()
        )
        lines.append(f"| {run.name} | {run.version} | {run.protocol} | {cases} | {actions} |")
    lines += ["", "| case | " + " | ".join(heads) + " |", "| --- " * (len(runs) + 1) + "|"]
    for case in CASES:
        cells = [_cell(run, case.name) for run in runs]
        if any(cells):
            lines.append(f"| {case.name} | " + " | ".join(cells) + " |")
    faults = [
        f"- {run.name}, {name}: {outcome.fault}"
        for run in runs
        for name, outcome in run.failed.items()
    ]
    if faults:
        lines += ["", "## Failures", "", *faults]
    lines += ["", "An empty cell: the client is slow and does not run that case.", ""]
    return "\n".join(lines)


def content(runs: list[Run]) -> dict[str, Any]:
    """The report as data."""
    return {
        "clients": [
            {
                "name": run.name,
                "version": run.version,
                "protocol": run.protocol,
                "skipped": run.skipped or None,
                "actions": {name: sorted(called) for name, called in run.actions.items()},
                "cases": {
                    name: {"fault": outcome.fault or None, "seconds": round(outcome.seconds, 3)}
                    for name, outcome in run.outcomes.items()
                },
            }
            for run in runs
        ]
    }


def write(runs: list[Run]) -> Path:
    """Write both files; the path of the page."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "clients.json").write_text(json.dumps(content(runs), indent=1) + "\n", "utf-8")
    page = FOLDER / "clients.md"
    page.write_text(markdown(runs), "utf-8")
    return page

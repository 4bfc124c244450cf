"""`python -m tests.soak`: mixed load over all faces for an hour, and whether anything rises.

Writes report.md, a chart of each group of series as SVG, and samples.json to a folder. Exits with 1
if a series rises, an answer was an error, or something sent was not received. Memory and sizes rise
in the first minutes of any run: they are judged from 15 minutes on, the others from 5 on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

from tests.bench.servers import ROOT, Server, Workshop, postgres_version
from tests.bench.stage import Figures, Options, Stage, elapse, say
from tests.soak.drawing import chart
from tests.soak.loads import Loads
from tests.soak.sampling import Sampler
from tests.soak.series import Recording

_JUDGED_MINUTES = 5.0
_LONG_MINUTES = 15.0
_MOST_ERRORS = 20


async def soak(
    server: Server, minutes: float, per_second: float, sample_seconds: float
) -> Recording:
    """Load a gateway for so long, and sample it."""
    recording = Recording(is_judged=minutes >= _JUDGED_MINUTES)
    stage = Stage(server, Options(), Figures())
    loads = Loads(stage, recording, per_second)
    sampler = Sampler(server, recording, is_long=minutes >= _LONG_MINUTES)
    await loads.start()
    began = perf_counter()
    count = max(6, round(minutes * 60 / sample_seconds))
    for number in range(1, count + 1):
        await elapse(max(began + number * minutes * 60 / count - perf_counter(), 0.1))
        await sampler.sample(perf_counter() - began)
        if number % 12 == 0:
            errors = len(recording.errors)
            say(f"  {recording.ends_at / 60:.1f} of {minutes:g} minutes, {errors} errors")
    await loads.end()
    return recording


def report(recording: Recording, head: str) -> str:
    """Return the report as Markdown."""
    rising = recording.rising()
    finished = ", ".join(f"{name} {count:,}" for name, count in recording.counts.items())
    verdict = f"{len(rising)} series rise" if rising else "Flat"
    lines = [
        "# Soak",
        "",
        head,
        "",
        f"**{verdict}; {len(recording.errors)} errors.** Finished: {finished}.",
        "",
        "A series is flat if the median of its last third is at most `factor` times that of the "
        "second third, and `slack` more.",
        "",
    ]
    lines += [f"- {error}" for error in recording.errors[:_MOST_ERRORS]]
    for name, series in recording.charts():
        lines += [
            "",
            f"## {name}",
            "",
            f"![{name}]({name}.svg)",
            "",
            "| Series | second third | last third | allowed | |",
            "| --- | --- | --- | --- | --- |",
        ]
        for one in series:
            before, after = (one.third(number, recording.ends_at) for number in (1, 2))
            is_flat = one.is_flat(recording.ends_at)
            word = {None: "not judged", True: "flat", False: "**rises**"}[is_flat]
            allowed = ""
            if one.tolerance is not None:
                allowed = f"x {one.tolerance.factor:g} + {one.tolerance.slack:g}"
            shown = [
                ("" if value is None else f"{value:,.4g} {one.unit}") for value in (before, after)
            ]
            lines.append(f"| {one.name} | {shown[0]} | {shown[1]} | {allowed} | {word} |")
    return "\n".join([*lines, ""])


def write(recording: Recording, folder: Path, head: str) -> None:
    """Write the report, its charts and the samples."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.md").write_text(report(recording, head), encoding="utf-8")
    samples: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for name, series in recording.charts():
        picture = chart(name, series, recording.ends_at)
        (folder / f"{name}.svg").write_text(picture, encoding="utf-8")
        samples[name] = {one.name: one.points for one in series}
    (folder / "samples.json").write_text(json.dumps(samples), encoding="utf-8")


def main() -> int:
    """Soak, report, and judge."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    add = parser.add_argument
    add("--minutes", type=float, default=60.0, help="length of the run (60)")
    add("--rate", type=float, default=10.0, help="cycles a second of each load (10)")
    add("--every", type=float, default=5.0, help="seconds between samples (5)")
    add("--folder", type=Path, default=ROOT / "build/soak", help="for the report (build/soak)")
    options = parser.parse_args()
    workshop = Workshop(None)
    try:
        server = workshop.start_queuegate(workshop.new_data_directory())
        began = datetime.now(UTC)
        recording = asyncio.run(soak(server, options.minutes, options.rate, options.every))
        load = " ".join(f"{one:.1f}" for one in os.getloadavg())
        head = (
            f"{options.minutes:g} minutes from {began:%Y-%m-%d %H:%M} UTC, {options.rate:g} cycles "
            f"a second of each load, {postgres_version(server)}, {os.cpu_count()} cores, "
            f"load {load}."
        )
    finally:
        workshop.close()
    write(recording, options.folder, head)
    rising, errors = recording.rising(), recording.errors
    print(f"{options.folder}/report.md: {len(rising)} series rise, {len(errors)} errors")
    for line in [*errors[:_MOST_ERRORS], *[f"{one.chart}: {one.name} rises" for one in rising]]:
        print(f"  {line}")
    return 1 if rising or errors else 0


if __name__ == "__main__":
    sys.exit(main())

"""Mixed load over all faces: every answer is a success, and everything sent is finished."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.bench.servers import ROOT
from tests.faults.load import minutes
from tests.soak.series import LATENCY_P50, Recording

CHARTS = {"memory", "table-size", "index-size", "dead-rows", "connections", "flush", "loop-lag"}
LOADS = {
    *("sqs", "sqs-query", "fifo", "rest", "simple", "channels", "text", "text-groups"),
    *("sns", "log", "push"),
}


@pytest.mark.timeout(600)
def test_mixed_load_over_all_faces(tmp_path: Path) -> None:
    """Takes half a minute here, and five with `make soak-faults`, which are judged, too."""
    length = minutes(0.4, 5)
    options = ["--minutes", str(length), "--every", "3", "--rate", "3", "--folder", str(tmp_path)]
    command = [sys.executable, "-m", "tests.soak", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    samples = json.loads((tmp_path / "samples.json").read_text())
    assert samples.keys() >= CHARTS | {f"latency-{face}" for face in LOADS}
    assert samples["finished"].keys() >= LOADS | {"web-hook", "schedule"}
    for name, series in samples.items():
        picture = ElementTree.parse(tmp_path / f"{name}.svg")
        assert len(picture.findall("{http://www.w3.org/2000/svg}polyline")) == min(len(series), 16)


@pytest.mark.parametrize(("last", "rising"), [(10.0, []), (17.0, []), (19.0, ["delete"])])
def test_a_series_rises_past_its_tolerance(last: float, rising: list[str]) -> None:
    """The second third is 10 ms, of which 1.5 times and 3 ms more are flat."""
    recording = Recording(is_judged=True)
    for number in range(1, 10):
        recording.ends_at = float(number)
        value = 500.0 if number <= 3 else 10.0 if number <= 6 else last
        recording.add("latency", "delete", "ms", value, LATENCY_P50)
        recording.add("latency", "shown only", "ms", value * number)
    assert [one.name for one in recording.rising()] == rising

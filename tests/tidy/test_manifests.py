"""The manifests for Kubernetes: limits that fit what a process is configured to hold."""

from __future__ import annotations

import re
from pathlib import Path

MANIFEST = Path(__file__).parents[2] / "deploy/kubernetes/gateway.yaml"
MIB = 1 << 20


def test_the_limit_of_memory_fits_the_budget_of_bytes() -> None:
    text = MANIFEST.read_text()
    budget = re.search(r'QUEUEGATE_MAX_BUFFERED_BYTES\s+value: "(\d+)"', text)
    limit = re.search(r"limits:\s+(?:#.*\s+)*memory: (\d+)Mi", text)
    assert budget is not None
    assert limit is not None
    assert int(limit[1]) * MIB >= 4 * int(budget[1]) + 128 * MIB

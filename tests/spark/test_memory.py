"""Memory of the source's process, measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import pyarrow as pa
from spark_connectors.source.collector import keep_little

def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) >> 8

release = keep_little()
pa.repeat(7, 60_000)
before, living = resident_mb(), []
for _ in range(3):
    dropped = []
    for _ in range(200):
        dropped.append(pa.repeat(7, 60_000))
        living.append(bytes(1_000))
    most = resident_mb()
    dropped.clear()
release()
print(most - before, resident_mb() - before)
"""


def test_what_is_dropped_goes_back_whatever_lives_behind_it() -> None:
    told = subprocess.check_output([sys.executable, "-c", _SCRIPT], text=True, timeout=60)
    most_mb, kept_mb = map(int, told.split())
    assert most_mb > 80
    assert kept_mb < 20

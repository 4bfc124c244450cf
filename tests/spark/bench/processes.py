"""The gateway as a process to measure, and the CPU time of process trees."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
_TICK = os.sysconf("SC_CLK_TCK")


class Served(NamedTuple):
    """A gateway that runs."""

    endpoint: str
    pid: int


@contextlib.contextmanager
def gateway() -> Iterator[Served]:
    """A gateway that keeps what it acknowledges (fsync), with its own PostgreSQL."""
    command = os.environ.get("QUEUEGATE_COMMAND", str(ROOT / ".venv/bin/queuegate"))
    inherited = {n: value for n, value in os.environ.items() if not n.startswith("PY")}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as data:
        os.chmod(data, 0o755)
        process = subprocess.Popen(
            [*shlex.split(command), "serve", "--data", f"{data}/data", "--port", "0"],
            env=inherited,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        try:
            found = None
            while found is None:
                line = process.stdout.readline()
                if not line:
                    raise SystemExit(f"the gateway ended with {process.wait()}")
                found = re.search(r"ready: (\S+)", line)
            yield Served(found[1], process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
            process.stdout.close()


def tree(pid: int) -> set[int]:
    """The process and everything below it."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, waiting = set(), [pid]
    while waiting:
        one = waiting.pop()
        found.add(one)
        waiting += children.get(one, [])
    return found


def cpu_seconds(pids: set[int]) -> float:
    """User and system time of these processes, and of children they have waited for."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(one) for one in fields[11:15])
    return ticks / _TICK

"""The history file: one JSON line per run, with the commit and the machine it was measured on."""

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from tests.bench.servers import CannotMeasure

FILE = Path(__file__).with_name("history.jsonl")
_ROOT = Path(__file__).resolve().parents[2]
_SYNCS = 40


def commit() -> str:
    """Return the short hash of the commit measured, with -dirty when files differ from it."""
    found = _git("rev-parse", "--short=12", "HEAD")
    if not found:
        return "uncommitted"
    changed = _git("status", "--porcelain", "--", ".", ":!tests/bench/history.jsonl")
    return f"{found}-dirty" if changed else found


def machine(data: Path) -> dict[str, Any]:
    """Return the facts of this machine that figures depend on."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "uvicorn": version("uvicorn"),
        "file_system": _file_system(data),
        "fsync_ms": round(_sync_seconds(data) * 1000, 3),
        "load_average": round(os.getloadavg()[0], 2),
    }


def append(entry: dict[str, Any], file: Path = FILE) -> None:
    """Add a run to the history."""
    with file.open("a", encoding="utf-8") as history:
        history.write(json.dumps(entry, separators=(",", ":"), sort_keys=True) + "\n")


def find(name: str, file: Path = FILE) -> dict[str, Any]:
    """Return a run by its index (0 is the first, -1 the last) or by its commit, the last one of it.

    Raises CannotMeasure when there is none.
    """
    if not file.exists():
        raise CannotMeasure(f"{file} does not exist: nothing was measured yet")
    entries = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line]
    try:
        found: dict[str, Any] = entries[int(name)] if len(name) < 5 else {}
    except (ValueError, IndexError):
        found = {}
    for entry in entries:
        if not found and entry["commit"] == name:
            found = entry
    for entry in reversed(entries):
        if not found and entry["commit"].startswith(name):
            found = entry
    if not found:
        raise CannotMeasure(f"no run {name!r} among {len(entries)} in {file}")
    return found


def now() -> str:
    """Return the time of a run."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _file_system(path: Path) -> str:
    """Return the type of the file system a path lies on: on tmpfs a durable write costs nothing."""
    best, kind = "", ""
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _, mount, found, *_ = line.split()
        inside = str(path).startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, found
    return kind


def _sync_seconds(directory: Path) -> float:
    """Return the median time of an 8 KiB write and fdatasync."""
    probe = directory / "fsync-probe"
    seconds = []
    with probe.open("wb", buffering=0) as file:
        for _ in range(_SYNCS):
            file.write(bytes(8192))
            started = perf_counter()
            os.fdatasync(file.fileno())
            seconds.append(perf_counter() - started)
    probe.unlink()
    return median(seconds)

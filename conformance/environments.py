"""Who takes part, and the environments that the clients live in."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DRIVERS = Path(__file__).resolve().parent / "drivers"
_INSTALL_SECONDS = 600


class NotInstalled(Exception):
    """The client cannot be had here; the text says why."""


@dataclass(frozen=True)
class Participant:
    """One client. ``command`` sets up what it needs and returns how its driver is started.

    A ``brief`` one runs only the cases that are marked so: its calls are slow.
    """

    name: str
    command: Callable[[], list[str]]
    brief: bool = False


def python_environment(name: str) -> str:
    """The interpreter of .venvs/<name>, which holds what requirements/<name>.txt says."""
    folder = ROOT / ".venvs" / name
    lock = ROOT / "requirements" / f"{name}.txt"
    stamp = folder / ".ready"
    if not stamp.exists() or stamp.stat().st_mtime < lock.stat().st_mtime:
        sh = shutil.which("sh")
        if sh is None:
            raise NotInstalled("there is no sh to run .ci/setup")
        done = subprocess.run(
            [sh, str(ROOT / ".ci" / "setup"), str(folder), str(lock)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=_INSTALL_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise NotInstalled(f"{name} could not be installed: {lines[-1] if lines else '?'}")
        stamp.touch()
    return str(folder / "bin" / "python")

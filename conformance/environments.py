"""The list of clients, and the environments in which they run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DRIVERS = Path(__file__).resolve().parent / "drivers"
ENVIRONMENTS = ROOT / ".venvs"
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
    folder = ENVIRONMENTS / name
    lock = ROOT / "requirements" / f"{name}.txt"
    build(folder, [lock], [[program("sh"), str(ROOT / ".ci" / "setup"), str(folder), str(lock)]])
    return str(folder / "bin" / "python")


def program(name: str) -> str:
    """Return the path of a program; raise NotInstalled if there is none."""
    found = shutil.which(name)
    if found is None:
        raise NotInstalled(f"there is no {name} on the PATH")
    return found


def build(
    folder: Path,
    sources: list[Path],
    commands: list[list[str]],
    where: Path = ROOT,
    *,
    seconds: int = _INSTALL_SECONDS,
) -> None:
    """Fill a folder of .venvs by commands that run in ``where``, each for up to ``seconds``,
    unless that was done since the sources changed; NotInstalled."""
    stamp = folder / ".ready"
    newest = max(source.stat().st_mtime for source in sources)
    if stamp.exists() and stamp.stat().st_mtime >= newest:
        return
    folder.mkdir(parents=True, exist_ok=True)
    for command in commands:
        done = subprocess.run(
            command,
            cwd=where,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise NotInstalled(
                f"{folder.name} could not be installed: {lines[-1] if lines else '?'}"
            )
    stamp.touch()

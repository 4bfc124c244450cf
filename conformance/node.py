"""npm packages of a client, installed once where no source is."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_INSTALL_SECONDS = 300


def packages(source: Path) -> Path:
    """Return the directory of a client's packages, which may not exist yet."""
    return _home(source) / "node_modules"


def install(npm: str, source: Path) -> None:
    """Install what ``source/package-lock.json`` says, once; CalledProcessError, TimeoutExpired."""
    home = _home(source)
    stamp = home / ".ready"
    lock = source / "package-lock.json"
    if stamp.exists() and stamp.stat().st_mtime >= lock.stat().st_mtime:
        return
    home.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(source / name, home)
    command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    subprocess.run(command, cwd=home, check=True, timeout=_INSTALL_SECONDS)
    stamp.touch()


def _home(source: Path) -> Path:
    return _ROOT / ".venvs" / source.name.replace("_", "-")

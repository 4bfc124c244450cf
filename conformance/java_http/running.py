"""Runs the one file of Java."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).resolve().parent / "Requests.java"
_SECONDS = 300


def run(endpoint: str, key: str = "any") -> int:
    """Ask with this key. How many requests went wrong, one at most; what they were is printed."""
    java = shutil.which("java")
    if java is None:
        print("java.net.http  skipped: there is no java on the PATH")
        return 0
    done = subprocess.run([java, str(_SOURCE), endpoint, key], timeout=_SECONDS, check=False)
    return 1 if done.returncode else 0

"""Chromium without a window, as it is installed: pages tell themselves, so nothing drives it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_QUIET = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--enable-logging=stderr",
)
_SECONDS = 60
_CONSOLE = ":CONSOLE"


def find() -> str | None:
    """The program; None when there is none."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


def _command(program: str, profile: str, *arguments: str) -> list[str]:
    # Its sandbox cannot be made by root.
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    return [program, *_QUIET, *sandbox, f"--user-data-dir={profile}", *arguments]


@contextlib.contextmanager
def showing(program: str, url: str) -> Iterator[None]:
    """A browser that has the page open as long as the context."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            _command(program, profile, url),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(_SECONDS)


def rendered(program: str, url: str, picture: Path | None = None) -> tuple[str, list[str]]:
    """The page as it stands when it has been loaded, and what the browser has to say against it."""
    wanted = ["--dump-dom"]
    if picture is not None:
        wanted += [f"--screenshot={picture}", "--window-size=1000,1200", "--hide-scrollbars"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        done = subprocess.run(
            _command(program, profile, *wanted, url),
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
    return done.stdout, [line for line in done.stderr.splitlines() if _CONSOLE in line]

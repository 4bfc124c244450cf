"""Scripts that run when a gateway starts, is ready, and ends, as LocalStack's init hooks do."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

_log = logging.getLogger("queuegate.init")

_AWSLOCAL = """\
#!/bin/sh
command -v aws >/dev/null && exec aws "$@"
echo "awslocal needs the aws CLI: pip install awscli" >&2
exit 127
"""
_SUFFIXES = (".sh", ".py")
_MOST_LETTERS = 2_000


class Stage(StrEnum):
    """A stage of the process. Its scripts are in the folder of its name in lower case and ".d"."""

    BOOT = "BOOT"
    """Before the database starts."""
    START = "START"
    """Before the gateway listens."""
    READY = "READY"
    """As soon as the gateway answers, before it prints the line that says so."""
    SHUTDOWN = "SHUTDOWN"
    """After the signal to end, while the gateway still answers."""


def _scripts_below(directory: Path) -> Iterator[Path]:
    """Yield the scripts of a directory by name, then those of each directory in it."""
    for folder, folders, names in os.walk(directory):
        folders.sort()
        for path in (Path(folder, name) for name in sorted(names)):
            if path.suffix in _SUFFIXES and path.is_file():
                yield path


class InitScripts:
    """The scripts of one directory. After one that fails the next ones run, as in LocalStack."""

    def __init__(self, directory: Path, environ: Mapping[str, str], region: str) -> None:
        self._environ = {
            **environ,
            "AWS_ACCESS_KEY_ID": environ.get("AWS_ACCESS_KEY_ID", "test"),
            "AWS_SECRET_ACCESS_KEY": environ.get("AWS_SECRET_ACCESS_KEY", "test"),
            "AWS_DEFAULT_REGION": region,
            "AWS_REGION": region,
        }
        self._scripts = {
            stage: list(_scripts_below(directory / f"{stage.lower()}.d")) for stage in Stage
        }
        self._states = {path: "UNKNOWN" for scripts in self._scripts.values() for path in scripts}
        self._completed = dict.fromkeys(Stage, False)
        self._commands: tempfile.TemporaryDirectory[str] | None = None
        self._running: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._is_over = False

    def use_endpoint(self, url: str) -> None:
        """Set the endpoint of SDKs for the next scripts, and add awslocal to their path."""
        self._commands = tempfile.TemporaryDirectory(prefix="queuegate-init-")
        command = Path(self._commands.name) / "awslocal"
        command.write_text(_AWSLOCAL)
        command.chmod(0o755)
        path = self._environ.get("PATH", os.defpath)
        self._environ["AWS_ENDPOINT_URL"] = url
        self._environ["PATH"] = f"{command.parent}{os.pathsep}{path}"

    def run(self, stage: Stage) -> None:
        """Run the scripts of a stage, one after another, and wait for them."""
        for path in self._scripts[stage]:
            if self._is_over:
                return
            self._states[path] = "RUNNING"
            failure = self._failure_of(path)
            self._states[path] = "ERROR" if failure else "SUCCESSFUL"
            if failure:
                _log.error("%s failed: %s", path, failure)
        self._completed[stage] = True

    def _failure_of(self, path: Path) -> str:
        """Run a script; return the reason of its failure, or an empty text."""
        if path.suffix == ".py":
            command = [sys.executable, str(path)]
        else:
            command = [str(path)] if os.access(path, os.X_OK) else ["sh", str(path)]
        with self._lock:
            if self._is_over:
                return "the gateway ended"
            try:
                running = self._running = subprocess.Popen(
                    command,
                    env=self._environ,
                    cwd=path.parent,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                )
            except OSError as error:
                return str(error)
        output, _ = running.communicate()
        code = running.returncode
        if output:
            _log.info("%s: %s", path, output[-_MOST_LETTERS:].rstrip())
        return f"exit code {code}: {output[-_MOST_LETTERS:].strip()}" if code else ""

    def close(self) -> None:
        """End a script that runs, and start no further one."""
        with self._lock:
            self._is_over = True
            if self._running is not None:
                self._running.kill()
        if self._commands is not None:
            self._commands.cleanup()

    def shown(self, stage: Stage | None = None) -> dict[str, Any]:
        """Return the states of all scripts, or of a stage, as LocalStack shows them."""
        scripts = [
            {"stage": one, "name": path.name, "state": self._states[path]}
            for one in (Stage if stage is None else (stage,))
            for path in self._scripts[one]
        ]
        completed = {one.value: self._completed[one] for one in Stage}
        return {"completed": completed if stage is None else completed[stage], "scripts": scripts}

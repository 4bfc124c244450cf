"""A gateway for a test session: a running one, or one that starts here and ends with a process."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

_REQUIREMENT = "queuegate"
_OPTIONS = {
    "policies": {"QUEUEGATE_POLICIES": "enforce"},
    "cooldowns": {"QUEUEGATE_AWS_COOLDOWNS": "true"},
}


class CannotStart(Exception):
    """The gateway did not start. The text has what it printed."""


class RunningGateway(NamedTuple):
    """A gateway that answers at this URL."""

    url: str


class UnknownOption(TypeError):
    """An option of a gateway that does not exist. The text names those that do."""


def settings_of(options: Mapping[str, object]) -> dict[str, str]:
    """Return the variables of a gateway with these options. Raises UnknownOption."""
    unknown = options.keys() - _OPTIONS.keys()
    if unknown:
        names = " and ".join(_OPTIONS)
        raise UnknownOption(f"{', '.join(sorted(unknown))}=…): its arguments are {names}")
    chosen = [variables for name, variables in _OPTIONS.items() if options.get(name)]
    return {name: text for variables in chosen for name, text in variables.items()}


@contextlib.contextmanager
def running(**settings: str) -> Iterator[RunningGateway]:
    """Yield the gateway of QUEUEGATE_URL, or start one with these variables, which ends with the
    context."""
    url = os.environ.get("QUEUEGATE_URL", "")
    if url and not settings:
        yield RunningGateway(url.rstrip("/"))
        return
    process, line = _started(os.getpid(), settings)
    try:
        yield RunningGateway(json.loads(line)["url"])
    finally:
        process.terminate()
        process.wait()


def shared(folder: Path, parent: int, settings: Mapping[str, str]) -> RunningGateway:
    """Return the one gateway with these variables of all processes that share a folder. It ends
    with the process ``parent``, whoever started it."""
    url = os.environ.get("QUEUEGATE_URL", "")
    if url and not settings:
        return RunningGateway(url.rstrip("/"))
    place = folder / f"queuegate-{'-'.join(sorted(settings))}.json"
    with (folder / "queuegate.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            process, line = _started(parent, settings)
            # Another process waits for it: that of the system, when this one has ended.
            process.returncode = 0
            place.write_text(line)
    return RunningGateway(json.loads(place.read_text())["url"])


def _started(parent: int, settings: Mapping[str, str]) -> tuple[subprocess.Popen[str], str]:
    """Return a new gateway, and the line that it printed when it was ready."""
    command = [*_command(), str(parent)]
    ours = {name: text for name, text in os.environ.items() if not name.startswith("QUEUEGATE_")}
    process = subprocess.Popen(
        command,
        env={**ours, **settings},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process.stdout:
        line = process.stdout.readline()
    if not line:
        raise CannotStart(f"{shlex.join(command)} ended with {process.wait()}")
    return process, line


def _command() -> list[str]:
    """Return the command, without its last argument, that starts a gateway which ends with the
    process of this number."""
    image = os.environ.get("QUEUEGATE_IMAGE", "")
    if not image:
        return [_python(), "-m", "queuegate.testing", "--parent"]
    engine = shutil.which("docker") or shutil.which("podman")
    if engine is None:
        raise CannotStart(
            f"QUEUEGATE_IMAGE={image} needs docker or podman, and neither is on the PATH: install "
            "one, or unset the variable to start the gateway without a container"
        )
    return [sys.executable, "-m", "queuegate_pytest.container", engine, image]


def _python() -> str:
    """Return a Python that has the gateway: this one, or that of an environment made once."""
    if importlib.util.find_spec("queuegate") is not None:
        return sys.executable
    requirement = os.environ.get("QUEUEGATE_REQUIREMENT", _REQUIREMENT)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "queuegate-pytest"
    cache.mkdir(parents=True, exist_ok=True)
    name = "".join(letter if letter.isalnum() else "_" for letter in requirement)
    place = cache / name
    python = place / "bin" / "python"
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "complete").exists():
            venv.create(place, with_pip=True, clear=True)
            command = [str(python), "-m", "pip", "install", "--quiet", requirement]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise CannotStart(f"{shlex.join(command)} failed: {done.stderr.strip()}")
            (place / "complete").touch()
    return str(python)

"""Runs the Dockerfile without a container engine: its own commands, in its order, as its users.

No base image can be had here, so each stage stands on a copy-on-write view of this machine, with
a Python 3.11+ as `python`. Everything after FROM is the Dockerfile's: COPY, RUN, ENV, USER, then
ENTRYPOINT with CMD as process 1 of its own, the HEALTHCHECK, messages over HTTP, and a stop by
STOPSIGNAL, in an environment with nothing but what the Dockerfile sets and a port. Needs Linux,
root and overlayfs, and says so when they are missing. What it cannot show: that the real base image
has all that is used of it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
BASE_PATH = "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"
PYTHONS = (
    "/usr/local/bin/python3",
    "/usr/bin/python3.13",
    "/usr/bin/python3.12",
    "/usr/bin/python3",
)
DATA = "var/lib/queuegate"
SUITABLE = "import sys, ensurepip, venv; assert sys.version_info >= (3, 11)"


@dataclass
class Stage:
    """One FROM: its root directory, and what the instructions have set so far."""

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": BASE_PATH})
    directory: str = "/"
    user: str = "0:0"
    facts: dict[str, Any] = field(default_factory=dict)

    def chroot(self, *command: str, user: str | None = None) -> list[str]:
        """The command as it runs in this stage."""
        return ["chroot", f"--userspec={user or self.user}", str(self.root), *command]


def main() -> int:
    """Build and try the image; 0 when all of it worked, or when it cannot be done here."""
    if sys.platform != "linux" or os.geteuid() != 0:
        print("skipped: needs Linux and root")
        return 0
    if "--inside" not in sys.argv:
        # Mounts of our own: they vanish with the process.
        words = ["unshare", "--mount", "--propagation", "private", sys.executable, __file__]
        return subprocess.run([*words, "--inside"], check=False).returncode
    scratch = Path(tempfile.mkdtemp(prefix="queuegate-image-"))
    try:
        # A tmpfs, for an overlay cannot lie on an overlay, which the root of a container is.
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(scratch)], check=True)
        scratch.chmod(0o755)
        stages = build(scratch)
        image = stages["final"]
        size = sum(
            file.stat().st_size
            for file in (image.root / "opt/queuegate").rglob("*")
            if file.is_file()
        )
        print(f"built: {size >> 20} MiB on top of the base image")
        try_out(image)
        try_in_place_of_localstack(stages["localstack"])
    finally:
        subprocess.run(["umount", "--recursive", "--lazy", str(scratch)], check=False)
        shutil.rmtree(scratch, ignore_errors=True)
    print("the image's commands work")
    return 0


def build(scratch: Path) -> dict[str, Stage]:
    """Follow the Dockerfile; return its stages. One that stands on another shares its files."""
    stages: dict[str, Stage] = {}
    stage = Stage(scratch)
    for instruction, rest in instructions((REPOSITORY / "Dockerfile").read_text()):
        if instruction == "FROM":
            source, _, name = rest.partition(" AS ")
            name = name or "final"
            below = stages.get(source)
            stage = deepcopy(below) if below else Stage(base(scratch / name))
            stages[name] = stage
        elif instruction == "RUN":
            print(f"RUN {rest[:100]}")
            run(stage, rest)
        elif instruction == "COPY":
            copy(stage, rest.split(), stages)
        else:
            set_fact(stage, instruction, rest)
    return stages


def set_fact(stage: Stage, instruction: str, rest: str) -> None:
    """An instruction that changes how the later ones run, or how the image is started."""
    if instruction == "ENV":
        for name, _, value in (word.partition("=") for word in shlex.split(rest)):
            stage.environment[name] = value.replace("$PATH", stage.environment["PATH"])
    elif instruction == "WORKDIR":
        stage.directory = rest
        (stage.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
    elif instruction == "USER":
        stage.user = rest
    elif instruction in {"HEALTHCHECK", "ENTRYPOINT", "CMD"}:
        stage.facts[instruction] = json.loads(rest[rest.index("[") :])
    elif instruction in {"STOPSIGNAL", "VOLUME", "EXPOSE"}:
        stage.facts[instruction] = rest
    else:
        raise SystemExit(f"this check does not know {instruction}: teach it")


def instructions(text: str) -> list[tuple[str, str]]:
    """(instruction, rest) in order, with continued lines joined and comments gone."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    joined = re.sub(r"\\\n\s*", "", lines)
    pairs = (line.partition(" ") for line in joined.splitlines() if line.strip())
    return [(word, rest.strip()) for word, _, rest in pairs]


def base(place: Path) -> Path:
    """A copy-on-write view of this machine, in place of the base image."""
    for name in ("upper", "work", "root"):
        (place / name).mkdir(parents=True)
    options = f"lowerdir=/,upperdir={place}/upper,workdir={place}/work"
    root = place / "root"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, str(root)], check=True)
    subprocess.run(["mount", "--rbind", "/dev", str(root / "dev")], check=True)
    subprocess.run(["mount", "-t", "proc", "proc", str(root / "proc")], check=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", str(root / "tmp")], check=True
    )
    # What a gateway of this machine keeps there is in no base image. It stays on the machine.
    if (root / DATA).exists():
        shutil.rmtree(root / DATA)
    python = next((path for path in PYTHONS if suits(path)), None)
    if python is None:
        raise SystemExit("skipped: no Python 3.11+ with venv in a place that every user can read")
    link = root / "usr/local/bin/python"
    link.unlink(missing_ok=True)
    link.symlink_to(python)
    return root


def suits(python: str) -> bool:
    """Whether this interpreter can stand in for the base image's."""
    try:
        return (
            subprocess.run(
                [python, "-c", SUITABLE], check=False, stderr=subprocess.DEVNULL
            ).returncode
            == 0
        )
    except OSError:
        return False


def run(stage: Stage, command: str) -> None:
    """One RUN. The settings of pip on this machine are passed on, like build arguments."""
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    script = f"cd {stage.directory} && {command}"
    words = stage.chroot("/bin/sh", "-c", script)
    quiet = {"PIP_QUIET": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    subprocess.run(words, env=stage.environment | pip | quiet, check=True)


def copy(stage: Stage, words: list[str], stages: dict[str, Stage]) -> None:
    """One COPY: like the original, the contents of a directory, not the directory itself."""
    source = REPOSITORY
    if words[0].startswith("--from="):
        source = stages[words[0].partition("=")[2]].root
        words = words[1:]
    *names, target = words
    place = stage.root / (stage.directory + "/" + target).lstrip("/")
    if target.startswith("/"):
        place = stage.root / target.lstrip("/")
    for name in names:
        origin = source / name.lstrip("/")
        if origin.is_dir():
            ignored = (
                shutil.ignore_patterns("__pycache__", "*.pyc") if source == REPOSITORY else None
            )
            shutil.copytree(origin, place, symlinks=True, ignore=ignored, dirs_exist_ok=True)
        else:
            directory = place if target.endswith("/") else place.parent
            directory.mkdir(parents=True, exist_ok=True)
            shutil.copy2(origin, directory / origin.name if target.endswith("/") else place)


def try_out(image: Stage) -> None:
    """Start, send a message, stop; start again, find the message, stop."""
    # Held without listening: nobody else gets the port, and the gateway can bind it.
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    port = held.getsockname()[1]
    environment = {**image.environment, "QUEUEGATE_PORT": str(port)}
    queue = {"QueueUrl": f"http://127.0.0.1:{port}/000000000000/image"}
    container = start(image, environment)
    call(port, "CreateQueue", {"QueueName": "image"})
    call(port, "SendMessage", {**queue, "MessageBody": "kept"})
    stop(image, container)
    container = start(image, environment)
    messages = call(port, "ReceiveMessage", queue)["Messages"]
    assert [message["Body"] for message in messages] == ["kept"], messages
    stop(image, container)
    closed = subprocess.run(image.chroot("queuegate", "health"), env=environment, check=False)
    held.close()
    assert closed.returncode == 1, "the health check finds nothing wrong with a stopped gateway"


def try_in_place_of_localstack(image: Stage) -> None:
    """Start on any port, as LocalStack's page of health says; stop."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        container = start(image, {**image.environment, "QUEUEGATE_PORT": str(port)})
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/_localstack/health") as answer:
            assert json.loads(answer.read())["services"]["sqs"] == "running"
        version = subprocess.run(image.chroot("aws", "--version"), check=True, capture_output=True)
        print(version.stdout.decode().strip())
        stop(image, container)


def start(image: Stage, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Run ENTRYPOINT and CMD as process 1, until the HEALTHCHECK is content."""
    words = [*image.facts["ENTRYPOINT"], *image.facts.get("CMD", [])]
    print(f"start {words} as {image.user}")
    began = time.monotonic()
    namespace = ["unshare", "--pid", "--fork", "--kill-child", f"--mount-proc={image.root}/proc"]
    container = subprocess.Popen([*namespace, *image.chroot(*words)], env=environment)
    health = image.chroot(*image.facts["HEALTHCHECK"])
    while (
        subprocess.run(health, env=environment, check=False, stderr=subprocess.DEVNULL).returncode
        != 0
    ):
        if container.poll() is not None or time.monotonic() - began > 60:
            raise SystemExit("the image does not become healthy")
        time.sleep(0.05)
    print(f"healthy after {time.monotonic() - began:.1f} s")
    return container


def stop(image: Stage, container: subprocess.Popen[bytes]) -> None:
    """What `docker stop` does: the STOPSIGNAL to process 1; it must end with 0, alone."""
    children = Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text().split()
    began = time.monotonic()
    os.kill(int(children[0]), signal.Signals[image.facts["STOPSIGNAL"]])
    status = container.wait(30)
    print(f"stopped with {status} after {time.monotonic() - began:.1f} s")
    assert status == 0, "the image does not stop cleanly"


def call(port: int, action: str, body: dict[str, Any]) -> Any:
    """One SQS call, as a client would send it."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/",
        json.dumps(body).encode(),
        {
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Target": f"AmazonSQS.{action}",
            "Authorization": "any",
        },
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.loads(response.read() or b"{}")


if __name__ == "__main__":
    sys.exit(main())

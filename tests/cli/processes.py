"""The `queuegate` command as a process, and waiting for processes without sleeping."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import IO, Any

PATIENCE_SECONDS = 60.0


def environment(**more: str) -> dict[str, str]:
    """This process's variables without any of ours, and these."""
    ours = re.compile(r"QUEUE_|QUEUEGATE_|OTLP_|LOG_LEVEL$|DATABASE_URL$|API_KEY$|DB_")
    return {name: value for name, value in os.environ.items() if not ours.match(name)} | more


def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "queuegate", *arguments],
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


_USAGE_LINES = 3
_HELLO = """
import boto3
sqs = boto3.client("sqs")
url = sqs.create_queue(QueueName="hello")["QueueUrl"]
sqs.send_message(QueueUrl=url, MessageBody="Hello")
print(sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"])
"""


class Gateway:
    """`queuegate serve` on a free port, ready when this returns; killed at the end if it lives."""

    log: IO[str] | None = None
    """Takes what it writes to stderr; None: ours does."""
    folder: Path | None = None
    """Where it is started; None: where we are."""

    def __init__(self, *arguments: str, **more: str) -> None:
        self.process = subprocess.Popen(
            [*self.command(), "--port", "0", *arguments],
            cwd=self.folder,
            env=environment(**more),
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        self.printed = ""
        assert self.process.stdout is not None
        while "stop " not in self.printed:
            line = self.process.stdout.readline()
            if not line:
                self.process.stdout.close()
                raise AssertionError(
                    f"the gateway ended with {self.process.wait()}: {self.printed}"
                )
            self.printed += line
        found = re.search(r"ready: (\S+)", self.printed)
        assert found is not None
        self.url = found[1]

    def command(self) -> list[str]:
        return [sys.executable, "-m", "queuegate", "serve"]

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.stop(signal.SIGTERM)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def usage(self) -> tuple[dict[str, str], str]:
        """The variables and the command for a shell, which are the last lines of the banner."""
        assert self.process.stdout is not None
        *exports, command = [self.process.stdout.readline() for _ in range(_USAGE_LINES)]
        given = [one for line in exports for one in line.removeprefix("export ").split()]
        return dict(one.split("=", 1) for one in given), command

    def hello(self, **more: str) -> str:
        """Return the output of boto3 with the variables of the banner: a first message."""
        variables, _ = self.usage()
        ran = subprocess.run(
            [sys.executable, "-c", _HELLO],
            env={**environment(), **variables, **more},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=True,
        )
        return ran.stdout

    @property
    def port(self) -> str:
        return self.url.rpartition(":")[2]

    @property
    def listens_at(self) -> str:
        """The URL of the first address that it listens on, whatever it is configured to say."""
        found = re.search(r"listen +(\S+)", self.printed)
        assert found is not None
        return f"http://{found[1]}"

    def get(self, path: str) -> tuple[int, str]:
        """(status, text) of a page."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=PATIENCE_SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def stop(self, number: signal.Signals) -> int:
        """Send the signal; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_SECONDS)


class Watch:
    """Waits for the end of a process that is not our child."""

    def __init__(self, process_id: int) -> None:
        self._descriptor = os.pidfd_open(process_id)

    def wait(self) -> bool:
        """Return True if the process ended in time."""
        ended = select.select([self._descriptor], [], [], PATIENCE_SECONDS)[0]
        os.close(self._descriptor)
        return bool(ended)


def postmaster(data: Path) -> int:
    """The process id of the PostgreSQL on this data directory."""
    return int((data / "pgdata" / "postmaster.pid").read_text().partition("\n")[0])


def children(process_id: int) -> list[int]:
    """The workers of a gateway, which have its command line."""
    command = _facts(Path(f"/proc/{process_id}")).get("command")
    return [
        child
        for child in processes_of(process_id)
        if _facts(Path(f"/proc/{child}")).get("command") == command
    ]


def processes_of(process_id: int) -> list[int]:
    """Those that a process has started."""
    entries = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return sorted(
        int(entry.name) for entry in entries if _facts(entry).get("PPid") == str(process_id)
    )


def _facts(entry: Path) -> dict[str, Any]:
    try:
        lines = (entry / "status").read_text().splitlines()
        facts = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
        facts["command"] = (entry / "cmdline").read_text().replace("\0", " ")
    except OSError:
        return {}
    return facts

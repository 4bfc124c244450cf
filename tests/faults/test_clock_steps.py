"""The clock of the database steps back and forward under a running gateway: a PostgreSQL of the
test's own, with libfaketime (Debian's package `faketime`) in front of its clock."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.embedded.account import choose_account
from storage.embedded.binaries import binaries_for
from storage.embedded.data_directory import hand_over
from tests.cli.processes import Gateway
from tests.faces.clients import Sqs
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)

HOUR = 3600
# Not "**": every process that collects tests would look through all libraries, for a second.
LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
LIBRARIES += Path("/usr/lib/faketime").glob("libfaketime.so.1")


class FakedPostgres:
    """A PostgreSQL whose clock the test moves."""

    def __init__(self, directory: Path) -> None:
        self._account = choose_account(None)
        self._directory = directory
        self._offset = directory / "offset"
        hand_over(directory, self._account)
        self._binaries = binaries_for(self._account, directory)
        self.move(0)
        data = str(directory / "pgdata")
        initdb = ["initdb", "-D", data, "-U", "queuegate", "--auth=trust", "--no-sync"]
        assert self._popen(*initdb, "--locale=C", "--encoding=UTF8").wait() == 0
        self._server = self._popen(
            *("postgres", "-D", data, "-k", str(directory)),
            *("-c", "listen_addresses=", "-c", "fsync=off"),
            LD_PRELOAD=str(LIBRARIES[0]),
            FAKETIME_TIMESTAMP_FILE=str(self._offset),
            FAKETIME_NO_CACHE="1",
            # Both spellings: that of old versions and that of new ones.
            DONT_FAKE_MONOTONIC="1",
            FAKETIME_DONT_FAKE_MONOTONIC="1",
        )
        self.dsn = f"postgresql://queuegate@/postgres?host={directory}"
        until(lambda: "ready" in self._state())

    def _state(self) -> str:
        assert self._server.poll() is None, (self._directory / "log").read_text()
        try:
            return (self._directory / "pgdata" / "postmaster.pid").read_text()
        except OSError:
            return ""

    def _popen(self, program: str, *arguments: str, **more: str) -> subprocess.Popen[bytes]:
        with (self._directory / "log").open("ab") as log:
            return subprocess.Popen(
                [str(self._binaries / program), *arguments],
                cwd="/",
                env={"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC", **more},
                stdout=log,
                stderr=log,
                **self._account.popen_options(),
            )

    def move(self, seconds: int) -> None:
        """Let the clock stand so far from the true time."""
        new = self._offset.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.chmod(0o644)
        new.rename(self._offset)

    def stop(self) -> None:
        self._server.terminate()
        self._server.wait(60)


@pytest.fixture
def postgres() -> Iterator[FakedPostgres]:
    if not LIBRARIES:
        pytest.skip("libfaketime is not installed (Debian: apt-get install faketime)")
    # Short, and open to the account that PostgreSQL runs as.
    with tempfile.TemporaryDirectory(prefix="queuegate-clock-") as directory:
        Path(directory).chmod(0o755)
        running = FakedPostgres(Path(directory))
        yield running
        running.stop()


class Watched(Gateway):
    """Its log is kept."""


def _behind(gateway: Gateway) -> float:
    _, text = gateway.get("/metrics")
    [line] = [one for one in text.splitlines() if one.startswith("queuegate_clock_behind_seconds ")]
    return float(line.rpartition(" ")[2])


def _received(sqs: Sqs, url: str) -> dict[str, Any]:
    """The next message, as soon as there is one."""
    [message] = until(lambda: sqs.receive(url, 1, VisibilityTimeout=HOUR))
    return message


def test_steps_of_the_clock_hide_nothing(postgres: FakedPostgres, tmp_path: Path) -> None:
    """A PostgreSQL under another clock, which is stepped there and back."""
    log = tmp_path / "log"
    with log.open("w") as file:
        Watched.log = file
        with (
            Watched(DATABASE_URL=postgres.dsn, QUEUEGATE_LOG_FORMAT="text") as gateway,
            Sqs("json", gateway.url) as sqs,
        ):
            plain, grouped = sqs.create(), sqs.create_fifo()
            for url, more in ((plain, {}), (grouped, {"MessageGroupId": "g"})):
                for body in "12":
                    sqs.send(url, body, **more)
            postgres.move(-HOUR)
            for url in (plain, grouped):
                for body in "12":
                    # What was sent in the last second before the step waits for as long.
                    message = _received(sqs, url)
                    assert message["Body"] == body
                    sqs.delete(url, message)
            until(lambda: _behind(gateway), lambda seconds: seconds > HOUR / 2)
            assert "stepped back" in log.read_text()
            # Timeouts end, although the clock stands an hour before they began.
            sqs.send(plain, "3")
            assert until(lambda: sqs.receive(plain, VisibilityTimeout=1))
            assert until(lambda: sqs.receive(plain, VisibilityTimeout=0))
            postgres.move(HOUR)
            until(lambda: _behind(gateway), lambda seconds: seconds == 0)
            sqs.send(plain, "4")
            assert {m["Body"] for m in until(lambda: sqs.receive(plain))} == {"3", "4"}

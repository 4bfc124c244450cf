"""The clock of the database steps back and forward under a running gateway, and either of them
stands still. No lease ends early, nothing is hidden, and the log blames no clock that did not step.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import Gateway
from tests.faces.channels.client import Channels
from tests.faces.clients import Refused, Sqs
from tests.faces.logs.client import Logs, record
from tests.faces.logs.test_groups import fetch, join, settle
from tests.faults.faked_postgres import FakedPostgres, faked_postgres
from tests.prometheus import scraping
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)

HOUR = 3600
# Not "**": every process that collects tests would look through all libraries, for a second.
LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
LIBRARIES += Path("/usr/lib/faketime").glob("libfaketime.so.1")
STEPS = (0.1, 1.0, 60.0, 2.0 * HOUR)
PAUSES = (0.1, 1.0, 10.0, *([60.0] if os.environ.get("QUEUEGATE_TEST_FAULTS") == "long" else []))
EARLY_SECONDS = 0.05


@pytest.fixture
def postgres() -> Iterator[FakedPostgres]:
    if not LIBRARIES:
        pytest.skip("libfaketime is not installed (Debian: apt-get install faketime)")
    with faked_postgres(LIBRARIES[0]) as running:
        yield running


@pytest.fixture
def plain_postgres() -> Iterator[FakedPostgres]:
    with faked_postgres(None) as running:
        yield running


class Watched(Gateway):
    """Its log is kept."""


@contextmanager
def watched(postgres: FakedPostgres, log: Path) -> Iterator[tuple[Gateway, Sqs]]:
    """A gateway on that database, and a client of it."""
    with log.open("w") as file:
        Watched.log = file
        with (
            Watched(DATABASE_URL=postgres.dsn, QUEUEGATE_LOG_FORMAT="text") as gateway,
            Sqs("json", gateway.url) as sqs,
        ):
            yield gateway, sqs


def _metric(gateway: Gateway, name: str) -> float:
    _, text = gateway.get("/metrics")
    [line] = [one for one in text.splitlines() if one.startswith(f"{name} ")]
    return float(line.rpartition(" ")[2])


def _behind(gateway: Gateway) -> float:
    return _metric(gateway, "queuegate_clock_behind_seconds")


def _wait(seconds: float) -> None:
    end = time.monotonic() + seconds
    until(lambda: time.monotonic() >= end)


def _leased(sqs: Sqs, url: str, body: str, seconds: int) -> float:
    """Send and receive a message with a timeout; when it was asked for."""
    sqs.send(url, body)
    began = time.monotonic()
    [message] = until(lambda: sqs.receive(url, 1, VisibilityTimeout=seconds))
    assert message["Body"] == body
    return began


def _lasted(sqs: Sqs, url: str, began: float) -> float:
    """Wait for the end of the lease and delete the message; how long that was."""
    [message] = until(lambda: sqs.receive(url, 1, VisibilityTimeout=HOUR))
    lasted = time.monotonic() - began
    sqs.delete(url, message)
    return lasted


def _received(sqs: Sqs, url: str) -> dict[str, Any]:
    """The next message, as soon as there is one."""
    [message] = until(lambda: sqs.receive(url, 1, VisibilityTimeout=HOUR))
    return message


def test_steps_of_the_clock_hide_nothing(postgres: FakedPostgres, tmp_path: Path) -> None:
    """Another gateway receives at once what was sent, before a step and after it."""
    log = tmp_path / "log"
    with (
        watched(postgres, log) as (gateway, sqs),
        Watched(DATABASE_URL=postgres.dsn) as second,
        Sqs("json", second.url, sqs.account) as other,
    ):
        plain, grouped = sqs.create(), sqs.create_fifo()
        for number, seconds in enumerate(sign * step for step in STEPS for sign in (1, -1)):
            sender, receiver = (sqs, other) if number % 2 else (other, sqs)
            sender.send(plain, f"before {seconds}")
            sender.send(grouped, f"before {seconds}", MessageGroupId="g")
            postgres.move(seconds)
            sender.send(plain, f"after {seconds}")
            sender.send(grouped, f"after {seconds}", MessageGroupId="h")
            for url in (plain, grouped):
                messages = receiver.receive(url)
                bodies = [message["Body"] for message in messages]
                assert bodies == [f"before {seconds}", f"after {seconds}"]
                receiver.delete(url, *messages)
        # All steps but the last may have passed between two looks.
        until(lambda: "the clock of the database stepped back by" in log.read_text())
        until(lambda: _behind(gateway), lambda seconds: HOUR < seconds < 3 * HOUR)
        # A delay ends, although the clock stands hours before it began.
        sqs.send(plain, "delayed", DelaySeconds=1)
        assert other.receive(plain) == []
        assert _received(other, plain)["Body"] == "delayed"


def test_a_step_of_the_clock_fires_an_alert(postgres: FakedPostgres, tmp_path: Path) -> None:
    """Takes more than 5 s: Prometheus looks for targets every 5 s."""
    with watched(postgres, tmp_path / "log") as (gateway, _), scraping(gateway.url) as prometheus:
        prometheus.until_scraped()
        assert prometheus.firing() == {}
        postgres.move(-HOUR)
        prometheus.until_firing("QueuegateClockStepped")


class Leases:
    """Leases of 2 s of every kind, by two gateways."""

    def __init__(self, sqs: Sqs, other: Sqs) -> None:
        self.plain, self.grouped, self.channel = sqs.create(), sqs.create_fifo(), "alerts"
        self._all = (sqs, other)
        self._began: dict[str, float] = {}

    def begin(self) -> None:
        """Lease a message of each kind. The second one of a group waits for the first."""
        sqs, _ = self._all
        sqs.send(self.plain, "1")
        for body in "12":
            sqs.send(self.grouped, body + os.urandom(4).hex(), MessageGroupId="g")
        with Channels(sqs.url, sqs.account) as channels:
            channels.publish(self.channel)
            receives: dict[str, Callable[[], list[Any]]] = {
                self.plain: lambda: sqs.receive(self.plain, VisibilityTimeout=2),
                self.grouped: lambda: sqs.receive(self.grouped, 1, VisibilityTimeout=2),
                self.channel: lambda: channels.poll(window=2),
            }
            for name, receive in receives.items():
                self._began[name] = time.monotonic()
                assert len(receive()) == 1

    def last(self) -> None:
        """Poll at both gateways until each has ended, and check how long that was."""
        while self._began:
            for sqs in self._all:
                for url in {self.plain, self.grouped} & self._began.keys():
                    found = sqs.receive(url, VisibilityTimeout=HOUR)
                    sqs.delete(url, *found)
                    self._has_ended(url, found)
                with Channels(sqs.url, sqs.account) as channels:
                    if self.channel in self._began and (found := channels.poll()):
                        channels.ack(*found)
                        self._has_ended(self.channel, found)

    def _has_ended(self, name: str, found: list[dict[str, Any]]) -> None:
        if found:
            lasted = time.monotonic() - self._began.pop(name)
            assert 2 - EARLY_SECONDS < lasted < 5, name


def test_no_lease_ends_early_when_the_clock_steps(postgres: FakedPostgres, tmp_path: Path) -> None:
    """Forward and back, by steps that add up. Takes sixteen leases."""
    with (
        watched(postgres, tmp_path / "log") as (gateway, sqs),
        Watched(DATABASE_URL=postgres.dsn) as second,
        Sqs("json", second.url, sqs.account) as other,
    ):
        leases = Leases(other, sqs)
        stands = 0.0
        for seconds in (sign * step for sign in (1, 1, -1, -1) for step in STEPS):
            leases.begin()
            stands += seconds
            postgres.move(stands)
            leases.last()
        counted = ("steps_forward", "steps_back")
        for name in counted:
            steps = [_metric(one, f"queuegate_clock_{name}_total") for one in (gateway, second)]
            # Whether 0.1 s is a step depends on how long the round trip was.
            assert 6 <= sum(steps) <= 8


def test_a_gateway_that_starts_after_a_step_ends_no_lease(
    postgres: FakedPostgres, tmp_path: Path
) -> None:
    """Takes as long as the leases, which outlast the start."""
    with watched(postgres, tmp_path / "log") as (_, sqs):
        url = sqs.create()
        for stands in (2.0 * HOUR, 60.0):
            began = _leased(sqs, url, str(stands), 8)
            postgres.move(stands)
            with (
                Watched(DATABASE_URL=postgres.dsn) as new,
                Sqs("json", new.url, sqs.account) as client,
            ):
                assert _lasted(client, url, began) > 8 - EARLY_SECONDS


def test_a_subscriber_stays_when_the_clock_steps(postgres: FakedPostgres, tmp_path: Path) -> None:
    """Its lease of partitions would have ended long ago, and the record's delay, too."""
    with watched(postgres, tmp_path / "log") as (gateway, _), Logs(gateway.url) as logs:
        logs.publish(record())
        session = join(logs)["session"]
        [fetched] = fetch(logs, session)["records"]
        began = time.monotonic()
        done = {"receipt": fetched["receipt"], "do": "nack", "delay": 3}
        assert settle(logs, done) == ["done"]
        postgres.move(2.0 * HOUR)
        assert until(lambda: fetch(logs, session)["records"])
        assert time.monotonic() - began > 3 - EARLY_SECONDS
        assert join(logs, session=session)["session"] == session


def test_a_database_that_starts_under_another_clock_ends_no_lease(
    postgres: FakedPostgres, tmp_path: Path
) -> None:
    """Takes as long as the leases, which outlast the start."""
    with watched(postgres, tmp_path / "log") as (_, sqs):
        url = sqs.create()
        for stands in (2.0 * HOUR, -60.0):
            began = _leased(sqs, url, str(stands), 8)
            postgres.restart(stands)
            assert until(lambda: _answers(sqs, url))
            assert _lasted(sqs, url, began) > 8 - EARLY_SECONDS


def _answers(sqs: Sqs, url: str) -> bool:
    try:
        sqs.attributes(url)
    except Refused:
        return False
    return True


def test_no_pause_of_the_database_moves_time(plain_postgres: FakedPostgres, tmp_path: Path) -> None:
    """Pauses of 0.1 to 10 s, and of a minute in a long run."""
    log = tmp_path / "log"
    with watched(plain_postgres, log) as (gateway, sqs):
        before, after = sqs.create("before"), sqs.create("after")
        for seconds in PAUSES:
            began_before = _leased(sqs, before, str(seconds), int(seconds) + 2)
            with plain_postgres.stopped():
                _wait(seconds)
            began_after = _leased(sqs, after, str(seconds), 3)
            assert _lasted(sqs, after, began_after) > 3 - EARLY_SECONDS
            assert _lasted(sqs, before, began_before) > int(seconds) + 2 - EARLY_SECONDS
            assert _behind(gateway) == 0
        assert _metric(gateway, "queuegate_clock_steps_back_total") == 0
    assert "stepped" not in log.read_text()


def test_no_pause_of_a_gateway_moves_time(plain_postgres: FakedPostgres, tmp_path: Path) -> None:
    """Another one goes on, for as long as the pauses of the database are."""
    log = tmp_path / "log"
    with (
        watched(plain_postgres, log) as (gateway, sqs),
        Watched(DATABASE_URL=plain_postgres.dsn) as stopping,
    ):
        url = sqs.create()
        for seconds in PAUSES:
            stopping.process.send_signal(signal.SIGSTOP)
            _wait(seconds)
            stopping.process.send_signal(signal.SIGCONT)
            began = _leased(sqs, url, str(seconds), 3)
            assert _lasted(sqs, url, began) > 3 - EARLY_SECONDS
        for one in (gateway, stopping):
            assert _metric(one, "queuegate_clock_steps_back_total") == 0
    assert "stepped" not in log.read_text()

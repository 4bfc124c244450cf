"""The clock of the database steps back and forward under a running gateway, and either of them
stands still. No lease ends early, nothing is hidden, and the log blames no clock that did not step.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import Gateway
from tests.faces.clients import Sqs
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
    """A PostgreSQL under another clock, which is stepped there and back."""
    log = tmp_path / "log"
    with watched(postgres, log) as (gateway, sqs):
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
        assert _metric(gateway, "queuegate_clock_steps_forward_total") == 1
        assert "stepped forward by 7" in log.read_text()


def test_a_step_of_the_clock_fires_an_alert(postgres: FakedPostgres, tmp_path: Path) -> None:
    """Takes more than 5 s: Prometheus looks for targets every 5 s."""
    with watched(postgres, tmp_path / "log") as (gateway, _), scraping(gateway.url) as prometheus:
        prometheus.until_scraped()
        assert prometheus.firing() == {}
        postgres.move(-HOUR)
        prometheus.until_firing("QueuegateClockStepped")


def test_a_short_step_forward_hides_nothing(postgres: FakedPostgres, tmp_path: Path) -> None:
    """Sent and answered while the clock stands ahead, and it steps back before anybody looks."""
    with watched(postgres, tmp_path / "log") as (_, sqs):
        plain, grouped = sqs.create(), sqs.create_fifo()
        for seconds in STEPS:
            postgres.move(seconds)
            sqs.send(plain, str(seconds))
            sqs.send(grouped, str(seconds), MessageGroupId="g")
            postgres.move(0)
            stepped = time.monotonic()
            for url in (plain, grouped):
                message = _received(sqs, url)
                assert message["Body"] == str(seconds)
                sqs.delete(url, message)
            assert time.monotonic() - stepped < 3.0


def test_no_lease_ends_early_when_the_clock_steps_back(
    postgres: FakedPostgres, tmp_path: Path
) -> None:
    """Neither one from before the step nor one from the moment after it."""
    with watched(postgres, tmp_path / "log") as (gateway, sqs):
        before, after = sqs.create("before"), sqs.create("after")
        for seconds in STEPS:
            began_before = _leased(sqs, before, str(seconds), 2)
            postgres.move(-seconds)
            began_after = _leased(sqs, after, str(seconds), 1)
            assert _lasted(sqs, after, began_after) > 1 - EARLY_SECONDS
            assert _lasted(sqs, before, began_before) > 2 - EARLY_SECONDS
            # Ahead of what time has become, so that the next step is one.
            postgres.move(0)
            until(lambda: _behind(gateway), lambda behind: behind == 0)
        assert 2 <= _metric(gateway, "queuegate_clock_steps_back_total") <= len(STEPS)


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

"""Two gateways on one database: what one changes holds for the other at once, and each time is
fired once, whoever fires it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import pytest

from tests.cli.processes import Gateway
from tests.databases import Databases
from tests.faces.clients import new_account
from tests.faces.connections import fetch
from tests.faces.rest.schedule_client import Scheduling, times, to_queue
from tests.waiting import until

_NEVER_POLLED_MS = "60000"


class Pair(NamedTuple):
    """The same account through two gateways."""

    one: Scheduling
    other: Scheduling


@pytest.fixture
def dsn(own_database_dsn: str) -> str:
    """A database that gateways share."""
    return own_database_dsn


def gateway(dsn: str, **settings: str) -> Gateway:
    return Gateway(
        DATABASE_URL=dsn,
        QUEUEGATE_LOG_LEVEL="error",
        QUEUEGATE_ADMIN_CLOCK="true",
        QUEUE_SCHEDULE_POLL_MS=_NEVER_POLLED_MS,
        **settings,
    )


@pytest.fixture
def silent_and_firing(dsn: str) -> Iterator[Pair]:
    """Only the other one fires, and looks by itself once a minute only."""
    account = new_account()
    with (
        gateway(dsn, QUEUE_SCHEDULE_ENABLED="false") as silent,
        gateway(dsn) as firing,
        Scheduling(silent.url, account) as one,
        Scheduling(firing.url, account) as other,
    ):
        yield Pair(one, other)


@pytest.fixture(scope="module")
def addresses(databases: Databases) -> Iterator[tuple[str, str]]:
    """Of two that fire. Tests keep apart by account, and the clock only moves on."""
    shared = databases.copy()
    with gateway(shared) as first, gateway(shared) as second:
        yield first.url, second.url


@pytest.fixture
def both_firing(addresses: tuple[str, str]) -> Iterator[Pair]:
    account = new_account()
    with (
        Scheduling(addresses[0], account) as one,
        Scheduling(addresses[1], account) as other,
    ):
        yield Pair(one, other)


def advance(rest: Scheduling, seconds: int) -> None:
    body = json.dumps({"advance_seconds": seconds}).encode()
    assert fetch(rest.url, "/_admin/clock", "POST", body).status == 200


def ahead_seconds(rest: Scheduling) -> float:
    return float(json.loads(fetch(rest.url, "/_admin/clock").body)["ahead_seconds"])


def test_all_gateways_move_one_clock(both_firing: Pair) -> None:
    before = ahead_seconds(both_firing.one)
    with ThreadPoolExecutor(2) as threads:
        moves = [
            threads.submit(advance, rest, seconds)
            for _ in range(20)
            for rest, seconds in ((both_firing.one, 60), (both_firing.other, 1))
        ]
    for move in moves:
        move.result()
    for rest in both_firing:
        # Of the last move it is told in a moment.
        ahead = until(partial(ahead_seconds, rest), lambda found: found >= before + 20 * 61)
        assert ahead == before + 20 * 61


def test_changes_hold_for_all_gateways_at_once(silent_and_firing: Pair) -> None:
    """Waits for fires of every second, and for three seconds without one."""
    one, other = silent_and_firing
    one.create("jobs")
    created = one.schedule("s", to_queue(), cron="0 0 1 1 *")
    assert other.get("s") == created
    changed = other.patch("s", every="1s")
    assert one.get("s")["canonical"] == changed["canonical"]
    first, second = times([one.receive("jobs", max=1, wait=20)[0] for _ in range(2)])
    assert first < second
    paused = one.patch("s", status="paused")
    assert other.get("s") == paused
    # What was fired before the pause.
    until(partial(other.receive, "jobs"), lambda found: not found)
    one.call("PUT", "/v1/schedules/s", {"every": "2s", "target": to_queue()})
    assert other.receive("jobs", wait=3) == []
    one.patch("s", status="active")
    assert len(other.receive("jobs", max=1, wait=20)) == 1
    other.call("DELETE", "/v1/schedules/s", status=204)
    assert one.ask("GET", "/v1/schedules/s").status == 404


def test_each_time_is_fired_once(both_firing: Pair) -> None:
    one, other = both_firing
    one.create("jobs")
    names = [f"s{number}" for number in range(8)]
    for name in names:
        one.schedule(name, to_queue(message=name), cron="* * * * *", catchup=True)
    expected = 0
    for _ in range(3):
        advance(one, 600)
        advance(other, 300)
        expected += 15
    for name in names:
        until(partial(other.get, name), lambda found: found["fired_count"] >= expected)
        # Every minute there is another one.
        one.patch(name, status="paused")
    found: dict[str, list[str]] = {name: [] for name in names}
    while some := other.receive("jobs", max=100, vt=3_600):
        for message in some:
            found[message["message"]] += times([message])
    for name in names:
        schedule = one.get(name)
        assert len(found[name]) == len(set(found[name])) == schedule["fired_count"]

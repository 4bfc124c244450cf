"""/v1/previews over a socket: every form, what it comes to, and clocks that change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.faces.rest.schedule_client import Scheduling, to_queue
from tests.faces.scheduler_client import Scheduler
from tests.faces.servers import Server

BERLIN = "Europe/Berlin"
SPRING = "2027-03-26T12:00:00Z"
"""Before the night to the 28th, in which Berlin has no time from 02:00 to 03:00."""
AUTUMN = "2027-10-29T12:00:00Z"
"""Before the night to the 31st, in which Berlin has the time from 02:00 to 03:00 twice."""


@pytest.fixture
def rest(server: Server) -> Iterator[Scheduling]:
    with Scheduling(server.url) as client:
        yield client


@pytest.mark.parametrize(
    ("members", "canonical", "text", "fires"),
    [
        (
            {"cron": "0 9 * * 1-5", "timezone": BERLIN},
            {"cron": "0 9 * * 1-5", "timezone": BERLIN},
            "Every weekday at 09:00 (Europe/Berlin)",
            ["2030-01-01T08:00:00Z", "2030-01-02T08:00:00Z"],
        ),
        (
            {"cron": "@hourly"},
            {"cron": "0 * * * *", "timezone": "UTC"},
            "Every hour",
            ["2030-01-01T01:00:00Z", "2030-01-01T02:00:00Z"],
        ),
        (
            {"every": "15 minutes"},
            {"cron": "*/15 * * * *", "timezone": "UTC"},
            "Every 15 minutes",
            ["2030-01-01T00:15:00Z", "2030-01-01T00:30:00Z"],
        ),
        (
            {"every": "90s"},
            {"every_seconds": 90, "anchor": "2030-01-01T00:00:00Z"},
            "Every 90 seconds",
            ["2030-01-01T00:01:30Z", "2030-01-01T00:03:00Z"],
        ),
        (
            {"when": "every monday at 17:30", "timezone": "America/New_York"},
            {"cron": "30 17 * * 1", "timezone": "America/New_York"},
            "Every Monday at 17:30 (America/New_York)",
            ["2030-01-07T22:30:00Z", "2030-01-14T22:30:00Z"],
        ),
        (
            {"fire_at": "2030-06-01T09:00:00+02:00"},
            {"fire_at": "2030-06-01T07:00:00Z"},
            "Once at 2030-06-01 07:00:00 UTC",
            ["2030-06-01T07:00:00Z"],
        ),
        (
            {"fire_at": "2030-06-01T09:00:00", "timezone": BERLIN},
            {"fire_at": "2030-06-01T07:00:00Z"},
            "Once at 2030-06-01 07:00:00 UTC",
            ["2030-06-01T07:00:00Z"],
        ),
    ],
)
def test_what_an_expression_comes_to(
    rest: Scheduling, members: Any, canonical: Any, text: str, fires: list[str]
) -> None:
    preview = rest.preview(count=2, **members, **{"from": "2030-01-01T00:00:00Z"})
    assert preview == {"canonical": canonical, "human_readable": text, "next_fires": fires}


def test_without_a_start_the_times_follow_now(rest: Scheduling, server: Server) -> None:
    before = datetime.fromisoformat(server.now())
    fires = [datetime.fromisoformat(text) for text in rest.preview(cron="* * * * *")["next_fires"]]
    assert timedelta(0) < fires[0] - before <= timedelta(seconds=61)
    assert fires == [fires[0] + timedelta(minutes=n) for n in range(5)]
    assert rest.preview(every="5m", count=0)["next_fires"] == []
    assert len(rest.preview(every="5m", count=100)["next_fires"]) == 100
    assert rest.listed() == []


@pytest.mark.parametrize(
    ("cron", "start", "fires"),
    [
        # 02:30 does not exist on the 28th: it runs when the clock has been put forward.
        (
            "30 2 * * *",
            SPRING,
            ["2027-03-27T01:30:00Z", "2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"],
        ),
        # 02:30 comes twice on the 31st: it runs the first time.
        (
            "30 2 * * *",
            AUTUMN,
            ["2027-10-30T00:30:00Z", "2027-10-31T00:30:00Z", "2027-11-01T01:30:00Z"],
        ),
        # What runs every hour runs once in each hour that passes.
        (
            "30 * * * *",
            "2027-03-27T23:45:00Z",
            ["2027-03-28T00:30:00Z", "2027-03-28T01:30:00Z", "2027-03-28T02:30:00Z"],
        ),
        (
            "30 * * * *",
            "2027-10-30T23:45:00Z",
            ["2027-10-31T00:30:00Z", "2027-10-31T01:30:00Z", "2027-10-31T02:30:00Z"],
        ),
        # Nine o'clock stays nine o'clock.
        (
            "0 9 * * *",
            SPRING,
            ["2027-03-27T08:00:00Z", "2027-03-28T07:00:00Z", "2027-03-29T07:00:00Z"],
        ),
    ],
)
def test_clocks_that_change(rest: Scheduling, cron: str, start: str, fires: list[str]) -> None:
    preview = rest.preview(cron=cron, timezone=BERLIN, count=3, **{"from": start})
    assert preview["next_fires"] == fires


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({}, "One of cron, every, when and fire_at is required: cron such as 0 9 * * "),
        ({"cron": "@daily", "every": "5m"}, "Only one of cron, every, when and fire_at is allowed"),
        ({"cron": "0 9 *"}, "A cron expression has five fields (minute, hour, day of month, mont"),
        ({"cron": "0 0 30 2 *"}, "Cron expression '0 0 30 2 *' never fires: none of its months h"),
        ({"every": "soon"}, "every: 'soon' is not understood; write a number and a unit"),
        ({"when": "now and then"}, "when: 'now and then' is not understood. Nearest to it are "),
        ({"fire_at": "noon"}, "fire_at: 'noon' is no instant; write it as 2026-12-01T09:00:00Z"),
        ({"fire_at": "2000-01-01T00:00:00Z"}, "fire_at: 2000-01-01T00:00:00Z is in the past; now"),
        ({"cron": "@daily", "timezone": "Mars"}, "Unknown timezone 'Mars': use an IANA name such"),
        ({"cron": "@daily", "count": 101}, "The field `count` is refused: "),
        ({"cron": "@daily", "from": "2030-01-01T00:00:00"}, "The field `from` is refused: "),
        ({"cron": "@daily", "form": 1}, "The field `form` is not known. Known are `cron`, `every`"),
        ({"cron": 5}, "The field `cron` is refused: expected a string, got a whole numb"),
    ],
)
def test_what_is_not_understood_is_refused(rest: Scheduling, members: Any, text: str) -> None:
    assert rest.refusal("POST", "/v1/previews", members).startswith(text)


def test_next_times_of_both_apis_are_listed_by_time(rest: Scheduling) -> None:
    assert rest.call("GET", "/v1/fires")["fires"] == []
    rest.create("jobs")
    rest.schedule("hourly", to_queue("jobs"), every="1 hour")
    rest.schedule("paused", to_queue("jobs"), status="paused")
    with closing(Scheduler(rest.url, rest.account)) as aws:
        now = datetime.fromisoformat(rest.call("GET", "/v1/fires")["now"])
        end = now + timedelta(minutes=25)
        aws.create("often", ScheduleExpression="rate(10 minutes)", EndDate=end,
                   Target=aws.target(aws.queue_arn("jobs")))  # fmt: skip
        found = rest.call("GET", "/v1/fires")
        times = [datetime.fromisoformat(one["at"]) for one in found["fires"]]
        assert times == sorted(times)
        assert all(at >= now - timedelta(seconds=1) for at in times)
        names = [(one["schedule"], one["group"]) for one in found["fires"]]
        assert {*names} == {("hourly", None), ("often", "default")}
        assert 2 <= names.count(("often", "default")) <= 3
        hourly = rest.get("hourly")["next_fires"]
        assert [one["at"] for one in found["fires"] if one["schedule"] == "hourly"] == hourly
        aws.call("delete_schedule", Name="often")

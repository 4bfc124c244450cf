"""Schedules that fire, with the clock moved: into queues and events, late, failing, by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.faces.clients import Sqs
from tests.faces.rest.schedule_client import Scheduling, times, to_queue, to_topic
from tests.faces.servers import Server
from tests.faces.web_hooks import WebHook

HOUR = 3600


@pytest.fixture
def rest(server: Server) -> Iterator[Scheduling]:
    """The hour has just begun: none ends by itself during a test."""
    now = instant(server.now())
    server.advance(HOUR - (now.minute * 60 + now.second) + 1)
    with Scheduling(server.url) as client:
        client.create("jobs")
        yield client


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def until(server: Server, text: str, *, seconds: float = 1) -> None:
    """Move the clock to so many seconds after this time."""
    server.advance((instant(text) - instant(server.now())).total_seconds() + seconds)


def later(text: str, hours: int) -> str:
    found = instant(text) + timedelta(hours=hours)
    return found.astimezone(UTC).isoformat().replace("+00:00", "Z")


def hours_from(first: str, count: int) -> list[str]:
    return [later(first, number) for number in range(count)]


def test_a_message_is_fired_at_its_time(rest: Scheduling, server: Server) -> None:
    target = to_queue("jobs", {"report": "sales"}, headers={"priority": 5, "tags": ["a"]})
    created = rest.schedule("hourly", target)
    until(server, created["next_fires"][0])
    [message] = rest.fired("jobs", 1)
    assert message["message"] == {"report": "sales"}
    assert message["headers"] == {
        "priority": 5,
        "tags": ["a"],
        "_schedule": {
            "name": "hourly",
            "scheduled_for": created["next_fires"][0],
            "out_of_band": False,
        },
    }
    after = rest.until("hourly", fired_count=1)
    assert after["next_fires"][:4] == created["next_fires"][1:]
    fired_at = instant(after["last_fired_at"])
    assert timedelta(0) <= fired_at - instant(created["next_fires"][0]) < timedelta(seconds=60)
    assert (after["failure_count"], after["last_error"], after["skipped_count"]) == (0, None, 0)
    assert after["updated_at"] == created["updated_at"]


def test_a_receiver_over_sqs_sees_an_attribute(rest: Scheduling, server: Server) -> None:
    created = rest.schedule("hourly", to_queue("jobs", [1, 2], headers={"n": 1}))
    until(server, created["next_fires"][0])
    with Sqs("json", server.url, rest.account) as sqs:
        url = sqs.url_of("jobs")
        [message] = sqs.receive(url, WaitTimeSeconds=20, MessageAttributeNames=["All"])
    assert json.loads(message["Body"]) == [1, 2]
    attributes = message["MessageAttributes"]
    assert attributes["n"] == {"DataType": "Number", "StringValue": "1"}
    assert attributes["_schedule"]["DataType"] == "String.json"
    assert json.loads(attributes["_schedule"]["StringValue"])["name"] == "hourly"


def test_delays_and_groups_are_those_of_the_target(rest: Scheduling, server: Server) -> None:
    rest.create("bills.fifo")
    created = rest.schedule("late", to_queue("jobs", delay=600))
    rest.schedule("bill", to_queue("bills", group_id="g"))
    until(server, created["next_fires"][0])
    [bill] = rest.fired("bills", 1)
    assert bill["group_id"] == "g"
    rest.until("late", fired_count=1)
    assert rest.receive("jobs") == []
    server.advance(600)
    assert times(rest.fired("jobs", 1)) == created["next_fires"][:1]


@pytest.mark.parametrize("attributes", [{}, {"ContentBasedDeduplication": "true"}])
def test_a_fifo_queue_gets_each_time_in_order(
    rest: Scheduling, server: Server, attributes: dict[str, str]
) -> None:
    with Sqs("json", server.url, rest.account) as sqs:
        sqs.create("bills.fifo", FifoQueue="true", **attributes)
    target = to_queue("bills", group_id="g")
    created = rest.schedule("bill", target, cron="* * * * *", catchup=True)
    until(server, created["next_fires"][3])
    found = rest.fired("bills", 4)
    assert times(found) == created["next_fires"][:4]


def test_an_event_goes_to_all_who_subscribed(rest: Scheduling, server: Server) -> None:
    rest.create("copies")
    with WebHook() as hook:
        for pattern, subscription in (
            ("orders.%23", {"queue_name": "jobs"}),
            ("orders.late", {"queue_name": "copies"}),
            ("*.late", {"protocol": "http", "endpoint": hook.url}),
        ):
            path = f"/v1/events/{pattern}/subscriptions"
            rest.call("POST", path, subscription, status=201)
        target = to_topic("orders.late", {"days": 3}, headers={"region": "eu"})
        created = rest.schedule("check", target)
        until(server, created["next_fires"][0])
        posted = hook.next()
        assert json.loads(posted.body) == {"days": 3}
        for queue in ("jobs", "copies"):
            [message] = rest.fired(queue, 1)
            assert message["message"] == {"days": 3}
            assert message["headers"]["region"] == "eu"
            assert message["headers"]["_schedule"]["name"] == "check"
        run = rest.call("POST", "/v1/schedules/check/runs", status=202)
        assert json.loads(hook.next().body) == {"days": 3}
    assert sorted(copy["queue"] for copy in run["messages"]) == ["copies", "jobs"]
    assert len(run["msg_ids"]) == 2


def test_an_event_that_nobody_wants_is_no_failure(rest: Scheduling, server: Server) -> None:
    created = rest.schedule("check", to_topic("nobody.cares"))
    until(server, created["next_fires"][0])
    after = rest.until("check", fired_count=1)
    assert (after["failure_count"], after["last_error"]) == (0, None)
    run = rest.call("POST", "/v1/schedules/check/runs", status=202)
    assert run["msg_ids"] == []


def test_missed_times_are_one_time(rest: Scheduling, server: Server) -> None:
    first = rest.schedule("hourly", to_queue())["next_fires"][0]
    until(server, later(first, 9))
    assert times(rest.fired("jobs", 1)) == [first]
    after = rest.until("hourly", fired_count=1)
    assert after["next_fires"][0] == later(first, 10)
    assert rest.receive("jobs") == []


def test_missed_times_are_made_up_for_in_order(rest: Scheduling, server: Server) -> None:
    first = rest.schedule("hourly", to_queue(), catchup=True)["next_fires"][0]
    until(server, later(first, 9))
    found = rest.fired("jobs", 10)
    assert sorted(times(found)) == hours_from(first, 10)
    by_id = sorted(found, key=lambda message: int(message["id"]))
    assert times(by_id) == hours_from(first, 10)
    assert rest.until("hourly", fired_count=10)["next_fires"][0] == later(first, 10)


def test_only_so_many_missed_times_are_made_up_for(rest: Scheduling, server: Server) -> None:
    created = rest.schedule("hourly", to_queue(), catchup=True, catchup_limit=3)
    first = created["next_fires"][0]
    until(server, later(first, 9))
    assert sorted(times(rest.fired("jobs", 3))) == hours_from(first, 3)
    after = rest.until("hourly", fired_count=3)
    assert after["skipped_count"] == 7
    assert after["next_fires"][0] == later(first, 10)
    assert rest.receive("jobs") == []


def test_a_single_time_is_fired_once_and_the_schedule_goes(
    rest: Scheduling, server: Server
) -> None:
    fire_at = (instant(server.now()) + timedelta(hours=1)).isoformat()
    body = {"fire_at": fire_at, "target": to_queue()}
    created = rest.call("PUT", "/v1/schedules/once", body, status=201)
    assert created["fire_at"] == fire_at
    assert len(created["next_fires"]) == 1
    until(server, fire_at)
    [message] = rest.fired("jobs", 1)
    assert instant(message["headers"]["_schedule"]["scheduled_for"]) == instant(fire_at)
    rest.until_deleted("once")
    # Who puts all schedules every few seconds does not bring it back.
    text = rest.refusal("PUT", "/v1/schedules/once", body)
    assert text == "This would never fire: its time has passed."
    assert rest.listed() == []
    assert rest.receive("jobs") == []


def test_failures_pause_a_schedule_until_it_is_resumed(rest: Scheduling, server: Server) -> None:
    rest.create("fragile")
    created = rest.schedule("hourly", to_queue("fragile"), failure_threshold=2)
    first = created["next_fires"][0]
    rest.call("DELETE", "/v1/queues/fragile", status=204)
    until(server, first)
    failed = rest.until("hourly", failure_count=1)
    assert (failed["status"], failed["fired_count"], failed["last_fired_at"]) == ("active", 0, None)
    assert failed["last_error"] == "The specified queue does not exist."
    assert failed["next_fires"][0] == later(first, 1)
    body = {"cron": "0 * * * *", "target": to_queue("fragile"), "failure_threshold": 2}
    rest.refusal("PUT", "/v1/schedules/hourly", body, status=404)
    until(server, later(first, 1))
    paused = rest.until("hourly", status="paused")
    assert (paused["failure_count"], paused["next_fires"]) == (2, [])
    text = rest.refusal("POST", "/v1/schedules/hourly/runs")
    assert text == "The schedule cannot be run: The specified queue does not exist."

    rest.create("fragile")
    until(server, later(first, 5))
    resumed = rest.patch("hourly", status="active")
    assert (resumed["status"], resumed["failure_count"]) == ("active", 0)
    assert resumed["next_fires"][0] == later(first, 6)
    until(server, later(first, 6))
    assert times(rest.fired("fragile", 1)) == [later(first, 6)]


def test_a_success_ends_a_row_of_failures(rest: Scheduling, server: Server) -> None:
    rest.create("fragile")
    created = rest.schedule("hourly", to_queue("fragile"), failure_threshold=2)
    first = created["next_fires"][0]
    rest.call("DELETE", "/v1/queues/fragile", status=204)
    until(server, first)
    rest.until("hourly", failure_count=1)
    rest.create("fragile")
    until(server, later(first, 1))
    rest.until("hourly", failure_count=0, fired_count=1, last_error=None)


def test_without_a_threshold_a_failing_schedule_goes_on(rest: Scheduling, server: Server) -> None:
    rest.create("fragile")
    created = rest.schedule("hourly", to_queue("fragile"), failure_threshold=None)
    rest.call("DELETE", "/v1/queues/fragile", status=204)
    for count in range(1, 13):
        until(server, later(created["next_fires"][0], count))
        assert rest.until("hourly", failure_count=count)["status"] == "active"


def test_a_single_time_that_failed_can_be_made_up_for(rest: Scheduling, server: Server) -> None:
    rest.create("fragile")
    fire_at = (instant(server.now()) + timedelta(hours=1)).isoformat()
    rest.schedule("once", to_queue("fragile"), fire_at=fire_at)
    rest.call("DELETE", "/v1/queues/fragile", status=204)
    until(server, fire_at)
    paused = rest.until("once", status="paused")
    assert paused["last_error"] == "The specified queue does not exist."
    rest.create("fragile")
    text = rest.refusal("PATCH", "/v1/schedules/once", {"status": "active"})
    assert text.endswith("or set catchup to true for it to fire now.")
    rest.patch("once", status="active", catchup=True)
    [message] = rest.fired("fragile", 1)
    assert instant(message["headers"]["_schedule"]["scheduled_for"]) == instant(fire_at)
    rest.until_deleted("once")


def test_a_paused_schedule_does_not_fire(rest: Scheduling, server: Server) -> None:
    first = rest.schedule("hourly", to_queue())["next_fires"][0]
    rest.schedule("other", to_queue(message="other"))
    rest.patch("hourly", status="paused")
    until(server, later(first, 3))
    [message] = rest.fired("jobs", 1)
    assert message["message"] == "other"
    assert rest.patch("hourly", status="active")["next_fires"][0] == later(first, 4)
    until(server, later(first, 4))
    assert times(rest.fired("jobs", 2)) == [later(first, 4)] * 2


def test_a_resumed_schedule_that_catches_up_fires_for_its_pause(
    rest: Scheduling, server: Server
) -> None:
    first = rest.schedule("hourly", to_queue(), catchup=True)["next_fires"][0]
    rest.patch("hourly", status="paused")
    until(server, later(first, 3))
    rest.patch("hourly", status="active")
    assert sorted(times(rest.fired("jobs", 4))) == hours_from(first, 4)


def test_a_run_by_hand_leaves_the_schedule_alone(rest: Scheduling, server: Server) -> None:
    created = rest.schedule("hourly", to_queue("jobs", {"a": 1}))
    run = rest.call("POST", "/v1/schedules/hourly/runs", status=202)
    assert set(run) == {"id", "schedule", "msg_ids", "messages", "scheduled_for", "out_of_band"}
    assert (run["schedule"], run["out_of_band"]) == ("hourly", True)
    assert UUID(run["id"])
    [message] = rest.fired("jobs", 1)
    assert run["msg_ids"] == [message["id"]]
    assert run["messages"] == [{"queue": "jobs", "id": message["id"]}]
    assert message["headers"]["_schedule"] == {
        "name": "hourly",
        "scheduled_for": run["scheduled_for"],
        "out_of_band": True,
    }
    assert rest.get("hourly") == created
    paused = rest.patch("hourly", status="paused")
    rest.call("POST", "/v1/schedules/hourly/runs", status=202)
    assert len(rest.fired("jobs", 1)) == 1
    assert rest.get("hourly") == paused


def test_runs_by_hand_are_never_duplicates(rest: Scheduling) -> None:
    rest.create("bills.fifo")
    rest.schedule("bill", to_queue("bills", group_id="g"))
    runs = [rest.call("POST", "/v1/schedules/bill/runs", status=202) for _ in range(3)]
    assert len({run["msg_ids"][0] for run in runs}) == 3
    assert len(rest.fired("bills", 3)) == 3


def test_the_archive_is_the_log_of_what_was_fired(rest: Scheduling, server: Server) -> None:
    rest.create("kept", archive=True)
    created = rest.schedule("hourly", to_queue("kept"))
    rest.schedule("other", to_queue("kept"))
    until(server, created["next_fires"][0])
    run = rest.call("POST", "/v1/schedules/hourly/runs", status=202)
    rest.fired("kept", 3)
    found = rest.call("GET", "/v1/queues/kept/archive?schedule=hourly")
    logged: list[Any] = [message["headers"]["_schedule"] for message in found]
    assert sorted((one["out_of_band"], one["scheduled_for"]) for one in logged) == [
        (False, created["next_fires"][0]),
        (True, run["scheduled_for"]),
    ]


def test_a_put_of_a_target_counts_from_the_next_time(rest: Scheduling, server: Server) -> None:
    body = {"cron": "0 * * * *", "target": to_queue("jobs", "old")}
    first = rest.call("PUT", "/v1/schedules/s", body, status=201)["next_fires"][0]
    rest.call("PUT", "/v1/schedules/s", {**body, "target": to_queue("jobs", "new")})
    until(server, first)
    [message] = rest.fired("jobs", 1)
    assert (message["message"], times([message])) == ("new", [first])


def test_a_deleted_schedule_does_not_fire(rest: Scheduling, server: Server) -> None:
    first = rest.schedule("gone", to_queue(message="gone"))["next_fires"][0]
    rest.schedule("other", to_queue(message="other"))
    rest.call("DELETE", "/v1/schedules/gone", status=204)
    until(server, first)
    assert [message["message"] for message in rest.fired("jobs", 1)] == ["other"]
    assert rest.receive("jobs") == []

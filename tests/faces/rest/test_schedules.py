"""/v1/schedules over a socket: what is written is read back, put again, patched, listed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.faces.connections import fetch
from tests.faces.rest.client import ABSENT
from tests.faces.rest.schedule_client import Scheduling, to_queue, to_topic
from tests.faces.servers import Server

COMPUTED = {
    "canonical",
    "human_readable",
    "next_fire_at",
    "next_fires",
    "failure_count",
    "last_error",
    "last_fired_at",
    "fired_count",
    "skipped_count",
    "created_at",
    "updated_at",
}


@pytest.fixture
def rest(server: Server) -> Iterator[Scheduling]:
    with Scheduling(server.url) as client:
        client.create("jobs")
        yield client


def written(schedule: Any) -> Any:
    """Return the members of a schedule that its author wrote."""
    return {name: value for name, value in schedule.items() if name not in COMPUTED}


WHOLE = {
    "name": "nightly-report_1.0",
    "when": "every weekday at 9am",
    "timezone": "Europe/Berlin",
    "target": to_queue(
        "jobs",
        {"report": ["sales", 1.50, None]},
        headers={"priority": 5, "deep": {"a": []}, "empty": "", "is": True, "not": None},
        delay=3,
    ),
    "catchup": True,
    "catchup_limit": 7,
    "failure_threshold": None,
    "status": "paused",
}


def test_a_schedule_is_read_back_as_it_was_written(rest: Scheduling) -> None:
    answer = rest.ask("POST", "/v1/schedules", WHOLE)
    assert answer.status == 201, answer.text
    assert answer.headers["location"] == "/v1/schedules/nightly-report_1.0"
    created = json.loads(answer.body)
    assert written(created) == WHOLE
    assert set(created) == set(WHOLE) | COMPUTED
    found = rest.call("GET", answer.headers["location"])
    assert found == created
    [listed] = rest.listed()
    assert listed == {name: value for name, value in found.items() if name != "next_fires"}


def test_the_text_of_a_message_stays(rest: Scheduling) -> None:
    body = (
        b'{"name":"raw","every":"1h","target":{"kind":"queue","queue_name":"jobs",'
        b'"message":{"b" : 1.10, "a":"\\u00e9\xc3\xa9"},"headers":{"n":1.50e2}}}'
    )
    answer = rest.ask("POST", "/v1/schedules", raw=body)
    assert answer.status == 201, answer.text
    assert b'"message":{"b" : 1.10, "a":"\\u00e9\xc3\xa9"}' in answer.body
    assert b'"headers":{"n":1.50e2}' in answer.body


def test_what_is_not_said_has_its_default(rest: Scheduling) -> None:
    created = rest.schedule("plain", to_topic(), every="1h")
    assert written(created) == {
        "name": "plain",
        "every": "1h",
        "timezone": "UTC",
        "target": to_topic(),
        "catchup": False,
        "catchup_limit": 100,
        "failure_threshold": 10,
        "status": "active",
    }
    assert len(created["next_fires"]) == 5
    assert created["next_fire_at"] == created["next_fires"][0]
    assert (created["fired_count"], created["failure_count"]) == (0, 0)
    assert (created["last_error"], created["last_fired_at"]) == (None, None)


def test_a_taken_name_is_refused(rest: Scheduling) -> None:
    rest.schedule("once-only", to_queue())
    body = {"name": "once-only", "every": "5m", "target": to_topic()}
    text = rest.refusal("POST", "/v1/schedules", body, status=409)
    assert text == ("Schedule 'once-only' exists. PUT /v1/schedules/once-only replaces it.")
    assert rest.get("once-only")["cron"] == "0 * * * *"
    rest.call("DELETE", "/v1/schedules/once-only", status=204)
    assert rest.call("POST", "/v1/schedules", body, status=201)["every"] == "5m"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"every": ABSENT},
            "One of cron, every, when and fire_at is required: cron such",
        ),
        ({"cron": "* * * * *"}, "Only one of cron, every, when and fire_at is allowed,"),
        ({"every": "soon"}, "every: 'soon' is not understood; write a number and a unit"),
        ({"every": 5}, "The field `every` is refused: expected a string"),
        ({"timezone": "Mars/Olympus"}, "Unknown timezone 'Mars/Olympus'"),
        ({"name": "a b"}, "The name of a schedule is 1 to 128 letters"),
        ({"catchup_limit": 0}, "The field `catchup_limit` is refused: allowed is 1 to 1000."),
        ({"catchup_limit": 1_001}, "The field `catchup_limit` is refused: "),
        ({"catchup": "yes"}, "The field `catchup` is refused: expected true or false"),
        ({"failure_threshold": 0}, "The field `failure_threshold` is refused: "),
        ({"status": "on"}, "The field `status` is refused: allowed is active or paused."),
        ({"statsu": "paused"}, "The field `statsu` is not known. Known are `cron`, `every`"),
        ({"target": None}, "The field `target` is refused: expected an object"),
        ({"target": {"kind": "queue"}}, "The field `queue_name` of `target` is missing."),
        ({"target": {"queue_name": "jobs"}}, "The field `kind` of `target` is missing."),
        ({"target": {"kind": "lambda"}}, "The field `kind` of `target` is refused: allowed is qu"),
        (
            {"target": to_topic(queue_name="jobs")},
            "The field `queue_name` of `target` is not known. Known are with `kind` queue "
            "`queue_name`, `message`, `headers`, `delay`, `group_id`, `deduplication_id`; with "
            "`kind` topic `routing_key`, `message`, `headers`.",
        ),
        ({"target": {"kind": "workflow", "name": "w"}}, "There are no workflows yet that a sch"),
        ({"target": to_queue(delay=901)}, "The field `delay` of `target` is refused: "),
        ({"target": to_queue(headers={"_schedule": 1})}, "The header _schedule is added when"),
        ({"target": to_queue(headers={"AWS.x": 1})}, "The header name `AWS.x` is refused: what"),
        ({"target": to_queue(deduplication_id="once")}, "deduplication_id is for FIFO queues, 'j"),
        ({"target": to_topic("orders.*")}, "The routing key is not valid: it has other char"),
        ({"target": to_topic("orders..late")}, "The routing key is not valid: there is nothing"),
        ({"target": to_topic(headers={"a^b": 1})}, "The header name `a^b` is refused: allowed a"),
        ({"target": to_topic(message="x" * 262_144)}, "The message and its headers have 262"),
    ],
)
def test_what_is_wrong_is_said(rest: Scheduling, changes: Any, text: str) -> None:
    body = {"name": "new", "every": "5m", "target": to_queue()} | changes
    body = {name: value for name, value in body.items() if value is not ABSENT}
    refusal = rest.refusal("POST", "/v1/schedules", body)
    assert refusal.startswith(text)
    assert rest.listed() == []
    if "name" not in changes:
        assert rest.refusal("PUT", "/v1/schedules/new", body) == refusal


def test_a_queue_must_be_there(rest: Scheduling) -> None:
    body = {"name": "new", "every": "5m", "target": to_queue("nowhere")}
    for method, path in (("POST", ""), ("PUT", "/new")):
        text = rest.refusal(method, f"/v1/schedules{path}", body, status=404)
        assert text == "Queue 'nowhere' does not exist"
    rest.schedule("new", to_queue())
    patch = {"target": to_queue("nowhere")}
    rest.refusal("PATCH", "/v1/schedules/new", patch, status=404)
    assert rest.get("new")["target"] == to_queue()


def test_what_is_not_there(rest: Scheduling) -> None:
    for method, path, body in (
        ("GET", "", ABSENT),
        ("PATCH", "", {}),
        ("POST", "/runs", ABSENT),
    ):
        text = rest.refusal(method, f"/v1/schedules/nothing{path}", body, status=404)
        assert text == "Schedule 'nothing' does not exist"
    rest.call("DELETE", "/v1/schedules/nothing", status=204)
    text = rest.refusal("DELETE", "/v1/schedules/no%20name%2F%C3%A4")
    assert text.startswith("The name of a schedule is 1 to 128 letters")


def test_methods_and_credentials(rest: Scheduling, server: Server) -> None:
    answer = rest.ask("PUT", "/v1/schedules", {})
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS, POST")
    answer = rest.ask("POST", "/v1/schedules/x", {})
    assert answer.headers["allow"] == "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"
    for path in ("/v1/schedules", "/v1/schedules/x"):
        assert fetch(server.url, path).status == 403
    assert fetch(server.url, "/v1/previews", "POST", b'{"every":"5m"}').status == 403


def test_accounts_and_regions_are_apart(rest: Scheduling) -> None:
    rest.schedule("mine", to_queue())
    with Scheduling(rest.url, rest.account, "eu-west-1") as elsewhere:
        assert elsewhere.listed() == []
        assert elsewhere.ask("GET", "/v1/schedules/mine").status == 404
        body = {"name": "mine", "every": "5m", "target": to_queue()}
        assert elsewhere.refusal("POST", "/v1/schedules", body, status=404)
        elsewhere.ask("DELETE", "/v1/schedules/mine")
    assert rest.get("mine")


def test_put_again_changes_nothing(rest: Scheduling, server: Server) -> None:
    body = {"every": "7 minutes", "target": to_queue(headers={"b": 1, "a": [1.0]})}
    answer = rest.ask("PUT", "/v1/schedules/sync", body)
    assert (answer.status, answer.headers["location"]) == (201, "/v1/schedules/sync")
    first = json.loads(answer.body)
    server.advance(150)
    for again in (body, {"name": "sync", **body}, {**body, "status": "active"}):
        assert rest.call("PUT", "/v1/schedules/sync", again) == first
    text = rest.refusal("PUT", "/v1/schedules/sync", {"name": "other", **body})
    assert text.startswith("The name in the body is 'other', the one in the path is 'sync'.")


def test_put_of_another_message_keeps_the_times(rest: Scheduling, server: Server) -> None:
    body = {"every": "7 minutes", "target": to_queue()}
    first = rest.call("PUT", "/v1/schedules/sync", body, status=201)
    server.advance(150)
    second = rest.call("PUT", "/v1/schedules/sync", {**body, "target": to_topic()})
    assert second["target"] == to_topic()
    assert second["next_fires"] == first["next_fires"]
    assert second["created_at"] == first["created_at"]
    third = rest.call("PUT", "/v1/schedules/sync", {**body, "every": "8 minutes"})
    assert third["next_fires"] != first["next_fires"]


def test_put_without_status_leaves_a_paused_one_paused(rest: Scheduling) -> None:
    body = {"every": "7 minutes", "target": to_queue()}
    first = rest.call("PUT", "/v1/schedules/sync", body, status=201)
    rest.patch("sync", status="paused")
    put = rest.call("PUT", "/v1/schedules/sync", {**body, "catchup": True})
    assert (put["status"], put["catchup"], put["next_fires"]) == ("paused", True, [])
    assert put["next_fire_at"] == first["next_fire_at"]
    put = rest.call("PUT", "/v1/schedules/sync", {**body, "status": "active"})
    assert (put["status"], put["next_fires"]) == ("active", first["next_fires"])


def test_patch_changes_what_it_names(rest: Scheduling) -> None:
    before = rest.schedule("p", to_queue(), when="every day at 9am")
    assert rest.patch("p") == before
    after = rest.patch("p", catchup=True, catchup_limit=5, failure_threshold=None)
    assert written(after) == written(before) | {
        "catchup": True,
        "catchup_limit": 5,
        "failure_threshold": None,
    }
    assert after["next_fires"] == before["next_fires"]
    zoned = rest.patch("p", timezone="America/New_York")
    assert (zoned["when"], zoned["timezone"]) == ("every day at 9am", "America/New_York")
    assert zoned["canonical"] == {"cron": "0 9 * * *", "timezone": "America/New_York"}
    other = rest.patch("p", every="90 seconds", target=to_topic())
    assert other["canonical"]["every_seconds"] == 90
    assert "when" not in other
    assert other["target"] == to_topic()


@pytest.mark.parametrize(
    ("patch", "text"),
    [
        (
            {"cron": "* * * * *", "every": "5m"},
            "Only one of cron, every, when and fire_at is allowed",
        ),
        ({"cron": None}, "The field `cron` is refused: expected a string"),
        ({"cron": "* * *"}, "A cron expression has five fields"),
        ({"name": "q"}, "The field `name` is not known."),
        ({"status": None}, "The field `status` is refused"),
        ({"target": {"kind": "workflow"}}, "There are no workflows yet"),
        ({"catchup": True, "timezone": "?"}, "Unknown timezone '?'"),
    ],
)
def test_a_patch_that_is_refused_changes_nothing(rest: Scheduling, patch: Any, text: str) -> None:
    before = rest.schedule("p", to_queue())
    assert rest.refusal("PATCH", "/v1/schedules/p", patch).startswith(text)
    assert rest.get("p") == before


def test_lists_are_filtered_and_lead_on(rest: Scheduling) -> None:
    for name in ("b-1", "a-1", "a-2"):
        rest.schedule(name, to_queue())
    rest.schedule("a-3", to_topic(), status="paused")

    def names(**query: Any) -> list[str]:
        return [schedule["name"] for schedule in rest.listed(**query)]

    assert names() == ["a-1", "a-2", "a-3", "b-1"]
    assert names(name_prefix="a-") == ["a-1", "a-2", "a-3"]
    assert names(name_prefix="%25") == []
    assert names(status="active", name_prefix="a-") == ["a-1", "a-2"]
    assert names(status="active", target_kind="topic") == []
    assert names(target_kind="topic") == ["a-3"]
    assert names(target_kind="workflow") == []
    assert names(after="a-2") == ["a-3", "b-1"]
    answer = rest.ask("GET", "/v1/schedules?limit=1&name_prefix=a-&status=active")
    assert [schedule["name"] for schedule in json.loads(answer.body)] == ["a-1"]
    link = "/v1/schedules?status=active&name_prefix=a-&limit=1&after=a-1"
    assert answer.headers["link"] == f'<{link}>; rel="next"'
    answer = rest.ask("GET", link)
    assert [schedule["name"] for schedule in json.loads(answer.body)] == ["a-2"]
    assert "link" not in answer.headers
    for query in ("status=on", "target_kind=lambda", "limit=0", "limit=x", "colour=red"):
        rest.refusal("GET", f"/v1/schedules?{query}")


def test_a_list_has_a_cap() -> None:
    with (
        Server(QUEUE_SCHEDULE_LIST_MAX="3", QUEUE_SCHEDULE_PREVIEW_COUNT="2") as server,
        Scheduling(server.url) as rest,
    ):
        for name in "abcd":
            created = rest.schedule(name, to_topic())
            assert len(created["next_fires"]) == 2
        answer = rest.ask("GET", "/v1/schedules?limit=100")
        assert [schedule["name"] for schedule in json.loads(answer.body)] == ["a", "b", "c"]
        assert answer.headers["link"] == '</v1/schedules?limit=100&after=c>; rel="next"'
        assert [schedule["name"] for schedule in rest.listed(after="c")] == ["d"]
        assert len(rest.preview(every="5m")["next_fires"]) == 2
        rest.call("DELETE", "/v1/schedules/a", status=204)

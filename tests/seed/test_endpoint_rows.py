"""Every row of the seed's endpoints (docs/seeds.md 1.2): method, path, status and body."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from tests.faces.connections import fetch, request_bytes
from tests.faces.rest.client import Rest
from tests.faces.web_hooks import WebHook
from tests.seed.gateways import SharedServer
from tests.seed.rows import Table

endpoint = Table(
    "POST /v1/queues",
    "GET /v1/queues",
    "GET /v1/queues/{name}",
    "DELETE /v1/queues/{name}",
    "POST /v1/queues/{name}/purge",
    "POST /v1/queues/{name}/messages",
    "GET /v1/queues/{name}/messages",
    "DELETE /v1/queues/{name}/messages",
    "DELETE /v1/queues/{name}/messages/{id}",
    "PATCH /v1/queues/{name}/messages/{id}",
    "POST /v1/events/{routing_key}",
    "POST /v1/events/{pattern}/subscriptions",
    "GET /v1/events/{pattern}/subscriptions",
    "DELETE /v1/events/{pattern}/subscriptions/{id}",
    "GET /v1/queues/{name}/subscriptions",
    "POST /v1/schedules",
    "GET /v1/schedules",
    "GET /v1/schedules/{name}",
    "PUT /v1/schedules/{name}",
    "PATCH /v1/schedules/{name}",
    "DELETE /v1/schedules/{name}",
    "POST /v1/schedules/{name}/runs",
    "POST /v1/previews",
    "GET /v1/openapi.json",
    "GET /v1/cert",
    "GET /SimpleNotificationService.pem",
    "GET /metrics",
)

endpoint.linked(
    "tests/faces/rest/test_queues.py",
    {
        "POST /v1/queues": "test_fifo_queues_have_the_suffix",
        "GET /v1/queues/{name}": "test_the_numbers_of_a_queue",
        "DELETE /v1/queues/{name}": "test_a_deleted_queue_is_gone_and_its_name_free",
        "POST /v1/queues/{name}/purge": "test_purging_counts_and_has_no_minute_to_wait",
    },
)
endpoint.linked(
    "tests/faces/rest/test_messages.py",
    {
        "DELETE /v1/queues/{name}/messages": "test_deleting_many_names_those_that_were_there",
        "DELETE /v1/queues/{name}/messages/{id}": "test_deleting_one",
        "PATCH /v1/queues/{name}/messages/{id}": "test_hiding_longer_and_showing_again",
    },
)
endpoint.linked(
    "tests/faces/rest/test_events.py",
    {
        "GET /v1/events/{pattern}/subscriptions": "test_subscriptions_come_in_pages",
        "DELETE /v1/events/{pattern}/subscriptions/{id}": (
            "test_location_leads_to_what_can_be_deleted"
        ),
        "GET /v1/queues/{name}/subscriptions": "test_a_queue_lists_patterns_and_topics_of_sns",
    },
)
endpoint.linked(
    "tests/faces/rest/test_schedules.py",
    {
        "POST /v1/schedules": "test_a_schedule_is_read_back_as_it_was_written",
        "GET /v1/schedules": "test_lists_are_filtered_and_lead_on",
        "PUT /v1/schedules/{name}": "test_put_again_changes_nothing",
        "PATCH /v1/schedules/{name}": "test_put_without_status_leaves_a_paused_one_paused",
    },
)
endpoint.linked(
    "tests/faces/rest/test_schedules_firing.py",
    {
        "DELETE /v1/schedules/{name}": "test_a_deleted_schedule_does_not_fire",
        "POST /v1/schedules/{name}/runs": "test_a_run_by_hand_leaves_the_schedule_alone",
    },
)
endpoint.linked(
    "tests/faces/rest/test_previews.py", {"POST /v1/previews": "test_what_an_expression_comes_to"}
)
endpoint.linked(
    "tests/faces/test_certificates.py",
    dict.fromkeys(
        ("GET /v1/cert", "GET /SimpleNotificationService.pem"),
        "test_the_certificate_is_served_to_anybody",
    ),
)

OPEN_ROWS = (
    "GET /v1/openapi.json",
    "GET /v1/cert",
    "GET /SimpleNotificationService.pem",
    "GET /metrics",
)
"""Those that take no credentials."""

MISSING = {"error": "Queue 'nowhere' does not exist"}
TO_QUEUE = {"kind": "queue", "queue_name": "jobs", "message": {"a": 1}}
HOURLY = {"cron": "0 * * * *", "target": TO_QUEUE}


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


@endpoint("GET /v1/queues")
def test_list_queues(rest: Rest) -> None:
    assert rest.call("GET", "/v1/queues") == []
    rest.create("jobs")
    [shown] = rest.call("GET", "/v1/queues")
    facts = (shown["name"], shown["is_partitioned"], shown["is_unlogged"])
    assert facts == ("jobs", False, False)
    assert at(shown["created_at"]).tzinfo is not None


@endpoint("POST /v1/queues/{name}/messages")
def test_send(rest: Rest, server: SharedServer) -> None:
    rest.create("jobs")
    path = "/v1/queues/jobs/messages"
    one = rest.call("POST", path, {"message": {"n": 1}, "headers": {"k": "v"}}, status=201)
    late = rest.call("POST", path, {"message": 2, "delay": 600}, status=201)
    many = rest.call("POST", path, [{"message": 3}, {"message": 4}], status=201)
    assert (list(one), list(late), list(many)) == (["id"], ["id"], ["ids"])
    found = {message["id"]: message for message in rest.receive("jobs", vt=3600)}
    assert found.keys() == {one["id"], *many["ids"]}
    assert found[one["id"]]["message"] == {"n": 1}
    assert found[one["id"]]["headers"] == {"k": "v"}
    assert [found[number]["message"] for number in many["ids"]] == [3, 4]
    server.advance(600)
    assert [message["id"] for message in rest.receive("jobs")] == [late["id"]]
    rest.create("ordered", fifo=True)
    grouped = [{"message": n, "group_id": "g", "deduplication_id": str(n)} for n in range(3)]
    rest.call("POST", "/v1/queues/ordered/messages", grouped, status=201)
    assert rest.messages("ordered") == [0, 1, 2]
    missing = rest.call("POST", "/v1/queues/nowhere/messages", {"message": 1}, status=404)
    assert missing == MISSING


@endpoint("GET /v1/queues/{name}/messages")
def test_receive(rest: Rest, server: SharedServer) -> None:
    rest.create("jobs")
    path = "/v1/queues/jobs/messages"
    assert rest.call("GET", path) == []
    rest.send("jobs", "a")
    rest.send("jobs", "b")
    # By itself one message, hidden for 30 seconds.
    [first] = rest.call("GET", path)
    assert first["message"] in {"a", "b"}
    assert [len(rest.call("GET", path)), rest.call("GET", path)] == [1, []]
    server.advance(15)
    assert rest.call("GET", path) == []
    server.advance(16)
    found = rest.call("GET", f"{path}?max=2&vt=600&wait=1&fifo=false")
    assert sorted(message["message"] for message in found) == ["a", "b"]
    server.advance(300)
    assert rest.call("GET", f"{path}?max=2") == []
    server.advance(301)
    assert len(rest.call("GET", f"{path}?max=2")) == 2
    assert rest.call("GET", "/v1/queues/nowhere/messages", status=404) == MISSING


@endpoint("POST /v1/events/{routing_key}")
def test_publish_event(rest: Rest, hook: WebHook) -> None:
    rest.create("jobs")
    rest.create("more")
    for body in ({"queue_name": "jobs"}, {"queue_name": "more"}, {"endpoint": hook.url}):
        rest.call("POST", "/v1/events/order.*/subscriptions", body, status=201)
    event = {"message": {"n": 1}, "headers": {"k": "v"}, "delay": 0}
    sent = rest.call("POST", "/v1/events/order.late", event, status=201)
    assert sent["queues_matched"] == 2
    assert {copy["queue"] for copy in sent["messages"]} == {"jobs", "more"}
    for copy in sent["messages"]:
        [message] = rest.receive(copy["queue"])
        facts = (message["id"], message["message"], message["headers"])
        assert facts == (copy["id"], {"n": 1}, {"k": "v"})
    assert json.loads(hook.next().body) == {"n": 1}
    unheard = rest.call("POST", "/v1/events/nobody.listens", event, status=201)
    assert (unheard["queues_matched"], unheard["messages"]) == (0, [])


@endpoint("POST /v1/events/{pattern}/subscriptions")
def test_subscribe(rest: Rest, hook: WebHook) -> None:
    rest.create("jobs")
    path = "/v1/events/order.%23/subscriptions"
    made = rest.call("POST", path, {"queue_name": "jobs"}, status=201)
    assert (made["pattern"], made["queue_name"], made["envelope"]) == ("order.#", "jobs", False)
    body = {"protocol": "http", "endpoint": hook.url, "envelope": False}
    made = rest.call("POST", path, body, status=201)
    assert (made["endpoint"], made["queue_name"], made["envelope"]) == (hook.url, None, False)
    rest.call("POST", path, {"queue_name": "nowhere"}, status=404)
    rest.call("POST", "/v1/events/order/subscriptions", {**body, "envelope": True}, status=201)
    rest.call("POST", "/v1/events/order", {"message": "as SNS sends it"}, status=201)
    posted = [hook.next().body, hook.next().body]
    raw, envelope = sorted(posted, key=len)
    assert raw == b'"as SNS sends it"'
    assert json.loads(envelope)["Message"] == '"as SNS sends it"'


def schedule(rest: Rest, name: str = "hourly", **members: Any) -> Any:
    rest.create("jobs")
    return rest.call("POST", "/v1/schedules", {"name": name, **HOURLY, **members}, status=201)


@endpoint("GET /v1/schedules/{name}")
def test_read_schedule(rest: Rest) -> None:
    schedule(rest)
    shown = rest.call("GET", "/v1/schedules/hourly")
    assert shown["cron"] == "0 * * * *"
    assert "hour" in shown["human_readable"]
    assert shown["next_fires"][0] == shown["next_fire_at"]
    assert shown["next_fires"] == sorted(shown["next_fires"])
    assert list(rest.call("GET", "/v1/schedules/nowhere", status=404)) == ["error"]


@endpoint("GET /v1/openapi.json")
def test_openapi(server: SharedServer) -> None:
    answer = fetch(server.url, "/v1/openapi.json")
    document = json.loads(answer.body)
    assert (answer.status, document["openapi"].rpartition(".")[0]) == (200, "3.1")
    described = {
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method in methods
    }
    native = {row for row in endpoint.rows if "/v1/" in row and row != "GET /v1/cert"}
    assert native - described == set()


@endpoint("GET /metrics")
def test_metrics(server: SharedServer) -> None:
    answer = fetch(server.url, "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "\n# TYPE http_requests_total counter\n" in answer.text


@endpoint.each()
def test_credentials(rest: Rest, row: str) -> None:
    """Any header Authorization will do, and without one there is 403."""
    method, _, path = row.partition(" ")
    place = path.replace("{id}", "1")
    for name in ("{name}", "{pattern}", "{routing_key}"):
        place = place.replace(name, "jobs")
    connection = rest.connection()
    connection.send(request_bytes(method, place, {"Host": connection.host}))
    answer = connection.answer()
    if row in OPEN_ROWS:
        assert answer.status == 200
    else:
        assert (answer.status, list(json.loads(answer.body))) == (403, ["error"])
        connection.send(request_bytes(method, place, {"Host": "localhost", "Authorization": "any"}))
        assert connection.answer().status != 403


def test_every_row_is_shown() -> None:
    assert endpoint.missing == []

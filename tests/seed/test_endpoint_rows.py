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


@endpoint("POST /v1/queues")
def test_create_queue(rest: Rest) -> None:
    made = rest.call("POST", "/v1/queues", {"name": "jobs", "fifo": False}, status=201)
    assert (made["name"], made["fifo"]) == ("jobs", False)
    made = rest.call("POST", "/v1/queues", {"name": "ordered", "fifo": True}, status=201)
    assert (made["name"], made["fifo"]) == ("ordered.fifo", True)


@endpoint("GET /v1/queues")
def test_list_queues(rest: Rest) -> None:
    assert rest.call("GET", "/v1/queues") == []
    rest.create("jobs")
    [shown] = rest.call("GET", "/v1/queues")
    facts = (shown["name"], shown["is_partitioned"], shown["is_unlogged"])
    assert facts == ("jobs", False, False)
    assert at(shown["created_at"]).tzinfo is not None


@endpoint("GET /v1/queues/{name}")
def test_queue_metrics(rest: Rest, server: SharedServer) -> None:
    rest.create("jobs")
    empty = rest.call("GET", "/v1/queues/jobs")
    names = ("queue_length", "newest_msg_age_sec", "oldest_msg_age_sec", "total_messages")
    assert [empty[name] for name in names] == [0, None, None, 0]
    rest.send("jobs")
    server.advance(600)
    rest.send("jobs")
    rest.send("jobs")
    full = rest.call("GET", "/v1/queues/jobs")
    assert (full["queue_length"], full["total_messages"]) == (3, 3)
    assert full["oldest_msg_age_sec"] >= 600 > full["newest_msg_age_sec"] >= 0
    assert at(full["scrape_time"]) > at(empty["scrape_time"])
    assert rest.call("GET", "/v1/queues/nowhere", status=404) == MISSING


@endpoint("DELETE /v1/queues/{name}")
def test_delete_queue(rest: Rest) -> None:
    rest.create("jobs")
    assert rest.call("DELETE", "/v1/queues/jobs", status=204) is None
    gone = rest.call("DELETE", "/v1/queues/jobs", status=404)
    assert gone == {"error": "Queue 'jobs' does not exist"}


@endpoint("POST /v1/queues/{name}/purge")
def test_purge_queue(rest: Rest) -> None:
    rest.create("jobs")
    rest.send("jobs", 1)
    rest.send("jobs", 2, delay=600)
    assert rest.call("POST", "/v1/queues/jobs/purge") == {"deleted": 2}
    assert rest.receive("jobs") == []
    assert rest.call("POST", "/v1/queues/nowhere/purge", status=404) == MISSING


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


@endpoint("DELETE /v1/queues/{name}/messages")
def test_delete_many(rest: Rest) -> None:
    rest.create("jobs")
    ids = [rest.send("jobs", number) for number in range(3)]
    path = "/v1/queues/jobs/messages"
    assert rest.call("DELETE", path, {"ids": ids[:2]}) == {"deleted": ids[:2]}
    assert rest.call("DELETE", path, {"ids": ids}) == {"deleted": ids[2:]}


@endpoint("DELETE /v1/queues/{name}/messages/{id}")
def test_delete_one(rest: Rest) -> None:
    rest.create("jobs")
    path = f"/v1/queues/jobs/messages/{rest.send('jobs')}"
    assert rest.call("DELETE", path, status=204) is None
    assert list(rest.call("DELETE", path, status=404)) == ["error"]
    assert rest.receive("jobs") == []


@endpoint("PATCH /v1/queues/{name}/messages/{id}")
def test_change_visibility(rest: Rest, server: SharedServer) -> None:
    rest.create("jobs")
    rest.send("jobs")
    [message] = rest.receive("jobs", vt=3600)
    path = f"/v1/queues/jobs/messages/{message['id']}"
    before = at(server.now())
    changed = rest.call("PATCH", path, {"vt": 60})
    assert (list(changed), changed["id"]) == (["id", "visible_at"], message["id"])
    assert 60 <= (at(changed["visible_at"]) - before).total_seconds() < 3600
    server.advance(61)
    assert len(rest.receive("jobs")) == 1


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


@endpoint("GET /v1/events/{pattern}/subscriptions")
def test_list_subscriptions(rest: Rest) -> None:
    rest.create("jobs")
    path = "/v1/events/order.*/subscriptions"
    assert rest.call("GET", path) == []
    made = rest.call("POST", path, {"queue_name": "jobs"}, status=201)
    rest.call("POST", "/v1/events/other.*/subscriptions", {"queue_name": "jobs"}, status=201)
    assert rest.call("GET", path) == [made]


@endpoint("DELETE /v1/events/{pattern}/subscriptions/{id}")
def test_unsubscribe(rest: Rest) -> None:
    rest.create("jobs")
    path = "/v1/events/order.*/subscriptions"
    made = rest.call("POST", path, {"queue_name": "jobs"}, status=201)
    assert rest.call("DELETE", f"{path}/{made['id']}", status=204) is None
    assert list(rest.call("DELETE", f"{path}/{made['id']}", status=404)) == ["error"]
    sent = rest.call("POST", "/v1/events/order.late", {"message": 1}, status=201)
    assert sent["queues_matched"] == 0


@endpoint("GET /v1/queues/{name}/subscriptions")
def test_list_subscriptions_of_queue(rest: Rest) -> None:
    rest.create("jobs")
    rest.create("more")
    made = [
        rest.call("POST", f"/v1/events/{pattern}/subscriptions", {"queue_name": name}, status=201)
        for pattern, name in (("a.*", "jobs"), ("b.%23", "jobs"), ("c.*", "more"))
    ]
    assert rest.call("GET", "/v1/queues/jobs/subscriptions") == made[:2]
    assert rest.call("GET", "/v1/queues/nowhere/subscriptions", status=404) == MISSING


def schedule(rest: Rest, name: str = "hourly", **members: Any) -> Any:
    rest.create("jobs")
    return rest.call("POST", "/v1/schedules", {"name": name, **HOURLY, **members}, status=201)


@endpoint("POST /v1/schedules")
def test_create_schedule(rest: Rest) -> None:
    rest.create("jobs")
    answer = rest.ask("POST", "/v1/schedules", {"name": "hourly", **HOURLY})
    assert (answer.status, answer.headers["location"]) == (201, "/v1/schedules/hourly")
    assert json.loads(answer.body)["name"] == "hourly"
    taken = rest.call("POST", "/v1/schedules", {"name": "hourly", **HOURLY}, status=409)
    assert list(taken) == ["error"]
    workflow = {"name": "flow", "cron": "0 * * * *", "target": {"kind": "workflow"}}
    assert "workflow" in rest.refusal("POST", "/v1/schedules", workflow)


@endpoint("GET /v1/schedules")
def test_list_schedules(rest: Rest) -> None:
    schedule(rest, "a-queue")
    schedule(rest, "b-topic", target={"kind": "topic", "routing_key": "k", "message": 1})
    schedule(rest, "b-paused", status="paused")

    def names(query: str = "") -> list[str]:
        return [one["name"] for one in rest.call("GET", f"/v1/schedules{query}")]

    assert names() == ["a-queue", "b-paused", "b-topic"]
    assert names("?status=paused") == ["b-paused"]
    assert names("?target_kind=topic") == ["b-topic"]
    assert names("?name_prefix=b-") == ["b-paused", "b-topic"]
    assert names("?target_kind=workflow") == []


@endpoint("GET /v1/schedules/{name}")
def test_read_schedule(rest: Rest) -> None:
    schedule(rest)
    shown = rest.call("GET", "/v1/schedules/hourly")
    assert shown["cron"] == "0 * * * *"
    assert "hour" in shown["human_readable"]
    assert shown["next_fires"][0] == shown["next_fire_at"]
    assert shown["next_fires"] == sorted(shown["next_fires"])
    assert list(rest.call("GET", "/v1/schedules/nowhere", status=404)) == ["error"]


@endpoint("PUT /v1/schedules/{name}")
def test_upsert_schedule(rest: Rest) -> None:
    rest.create("jobs")
    made = rest.call("PUT", "/v1/schedules/hourly", HOURLY, status=201)
    assert rest.call("PUT", "/v1/schedules/hourly", HOURLY, status=200) == made
    daily = {**HOURLY, "cron": "0 9 * * *"}
    assert rest.call("PUT", "/v1/schedules/hourly", daily, status=200)["cron"] == "0 9 * * *"


@endpoint("PATCH /v1/schedules/{name}")
def test_patch_schedule(rest: Rest) -> None:
    schedule(rest)
    for status in ("paused", "active"):
        assert rest.call("PATCH", "/v1/schedules/hourly", {"status": status})["status"] == status
        assert rest.call("GET", "/v1/schedules/hourly")["status"] == status
    rest.call("PATCH", "/v1/schedules/nowhere", {"status": "paused"}, status=404)


@endpoint("DELETE /v1/schedules/{name}")
def test_delete_schedule(rest: Rest) -> None:
    schedule(rest)
    for _ in range(2):
        assert rest.call("DELETE", "/v1/schedules/hourly", status=204) is None
    rest.call("GET", "/v1/schedules/hourly", status=404)


@endpoint("POST /v1/schedules/{name}/runs")
def test_run_schedule(rest: Rest) -> None:
    before = schedule(rest, cron="0 0 1 1 *")
    ran = rest.call("POST", "/v1/schedules/hourly/runs", status=202)
    [message] = rest.receive("jobs")
    assert ran["msg_ids"] == [message["id"]]
    assert message["message"] == {"a": 1}
    mark = message["headers"]["_schedule"]
    assert mark.keys() == {"name", "scheduled_for", "out_of_band"}
    assert (mark["name"], mark["out_of_band"]) == ("hourly", True)
    after = rest.call("GET", "/v1/schedules/hourly")
    assert after["next_fire_at"] == before["next_fire_at"]
    rest.call("POST", "/v1/schedules/nowhere/runs", status=404)


@endpoint("POST /v1/previews")
def test_preview(rest: Rest) -> None:
    body = {"when": "every weekday at 9am", "timezone": "Europe/Berlin"}
    shown = rest.call("POST", "/v1/previews", body)
    assert shown["canonical"] == {"cron": "0 9 * * 1-5", "timezone": "Europe/Berlin"}
    assert "09:00" in shown["human_readable"]
    assert shown["next_fires"] == sorted(set(shown["next_fires"])) != []
    assert rest.call("GET", "/v1/schedules") == []
    # Four fields: the mistake that previews are there for.
    assert rest.refusal("POST", "/v1/previews", {"cron": "0 9 * *"})


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


@endpoint("GET /v1/cert", "GET /SimpleNotificationService.pem")
def test_certificate(server: SharedServer, row: str) -> None:
    answer = fetch(server.url, row.removeprefix("GET "))
    assert answer.status == 200
    assert answer.text.startswith("-----BEGIN CERTIFICATE-----\n")
    assert answer.text.endswith("-----END CERTIFICATE-----\n")
    assert answer.body == fetch(server.url, "/v1/cert").body


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

"""Every row of the seed's endpoints (docs/seeds.md 1.2): method, path, status and body."""

from __future__ import annotations

import json

from tests.faces.connections import fetch, request_bytes
from tests.faces.rest.client import Rest
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
        "GET /v1/queues": "test_listing_goes_page_by_page",
        "GET /v1/queues/{name}": "test_the_numbers_of_a_queue",
        "DELETE /v1/queues/{name}": "test_a_deleted_queue_is_gone_and_its_name_free",
        "POST /v1/queues/{name}/purge": "test_purging_counts_and_has_no_minute_to_wait",
    },
)
endpoint.linked(
    "tests/faces/rest/test_messages.py",
    {
        "POST /v1/queues/{name}/messages": "test_an_array_is_sent_in_order",
        "DELETE /v1/queues/{name}/messages": "test_deleting_many_names_those_that_were_there",
        "DELETE /v1/queues/{name}/messages/{id}": "test_deleting_one",
        "PATCH /v1/queues/{name}/messages/{id}": "test_hiding_longer_and_showing_again",
    },
)
endpoint.linked(
    "tests/faces/rest/test_events.py",
    {
        "POST /v1/events/{routing_key}": "test_publish_answers_where_the_event_went",
        "POST /v1/events/{pattern}/subscriptions": "test_a_subscription_is_shown_as_it_was_made",
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
        "GET /v1/schedules/{name}": "test_a_schedule_is_read_back_as_it_was_written",
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
    "tests/faces/rest/test_openapi.py", {"GET /v1/openapi.json": "test_every_endpoint_is_in_it"}
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


@endpoint("GET /v1/queues/{name}/messages")
def test_receive(rest: Rest) -> None:
    """By itself one message. Its timeout is shown by tests/faces/rest/test_messages.py."""
    rest.create("jobs")
    path = "/v1/queues/jobs/messages"
    assert rest.call("GET", path) == []
    rest.send("jobs", "a")
    rest.send("jobs", "b")
    assert [len(rest.call("GET", path)) for _ in range(3)] == [1, 1, 0]


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

"""Spans of the native API: named by the template of the path, and fires of its schedules."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from tests.faces.rest.client import Rest
from tests.faces.servers import Server
from tests.tracing.collector import Collector, caller
from tests.tracing.conftest import traced


@pytest.fixture
def rest(server: Server) -> Iterator[Rest]:
    with Rest(server.url) as client:
        yield client


def test_a_request_is_named_by_its_template(rest: Rest, collector: Collector) -> None:
    queue = rest.create("jobs")
    trace, parent, header = caller()
    headers = {"traceparent": header}
    answer = rest.ask(
        "POST", f"/v1/queues/{queue}/messages", {"message": "geheim"}, headers=headers
    )
    assert answer.status == 201, answer.text
    span = collector.one(trace_id=trace, parent_id=parent)
    assert span.name == "POST /v1/queues/{name}/messages"
    assert span.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/queues/{name}/messages",
        "http.response.status_code": 201,
        "queuegate.request_id": answer.headers["x-request-id"],
        "messaging.system": "queuegate",
        "messaging.destination.name": "jobs",
    }
    assert b"geheim" not in span.raw
    flush = collector.one(trace_id=trace, parent_id=span.span_id)
    assert flush.name == "flush send"


def test_refusals_and_paths_that_lead_nowhere_have_spans_too(
    rest: Rest, collector: Collector
) -> None:
    trace, parent, header = caller()
    headers = {"traceparent": header}
    assert rest.ask("GET", "/v1/queues/nothing-there", headers=headers).status == 404
    assert rest.ask("GET", "/v1/nothing/geheim", headers=headers).status == 404
    spans = collector.some(2, trace_id=trace, parent_id=parent)
    assert {span.name for span in spans} == {"GET /v1/queues/{name}", "GET /v1"}
    assert {span.attributes["http.response.status_code"] for span in spans} == {404}
    [refused] = [span for span in spans if span.name == "GET /v1/queues/{name}"]
    assert refused.attributes["error.type"] == "QueueDoesNotExist"
    assert all(b"geheim" not in span.raw for span in spans)


def test_a_caller_that_does_not_sample_is_obeyed(rest: Rest, collector: Collector) -> None:
    queue = rest.create("jobs")
    trace, _, header = caller(is_sampled=False)
    path = f"/v1/queues/{queue}/messages"
    rest.ask("POST", path, {"message": 1}, headers={"traceparent": header})
    later, _, sampled = caller()
    rest.ask("POST", path, {"message": 1}, headers={"traceparent": sampled})
    collector.some(2, trace_id=later)
    assert [span for span in collector.spans if span.trace_id == trace] == []


def test_a_schedule_that_came_due_has_a_span() -> None:
    with (
        Collector() as collector,
        traced(collector) as server,
        Rest(server.url) as rest,
    ):
        rest.create("jobs")
        target = {"kind": "queue", "queue_name": "jobs", "message": "geheim"}
        schedule = {"name": "soon", "every": "1 hour", "target": target}
        shown = rest.call("POST", "/v1/schedules", schedule, status=201)
        due = datetime.fromisoformat(shown["next_fire_at"])
        ahead = datetime.fromisoformat(server.now()) + timedelta(seconds=3_700)
        server.advance(3_700)
        span = collector.one(name="fire", queuegate__schedule__name="soon")
    assert span.kind == "producer"
    assert span.parent_id == ""
    attributes = dict(span.attributes)
    scheduled_for = attributes.pop("queuegate.schedule.scheduled_for")
    assert datetime.fromisoformat(scheduled_for) == due
    late = attributes.pop("queuegate.schedule.lateness_seconds")
    assert late == pytest.approx((ahead - due).total_seconds(), abs=30)
    assert attributes == {
        "queuegate.schedule.name": "soon",
        "queuegate.schedule.attempt": 1,
        "messaging.system": "queuegate",
        "messaging.operation.name": "fire",
        "messaging.operation.type": "send",
        "messaging.batch.message_count": 1,
        "messaging.destination.name": "jobs",
    }
    assert not span.is_error
    assert b"geheim" not in span.raw


def test_a_fire_that_fails_says_why() -> None:
    with (
        Collector() as collector,
        traced(collector) as server,
        Rest(server.url) as rest,
    ):
        rest.create("jobs")
        target = {"kind": "queue", "queue_name": "jobs", "message": "x"}
        schedule = {"name": "soon", "every": "1 hour", "target": target}
        rest.call("POST", "/v1/schedules", schedule, status=201)
        assert rest.ask("DELETE", "/v1/queues/jobs").status in (200, 204)
        server.advance(3_700)
        span = collector.one(name="fire", queuegate__schedule__name="soon")
    assert span.is_error
    assert span.attributes["error.type"]

"""HTTP of the native API: credentials, methods, paths, bodies, labels."""

from __future__ import annotations

import json

import pytest

from tests.faces.connections import Connection, fetch, request_bytes
from tests.faces.rest.client import Rest
from tests.faces.servers import Server


@pytest.mark.parametrize("path", ["/v1/queues", "/v1/queues/jobs/messages", "/v1/nothing"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_credentials_are_needed(server: Server, method: str, path: str) -> None:
    answer = fetch(server.url, path, method)
    assert answer.status == 403
    assert "send the header Authorization" in json.loads(answer.body)["error"]


@pytest.mark.parametrize("value", ["Bearer x", "Basic Og==", "x", "AWS3 nonsense"])
def test_any_credentials_will_do(server: Server, value: str) -> None:
    with Connection(server.url) as connection:
        headers = {"Host": connection.host, "Authorization": value}
        connection.send(request_bytes("GET", "/v1/queues?limit=1", headers))
        assert connection.answer().status == 200


def test_half_a_signature_will_not(server: Server) -> None:
    with Connection(server.url) as connection:
        headers = {"Host": connection.host, "Authorization": "AWS4-HMAC-SHA256 nonsense"}
        connection.send(request_bytes("GET", "/v1/queues?limit=1", headers))
        answer = connection.answer()
        assert answer.status == 400
        assert "cannot be read" in json.loads(answer.body)["error"]


def test_where_nobody_needs_credentials_nobody_needs_them_here(relaxed_server: Server) -> None:
    assert fetch(relaxed_server.url, "/v1/queues").status == 200


@pytest.mark.parametrize(
    ("path", "allow"),
    [
        ("/v1/queues", "GET, HEAD, OPTIONS, POST"),
        ("/v1/queues/jobs/messages", "DELETE, GET, OPTIONS, POST"),
        ("/v1/queues/jobs/messages/1", "DELETE, OPTIONS, PATCH"),
        ("/v1/openapi.json", "GET, HEAD, OPTIONS"),
    ],
)
def test_what_a_path_allows(rest: Rest, path: str, allow: str) -> None:
    for method in ("PUT", "TRACE"):
        answer = rest.ask(method, path)
        assert (answer.status, answer.headers["allow"]) == (405, allow)
        assert json.loads(answer.body)["error"].startswith(f"{method} is not allowed here")
    options = rest.ask("OPTIONS", path)
    assert (options.status, options.headers["allow"], options.body) == (204, allow, b"")


def test_head_asks_where_asking_changes_nothing(rest: Rest) -> None:
    rest.create()
    rest.send("jobs")
    answer = rest.ask("HEAD", "/v1/queues/jobs")
    assert answer.status == 200
    assert int(answer.headers["content-length"]) > 100
    assert rest.ask("HEAD", "/v1/queues/nope").status == 404
    assert rest.ask("HEAD", "/v1/queues/jobs/messages").status == 405
    assert rest.messages("jobs") == ["hello"]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/",
        "/v1/nothing",
        "/v1/queues/",
        "/v1/queues//messages",
        "/v1/queues/jobs/",
        "/v1/queues/jobs/messages/1/2",
        "/v1/queues/jobs%2Fmessages/x",
        "/v1//queues",
    ],
)
def test_paths_that_lead_nowhere(rest: Rest, path: str) -> None:
    text = rest.refusal("GET", path, status=404)
    assert text == f"The path {path} does not exist. See /v1/openapi.json."


def test_a_slash_in_a_name_does_not_divide_the_path(rest: Rest) -> None:
    text = rest.refusal("GET", "/v1/queues/jobs%2Fmessages", status=404)
    assert text == "Queue 'jobs/messages' does not exist"
    assert "UTF-8" in rest.refusal("GET", "/v1/queues/%ff")
    assert "NUL" in rest.refusal("GET", "/v1/queues/%00")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", "The request has no body: send JSON."),
        (b"{", "The body is not JSON: "),
        (b'{"name": "jobs",}', "The body is not JSON: "),
        (b'{"name": "jobs"} x', "The body is not JSON: trailing characters (byte "),
        (b"name=jobs", "The body is not JSON: "),
        (b'{"name": "\xff"}', "The body is not UTF-8: byte 10."),
        (b'{"message": "\xff"}', "The body is not UTF-8: byte 13."),
        ('{"name": "jobs"}'.encode("utf-16"), "The body is not UTF-8: byte 0."),
        (b"[" * 100_000, "The body is "),
        (b"null", "The body is refused: expected an object, got null."),
    ],
)
def test_bad_bodies(rest: Rest, raw: bytes, expected: str) -> None:
    answer = rest.ask("POST", "/v1/queues", raw=raw)
    assert answer.status == 400
    assert json.loads(answer.body)["error"].startswith(expected)
    assert rest.call("GET", "/v1/queues") == []


@pytest.mark.parametrize("depth", [499, 500, 2_000, 100_000])
def test_deep_messages(rest: Rest, depth: int) -> None:
    rest.create()
    raw = b'{"message":' + b"[" * depth + b"]" * depth + b"}"
    answer = rest.ask("POST", "/v1/queues/jobs/messages", raw=raw)
    assert answer.status == (201 if depth <= 500 else 400), answer.text
    if depth > 500:
        assert "nested" in json.loads(answer.body)["error"]
    else:
        path = "/v1/queues/jobs/messages"
        assert b"[" * depth + b"]" * depth in rest.ask("GET", path).body


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "a/b; c=d"])
def test_any_content_type_is_read_as_json(rest: Rest, kind: str) -> None:
    answer = rest.ask("POST", "/v1/queues", {"name": "jobs"}, headers={"Content-Type": kind})
    assert answer.status == 201
    assert answer.headers["content-type"] == "application/json"


def test_a_body_that_is_too_large() -> None:
    with Server(QUEUEGATE_MAX_BODY_BYTES="2000000") as server, Rest(server.url) as rest:
        rest.create()
        many = [{"message": "x" * 700_000}] * 3
        answer = rest.ask("POST", "/v1/queues/jobs/messages", many)
        assert answer.status == 413
        assert "2000000 bytes" in json.loads(answer.body)["error"]
        assert answer.headers["x-request-id"]


def test_each_answer_has_an_id(rest: Rest) -> None:
    ids = {rest.ask("GET", path).headers["x-request-id"] for path in ("/v1/queues", "/v1/x")}
    assert len(ids) == 2


def test_labels_are_templates(server: Server, rest: Rest) -> None:
    def count(path: str, status: int) -> float:
        labels = f'method="GET",path="{path}",status="{status}"'
        return server.metric(f"http_requests_total{{{labels}}}")

    before = count("/v1/queues/{name}", 404), count("/v1", 404)
    for number in range(5):
        rest.ask("GET", f"/v1/queues/{rest.account}-{number}")
        rest.ask("GET", f"/v1/{rest.account}-{number}")
    assert count("/v1/queues/{name}", 404) == before[0] + 5
    assert count("/v1", 404) == before[1] + 5
    assert rest.account not in server.metrics("http_requests")


def test_the_certificate_stays_where_it_was(server: Server) -> None:
    answer = fetch(server.url, "/v1/cert")
    assert answer.status == 200
    assert answer.body.startswith(b"-----BEGIN CERTIFICATE-----")

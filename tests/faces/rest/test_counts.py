"""Limits on the number of parts of one request to the native API."""

from __future__ import annotations

import json

import pytest

from tests.faces.connections import Connection, request_bytes
from tests.faces.servers import Server

FILLER = "f" * 70_000
"""What is shorter than this needs no counting."""
MOST_VALUES = 10_000
REQUEST_BYTES = 262_144


def _post(server: Server, path: str, body: bytes) -> tuple[int, str]:
    with Connection(server.url) as connection:
        headers = {"Host": connection.host, "Authorization": "any"}
        connection.send(request_bytes("POST", path, headers, body))
        answer = connection.answer()
        return answer.status, answer.text


@pytest.fixture
def path(server: Server) -> str:
    status, _ = _post(server, "/v1/queues", b'{"name": "counted"}')
    assert status in (200, 201, 409)
    return "/v1/queues/counted/messages"


def _message(headers: object, message: object = FILLER) -> dict[str, object]:
    return {"message": message, "headers": headers}


def _encoded(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


@pytest.mark.parametrize("is_batch", [False, True])
def test_values_in_headers_are_counted(server: Server, path: str, is_batch: bool) -> None:
    def sent(count: int) -> tuple[int, str]:
        one = _message({"list": [f"value {number}" for number in range(count)]})
        return _post(server, path, _encoded([one] if is_batch else one))

    assert sent(MOST_VALUES + 1)[0] == 201
    status, text = sent(MOST_VALUES + 2)
    assert (status, f"more than {MOST_VALUES} values" in text) == (400, True)


def test_of_a_batch_all_headers_are(server: Server, path: str) -> None:
    headers = {"list": ["value"] * (MOST_VALUES // 2)}
    status, text = _post(server, path, _encoded([_message(headers)] * 3))
    assert (status, f"more than {MOST_VALUES} values" in text) == (400, True)


def test_values_in_messages_are_not(server: Server, path: str) -> None:
    message = [[number] for number in range(5 * MOST_VALUES)]
    assert _post(server, path, _encoded(_message({}, message)))[0] == 201


@pytest.mark.parametrize("count", [500, 501, 100_000])
def test_entries_of_a_long_batch_are_counted(server: Server, path: str, count: int) -> None:
    one = {"message": "m" * (200 if count < 1000 else 1)}
    status, text = _post(server, path, _encoded([one] * count))
    if count == 500:
        assert status == 201
    else:
        assert (status, "expected an array of length <= 500" in text) == (400, True)


def test_headers_that_are_there_twice_are_counted(server: Server, path: str) -> None:
    """The last ones count; but the others would be decoded, too."""
    some = _encoded({f"name-{number}": "value" for number in range(20_000)})
    body = b'{"message":1,"headers":' + some + b',"headers":{}}'
    status, text = _post(server, path, body)
    assert (status, "beside messages and headers" in text) == (400, True)


def test_a_request_without_messages_is_small(server: Server) -> None:
    for size, status in ((REQUEST_BYTES, 400), (REQUEST_BYTES + 1, 413)):
        body = b'{"name": "' + b"n" * (size - 12) + b'"}'
        assert _post(server, "/v1/queues", body)[0] == status


def test_what_is_no_json_says_so(server: Server, path: str) -> None:
    body = _encoded(_message({"a": 1})) + b"}"
    status, text = _post(server, path, body)
    assert (status, "The body is not JSON" in text) == (400, True)


def test_only_a_schedules_own_target_is_looked_into(server: Server) -> None:
    """Each look reads all that is left: thousands of targets in targets would take seconds."""
    body: object = _message({}, FILLER * (REQUEST_BYTES // len(FILLER) + 1))
    for _ in range(2):
        body = {"target": body}
    status, text = _post(server, "/v1/schedules", _encoded(body))
    assert (status, "bytes beside messages and headers" in text) == (400, True)

"""Faces that are switched off: 404 with the setting's name, in AWS's form for AWS's clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.processes import run
from tests.faces.clients import Sqs
from tests.faces.connections import Connection, fetch, request_bytes
from tests.faces.rest.client import Rest
from tests.faces.servers import Server

TEXT = "The face '{}' of this gateway is off: QUEUEGATE_FACES does not name it."


@pytest.fixture(scope="module")
def bare() -> Iterator[Server]:
    """A gateway without the two faces that have most paths."""
    with Server("--faces", "channels, text,simple") as running:
        yield running


@pytest.fixture(scope="module")
def native() -> Iterator[Server]:
    """A gateway with the native API alone."""
    with Server(QUEUEGATE_FACES="rest") as running:
        yield running


@pytest.mark.parametrize(
    ("path", "method", "body", "name"),
    [
        ("/v1/queues", "GET", b"", "rest"),
        ("/v1/openapi.json", "GET", b"", "rest"),
        ("/v1/queues/x/messages", "POST", b"x" * 3_000_000, "rest"),
        ("/", "POST", b"{}", "aws"),
        ("/000000000000/x", "GET", b"", "aws"),
        ("/nowhere", "DELETE", b"", "aws"),
    ],
)
def test_who_asks_for_it_is_told(
    bare: Server, path: str, method: str, body: bytes, name: str
) -> None:
    answer = fetch(bare.url, path, method, body)
    assert (answer.status, answer.text) == (404, TEXT.format(name) + "\n")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


def test_sdks_are_told_in_their_form(bare: Server) -> None:
    with Sqs("json", bare.url) as client:
        for action in ("ListQueues", "SendMessage"):
            members = {"QueueUrl": "x", "MessageBody": "x"} if action == "SendMessage" else {}
            refused = client.refusal(action, **members)
            assert (refused.status, refused.text) == (404, TEXT.format("aws"))
    for path in ("/?Action=ListTopics", "/x/y?X-Amz-Algorithm=AWS4-HMAC-SHA256"):
        answer = fetch(bare.url, path)
        assert answer.status == 404
        assert "<Code>InvalidAction</Code>" in answer.text
        assert "is off: QUEUEGATE_FACES does not name it." in answer.text


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics", "/v1/cert", "/_admin/clock"])
def test_pages_stay(bare: Server, path: str) -> None:
    assert fetch(bare.url, path).status == 200


def test_the_others_stay(native: Server) -> None:
    with Rest(native.url) as client:
        assert client.call("GET", "/v1/queues") is not None
    assert fetch(native.url, "/nowhere").text == TEXT.format("aws") + "\n"


def test_a_connection_goes_on_behind_it(bare: Server) -> None:
    with Connection(bare.url) as connection:
        for _ in range(2):
            connection.send(request_bytes("POST", "/v1/queues", {"Host": connection.host}, b"{}"))
            assert connection.answer().status == 404


def test_a_face_that_there_is_not_is_refused_at_start() -> None:
    refused = run("serve", "--faces", "aws,soap")
    assert refused.returncode == 2
    assert "'aws,soap'" in refused.stderr
    assert "some of aws, rest, simple, text, channels, log" in refused.stderr

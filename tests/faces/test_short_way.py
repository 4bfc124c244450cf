"""The short way and the long one come to one answer; only what is common goes the short one."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping

import pytest

from tests.faces.connections import Answer, Connection, request_bytes
from tests.faces.rest.client import Rest
from tests.faces.servers import Server
from tests.faces.test_a_further_face import House

# Says something about how the answer may come: such requests go the long way.
_LONG = {"TE": "trailers"}
_REQUEST_ID = re.compile(rb"<RequestId>[^<]*</RequestId>")


async def test_requests_behind_another_wait_for_its_answer() -> None:
    house = House()
    async with house.open() as url:
        with Connection(url) as connection:
            named = {"Host": connection.host, "Authorization": "any"}
            x, y = (request_bytes("GET", f"/made/up/{title}", named) for title in "xy")
            for data in (x, x + y + x, y):
                connection.send(data)
            answers = [await asyncio.to_thread(connection.answer) for _ in range(5)]
    assert [json.loads(answer.body)["title"] for answer in answers] == ["x", "x", "y", "x", "y"]


def _told(answer: Answer) -> tuple[int, Mapping[str, str], bytes]:
    """Return an answer without its ids and times, which differ between the two paths."""
    differing = ("date", "x-request-id", "x-amzn-requestid", "content-length")
    headers = {name: value for name, value in answer.headers.items() if name not in differing}
    return answer.status, headers, _REQUEST_ID.sub(b"", answer.body)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/queues", b""),
        ("HEAD", "/v1/queues", b""),
        ("OPTIONS", "/v1/queues", b""),
        ("POST", "/v1/queues", b"{"),
        ("POST", "/v1/queues", b'{"name": "' + b"n" * 300_000 + b'"}'),
        ("PUT", "/v1/queues", b""),
        ("GET", "/v1/queues/n%C3%B6/messages?max=1", b""),
        ("GET", "/v1/nothing", b""),
        ("GET", "/v1/queues#fragment", b""),
        ("GET", "/v1/queues?limit=1#fragment", b""),
        ("POST", "/", b"Action=ListQueues&Version=2012-11-05"),
        ("GET", "/?Action=GetQueueUrl&QueueName=none", b""),
        ("DELETE", "/", b""),
    ],
)
def test_both_ways_come_to_the_same_answer(
    server: Server, method: str, path: str, body: bytes
) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"} if path == "/" else {}
    told = []
    with Rest(server.url) as client:
        for headers in ({}, _LONG):
            told.append(_told(client.ask(method, path, raw=body, headers=form | headers)))
    assert told[0] == told[1]


_CHANNEL = "/v1/messages"
_MANY = json.dumps([{"channel": "known", "payload": "x" * 40_000}] * 3).encode()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", _CHANNEL, b'{"channel": "known", "payload": 1, "priority": 11}'),
        ("POST", _CHANNEL, b'{"channel": "known", "payload": 1, "group_id": " "}'),
        ("POST", _CHANNEL, b'{"channel": "known", "payload": {}'),
        ("POST", _CHANNEL, b'{"channel": "known"}'),
        ("POST", _CHANNEL, b""),
        ("POST", _CHANNEL + "?a=1", b"{"),
        ("POST", _CHANNEL + "/ack", b'{"channel": "known", "acks": "none"}'),
        ("POST", _CHANNEL + "/ack", b'{"channel": "unknown", "acks": "none"}'),
        ("GET", _CHANNEL + "/poll?channel=known&wait=0", b""),
        ("GET", _CHANNEL + "/poll?channel=known&wait=0&max=11", b""),
        ("GET", _CHANNEL + "/poll?channel=known&wait=21", b""),
        ("HEAD", _CHANNEL + "/poll?channel=known&wait=0", b""),
    ],
)
def test_what_needs_no_task_comes_to_the_same_answer(
    server: Server, method: str, path: str, body: bytes
) -> None:
    told = []
    with Rest(server.url) as client:
        client.call("PUT", "/v1/channels/known", {}, status=201)
        client.call("GET", "/v1/messages/poll?channel=known&wait=0")
        for headers in ({}, _LONG):
            told.append(_told(client.ask(method, path, raw=body, headers=headers)))
    assert told[0] == told[1]


def test_what_is_polled_may_be_large(server: Server) -> None:
    """Others go first while it is looked at."""
    with Rest(server.url) as client:
        client.ask("POST", _CHANNEL + "/bulk", raw=_MANY)
        for asked, found in ((10, 3), (10, 0)):
            path = f"{_CHANNEL}/poll?channel=known&wait=0&max={asked}"
            messages = client.call("GET", path)["messages"]
            assert [len(one["payload"]) for one in messages] == [40_000] * found


def test_who_goes_while_a_poll_waits_takes_nothing_along(server: Server) -> None:
    path = _CHANNEL + "/poll?channel=left"
    with Rest(server.url) as client:
        assert client.call("GET", f"{path}&wait=0") == {"messages": []}
        with Rest(server.url, client.account) as leaving:
            leaving.connection().send(leaving.encode("GET", f"{path}&wait=20"))
            server.until_parked()
        server.until_parked(0)
        client.call("POST", _CHANNEL, {"channel": "left", "payload": 1}, status=201)
        [message] = client.call("GET", f"{path}&wait=0")["messages"]
        assert message["deliveries"] == 1
    counted = 'http_requests_total{method="GET",path="/v1/channels/",status="499"}'
    assert server.metric(counted) >= 1


def test_the_last_request_of_a_client_is_answered(server: Server) -> None:
    with Rest(server.url) as client:
        for _ in range(2):
            client.connection().send(client.encode("GET", "/v1/queues"))
            assert client.connection().answer().status == 200
        client.connection().send(client.encode("GET", "/v1/queues"))
        client.connection().end_sending()
        assert client.connection().answer().status == 200
        assert client.connection().ends()

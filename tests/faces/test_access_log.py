"""Lines of requests: each names the account, the queue, the face, the action, the error, the id."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from tests.databases import Databases
from tests.faces.clients import Sqs, authorization, new_account
from tests.faces.everything import make, requests
from tests.faces.logs.client import Logs, record
from tests.faces.rest.client import Rest
from tests.faces.servers import Server
from tests.faces.signing import send
from tests.faces.sns_client import Sns
from tests.waiting import until


class Logging(Server):
    """A gateway whose log is a file."""

    def __init__(self, log: IO[str], **settings: str) -> None:
        self.log = log
        super().__init__("--access-log", QUEUEGATE_LOG_FORMAT="json", **settings)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("access") / "log"


@pytest.fixture(scope="module")
def server(path: Path) -> Iterator[Server]:
    with path.open("w") as log, Logging(log, QUEUEGATE_LOG_LEVEL="debug") as running:
        yield running


def complete_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of the log without a last one that is being written."""
    return [json.loads(line) for line in path.read_text().rpartition("\n")[0].splitlines()]


def line_of(path: Path, request_id: str, message: str = "request") -> dict[str, Any]:
    """Wait for a line of a request."""

    def found() -> list[dict[str, Any]]:
        lines = complete_lines(path)
        mine = [one for one in lines if one.get("request_id") == request_id]
        return [one for one in mine if message in one["message"]]

    return until(found)[-1]


def facts(line: dict[str, Any]) -> tuple[str, ...]:
    return tuple(line[name] for name in ("account", "queue", "face", "action", "error"))


@pytest.mark.parametrize("wire", ["json", "json-long", "query", "query-long"])
def test_requests_of_aws(server: Server, path: Path, wire: str) -> None:
    """On the fast path and the ordinary one; refused and not."""
    with Sqs(wire, server.url) as sqs:
        url = sqs.create("orders")
        missing = url.replace("/orders", "/missing")
        for queue, error in (
            (url, ""),
            (url, "InvalidParameterValue"),
            (missing, "AWS.SimpleQueueService.NonExistentQueue"),
        ):
            delay = 1_000 if error == "InvalidParameterValue" else 0
            members = {"QueueUrl": queue, "MessageBody": "x", "DelaySeconds": delay}
            answer = sqs.ask("SendMessage", members)
            line = line_of(path, answer.headers["x-amzn-requestid"])
            name = queue.rpartition("/")[2]
            assert facts(line) == (sqs.account, name, "aws", "SendMessage", error)
            assert line["status"] == answer.status


def test_publishes_name_the_topic(server: Server, path: Path) -> None:
    with Sns("json", server.url) as sns:
        topic = sns.create()
        for _ in range(2):
            answer = sns.ask("Publish", {"TopicArn": topic, "Message": "x"})
            line = line_of(path, answer.headers["x-amzn-requestid"])
            assert facts(line) == (sns.account, "news", "aws", "Publish", "")


def test_requests_of_other_faces(server: Server, path: Path) -> None:
    with Rest(server.url) as rest, Logs(server.url) as logs:
        rest.create()
        route = "/v1/queues/{name}/messages"
        for body, error in (({"message": "x"}, ""), ({"massage": "x"}, "MalformedInput")):
            answer = rest.ask("POST", "/v1/queues/jobs/messages", body)
            line = line_of(path, answer.headers["x-request-id"])
            assert facts(line) == (rest.account, "jobs", "rest", route, error)
        answer = rest.ask("GET", "/v1/queues/none")
        line = line_of(path, answer.headers["x-request-id"])
        assert facts(line)[1:] == ("none", "rest", "/v1/queues/{name}", "QueueDoesNotExist")
        logs.publish(record())
        answer = logs.ask("GET", "/v1/logs/orders/records?partition=0")
        line = line_of(path, answer.headers["x-request-id"])
        assert facts(line)[:3] == (logs.account, "orders", "logs")


def test_names_in_lines_are_short(server: Server, path: Path) -> None:
    with Sqs("json", server.url) as sqs:
        answer = sqs.ask("ReceiveMessage", {"QueueUrl": "x" * 100_000})
        line = line_of(path, answer.headers["x-amzn-requestid"])
        assert len(line["queue"]) <= 256
        assert line["status"] == 400


def test_lines_of_a_lost_database_say_the_same(databases: Databases, tmp_path: Path) -> None:
    """Debug lines of requests that failed for it, of both paths."""
    dsn, path = databases.copy(), tmp_path / "log"
    with (
        path.open("w") as log,
        Logging(log, dsn=dsn, QUEUEGATE_LOG_LEVEL="debug") as server,
        Sqs("json", server.url) as sqs,
        Rest(server.url, sqs.account) as rest,
    ):
        url = sqs.create("orders")
        sqs.send(url)
        databases.drop(dsn)
        failed = sqs.ask("SendMessage", {"QueueUrl": url, "MessageBody": "x"})
        assert failed.status == 503
        line = line_of(path, failed.headers["x-amzn-requestid"], "SendMessage: ")
        assert facts(line) == (sqs.account, "orders", "aws", "SendMessage", "ServiceUnavailable")
        refused = rest.ask("GET", "/v1/queues/orders")
        assert refused.status >= 500
        line = line_of(path, refused.headers["x-request-id"], "/v1/queues/orders")
        assert facts(line)[:3] == (sqs.account, "orders", "rest")


def test_each_operation_of_each_face_has_a_line(server: Server, path: Path) -> None:
    """With its face, and a code if it is refused. May take more than 5 s: 300 requests."""
    account = new_account()
    asked: dict[str, tuple[str, int]] = {}
    for one in requests(make(server, account), server.url):
        own = {"Authorization": authorization(account, service=one.service)}
        answer = send(server.url, one.method, one.target, own | one.headers, one.body)
        if not one.target.startswith("/_admin"):
            request_id = answer.headers.get("x-amzn-requestid") or answer.headers["x-request-id"]
            asked[request_id] = one.operation.partition(":")[0], answer.status
    line_of(path, [*asked][-1])
    lines = complete_lines(path)
    found = {one["request_id"]: one for one in lines if one["message"] == "request"}
    assert len(asked) > 200
    for request_id, (face, status) in asked.items():
        line = found[request_id]
        assert line["face"] == ("aws" if face in ("sqs", "sns", "scheduler", "sts") else face)
        assert bool(line["error"]) == (status >= 400 and status != 426), line

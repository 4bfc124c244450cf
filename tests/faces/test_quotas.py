"""Quotas at the door: every face says in its own words that it was too often, or too much."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.calling import call
from tests.faces.audited import AuditFile
from tests.faces.clients import Sqs, authorization, new_account
from tests.faces.connections import Answer
from tests.faces.servers import Server
from tests.faces.signing import FORM, JSON, Signer, Verifying, send
from tests.waiting import until

Ask = Callable[[str, str], Answer]


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> AuditFile:
    return AuditFile(tmp_path_factory.mktemp("quotas"))


@pytest.fixture(scope="module")
def server(audit: AuditFile) -> Iterator[Server]:
    with Server("--workers", "2", QUEUEGATE_AUDIT=str(audit.path)) as running:
        yield running


def quota(server: Server, *arguments: str) -> str:
    """Run `queuegate quotas` and return its output."""
    done = call("quotas", *arguments, DATABASE_URL=server.dsn)
    assert done.returncode == 0, done.stderr
    return done.stdout


def asking(
    method: str, path: str, body: str = "", *, service: str = "sqs", target: str = ""
) -> Ask:
    def ask(url: str, account: str) -> Answer:
        headers = {"Authorization": authorization(account, service=service)}
        if target:
            headers |= {**JSON, "X-Amz-Target": target}
        elif method == "POST" and path == "/":
            headers |= FORM
        return send(url, method, path, headers, body.encode())

    return ask


ASKING = {
    "sqs:ListQueues": asking("POST", "/", "{}", target="AmazonSQS.ListQueues"),
    "sqs:GetQueueUrl": asking("POST", "/", "Action=GetQueueUrl&QueueName=x&Version=2012-11-05"),
    "sns:ListTopics": asking("POST", "/", "Action=ListTopics&Version=2010-03-31", service="sns"),
    "scheduler:ListSchedules": asking("GET", "/schedules", service="scheduler"),
    "rest:listQueues": asking("GET", "/v1/queues"),
    "simple:listQueues": asking("GET", "/api/queues"),
    "channels:listChannels": asking("GET", "/v1/channels"),
    "logs:listLogs": asking("GET", "/v1/logs"),
    "text:receiveText": asking("GET", "/queue"),
}
WORDS = {
    "sqs:ListQueues": (403, "RequestThrottled"),
    "sqs:GetQueueUrl": (403, "<Code>RequestThrottled</Code>"),
    "sns:ListTopics": (429, "<Code>Throttled</Code>"),
    "scheduler:ListSchedules": (429, "requests of the account"),
}


@pytest.mark.parametrize("operation", ASKING)
def test_every_face_says_that_it_was_too_often(
    server: Server, audit: AuditFile, operation: str
) -> None:
    account, ask = new_account(), ASKING[operation]
    quota(server, "set", account, "--requests", "3/h")
    status, words = WORDS.get(operation, (429, "quota of requests of the account"))

    # What was asked before both processes knew of the quota did not count.
    refused = until(lambda: ask(server.url, account), lambda answer: answer.status == status)
    assert words in refused.text
    assert int(refused.headers["retry-after"]) > 0
    line = audit.until(
        lambda line: (line["operation"], line.get("account")) == (operation, account)
    )
    assert (line["reason"], line["message"]) == ("quota", "refused")
    assert ask(server.url, new_account()).status != status


def test_the_fast_path_counts_too(server: Server, audit: AuditFile) -> None:
    account = new_account()
    with Sqs("json", server.url, account) as sqs:
        url = sqs.create()
        quota(server, "set", account, "--requests", "1000/h")
        for number in range(5):
            sqs.send(url, str(number))
        quota(server, "set", account, "--requests", "20/h")
        refused = until(
            lambda: sqs.ask("SendMessage", {"QueueUrl": url, "MessageBody": "x"}),
            lambda answer: answer.status == 403,
        )
    assert "RequestThrottled" in refused.text
    assert int(refused.headers["retry-after"]) > 0
    audit.until(lambda line: line["operation"] == "sqs:SendMessage" and line["reason"] == "quota")
    quota_of = f'queuegate_quota_refusals_total{{account="{account}",quota="requests of account"}}'
    assert server.metric(quota_of) >= 1


def test_bytes_of_requests_and_answers_count(server: Server) -> None:
    account, calm = new_account(), new_account()
    with Sqs("json", server.url, account) as sqs, Sqs("json", server.url, calm) as other:
        url, theirs = sqs.create(), other.create()
        quota(server, "set", account, "--bytes", "2MB/h")
        message = {"QueueUrl": url, "MessageBody": "b" * 900_000}
        # As often as it fits, and once more: a request is paid for by the next one.
        refused = until(
            lambda: sqs.ask("SendMessage", message), lambda answer: answer.status != 200
        )
        assert (refused.status, "RequestThrottled" in refused.text) == (403, True)
        assert int(refused.headers["retry-after"]) > 0
        assert sqs.ask("ReceiveMessage", {"QueueUrl": url}).status == 403
        other.send(theirs, "b" * 900_000)
        quota(server, "set", calm, "--bytes", "1MB/h")
        # Its answers alone.
        asked = {"QueueUrl": theirs, "VisibilityTimeout": 0}
        until(lambda: other.ask("ReceiveMessage", asked).status, lambda status: status == 403)
    rest = asking("GET", "/v1/queues")(server.url, account)
    assert (rest.status, "quota of bytes of the account" in rest.text) == (429, True)
    quota_of = f'queuegate_quota_refusals_total{{account="{account}",quota="bytes of account"}}'
    assert server.metric(quota_of) >= 2


def test_more_than_an_account_may_have(server: Server) -> None:
    account = new_account()
    limits = ("--queues", "1", "--topics", "0", "--logs", "0", "--subscriptions", "0")
    quota(server, "set", account, *limits)
    with Sqs("json", server.url, account) as sqs:
        until(lambda: MAKING["topic"](server.url, account).status == 403)
        sqs.create("one")
        refused = sqs.refusal("CreateQueue", QueueName="two")
    assert (refused.status, refused.code) == (403, "OverLimit")
    for name, (status, words) in {
        "topic": (403, "<Code>TopicLimitExceeded</Code>"),
        "queue": (409, "An account may have 1 queues here"),
        "log": (409, "An account may have 0 logs here"),
        "simple": (409, "An account may have 1 queues here"),
        "text": (409, "An account may have 1 queues here"),
        "channel": (409, "An account may have 1 queues here"),
        "event": (409, "An account may have 0"),
    }.items():
        answer = MAKING[name](server.url, account)
        assert (answer.status, words in answer.text) == (status, True), (name, answer.text)


MAKING = {
    "topic": asking("POST", "/", "Action=CreateTopic&Name=t&Version=2010-03-31", service="sns"),
    "queue": asking("POST", "/v1/queues", json.dumps({"name": "two"})),
    "log": asking("POST", "/v1/logs", json.dumps({"log": "two"})),
    "simple": asking("POST", "/api/queues", json.dumps({"queue_name": "two"})),
    "text": asking("POST", "/queue?queue=two&group-id=g", "x"),
    "channel": asking("PUT", "/v1/channels/two", "{}"),
    "event": asking("POST", "/v1/events/a.b/subscriptions", json.dumps({"queue_name": "one"})),
}


def test_the_command(server: Server, tmp_path: Path) -> None:
    account, audit = new_account(), AuditFile(tmp_path)
    place = {"DATABASE_URL": server.dsn, "QUEUEGATE_AUDIT": str(audit.path)}
    limits = ("--requests", "500/10s", "--queues", "7", "--topics", "any")
    assert call("quotas", "set", account, *limits, **place).returncode == 0
    assert call("quotas", "set", "key-17", "--requests", "any", **place).returncode == 0
    shown = quota(server, "list")
    assert f"{account}  500/10s   7       any     -              -" in shown
    assert "key-17" in shown
    assert call("quotas", "set", account, "--bytes", "10MB/s", **place).returncode == 0
    assert "10000000B/1s" in quota(server, "list")
    assert call("quotas", "set", account, *limits, **place).returncode == 0
    assert call("quotas", "remove", account, "key-17", **place).returncode == 0
    assert [line["operation"] for line in audit.lines()] == [
        *["command:quotas set"] * 4,
        "command:quotas remove",
        "command:quotas remove",
    ]
    for arguments in (
        ("set", "shop", "--queues", "1"),
        ("set", account),
        ("set", account, "--queues", "many"),
        ("set", account, "--requests", "fast"),
        ("set", account, "--bytes", "10/s"),
        ("set", account, "--bytes", "1B/s"),
        ("set", "key-17", "--queues", "1"),
        ("remove", account),
    ):
        done = call("quotas", *arguments, **place)
        assert (done.returncode, done.stderr.startswith("queuegate: ")) == (1, True), arguments


def test_administrators_set_them_over_rest(tmp_path: Path) -> None:
    with Verifying(tmp_path, QUEUEGATE_QUOTA_REQUESTS="1000/h") as gateway:
        owner, first = gateway.signer("111122223333"), gateway.first
        until(lambda: owner.sqs("CreateQueue", QueueName="jobs").status, lambda one: one == 200)

        def rest(signer: Signer, method: str, path: str, body: object = None) -> Answer:
            content = b"" if body is None else json.dumps(body).encode()
            return signer.ask(method, path, {"Content-Type": "application/json"}, content)

        assert rest(owner, "PUT", "/v1/quotas/111122223333", {"queues": 9}).status == 403
        of_key = f"/v1/quotas/key-{owner.key_id}"
        wanted = {"requests": {"requests": 4, "window_seconds": 3600}}
        assert rest(first, "PUT", of_key, wanted).status == 200
        [shown] = json.loads(rest(first, "GET", "/v1/quotas").body)
        assert (shown["subject"], shown["requests"]) == (of_key[11:], wanted["requests"])
        url = "http://localhost/111122223333/jobs"
        sent = [owner.sqs("SendMessage", QueueUrl=url, MessageBody="x").status for _ in range(6)]
        assert sent == [200, 200, 200, 200, 403, 403]
        assert rest(first, "PUT", of_key, {"unlimited_requests": True}).status == 200
        assert owner.sqs("SendMessage", QueueUrl=url, MessageBody="x").status == 200
        assert rest(first, "PUT", of_key, {"topics": 1}).status == 400
        wanted = {"bytes": {"bytes": 5_000_000, "window_seconds": 60}}
        assert rest(first, "PUT", of_key, wanted).status == 200
        [shown] = json.loads(rest(first, "GET", "/v1/quotas").body)
        assert (shown["bytes"], shown["unlimited_bytes"]) == (wanted["bytes"], False)
        assert rest(first, "PUT", of_key, {"bytes": {"bytes": 1}}).status == 400
        assert rest(first, "PUT", of_key, {"unlimited_bytes": True}).status == 200
        assert rest(first, "DELETE", of_key).status == 204
        assert json.loads(rest(first, "GET", "/v1/quotas").body) == []

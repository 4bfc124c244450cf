"""/_admin/faults: requests and deliveries that fail on purpose (InjectedFault), as boto3 and others
meet them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import ClientError, ConnectionClosedError  # type: ignore[import-untyped]

from tests.faces.clients import Client, Refused, authorization, new_account
from tests.faces.connections import Answer, Closed, Connection, fetch
from tests.faces.servers import Server
from tests.faces.signing import Verifying
from tests.faces.web_hooks import Posted, WebHook
from tests.waiting import until

Add = Callable[..., dict[str, Any]]


def ask(url: str, method: str, content: Any = None, path: str = "") -> Any:
    """The answer of the page; an assertion on its status is the test's."""
    body = b"" if content is None else json.dumps(content).encode()
    return fetch(url, f"/_admin/faults{path}", method, body)


@pytest.fixture
def account(server: Server) -> Iterator[str]:
    """An account; at the end no rule is left."""
    yield new_account()
    assert ask(server.url, "DELETE").status == 200


@pytest.fixture
def add(server: Server, account: str) -> Add:
    """Adds a rule for the account, and returns it as it is shown."""

    def added(**members: Any) -> dict[str, Any]:
        answer = ask(server.url, "POST", {"account": account, **members})
        assert answer.status == 200, answer.text
        [rule] = json.loads(answer.body)["faults"]
        return dict(rule)

    return added


def aws(server: Server, account: str, service: str = "sqs", attempts: int = 1) -> Any:
    return boto3.client(
        service,
        endpoint_url=server.url,
        region_name="us-east-1",
        aws_access_key_id=account,
        aws_secret_access_key="any",
        config=Config(retries={"total_max_attempts": attempts, "mode": "standard"}),
    )


def new_queue(sqs: Any) -> str:
    return str(sqs.create_queue(QueueName="orders")["QueueUrl"])


def bodies(sqs: Any, url: str, **members: Any) -> list[str]:
    received = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, **members)
    return [one["Body"] for one in received.get("Messages", [])]


def shown(server: Server) -> list[dict[str, Any]]:
    return list(json.loads(ask(server.url, "GET").body)["faults"])


def test_error_is_the_class_of_its_code_so_often(server: Server, account: str, add: Add) -> None:
    sqs = aws(server, account)
    url = new_queue(sqs)
    add(operation="SendMessage", queue="orders", error="RequestThrottled", count=2)
    for _ in range(2):
        with pytest.raises(sqs.exceptions.RequestThrottled) as thrown:
            sqs.send_message(QueueUrl=url, MessageBody="x")
        assert thrown.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    assert bodies(sqs, url) == []
    sqs.send_message(QueueUrl=url, MessageBody="third")
    assert bodies(sqs, url) == ["third"]
    [rule] = shown(server)
    assert (rule["fired"], rule["matched"]) == (2, 2)


@pytest.mark.parametrize("wire", ["json", "json-long", "query"])
def test_every_wire_has_its_form(server: Server, account: str, add: Add, wire: str) -> None:
    with Client(wire, server.url, account) as client:
        client.call("CreateQueue", QueueName="orders")
        add(error={"code": "ThrottlingException", "message": "slow down"}, count=1)
        with pytest.raises(Refused, match="slow down") as refused:
            client.call("GetQueueUrl", QueueName="orders")
        assert refused.value.status == 400
        code = refused.value.code if wire == "query" else refused.value.type
        assert (code or "").endswith("ThrottlingException")
        add(error={"code": "QueueDoesNotExist", "statusCode": 503}, count=1)
        with pytest.raises(Refused) as refused:
            client.call("GetQueueUrl", QueueName="orders")
        assert (refused.value.status, refused.value.code) == (
            503,
            "AWS.SimpleQueueService.NonExistentQueue",
        )


def test_other_faces_fail_by_the_same_operation(server: Server, account: str, add: Add) -> None:
    headers = {"Authorization": authorization(account)}

    def rest(method: str, path: str, body: bytes = b"") -> Answer:
        return fetch(server.url, path, method, body, **headers)

    assert rest("POST", "/v1/queues", b'{"name": "orders"}').status == 201
    send = ("POST", "/v1/queues/orders/messages", b'{"message": 1}')
    add(operation="SendMessage", queue="other", error="RequestThrottled")
    add(operation="SendMessage", face="aws", error="RequestThrottled")
    assert rest(*send).status == 201
    add(
        operation="SendMessage", queue="orders", face="rest", error={"code": "X", "statusCode": 429}
    )
    refused = rest(*send)
    assert refused.status == 429
    assert json.loads(refused.body)["error"].startswith("X: a fault on purpose")


def test_rules_select_by_account_region_topic_and_service(
    server: Server, account: str, add: Add
) -> None:
    sqs, sns = aws(server, account), aws(server, account, "sns")
    url, topic = new_queue(sqs), sns.create_topic(Name="news")["TopicArn"]
    for selector in (
        {"account": new_account()},
        {"region": "eu-west-1"},
        {"topic": "other"},
        {"queue": "news"},
        {"service": "scheduler"},
        {"endpoint": server.url},
    ):
        add(**{"error": "Throttled", **selector})
    sqs.send_message(QueueUrl=url, MessageBody="x")
    sns.publish(TopicArn=topic, Message="x")
    add(topic="news", error="Throttled")
    with pytest.raises(sns.exceptions.ThrottledException):
        sns.publish(TopicArn=topic, Message="x")
    sqs.send_message(QueueUrl=url, MessageBody="x")


def test_lost_answer_comes_after_the_commit(server: Server, account: str, add: Add) -> None:
    sqs = aws(server, account)
    url = new_queue(sqs)
    for kind, work_is_done in (("drop", False), ("half_close", False), ("lost", True)):
        add(operation="SendMessage", kind=kind, count=1)
        with pytest.raises(ConnectionClosedError):
            sqs.send_message(QueueUrl=url, MessageBody=kind)
        assert bodies(sqs, url) == ([kind] if work_is_done else [])


def test_truncated_answer_announces_more_than_it_has(
    server: Server, account: str, add: Add
) -> None:
    with Client("json", server.url, account) as client, Connection(server.url) as connection:
        url = client.call("CreateQueue", QueueName="orders")["QueueUrl"]
        add(operation="SendMessage", kind="truncate")
        connection.send(client.encode("SendMessage", {"QueueUrl": url, "MessageBody": "x"}))
        assert b"HTTP/1.1 200" in connection.until(b"\r\n\r\n")
        with pytest.raises(Closed):
            connection.until(b"}")


def test_half_closed_connection_still_reads(server: Server, account: str, add: Add) -> None:
    with Client("json", server.url, account) as client, Connection(server.url) as connection:
        url = client.call("CreateQueue", QueueName="orders")["QueueUrl"]
        add(operation="SendMessage", kind="half_close")
        request = client.encode("SendMessage", {"QueueUrl": url, "MessageBody": "x"})
        connection.send(request)
        with pytest.raises(Closed):
            connection.answer()
        connection.send(request)


def test_sdk_retries_until_the_work_is_done(server: Server, account: str, add: Add) -> None:
    url = new_queue(aws(server, account))
    sqs = aws(server, account, attempts=5)
    add(operation="SendMessage", error="ThrottlingException", count=2)
    add(operation="SendMessage", kind="drop", count=1)
    add(operation="SendMessage", kind="lost", count=1)
    sent = sqs.send_message(QueueUrl=url, MessageBody="x")
    assert sent["ResponseMetadata"]["RetryAttempts"] == 4
    # The lost answer was of a send, too: the consumer gets its message twice.
    assert bodies(sqs, url) == ["x", "x"]


def test_late_message_becomes_visible_on_time(server: Server, account: str, add: Add) -> None:
    sqs = aws(server, account)
    url = new_queue(sqs)
    add(kind="late", delay_ms=300)
    sent = sqs.send_message(QueueUrl=url, MessageBody="late")
    assert "SequenceNumber" not in sent
    assert bodies(sqs, url) == []
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert attributes["ApproximateNumberOfMessagesDelayed"] == "1"
    assert bodies(sqs, url, WaitTimeSeconds=10) == ["late"]


def test_duplicate_is_the_same_message_again(server: Server, account: str, add: Add) -> None:
    sqs = aws(server, account)
    url = new_queue(sqs)
    sqs.send_message(QueueUrl=url, MessageBody="x")
    add(kind="duplicate", queue="orders", count=1)
    ids = []
    for _ in range(2):
        [one] = sqs.receive_message(QueueUrl=url)["Messages"]
        sqs.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])
        ids.append(one["MessageId"])
    assert ids[0] == ids[1]
    assert bodies(sqs, url) == []
    sqs.send_message(QueueUrl=url, MessageBody="y")
    add(kind="duplicate", operation="ReceiveMessage", count=1)
    assert [bodies(sqs, url), bodies(sqs, url), bodies(sqs, url)] == [["y"], ["y"], []]


def test_same_seed_gives_the_same_order_and_faults(server: Server, account: str, add: Add) -> None:
    sqs = aws(server, account)
    url = new_queue(sqs)

    def run(seed: int) -> tuple[list[str], list[bool]]:
        ask(server.url, "DELETE")
        add(kind="reorder", seed=seed)
        add(operation="GetQueueUrl", error="Throttled", probability=0.5, seed=seed)
        entries = [{"Id": str(number), "MessageBody": str(number)} for number in range(8)]
        sqs.send_message_batch(QueueUrl=url, Entries=entries)
        order = []
        for _ in range(8):
            [one] = sqs.receive_message(QueueUrl=url)["Messages"]
            sqs.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])
            order.append(one["Body"])
        failed = []
        for _ in range(16):
            try:
                sqs.get_queue_url(QueueName="orders")
                failed.append(False)
            except ClientError:
                failed.append(True)
        return order, failed

    first, again, other = run(7), run(7), run(8)
    assert first[1] == again[1]
    assert True in first[1]
    assert False in first[1]
    assert (first[1] != other[1], first[0] == again[0]) == (True, True)
    assert sorted(first[0]) == list("01234567") != first[0]


def test_fifo_queue_keeps_its_order(server: Server, account: str, add: Add) -> None:
    sqs = aws(server, account)
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    url = sqs.create_queue(QueueName="orders.fifo", Attributes=attributes)["QueueUrl"]
    for kind in ("late", "reorder", "duplicate"):
        add(kind=kind)
    for number in range(3):
        sqs.send_message(QueueUrl=url, MessageBody=str(number), MessageGroupId="g")
    received = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert [one["Body"] for one in received] == ["0", "1", "2"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=received[0]["ReceiptHandle"])
    assert bodies(sqs, url) == []


def test_web_hook_fails_by_status_and_timeout(server: Server, account: str, add: Add) -> None:
    sns = aws(server, account, "sns")
    topic = sns.create_topic(Name="news")["TopicArn"]
    with WebHook() as hook:
        add(endpoint=hook.url, error={"code": "Any", "statusCode": 500}, count=1)
        add(endpoint=hook.url, kind="timeout", count=1)
        sns.subscribe(TopicArn=topic, Protocol="http", Endpoint=hook.url)

        def fired() -> list[int]:
            # A retry waits for up to 20 s.
            server.advance(30)
            return [rule["fired"] for rule in shown(server)]

        until(fired, lambda counts: counts == [1, 1])

        def delivered() -> Posted | None:
            # The second attempt may fail after the clock was moved.
            server.advance(30)
            return hook.next_within(1)

        found = until(delivered)
        assert found is not None
        assert found.envelope["Type"] == "SubscriptionConfirmation"


def test_two_processes_and_a_later_one_agree() -> None:
    with Server("--workers", "2") as server:
        account = new_account()
        url = new_queue(aws(server, account))
        rule = {"operation": "SendMessage", "error": "Throttled", "count": 5, "account": account}
        assert ask(server.url, "PUT", [rule]).status == 200
        refused = 0
        for _ in range(15):
            # Each client has a connection of its own, to either process.
            with Client("json", server.url, account) as client:
                try:
                    client.call("SendMessage", QueueUrl=url, MessageBody="x")
                except Refused:
                    refused += 1
        assert refused == 5
        with Server(dsn=server.dsn) as later:
            assert [one["fired"] for one in shown(later)] == [5]
            assert "Faults are on" in json.loads(fetch(later.url, "/readyz").body)["warning"]
            assert later.metric("queuegate_fault_rules") == 1
            assert ask(later.url, "DELETE").status == 200
            assert shown(server) == []
        assert json.loads(fetch(server.url, "/readyz").body) == {"status": "ok"}
        assert server.metric("queuegate_fault_rules") == 0


def test_rule_ends_by_itself(server: Server, account: str, add: Add) -> None:
    add(error="Throttled", ttl_seconds=0.2)
    until(lambda: shown(server), lambda rules: rules == [])
    until(lambda: server.metric("queuegate_fault_rules"), lambda count: count == 0)


BAD = [
    (b"{", "not JSON"),
    (b"7", "expected an object or an array"),
    (b'"\\ud800"', "not JSON"),
    ({}, "Say what goes wrong"),
    (
        [{"error": "A"}, {"error": "A", "count": -1}],
        "The field `count` of entry 2 is refused: allowed is 1 to 1000000000",
    ),
    ({"error": "A", "probability": 2}, "`probability` is refused"),
    ({"error": "A", "operation": "Send"}, "The operation Send is not known"),
    ({"error": "A", "service": "s3"}, "The service s3 is none of"),
    ({"error": "A", "face": "soap"}, "`face` is refused: allowed is aws or channels or logs"),
    ({"error": "A", "queue": "a\0b"}, "`queue` is refused"),
    ({"error": "A", "account": "12"}, "`account` is refused"),
    ({"error": "A B"}, "`error` is refused"),
    ({"error": {"code": "A", "statusCode": 200}}, "`statusCode` of `error` is refused"),
    ({"error": "A", "colour": 1}, "`colour` is not known"),
    ({"kind": "explode"}, "`kind` is refused"),
    ({"kind": "drop", "error": "A"}, "goes with the kind error"),
    ({"kind": "drop", "delay_ms": 5}, "goes with the kind late"),
    ({"kind": "late", "operation": "Publish"}, "is for SendMessage"),
    ({"kind": "duplicate", "queue": "a.fifo"}, "is for standard queues"),
    ({"kind": "timeout"}, "name the `endpoint`"),
    ({"kind": "lost", "endpoint": "http://a"}, "With `endpoint`"),
    ({"error": "A", "endpoint": "http://a", "queue": "q"}, "selects deliveries"),
    ([{"error": "A"}] * 257, "at most 256 rules"),
    ([{"error": "A"}] * 4000, "at most 256 rules"),
]


@pytest.mark.parametrize(("content", "text"), BAD, ids=[text[:30] for _, text in BAD])
def test_bad_rules_are_refused_and_change_nothing(
    server: Server, account: str, content: Any, text: str
) -> None:
    for method in ("POST", "PUT"):
        if isinstance(content, bytes):
            answer = fetch(server.url, "/_admin/faults", method, content)
        else:
            answer = ask(server.url, method, content)
        assert answer.status == 400
        assert text in json.loads(answer.body)["error"]
    assert shown(server) == []


def test_one_rule_is_removed_by_its_id(server: Server, account: str, add: Add) -> None:
    first, second = add(error="A"), add(kind="drop")
    assert ask(server.url, "DELETE", path=f"/{first['id']}").status == 200
    assert [rule["id"] for rule in shown(server)] == [second["id"]]
    for text, status in ((first["id"], 404), ("x", 404), ("%00", 400), ("1/2", 404)):
        assert ask(server.url, "DELETE", path=f"/{text}").status == status


def test_administrators_alone_make_faults_where_signatures_count(tmp_path: Path) -> None:
    rule = b'{"operation": "ListQueues", "error": "Throttled"}'
    with Verifying(tmp_path) as server:
        stranger = server.signer(new_account())
        for method in ("GET", "POST", "PUT", "DELETE"):
            assert ask(server.url, method, json.loads(rule)).status == 403
            assert stranger.ask(method, "/_admin/faults", {}, rule).status == 403
        assert server.first.sqs("ListQueues").status == 200
        assert server.first.ask("POST", "/_admin/faults", {}, rule).status == 200
        assert b"Throttled" in server.first.sqs("ListQueues").body


def test_pipelined_requests_behind_a_fault_are_dropped(
    server: Server, account: str, add: Add
) -> None:
    with Client("json", server.url, account) as client, Connection(server.url) as connection:
        url = client.call("CreateQueue", QueueName="orders")["QueueUrl"]
        add(operation="SendMessage", kind="lost", count=1)
        request = client.encode("SendMessage", {"QueueUrl": url, "MessageBody": "x"})
        connection.send(request + request)
        with pytest.raises(Closed):
            connection.answer()
        assert fetch(server.url, "/livez").status == 200

"""The console in a real browser: each view, what its buttons do, and what axe-core finds."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import boto3  # type: ignore[import-untyped]

from conformance import node
from conformance.serving import gateway

HERE = Path(__file__).resolve().parent
_SECONDS = 300
_HOSTILE = (
    "<script>window.wrong = 1</script>",
    "\u202etxt.exe",
    "x" * 1_048_576,
    "<img src=x onerror=alert(1)>",
)

_ONE_ATTEMPT = {"healthyRetryPolicy": {"numRetries": 0}}


def _client(endpoint: str, service: str) -> Any:
    return boto3.client(
        service,
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
    )


def _post(endpoint: str, path: str, content: object = None, method: str = "POST") -> Any:
    """Send JSON to the native API and return the decoded answer."""
    headers = {"authorization": "Bearer 000000000000", "content-type": "application/json"}
    data = b"" if content is None else json.dumps(content).encode()
    request = Request(endpoint + path, data, headers, method=method)
    with urlopen(request, timeout=30) as answer:
        return json.loads(answer.read() or b"null")


def _fill_log(endpoint: str) -> None:
    """Make a log with a group, whose subscriber has rejected a record."""
    _post(endpoint, "/v1/logs", {"log": "audit", "partitions": 2})
    records = [{"key": key, "payload": body} for key in ("a", "b") for body in _HOSTILE[:2]]
    _post(endpoint, "/v1/logs/audit/records", {"records": records})
    _post(endpoint, "/v1/logs/audit/groups/billing", {"lease": 3600}, method="PUT")
    subscriber = "/v1/logs/audit/groups/billing/subscribers/worker-1"
    session = _post(endpoint, subscriber, method="PUT")["session"]
    [one] = _post(endpoint, f"{subscriber}/fetch", {"session": session, "max": 1})["records"]
    settled = [{"receipt": one["receipt"], "do": "reject", "error": "it has no price"}]
    _post(endpoint, "/v1/logs/audit/groups/billing/deliveries", {"deliveries": settled})


def fill(endpoint: str) -> None:
    """Make one of each for the console to show."""
    sqs, sns = _client(endpoint, "sqs"), _client(endpoint, "sns")
    arn = "arn:aws:sqs:us-east-1:000000000000:{}".format
    dead = sqs.create_queue(QueueName="orders-dead")["QueueUrl"]
    policy = json.dumps({"deadLetterTargetArn": arn("orders-dead"), "maxReceiveCount": 3})
    orders = sqs.create_queue(
        QueueName="orders", Attributes={"RedrivePolicy": policy}, tags={"team": "shop"}
    )["QueueUrl"]
    bills = sqs.create_queue(
        QueueName="bills.fifo",
        Attributes={"FifoQueue": "true", "ContentBasedDeduplication": "true"},
    )["QueueUrl"]
    for number in range(12):
        body = json.dumps({"order": number, "items": [{"sku": f"A-{number}", "count": 2}]})
        delay = 600 if number % 5 == 0 else 0
        sqs.send_message(QueueUrl=orders, MessageBody=body, DelaySeconds=delay)
        sqs.send_message(QueueUrl=bills, MessageBody=body, MessageGroupId=f"customer-{number % 3}")
    for body in _HOSTILE:
        sqs.send_message(QueueUrl=orders, MessageBody=body)
    sqs.receive_message(QueueUrl=orders, MaxNumberOfMessages=3, VisibilityTimeout=300)
    sqs.send_message(QueueUrl=dead, MessageBody="a message that failed")
    fill_dead_letters(sqs)
    topic = sns.create_topic(Name="news")["TopicArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn("orders-dead"))
    sns.subscribe(
        TopicArn=topic,
        Protocol="sqs",
        Endpoint=arn("orders"),
        Attributes={"FilterPolicy": json.dumps({"kind": ["new"]})},
    )
    sns.publish(PhoneNumber="+15555550100", Message="a text message")
    hook = {"endpoint": "http://127.0.0.1:1/closed", "delivery_policy": _ONE_ATTEMPT}
    _post(endpoint, "/v1/events/hooks/subscriptions", hook)
    _post(endpoint, "/v1/topics/hooks/messages", {"message": "refused"})
    target = {"kind": "queue", "queue_name": "orders", "message": "go"}
    for name, when in (("hourly", "every hour"), ("nightly-report", "every day at 3am")):
        _post(endpoint, "/v1/schedules", {"name": name, "when": when, "target": target})
    _fill_log(endpoint)
    for priority in (0, 5, 10):
        message = {"channel": "alerts", "payload": {"disk": "full"}, "priority": priority}
        _post(endpoint, "/v1/messages", message)
    _client(endpoint, "scheduler").create_schedule(
        Name="nightly",
        ScheduleExpression="cron(0 3 * * ? *)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": arn("orders"), "RoleArn": "arn:aws:iam::000000000000:role/any"},
    )


def fill_dead_letters(sqs: Any) -> None:
    """Make an empty queue, and one whose messages were received too often."""
    sqs.create_queue(QueueName="idle")
    arn = "arn:aws:sqs:us-east-1:000000000000:jobs-dead"
    once = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    sqs.create_queue(QueueName="jobs-dead")
    jobs = sqs.create_queue(QueueName="jobs", Attributes={"RedrivePolicy": once})["QueueUrl"]
    for body in ("job 1", "job 2"):
        attributes = {"kind": {"DataType": "String", "StringValue": f"{body} of many"}}
        sqs.send_message(QueueUrl=jobs, MessageBody=body, MessageAttributes=attributes)
    for _ in range(3):
        sqs.receive_message(QueueUrl=jobs, MaxNumberOfMessages=10, VisibilityTimeout=0)


def visit_console(program: str, pictures: Path | None) -> dict[str, str]:
    """Visit all views; return the fault of each check. Pictures of them go to the folder."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        gateway(os.environ, QUEUEGATE_AUDIT=os.devnull) as endpoint,
        gateway(os.environ, QUEUEGATE_CONSOLE="read-only") as reading,
    ):
        folder = pictures or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        fill(endpoint)
        fill(reading)
        environ = os.environ | {"NODE_PATH": str(node.packages(HERE))}
        done = subprocess.run(
            ["node", "--input-type=module", "-", endpoint, program, str(folder), reading],
            input=(HERE / "console.js").read_bytes(),
            env=environ,
            stdout=subprocess.PIPE,
            check=True,
            timeout=_SECONDS,
        )
        outcomes: dict[str, str] = json.loads(done.stdout)
        return outcomes

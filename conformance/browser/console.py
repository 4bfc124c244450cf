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
    "x" * 100_000,
    "<img src=x onerror=alert(1)>",
)


def _client(endpoint: str, service: str) -> Any:
    return boto3.client(
        service,
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
    )


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
    topic = sns.create_topic(Name="news")["TopicArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn("orders-dead"))
    sns.subscribe(
        TopicArn=topic,
        Protocol="sqs",
        Endpoint=arn("orders"),
        Attributes={"FilterPolicy": json.dumps({"kind": ["new"]})},
    )
    sns.publish(PhoneNumber="+15555550100", Message="a text message")
    for path, content in (
        ("/v1/logs", {"log": "audit", "partitions": 2}),
        ("/v1/logs/audit/records", {"records": [{"key": "a", "payload": "by somebody"}]}),
        (
            "/v1/schedules",
            {
                "name": "hourly",
                "when": "every hour",
                "target": {"kind": "queue", "queue_name": "orders", "message": "go"},
            },
        ),
    ):
        headers = {"authorization": "Bearer 000000000000", "content-type": "application/json"}
        request = Request(endpoint + path, json.dumps(content).encode(), headers)
        with urlopen(request, timeout=30) as answer:
            answer.read()
    _client(endpoint, "scheduler").create_schedule(
        Name="nightly",
        ScheduleExpression="cron(0 3 * * ? *)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": arn("orders"), "RoleArn": "arn:aws:iam::000000000000:role/any"},
    )


def visit_console(program: str, pictures: Path | None) -> dict[str, str]:
    """Visit all views; return the fault of each check. Pictures of them go to the folder."""
    with tempfile.TemporaryDirectory() as scratch, gateway(os.environ) as endpoint:
        folder = pictures or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        fill(endpoint)
        environ = os.environ | {"NODE_PATH": str(node.packages(HERE))}
        done = subprocess.run(
            ["node", "--input-type=module", "-", endpoint, program, str(folder)],
            input=(HERE / "console.js").read_bytes(),
            env=environ,
            stdout=subprocess.PIPE,
            check=True,
            timeout=_SECONDS,
        )
        outcomes: dict[str, str] = json.loads(done.stdout)
        return outcomes

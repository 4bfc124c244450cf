"""The calls of KEDA's scaler `aws-sqs-queue` (v2.21.0), as the shipped ScaledObject configures it.

The scaler asks for the counts of one queue in one signed GetQueueAttributes, adds them up, and
fails if one is missing or no whole number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from tests.faces.connections import Answer, Connection, request_bytes
from tests.faces.signing import Signer, Verifying
from tests.waiting import until

MANIFEST = Path(__file__).parents[2] / "deploy/kubernetes/scaled-object.yaml"
ACCOUNT = "111122223333"
POLICY = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "sqs:GetQueueAttributes", "Resource": "*"}],
}
# As aws-sdk-go-v2 sends them. Of these it signs neither the agent nor the number of the attempt.
HEADERS = {
    "User-Agent": "aws-sdk-go-v2/1.39.0 ua/2.1 os/linux lang/go#1.25.0 api/sqs#1.42.0",
    "Amz-Sdk-Invocation-Id": "5f0f6b0e-4c9e-4a0b-8c43-6b3f1f0c2f11",
    "Amz-Sdk-Request": "attempt=1; max=3",
    "Content-Type": "application/x-amz-json-1.0",
    "X-Amz-Target": "AmazonSQS.GetQueueAttributes",
}
UNSIGNED = ("user-agent", "amz-sdk-request")
MISSING = f"http://queuegate.default.svc:9324/{ACCOUNT}/missing"


class ScalerOfQueues:
    """KEDA, with a key that may read the attributes of queues only."""

    def __init__(self, signer: Signer) -> None:
        _, scaled = yaml.safe_load_all(MANIFEST.read_text())
        [trigger] = scaled["spec"]["triggers"]
        assert trigger["type"] == "aws-sqs-queue"
        self.metadata: dict[str, str] = trigger["metadata"]
        self.signer = signer.other(region=self.metadata["awsRegion"])

    def names(self) -> list[str]:
        """Return the attributes that the scaler adds up."""
        names = ["ApproximateNumberOfMessages"]
        if self.metadata.get("scaleOnInFlight", "true") == "true":
            names.append("ApproximateNumberOfMessagesNotVisible")
        if self.metadata.get("scaleOnDelayed", "false") == "true":
            names.append("ApproximateNumberOfMessagesDelayed")
        return names

    def ask(self, queue_url: str) -> Answer:
        body = json.dumps({"AttributeNames": self.names(), "QueueUrl": queue_url}).encode()
        headers = HEADERS | {"Content-Length": str(len(body))}
        signed = self.signer.sign("POST", "/", headers, body, leaves=UNSIGNED)
        signed.pop("Content-Length")
        with Connection(self.signer.url) as connection:
            connection.send(request_bytes("POST", "/", signed, body))
            return connection.answer()

    def length(self, queue_url: str) -> int:
        """Return the sum that KEDA scales by."""
        answer = self.ask(queue_url)
        assert answer.status == 200, answer.text
        attributes = json.loads(answer.body)["Attributes"]
        return sum(int(attributes[name]) for name in self.names())


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verifying]:
    with Verifying(tmp_path_factory.mktemp("keda")) as running:
        yield running


@pytest.fixture(scope="module")
def owner(gateway: Verifying) -> Signer:
    """The owner of the queue, whose key the gateway knows."""
    signer = gateway.signer(ACCOUNT, name="owner")
    until(lambda: signer.sqs("ListQueues").status == 200)
    return signer


@pytest.fixture(scope="module")
def scaler(gateway: Verifying, tmp_path_factory: pytest.TempPathFactory) -> ScalerOfQueues:
    policy = tmp_path_factory.mktemp("policy") / "policy.json"
    policy.write_text(json.dumps(POLICY))
    scaler = ScalerOfQueues(gateway.signer(ACCOUNT, "--policy", str(policy), name="keda"))
    until(lambda: scaler.ask(MISSING).status == 400)
    return scaler


def test_the_three_counts_are_added_up(owner: Signer, scaler: ScalerOfQueues) -> None:
    """The URL is that of the manifest: another host than the one that is asked."""
    url = scaler.metadata["queueURL"]
    assert owner.sqs("CreateQueue", QueueName=url.rpartition("/")[2]).status == 200
    assert scaler.length(url) == 0
    for delay in (0, 0, 900):
        sent = owner.sqs("SendMessage", QueueUrl=url, MessageBody="x", DelaySeconds=delay)
        assert sent.status == 200, sent.text
    received = owner.sqs("ReceiveMessage", QueueUrl=url, VisibilityTimeout=600)
    assert len(json.loads(received.body)["Messages"]) == 1
    assert scaler.length(url) == 3


def test_the_key_of_the_scaler_reads_counts_only(owner: Signer, scaler: ScalerOfQueues) -> None:
    assert "QueueDoesNotExist" in scaler.ask(MISSING).text
    other = owner.sqs("CreateQueue", QueueName="other")
    url = json.loads(other.body)["QueueUrl"]
    refused = scaler.signer.sqs("SendMessage", QueueUrl=url, MessageBody="x")
    assert refused.status == 403
    assert scaler.length(url) == 0

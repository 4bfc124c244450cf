"""SQS and SNS require what their service models require, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from queuegate.protocol.sns_shapes import SNS
from queuegate.protocol.sqs_shapes import SQS
from tests.faces.clients import Client, Refused, Sqs
from tests.faces.sns_client import Sns
from tests.protocol import oracle

UUID = "00000000-0000-0000-0000-000000000000"
# Refusals that are recorded otherwise (docs/contract/protocol.md 1.2, docs/contract/sqs.md 2.3 and
# 2.8, docs/contract/sns.md 3.4).
OTHERWISE = {
    "QueueUrl": "AWS.SimpleQueueService.NonExistentQueue",
    "Entries": "AWS.SimpleQueueService.EmptyBatchRequest",
    "GetQueueUrl.QueueName": "InvalidParameterValue",
    "Unsubscribe.SubscriptionArn": "InvalidParameter",
}
SINGULAR = {"TagKeys": "TagKey", "AWSAccountIds": "AWSAccountId", "Actions": "ActionName"}


def texts(client: Client, name: str) -> set[str]:
    """Return the texts that name a missing member; SQS names a list as each wire does."""
    if client.service == "sqs":
        names = {name, SINGULAR.get(name, name)}
        return {f"The request must contain the parameter {one}." for one in names}
    return {
        f"1 validation error detected: Value null at '{name[0].lower()}{name[1:]}' failed to "
        "satisfy constraint: Member must not be null"
    }


def check(client: Client, model: Any, action: str, code: str, members: dict[str, Any]) -> None:
    """Leave out each required member, then every other one; a publish has a topic."""
    required = model.operation_model(action).input_shape.required_members
    whole = {name: members[name] for name in required}
    if action == "Publish":
        whole["TopicArn"] = members["TopicArn"]
    for name in required:
        rest = {other: value for other, value in whole.items() if other != name}
        refused = client.refusal(action, **rest)
        otherwise = OTHERWISE.get(f"{action}.{name}", OTHERWISE.get(name))
        assert refused.code == (otherwise or code), name
        assert otherwise or refused.text in texts(client, name)
    answer = client.ask(action, whole)
    assert answer.status == 200 or Refused(answer).code != code


@pytest.mark.parametrize("action", SQS.actions)
def test_members_of_sqs(sqs: Sqs, action: str) -> None:
    members = {
        "AWSAccountIds": [sqs.account],
        "Actions": ["SendMessage"],
        "Attributes": {"DelaySeconds": "1"},
        "Entries": [{"Id": "a"}],
        "Label": "label",
        "MessageBody": "m",
        "QueueName": "another",
        "QueueUrl": sqs.create(),
        "ReceiptHandle": "h",
        "SourceArn": f"arn:aws:sqs:us-east-1:{sqs.account}:orders",
        "TagKeys": ["k"],
        "Tags": {"k": "v"},
        "TaskHandle": "h",
        "VisibilityTimeout": 1,
    }
    check(sqs, oracle.json_model(), action, "MissingParameter", members)


@pytest.mark.parametrize("action", sorted(SNS.actions.keys() - {"GetSMSSandboxAccountStatus"}))
def test_members_of_sns(sns: Sns, action: str) -> None:
    topic = sns.create()
    place = topic.removesuffix("news")
    members = {
        "AWSAccountId": [sns.account],
        "ActionName": ["Publish"],
        "AttributeName": "DisplayName",
        "Attributes": {"Enabled": "true"},
        "DataProtectionPolicy": "{}",
        "EndpointArn": f"{place}endpoint/GCM/app/{UUID}",
        "Label": "label",
        "Message": "m",
        "Name": "another",
        "OneTimePassword": "12345",
        "PhoneNumber": "+15005550006",
        "Platform": "GCM",
        "PlatformApplicationArn": f"{place}app/GCM/app",
        "Protocol": "sqs",
        "PublishBatchRequestEntries": [{"Id": "a", "Message": "m"}],
        "ResourceArn": topic,
        "SubscriptionArn": f"{topic}:{UUID}",
        "TagKeys": ["k"],
        "Tags": [{"Key": "k", "Value": "v"}],
        "Token": "0" * 64,
        "TopicArn": topic,
        "attributes": {"DefaultSMSType": "Promotional"},
        "phoneNumber": "+15005550006",
    }
    check(sns, oracle.sns_model(), action, "ValidationError", members)

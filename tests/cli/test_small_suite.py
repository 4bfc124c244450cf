"""Many small tests against one ephemeral gateway with default settings."""

from __future__ import annotations

from tests.cli.processes import Gateway
from tests.faces.clients import Sqs
from tests.faces.sns_client import Sns

_TESTS = 15


def test_each_of_many_sets_up_and_tears_down_under_the_same_names() -> None:
    """One account, so that every test meets what the one before has left."""
    with (
        Gateway("--ephemeral") as gateway,
        Sqs("json", gateway.url, "000000000000") as sqs,
        Sns("query", gateway.url, "000000000000") as sns,
    ):
        for number in range(_TESTS):
            queue = sqs.call("CreateQueue", QueueName="orders")["QueueUrl"]
            topic = sns.call("CreateTopic", Name="news")["TopicArn"]
            sns.call(
                "Subscribe",
                TopicArn=topic,
                Protocol="sqs",
                Endpoint="arn:aws:sqs:us-east-1:000000000000:orders",
                Attributes={"RawMessageDelivery": "true"},
            )
            for _ in range(2):
                sqs.call("PurgeQueue", QueueUrl=queue)
            sns.call("Publish", TopicArn=topic, Message=str(number))
            found = sqs.call("ReceiveMessage", QueueUrl=queue, MaxNumberOfMessages=10)
            assert [message["Body"] for message in found["Messages"]] == [str(number)]
            sns.call("DeleteTopic", TopicArn=topic)
            sqs.call("DeleteQueue", QueueUrl=queue)

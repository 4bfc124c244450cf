"""A neutral SNS client with a driver per wire, and what most tests do with it."""

from __future__ import annotations

from typing import Any

from tests.faces.clients import Client, Sqs

SNS_WIRES = ("query", "json")

# Publish and PublishBatch are on the fast path, too.
PUBLISH_WIRES = ("query", "query-long", "json", "json-long")


class Sns(Client):
    """SNS of one wire, account and region."""

    service = "sns"

    def __init__(
        self, wire: str, url: str, account: str | None = None, region: str = "us-east-1"
    ) -> None:
        super().__init__(wire, url, account, region)
        self._sqs: Sqs | None = None

    def sqs(self) -> Sqs:
        """An SQS client of the same account and region; closed together with this one."""
        if self._sqs is None:
            self._sqs = Sqs("json", self.url, self.account, self.region)
        return self._sqs

    def close(self) -> None:
        super().close()
        if self._sqs is not None:
            self._sqs.close()

    def create(self, name: str = "news", **attributes: str) -> str:
        """A topic's ARN."""
        members: dict[str, Any] = {"Name": name}
        if attributes:
            members["Attributes"] = attributes
        arn: str = self.call("CreateTopic", **members)["TopicArn"]
        return arn

    def create_fifo(self, name: str = "news.fifo", **attributes: str) -> str:
        """A FIFO topic's ARN; deduplication ids come from the content unless told otherwise."""
        defaults = {"FifoTopic": "true", "ContentBasedDeduplication": "true"}
        return self.create(name, **(defaults | attributes))

    def attributes(self, topic_arn: str) -> dict[str, str]:
        """Of a topic."""
        found: dict[str, str] = self.call("GetTopicAttributes", TopicArn=topic_arn)["Attributes"]
        return found

    def set(self, topic_arn: str, name: str, value: str) -> None:
        """Set one attribute of a topic."""
        members = {"TopicArn": topic_arn, "AttributeName": name, "AttributeValue": value}
        self.call("SetTopicAttributes", **members)

    def topic_arn(self, name: str) -> str:
        """The ARN that a topic of this account has, or would have."""
        return f"arn:aws:sns:{self.region}:{self.account}:{name}"

    def subscribe(self, topic_arn: str, protocol: str, endpoint: str, **attributes: str) -> str:
        """A subscription's ARN, also while it is pending."""
        members: dict[str, Any] = {
            "TopicArn": topic_arn,
            "Protocol": protocol,
            "Endpoint": endpoint,
            "ReturnSubscriptionArn": True,
        }
        if attributes:
            members["Attributes"] = attributes
        arn: str = self.call("Subscribe", **members)["SubscriptionArn"]
        return arn

    def subscription(self, arn: str) -> dict[str, str]:
        """The attributes of a subscription."""
        found: dict[str, str] = self.call("GetSubscriptionAttributes", SubscriptionArn=arn)[
            "Attributes"
        ]
        return found

    def subscribe_queue(self, topic_arn: str, queue_name: str, **attributes: str) -> str:
        """Create a queue of that name and subscribe it; the queue's URL."""
        sqs = self.sqs()
        is_fifo = queue_name.endswith(".fifo")
        url = sqs.create_fifo(queue_name) if is_fifo else sqs.create(queue_name)
        self.subscribe(topic_arn, "sqs", sqs.arn(url), **attributes)
        return url

    def publish(self, topic_arn: str, message: str = "hello", **members: Any) -> dict[str, Any]:
        return self.call("Publish", TopicArn=topic_arn, Message=message, **members)

    def warm(self, topic_arn: str) -> str:
        """Make the gateway know the topic, so that the next publish may take the fast path; the
        ARN."""
        self.refusal("Publish", TopicArn=topic_arn, Message="x", Subject="")
        return topic_arn

    def publish_batch(self, topic_arn: str, *entries: dict[str, Any]) -> dict[str, Any]:
        """Publish entries, whose ids are their places unless they have one."""
        numbered = [{"Id": str(place)} | entry for place, entry in enumerate(entries)]
        members = {"TopicArn": topic_arn, "PublishBatchRequestEntries": numbered}
        return self.call("PublishBatch", **members)

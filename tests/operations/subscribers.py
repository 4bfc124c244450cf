"""Common steps of tests of subscriptions, in one account."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from uuid import UUID

from queuegate.storage.model import TopicSubscription
from queuegate.storage.topics import subscriptions
from tests.operations.sns_actions import BASE_URL, CreateTopic, ask, create_topic
from tests.operations.world import World

__all__ = ["BASE_URL", "WEB_HOOK", "Subscriber"]

WEB_HOOK = "https://hooks.example/news"


class Subscriber(World):
    """A caller at an engine. The ARN of a subscription is shown also while it is pending."""

    def anonymous(self) -> Subscriber:
        """The same without credentials."""
        return Subscriber(self.engine, replace(self.caller, is_anonymous=True))

    def of_account(self, account_id: str) -> Subscriber:
        """Somebody else, in the same region."""
        return Subscriber(self.engine, replace(self.caller, account_id=account_id))

    def queue_arn(self, name: str = "orders") -> str:
        return f"arn:aws:sqs:{self.caller.region}:{self.caller.account_id}:{name}"

    async def topic(self, name: str = "news", **attributes: str) -> str:
        """A topic's ARN; a FIFO topic by its name."""
        if name.endswith(".fifo"):
            attributes = {"FifoTopic": "true", **attributes}
        return (await create_topic(self.engine, self.caller, CreateTopic(name, attributes))).arn

    async def subscribe(
        self,
        topic_arn: str | None,
        protocol: str | None = "sqs",
        endpoint: str | None = None,
        **attributes: str,
    ) -> str:
        """The ARN. Without an endpoint: of a queue."""
        return await self._subscribe(topic_arn, protocol, endpoint, attributes, shows_arn=True)

    async def answer(
        self, topic_arn: str | None, protocol: str, endpoint: str, **attributes: str
    ) -> str:
        """Subscribe without ReturnSubscriptionArn and return the answer."""
        return await self._subscribe(topic_arn, protocol, endpoint, attributes, shows_arn=False)

    async def _subscribe(
        self,
        topic_arn: str | None,
        protocol: str | None,
        endpoint: str | None,
        attributes: dict[str, str],
        *,
        shows_arn: bool,
    ) -> str:
        answer = await self.ask(
            "Subscribe",
            TopicArn=topic_arn,
            Protocol=protocol,
            Endpoint=self.queue_arn() if endpoint is None else endpoint,
            Attributes=attributes,
            ReturnSubscriptionArn=shows_arn,
        )
        arn: str = answer["SubscriptionArn"]
        return arn

    async def ask(self, action: str, **members: Any) -> dict[str, Any]:
        return await ask(self.engine, self.caller, action, **members)

    async def get(self, arn: str | None) -> dict[str, str]:
        found = await self.ask("GetSubscriptionAttributes", SubscriptionArn=arn)
        attributes: dict[str, str] = found["Attributes"]
        return attributes

    async def set(self, arn: str | None, name: str | None, value: str | None) -> None:
        await self.ask(
            "SetSubscriptionAttributes",
            SubscriptionArn=arn,
            AttributeName=name,
            AttributeValue=value,
        )

    async def confirm(
        self, topic_arn: str | None, token: str | None, authenticate: str | None = None
    ) -> str:
        answer = await self.ask(
            "ConfirmSubscription",
            TopicArn=topic_arn,
            Token=token,
            AuthenticateOnUnsubscribe=authenticate,
        )
        arn: str = answer["SubscriptionArn"]
        return arn

    async def unsubscribe(self, arn: str | None) -> None:
        await self.ask("Unsubscribe", SubscriptionArn=arn)

    async def of_topic(self, topic_arn: str) -> list[str]:
        """The ARNs of the topic's subscriptions."""
        page = await self.ask("ListSubscriptionsByTopic", TopicArn=topic_arn)
        return [subscription["SubscriptionArn"] for subscription in page["Subscriptions"]]

    async def stored(self, arn: str) -> TopicSubscription:
        async with self.engine.database.transaction() as tx:
            found = await subscriptions.find(
                tx, UUID(arn.rpartition(":")[2]), self.engine.clock.now()
            )
        assert found is not None
        return found

    async def rows(self, table: str) -> list[dict[str, Any]]:
        """All of a table, in order of writing."""
        async with self.engine.database.transaction() as tx:
            return [dict(row) for row in await tx.fetch(f"SELECT * FROM {table} ORDER BY 1")]

    async def envelopes(self) -> list[dict[str, str]]:
        """Return the envelopes of the deliveries to web hooks."""
        return [json.loads(row["body"]) for row in await self.rows("deliveries")]

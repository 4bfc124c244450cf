"""Kinds of resources of a seed: their fields, and the calls that list, read and write them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import quote

from msgspec import Meta, Struct

from queuegate.gateway.faces.aws.sns import subscription_attributes, topic_attributes
from queuegate.gateway.faces.aws.sqs import sqs_queue_attributes
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.seeding.seed_calls import CallRefused, SeedCalls
from queuegate.protocol.scheduler_shapes import SCHEDULER
from queuegate.protocol.urls import without_password
from queuegate.storage.model import TOPIC_DEFAULTS
from queuegate.storage.queue_model import QUEUE_DEFAULTS

Values = dict[str, Any]
AccountId = Annotated[str, Meta(pattern=r"^[0-9]{12}\Z")]
Region = Annotated[str, Meta(pattern=r"^[a-z0-9-]{1,64}\Z")]


class SeedResource(Struct):
    """A resource with its attributes or members as the API names them, and its tags."""

    kind: Literal["queue", "topic", "subscription", "schedule", "channel", "log", "key"]
    account_id: AccountId
    region: Region
    name: str
    """The endpoint of a subscription."""
    values: Values = {}
    """Attributes of SQS and SNS are texts."""
    parent: str = ""
    """Of a subscription the topic's ARN, a space and the protocol; of a schedule its group."""
    messages: list[dict[str, Any]] = []
    """For a queue that is created: members of SendMessage."""
    replaces: bool = False
    """Replace the key if it exists: its secret is lost."""

    def __post_init__(self) -> None:
        tags = self.values.get("tags", {})
        if not (isinstance(tags, dict) and all(isinstance(one, str) for one in tags.values())):
            raise ValueError("tags have to be an object of texts")

    @property
    def identity(self) -> tuple[str, ...]:
        """Return what no other resource shares."""
        return self.kind, self.account_id, self.region, self.parent, without_password(self.name)


class ResourceKind(ABC):
    """The calls that list, read and write the resources of a kind."""

    fields: tuple[str, ...] = ()
    defaults: ClassVar[Mapping[str, object]] = {}
    """Values that an export leaves out, as it does empty ones."""
    stand_ins: ClassVar[Mapping[str, object]] = {}
    """Valid values of members that each resource needs."""
    allowed: ClassVar[Mapping[str, str]] = {}
    """Allowed values of fields whose refusals do not name them."""

    def __init__(self, calls: SeedCalls) -> None:
        self.calls = calls

    @abstractmethod
    def found(self) -> AsyncIterator[tuple[str, str]]:
        """Yield name and parent of each resource of the account."""

    @abstractmethod
    async def read(self, one: SeedResource) -> Values:
        """Return the values of a resource. Raises CallRefused or Rejected if it is absent."""

    @abstractmethod
    async def write(self, one: SeedResource, values: Values, present: Values | None) -> str | None:
        """Create a resource, or set these values of a present one. Return the secret of a key."""

    async def delete(self, one: SeedResource) -> None:
        """Delete a resource."""
        raise NotImplementedError


def _only(values: Values, names: Iterable[str]) -> Values:
    return {name: values[name] for name in names if values.get(name) is not None}


def _tagless(values: Values) -> Values:
    return {name: value for name, value in values.items() if name != "tags"}


class _Queues(ResourceKind):
    fields = tuple(name for name in sqs_queue_attributes.SETTABLE if name != "FifoQueue")
    defaults: ClassVar = QUEUE_DEFAULTS
    allowed: ClassVar = {
        "VisibilityTimeout": f"0 to {LIMITS.visibility_timeout_seconds}",
        "MaximumMessageSize": f"1024 to {LIMITS.message_bytes}",
        "MessageRetentionPeriod": "60 to 1209600",
        "DelaySeconds": f"0 to {LIMITS.delay_seconds}",
        "ReceiveMessageWaitTimeSeconds": f"0 to {LIMITS.receive_wait_seconds}",
        "KmsDataKeyReusePeriodSeconds": "60 to 86400",
        "SqsManagedSseEnabled": "true and false",
        "ContentBasedDeduplication": "true and false",
        "DeduplicationScope": "queue and messageGroup",
        "FifoThroughputLimit": "perQueue and perMessageGroupId",
        "KmsMasterKeyId": "texts of at most 2048 characters",
    }

    async def found(self) -> AsyncIterator[tuple[str, str]]:
        pages = self.calls.all_of("sqs", "ListQueues", "QueueUrls", MaxResults=1000)
        names = [url.rpartition("/")[2] async for url in pages]
        await self.calls.engine.queues.find_many((*self.calls.where, name) for name in names)
        for name in names:
            yield name, ""

    async def read(self, one: SeedResource) -> Values:
        if "\0" in one.name:
            # PostgreSQL has no such texts.
            raise CallRefused({})
        queue = await self.calls.engine.queues.find(*self.calls.where, one.name)
        shown = sqs_queue_attributes.read(queue, frozenset(self.fields), None)
        return {**shown, "tags": dict(queue.tags)}

    async def write(self, one: SeedResource, values: Values, present: Values | None) -> None:
        attributes, tags = _tagless(values), values.get("tags")
        if present is None:
            fifo = {"FifoQueue": "true"} if one.name.endswith(".fifo") else {}
            members = {"Attributes": {**attributes, **fifo}, "tags": tags or {}}
            await self.calls.aws("sqs", "CreateQueue", QueueName=one.name, **members)
            return
        at = {"QueueUrl": self.calls.queue_url(one.name)}
        if attributes:
            await self.calls.aws("sqs", "SetQueueAttributes", Attributes=attributes, **at)
        if tags:
            await self.calls.aws("sqs", "TagQueue", Tags=tags, **at)

    async def delete(self, one: SeedResource) -> None:
        await self.calls.aws("sqs", "DeleteQueue", QueueUrl=self.calls.queue_url(one.name))


class _Topics(ResourceKind):
    fields = tuple(name for name in topic_attributes.SETTABLE if name != "FifoTopic")
    defaults: ClassVar = TOPIC_DEFAULTS

    async def found(self) -> AsyncIterator[tuple[str, str]]:
        async for entry in self.calls.all_of("sns", "ListTopics", "Topics"):
            yield entry["TopicArn"].rpartition(":")[2], ""

    def _arn(self, one: SeedResource) -> str:
        return f"arn:aws:sns:{one.region}:{one.account_id}:{one.name}"

    async def read(self, one: SeedResource) -> Values:
        arn = self._arn(one)
        found = (await self.calls.aws("sns", "GetTopicAttributes", TopicArn=arn))["Attributes"]
        tags = (await self.calls.aws("sns", "ListTagsForResource", ResourceArn=arn)).get(
            "Tags"
        ) or ()
        values: Values = {name: found[name] for name in self.fields if name in found}
        if "__default_policy_ID" in values.get("Policy", ""):
            del values["Policy"]
        return {**values, "tags": {tag["Key"]: tag["Value"] for tag in tags}}

    async def write(self, one: SeedResource, values: Values, present: Values | None) -> None:
        attributes, arn = _tagless(values), self._arn(one)
        tags = [{"Key": key, "Value": value} for key, value in values.get("tags", {}).items()]
        if present is None:
            fifo = {"FifoTopic": "true"} if one.name.endswith(".fifo") else {}
            members = {"Attributes": {**attributes, **fifo}, "Tags": tags}
            await self.calls.aws("sns", "CreateTopic", Name=one.name, **members)
            return
        for name, text in attributes.items():
            if present.get(name) != text:
                members = {"AttributeName": name, "AttributeValue": text}
                await self.calls.aws("sns", "SetTopicAttributes", TopicArn=arn, **members)
        if tags:
            await self.calls.aws("sns", "TagResource", ResourceArn=arn, Tags=tags)

    async def delete(self, one: SeedResource) -> None:
        await self.calls.aws("sns", "DeleteTopic", TopicArn=self._arn(one))


class _Subscriptions(ResourceKind):
    fields = tuple(subscription_attributes.SETTABLE)
    defaults: ClassVar = {"RawMessageDelivery": "false", "FilterPolicyScope": "MessageAttributes"}

    async def found(self) -> AsyncIterator[tuple[str, str]]:
        async for entry in self.calls.all_of("sns", "ListSubscriptions", "Subscriptions"):
            yield entry["Endpoint"], f"{entry['TopicArn']} {entry['Protocol']}"

    async def _arn(self, one: SeedResource) -> str:
        """Return the ARN of a subscription; empty: it is not confirmed. Raises CallRefused."""
        topic, _, protocol = one.parent.partition(" ")
        listed = self.calls.listed.get(topic)
        if listed is None:
            listed = self.calls.listed[topic] = {}
            action = "ListSubscriptionsByTopic"
            async for entry in self.calls.all_of("sns", action, "Subscriptions", TopicArn=topic):
                listed[entry["Protocol"], entry["Endpoint"]] = entry["SubscriptionArn"]
        arn = listed.get((protocol, without_password(one.name)))
        if arn is None:
            raise CallRefused({})
        return arn if arn.startswith("arn:") else ""

    async def read(self, one: SeedResource) -> Values:
        arn = await self._arn(one)
        if not arn:
            return dict(one.values)
        found = await self.calls.aws("sns", "GetSubscriptionAttributes", SubscriptionArn=arn)
        return {name: value for name, value in found["Attributes"].items() if name in self.fields}

    async def write(self, one: SeedResource, values: Values, present: Values | None) -> None:
        if present is None:
            topic, _, protocol = one.parent.partition(" ")
            members = {"TopicArn": topic, "Protocol": protocol, "Attributes": values}
            made = await self.calls.aws(
                "sns", "Subscribe", Endpoint=one.name, ReturnSubscriptionArn=True, **members
            )
            arn = made["SubscriptionArn"]
            self.calls.listed.setdefault(topic, {})[protocol, without_password(one.name)] = arn
            return
        at = {"SubscriptionArn": await self._arn(one)}
        scope = "FilterPolicyScope"
        # A policy of bodies may be none of attributes, so the wider scope is set with either.
        is_of_body = values.get(scope) == "MessageBody"
        for name in sorted(values, key=lambda name: (name == scope) != is_of_body):
            if present.get(name) != values[name]:
                members = {"AttributeName": name, "AttributeValue": values[name]}
                await self.calls.aws("sns", "SetSubscriptionAttributes", **at, **members)

    async def delete(self, one: SeedResource) -> None:
        arn = await self._arn(one)
        if arn:
            await self.calls.aws("sns", "Unsubscribe", SubscriptionArn=arn)


class _RestKind(ResourceKind):
    """A kind whose resources have a path each."""

    path: str
    name: str
    member: str = ""
    """The member of a page that holds its entries."""
    service = "sqs"

    def _path(self, one: SeedResource) -> str:
        return f"{self.path}/{quote(one.name, safe='')}"

    async def found(self) -> AsyncIterator[tuple[str, str]]:
        async for entry in self.calls.all_after(self.path, self.member, self.name):
            yield entry[self.name], ""

    async def read(self, one: SeedResource) -> Values:
        found = await self.calls.rest("GET", self._path(one), service=self.service)
        return _only(found, self.fields)

    async def delete(self, one: SeedResource) -> None:
        await self.calls.rest("DELETE", self._path(one), service=self.service)

    def _check_fixed(self, present: Values, wanted: Values, names: Iterable[str]) -> None:
        """Refuse another value of a member that cannot be changed."""
        for name in names:
            if name in wanted and present.get(name) != wanted[name]:
                text = f"{name} cannot be changed: it is {present.get(name)}"
                raise CallRefused({"error": text})


class _Schedules(_RestKind):
    path, service = "/schedules", "scheduler"
    fields = tuple(
        name
        for name in SCHEDULER.actions["CreateSchedule"].input.members
        if name not in ("Name", "GroupName", "ClientToken")
    )
    stand_ins: ClassVar = {
        "ScheduleExpression": "rate(1 days)",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": {
            "Arn": "arn:aws:sqs:us-east-1:000000000000:any",
            "RoleArn": "arn:aws:iam::000000000000:role/any",
        },
    }

    def _path(self, one: SeedResource) -> str:
        return f"{super()._path(one)}?groupName={quote(one.parent)}"

    async def found(self) -> AsyncIterator[tuple[str, str]]:
        after: str | None = ""
        while after is not None:
            page = await self.calls.rest("GET", f"/schedules{after}", service="scheduler")
            for entry in page["Schedules"]:
                yield entry["Name"], entry["GroupName"]
            token = page.get("NextToken")
            after = f"?NextToken={quote(token)}" if token else None

    async def write(self, one: SeedResource, values: Values, present: Values | None) -> None:
        group = f"/schedule-groups/{quote(one.parent, safe='')}"
        try:
            await self.calls.rest("GET", group, service="scheduler")
        except CallRefused:
            await self.calls.rest("POST", group, {}, "scheduler")
        method, path = "POST" if present is None else "PUT", super()._path(one)
        await self.calls.rest(method, path, {**values, "GroupName": one.parent}, "scheduler")


class _Channels(_RestKind):
    """Channels are queues: an export names those whose settings SQS does not have."""

    path = "/v1/channels"
    fields = ("ack_window", "max_deliveries", "size")

    async def found(self) -> AsyncIterator[tuple[str, str]]:
        async for name, parent in _Queues(self.calls).found():
            queue = await self.calls.engine.queues.find(*self.calls.where, name)
            if queue.has_priorities or queue.most_messages or queue.max_deliveries:
                yield name, parent

    async def write(self, one: SeedResource, values: Values, present: Values | None) -> None:
        await self.calls.rest("PUT", self._path(one), values)


class _Logs(_RestKind):
    path, member, name = "/v1/logs", "logs", "log"
    fields = ("partitions", "retain_consumed", "max_age", "max_bytes")

    async def write(self, one: SeedResource, values: Values, present: Values | None) -> None:
        if present is None:
            await self.calls.rest("POST", self.path, {**values, "log": one.name})
            return
        self._check_fixed(present, values, ["partitions"])
        changes = {name: value for name, value in values.items() if name != "partitions"}
        await self.calls.rest("PATCH", self._path(one), changes)


class _Keys(_RestKind):
    path, name = "/v1/keys", "id"
    fields = ("kind", "administrator", "policy", "rate_limit", "expires_at")
    defaults: ClassVar = {"kind": "api"}

    async def found(self) -> AsyncIterator[tuple[str, str]]:
        async for entry in self.calls.all_after(self.path, "", self.name):
            yield entry["name"], ""

    async def _find(self, one: SeedResource) -> Values:
        async for entry in self.calls.all_after(self.path, "", self.name):
            if entry["name"] == one.name:
                return dict(entry)
        raise CallRefused({})

    async def read(self, one: SeedResource) -> Values:
        return _only(await self._find(one), self.fields)

    async def write(self, one: SeedResource, values: Values, present: Values | None) -> str | None:
        at = "" if present is None else f"{self.path}/{(await self._find(one))['id']}"
        if present is not None and not one.replaces:
            self._check_fixed(present, values, [name for name in self.fields if name != "policy"])
            await self.calls.rest("PATCH", at, _only(values, ["policy"]))
            return None
        if at:
            await self.calls.rest("DELETE", at)
        made = await self.calls.rest("POST", self.path, {**values, "name": one.name})
        if not made.get("secret_access_key"):
            return f"{made['key']}\n"
        secret = made["secret_access_key"]
        return f"AWS_ACCESS_KEY_ID={made['access_key_id']}\nAWS_SECRET_ACCESS_KEY={secret}\n"


KINDS: Mapping[str, type[ResourceKind]] = {
    "channel": _Channels,
    "queue": _Queues,
    "topic": _Topics,
    "subscription": _Subscriptions,
    "schedule": _Schedules,
    "log": _Logs,
    "key": _Keys,
}
"""In the order in which resources are created."""
PRUNED = ("schedule", "subscription", "topic", "queue", "log")
"""Kinds that are deleted if a seed does not name them, in this order."""

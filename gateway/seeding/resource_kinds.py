"""Kinds of resources of a seed: their fields, and the calls that list, read and write them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from secrets import token_hex
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import quote

import msgspec
from msgspec import Meta, Struct

from queuegate.gateway.faces.aws.aws_bindings import BINDINGS
from queuegate.gateway.faces.aws.aws_face import AwsFace
from queuegate.gateway.faces.aws.aws_rules import AttributeFault
from queuegate.gateway.faces.aws.sns import subscription_attributes, topic_attributes
from queuegate.gateway.faces.aws.sqs import sqs_queue_attributes
from queuegate.gateway.faces.channels.channels_face import channels_face
from queuegate.gateway.faces.interface import CallerAuthenticator, Face, Request
from queuegate.gateway.faces.logs.logs_face import logs_face
from queuegate.gateway.faces.rest.key_endpoints import members_of
from queuegate.gateway.faces.rest.rest_face import rest_face
from queuegate.gateway.http.authentication import Authenticator
from queuegate.gateway.operations.access import api_keys
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.logs import logs
from queuegate.gateway.operations.queues import queues
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.topics import topics
from queuegate.protocol import arns
from queuegate.protocol.malformed import Malformed
from queuegate.protocol.scheduler_shapes import SCHEDULER
from queuegate.protocol.shapes import STRING, Map, Shape
from queuegate.storage.model import TOPIC_DEFAULTS
from queuegate.storage.queue_model import QUEUE_DEFAULTS
from queuegate.storage.storage_errors import Unavailable
from queuegate.storage.topics import stored_topics, subscriptions

Values = dict[str, Any]
AccountId = Annotated[str, Meta(pattern=r"^[0-9]{12}\Z")]
Region = Annotated[str, Meta(pattern=r"^[a-z0-9-]{1,64}\Z")]
_MOST = 10_000_000
_ALL: Mapping[str, Any] = {"prefix": "", "after": "", "limit": _MOST}
HIDDEN_PASSWORD = ":****@"
PARENTS = "TopicArn", "Protocol", "GroupName"
"""Values that tell resources of one name apart."""


_TARGETS = {"sqs": "AmazonSQS", "sns": "AmazonSNS"}
_FACES: Mapping[str, Callable[[Engine, CallerAuthenticator], Face]] = {
    "/v1/channels": channels_face,
    "/v1/logs": logs_face,
    "/v1/": rest_face,
    "/": lambda engine, callers: AwsFace(engine, callers, BINDINGS),
}
"""By prefix of their paths."""


class SeedResource(Struct, omit_defaults=True):
    """A resource with its attributes or members as the API names them, and its tags."""

    kind: Literal["channel", "queue", "topic", "subscription", "schedule", "log", "key"]
    account_id: AccountId
    region: Region
    name: str
    """The endpoint of a subscription."""
    values: Values = {}
    """Attributes of SQS and SNS are texts."""
    messages: list[dict[str, Any]] = []
    """For a queue that is created: members of SendMessage."""
    replaces: bool = False
    """Replace the key if it exists: its secret is lost."""
    handle: str = ""
    """The ARN or the number of a present one."""

    def __post_init__(self) -> None:
        tags = self.values.get("tags", {})
        if not (isinstance(tags, dict) and all(isinstance(one, str) for one in tags.values())):
            raise ValueError("tags have to be an object of texts")

    @property
    def identity(self) -> tuple[str, ...]:
        """Return what no other resource shares."""
        parents = (str(self.values.get(name, "")) for name in PARENTS)
        return self.kind, self.account_id, self.region, self.name, *parents


class CallRefused(Exception):
    """A face refused a call; the text is its own, and what is allowed."""

    def __init__(self, found: Mapping[str, Any], cause: BaseException | None = None) -> None:
        text = found.get("message") or found.get("Message") or found.get("error") or found
        allowed = cause.allowed if isinstance(cause, AttributeFault) else ""
        super().__init__(str(text).rstrip(".") + (f": allowed are {allowed}" * bool(allowed)))


class SeedCalls(Authenticator):
    """The API as one account and region sees it, and then another (``act_as``). Administrators may
    also make access keys and administrators' keys."""

    def __init__(self, engine: Engine, links_url: str, *, is_administrator: bool) -> None:
        super().__init__(mode="none", accounts={}, account_id="", region="")
        self.engine = engine
        self.who = Caller("", "", "", is_administrator=is_administrator)
        self._links_url = links_url
        self._faces: dict[str, Face] = {}

    @property
    def where(self) -> tuple[str, str]:
        """Return account and region of the caller."""
        return self.who.account_id, self.who.region

    def act_as(self, account_id: str, region: str) -> None:
        """Call for this account and region from now on."""
        self.who = replace(self.who, account_id=account_id, region=region, principal=account_id)

    def caller(self, *_: Any, **__: Any) -> Caller:
        """Return the caller. The request does not note it: faults on purpose are for clients."""
        return self.who

    def forget(self) -> None:
        """Drop what was cached of changes that are undone."""
        self.engine.queues.clear()
        self.engine.topics.clear()
        self.engine.logs.changed(None)

    async def _send(self, method: str, target: str, headers: Mapping[str, str], body: Any) -> Any:
        path, _, query = target.partition("?")
        prefix = next(prefix for prefix in _FACES if path.startswith(prefix))
        if prefix not in self._faces:
            self._faces[prefix] = _FACES[prefix](self.engine, self)
        content = b"" if body is None else json.dumps(body).encode()
        urls = self._links_url, self._links_url
        request = Request(
            method, path, query.encode(), headers, content, *urls, token_hex(16), raw_path=path
        )
        response = await self._faces[prefix].answer(request)
        assert isinstance(response.body, bytes)
        if response.status >= 500:
            raise request.refusal or Unavailable("A seed cannot be applied at the moment.")
        if response.status >= 300:
            cause = request.refusal and request.refusal.__cause__
            raise CallRefused(json.loads(response.body), cause)
        return json.loads(response.body) if response.body else {}

    async def aws(self, service: str, action: str, /, **members: Any) -> Any:
        """Call an action of SQS or SNS. Raises CallRefused."""
        target = f"{_TARGETS[service]}.{action}"
        headers = {"x-amz-target": target, "content-type": "application/x-amz-json-1.0"}
        return await self._send("POST", "/", headers, members)

    async def rest(self, method: str, path: str, content: Any = None) -> Any:
        """Call Scheduler or one of Queuegate's own APIs. Raises CallRefused."""
        return await self._send(method, path, {"content-type": "application/json"}, content)

    def queue_url(self, name: str) -> str:
        """Return a QueueUrl of the account. Only its path counts."""
        return f"http://localhost/{self.who.account_id}/{name}"


Found = AsyncIterator[SeedResource]
Present = SeedResource | None


class ResourceKind(ABC):
    """The calls that list, read and write the resources of a kind."""

    noun: Any
    fields: Mapping[str, Shape | None]
    """Names of the API. None: the value is as the API has it."""
    defaults: ClassVar[Mapping[str, object]] = {}
    """Values that an export leaves out, as it does empty ones."""
    stand_ins: ClassVar[Mapping[str, object]] = {}
    """Valid values of members that each resource needs."""

    def __init__(self, calls: SeedCalls) -> None:
        self.calls = calls

    @abstractmethod
    def stored(self, one: SeedResource | None) -> Found:
        """Yield this resource as it is if it is present; None: all of the account."""

    @abstractmethod
    async def write(self, one: SeedResource, values: Values, present: Present) -> str | None:
        """Create a resource, or set these values of a present one. Return the secret of a key."""

    async def delete(self, present: SeedResource) -> None:
        """Delete a resource."""
        raise NotImplementedError

    def _found(self, name: str, values: Mapping[str, Any], handle: object = "") -> SeedResource:
        """Return a present resource with those of these values that a seed has."""
        known = {key: values[key] for key in self.fields if values.get(key) is not None}
        return SeedResource(self.noun, *self.calls.where, name, known, handle=str(handle))


_TAGS: dict[str, Shape | None] = {"tags": Map(STRING)}


def _texts(names: Iterable[str]) -> dict[str, Shape | None]:
    return dict.fromkeys(names, STRING)


def _without(values: Mapping[str, Any], *names: str) -> Values:
    return {name: value for name, value in values.items() if name not in names}


class _Queues(ResourceKind):
    noun = "queue"
    fields = _texts(_without(sqs_queue_attributes.SETTABLE, "FifoQueue")) | _TAGS
    defaults: ClassVar = QUEUE_DEFAULTS

    async def stored(self, one: Present) -> Found:
        calls, names = self.calls, [one.name] if one else []
        if one is None:
            names, _ = await queues.list_names(calls.engine, calls.who, **_ALL)
        found = await calls.engine.queues.find_many((*calls.where, name) for name in names)
        for queue in filter(None, found.values()):
            shown = sqs_queue_attributes.read(queue, frozenset(self.fields), None)
            yield self._found(queue.name, {**shown, "tags": dict(queue.tags)})

    async def write(self, one: SeedResource, values: Values, present: Present) -> None:
        attributes, tags = _without(values, "tags"), values.get("tags", {})
        if present is None:
            fifo = {"FifoQueue": "true"} if one.name.endswith(".fifo") else {}
            members = {"Attributes": {**attributes, **fifo}, "tags": tags}
            await self.calls.aws("sqs", "CreateQueue", QueueName=one.name, **members)
            return
        at = {"QueueUrl": self.calls.queue_url(one.name)}
        if attributes:
            await self.calls.aws("sqs", "SetQueueAttributes", Attributes=attributes, **at)
        if tags:
            await self.calls.aws("sqs", "TagQueue", Tags=tags, **at)

    async def delete(self, present: SeedResource) -> None:
        url = self.calls.queue_url(present.name)
        await self.calls.aws("sqs", "DeleteQueue", QueueUrl=url)


class _SnsKind(ResourceKind):
    """A kind whose attributes are set one by one."""

    async def _set(self, values: Values, present: SeedResource) -> None:
        noun = self.noun.capitalize()
        for name, value in values.items():
            if present.values.get(name) != value:
                members = {"AttributeName": name, "AttributeValue": value}
                at = {f"{noun}Arn": present.handle}
                await self.calls.aws("sns", f"Set{noun}Attributes", **at, **members)


class _Topics(_SnsKind):
    noun = "topic"
    fields = _texts(_without(topic_attributes.SETTABLE, "FifoTopic")) | _TAGS
    defaults: ClassVar = TOPIC_DEFAULTS

    async def stored(self, one: Present) -> Found:
        calls, names = self.calls, [one.name] if one else []
        if one is None:
            names = await topics.list_names(calls.engine, calls.who, after_name="", limit=_MOST)
        for name in names:
            async with calls.engine.database.transaction() as tx:
                topic = await stored_topics.find(tx, *calls.where, name)
            if topic is not None:
                found = {**TOPIC_DEFAULTS, **topic.attributes, "tags": dict(topic.tags)}
                yield self._found(name, found, topic.arn)

    async def write(self, one: SeedResource, values: Values, present: Present) -> None:
        attributes = _without(values, "tags")
        tags = [{"Key": key, "Value": value} for key, value in values.get("tags", {}).items()]
        if present is None:
            fifo = {"FifoTopic": "true"} if one.name.endswith(".fifo") else {}
            members = {"Attributes": {**attributes, **fifo}, "Tags": tags}
            await self.calls.aws("sns", "CreateTopic", Name=one.name, **members)
            return
        await self._set(attributes, present)
        if tags:
            await self.calls.aws("sns", "TagResource", ResourceArn=present.handle, Tags=tags)

    async def delete(self, present: SeedResource) -> None:
        await self.calls.aws("sns", "DeleteTopic", TopicArn=present.handle)


class _Subscriptions(_SnsKind):
    noun = "subscription"
    fields = _texts(("TopicArn", "Protocol", *subscription_attributes.SETTABLE))
    defaults: ClassVar = {"RawMessageDelivery": "false", "FilterPolicyScope": "MessageAttributes"}

    async def stored(self, one: Present) -> Found:
        engine, (account_id, region) = self.calls.engine, self.calls.where
        now = engine.clock.of(account_id).now()
        async with engine.database.transaction() as tx:
            if one is None:
                where = {"account_id": account_id, "region": region}
                found = await subscriptions.page_of_account(
                    tx, now, **where, after_position=0, limit=_MOST
                )
            else:
                topic, found = await self._topic(tx, str(one.values.get("TopicArn"))), []
                at = str(one.values.get("Protocol")), one.name
                if topic is not None:
                    await subscriptions.delete_expired_of_endpoint(tx, now, topic.topic_id, *at)
                    stored = await subscriptions.find_by_endpoint(tx, topic.topic_id, *at)
                    found = [stored] if stored else []
        for each in found:
            values = {"TopicArn": each.topic_arn, "Protocol": each.protocol, **self.defaults}
            # A subscription that is not confirmed cannot be changed.
            is_same = one is not None and not each.is_confirmed
            given = one.values if one is not None and is_same else each.attributes
            yield self._found(each.endpoint, {**values, **given}, each.arn)

    async def _topic(self, tx: Any, text: str) -> Any:
        try:
            arn = arns.parse_topic(text)
        except Malformed:
            return None
        return await stored_topics.find(tx, arn.account_id, arn.region, arn.resource)

    async def write(self, one: SeedResource, values: Values, present: Present) -> None:
        attributes = _without(values, *PARENTS)
        if present is None:
            if HIDDEN_PASSWORD in one.name:
                text = "endpoint: an export hides its password: write the password in place of ****"
                raise CallRefused({"error": text})
            members = {name: one.values.get(name) for name in ("TopicArn", "Protocol")}
            members |= {"Endpoint": one.name, "Attributes": attributes}
            await self.calls.aws("sns", "Subscribe", **members)
            return
        scope = "FilterPolicyScope"
        # A policy of bodies may be none of attributes, so the wider scope is set with either.
        is_of_body = attributes.get(scope) == "MessageBody"
        names = sorted(attributes, key=lambda name: (name == scope) != is_of_body)
        await self._set({name: attributes[name] for name in names}, present)

    async def delete(self, present: SeedResource) -> None:
        await self.calls.aws("sns", "Unsubscribe", SubscriptionArn=present.handle)


class _RestKind(ResourceKind):
    """A kind whose resources have a path each."""

    path: str

    def _path(self, one: SeedResource) -> str:
        return f"{self.path}/{quote(one.name, safe='')}"

    @abstractmethod
    def _all(self) -> Found:
        """Yield the resources of the account, without settings."""

    async def stored(self, one: Present) -> Found:
        for each in [one] if one is not None else [one async for one in self._all()]:
            with suppress(CallRefused):
                found = await self.calls.rest("GET", self._path(each))
                yield self._found(each.name, found)

    async def delete(self, present: SeedResource) -> None:
        await self.calls.rest("DELETE", self._path(present))

    def _check_fixed(self, present: SeedResource, wanted: Values, names: Iterable[str]) -> None:
        """Refuse another value of a member that cannot be changed."""
        for name in names:
            if name in wanted and present.values.get(name) != wanted[name]:
                text = f"{name} cannot be changed: it is {present.values.get(name)}"
                raise CallRefused({"error": text})


class _Schedules(_RestKind):
    noun, path = "schedule", "/schedules"
    fields = _without(SCHEDULER.actions["CreateSchedule"].input.members, "Name", "ClientToken")
    stand_ins: ClassVar = {
        "ScheduleExpression": "rate(1 days)",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": {
            "Arn": "arn:aws:sqs:us-east-1:000000000000:any",
            "RoleArn": "arn:aws:iam::000000000000:role/any",
        },
    }

    def _path(self, one: SeedResource) -> str:
        return f"{super()._path(one)}?groupName={quote(self._group(one), safe='')}"

    def _group(self, one: SeedResource) -> str:
        return str(one.values.get("GroupName", "default"))

    async def _all(self) -> Found:
        query: str | None = ""
        while query is not None:
            page = await self.calls.rest("GET", self.path + query)
            for entry in page["Schedules"]:
                yield self._found(entry["Name"], entry)
            token = page.get("NextToken")
            query = f"?NextToken={quote(token)}" if token else None

    async def write(self, one: SeedResource, values: Values, present: Present) -> None:
        members = {**values, "GroupName": self._group(one)}
        group = f"/schedule-groups/{quote(self._group(one), safe='')}"
        try:
            await self.calls.rest("GET", group)
        except CallRefused:
            await self.calls.rest("POST", group, {})
        await self.calls.rest("PUT" if present else "POST", super()._path(one), members)


class _Channels(_RestKind):
    """Channels are queues: an export names those whose settings SQS does not have."""

    noun, path = "channel", "/v1/channels"
    fields = dict.fromkeys(("ack_window", "max_deliveries", "size"))

    async def _all(self) -> Found:
        found, _ = await queues.list_queues(self.calls.engine, self.calls.who, **_ALL)
        for queue in found:
            if queue.has_priorities or queue.most_messages or queue.max_deliveries:
                yield self._found(queue.name, {})

    async def write(self, one: SeedResource, values: Values, present: Present) -> None:
        await self.calls.rest("PUT", self._path(one), values)


class _Logs(_RestKind):
    noun, path = "log", "/v1/logs"
    fields = dict.fromkeys(("partitions", "retain_consumed", "max_age", "max_bytes"))

    async def _all(self) -> Found:
        found, _ = await logs.list_logs(self.calls.engine, self.calls.who, **_ALL)
        for log in found:
            yield self._found(log.name, {})

    async def write(self, one: SeedResource, values: Values, present: Present) -> None:
        if present is None:
            await self.calls.rest("POST", self.path, {**values, "log": one.name})
            return
        self._check_fixed(present, values, ["partitions"])
        await self.calls.rest("PATCH", self._path(one), _without(values, "partitions"))


class _Keys(_RestKind):
    noun, path = "key", "/v1/keys"
    fields = dict.fromkeys(("kind", "administrator", "policy", "rate_limit", "expires_at"))
    defaults: ClassVar = {"kind": "api"}

    async def _all(self) -> Found:
        found = await api_keys.list_keys(
            self.calls.engine, self.calls.who, after_id=0, with_revoked=False, limit=_MOST
        )
        for key in found:
            yield self._found(key.name, msgspec.to_builtins(members_of(key)), key.key_id)

    async def stored(self, one: Present) -> Found:
        async for found in self._all():
            if one is None or found.name == one.name:
                yield found

    async def write(self, one: SeedResource, values: Values, present: Present) -> str | None:
        if present is not None:
            path = f"{self.path}/{present.handle}"
            if not one.replaces:
                self._check_fixed(present, values, _without(values, "policy"))
                await self.calls.rest("PATCH", path, _without(values, *_without(values, "policy")))
                return None
            await self.calls.rest("DELETE", path)
        made = await self.calls.rest("POST", self.path, {**values, "name": one.name})
        if not made.get("secret_access_key"):
            return f"{made['key']}\n"
        secret = made["secret_access_key"]
        return f"AWS_ACCESS_KEY_ID={made['access_key_id']}\nAWS_SECRET_ACCESS_KEY={secret}\n"


KINDS: Mapping[str, type[ResourceKind]] = {
    kind.noun: kind
    for kind in (_Channels, _Queues, _Topics, _Subscriptions, _Schedules, _Logs, _Keys)
}
"""In the order in which resources are created."""
PRUNED = ("schedule", "subscription", "topic", "queue", "log")
"""Kinds that are deleted if a seed does not name them, in this order."""

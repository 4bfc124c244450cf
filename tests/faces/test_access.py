"""No operation is reached by somebody who may not: every action of every service, every endpoint of
every face of JSON."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

import asyncpg
import pytest

from gateway.faces.channels import api as channels
from gateway.faces.json.endpoints import Endpoint
from gateway.faces.logs.api import ENDPOINTS as LOGS
from gateway.faces.rest.api import ENDPOINTS
from gateway.faces.simple.api import ENDPOINTS as SIMPLE
from gateway.faces.text.messages import ENDPOINTS as TEXT
from protocol.scheduler_shapes import SCHEDULER
from protocol.sns_shapes import SNS
from protocol.sqs_shapes import SQS
from tests.faces.clients import Sqs, authorization, new_account
from tests.faces.connections import Connection, fetch, request_bytes
from tests.faces.denying import DENIED, Denying
from tests.faces.scheduler_client import OFF, Scheduler
from tests.faces.sns_client import Sns
from tests.faces.text.client import Text

_NUMBER = "+15550177"
_FUTURE = "cron(0 0 1 1 ? 2190)"
# They say nothing of anybody's resources, and AWS asks for no permission either.
_NOBODYS = {"GetCallerIdentity", "previewSchedule"}
# Rows that change by themselves.
_MOVING = {"presents", "queue_deltas", "settings", "move_tasks"}


class World(NamedTuple):
    """An account with one of everything."""

    server: Denying
    members: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """Service -> action -> a request that would do something."""
    things: Mapping[str, str]
    """What paths of the native API name."""


@pytest.fixture(scope="module", params=["authority", "policy"])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    account = new_account()
    file = tmp_path_factory.mktemp("denying") / "asked"
    with Denying(account, file, by_policy=request.param == "policy") as server:
        made = _world(server, account)
        before = _tables(server.dsn)
        yield made
        after = _tables(server.dsn)
        assert [name for name, digest in after.items() if digest != before[name]] == []


def _world(server: Denying, account: str) -> World:
    with Sqs("json", server.url, account) as sqs, Sns("query", server.url, account) as sns:
        queue, dead = sqs.create("orders"), sqs.create("dead")
        policy = json.dumps({"deadLetterTargetArn": sqs.arn(dead), "maxReceiveCount": 5})
        sqs.call("SetQueueAttributes", QueueUrl=queue, Attributes={"RedrivePolicy": policy})
        sqs.call("AddPermission", QueueUrl=queue, **_permission(account, "SendMessage"))
        for number in range(2):
            sqs.send(dead, str(number))
        sqs.send(queue)
        [held] = sqs.receive(queue, 1)
        task = sqs.call(
            "StartMessageMoveTask", SourceArn=sqs.arn(dead), MaxNumberOfMessagesPerSecond=1
        )["TaskHandle"]
        topic = sns.create("news")
        subscription = sns.subscribe(topic, "sqs", sqs.arn(queue))
        sns.call("AddPermission", TopicArn=topic, **_permission(account, "Publish", "AWSAccountId"))
        topics = _topic_requests(sns, topic, subscription, sqs.arn(queue))
        members = {
            "sqs": _queue_requests(sqs, queue, dead, held["ReceiptHandle"], task),
            "sns": topics,
            "scheduler": _schedule_requests(server, account, sqs.arn(queue)),
        }
    return World(server, members, _things(server, account))


def _permission(account: str, action: str, ids: str = "AWSAccountIds") -> dict[str, Any]:
    actions = "ActionName" if ids == "AWSAccountId" else "Actions"
    return {"Label": "one", ids: [account], actions: [action]}


def _queue_requests(
    sqs: Sqs, queue: str, dead: str, handle: str, task: str
) -> dict[str, dict[str, Any]]:
    own = {"QueueUrl": queue}
    entry = {"Id": "a"}
    arn = sqs.arn(dead)
    change = {"VisibilityTimeout": 60, "ReceiptHandle": handle}
    return {
        "AddPermission": own | _permission(sqs.account, "SendMessage") | {"Label": "two"},
        "CancelMessageMoveTask": {"TaskHandle": task},
        "ChangeMessageVisibility": own | change,
        "ChangeMessageVisibilityBatch": own | {"Entries": [entry | change]},
        "CreateQueue": {"QueueName": "another"},
        "DeleteMessage": own | {"ReceiptHandle": handle},
        "DeleteMessageBatch": own | {"Entries": [entry | {"ReceiptHandle": handle}]},
        "DeleteQueue": own,
        "GetQueueAttributes": own | {"AttributeNames": ["All"]},
        "GetQueueUrl": {"QueueName": "orders"},
        "ListDeadLetterSourceQueues": {"QueueUrl": dead},
        "ListMessageMoveTasks": {"SourceArn": arn},
        "ListQueueTags": own,
        "ListQueues": {},
        "PurgeQueue": own,
        "ReceiveMessage": own,
        "RemovePermission": own | {"Label": "one"},
        "SendMessage": own | {"MessageBody": "x"},
        "SendMessageBatch": own | {"Entries": [entry | {"MessageBody": "x"}]},
        "SetQueueAttributes": own | {"Attributes": {"DelaySeconds": "7"}},
        "StartMessageMoveTask": {"SourceArn": arn},
        "TagQueue": own | {"Tags": {"a": "b"}},
        "UntagQueue": own | {"TagKeys": ["a"]},
    }


def _mobile_requests(sns: Sns, topic: str) -> dict[str, dict[str, Any]]:
    app = {
        "PlatformApplicationArn": sns.call(
            "CreatePlatformApplication",
            Name="phones",
            Platform="GCM",
            Attributes={"PlatformCredential": "secret"},
        )["PlatformApplicationArn"]
    }
    device = {"EndpointArn": sns.call("CreatePlatformEndpoint", **app, Token="t")["EndpointArn"]}
    sns.call("CreateSMSSandboxPhoneNumber", PhoneNumber=_NUMBER)
    number = {"PhoneNumber": _NUMBER}
    phone = {"phoneNumber": _NUMBER}
    return {
        "CheckIfPhoneNumberIsOptedOut": phone,
        "CreatePlatformApplication": {"Name": "more", "Platform": "GCM", "Attributes": {}},
        "CreatePlatformEndpoint": app | {"Token": "u"},
        "CreateSMSSandboxPhoneNumber": {"PhoneNumber": "+15550178"},
        "DeleteEndpoint": device,
        "DeletePlatformApplication": app,
        "DeleteSMSSandboxPhoneNumber": number,
        "GetEndpointAttributes": device,
        "GetPlatformApplicationAttributes": app,
        "GetSMSAttributes": {},
        "GetSMSSandboxAccountStatus": {},
        "ListEndpointsByPlatformApplication": app,
        "ListOriginationNumbers": {},
        "ListPhoneNumbersOptedOut": {},
        "ListPlatformApplications": {},
        "ListSMSSandboxPhoneNumbers": {},
        "OptInPhoneNumber": phone,
        "SetEndpointAttributes": device | {"Attributes": {"Enabled": "false"}},
        "SetPlatformApplicationAttributes": app | {"Attributes": {"EventEndpointCreated": topic}},
        "SetSMSAttributes": {"attributes": {"DefaultSMSType": "Promotional"}},
        "VerifySMSSandboxPhoneNumber": number | {"OneTimePassword": "12345"},
    }


def _topic_requests(
    sns: Sns, topic: str, subscription: str, queue_arn: str
) -> dict[str, dict[str, Any]]:
    own = {"TopicArn": topic}
    tags = {"ResourceArn": topic}
    policy = json.dumps({"Name": "p", "Description": "", "Version": "2021-06-01", "Statement": []})
    return _mobile_requests(sns, topic) | {
        "AddPermission": own
        | _permission(sns.account, "Publish", "AWSAccountId")
        | {"Label": "two"},
        "ConfirmSubscription": own | {"Token": "0" * 64},
        "CreateTopic": {"Name": "more"},
        "DeleteTopic": own,
        "GetDataProtectionPolicy": {"ResourceArn": topic},
        "GetSubscriptionAttributes": {"SubscriptionArn": subscription},
        "GetTopicAttributes": own,
        "ListSubscriptions": {},
        "ListSubscriptionsByTopic": own,
        "ListTagsForResource": tags,
        "ListTopics": {},
        "Publish": own | {"Message": "x"},
        "PublishBatch": own | {"PublishBatchRequestEntries": [{"Id": "a", "Message": "x"}]},
        "PutDataProtectionPolicy": {"ResourceArn": topic, "DataProtectionPolicy": policy},
        "RemovePermission": own | {"Label": "one"},
        "SetSubscriptionAttributes": {
            "SubscriptionArn": subscription,
            "AttributeName": "RawMessageDelivery",
            "AttributeValue": "true",
        },
        "SetTopicAttributes": own | {"AttributeName": "DisplayName", "AttributeValue": "x"},
        "Subscribe": own | {"Protocol": "sqs", "Endpoint": queue_arn},
        "TagResource": tags | {"Tags": [{"Key": "a", "Value": "b"}]},
        "Unsubscribe": {"SubscriptionArn": subscription},
        "UntagResource": tags | {"TagKeys": ["a"]},
    }


def _schedule_requests(server: Denying, account: str, queue_arn: str) -> dict[str, dict[str, Any]]:
    scheduler = Scheduler(server.url, account)
    one = {
        "ScheduleExpression": _FUTURE,
        "FlexibleTimeWindow": OFF,
        "Target": scheduler.target(queue_arn),
    }
    scheduler.call("create_schedule_group", Name="own")
    scheduler.call("create_schedule", Name="one", **one)
    group = scheduler.group_arn("own")
    scheduler.close()
    return {
        "CreateSchedule": {"Name": "two"} | one,
        "CreateScheduleGroup": {"Name": "more"},
        "DeleteSchedule": {"Name": "one"},
        "DeleteScheduleGroup": {"Name": "own"},
        "GetSchedule": {"Name": "one"},
        "GetScheduleGroup": {"Name": "own"},
        "ListScheduleGroups": {},
        "ListSchedules": {},
        "ListTagsForResource": {"ResourceArn": group},
        "TagResource": {"ResourceArn": group, "Tags": [{"Key": "a", "Value": "b"}]},
        "UntagResource": {"ResourceArn": group, "TagKeys": ["a"]},
        "UpdateSchedule": {"Name": "one"} | one,
    }


def _ask(url: str, key: str, method: str, target: str, body: object = None) -> tuple[int, Any]:
    with Connection(url) as connection:
        headers = {"Host": connection.host, "Authorization": authorization(key)}
        content = b"" if body is None else json.dumps(body).encode()
        connection.send(request_bytes(method, target, headers, content))
        answer = connection.answer()
        return answer.status, json.loads(answer.body) if answer.body else None


def _things(server: Denying, account: str) -> dict[str, str]:
    """Values of the parameters of paths: an archived message, a subscription to a pattern."""

    def ask(method: str, target: str, body: object = None) -> Any:
        status, found = _ask(server.url, account, method, target, body)
        assert status < 300, (target, found)
        return found

    ask("POST", "/v1/queues", {"name": "kept", "archive": True})
    sent = ask("POST", "/v1/queues/kept/messages", {"message": 1})["id"]
    ask("GET", "/v1/queues/kept/messages")
    ask("DELETE", f"/v1/queues/kept/messages/{sent}")
    ask("POST", "/v1/queues/kept/messages", {"message": 2})
    made = ask("POST", "/v1/events/a.%23/subscriptions", {"queue_name": "kept"})
    ask("POST", "/v1/schedules", {"name": "nightly", **_YEARLY})
    [kept] = ask("GET", "/api/queues?prefix=kept")["queues"]
    queue_id = kept["queue_id"]
    held = ask("POST", f"/api/queues/{queue_id}/messages", {"data": "3"})["message_id"]
    ask("POST", "/v1/logs/kept/records", {"records": [{"key": "a", "payload": "1"}]})
    return {"archived": str(sent), "subscription": made["id"], "queue": queue_id, "held": held}


_YEARLY = {"cron": "0 0 1 1 *", "target": {"kind": "queue", "queue_name": "kept", "message": 1}}


def _tables(dsn: str) -> dict[str, str]:
    """A digest of each table's rows."""

    async def read() -> dict[str, str]:
        connection = await asyncpg.connect(dsn)
        try:
            names = await connection.fetch(
                "SELECT table_name FROM information_schema.tables WHERE table_schema ="
                " current_schema() AND table_type = 'BASE TABLE'"
            )
            found = {}
            for (name,) in names:
                if name not in _MOVING:
                    found[name] = await connection.fetchval(
                        f"SELECT md5(coalesce(string_agg(t::text, ',' ORDER BY t::text), ''))"
                        f" FROM {name} t"
                    )
            return found
        finally:
            await connection.close()

    return asyncio.run(read())


class Refused:
    """What is within is asked about these rights, and no others, and that it was refused is in the
    audit."""

    def __init__(self, world: World, right: str, operation: str) -> None:
        self._server = world.server
        self._right = right
        self._operation = operation

    def __enter__(self) -> None:
        self._server.asked()

    def __exit__(self, *_: object) -> None:
        assert {right for right, _ in self._server.asked()} == {self._right}
        line = self._server.audit.until(
            lambda one: (one["operation"], one["message"]) == (self._operation, "refused")
        )
        assert (line["access_key"], line["reason"], line["status"]) == (
            DENIED,
            self._server.reason,
            403,
        )
        assert line["address"] == "127.0.0.1"


def _right(service: str, action: str) -> str:
    return f"{service}:{action.removesuffix('Batch')}"


ACTIONS = [
    (service.name, action, wire)
    for service, wires in ((SQS, ("json", "query")), (SNS, ("query",)))
    for action in service.actions
    for wire in wires
]


@pytest.mark.parametrize(("service", "action", "wire"), ACTIONS)
def test_no_action_is_reached(world: World, service: str, action: str, wire: str) -> None:
    kind = Sqs if service == "sqs" else Sns
    with (
        kind(wire, world.server.url, DENIED) as client,
        Refused(world, _right(service, action), f"{service}:{action}"),
    ):
        refused = client.refusal(action, **world.members[service][action])
    assert refused.status == 403, refused


FACES = {"rest": ENDPOINTS, "simple": SIMPLE, "channels": channels.ENDPOINTS, "logs": LOGS}


@pytest.mark.parametrize("action", SCHEDULER.actions)
def test_no_action_of_the_scheduler_is_reached(world: World, action: str) -> None:
    scheduler = Scheduler(world.server.url, DENIED)
    name = re.sub(r"(?<!^)([A-Z])", r"_\1", action).lower()
    with Refused(world, _right("scheduler", action), f"scheduler:{action}"):
        refused = scheduler.refusal(name, **world.members["scheduler"][action])
    scheduler.close()
    assert refused.status == 403


@pytest.mark.parametrize(
    ("face", "endpoint"),
    [
        pytest.param(face, one, id=f"{face}-{one.name}")
        for face, endpoints in FACES.items()
        for one in endpoints
        if one.name not in _NOBODYS
    ],
)
def test_no_endpoint_is_reached(world: World, face: str, endpoint: Endpoint) -> None:
    things = world.things
    named = {
        "name": "nightly" if "/schedules" in endpoint.path else "kept",
        "id": things["subscription" if "events" in endpoint.path else "archived"],
        "pattern": "a.%23",
        "routing_key": "a.b",
        "queue_id": things["queue"],
        "message_id": things["held"],
        "log": "kept",
        "subject": "key-17",
        "group": "readers",
        "subscriber": "one",
        "partition": 0,
        "offset": 0,
    }
    body = endpoint.example
    if isinstance(body, dict) and "examples" in body:
        body = next(iter(body["examples"].values()))
    with Refused(world, endpoint.right, f"{face}:{endpoint.name}"):
        target = endpoint.path.format(**named) + _query_of(endpoint)
        status, told = _ask(world.server.url, DENIED, endpoint.method, target, body)
    assert (status, "error" in told) == (403, True)


@pytest.mark.parametrize("endpoint", TEXT, ids=lambda endpoint: endpoint.method)
def test_no_method_of_the_text_face_is_reached(world: World, endpoint: Endpoint) -> None:
    method = endpoint.method
    given: dict[str, object] = {"queue": "kept"}
    if method in ("DELETE", "PATCH"):
        given["receipt_id"] = "x"
    if method == "PATCH":
        given["visibility_timeout"] = 5
    refused = Refused(world, endpoint.right, f"text:{endpoint.name}")
    with Text(world.server.url, DENIED) as text, refused:
        assert text.text(method, "x", **given).status == 403


def _query_of(endpoint: Endpoint) -> str:
    """What it cannot be asked without."""
    if endpoint.name == "leaveGroup":
        return "?session=1"
    return "?channel=kept" if _asks_for(endpoint) else ""


def _asks_for(endpoint: Endpoint) -> bool:
    """Whether its query names the channel."""
    return "channel" in getattr(endpoint.query, "__struct_fields__", ())


def test_what_follows_a_link_needs_its_token_alone(world: World) -> None:
    server, members = world.server, world.members["sns"]["ConfirmSubscription"]
    query = urlencode({"Action": "ConfirmSubscription", **members})
    answer = fetch(server.url, f"/?{query}")
    assert (answer.status, "<Code>InvalidParameter</Code>" in answer.text) == (400, True)
    assert server.asked() == []


def test_one_who_may_is_not_refused(world: World) -> None:
    members = world.members["sqs"]["GetQueueAttributes"]
    with Sqs("json", world.server.url, members["QueueUrl"].split("/")[-2]) as sqs:
        assert sqs.call("GetQueueAttributes", **members)["Attributes"]
    assert world.server.asked() == []

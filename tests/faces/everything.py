"""One of everything in an account, and a request to each operation of each face that would do
something with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

import asyncpg

from queuegate.gateway.faces.channels import channels_face as channels
from queuegate.gateway.faces.json.json_endpoints import Endpoint
from queuegate.gateway.faces.json.json_openapi import examples_of
from queuegate.gateway.faces.logs.logs_face import ENDPOINTS as LOGS
from queuegate.gateway.faces.rest.rest_face import ENDPOINTS as REST
from queuegate.gateway.faces.simple_face import ENDPOINTS as SIMPLE
from queuegate.gateway.faces.text_face import ENDPOINTS as TEXT
from queuegate.protocol.scheduler_shapes import SCHEDULER
from queuegate.protocol.sns_shapes import SNS
from queuegate.protocol.sqs_shapes import SQS
from tests.faces.clients import Sqs, authorization
from tests.faces.connections import Connection, request_bytes
from tests.faces.scheduler_client import OFF, Scheduler
from tests.faces.servers import Server
from tests.faces.sns_client import Sns

_NUMBER = "+15550177"
_FUTURE = "cron(0 0 1 1 ? 2190)"
NOBODYS = {
    "AssumeRoleWithWebIdentity",
    "GetCallerIdentity",
    "GetSessionToken",
    "previewSchedule",
}
"""They say nothing of anybody's resources, and AWS asks for no permission either."""
# Rows that change by themselves.
_MOVING = {"presents", "queue_deltas", "settings", "move_tasks"}
ACTIONS = [
    (service.name, action, wire)
    for service, wires in ((SQS, ("json", "query")), (SNS, ("query", "json")))
    for action in service.actions
    for wire in wires
]
ENDPOINTS = {"rest": REST, "simple": SIMPLE, "channels": channels.ENDPOINTS, "logs": LOGS}
"""Those of JSON; the others are AWS and text."""
PAGES = {
    "/_admin/clock": "/_admin/clock",
    "/_admin/reset": "/_admin/reset",
    "/_admin/health": "/_admin/health",
    "/_admin/audit": "/_admin/audit",
    "/_admin/seed": "/_admin/seed",
    "/_admin/states": "/_admin/states",
    "/_admin/states/{name}": "/_admin/states/x",
    "/_admin/events": "/_admin/events",
    "/_admin/faults": "/_admin/faults",
    "/_admin/faults/{fault_id}": "/_admin/faults/1",
    "/_admin/outbox": "/_admin/outbox",
    "/_admin/outbox/{outbox_id}": "/_admin/outbox/1",
    "/_admin/sms/opted-out/{number}": f"/_admin/sms/opted-out/{_NUMBER}",
}
"""Template -> a page for operators; tests/tidy/test_access.py knows when one is missing."""


class Made(NamedTuple):
    """The objects of a gateway that has one of everything."""

    members: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """Service -> action -> a request that would do something."""
    things: Mapping[str, str]
    """What paths of the native API name."""


class UnsignedRequest(NamedTuple):
    """A request that nobody has signed."""

    operation: str
    service: str
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


def make(server: Server, account: str) -> Made:
    """One of everything, by requests that nobody checks."""
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
    return Made(members, _things(server, account))


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


def _schedule_requests(server: Server, account: str, queue_arn: str) -> dict[str, dict[str, Any]]:
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


def ask(url: str, key: str, method: str, target: str, body: object = None) -> tuple[int, Any]:
    with Connection(url) as connection:
        headers = {"Host": connection.host, "Authorization": authorization(key)}
        content = b"" if body is None else json.dumps(body).encode()
        connection.send(request_bytes(method, target, headers, content))
        answer = connection.answer()
        return answer.status, json.loads(answer.body) if answer.body else None


def _things(server: Server, account: str) -> dict[str, str]:
    """Values of the parameters of paths: an archived message, a subscription to a pattern."""

    def done(method: str, target: str, body: object = None) -> Any:
        status, found = ask(server.url, account, method, target, body)
        assert status < 300, (target, found)
        return found

    done("POST", "/v1/queues", {"name": "kept", "archive": True})
    sent = done("POST", "/v1/queues/kept/messages", {"message": 1})["id"]
    done("GET", "/v1/queues/kept/messages")
    done("DELETE", f"/v1/queues/kept/messages/{sent}")
    done("POST", "/v1/queues/kept/messages", {"message": 2})
    made = done("POST", "/v1/events/a.%23/subscriptions", {"queue_name": "kept"})
    # A topic, of the name that is everything's here.
    done("POST", "/v1/events/kept/subscriptions", {"queue_name": "kept"})
    done("POST", "/v1/schedules", {"name": "nightly", **_YEARLY})
    [kept] = done("GET", "/api/queues?prefix=kept")["queues"]
    queue_id = kept["queue_id"]
    held = done("POST", f"/api/queues/{queue_id}/messages", {"data": "3"})["message_id"]
    done("POST", "/v1/logs/kept/records", {"records": [{"key": "a", "payload": "1"}]})
    return {"archived": str(sent), "subscription": made["id"], "queue": queue_id, "held": held}


_YEARLY = {"cron": "0 0 1 1 *", "target": {"kind": "queue", "queue_name": "kept", "message": 1}}


def rows(dsn: str) -> dict[str, list[dict[str, Any]]]:
    """Read each table without the columns that change by themselves."""

    async def read() -> dict[str, list[dict[str, Any]]]:
        connection = await asyncpg.connect(dsn)
        try:
            names = await connection.fetch(
                "SELECT table_name FROM information_schema.tables WHERE table_schema ="
                " current_schema() AND table_type = 'BASE TABLE'"
            )
            found = {}
            for (name,) in names:
                if name not in _MOVING:
                    # In the order of their texts.
                    texts = await connection.fetch(
                        f"SELECT to_jsonb(t)::text FROM {name} t ORDER BY 1"
                    )
                    found[name] = [json.loads(text) for (text,) in texts]
            return found
        finally:
            await connection.close()

    return asyncio.run(read())


def endpoint_request(things: Mapping[str, str], endpoint: Endpoint) -> tuple[str, Any]:
    """Return the path and the body of a request to a JSON endpoint."""
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
    body = None if endpoint.body is None else next(iter(examples_of(endpoint).values()))
    return endpoint.path.format(**named) + _query_of(endpoint), body


def _query_of(endpoint: Endpoint) -> str:
    """Return the parameters that the endpoint requires or would otherwise wait for."""
    if endpoint.name == "leaveGroup":
        return "?session=1"
    if endpoint.name == "pollMessages":
        return "?channel=kept&wait=0"
    asks_for_it = "channel" in getattr(endpoint.query, "__struct_fields__", ())
    return "?channel=kept" if asks_for_it else ""


def text_request(endpoint: Endpoint) -> dict[str, object]:
    """Return the members of a request to a method of the text face."""
    given: dict[str, object] = {"queue": "kept"}
    if endpoint.method in ("DELETE", "PATCH"):
        given["receipt_id"] = "x"
    if endpoint.method == "PATCH":
        given["visibility_timeout"] = 5
    return given


def scheduler_call(action: str) -> str:
    """The name that boto3 gives to an action."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", action).lower()


def requests(made: Made, url: str) -> Iterator[UnsignedRequest]:
    """One to each operation on each wire, unsigned."""
    for service, action, wire in ACTIONS:
        client = (Sqs if service == "sqs" else Sns)(wire, url, "0")
        data = client.encode(action, made.members[service][action])
        head, _, body = data.partition(b"\r\n\r\n")
        lines = [line.split(": ", 1) for line in head.decode().split("\r\n")[1:]]
        own = ("host", "authorization", "content-length")
        headers = {name: text for name, text in lines if name.lower() not in own}
        yield UnsignedRequest(f"{service}:{action} {wire}", service, "POST", "/", headers, body)
    for action in SCHEDULER.actions:
        yield _scheduler_request(action, made.members["scheduler"][action])
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    account = made.members["sns"]["DeleteTopic"]["TopicArn"].split(":")[4]
    role = {"RoleArn": f"arn:aws:iam::{account}:role/r", "RoleSessionName": "name"}
    for action, members in (
        ("AssumeRole", role),
        ("AssumeRoleWithWebIdentity", role | {"WebIdentityToken": "token"}),
        ("GetAccessKeyInfo", {"AccessKeyId": "AKIAIOSFODNN7EXAMPLE"}),
        ("GetCallerIdentity", {}),
        ("GetSessionToken", {}),
    ):
        query = urlencode({"Action": action, "Version": "2011-06-15", **members}).encode()
        yield UnsignedRequest(f"sts:{action}", "sts", "POST", "/", form, query)
    for face, endpoints in ENDPOINTS.items():
        for one in endpoints:
            target, content = endpoint_request(made.things, one)
            body = b"" if content is None else json.dumps(content).encode()
            yield UnsignedRequest(f"{face}:{one.name}", "sqs", one.method, target, {}, body)
    for one in TEXT:
        given = {name.replace("_", "-"): text for name, text in text_request(one).items()}
        target = f"/queue?{urlencode(given)}"
        yield UnsignedRequest(f"text:{one.method}", "sqs", one.method, target, {}, b"x")
    for page in PAGES.values():
        for method in ("GET", "POST", "PUT", "DELETE"):
            yield UnsignedRequest(
                f"{method} {page}", "sqs", method, page, {}, b'{"advance_seconds": 9}'
            )


class _Captured(Exception):
    """A request that was captured before it was sent."""


def _scheduler_request(action: str, members: Mapping[str, Any]) -> UnsignedRequest:
    """As boto3 sends it."""
    scheduler = Scheduler("http://localhost", "0")
    sent: list[Any] = []

    def keep(request: Any, **_: Any) -> None:
        sent.append(request)
        raise _Captured

    scheduler.api.meta.events.register_first("before-send.scheduler", keep)
    with contextlib.suppress(_Captured):
        scheduler.call(scheduler_call(action), **members)
    scheduler.close()
    [request] = sent
    target = request.url.removeprefix("http://localhost")
    body = request.body or b""
    headers = {"Content-Type": "application/json"} if body else {}
    return UnsignedRequest(
        f"scheduler:{action}", "scheduler", request.method, target, headers, body
    )

"""SNS: requests that nobody would write get no error of ours and leave no trace.

Of topics, subscriptions and publishing, and of mobile push and SMS.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuegate.gateway.faces.aws.aws_bindings import bindings
from queuegate.gateway.faces.aws.sns import mobile_push, sns_sms
from queuegate.protocol.sns_shapes import SNS
from tests.faces.fuzzing import (
    FUZZ,
    TEXT,
    VALUES,
    FuzzTarget,
    encoded,
    sns_form,
    sns_json,
    with_one_odd,
)
from tests.faces.servers import Server
from tests.faces.sns_client import Sns
from tests.protocol import oracle

MOBILE = sorted(bindings("sns", mobile_push, sns_sms))
ACTIONS = sorted(set(SNS.actions) - set(MOBILE))
DEEP = '{"a":' * 3000 + "1" + "}" * 3000
TEXTS = TEXT | st.sampled_from(
    [
        "{}",
        "",
        DEEP,
        "[" * 5000,
        '{"default":"x"}',
        '{"a":["b"]}',
        '{"a":["\\u0000"]}',
        '{"a":["\\ud800"]}',
        '{"a":[{"numeric":[">",1e999]}]}',
        '{"$or":[{"a":["b"]},{"c":[{"exists":false}]}]}',
        '{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:q"}',
        '{"http":{"defaultHealthyRetryPolicy":{"numRetries":1e400}}}',
        '{"healthyRetryPolicy":{"numRetries":9}}',
        '{"MessageRetentionPeriod":"30"}',
        '{"PointType":"Timestamp","StartingPoint":"99999-01-01T00:00:00.000Z"}',
        '{"Version":"2012-10-17","Statement":[{"Sid":5,"Action":{"a":1}}]}',
        "x" * 300_000,
    ]
)
TEXTS |= st.dictionaries(
    st.sampled_from(
        [
            "PointType",
            "StartingPoint",
            "EndingPoint",
            "deadLetterTargetArn",
            "healthyRetryPolicy",
            "numRetries",
            "$or",
            "a",
        ]
    ),
    VALUES | st.sampled_from(["Timestamp", "2026-11-20T12:00:00Z"]),
    max_size=4,
).map(json.dumps)
ARCHIVE_POLICY = '{"MessageRetentionPeriod":"9"}'
TOPIC_ATTRIBUTES = [
    "ArchivePolicy",
    "ContentBasedDeduplication",
    "DeliveryPolicy",
    "DisplayName",
    "FifoThroughputScope",
    "FifoTopic",
    "KmsMasterKeyId",
    "Policy",
    "SQSSuccessFeedbackSampleRate",
    "SignatureVersion",
    "TracingConfig",
]
SUBSCRIPTION_ATTRIBUTES = [
    "DeliveryPolicy",
    "FilterPolicy",
    "FilterPolicyScope",
    "RawMessageDelivery",
    "RedrivePolicy",
    "ReplayPolicy",
    "SubscriptionRoleArn",
]
NAMES = st.sampled_from(TOPIC_ATTRIBUTES + SUBSCRIPTION_ATTRIBUTES) | TEXT
ATTRIBUTES = st.dictionaries(NAMES, TEXTS, max_size=3)
TAGS = st.lists(st.fixed_dictionaries({}, optional={"Key": TEXT, "Value": TEXT}), max_size=3)
MESSAGE_ATTRIBUTES = st.dictionaries(
    st.sampled_from(["n", "a..b", ".", "x" * 300]) | TEXT,
    st.fixed_dictionaries(
        {},
        optional={
            "DataType": st.sampled_from(["String", "Number", "Binary", "String.Array"]) | TEXT,
            "StringValue": TEXTS,
            "BinaryValue": st.sampled_from(["AAE=", "?", "A"]),
        },
    ),
    max_size=3,
)
MESSAGE: dict[str, st.SearchStrategy[Any]] = {
    "Message": TEXTS,
    "Subject": TEXT,
    "MessageStructure": st.sampled_from(["json", "xml", ""]),
    "MessageAttributes": MESSAGE_ATTRIBUTES,
    "MessageDeduplicationId": TEXT,
    "MessageGroupId": TEXT,
}
ENTRIES = st.lists(
    st.fixed_dictionaries({"Id": st.sampled_from(["a", "b", "c"]) | TEXT}, optional=MESSAGE),
    max_size=4,
)


class TopicTarget(FuzzTarget):
    """A topic of each kind, with a subscribed queue each; a pending subscription of the first."""

    actions = ACTIONS

    def __init__(self, server: Server) -> None:
        self.sns = Sns("json", server.url)
        sqs = self.sns.sqs()
        queues = [sqs.arn(sqs.create("q")), sqs.arn(sqs.create_fifo("q.fifo"))]
        self.topics = [
            self.sns.create("t"),
            self.sns.create_fifo("t.fifo", ArchivePolicy=ARCHIVE_POLICY),
        ]
        self.subscriptions = [
            self.sns.subscribe(topic, "sqs", queue)
            for topic, queue in zip(self.topics, queues, strict=True)
        ]
        self.subscriptions.append(self.sns.subscribe(self.topics[0], "email", "reader@example.com"))
        self.queues = queues
        super().__init__(self.sns)

    def state(self) -> list[Any]:
        found: list[Any] = [self.sns.call("ListTopics"), self.sns.call("ListSubscriptions")]
        for topic in found[0].get("Topics", []):
            arn = topic["TopicArn"]
            found.append(self.sns.attributes(arn))
            found.append(self.sns.call("ListTagsForResource", ResourceArn=arn))
        for subscription in found[1].get("Subscriptions", []):
            if subscription["SubscriptionArn"] != "PendingConfirmation":
                found.append(self.sns.subscription(subscription["SubscriptionArn"]))
        return found

    def restore(self) -> None:
        """Put back what an example may have deleted."""
        fifo = {"FifoTopic": "true", "ArchivePolicy": ARCHIVE_POLICY}
        for name, attributes in (("t", {}), ("t.fifo", fifo)):
            members = {"Name": name, "Attributes": attributes}
            self.sns.ask("CreateTopic", members)

    def members(self, action: str) -> st.SearchStrategy[dict[str, Any]]:
        """Members of the action: all plausible, or all but one, which may be anything."""
        shape = oracle.model_of_query("sns").operation_model(action).input_shape
        topics = st.sampled_from([*self.topics, "x", "a:b:c:d:e:f", self.topics[0] + "\x00"])
        subscriptions = st.sampled_from([*self.subscriptions, self.topics[0] + ":x"])
        endpoints = st.sampled_from([*self.queues, "http://x/", "a@b", "+15550100", "http://[/"])
        plausible: dict[str, st.SearchStrategy[Any]] = {
            "TopicArn": topics,
            "TargetArn": topics,
            "ResourceArn": topics,
            "SubscriptionArn": subscriptions,
            "Name": st.sampled_from(["t", "t.fifo", "new", "new.fifo"]) | TEXT,
            "Attributes": ATTRIBUTES,
            "AttributeName": NAMES,
            "AttributeValue": TEXTS,
            "Protocol": st.sampled_from(["sqs", "email", "http", "https", "sms", "application"]),
            "Endpoint": endpoints | TEXT,
            "Tags": TAGS,
            "TagKeys": st.lists(TEXT, max_size=3),
            "PublishBatchRequestEntries": ENTRIES,
            **MESSAGE,
        }
        own = {name: oracle.values(member, TEXT) | VALUES for name, member in shape.members.items()}
        likely = {name: plausible.get(name, own[name]) for name in own}
        all_likely = st.fixed_dictionaries({}, optional=likely) | st.fixed_dictionaries(likely)
        return with_one_odd(all_likely, own)


# Mobile push and SMS

Texts = st.SearchStrategy[str]
ENABLED = st.sampled_from(["true", "FALSE", "maybe"])
OF_ENDPOINTS: dict[str, Texts] = {
    "Enabled": ENABLED,
    "Token": st.sampled_from(["token", "other", "a" * 3000]) | TEXT,
    "CustomUserData": st.sampled_from(["data", "a" * 3000]) | TEXT,
}
OF_APPLICATIONS: dict[str, Texts] = {
    "Enabled": ENABLED,
    "PlatformCredential": st.sampled_from(["key", "\x00"]) | TEXT,
    "PlatformPrincipal": st.just("certificate"),
}
OF_SMS: dict[str, Texts] = {
    "DefaultSMSType": st.sampled_from(["Promotional", "", "Spam"]),
    "DefaultSenderID": st.sampled_from(["Sender", "", "123"]),
}
NUMBERS = st.sampled_from(["+15550100", "15550101", "+1\n"])


def attributes_of(action: str) -> st.SearchStrategy[dict[str, str]]:
    """One or two attributes that the action knows, now and then one that it does not."""
    kinds = OF_SMS if "SMS" in action else OF_ENDPOINTS
    if action.endswith(("PlatformApplication", "PlatformApplicationAttributes")):
        kinds = OF_APPLICATIONS
    known = st.fixed_dictionaries({}, optional=kinds)
    return known | known | known.map(lambda attributes: {**attributes, "Colour": "blue"})


class MobileTarget(FuzzTarget):
    """An application with an endpoint, and two phone numbers."""

    actions = MOBILE

    def __init__(self, server: Server) -> None:
        self.sns = Sns("json", server.url)
        self.app = f"arn:aws:sns:us-east-1:{self.sns.account}:app/GCM/phones"
        self.endpoint = ""
        super().__init__(self.sns)

    def restore(self) -> None:
        """Make all of it as it was in the beginning."""
        self.sns.call("DeletePlatformApplication", PlatformApplicationArn=self.app)
        named = {"Name": "phones", "Platform": "GCM", "Attributes": {"PlatformCredential": "key"}}
        self.sns.call("CreatePlatformApplication", **named)
        members = {"PlatformApplicationArn": self.app, "Token": "token"}
        self.endpoint = self.sns.call("CreatePlatformEndpoint", **members)["EndpointArn"]
        self.sns.call("CreateSMSSandboxPhoneNumber", PhoneNumber="+15550100")
        self.post({}, b"", "/_admin/outbox", "DELETE")

    def state(self) -> list[Any]:
        found = [
            self.sns.call(action)
            for action in (
                "ListPlatformApplications",
                "GetSMSAttributes",
                "ListPhoneNumbersOptedOut",
                "ListSMSSandboxPhoneNumbers",
            )
        ]
        for one in found[0]["PlatformApplications"]:
            arn = one["PlatformApplicationArn"]
            listed = self.sns.ask(
                "ListEndpointsByPlatformApplication", {"PlatformApplicationArn": arn}
            )
            found.append(json.loads(listed.body))
        found.append(json.loads(self.post({}, b"", "/_admin/outbox?limit=1000", "GET").body))
        return found

    def arns(self) -> st.SearchStrategy[str]:
        known = st.sampled_from([self.app, self.endpoint, self.app + "/a", "a:b:c:d:e:f", "x"])
        return known | known.map(lambda arn: arn.replace("phones", "\x00")) | TEXT

    def members(self, action: str) -> st.SearchStrategy[dict[str, Any]]:
        """Members of the action: all plausible, or all but one, which may be anything."""
        shape = oracle.model_of_query("sns").operation_model(action).input_shape
        plausible: dict[str, st.SearchStrategy[Any]] = {
            "Name": st.sampled_from(["phones", "tablets"]),
            "PlatformApplicationArn": st.just(self.app) | self.arns(),
            "EndpointArn": st.just(self.endpoint) | self.arns(),
            "Attributes": attributes_of(action),
            "attributes": attributes_of(action),
            "Platform": st.sampled_from(["GCM", "APNS"]),
            "PhoneNumber": NUMBERS,
            "phoneNumber": NUMBERS,
            "LanguageCode": st.just("en-US"),
            "OneTimePassword": st.just("123456"),
            "Token": st.sampled_from(["token", "other"]) | TEXT,
            "CustomUserData": TEXT,
            "NextToken": st.just(""),
            "nextToken": st.just(""),
            "MaxResults": st.integers(1, 30),
        }
        likely = st.fixed_dictionaries({name: plausible[name] for name in shape.members})
        own = {name: oracle.values(member, TEXT) | VALUES for name, member in shape.members.items()}
        return with_one_odd(likely, own)


Target = TopicTarget | MobileTarget


@pytest.fixture(params=[TopicTarget, MobileTarget])
def target(request: pytest.FixtureRequest, server: Server) -> Iterator[Target]:
    target: Target = request.param(server)
    yield target
    target.close()


@FUZZ
@given(data=st.data())
def test_json_members_of_any_kind(target: Target, data: st.DataObject) -> None:
    target.restore()
    action = data.draw(st.sampled_from(target.actions))
    members = data.draw(target.members(action))
    target.assert_sound(sns_json(action), json.dumps(encoded(members)).encode())


@FUZZ
@given(data=st.data())
def test_forms_of_any_kind(target: Target, data: st.DataObject) -> None:
    target.restore()
    action = data.draw(st.sampled_from(target.actions))
    form = {"Action": action, "Version": "2010-03-31"}
    for name, value in data.draw(target.members(action)).items():
        if name == "MessageAttributes" and isinstance(value, dict):
            for number, (key, item) in enumerate(encoded(value).items(), 1):
                form[f"{name}.entry.{number}.Name"] = key
                items = item.items() if isinstance(item, dict) else [("DataType", str(item))]
                form |= {f"{name}.entry.{number}.Value.{k}": str(v) for k, v in items}
        else:
            form |= sns_form(encoded(value), name)
    body = urlencode(form, errors="surrogatepass").encode()
    target.assert_sound({"Content-Type": "application/x-www-form-urlencoded"}, body)

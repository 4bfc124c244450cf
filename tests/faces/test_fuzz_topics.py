"""Topics, subscriptions and publishing: requests that nobody would write get no error of ours and
leave no trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from tests.faces.test_fuzz_mobile import ACTIONS as MOBILE
from tests.protocol import oracle

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


class Target(FuzzTarget):
    """A topic of each kind, with a subscribed queue each; a pending subscription of the first."""

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


@pytest.fixture
def target(server: Server) -> Iterator[Target]:
    target = Target(server)
    yield target
    target.close()


@FUZZ
@given(data=st.data())
def test_json_members_of_any_kind(target: Target, data: st.DataObject) -> None:
    target.restore()
    action = data.draw(st.sampled_from(ACTIONS))
    members = data.draw(target.members(action))
    target.assert_sound(sns_json(action), json.dumps(encoded(members)).encode())


@FUZZ
@given(data=st.data())
def test_forms_of_any_kind(target: Target, data: st.DataObject) -> None:
    target.restore()
    action = data.draw(st.sampled_from(ACTIONS))
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

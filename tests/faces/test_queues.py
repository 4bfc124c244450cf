"""Queues over the wire: creating, listing, attributes, tags, permissions, purging, deleting."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.faces.clients import Sqs
from tests.faces.servers import Server

ALWAYS = {
    "ApproximateNumberOfMessages": "0",
    "ApproximateNumberOfMessagesDelayed": "0",
    "ApproximateNumberOfMessagesNotVisible": "0",
    "DelaySeconds": "0",
    "MaximumMessageSize": "1048576",
    "MessageRetentionPeriod": "345600",
    "ReceiveMessageWaitTimeSeconds": "0",
    "SqsManagedSseEnabled": "true",
    "VisibilityTimeout": "30",
}
FIFO = {
    "FifoQueue": "true",
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "queue",
    "FifoThroughputLimit": "perQueue",
}
STAMPS = {"CreatedTimestamp", "LastModifiedTimestamp"}


@pytest.mark.parametrize("kind", ["standard", "fifo"])
def test_all_attributes_of_a_new_queue(sqs: Sqs, kind: str) -> None:
    url = sqs.create("q.fifo", FifoQueue="true") if kind == "fifo" else sqs.create("q")
    found = sqs.attributes(url)
    name = "q.fifo" if kind == "fifo" else "q"
    expected = ALWAYS | {"QueueArn": f"arn:aws:sqs:us-east-1:{sqs.account}:{name}"}
    if kind == "fifo":
        expected |= FIFO
    assert {k: v for k, v in found.items() if k not in STAMPS} == expected
    assert all(found[stamp].isdigit() and len(found[stamp]) == 10 for stamp in STAMPS)
    assert sqs.call("GetQueueAttributes", QueueUrl=url) == {}


POLICY = '{"Version":"2012-10-17","Statement":[]}'
ROUND_TRIPS = {
    "DelaySeconds": "900",
    "MaximumMessageSize": "1024",
    "MessageRetentionPeriod": "60",
    "ReceiveMessageWaitTimeSeconds": "20",
    "VisibilityTimeout": "43200",
    "SqsManagedSseEnabled": "false",
    "KmsMasterKeyId": "alias/mine",
    "KmsDataKeyReusePeriodSeconds": "86400",
    "Policy": POLICY,
    "RedriveAllowPolicy": '{"redrivePermission":"denyAll"}',
}


@pytest.mark.parametrize("name", ROUND_TRIPS)
@pytest.mark.parametrize("how", ["at creation", "later"])
def test_attributes_read_back_as_they_were_set(sqs: Sqs, name: str, how: str) -> None:
    value = ROUND_TRIPS[name]
    if how == "at creation":
        url = sqs.create(**{name: value})
        assert sqs.create(**{name: value}) == url
    else:
        url = sqs.create()
        sqs.call("SetQueueAttributes", QueueUrl=url, Attributes={name: value})
    assert sqs.attributes(url, name) == {name: value}
    assert sqs.attributes(url)[name] == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ContentBasedDeduplication", "true"),
        ("DeduplicationScope", "messageGroup"),
        ("FifoThroughputLimit", "perQueue"),
    ],
)
def test_fifo_attributes_read_back(sqs: Sqs, name: str, value: str) -> None:
    url = sqs.create("q.fifo", FifoQueue="true")
    sqs.call("SetQueueAttributes", QueueUrl=url, Attributes={name: value})
    assert sqs.attributes(url, name) == {name: value}


def test_high_throughput_fifo(sqs: Sqs) -> None:
    high = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
    url = sqs.create("q.fifo", FifoQueue="true", **high)
    assert sqs.attributes(url, *high) == high


@pytest.mark.parametrize("text", ["True", "TRUE", "true"])
def test_booleans_of_any_case(sqs: Sqs, text: str) -> None:
    url = sqs.create("q.fifo", FifoQueue=text, ContentBasedDeduplication=text)
    found = sqs.attributes(url, "FifoQueue", "ContentBasedDeduplication")
    assert found == {"FifoQueue": "true", "ContentBasedDeduplication": "true"}


def test_a_redrive_policy_reads_back_normalised(sqs: Sqs) -> None:
    arn = sqs.arn(sqs.create("dead"))
    policy = json.dumps({"maxReceiveCount": "3", "deadLetterTargetArn": arn})
    url = sqs.create("source", RedrivePolicy=policy)
    normal = f'{{"deadLetterTargetArn":"{arn}","maxReceiveCount":3}}'
    assert sqs.attributes(url, "RedrivePolicy") == {"RedrivePolicy": normal}
    assert sqs.create("source", RedrivePolicy=normal) == url
    sqs.call("SetQueueAttributes", QueueUrl=url, Attributes={"RedrivePolicy": ""})
    assert "RedrivePolicy" not in sqs.attributes(url)


@pytest.mark.parametrize("name", ["Policy", "KmsMasterKeyId"])
def test_empty_unsets(sqs: Sqs, name: str) -> None:
    url = sqs.create(**{name: ROUND_TRIPS[name]})
    sqs.call("SetQueueAttributes", QueueUrl=url, Attributes={name: ""})
    assert name not in sqs.attributes(url)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DelaySeconds", "901"),
        ("DelaySeconds", "x"),
        ("MaximumMessageSize", "1023"),
        ("MaximumMessageSize", "1048577"),
        ("MessageRetentionPeriod", "59"),
        ("ReceiveMessageWaitTimeSeconds", "21"),
        ("VisibilityTimeout", "-1"),
        ("VisibilityTimeout", "43201"),
        ("KmsDataKeyReusePeriodSeconds", "59"),
        ("Policy", "no json"),
        ("SqsManagedSseEnabled", "maybe"),
    ],
)
def test_values_out_of_range(sqs: Sqs, name: str, value: str) -> None:
    url = sqs.create()
    before = sqs.attributes(url)
    members = {"QueueUrl": url, "Attributes": {name: value}}
    refused = sqs.refusal("SetQueueAttributes", **members)
    assert (refused.status, refused.code) == (400, "InvalidAttributeValue")
    assert sqs.attributes(url) == before
    refused = sqs.refusal("CreateQueue", QueueName="new", Attributes={name: value})
    assert refused.code == "InvalidAttributeValue"


@pytest.mark.parametrize("name", ["QueueArn", "CreatedTimestamp", "Foo", "fifoqueue"])
def test_attributes_that_cannot_be_set(sqs: Sqs, name: str) -> None:
    url = sqs.create()
    refused = sqs.refusal("SetQueueAttributes", QueueUrl=url, Attributes={name: "1"})
    assert (refused.status, refused.code) == (400, "InvalidAttributeName")


def test_creation_is_idempotent_and_compares_what_was_asked(sqs: Sqs) -> None:
    url = sqs.create("q", VisibilityTimeout="40", DelaySeconds="5")
    assert sqs.create("q") == url
    assert sqs.create("q", VisibilityTimeout="40") == url
    sqs.call("SetQueueAttributes", QueueUrl=url, Attributes={"VisibilityTimeout": "50"})
    attributes = {"QueueName": "q", "Attributes": {"VisibilityTimeout": "40"}}
    refused = sqs.refusal("CreateQueue", **attributes)
    assert refused.code == "QueueAlreadyExists"
    assert sqs.create("q", VisibilityTimeout="50", DelaySeconds="5") == url


@pytest.mark.parametrize("name", ["", "a b", "x" * 81, "a.b", "q/1", "ż", "a.fifo.fifo"])
def test_names_that_are_none(sqs: Sqs, name: str) -> None:
    refused = sqs.refusal("CreateQueue", QueueName=name)
    assert refused.status == 400
    assert refused.code in {"InvalidParameterValue", "MissingParameter"}


def test_fifo_names_and_the_attribute_belong_together(sqs: Sqs) -> None:
    refused = sqs.refusal("CreateQueue", QueueName="q.fifo")
    assert refused.code == "InvalidParameterValue"
    refused = sqs.refusal("CreateQueue", QueueName="q", Attributes={"FifoQueue": "true"})
    assert refused.code == "InvalidParameterValue"
    longest = "x" * 75 + ".fifo"
    assert sqs.create(longest, FifoQueue="true").endswith(longest)


def test_listing_by_prefix_and_page(sqs: Sqs) -> None:
    names = [f"a{number}" for number in range(5)] + ["b0"]
    urls = {name: sqs.create(name) for name in names}
    assert sorted(sqs.call("ListQueues")["QueueUrls"]) == sorted(urls.values())
    assert sqs.call("ListQueues", QueueNamePrefix="b") == {"QueueUrls": [urls["b0"]]}
    assert sqs.call("ListQueues", QueueNamePrefix="A") == {}
    found: list[str] = []
    token: dict[str, str] = {}
    for _ in range(3):
        page = sqs.call("ListQueues", QueueNamePrefix="a", MaxResults=2, **token)
        found += page["QueueUrls"]
        token = {"NextToken": page.get("NextToken", "")}
    assert sorted(found) == sorted(urls[name] for name in names if name != "b0")
    assert token == {"NextToken": ""}
    refused = sqs.refusal("ListQueues", MaxResults=1001)
    assert refused.status == 400


def test_tags(sqs: Sqs) -> None:
    created = sqs.call("CreateQueue", QueueName="q", tags={"env": "prod", "a b": ""})
    url = created["QueueUrl"]
    assert sqs.call("ListQueueTags", QueueUrl=url) == {"Tags": {"env": "prod", "a b": ""}}
    sqs.call("TagQueue", QueueUrl=url, Tags={"env": "test", "Env": "ż&=+", "x": "1"})
    sqs.call("UntagQueue", QueueUrl=url, TagKeys=["x", "unknown", "a b"])
    tags = sqs.call("ListQueueTags", QueueUrl=url)["Tags"]
    assert tags == {"env": "test", "Env": "ż&=+"}
    sqs.call("UntagQueue", QueueUrl=url, TagKeys=["env", "Env"])
    assert sqs.call("ListQueueTags", QueueUrl=url) == {}


def test_permissions_make_a_policy(sqs: Sqs) -> None:
    url = sqs.create("q")
    arn = sqs.arn(url)
    one = {"AWSAccountIds": ["111111111111"], "Actions": ["SendMessage"]}
    many = {"AWSAccountIds": ["111111111111", "222222222222"], "Actions": ["*", "ReceiveMessage"]}
    sqs.call("AddPermission", QueueUrl=url, Label="one", **one)
    sqs.call("AddPermission", QueueUrl=url, Label="many", **many)
    roots = ["arn:aws:iam::111111111111:root", "arn:aws:iam::222222222222:root"]
    assert json.loads(sqs.attributes(url, "Policy")["Policy"]) == {
        "Version": "2008-10-17",
        "Id": f"{arn}/SQSDefaultPolicy",
        "Statement": [
            {
                "Sid": "one",
                "Effect": "Allow",
                "Principal": {"AWS": roots[0]},
                "Action": "SQS:SendMessage",
                "Resource": arn,
            },
            {
                "Sid": "many",
                "Effect": "Allow",
                "Principal": {"AWS": roots},
                "Action": ["SQS:*", "SQS:ReceiveMessage"],
                "Resource": arn,
            },
        ],
    }
    for label in ("one", "many"):
        sqs.call("RemovePermission", QueueUrl=url, Label=label)
    assert "Policy" not in sqs.attributes(url)


def test_permissions_that_are_none(sqs: Sqs) -> None:
    url = sqs.create()
    good = {"QueueUrl": url, "Label": "l", "AWSAccountIds": [sqs.account]}
    refused = sqs.refusal("AddPermission", Actions=["Nothing"], **good)
    assert refused.code == "InvalidParameterValue"
    assert refused.text.startswith("Value SQS:Nothing for parameter ActionName is invalid.")
    refused = sqs.refusal("AddPermission", Actions=["SendMessage"] * 8, **good)
    assert (refused.status, refused.code) == (403, "OverLimit")
    assert refused.text == "8 Actions were found, maximum allowed is 7."
    bad = good | {"Label": "a b", "Actions": ["SendMessage"]}
    assert sqs.refusal("AddPermission", **bad).code == "InvalidParameterValue"


@pytest.mark.parametrize("kind", ["standard", "fifo"])
def test_a_purge_takes_everything(sqs: Sqs, server: Server, kind: str) -> None:
    url = sqs.create_fifo() if kind == "fifo" else sqs.create()
    for number in range(3):
        ids: dict[str, Any] = {"MessageGroupId": str(number)} if kind == "fifo" else {}
        delay: dict[str, Any] = {} if kind == "fifo" else {"DelaySeconds": number % 2 * 60}
        sqs.send(url, **ids, **delay)
        sqs.send(url, f"{number}", **ids)
    [leased] = sqs.receive(url, 1)
    sqs.call("PurgeQueue", QueueUrl=url)
    assert sqs.counts(url) == (0, 0, 0)
    sqs.delete(url, leased)
    server.advance(61)
    assert sqs.bodies(url) == []
    sqs.call("PurgeQueue", QueueUrl=url)


@pytest.mark.parametrize("kind", ["standard", "fifo"])
def test_a_deleted_queue_is_gone_and_its_name_returns_empty(
    sqs: Sqs, server: Server, kind: str
) -> None:
    url = sqs.create_fifo("q.fifo") if kind == "fifo" else sqs.create("q")
    sqs.send(url, **({"MessageGroupId": "g"} if kind == "fifo" else {}))
    sqs.call("DeleteQueue", QueueUrl=url)
    for action, members in (
        ("ReceiveMessage", {}),
        ("SendMessage", {"MessageBody": "b", "MessageGroupId": "g"}),
        ("GetQueueAttributes", {"AttributeNames": ["All"]}),
        ("DeleteQueue", {}),
    ):
        assert sqs.refusal(action, QueueUrl=url, **members).code.endswith("NonExistentQueue")
    assert sqs.call("ListQueues") == {}
    server.advance(61)
    again = sqs.create_fifo("q.fifo") if kind == "fifo" else sqs.create("q")
    assert again == url
    assert sqs.bodies(url) == []


def test_a_queue_url_by_owner(sqs: Sqs) -> None:
    url = sqs.create("q")
    found = sqs.call("GetQueueUrl", QueueName="q", QueueOwnerAWSAccountId=sqs.account)
    assert found == {"QueueUrl": url}


def test_last_modified_moves_with_a_change(sqs: Sqs, server: Server) -> None:
    url = sqs.create()
    before = sqs.attributes(url, *STAMPS)
    server.advance(10)
    sqs.call("SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": "1"})
    after = sqs.attributes(url, *STAMPS)
    assert after["CreatedTimestamp"] == before["CreatedTimestamp"]
    assert int(after["LastModifiedTimestamp"]) >= int(before["LastModifiedTimestamp"]) + 10

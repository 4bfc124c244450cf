"""Topics over both wires: creating, attributes, tags, permissions, listing, deleting."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.faces.clients import read_xml
from tests.faces.sns_client import Sns

POLICY = '{"Version":"2012-10-17","Statement":[]}'
TOO_SHORT = "Reason: An ARN must have at least 6 elements, not 1"
REQUIRED: dict[str, dict[str, Any]] = {
    "AddPermission": {
        "TopicArn": "",
        "Label": "l",
        "AWSAccountId": ["1" * 12],
        "ActionName": ["a"],
    },
    "CreateTopic": {"Name": "news"},
    "DeleteTopic": {"TopicArn": ""},
    "GetDataProtectionPolicy": {"ResourceArn": ""},
    "GetTopicAttributes": {"TopicArn": ""},
    "ListTagsForResource": {"ResourceArn": ""},
    "PutDataProtectionPolicy": {"ResourceArn": "", "DataProtectionPolicy": "{}"},
    "RemovePermission": {"TopicArn": "", "Label": "l"},
    "SetTopicAttributes": {"TopicArn": "", "AttributeName": "DisplayName"},
    "TagResource": {"ResourceArn": "", "Tags": [{"Key": "k", "Value": "v"}]},
    "UntagResource": {"ResourceArn": "", "TagKeys": ["k"]},
}


def assert_refused(refused: Any, status: int, code: str, text: str) -> None:
    assert (refused.status, refused.code, refused.text) == (status, code, text)
    assert refused.fault == "Sender"


def invalid(refused: Any, text: str) -> None:
    assert_refused(refused, 400, "InvalidParameter", f"Invalid parameter: {text}")


def test_a_topic_is_created_read_and_deleted(sns: Sns) -> None:
    arn = sns.create("news")
    assert arn == f"arn:aws:sns:us-east-1:{sns.account}:news" == sns.topic_arn("news")
    found = sns.attributes(arn)
    assert found.pop("Policy")
    assert found.pop("EffectiveDeliveryPolicy")
    assert found == {
        "Owner": sns.account,
        "TopicArn": arn,
        "DisplayName": "",
        "SubscriptionsPending": "0",
        "SubscriptionsConfirmed": "0",
        "SubscriptionsDeleted": "0",
    }
    assert sns.call("DeleteTopic", TopicArn=arn) == {}
    assert sns.call("DeleteTopic", TopicArn=arn) == {}
    refused = sns.refusal("GetTopicAttributes", TopicArn=arn)
    assert_refused(refused, 404, "NotFound", "Topic does not exist")
    assert sns.attributes(sns.create("news", DisplayName="new"))["DisplayName"] == "new"


def test_the_order_of_attributes_is_the_recorded_one(query_sns: Sns) -> None:
    arn = query_sns.create_fifo(DisplayName="x", SignatureVersion="2")
    answer = query_sns.ask("GetTopicAttributes", {"TopicArn": arn})
    entries = read_xml(answer.body)["GetTopicAttributesResult"]["Attributes"]["entry"]
    assert [entry["key"] for entry in entries] == [
        "Policy",
        "SignatureVersion",
        "Owner",
        "SubscriptionsPending",
        "TopicArn",
        "EffectiveDeliveryPolicy",
        "SubscriptionsConfirmed",
        "DisplayName",
        "SubscriptionsDeleted",
        "FifoTopic",
        "ContentBasedDeduplication",
    ]


def test_attributes_are_set_one_by_one(sns: Sns) -> None:
    arn = sns.create(DisplayName="News & <more>\n")
    assert sns.attributes(arn)["DisplayName"] == "News & <more>\n"
    for name, value in (("DisplayName", ""), ("Policy", POLICY), ("TracingConfig", "Active")):
        sns.set(arn, name, value)
        assert sns.attributes(arn)[name] == value
    policy: dict[str, Any] = {"http": {"defaultHealthyRetryPolicy": {"numRetries": 7}}}
    sns.set(arn, "DeliveryPolicy", json.dumps(policy))
    found = sns.attributes(arn)
    effective = json.loads(found["EffectiveDeliveryPolicy"])
    assert effective["http"]["defaultHealthyRetryPolicy"]["numRetries"] == 7
    policy["http"]["disableSubscriptionOverrides"] = False
    assert json.loads(found["DeliveryPolicy"]) == policy
    sns.set(arn, "DeliveryPolicy", "")
    assert "DeliveryPolicy" not in sns.attributes(arn)


def test_a_value_that_is_not_sent_is_the_empty_one(sns: Sns) -> None:
    arn = sns.create(DisplayName="x")
    sns.call("SetTopicAttributes", TopicArn=arn, AttributeName="DisplayName")
    assert sns.attributes(arn)["DisplayName"] == ""


def test_refusals_of_creating(sns: Sns) -> None:
    for name in ("a b", "", "a" * 257, "news.fifo", "ż", "żółć", "news\n", "ne\0ws"):
        invalid(sns.refusal("CreateTopic", Name=name), "Topic Name")
    for name, is_fifo in (
        ("news.fifo", "false"),
        ("news", "true"),
        (".fifo", "true"),
        ("a" * 252 + ".fifo", "true"),
    ):
        fifo = {"FifoTopic": is_fifo}
        invalid(sns.refusal("CreateTopic", Name=name, Attributes=fifo), "Topic Name")
    sns.create("news", DisplayName="x")
    for attributes in (
        {"DisplayName": "y"},
        {"DisplayName": "x", "KmsMasterKeyId": "1234"},
        {"Policy": POLICY},
        {"SignatureVersion": "2"},
        {"DeliveryPolicy": '{"http":{"defaultHealthyRetryPolicy":{"numRetries":5}}}'},
    ):
        refused = sns.refusal("CreateTopic", Name="news", Attributes=attributes)
        invalid(refused, "Attributes Reason: Topic already exists with different attributes")
    refused = sns.refusal("CreateTopic", Name="news", Tags=[{"Key": "k", "Value": "v"}])
    invalid(refused, "Tags Reason: Topic already exists with different tags")
    tags = [{"Key": f"k{n}", "Value": "v"} for n in range(51)]
    refused = sns.refusal("CreateTopic", Name="other", Tags=tags)
    assert (refused.status, refused.code) == (400, "TagLimitExceeded")
    invalid(sns.refusal("CreateTopic", Name="a b", Tags=tags), "Topic Name")
    assert sns.call("ListTopics")["Topics"] == [{"TopicArn": sns.topic_arn("news")}]


def test_refusals_of_setting(sns: Sns) -> None:
    arn = sns.create()
    members = {"TopicArn": arn, "AttributeName": "FifoTopic", "AttributeValue": "true"}
    invalid(sns.refusal("SetTopicAttributes", **members), "AttributeName")
    members["AttributeName"] = "ContentBasedDeduplication"
    text = "Content-based deduplication can only be set for FIFO topics"
    invalid(sns.refusal("SetTopicAttributes", **members), text)
    attributes = {"ContentBasedDeduplication": "true"}
    refused = sns.refusal("CreateTopic", Name="other", Attributes=attributes)
    invalid(refused, f"Attributes Reason: {text}")


@pytest.mark.parametrize("action", [action for action in REQUIRED if action != "CreateTopic"])
def test_arns_of_no_topic(sns: Sns, action: str) -> None:
    members = REQUIRED[action]
    name = next(key for key in members if key.endswith("Arn"))
    invalid(sns.refusal(action, **members | {name: "news"}), f"{name} {TOO_SHORT}")
    elsewhere = f"arn:aws:sns:eu-west-1:{sns.account}:news"
    invalid(sns.refusal(action, **members | {name: elsewhere}), name)
    nobody = members | {name: sns.topic_arn("nobody")}
    if action == "DeleteTopic":
        assert sns.call(action, **nobody) == {}
    elif action.endswith("Resource"):
        refused = sns.refusal(action, **nobody)
        assert_refused(refused, 404, "ResourceNotFound", "Resource does not exist")
    else:
        assert_refused(sns.refusal(action, **nobody), 404, "NotFound", "Topic does not exist")


def test_tags(sns: Sns) -> None:
    arn = sns.call("CreateTopic", Name="news", Tags=[{"Key": "z", "Value": "&"}])["TopicArn"]
    assert sns.call("TagResource", ResourceArn=arn, Tags=[{"Key": "a", "Value": ""}]) == {}
    assert sns.call("ListTagsForResource", ResourceArn=arn)["Tags"] == [
        {"Key": "z", "Value": "&"},
        {"Key": "a", "Value": ""},
    ]
    assert sns.call("UntagResource", ResourceArn=arn, TagKeys=["z", "none"]) == {}
    assert sns.call("UntagResource", ResourceArn=arn, TagKeys=["a"]) == {}
    assert sns.call("ListTagsForResource", ResourceArn=arn).get("Tags", []) == []
    twice = [{"Key": "k", "Value": "1"}, {"Key": "k", "Value": "2"}]
    refused = sns.refusal("TagResource", ResourceArn=arn, Tags=twice)
    invalid(refused, "Duplicated keys are not allowed.")


def test_permissions(sns: Sns) -> None:
    arn = sns.create()
    members = {
        "TopicArn": arn,
        "Label": "two",
        "AWSAccountId": ["123456789012", sns.account],
        "ActionName": ["Publish", "Subscribe"],
    }
    assert sns.call("AddPermission", **members) == {}
    [_, statement] = json.loads(sns.attributes(arn)["Policy"])["Statement"]
    assert statement["Action"] == ["SNS:Publish", "SNS:Subscribe"]
    invalid(sns.refusal("AddPermission", **members), "Statement already exists")
    members |= {"Label": "other", "ActionName": ["Fly"]}
    text = "Policy statement action out of service scope!"
    invalid(sns.refusal("AddPermission", **members), text)
    assert sns.call("RemovePermission", TopicArn=arn, Label="two") == {}
    assert len(json.loads(sns.attributes(arn)["Policy"])["Statement"]) == 1


def test_data_protection_policy(sns: Sns) -> None:
    arn = sns.create()
    assert "DataProtectionPolicy" not in sns.call("GetDataProtectionPolicy", ResourceArn=arn)
    policy = '{ "Name": "p" }'
    put = {"ResourceArn": arn, "DataProtectionPolicy": policy}
    assert sns.call("PutDataProtectionPolicy", **put) == {}
    assert sns.call("GetDataProtectionPolicy", ResourceArn=arn)["DataProtectionPolicy"] == policy


def test_listing(sns: Sns) -> None:
    assert sns.call("ListTopics").get("Topics", []) == []
    arns = [sns.create(f"t{n:03}") for n in range(101)]
    with sns.other(region="eu-west-1") as elsewhere:
        elsewhere.create("elsewhere")
    first = sns.call("ListTopics")
    assert [topic["TopicArn"] for topic in first["Topics"]] == arns[:100]
    second = sns.call("ListTopics", NextToken=first["NextToken"])
    assert second == {"Topics": [{"TopicArn": arns[100]}]}
    for token in ("x", "ż", "cXVldWVzOmE=", "dG9waWNzOgA=", "=" * 300):
        invalid(sns.refusal("ListTopics", NextToken=token), "NextToken")


def test_topics_and_queues_share_an_account_not_names(sns: Sns) -> None:
    arn = sns.create("same")
    url = sns.sqs().create("same")
    assert sns.sqs().arn(url) == arn.replace(":sns:", ":sqs:")

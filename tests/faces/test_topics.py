"""Topics over both wires: creating, attributes, tags, permissions, listing, deleting."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.faces.clients import read_xml
from tests.faces.sns_client import Sns

POLICY = '{"Version":"2012-10-17","Statement":[]}'
DELIVERY = '{"http":{"defaultHealthyRetryPolicy":{"numRetries":5}}}'
ARCHIVE = '{"MessageRetentionPeriod":"30"}'
ROLE = "arn:aws:iam::111122223333:role/r"
OTHER = "999999999999"
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
    policy = json.loads(found.pop("Policy"))
    assert list(policy) == ["Version", "Id", "Statement"]
    assert (policy["Version"], policy["Id"]) == ("2008-10-17", "__default_policy_ID")
    [statement] = policy["Statement"]
    assert statement == {
        "Sid": "__default_statement_ID",
        "Effect": "Allow",
        "Principal": {"AWS": "*"},
        "Action": [
            "SNS:GetTopicAttributes",
            "SNS:SetTopicAttributes",
            "SNS:AddPermission",
            "SNS:RemovePermission",
            "SNS:DeleteTopic",
            "SNS:Subscribe",
            "SNS:ListSubscriptionsByTopic",
            "SNS:Publish",
        ],
        "Resource": arn,
        "Condition": {"StringEquals": {"AWS:SourceOwner": sns.account}},
    }
    effective = json.loads(found.pop("EffectiveDeliveryPolicy"))
    assert effective["http"]["defaultHealthyRetryPolicy"]["numRetries"] == 3
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
    arn = query_sns.create_fifo(
        FifoThroughputScope="MessageGroup",
        ArchivePolicy=ARCHIVE,
        DisplayName="x",
        TracingConfig="Active",
        DeliveryPolicy=DELIVERY,
        KmsMasterKeyId="alias/mine",
        SignatureVersion="2",
        SQSSuccessFeedbackSampleRate="05",
    )
    answer = query_sns.ask("GetTopicAttributes", {"TopicArn": arn})
    entries = read_xml(answer.body)["GetTopicAttributesResult"]["Attributes"]["entry"]
    assert [entry["key"] for entry in entries] == [
        "Policy",
        "SignatureVersion",
        "Owner",
        "SubscriptionsPending",
        "KmsMasterKeyId",
        "TopicArn",
        "TracingConfig",
        "EffectiveDeliveryPolicy",
        "SubscriptionsConfirmed",
        "DisplayName",
        "DeliveryPolicy",
        "SubscriptionsDeleted",
        "SQSSuccessFeedbackSampleRate",
        "FifoTopic",
        "ContentBasedDeduplication",
        "FifoThroughputScope",
        "ArchivePolicy",
    ]


def allowing(actions: Any) -> str:
    """Return a policy; no source refuses actions that AddPermission refuses (6.2)."""
    statement = {"Effect": "Allow", "Principal": "*", "Action": actions}
    return json.dumps({"Statement": [statement]}, separators=(",", ":"))


# Name, value, and the value that reads back.
ROUND_TRIPS = [
    ("DisplayName", "News ✨", None),
    ("Policy", POLICY, None),
    ("Policy", allowing("sns:Get*"), None),
    ("Policy", allowing("*"), None),
    ("Policy", allowing(["SNS:Publish", "sqs:SendMessage"]), None),
    ("KmsMasterKeyId", "alias/mine", None),
    ("SignatureVersion", "2", None),
    ("TracingConfig", "Active", None),
    ("HTTPSuccessFeedbackRoleArn", ROLE, None),
    ("LambdaSuccessFeedbackSampleRate", "100", None),
    ("SQSSuccessFeedbackSampleRate", "05", "5"),
    ("FirehoseFailureFeedbackRoleArn", ROLE, None),
    ("ContentBasedDeduplication", "TRUE", "true"),
    ("FifoThroughputScope", "Topic", None),
    ("ArchivePolicy", '{ "MessageRetentionPeriod": 365 }', '{"MessageRetentionPeriod":"365"}'),
    ("ArchivePolicy", '{"MessageRetentionPeriod":"007"}', '{"MessageRetentionPeriod":"7"}'),
    ("DeliveryPolicy", DELIVERY, DELIVERY[:-2] + ',"disableSubscriptionOverrides":false}}'),
]
UNSET_BY_EMPTY = {"KmsMasterKeyId", "DeliveryPolicy", "ArchivePolicy"}


@pytest.mark.parametrize(("name", "value", "reads_back"), ROUND_TRIPS)
def test_attributes_read_back(sns: Sns, name: str, value: str, reads_back: str | None) -> None:
    changed = sns.create("changed.fifo", FifoTopic="true")
    sns.set(changed, name, value)
    created = sns.create("created.fifo", FifoTopic="true", **{name: value})
    for arn in (changed, created):
        assert sns.attributes(arn)[name] == (reads_back or value)
    if name in UNSET_BY_EMPTY or "Feedback" in name:
        sns.set(changed, name, "")
        empty = sns.create("empty.fifo", FifoTopic="true", **{name: ""})
        for arn in (changed, empty):
            assert name not in sns.attributes(arn)


def test_a_delivery_policy_counts_until_it_is_taken_away(sns: Sns) -> None:
    arn = sns.create(DisplayName="News & <more>\n")
    assert sns.attributes(arn)["DisplayName"] == "News & <more>\n"
    sns.set(arn, "DeliveryPolicy", DELIVERY)
    effective = json.loads(sns.attributes(arn)["EffectiveDeliveryPolicy"])
    assert effective["http"]["defaultHealthyRetryPolicy"]["numRetries"] == 5
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
        {"DeliveryPolicy": DELIVERY},
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


def test_a_topic_is_created_again_when_nothing_differs(sns: Sns) -> None:
    policy = json.dumps(json.loads(POLICY), indent=2)
    attributes = {"DisplayName": "News", "Policy": policy, "DeliveryPolicy": DELIVERY}
    arn = sns.create("news", **attributes)
    same = {"DisplayName": "News", "Policy": POLICY}
    for again in ({}, attributes, same, {"SignatureVersion": "1", "FifoTopic": "false"}):
        assert sns.create("news", **again) == arn
    plain = sns.create("plain")
    assert sns.create("plain", Policy=sns.attributes(plain)["Policy"]) == plain
    fifo = {"FifoTopic": "true", "ContentBasedDeduplication": "True"}
    arn = sns.create("news.fifo", **fifo)
    assert sns.create("news.fifo", **fifo | {"ContentBasedDeduplication": "true"}) == arn


BAD_VALUES = [
    ("DisplayName", "x" * 101),
    ("DisplayName", "a\x00b"),
    ("Policy", ""),
    ("Policy", "no json"),
    ("Policy", "[]"),
    ("Policy", "{}"),
    ("Policy", '{"Statement":[1]}'),
    ("Policy", '{"Statement":' + "[" * 900 + "]" * 900 + "}"),
    ("Policy", json.dumps({"Statement": [], "Id": "x" * 31_000})),
    ("DeliveryPolicy", "{"),
    ("DeliveryPolicy", '{"http":{"defaultHealthyRetryPolicy":{"numRetries":101}}}'),
    ("SignatureVersion", "3"),
    ("SignatureVersion", ""),
    ("TracingConfig", "active"),
    ("HTTPSuccessFeedbackSampleRate", "101"),
    ("HTTPSuccessFeedbackSampleRate", "-1"),
    ("HTTPSuccessFeedbackSampleRate", "٣"),
    ("HTTPSuccessFeedbackRoleArn", "role"),
    ("HTTPSuccessFeedbackRoleArn", "arn:aws:sqs:us-east-1:111122223333:q"),
    ("KmsMasterKeyId", "k\x00"),
    ("ContentBasedDeduplication", "yes"),
    ("ContentBasedDeduplication", ""),
    ("FifoThroughputScope", "messageGroup"),
    ("ArchivePolicy", "30"),
    ("ArchivePolicy", '{"MessageRetentionPeriod":"0"}'),
    ("ArchivePolicy", '{"MessageRetentionPeriod":366}'),
    ("ArchivePolicy", '{"MessageRetentionPeriod":1.5}'),
    ("ArchivePolicy", '{"MessageRetentionPeriod":true}'),
    ("ArchivePolicy", '{"MessageRetentionPeriod":"1","x":1}'),
    ("ArchivePolicy", '{"x":"1"}'),
]


@pytest.mark.parametrize(("name", "value"), BAD_VALUES, ids=lambda value: value[:30])
def test_values_that_are_refused_change_nothing(sns: Sns, name: str, value: str) -> None:
    arn = sns.create_fifo()
    before = sns.attributes(arn)
    members = {"TopicArn": arn, "AttributeName": name, "AttributeValue": value}
    attributes = {"FifoTopic": "true", name: value}
    setting = sns.refusal("SetTopicAttributes", **members)
    creating = sns.refusal("CreateTopic", Name="other.fifo", Attributes=attributes)
    assert (setting.code, creating.code) == ("InvalidParameter", "InvalidParameter")
    assert re.match("Invalid parameter: (?!Attributes)", setting.text)
    assert creating.text.startswith("Invalid parameter: Attributes Reason: ")
    assert sns.attributes(arn) == before


def test_names_that_cannot_be_set(sns: Sns) -> None:
    arn = sns.create_fifo()
    for name in ("FifoTopic", "TopicArn", "Owner", "displayname", "", "\x00"):
        members = {"TopicArn": arn, "AttributeName": name, "AttributeValue": "true"}
        invalid(sns.refusal("SetTopicAttributes", **members), "AttributeName")
    for name in ("Owner", "displayname", ""):
        refused = sns.refusal("CreateTopic", Name="other", Attributes={name: "x"})
        invalid(refused, f"Attributes Reason: Unknown attribute {name}")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ContentBasedDeduplication", "true"),
        ("FifoThroughputScope", "Topic"),
        ("ArchivePolicy", ARCHIVE),
    ],
)
def test_attributes_of_fifo_topics_only(sns: Sns, name: str, value: str) -> None:
    members = {"TopicArn": sns.create(), "AttributeName": name, "AttributeValue": value}
    text = sns.refusal("SetTopicAttributes", **members).text
    assert text.endswith(" can only be set for FIFO topics")
    if name == "ContentBasedDeduplication":
        assert text.startswith("Invalid parameter: Content-based deduplication can")
    refused = sns.refusal("CreateTopic", Name="other", Attributes={name: value})
    invalid(refused, f"Attributes Reason: {text.removeprefix('Invalid parameter: ')}")


def test_standard_topics_may_say_that_they_are_standard(sns: Sns) -> None:
    arn = sns.create(FifoTopic="false", ContentBasedDeduplication="false")
    assert not {"FifoTopic", "ContentBasedDeduplication"} & sns.attributes(arn).keys()
    refused = sns.refusal("CreateTopic", Name="x", Attributes={"FifoTopic": "maybe"})
    assert refused.text.startswith("Invalid parameter: Attributes Reason: FifoTopic: ")


def test_a_topic_that_archives_is_not_deleted(sns: Sns) -> None:
    arn = sns.create_fifo(ArchivePolicy=ARCHIVE)
    refused = sns.refusal("DeleteTopic", TopicArn=arn)
    assert (refused.status, refused.code) == (400, "InvalidParameter")
    assert "ArchivePolicy" in refused.text
    sns.set(arn, "ArchivePolicy", "{}")
    assert "ArchivePolicy" not in sns.attributes(arn)
    sns.call("DeleteTopic", TopicArn=arn)
    assert sns.refusal("GetTopicAttributes", TopicArn=arn).status == 404


@pytest.mark.parametrize("action", [action for action in REQUIRED if action != "CreateTopic"])
def test_arns_of_no_topic(sns: Sns, action: str) -> None:
    members = REQUIRED[action]
    name = next(key for key in members if key.endswith("Arn"))
    for elements, wrong in ((1, "news"), (1, ""), (2, "a:b"), (5, "arn:aws:sns:us-east-1:1")):
        text = f"{name} Reason: An ARN must have at least 6 elements, not {elements}"
        invalid(sns.refusal(action, **members | {name: wrong}), text)
    for wrong in (
        "arn:aws:sns:eu-west-1:{}:news",
        "arn:aws-cn:sns:us-east-1:{}:news",
        "arn:aws:sqs:us-east-1:{}:news",
        "arn:aws:sns:us-east-1:{}:news:x",
        "arn:aws:sns:us-east-1:{}:ne\x00ws",
        "arn:aws:sns:us-east-1::news",
    ):
        invalid(sns.refusal(action, **members | {name: wrong.format(sns.account)}), name)
    nobody = members | {name: sns.topic_arn("nobody")}
    if action == "DeleteTopic":
        assert sns.call(action, **nobody) == {}
    elif action.endswith("Resource"):
        refused = sns.refusal(action, **nobody)
        assert_refused(refused, 404, "ResourceNotFound", "Resource does not exist")
    else:
        assert_refused(sns.refusal(action, **nobody), 404, "NotFound", "Topic does not exist")


def tags_of(**tags: str) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def test_tags_keep_the_order_in_which_they_were_added(sns: Sns) -> None:
    arn = sns.call("CreateTopic", Name="news", Tags=tags_of(z="&"))["TopicArn"]
    for tags in (tags_of(a=""), tags_of(b="2", z="3", A="✨")):
        assert sns.call("TagResource", ResourceArn=arn, Tags=tags) == {}
    found = sns.call("ListTagsForResource", ResourceArn=arn)["Tags"]
    assert found == tags_of(z="3", a="", b="2", A="✨")
    assert sns.call("UntagResource", ResourceArn=arn, TagKeys=["z", "none", "b", "A"]) == {}
    assert sns.call("ListTagsForResource", ResourceArn=arn)["Tags"] == tags_of(a="")
    assert sns.call("UntagResource", ResourceArn=arn, TagKeys=["a"]) == {}
    assert sns.call("ListTagsForResource", ResourceArn=arn).get("Tags", []) == []


def test_tags_that_are_refused(sns: Sns) -> None:
    """Those of a new topic and of one that is there."""
    arn = sns.create()
    places: tuple[tuple[str, dict[str, str]], ...] = (
        ("TagResource", {"ResourceArn": arn}),
        ("CreateTopic", {"Name": "other"}),
    )
    for action, members in places:
        refused = sns.refusal(action, **members, Tags=[*tags_of(k="1"), *tags_of(k="2")])
        invalid(refused, "Duplicated keys are not allowed.")
        for tag, member in (({"Value": "1"}, "key"), ({"Key": "l"}, "value")):
            refused = sns.refusal(action, **members, Tags=[*tags_of(k="1"), tag])
            assert (refused.status, refused.code) == (400, "ValidationError")
            assert f"'tags.2.member.{member}'" in refused.text
        for bad in ({"": "v"}, {"k" * 129: "v"}, {"k": "v" * 257}, {"k\0": ""}, {"k": "\0"}):
            refused = sns.refusal(action, **members, Tags=tags_of(**bad))
            assert (refused.status, refused.code) == (400, "InvalidParameter")
        refused = sns.refusal(action, **members, Tags=[{"Value": ""}] * 51)
        assert (refused.status, refused.code) == (400, "TagLimitExceeded")
    assert sns.call("ListTagsForResource", ResourceArn=arn).get("Tags", []) == []
    assert sns.call("ListTopics")["Topics"] == [{"TopicArn": arn}]


def test_a_topic_has_fifty_tags_at_most(sns: Sns) -> None:
    arn = sns.create()
    for start in (0, 25):
        tags = tags_of(**{f"k{number}": "" for number in range(start, start + 25)})
        sns.call("TagResource", ResourceArn=arn, Tags=tags)
    sns.call("TagResource", ResourceArn=arn, Tags=tags_of(k7="new"))
    refused = sns.refusal("TagResource", ResourceArn=arn, Tags=tags_of(more=""))
    assert (refused.code, refused.text) == (
        "TagLimitExceeded",
        "Could not complete request: tag quota of per resource exceeded",
    )
    assert len(sns.call("ListTagsForResource", ResourceArn=arn)["Tags"]) == 50


def statements(sns: Sns, arn: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(sns.attributes(arn)["Policy"])["Statement"]
    return found


def permission(arn: str, label: str = "label", **changes: list[str]) -> dict[str, Any]:
    """Return the members of AddPermission."""
    members = {"AWSAccountId": [OTHER], "ActionName": ["Publish"]} | changes
    return {"TopicArn": arn, "Label": label, **members}


def test_permissions(sns: Sns) -> None:
    arn = sns.create()
    assert sns.call("AddPermission", **permission(arn)) == {}
    accounts, actions = [OTHER, sns.account], ["Publish", "Subscribe"]
    sns.call("AddPermission", **permission(arn, "two", AWSAccountId=accounts, ActionName=actions))
    default, one, two = statements(sns, arn)
    assert default["Sid"] == "__default_statement_ID"
    assert one == {
        "Sid": "label",
        "Effect": "Allow",
        "Principal": {"AWS": f"arn:aws:iam::{OTHER}:root"},
        "Action": "SNS:Publish",
        "Resource": arn,
    }
    assert two["Principal"]["AWS"] == [f"arn:aws:iam::{each}:root" for each in accounts]
    assert two["Action"] == ["SNS:Publish", "SNS:Subscribe"]
    for label in ("nobody", "label", "label", "two", "__default_statement_ID"):
        assert sns.call("RemovePermission", TopicArn=arn, Label=label) == {}
    assert statements(sns, arn) == []
    own = {"Sid": "own", "Effect": "Deny", "Principal": "*", "Action": "SNS:Publish"}
    sns.set(arn, "Policy", json.dumps({"Statement": own}))
    sns.call("AddPermission", **permission(arn))
    assert [each["Sid"] for each in statements(sns, arn)] == ["own", "label"]


@pytest.mark.parametrize(
    ("label", "changes", "text"),
    [
        ("label", {}, "Statement already exists"),
        ("new", {"ActionName": ["Fly"]}, "Policy statement action out of service scope!"),
        (
            "new",
            {"ActionName": ["Publish", "publish"]},
            "Policy statement action out of service scope!",
        ),
        ("new", {"AWSAccountId": ["me"]}, "AWSAccountId"),
        ("a b", {}, "Label"),
        ("new", {"AWSAccountId": [OTHER] * 1_000}, "Policy Error: larger than 30720 bytes"),
    ],
)
def test_permissions_that_are_refused(
    sns: Sns, label: str, changes: dict[str, list[str]], text: str
) -> None:
    arn = sns.create()
    sns.call("AddPermission", **permission(arn))
    before = statements(sns, arn)
    invalid(sns.refusal("AddPermission", **permission(arn, label, **changes)), text)
    assert statements(sns, arn) == before


def test_data_protection_policy(sns: Sns) -> None:
    def kept(arn: str) -> str | None:
        answer = sns.call("GetDataProtectionPolicy", ResourceArn=arn)
        policy: str | None = answer.get("DataProtectionPolicy")
        return policy

    assert kept(sns.create()) is None
    first, second = '{ "Name": "p" }', '{"Name":"other"}'
    new = {"Name": "kept", "DataProtectionPolicy": first}
    arn = sns.call("CreateTopic", **new)["TopicArn"]
    assert sns.call("CreateTopic", **new) == {"TopicArn": arn}
    assert kept(arn) == first
    refused = sns.refusal("CreateTopic", Name="kept", DataProtectionPolicy=second)
    invalid(refused, "Attributes Reason: Topic already exists with different attributes")
    for bad in ("[]", "{", '{"a":"\x00"}', json.dumps({"a": "x" * 31_000})):
        put = {"ResourceArn": arn, "DataProtectionPolicy": bad}
        invalid(sns.refusal("PutDataProtectionPolicy", **put), "DataProtectionPolicy")
    for policy in (second, ""):
        put = {"ResourceArn": arn, "DataProtectionPolicy": policy}
        assert sns.call("PutDataProtectionPolicy", **put) == {}
        assert kept(arn) == (policy or None)


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

"""SNS: topics, their attributes, tags, permissions and policies."""

from __future__ import annotations

import json
from typing import Any

from conformance.casebook import Cases
from conformance.driving import Client, expect, expect_refusal

CASES = Cases()
case = CASES.case

_MISSING = "arn:aws:sns:us-east-1:{}:nothing-of-that-name"


def _account(arn: str) -> str:
    return arn.split(":")[4]


def _all_topics(client: Client) -> list[str]:
    found = []
    page = client.sns("ListTopics")
    found += page.get("Topics", [])
    while page.get("NextToken"):
        page = client.sns("ListTopics", NextToken=page["NextToken"])
        found += page["Topics"]
    return [topic["TopicArn"] for topic in found]


@case(brief=True)
def a_topic_is_created_found_listed_and_deleted(client: Client) -> None:
    arn = client.topic("-listed")
    name = arn.rpartition(":")[2]
    expect(arn, f"arn:aws:sns:us-east-1:{_account(arn)}:{name}")
    expect(client.sns("CreateTopic", Name=name), {"TopicArn": arn})
    expect(arn in _all_topics(client), True, "listed")
    expect(client.topic_attributes(arn)["TopicArn"], arn)
    expect(client.sns("DeleteTopic", TopicArn=arn), {})
    expect(client.sns("DeleteTopic", TopicArn=arn), {})
    expect(arn in _all_topics(client), False, "listed")
    refused = client.sns_refusal("GetTopicAttributes", TopicArn=arn)
    text = "Topic does not exist"
    expect_refusal(refused, "NotFound", text=text, status=404, exception="NotFoundException")


@case()
def attributes_of_a_new_topic(client: Client) -> None:
    arn = client.topic()
    found = client.topic_attributes(arn)
    order = ("Policy", "Owner", "SubscriptionsPending", "TopicArn", "EffectiveDeliveryPolicy")
    expect(tuple(found)[:5], order)
    expect(tuple(found)[5:], ("SubscriptionsConfirmed", "DisplayName", "SubscriptionsDeleted"))
    policy = json.loads(found.pop("Policy"))
    expect((policy["Version"], policy["Id"]), ("2008-10-17", "__default_policy_ID"))
    [statement] = policy["Statement"]
    expect(statement["Sid"], "__default_statement_ID")
    expect(statement["Condition"], {"StringEquals": {"AWS:SourceOwner": _account(arn)}})
    retries = json.loads(found.pop("EffectiveDeliveryPolicy"))["http"]["defaultHealthyRetryPolicy"]
    expect((retries["numRetries"], retries["minDelayTarget"]), (3, 20))
    wanted = {
        "Owner": _account(arn),
        "SubscriptionsPending": "0",
        "TopicArn": arn,
        "SubscriptionsConfirmed": "0",
        "DisplayName": "",
        "SubscriptionsDeleted": "0",
    }
    expect(found, wanted)


@case()
def a_fifo_topic_and_its_attributes(client: Client) -> None:
    found = client.topic_attributes(client.topic(".fifo", FifoThroughputScope="MessageGroup"))
    expect(found["FifoTopic"], "true")
    expect(found["ContentBasedDeduplication"], "false")
    expect(found["FifoThroughputScope"], "MessageGroup")


@case(brief=True)
def attributes_of_a_topic_read_back(client: Client) -> None:
    arn = client.topic()
    attributes = {
        "DisplayName": "Żółw",
        "KmsMasterKeyId": "alias/mine",
        "SignatureVersion": "2",
        "TracingConfig": "Active",
    }
    for name, value in attributes.items():
        members = {"TopicArn": arn, "AttributeName": name, "AttributeValue": value}
        expect(client.sns("SetTopicAttributes", **members), {})
    found = client.topic_attributes(arn)
    expect({name: found.get(name) for name in attributes}, attributes)
    members = {"TopicArn": arn, "AttributeName": "Nonsense", "AttributeValue": "x"}
    refused = client.sns_refusal("SetTopicAttributes", **members)
    text = "Invalid parameter: AttributeName"
    expect_refusal(refused, "InvalidParameter", text=text, exception="InvalidParameterException")


@case()
def delivery_policy_of_a_topic(client: Client) -> None:
    arn = client.topic()
    retries = {
        "minDelayTarget": 5,
        "maxDelayTarget": 9,
        "numRetries": 7,
        "numMaxDelayRetries": 1,
        "numNoDelayRetries": 2,
        "numMinDelayRetries": 3,
        "backoffFunction": "exponential",
    }
    policy = json.dumps({"http": {"defaultHealthyRetryPolicy": retries}})
    members = {"TopicArn": arn, "AttributeName": "DeliveryPolicy"}
    client.sns("SetTopicAttributes", AttributeValue=policy, **members)
    found = client.topic_attributes(arn)
    for name in ("DeliveryPolicy", "EffectiveDeliveryPolicy"):
        expect(json.loads(found[name])["http"]["defaultHealthyRetryPolicy"], retries, name)
    retries["numRetries"] = 101
    policy = json.dumps({"http": {"defaultHealthyRetryPolicy": retries}})
    refused = client.sns_refusal("SetTopicAttributes", AttributeValue=policy, **members)
    expect_refusal(refused, "InvalidParameter")


@case()
def a_topic_that_exists_already(client: Client) -> None:
    arn = client.topic(DisplayName="mine")
    name = arn.rpartition(":")[2]
    same = {"Name": name, "Attributes": {"DisplayName": "mine"}}
    expect(client.sns("CreateTopic", **same), {"TopicArn": arn})
    expect(client.sns("CreateTopic", Name=name), {"TopicArn": arn})
    text = "Invalid parameter: Attributes Reason: Topic already exists with different attributes"
    others = ({"DisplayName": "other"}, {"DisplayName": "mine", "KmsMasterKeyId": "alias/k"})
    for other in others:
        refused = client.sns_refusal("CreateTopic", Name=name, Attributes=other)
        expect_refusal(refused, "InvalidParameter", text=text)
    refused = client.sns_refusal("CreateTopic", Name=name, Tags=[{"Key": "a", "Value": "b"}])
    text = "Invalid parameter: Tags Reason: Topic already exists with different tags"
    expect_refusal(refused, "InvalidParameter", text=text)


@case()
def names_that_no_topic_may_have(client: Client) -> None:
    for name in ("", "a b", "x" * 257, "ż", "dotted.name"):
        refused = client.sns_refusal("CreateTopic", Name=name)
        expect_refusal(refused, "InvalidParameter", text="Invalid parameter: Topic Name")


@case()
def pages_of_topics(client: Client) -> None:
    arns = {client.topic("-paged") for _ in range(101)}
    first = client.sns("ListTopics")
    expect(len(first["Topics"]), 100)
    expect(set(_all_topics(client)) >= arns, True)
    for arn in arns:
        client.sns("DeleteTopic", TopicArn=arn)


@case(brief=True)
def tags_of_a_topic(client: Client) -> None:
    arn = client.topic()
    expect(client.sns("ListTagsForResource", ResourceArn=arn).get("Tags", []), [])
    tags = [{"Key": "env", "Value": "prod"}, {"Key": "Team", "Value": ""}]
    expect(client.sns("TagResource", ResourceArn=arn, Tags=tags), {})
    found = client.sns("ListTagsForResource", ResourceArn=arn)["Tags"]
    expect(sorted(tag["Key"] for tag in found), ["Team", "env"])
    expect({"Key": "Team", "Value": ""} in found, True)
    expect(client.sns("UntagResource", ResourceArn=arn, TagKeys=["env"]), {})
    expect(client.sns("ListTagsForResource", ResourceArn=arn)["Tags"], tags[1:])
    missing = _MISSING.format(_account(arn))
    refused = client.sns_refusal("TagResource", ResourceArn=missing, Tags=tags)
    exception = "ResourceNotFoundException"
    expect_refusal(refused, "ResourceNotFound", status=404, exception=exception)


@case()
def tags_at_the_creation_of_a_topic(client: Client) -> None:
    tags = [{"Key": "env", "Value": "prod"}]
    arn = client.sns("CreateTopic", Name="tagged-at-creation", Tags=tags)["TopicArn"]
    expect(client.sns("ListTagsForResource", ResourceArn=arn)["Tags"], tags)
    many = [{"Key": f"k{number}", "Value": "v"} for number in range(50)]
    refused = client.sns_refusal("TagResource", ResourceArn=arn, Tags=many)
    expect_refusal(refused, "TagLimitExceeded", exception="TagLimitExceededException")
    client.sns("DeleteTopic", TopicArn=arn)


@case(brief=True)
def permissions_of_a_topic(client: Client) -> None:
    arn = client.topic()
    members: dict[str, Any] = {"TopicArn": arn, "Label": "mine"}
    granted = {"AWSAccountId": ["111111111111"], "ActionName": ["Publish", "Subscribe"]}
    expect(client.sns("AddPermission", **members, **granted), {})
    statements = json.loads(client.topic_attributes(arn)["Policy"])["Statement"]
    [added] = [statement for statement in statements if statement["Sid"] == "mine"]
    expect(added["Action"], ["SNS:Publish", "SNS:Subscribe"])
    expect(added["Principal"], {"AWS": "arn:aws:iam::111111111111:root"})
    refused = client.sns_refusal("AddPermission", **members, **granted)
    text = "Invalid parameter: Statement already exists"
    expect_refusal(refused, "InvalidParameter", text=text)
    expect(client.sns("RemovePermission", **members), {})
    expect(len(json.loads(client.topic_attributes(arn)["Policy"])["Statement"]), 1)


@case(brief=True)
def data_protection_policy_of_a_topic(client: Client) -> None:
    arn = client.topic()
    policy = json.dumps(
        {
            "Name": "mine",
            "Description": "d",
            "Version": "2021-06-01",
            "Statement": [
                {
                    "DataDirection": "Inbound",
                    "Principal": ["*"],
                    "DataIdentifier": ["arn:aws:dataprotection::aws:data-identifier/EmailAddress"],
                    "Operation": {"Deny": {}},
                }
            ],
        }
    )
    members = {"ResourceArn": arn, "DataProtectionPolicy": policy}
    expect(client.sns("PutDataProtectionPolicy", **members), {})
    found = client.sns("GetDataProtectionPolicy", ResourceArn=arn)["DataProtectionPolicy"]
    expect(json.loads(found), json.loads(policy))


@case()
def topics_that_are_none(client: Client) -> None:
    table = [
        ("garbage", "TopicArn Reason: An ARN must have at least 6 elements, not 1"),
        ("arn:aws:sns:eu-west-1:000000000000:t", "TopicArn"),
    ]
    for arn, reason in table:
        refused = client.sns_refusal("Publish", TopicArn=arn, Message="m")
        expect_refusal(refused, "InvalidParameter", text=f"Invalid parameter: {reason}")

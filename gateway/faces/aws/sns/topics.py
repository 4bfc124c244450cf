"""SNS actions on topics: action -> binding. Decoded members in, response members out."""

from __future__ import annotations

from gateway.faces.aws.face import Binding, Call, Members
from gateway.faces.aws.sns.tags import checked_tags
from gateway.operations.topics import topic_data_protection, topics


async def create_topic(call: Call) -> Members:
    members = call.members
    request = topics.CreateTopic(
        members.get("Name"),
        members.get("Attributes") or {},
        checked_tags(members.get("Tags") or ()),
        members.get("DataProtectionPolicy"),
    )
    topic = await topics.create_topic(call.engine, call.caller, request)
    return {"TopicArn": topic.arn}


async def delete_topic(call: Call) -> None:
    await topics.delete_topic(call.engine, call.caller, call.members.get("TopicArn"))


async def list_topics(call: Call) -> Members:
    page = await topics.list_topics(call.engine, call.caller, call.members.get("NextToken"))
    return {"Topics": [{"TopicArn": arn} for arn in page.topic_arns], "NextToken": page.next_token}


async def get_topic_attributes(call: Call) -> Members:
    arn = call.members.get("TopicArn")
    return {"Attributes": await topics.get_topic_attributes(call.engine, call.caller, arn)}


async def set_topic_attributes(call: Call) -> None:
    members = call.members
    request = topics.SetTopicAttributes(
        members.get("TopicArn"), members.get("AttributeName"), members.get("AttributeValue")
    )
    await topics.set_topic_attributes(call.engine, call.caller, request)


async def get_data_protection_policy(call: Call) -> Members:
    arn = call.members.get("ResourceArn")
    policy = await topic_data_protection.get_data_protection_policy(call.engine, call.caller, arn)
    return {"DataProtectionPolicy": policy}


async def put_data_protection_policy(call: Call) -> None:
    members = call.members
    request = topic_data_protection.PutDataProtectionPolicy(
        members.get("ResourceArn"), members.get("DataProtectionPolicy")
    )
    await topic_data_protection.put_data_protection_policy(call.engine, call.caller, request)


BINDINGS: dict[str, Binding] = {
    "CreateTopic": create_topic,
    "DeleteTopic": delete_topic,
    "GetDataProtectionPolicy": get_data_protection_policy,
    "GetTopicAttributes": get_topic_attributes,
    "ListTopics": list_topics,
    "PutDataProtectionPolicy": put_data_protection_policy,
    "SetTopicAttributes": set_topic_attributes,
}
"""SNS actions on topics."""

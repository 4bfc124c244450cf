"""SNS actions on topics: action -> binding. Decoded members in, response members out."""

from __future__ import annotations

from typing import Any

from gateway.faces.aws.face import Binding, Call, Members
from gateway.operations.topics import topic_data_protection, topic_permissions, topic_tags, topics


def _tags(given: list[dict[str, Any]] | None) -> list[topic_tags.Tag] | None:
    return None if given is None else [(tag.get("Key"), tag.get("Value")) for tag in given]


async def create_topic(call: Call) -> Members:
    members = call.members
    request = topics.CreateTopic(
        members.get("Name"),
        members.get("Attributes") or {},
        _tags(members.get("Tags")) or (),
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


async def tag_resource(call: Call) -> None:
    members = call.members
    request = topic_tags.TagResource(members.get("ResourceArn"), _tags(members.get("Tags")))
    await topic_tags.tag_resource(call.engine, call.caller, request)


async def untag_resource(call: Call) -> None:
    members = call.members
    request = topic_tags.UntagResource(members.get("ResourceArn"), members.get("TagKeys"))
    await topic_tags.untag_resource(call.engine, call.caller, request)


async def list_tags_for_resource(call: Call) -> Members:
    arn = call.members.get("ResourceArn")
    tags = await topic_tags.list_tags_for_resource(call.engine, call.caller, arn)
    return {"Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}


async def add_permission(call: Call) -> None:
    members = call.members
    request = topic_permissions.AddPermission(
        members.get("TopicArn"),
        members.get("Label"),
        members.get("AWSAccountId"),
        members.get("ActionName"),
    )
    await topic_permissions.add_permission(call.engine, call.caller, request)


async def remove_permission(call: Call) -> None:
    members = call.members
    request = topic_permissions.RemovePermission(members.get("TopicArn"), members.get("Label"))
    await topic_permissions.remove_permission(call.engine, call.caller, request)


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
    "AddPermission": add_permission,
    "CreateTopic": create_topic,
    "DeleteTopic": delete_topic,
    "GetDataProtectionPolicy": get_data_protection_policy,
    "GetTopicAttributes": get_topic_attributes,
    "ListTagsForResource": list_tags_for_resource,
    "ListTopics": list_topics,
    "PutDataProtectionPolicy": put_data_protection_policy,
    "RemovePermission": remove_permission,
    "SetTopicAttributes": set_topic_attributes,
    "TagResource": tag_resource,
    "UntagResource": untag_resource,
}
"""SNS actions on topics."""

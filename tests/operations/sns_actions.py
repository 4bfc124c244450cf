"""Actions of SNS without a wire: members in, members out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from queuegate.gateway.faces.aws.aws_bindings import SNS_BINDINGS
from queuegate.gateway.faces.aws.aws_face import AwsCall
from queuegate.gateway.faces.interface import Request
from queuegate.gateway.operations.access.authorization import GrantedTopic
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.topics.topics import find_topic
from queuegate.protocol.arns import parse_topic
from queuegate.protocol.service_detection import Detected
from queuegate.storage.model import Topic

BASE_URL = "http://gateway.example:9324"


async def ask(engine: Engine, caller: Caller, action: str, **members: Any) -> dict[str, Any]:
    """Call an action and return its answer; a member that is None is left out."""
    given = {name: value for name, value in members.items() if value is not None}
    request = Request("POST", "/", b"", {}, b"", BASE_URL, BASE_URL, "id")
    call = AwsCall(engine, caller, given, request, Detected("sns", "query", action))
    return await SNS_BINDINGS[action](call) or {}


@dataclass(frozen=True)
class CreateTopic:
    """A request of CreateTopic."""

    name: str | None
    attributes: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)


async def create_topic(engine: Engine, caller: Caller, request: CreateTopic) -> Topic:
    """The topic as it is stored then."""
    tags = [{"Key": key, "Value": value} for key, value in request.tags.items()]
    made = await ask(
        engine,
        caller,
        "CreateTopic",
        Name=request.name,
        Attributes=request.attributes,
        Tags=tags,
    )
    return await find_topic(engine, GrantedTopic(parse_topic(made["TopicArn"])))


async def delete_topic(engine: Engine, caller: Caller, arn: str | None) -> None:
    await ask(engine, caller, "DeleteTopic", TopicArn=arn)


async def get_topic_attributes(engine: Engine, caller: Caller, arn: str | None) -> dict[str, str]:
    found: dict[str, str] = (await ask(engine, caller, "GetTopicAttributes", TopicArn=arn))[
        "Attributes"
    ]
    return found


async def set_topic_attribute(
    engine: Engine, caller: Caller, arn: str | None, name: str | None, value: str | None
) -> None:
    await ask(
        engine,
        caller,
        "SetTopicAttributes",
        TopicArn=arn,
        AttributeName=name,
        AttributeValue=value,
    )


async def list_topics(
    engine: Engine, caller: Caller, token: str | None = None
) -> tuple[list[str], str | None]:
    """ARNs, and the token of the next page."""
    page = await ask(engine, caller, "ListTopics", NextToken=token)
    return [one["TopicArn"] for one in page["Topics"]], page["NextToken"]

"""Topics: who is told of changes, many callers at once, and what older rules stored."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable
from datetime import timedelta

import orjson
import pytest

from queuegate.gateway.faces.aws.aws_refusals import InvalidParameter
from queuegate.gateway.operations.access.authorization import GrantedTopic, granted_topic
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.topics import topics
from queuegate.protocol.arns import parse_topic
from queuegate.storage.model import Topic
from queuegate.storage.storage_errors import TopicKeepsArchive
from tests.operations.conftest import ACCOUNT, REGION, RecordingWakeups
from tests.operations.sns_actions import (
    CreateTopic,
    ask,
    create_topic,
    delete_topic,
    get_topic_attributes,
    set_topic_attribute,
)
from tests.operations.world import World

ARN = f"arn:aws:sns:{REGION}:{ACCOUNT}:"
ARCHIVE = '{"MessageRetentionPeriod":"30"}'
TOGETHER = {
    "DisplayName": "News",
    "KmsMasterKeyId": "alias/mine",
    "SignatureVersion": "2",
    "TracingConfig": "Active",
    "HTTPSuccessFeedbackRoleArn": f"arn:aws:iam::{ACCOUNT}:role/r",
    "LambdaSuccessFeedbackSampleRate": "100",
}


class Topics(World):
    """Makes topics and changes them as callers of SNS do."""

    async def make(self, name: str = "news", **attributes: str) -> Topic:
        """Create a topic; a FIFO topic by its name."""
        if name.endswith(".fifo"):
            attributes = {"FifoTopic": "true", **attributes}
        return await create_topic(self.engine, self.caller, CreateTopic(name, attributes))

    async def read(self, arn: str) -> dict[str, str]:
        return await get_topic_attributes(self.engine, self.caller, arn)

    async def put(self, arn: str, name: str, value: str) -> None:
        await set_topic_attribute(self.engine, self.caller, arn, name, value)

    async def permit(self, arn: str, label: str = "label") -> None:
        members = {"Label": label, "AWSAccountId": ["9" * 12], "ActionName": ["Publish"]}
        await ask(self.engine, self.caller, "AddPermission", TopicArn=arn, **members)

    async def tag(self, arn: str, key: str) -> None:
        tags = [{"Key": key, "Value": "v"}]
        await ask(self.engine, self.caller, "TagResource", ResourceArn=arn, Tags=tags)


@pytest.fixture
def news(engine: Engine, caller: Caller) -> Topics:
    return Topics(engine, caller)


async def test_caches_are_told_of_a_new_topic(news: Topics, wakeups: RecordingWakeups) -> None:
    told: list[int | None] = []
    wakeups.on["topic_changed"] = told.append
    topic = await news.make("a" * 256)
    assert topic.arn == ARN + "a" * 256
    assert told == [topic.topic_id]
    assert (await news.make("b" * 251 + ".fifo")).is_fifo


async def test_many_creators_get_the_same_topic(news: Topics) -> None:
    made = await asyncio.gather(*[news.make("news", DisplayName="x") for _ in range(10)])
    assert len({topic.topic_id for topic in made}) == 1


async def test_creators_that_differ_agree_on_one(news: Topics) -> None:
    results = await asyncio.gather(
        *[news.make("news", DisplayName=str(n)) for n in range(8)], return_exceptions=True
    )
    assert sum(isinstance(result, Topic) for result in results) == 1
    assert sum(isinstance(result, InvalidParameter) for result in results) == 7


async def test_an_archive_begins_with_its_oldest_message(news: Topics) -> None:
    topic = await news.make("news.fifo", ArchivePolicy=ARCHIVE)
    assert "BeginningArchiveTime" not in await news.read(topic.arn)
    noon = news.clock.instant()
    async with news.engine.database.transaction() as tx:
        for minutes in (0, 5):
            await tx.execute(
                "INSERT INTO topic_archive SELECT $1, nextval('topic_sequence'), $2,"
                " gen_random_uuid(), 'g', 'd', NULL, 'm', NULL, 's', $2, 0",
                topic.topic_id,
                noon + timedelta(minutes=minutes),
            )
    found = await news.read(topic.arn)
    assert list(found)[-2:] == ["ArchivePolicy", "BeginningArchiveTime"]
    assert found["BeginningArchiveTime"] == "2026-11-21T12:00:00.000Z"
    with pytest.raises(TopicKeepsArchive):
        await topics.delete(news.engine, news.caller, GrantedTopic(parse_topic(topic.arn)))
    await news.put(topic.arn, "ArchivePolicy", "{}")
    assert not {"ArchivePolicy", "BeginningArchiveTime"} & set(await news.read(topic.arn))


async def test_changes_at_once_are_all_kept(news: Topics) -> None:
    """Of attributes, permissions and tags."""
    arn = (await news.make()).arn
    labels = [f"l{number}" for number in range(10)]
    changes: list[Awaitable[None]] = [
        *(news.put(arn, name, value) for name, value in TOGETHER.items()),
        *(news.permit(arn, label) for label in labels),
        *(news.tag(arn, label) for label in labels),
    ]
    await asyncio.gather(*changes)
    found = await news.read(arn)
    assert TOGETHER.items() <= found.items()
    permitted = {each["Sid"] for each in json.loads(found["Policy"])["Statement"]}
    assert permitted == {"__default_statement_ID", *labels}
    tags = await ask(news.engine, news.caller, "ListTagsForResource", ResourceArn=arn)
    assert sorted(tag["Key"] for tag in tags["Tags"]) == labels


async def test_creating_and_deleting_at_once_never_fails(news: Topics) -> None:
    async def create() -> None:
        made = await ask(news.engine, news.caller, "CreateTopic", Name="news")
        assert made == {"TopicArn": ARN + "news"}

    async def delete() -> None:
        await delete_topic(news.engine, news.caller, ARN + "news")

    for _ in range(5):
        await asyncio.gather(*[create() if n % 2 else delete() for n in range(8)])


async def test_statement_that_is_as_deep_as_can_be_gets_no_others(news: Topics) -> None:
    arn = (await news.make()).arn
    deep = ""
    # How deep it can be is orjson's to say.
    for levels in range(260, 0, -1):
        deep = '{"Statement":{"Sid":"deep","Condition":' + "[" * levels + "]" * levels + "}}"
        with contextlib.suppress(TypeError):
            orjson.dumps(orjson.loads(deep))
            break
    with pytest.raises(InvalidParameter, match="Policy Error: null"):
        await news.put(arn, "Policy", deep)
    # As one may be stored from before policies had to be readable.
    topic = await granted_topic(
        news.engine, news.caller, "sns:SetTopicAttributes", parse_topic(arn)
    )
    await topics.change_attributes(news.engine, news.caller, topic, lambda _: {"Policy": deep})
    with pytest.raises(InvalidParameter, match="Policy Error"):
        await news.permit(arn)
    assert (await news.read(arn))["Policy"] == deep

"""Topics: names, creating twice, attributes, listing, deleting, and many callers at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from queuegate.gateway.faces.aws.aws_refusals import (
    InvalidParameter,
    TagLimitExceeded,
    ValidationFailed,
)
from queuegate.gateway.faces.aws.sns import topic_attributes
from queuegate.gateway.faces.aws.sns.sns_topics import checked_tags
from queuegate.gateway.operations.access.authorization import GrantedTopic
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.topics.topics import delete
from queuegate.protocol.arns import parse_topic
from queuegate.storage.model import Topic
from queuegate.storage.storage_errors import NotFound, TopicKeepsArchive
from tests.operations.conftest import ACCOUNT, REGION, RecordingWakeups
from tests.operations.sns_actions import (
    CreateTopic,
    ask,
    create_topic,
    delete_topic,
    get_data_protection_policy,
    get_topic_attributes,
    list_topics,
    put_data_protection_policy,
    set_topic_attribute,
)
from tests.operations.world import TestClock

MakeTopic = Callable[..., Awaitable[Topic]]
ARN = f"arn:aws:sns:{REGION}:{ACCOUNT}:"
POLICY = (
    '{"Version":"2012-10-17","Statement":'
    '[{"Sid":"s","Effect":"Allow","Principal":"*","Action":"SNS:Publish"}]}'
)
DELIVERY = '{"http":{"defaultHealthyRetryPolicy":{"numRetries":5}}}'
ARCHIVE = '{"MessageRetentionPeriod":"30"}'
DIFFERENT = "Invalid parameter: Attributes Reason: Topic already exists with different attributes"


@pytest.fixture
def make_topic(engine: Engine, caller: Caller) -> MakeTopic:
    """``await make_topic(name, DisplayName="x", ...)``; a FIFO topic by its name."""

    async def make(name: str = "news", **attributes: str) -> Topic:
        if name.endswith(".fifo"):
            attributes = {"FifoTopic": "true", **attributes}
        return await create_topic(engine, caller, CreateTopic(name, attributes))

    return make


async def put(engine: Engine, caller: Caller, topic: Topic, name: str, value: str) -> None:
    await set_topic_attribute(engine, caller, topic.arn, name, value)


async def read(engine: Engine, caller: Caller, topic: Topic) -> dict[str, str]:
    return await get_topic_attributes(engine, caller, topic.arn)


def refused(text: str) -> Any:
    return pytest.raises(InvalidParameter, match=f"^{text}$")


async def test_new_topic_has_its_arn_and_its_caches_are_told(
    engine: Engine, make_topic: MakeTopic, wakeups: RecordingWakeups
) -> None:
    told: list[int | None] = []
    wakeups.on["topic_changed"] = told.append
    topic = await make_topic("a" * 256)
    assert topic.arn == ARN + "a" * 256
    assert told == [topic.topic_id]
    assert (await make_topic("b" * 251 + ".fifo")).is_fifo


async def test_creating_again_gives_the_same_topic_when_nothing_differs(
    engine: Engine, caller: Caller, make_topic: MakeTopic
) -> None:
    policy = json.dumps(json.loads(POLICY), indent=2)
    attributes = {"DisplayName": "News", "Policy": policy, "DeliveryPolicy": DELIVERY}
    topic = await make_topic("news", **attributes)

    assert await make_topic("news") == topic
    assert await make_topic("news", **attributes) == topic
    assert await make_topic("news", DisplayName="News", Policy=POLICY) == topic
    assert await make_topic("news", SignatureVersion="1", FifoTopic="false") == topic
    fifo = await make_topic("news.fifo", ContentBasedDeduplication="True")
    assert await make_topic("news.fifo", ContentBasedDeduplication="true") == fifo


async def test_default_policy_given_again_is_no_difference(make_topic: MakeTopic) -> None:
    topic = await make_topic()
    again = await make_topic(Policy=topic_attributes.default_policy(topic))
    assert again == topic


async def test_tags_of_a_new_topic_are_checked(engine: Engine, caller: Caller) -> None:
    async def create(*tags: tuple[str | None, str | None]) -> None:
        given = [{"Key": key, "Value": value} for key, value in tags]
        await create_topic(engine, caller, CreateTopic("news", tags=checked_tags(given)))

    with pytest.raises(TagLimitExceeded):
        await create(*[(f"k{n}", "") for n in range(51)])
    with refused("Invalid parameter: Duplicated keys are not allowed."):
        await create(("k", "1"), ("k", "1"))
    with pytest.raises(ValidationFailed, match=r"'tags\.2\.member\.key'"):
        await create(("k", "1"), (None, "1"))
    with pytest.raises(ValidationFailed, match=r"'tags\.1\.member\.value'"):
        await create(("k", None))
    for key, value in (("", "v"), ("k" * 129, "v"), ("k", "v" * 257), ("k\x00", ""), ("k", "\x00")):
        with pytest.raises(InvalidParameter):
            await create((key, value))
    assert (await list_topics(engine, caller))[0] == []


async def test_many_creators_get_the_same_topic(engine: Engine, make_topic: MakeTopic) -> None:
    made = await asyncio.gather(*[make_topic("news", DisplayName="x") for _ in range(10)])
    assert len({topic.topic_id for topic in made}) == 1


async def test_creators_that_differ_agree_on_one(make_topic: MakeTopic) -> None:
    results = await asyncio.gather(
        *[make_topic("news", DisplayName=str(n)) for n in range(8)], return_exceptions=True
    )
    assert sum(isinstance(result, Topic) for result in results) == 1
    assert sum(isinstance(result, InvalidParameter) for result in results) == 7


async def test_attributes_of_a_new_topic_in_the_recorded_order(
    engine: Engine, caller: Caller, make_topic: MakeTopic
) -> None:
    topic = await make_topic()
    found = await read(engine, caller, topic)
    assert list(found) == [
        "Policy",
        "Owner",
        "SubscriptionsPending",
        "TopicArn",
        "EffectiveDeliveryPolicy",
        "SubscriptionsConfirmed",
        "DisplayName",
        "SubscriptionsDeleted",
    ]
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
        "Resource": topic.arn,
        "Condition": {"StringEquals": {"AWS:SourceOwner": ACCOUNT}},
    }
    effective = json.loads(found.pop("EffectiveDeliveryPolicy"))
    assert effective["http"]["defaultHealthyRetryPolicy"]["numRetries"] == 3
    assert found == {
        "Owner": ACCOUNT,
        "SubscriptionsPending": "0",
        "TopicArn": topic.arn,
        "SubscriptionsConfirmed": "0",
        "DisplayName": "",
        "SubscriptionsDeleted": "0",
    }


async def test_all_attributes_of_a_fifo_topic_in_the_recorded_order(
    engine: Engine, caller: Caller, make_topic: MakeTopic, clock: TestClock
) -> None:
    topic = await make_topic(
        "news.fifo",
        FifoThroughputScope="MessageGroup",
        ArchivePolicy=ARCHIVE,
        DisplayName="News",
        TracingConfig="Active",
        DeliveryPolicy=DELIVERY,
        KmsMasterKeyId="alias/mine",
        SignatureVersion="2",
        Policy=POLICY,
        SQSSuccessFeedbackSampleRate="05",
    )
    found = await read(engine, caller, topic)
    assert list(found) == [
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
    assert found["FifoTopic"] == "true"
    assert found["ContentBasedDeduplication"] == "false"
    assert found["Policy"] == POLICY
    assert found["ArchivePolicy"] == ARCHIVE
    assert found["SQSSuccessFeedbackSampleRate"] == "5"
    assert json.loads(found["EffectiveDeliveryPolicy"])["http"] is not None

    now = clock.fixed
    async with engine.database.transaction() as tx:
        for minutes in (0, 5):
            await tx.execute(
                "INSERT INTO topic_archive SELECT $1, nextval('topic_sequence'), $2,"
                " gen_random_uuid(), 'g', 'd', NULL, 'm', NULL, 's', $2, 0",
                topic.topic_id,
                now + timedelta(minutes=minutes) if now else None,
            )
    found = await read(engine, caller, topic)
    assert list(found)[-1] == "BeginningArchiveTime"
    assert found["BeginningArchiveTime"] == "2026-11-21T12:00:00.000Z"
    await put(engine, caller, topic, "ArchivePolicy", "{}")
    assert not {"ArchivePolicy", "BeginningArchiveTime"} & set(await read(engine, caller, topic))


SET_AND_READ = {
    "DisplayName": "News ✨",
    "Policy": POLICY,
    "KmsMasterKeyId": "alias/mine",
    "SignatureVersion": "2",
    "TracingConfig": "Active",
    "HTTPSuccessFeedbackRoleArn": f"arn:aws:iam::{ACCOUNT}:role/r",
    "LambdaSuccessFeedbackSampleRate": "100",
    "FirehoseFailureFeedbackRoleArn": f"arn:aws:iam::{ACCOUNT}:role/r",
}


@pytest.mark.parametrize("name", SET_AND_READ)
async def test_attributes_read_back_as_they_were_set(
    engine: Engine, caller: Caller, make_topic: MakeTopic, name: str
) -> None:
    topic = await make_topic()
    await put(engine, caller, topic, name, SET_AND_READ[name])
    assert (await read(engine, caller, topic))[name] == SET_AND_READ[name]
    other = await make_topic("other", **{name: SET_AND_READ[name]})
    assert (await read(engine, caller, other))[name] == SET_AND_READ[name]


@pytest.mark.parametrize(
    ("name", "text", "stored"),
    [
        ("ContentBasedDeduplication", "TRUE", "true"),
        ("FifoThroughputScope", "Topic", "Topic"),
        ("ArchivePolicy", '{ "MessageRetentionPeriod": 365 }', '{"MessageRetentionPeriod":"365"}'),
        ("ArchivePolicy", '{"MessageRetentionPeriod":"007"}', '{"MessageRetentionPeriod":"7"}'),
    ],
)
async def test_attributes_of_fifo_topics_are_normalised(
    engine: Engine, caller: Caller, make_topic: MakeTopic, name: str, text: str, stored: str
) -> None:
    topic = await make_topic("news.fifo")
    await put(engine, caller, topic, name, text)
    assert (await read(engine, caller, topic))[name] == stored


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KmsMasterKeyId", "k"),
        ("DeliveryPolicy", DELIVERY),
        ("HTTPSuccessFeedbackRoleArn", f"arn:aws:iam::{ACCOUNT}:role/r"),
        ("SQSSuccessFeedbackSampleRate", "1"),
        ("ArchivePolicy", ARCHIVE),
    ],
)
async def test_empty_takes_an_attribute_away(
    engine: Engine, caller: Caller, make_topic: MakeTopic, name: str, value: str
) -> None:
    topic = await make_topic("news.fifo", **{name: value})
    before = await read(engine, caller, topic)
    assert name in before
    await put(engine, caller, topic, name, "")
    assert name not in await read(engine, caller, topic)
    fresh = await make_topic("fresh.fifo", **{name: ""})
    assert name not in await read(engine, caller, fresh)


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
    ("HTTPSuccessFeedbackRoleArn", f"arn:aws:sqs:{REGION}:{ACCOUNT}:q"),
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


@pytest.mark.parametrize(("name", "value"), BAD_VALUES)
async def test_values_that_are_refused_change_nothing(
    engine: Engine, caller: Caller, make_topic: MakeTopic, name: str, value: str
) -> None:
    topic = await make_topic("news.fifo")
    before = await read(engine, caller, topic)
    with refused("Invalid parameter: (?!Attributes).*"):
        await put(engine, caller, topic, name, value)
    assert await read(engine, caller, topic) == before
    with refused("Invalid parameter: Attributes Reason: .*"):
        await make_topic("other.fifo", **{name: value})


@pytest.mark.parametrize("name", ["FifoTopic", "TopicArn", "Owner", "displayname", "", "\x00"])
async def test_names_that_cannot_be_set(
    engine: Engine, caller: Caller, make_topic: MakeTopic, name: str
) -> None:
    topic = await make_topic("news.fifo")
    with refused("Invalid parameter: AttributeName"):
        await put(engine, caller, topic, name, "true")


@pytest.mark.parametrize("name", ["Owner", "displayname", ""])
async def test_unknown_names_in_a_map(make_topic: MakeTopic, name: str) -> None:
    with refused(f"Invalid parameter: Attributes Reason: Unknown attribute {name}"):
        await make_topic("news", **{name: "x"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ContentBasedDeduplication", "true"),
        ("FifoThroughputScope", "Topic"),
        ("ArchivePolicy", ARCHIVE),
    ],
)
async def test_attributes_of_fifo_topics_only(
    engine: Engine, caller: Caller, make_topic: MakeTopic, name: str, value: str
) -> None:
    topic = await make_topic()
    with refused("Invalid parameter: .* can only be set for FIFO topics"):
        await put(engine, caller, topic, name, value)
    with refused("Invalid parameter: Attributes Reason: .* can only be set for FIFO topics"):
        await make_topic("other", **{name: value})


async def test_standard_topics_may_say_that_they_are_standard(
    engine: Engine, caller: Caller, make_topic: MakeTopic
) -> None:
    topic = await make_topic(FifoTopic="false", ContentBasedDeduplication="false")
    found = await read(engine, caller, topic)
    assert not {"FifoTopic", "ContentBasedDeduplication"} & set(found)
    with refused("Invalid parameter: Attributes Reason: FifoTopic: .*"):
        await make_topic("x", FifoTopic="maybe")


async def test_changes_of_different_attributes_at_once_are_all_kept(
    engine: Engine, caller: Caller, make_topic: MakeTopic
) -> None:
    topic = await make_topic()
    await asyncio.gather(
        *[put(engine, caller, topic, name, value) for name, value in SET_AND_READ.items()]
    )
    assert SET_AND_READ.items() <= (await read(engine, caller, topic)).items()


@pytest.mark.parametrize(
    ("arn", "text"),
    [
        ("", "Invalid parameter: TopicArn Reason: An ARN must have at least 6 elements, not 1"),
        ("a:b", "Invalid parameter: TopicArn Reason: An ARN must have at least 6 elements, not 2"),
        (
            "arn:aws:sns:us-east-1:1",
            "Invalid parameter: TopicArn Reason: An ARN must have at least 6 elements, not 5",
        ),
        (f"arn:aws:sns:us-east-1:{ACCOUNT}:news", "Invalid parameter: TopicArn"),
        (f"arn:aws-cn:sns:{REGION}:{ACCOUNT}:news", "Invalid parameter: TopicArn"),
        (f"arn:aws:sqs:{REGION}:{ACCOUNT}:news", "Invalid parameter: TopicArn"),
        (f"arn:aws:sns:{REGION}:{ACCOUNT}:news:x", "Invalid parameter: TopicArn"),
        (f"arn:aws:sns:{REGION}:{ACCOUNT}:ne\x00ws", "Invalid parameter: TopicArn"),
        (f"arn:aws:sns:{REGION}::news", "Invalid parameter: TopicArn"),
    ],
)
async def test_arns_of_no_topic_of_this_region(
    engine: Engine, caller: Caller, make_topic: MakeTopic, arn: str, text: str
) -> None:
    await make_topic()
    for action in (get_topic_attributes, delete_topic):
        with refused(text):
            await action(engine, caller, arn)


async def test_topic_that_archives_is_not_deleted(
    engine: Engine, caller: Caller, make_topic: MakeTopic
) -> None:
    topic = await make_topic("news.fifo", ArchivePolicy=ARCHIVE)
    with pytest.raises(TopicKeepsArchive):
        await delete(engine, caller, GrantedTopic(parse_topic(topic.arn)))
    with refused("Invalid parameter: .*ArchivePolicy.*"):
        await delete_topic(engine, caller, topic.arn)
    await put(engine, caller, topic, "ArchivePolicy", "{}")
    await delete_topic(engine, caller, topic.arn)
    with pytest.raises(NotFound):
        await get_topic_attributes(engine, caller, topic.arn)


async def test_creating_and_deleting_at_once_never_fails(engine: Engine, caller: Caller) -> None:
    async def create() -> None:
        made = await ask(engine, caller, "CreateTopic", Name="news")
        assert made == {"TopicArn": ARN + "news"}

    async def delete() -> None:
        await delete_topic(engine, caller, ARN + "news")

    for _ in range(5):
        await asyncio.gather(*[create() if n % 2 else delete() for n in range(8)])


async def test_data_protection_policy_is_kept_as_it_was_written(
    engine: Engine, caller: Caller, make_topic: MakeTopic
) -> None:
    first, second = '{ "Name": "p" }', '{"Name":"other"}'
    request = CreateTopic("kept", data_protection_policy=first)
    topic = await create_topic(engine, caller, request)
    assert await get_data_protection_policy(engine, caller, topic.arn) == first
    assert await create_topic(engine, caller, request) == topic
    with refused(DIFFERENT):
        await create_topic(engine, caller, CreateTopic("kept", data_protection_policy=second))

    for policy in (second, ""):
        await put_data_protection_policy(engine, caller, topic.arn, policy)
        assert await get_data_protection_policy(engine, caller, topic.arn) == (policy or None)
    plain = await make_topic()
    assert await get_data_protection_policy(engine, caller, plain.arn) is None


@pytest.mark.parametrize("policy", ["[]", "{", '{"a":"\x00"}', json.dumps({"a": "x" * 31_000})])
async def test_data_protection_policies_that_are_none(
    engine: Engine, caller: Caller, make_topic: MakeTopic, policy: str
) -> None:
    topic = await make_topic()
    with refused("Invalid parameter: DataProtectionPolicy"):
        await put_data_protection_policy(engine, caller, topic.arn, policy)
    with pytest.raises(NotFound):
        await get_data_protection_policy(engine, caller, ARN + "nobody")
    with pytest.raises(ValidationFailed, match="'resourceArn'"):
        await get_data_protection_policy(engine, caller, None)
    with pytest.raises(ValidationFailed, match="'dataProtectionPolicy'"):
        await put_data_protection_policy(engine, caller, topic.arn, None)

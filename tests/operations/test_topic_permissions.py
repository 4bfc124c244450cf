"""AddPermission and RemovePermission of SNS, and tags of topics."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import orjson
import pytest

from queuegate.gateway.faces.aws.aws_face import Members
from queuegate.gateway.faces.aws.aws_refusals import (
    InvalidParameter,
    TagLimitExceeded,
)
from queuegate.gateway.operations.access import authorization
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.topics import topics
from queuegate.protocol import arns
from tests.operations.aws import ask
from tests.operations.conftest import ACCOUNT
from tests.operations.sns_actions import (
    CreateTopic,
    create_topic,
    get_topic_attributes,
    set_topic_attribute,
)

OTHER = "999999999999"


@pytest.fixture
async def arn(engine: Engine, caller: Caller) -> str:
    return (await create_topic(engine, caller, CreateTopic("news"))).arn


async def act(engine: Engine, caller: Caller, action: str, **members: Any) -> Members:
    return await ask(engine, caller, "sns", action, **members)


async def add(
    engine: Engine,
    caller: Caller,
    arn: str,
    label: str | None = "label",
    accounts: tuple[str, ...] | None = (OTHER,),
    actions: tuple[str, ...] | None = ("Publish",),
) -> None:
    members = {"Label": label, "AWSAccountId": accounts, "ActionName": actions}
    await act(engine, caller, "AddPermission", TopicArn=arn, **members)


async def statements(engine: Engine, caller: Caller, arn: str) -> list[dict[str, Any]]:
    policy = json.loads((await get_topic_attributes(engine, caller, arn))["Policy"])
    found: list[dict[str, Any]] = policy["Statement"]
    return found


async def test_statements_are_appended_to_the_default_policy(
    engine: Engine, caller: Caller, arn: str
) -> None:
    await add(engine, caller, arn)
    await add(engine, caller, arn, "two", (OTHER, ACCOUNT), ("Publish", "Subscribe"))
    default, one, two = await statements(engine, caller, arn)
    assert default["Sid"] == "__default_statement_ID"
    assert one == {
        "Sid": "label",
        "Effect": "Allow",
        "Principal": {"AWS": f"arn:aws:iam::{OTHER}:root"},
        "Action": "SNS:Publish",
        "Resource": arn,
    }
    assert two["Principal"]["AWS"] == [f"arn:aws:iam::{each}:root" for each in (OTHER, ACCOUNT)]
    assert two["Action"] == ["SNS:Publish", "SNS:Subscribe"]


@pytest.mark.parametrize(
    ("label", "accounts", "actions", "text"),
    [
        ("label", (OTHER,), ("Publish",), "Statement already exists"),
        ("new", (OTHER,), ("Fly",), "Policy statement action out of service scope!"),
        ("new", (OTHER,), ("Publish", "publish"), "Policy statement action out of service scope!"),
        ("new", ("me",), ("Publish",), "AWSAccountId"),
        ("a b", (OTHER,), ("Publish",), "Label"),
        ("new", (OTHER,) * 1_000, ("Publish",), "Policy Error: larger than 30720 bytes"),
    ],
)
async def test_permissions_that_are_refused(
    engine: Engine,
    caller: Caller,
    arn: str,
    label: str,
    accounts: tuple[str, ...],
    actions: tuple[str, ...],
    text: str,
) -> None:
    await add(engine, caller, arn)
    before = await statements(engine, caller, arn)
    with pytest.raises(InvalidParameter, match=f"^Invalid parameter: {text}$"):
        await add(engine, caller, arn, label, accounts, actions)
    assert await statements(engine, caller, arn) == before


async def test_statements_are_removed_by_label(engine: Engine, caller: Caller, arn: str) -> None:
    await add(engine, caller, arn)
    for label in ("nobody", "label", "label", "__default_statement_ID"):
        await act(engine, caller, "RemovePermission", TopicArn=arn, Label=label)
    assert await statements(engine, caller, arn) == []
    await add(engine, caller, arn)
    assert [each["Sid"] for each in await statements(engine, caller, arn)] == ["label"]


async def test_policy_with_one_bare_statement_is_added_to(
    engine: Engine, caller: Caller, arn: str
) -> None:
    own = {"Sid": "own", "Effect": "Deny", "Principal": "*", "Action": "SNS:Publish"}
    policy = json.dumps({"Statement": own})
    await set_topic_attribute(engine, caller, arn, "Policy", policy)
    await add(engine, caller, arn)
    assert [each["Sid"] for each in await statements(engine, caller, arn)] == ["own", "label"]


@pytest.mark.parametrize("actions", ["sns:Get*", "*", ["SNS:Publish", "sqs:SendMessage"]])
async def test_policies_may_name_any_action(
    engine: Engine, caller: Caller, arn: str, actions: str | list[str]
) -> None:
    """No source refuses what AddPermission refuses (docs/contract/refusals.md 6.2)."""
    statement = {"Effect": "Allow", "Principal": "*", "Action": actions, "Resource": arn}
    policy = json.dumps({"Statement": [statement]}, separators=(",", ":"))
    await set_topic_attribute(engine, caller, arn, "Policy", policy)
    assert await statements(engine, caller, arn) == [statement]


async def test_permissions_added_at_once_are_all_kept(
    engine: Engine, caller: Caller, arn: str
) -> None:
    await asyncio.gather(*[add(engine, caller, arn, f"l{n}") for n in range(10)])
    labels = {each["Sid"] for each in await statements(engine, caller, arn)}
    assert labels == {"__default_statement_ID", *(f"l{n}" for n in range(10))}


async def tag(
    engine: Engine, caller: Caller, arn: str, *tags: tuple[str | None, str | None]
) -> None:
    given = [{"Key": key, "Value": value} for key, value in tags]
    await act(engine, caller, "TagResource", ResourceArn=arn, Tags=given)


async def tags_of(engine: Engine, caller: Caller, arn: str) -> list[tuple[str, str]]:
    answer = await act(engine, caller, "ListTagsForResource", ResourceArn=arn)
    return [(tag["Key"], tag["Value"]) for tag in answer["Tags"]]


async def test_tags_keep_the_order_in_which_they_were_added(
    engine: Engine, caller: Caller, arn: str
) -> None:
    assert await tags_of(engine, caller, arn) == []
    await tag(engine, caller, arn, ("zebra", "1"), ("a", ""))
    await tag(engine, caller, arn, ("b", "2"), ("zebra", "3"), ("A", "✨"))
    assert await tags_of(engine, caller, arn) == [
        ("zebra", "3"),
        ("a", ""),
        ("b", "2"),
        ("A", "✨"),
    ]
    await act(engine, caller, "UntagResource", ResourceArn=arn, TagKeys=["a", "nobody", "zebra"])
    assert await tags_of(engine, caller, arn) == [("b", "2"), ("A", "✨")]


async def test_far_too_many_tags_are_only_too_many(
    engine: Engine, caller: Caller, arn: str
) -> None:
    with pytest.raises(TagLimitExceeded):
        await tag(engine, caller, arn, *[(None, None)] * 51)


async def test_a_topic_has_fifty_tags_at_most(engine: Engine, caller: Caller, arn: str) -> None:
    for start in range(0, 50, 25):
        await tag(engine, caller, arn, *[(f"k{n}", "") for n in range(start, start + 25)])
    await tag(engine, caller, arn, ("k7", "new"))
    with pytest.raises(
        TagLimitExceeded,
        match=r"^Could not complete request: tag quota of per resource exceeded$",
    ):
        await tag(engine, caller, arn, ("one more", ""))
    assert len(await tags_of(engine, caller, arn)) == 50


async def test_tags_added_at_once_are_all_kept(engine: Engine, caller: Caller, arn: str) -> None:
    await asyncio.gather(*[tag(engine, caller, arn, (f"k{n}", "v")) for n in range(10)])
    assert sorted(key for key, _ in await tags_of(engine, caller, arn)) == [
        f"k{n}" for n in range(10)
    ]


async def test_statement_that_is_as_deep_as_can_be_gets_no_others(
    engine: Engine, caller: Caller, arn: str
) -> None:
    deep = ""
    # How deep it can be is orjson's to say.
    for levels in range(260, 0, -1):
        deep = '{"Statement":{"Sid":"deep","Condition":' + "[" * levels + "]" * levels + "}}"
        with contextlib.suppress(TypeError):
            orjson.dumps(orjson.loads(deep))
            break
    with pytest.raises(InvalidParameter, match="Policy Error: null"):
        await set_topic_attribute(engine, caller, arn, "Policy", deep)
    # As one may be stored from before policies had to be readable.
    topic = await authorization.granted_topic(
        engine, caller, "sns:SetTopicAttributes", arns.parse_topic(arn)
    )
    await topics.change_attributes(engine, caller, topic, lambda _: {"Policy": deep})
    with pytest.raises(InvalidParameter, match="Policy Error"):
        await add(engine, caller, arn)
    assert (await get_topic_attributes(engine, caller, arn))["Policy"] == deep

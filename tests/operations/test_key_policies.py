"""PolicyChecks of keys: which are one, and what a key with one may do."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from queuegate.gateway.operations.access import authorization
from queuegate.gateway.operations.access.api_keys import (
    NewApiKey,
    change_key,
    create_key,
    revoke_key,
)
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.access.policies import Everybody, PolicyChecks
from queuegate.storage.queue_model import Queue
from queuegate.storage.storage_errors import (
    AccessDenied,
    AuthorizationError,
    KeyDoesNotExist,
    KeyUnfit,
    PolicyRefused,
    QueueDoesNotExist,
)
from tests.operations.aws import ask
from tests.operations.sns_actions import CreateTopic, create_topic
from tests.operations.world import World

OTHER = "999999999999"
ALLOW = {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": "*"}


def document(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def asked(world: World, *, enforces: bool = True) -> None:
    engine = world.engine
    engine.policies, engine.authority = PolicyChecks(engine.clock, enforces=enforces), Everybody()
    engine.policies.policy_of = engine.keys.policy_of


async def with_key(world: World, *statements: dict[str, Any], account_id: str = "") -> Caller:
    """Somebody with a new key that has this policy."""
    caller = replace(world.caller, account_id=account_id or world.caller.account_id)
    new = NewApiKey("shop", policy=document(*statements))
    key, shown = await create_key(world.engine, caller, new)
    found = world.engine.keys.find(shown)
    assert found is not None
    assert found[0] == key
    return replace(caller, producer=found[1])


async def allow(world: World, queue: Queue, **members: Any) -> None:
    """Give the queue a policy of its own."""
    statement = {"Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", **members}
    attributes = {"Policy": document(statement)}
    await ask(world.engine, world.caller, "sqs", "SetQueueAttributes", queue, Attributes=attributes)
    world.engine.queues.forget(queue.queue_id)


async def may(world: World, caller: Caller, queue: Queue, right: str = authorization.SEND) -> bool:
    try:
        await authorization.find_queue(
            world.engine, caller, right, queue.account_id, queue.region, queue.name
        )
    except AccessDenied:
        return False
    return True


async def test_a_key_may_what_its_policy_says_and_nothing_else(world: World) -> None:
    asked(world)
    queue, more = await world.make_queue("orders"), await world.make_queue("more")
    caller = await with_key(world, {**ALLOW, "Resource": queue.arn})
    for _ in range(2):
        assert await may(world, caller, queue)
        assert not await may(world, caller, more)
        assert not await may(world, caller, queue, "sqs:PurgeQueue")
    assert await may(world, world.caller, more, "sqs:PurgeQueue")


async def test_in_its_account_either_policy_is_enough_and_a_deny_of_either_too_much(
    world: World,
) -> None:
    asked(world)
    queue = await world.make_queue("orders")
    caller = await with_key(world, {**ALLOW, "Action": "sqs:ReceiveMessage"})
    assert not await may(world, caller, queue)
    await allow(world, queue, Principal={"AWS": world.caller.account_id})
    # A policy that names an account leaves it to the account.
    assert not await may(world, caller, queue)
    await allow(world, queue)
    assert await may(world, caller, queue)
    assert caller.producer is not None
    key_id = int(caller.producer.producer_id)
    deny = document(ALLOW, {**ALLOW, "Effect": "Deny"})
    await change_key(world.engine, world.caller, key_id, policy=deny)
    assert not await may(world, caller, queue)
    await change_key(world.engine, world.caller, key_id, policy=document(ALLOW))
    assert await may(world, caller, queue)
    await allow(world, queue, Effect="Deny")
    assert not await may(world, caller, queue)


async def test_across_accounts_both_have_to_allow(world: World) -> None:
    asked(world)
    queue = await world.make_queue("orders")
    named = await with_key(world, {**ALLOW, "Resource": queue.arn}, account_id=OTHER)
    without = await with_key(
        world, {**ALLOW, "Resource": "arn:aws:sqs:*:*:other"}, account_id="8" * 12
    )
    assert not await may(world, named, queue)
    await allow(world, queue, Principal={"AWS": [OTHER, "8" * 12]})
    assert await may(world, named, queue)
    assert not await may(world, without, queue)


async def test_what_is_not_there_is_told_to_whoever_may(world: World) -> None:
    asked(world)
    queue = replace(await world.make_queue("orders"), name="absent")
    caller = await with_key(world, {**ALLOW, "Resource": "arn:aws:sqs:*:*:o*"})
    assert not await may(world, caller, queue)
    with pytest.raises(QueueDoesNotExist):
        await may(world, caller, replace(queue, name="order"))


async def test_lists_and_what_is_new_are_asked_about(world: World) -> None:
    asked(world)
    named = "arn:aws:sqs:*:*:team-*"
    caller = await with_key(
        world,
        {"Effect": "Allow", "Action": "sqs:CreateQueue", "Resource": named},
        {"Effect": "Allow", "Action": "sns:ListTopics", "Resource": "*"},
    )
    engine = world.engine
    arn = authorization.own_arn(caller, "sqs:CreateQueue", "team-a")
    authorization.check_right(engine, caller, "sqs:CreateQueue", arn)
    authorization.check_right(
        engine, caller, "sns:ListTopics", authorization.own_arn(caller, "sns:", "*")
    )
    with pytest.raises(AccessDenied) as refused:
        authorization.check_right(
            engine, caller, "sqs:ListQueues", authorization.own_arn(caller, "sqs:", "*")
        )
    user = f"arn:aws:iam::{caller.account_id}:user/{caller.user_name}"
    assert str(refused.value) == (
        f"User: {user} is not authorized to perform: sqs:listqueues on resource: "
        f"arn:aws:sqs:{caller.region}:{caller.account_id}:* because no identity-based policy "
        "allows the sqs:listqueues action"
    )
    for right, name in (("sqs:CreateQueue", "other"), ("scheduler:GetSchedule", "schedule/a/b")):
        with pytest.raises(AccessDenied):
            authorization.check_right(
                engine, caller, right, authorization.own_arn(caller, right, name)
            )


async def test_the_policy_that_a_topic_has_from_the_start_gives_nothing(world: World) -> None:
    asked(world)
    topic = await create_topic(world.engine, world.caller, CreateTopic("news"))
    caller = await with_key(world, ALLOW)
    publish: dict[str, Any] = {"TopicArn": topic.arn, "Message": "one"}
    with pytest.raises(AuthorizationError, match="no identity-based policy allows the SNS:Publish"):
        await ask(world.engine, caller, "sns", "Publish", **publish)


async def test_a_key_that_ended_may_nothing_with_what_it_began(world: World) -> None:
    asked(world)
    queue = await world.make_queue("orders")
    caller = await with_key(world, ALLOW)
    assert await may(world, caller, queue)
    assert caller.producer is not None
    await revoke_key(world.engine, world.caller, int(caller.producer.producer_id))
    assert not await may(world, caller, queue)


async def test_warnings_refuse_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    asked(world, enforces=False)
    queue = await world.make_queue("orders")
    caller = await with_key(world, {**ALLOW, "Action": "sqs:ReceiveMessage"})
    for _ in range(2):
        assert await may(world, caller, queue)
    [line] = [one.message for one in caplog.records if "would be refused" in one.message]
    missing = json.loads(line.partition("Missing statement: ")[2])
    assert missing == {**ALLOW, "Resource": queue.arn}


async def test_a_policy_is_changed_and_taken_away(world: World) -> None:
    engine, caller = world.engine, world.caller
    key, shown = await create_key(engine, caller, NewApiKey("shop"))
    found = engine.keys.find(shown)
    assert found is not None
    of_key = replace(caller, producer=found[1])
    assert engine.keys.policy_of(of_key) is None
    changed = await change_key(
        engine, caller, key.key_id, policy=document(ALLOW), is_disabled=False
    )
    assert changed.policy == engine.keys.policy_of(of_key) != None  # noqa: E711
    assert (await change_key(engine, caller, key.key_id)).policy == changed.policy
    assert (await change_key(engine, caller, key.key_id, policy="")).policy is None
    assert engine.keys.policy_of(of_key) is None
    await revoke_key(engine, caller, key.key_id)
    with pytest.raises(KeyDoesNotExist):
        await change_key(engine, caller, key.key_id, policy=document(ALLOW))


async def test_an_administrator_has_none(world: World) -> None:
    administrator = replace(world.caller, is_administrator=True)
    wanted = NewApiKey("root", is_administrator=True)
    with pytest.raises(KeyUnfit, match="it has no policy"):
        await create_key(world.engine, administrator, wanted._replace(policy=document(ALLOW)))
    key, _ = await create_key(world.engine, administrator, wanted)
    with pytest.raises(KeyUnfit, match="it has no policy"):
        await change_key(world.engine, administrator, key.key_id, policy=document(ALLOW))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "Syntax errors in policy. It is no JSON."),
        ("{}", "Syntax errors in policy. A statement must be an object."),
        (
            document({**ALLOW, "Principal": "*"}),
            "Policy document should not specify a principal.",
        ),
        (
            document({"Effect": "Allow", "Action": "*"}),
            "Policy statement must contain resources.",
        ),
        (
            document({"Effect": "Allow", "Resource": "*"}),
            "Policy statement must contain actions.",
        ),
        (
            document({**ALLOW, "Action": "SendMessage"}),
            "Actions/Conditions must be prefaced by a vendor, e.g., iam, sdb, ec2, etc.",
        ),
        (
            document({**ALLOW, "Sid": "a"}, {**ALLOW, "Sid": "a"}),
            "Statement IDs (SID) in a single policy must be unique.",
        ),
        (
            document({**ALLOW, "Condition": {"Likes": {"a": "b"}}}),
            "Syntax errors in policy. A condition operator is not known.",
        ),
    ],
)
async def test_what_is_no_policy_is_refused_as_by_iam(world: World, text: str, said: str) -> None:
    with pytest.raises(PolicyRefused) as refused:
        await create_key(world.engine, world.caller, NewApiKey("shop", policy=text))
    assert str(refused.value) == f"MalformedPolicyDocument: {said}"
    await create_key(world.engine, world.caller, NewApiKey("shop", policy=document(ALLOW)))


async def test_it_has_so_many_characters(world: World) -> None:
    compact = document({**ALLOW, "Resource": ""}).replace(" ", "")
    name = "arn:aws:sqs:*:*:" + "a" * 6_144

    def of(length: int) -> str:
        text = name[: length - len(compact)]
        return document({**ALLOW, "Resource": text}).replace(" ", "  ")

    await create_key(world.engine, world.caller, NewApiKey("shop", policy=of(6_144)))
    for text in (of(6_145), document(ALLOW) + " " * 65_536):
        with pytest.raises(PolicyRefused, match=r"LimitExceeded.*PolicySize: 6144"):
            await create_key(world.engine, world.caller, NewApiKey("more", policy=text))

"""Policies that allow, and their effect where there is no request."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from queuegate.gateway.operations.access import authorization
from queuegate.gateway.operations.access.caller import RequestOrigin
from queuegate.gateway.operations.access.policies import Everybody, OwnAccounts, PolicyChecks
from queuegate.storage.queue_model import Queue
from queuegate.storage.storage_errors import AccessDenied
from tests.operations.aws import ask
from tests.operations.events import Events
from tests.operations.schedule_store import ScheduleStore, queue_target
from tests.operations.sns_actions import CreateTopic, create_topic
from tests.operations.world import World

OTHER = "999999999999"


def asked(world: World, *, enforces: bool) -> World:
    engine = world.engine
    engine.policies, engine.authority = PolicyChecks(engine.clock, enforces=enforces), Everybody()
    return world


async def allow(world: World, queue: Queue, **members: Any) -> None:
    statement = {"Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", **members}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    attributes = {"Policy": policy}
    await ask(world.engine, world.caller, "sqs", "SetQueueAttributes", queue, Attributes=attributes)
    world.engine.queues.forget(queue.queue_id)


async def find(world: World, queue: Queue, account_id: str) -> Queue:
    caller = replace(world.caller, account_id=account_id, access_key="")
    return await authorization.find_queue(
        world.engine, caller, authorization.SEND, queue.account_id, queue.region, queue.name
    )


async def test_warnings_have_the_statement_that_is_missing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    asked(world, enforces=False)
    queue = await world.make_queue("orders")
    topic = await create_topic(world.engine, world.caller, CreateTopic("news"))
    members: dict[str, Any] = {"TopicArn": topic.arn, "Protocol": "sqs", "Endpoint": queue.arn}
    await ask(world.engine, world.caller, "sns", "Subscribe", **members)
    for _ in range(2):
        publish: dict[str, Any] = {"TopicArn": topic.arn, "Message": "one"}
        await ask(world.engine, world.caller, "sns", "Publish", **publish)
        await find(world, queue, OTHER)
    assert len(await world.receive(queue)) == 2
    said = [record.message for record in caplog.records if "would be refused" in record.message]
    assert len(said) == 2
    for line in said:
        await allow(world, queue, **json.loads(line.partition("Missing statement: ")[2]))
        asked(world, enforces=True)
        if "sns.amazonaws.com" in line:
            await ask(world.engine, world.caller, "sns", "Publish", **publish)
            assert len(await world.receive(queue)) == 1
        else:
            await find(world, queue, OTHER)


async def test_a_policy_that_does_not_help_is_told_of_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    asked(world, enforces=False)
    queue = await world.make_queue("orders")
    for other in ("777777777777", "888888888888"):
        await allow(world, queue, Principal={"AWS": other})
        for _ in range(3):
            await find(world, queue, OTHER)
    said = [record.message for record in caplog.records if "would be refused" in record.message]
    assert len(said) == 2


async def test_decisions_follow_the_clock_of_the_account(world: World) -> None:
    asked(world, enforces=True)
    queue = await world.make_queue("orders")
    later = "2026-11-21T12:01:00Z"
    await allow(world, queue, Condition={"DateGreaterThan": {"aws:CurrentTime": later}})
    with pytest.raises(AccessDenied):
        await find(world, queue, OTHER)
    world.clock.move_on(61)
    assert (await find(world, queue, OTHER)).queue_id == queue.queue_id


OFFICE = {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}
TLS = {"Bool": {"aws:SecureTransport": "true"}}
CLIENT = {"StringLike": {"aws:UserAgent": "Boto3/*"}}


@pytest.mark.parametrize(
    ("condition", "good", "bad"),
    [
        (OFFICE, {"origin": RequestOrigin("10.1.2.3")}, {"origin": RequestOrigin("11.1.2.3")}),
        (OFFICE, {"origin": RequestOrigin("10.1.2.3")}, {"origin": RequestOrigin("")}),
        (OFFICE, {"origin": RequestOrigin("10.1.2.3")}, {"origin": RequestOrigin("::ffff")}),
        (
            {"NotIpAddress": {"aws:SourceIp": ["10.0.0.0/8", "fd00::/8"]}},
            {"origin": RequestOrigin("11.1.2.3")},
            {"origin": RequestOrigin("fd00::1")},
        ),
        (TLS, {"origin": RequestOrigin("", "https")}, {"origin": RequestOrigin("")}),
        (CLIENT, {"agent": "Boto3/1.40"}, {"agent": "curl"}),
        (CLIENT, {"agent": "Boto3/1.40"}, {"agent": ""}),
        (
            {"StringEquals": {"aws:SourceIp": "${aws:UserAgent}"}},
            {"origin": RequestOrigin("10.1.2.3"), "agent": "10.1.2.3"},
            {"origin": RequestOrigin("10.1.2.3"), "agent": "10.1.2.4"},
        ),
    ],
)
@pytest.mark.parametrize("escaped", [False, True])
async def test_where_and_how_somebody_asks(
    world: World, condition: Any, good: dict[str, Any], bad: dict[str, Any], escaped: bool
) -> None:
    asked(world, enforces=True)
    policies = world.engine.policies
    assert policies is not None
    statement = {"Effect": "Allow", "Principal": "*", "Action": "sqs:*", "Condition": condition}
    text = json.dumps({"Version": "2012-10-17", "Statement": statement})
    if escaped:
        text = text.replace("a", "\\u0061").replace("{\\u0061", "{a")
    queue = replace(await world.make_queue("orders"), attributes={"Policy": text})
    stranger = replace(world.caller, account_id=OTHER)
    for _ in range(2):
        policies.check(replace(stranger, **good), authorization.SEND, queue)
        # Also where nobody looked.
        for wrong in (bad, {}):
            with pytest.raises(AccessDenied):
                policies.check(replace(stranger, **wrong), authorization.SEND, queue)


async def test_tags_of_a_queue_are_conditions(world: World) -> None:
    asked(world, enforces=True)
    policies = world.engine.policies
    assert policies is not None
    queue = await world.make_queue("orders")
    await allow(world, queue, Condition={"StringEquals": {"aws:ResourceTag/Team": "shop"}})
    stranger = replace(world.caller, account_id=OTHER)
    queue = await find(world, queue, world.caller.account_id)
    policies.check(stranger, authorization.SEND, replace(queue, tags={"team": "shop"}))
    for tags in ({}, {"team": "till"}):
        with pytest.raises(AccessDenied):
            policies.check(stranger, authorization.SEND, replace(queue, tags=tags))


async def test_conditions_on_what_is_never_known_are_told(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    asked(world, enforces=True)
    queue = await world.make_queue("orders")
    await allow(world, queue, Condition={"StringEquals": {"aws:SourceVpc": "vpc-1"}})
    for _ in range(2):
        with pytest.raises(AccessDenied):
            await find(world, queue, OTHER)
    [line] = [one.message for one in caplog.records if "never there" in one.message]
    assert line == f"The policy of {queue.arn} asks for aws:sourcevpc, which is never there."


async def test_a_policy_from_before_they_were_read_allows_nothing(world: World) -> None:
    asked(world, enforces=True)
    queue = await world.make_queue("orders")
    policies = world.engine.policies
    assert policies is not None
    old = replace(queue, attributes={"Policy": '{"Statement":{"Effect":"Allow"}}'})
    policies.check(world.caller, authorization.SEND, old)
    with pytest.raises(AccessDenied):
        policies.check(replace(world.caller, account_id=OTHER), authorization.SEND, old)


async def test_schedules_send_only_where_policies_let_them(world: World) -> None:
    asked(world, enforces=True)
    store = ScheduleStore(world.engine, world.caller)
    queue = await world.make_queue("orders")
    await allow(world, queue, Effect="Deny")
    await store.add("s", queue_target(queue))
    assert await store.fire(60) == 1
    await allow(world, queue)
    assert await world.receive(queue) == []
    assert await store.fire(120) == 1
    assert len(await world.receive(queue)) == 1


ROLE = f"arn:aws:iam::{OTHER}:role/scheduler"


@pytest.mark.parametrize(
    ("principal", "role_arn", "is_sent"),
    [
        (OTHER, ROLE, True),
        (ROLE, ROLE, True),
        (ROLE, f"{ROLE}-two", False),
        (ROLE, None, False),
        # Nobody acts in the role of another account.
        ("arn:aws:iam::888888888888:role/a", "arn:aws:iam::888888888888:role/a", False),
        ("777777777777", ROLE, False),
    ],
)
async def test_schedules_of_another_account_need_the_policy_of_the_queue(
    world: World, principal: str, role_arn: str | None, is_sent: bool
) -> None:
    asked(world, enforces=True)
    stranger = replace(world.caller, account_id=OTHER)
    store = ScheduleStore(world.engine, stranger)
    queue = await world.make_queue("orders")
    await allow(world, queue, Principal={"AWS": principal})
    await store.add("s", queue_target(queue, role_arn=role_arn))
    assert await store.fire(60) == 1
    assert len(await world.receive(queue)) == is_sent


async def test_without_policies_schedules_reach_their_own_account_alone(world: World) -> None:
    """Also those that were made while policies let them go elsewhere."""
    world.engine.authority = OwnAccounts()
    queue = await world.make_queue("orders")
    for account_id in (OTHER, world.caller.account_id):
        store = ScheduleStore(world.engine, replace(world.caller, account_id=account_id))
        await store.add("s", queue_target(queue, body=account_id))
    assert await store.fire(60) == 2
    assert [one.body for one in await world.receive(queue)] == [world.caller.account_id]


async def test_dead_letters_of_schedules_need_the_policy_of_their_queue(world: World) -> None:
    asked(world, enforces=True)
    store = ScheduleStore(world.engine, world.caller)
    queue, dead = await world.make_queue("orders"), await world.make_queue("dead")
    place = {"account_id": dead.account_id, "region": dead.region, "queue_name": dead.name}
    await allow(world, queue, Effect="Deny")
    await allow(world, dead, Effect="Deny")
    await store.add("s", queue_target(queue), max_attempts=0, dead_letter=place)
    assert await store.fire(60) == 1
    assert await world.receive(dead) == []
    await allow(world, dead)
    assert await store.fire(120) == 1
    assert len(await world.receive(dead)) == 1


async def test_subscriptions_of_the_native_api_need_no_statement(world: World) -> None:
    asked(world, enforces=True)
    queue = await world.make_queue("orders")
    events = Events(world.engine, world.caller)
    await events.subscribe("shop.#", queue.name)
    await events.publish("shop.order", "one")
    assert len(await world.receive(queue)) == 1

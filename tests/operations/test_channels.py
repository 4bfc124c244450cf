"""Channels: made at first use, published to, acknowledged by whoever received last."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from queuegate.gateway.operations.access.authorization import SEND
from queuegate.gateway.operations.channels.channel_consumers import acknowledge, nack, token_of
from queuegate.gateway.operations.channels.channels import (
    ChannelMessage,
    PublishedToChannel,
    find_channel,
    find_existing_channel,
    publish,
    publish_one,
)
from queuegate.gateway.operations.queues.receives import ReceiveMany, receive_many
from queuegate.storage.queue_model import Queue, Received
from queuegate.storage.storage_errors import (
    AccessDenied,
    MessageIncomplete,
    MessageTooLarge,
    QueueDoesNotExist,
    QueueNameInvalid,
    ReceiptHandleIsInvalid,
    Rejected,
    Unavailable,
)
from tests.operations.world import World


async def _poll(world: World, channel: Queue, **asked: Any) -> list[Received]:
    return await receive_many(world.engine, world.caller, channel, ReceiveMany(10, **asked))


def _tokens(world: World, channel: Queue, received: list[Received]) -> list[str]:
    return [token_of(world.engine, channel, one) for one in received]


async def test_first_use_makes_a_queue_with_priorities(world: World) -> None:
    made = await find_channel(world.engine, world.caller, SEND, "alerts")
    assert (made.name, made.has_priorities, made.max_deliveries) == ("alerts", True, 5)
    again = await find_channel(world.engine, world.caller, SEND, "alerts")
    assert again.queue_id == made.queue_id


async def test_a_standard_queue_is_a_channel_as_it_is(world: World) -> None:
    queue = await world.make_queue("orders", VisibilityTimeout="7")
    channel = await find_channel(world.engine, world.caller, SEND, "orders")
    assert channel.queue_id == queue.queue_id
    assert (channel.max_deliveries, channel.visibility_timeout_seconds) == (None, 7)


async def test_many_who_use_a_channel_first_get_the_same(world: World) -> None:
    found = await asyncio.gather(
        *[find_channel(world.engine, world.caller, SEND, "busy") for _ in range(20)]
    )
    assert len({one.queue_id for one in found}) == 1


@pytest.mark.parametrize("name", ["", "a b", "x" * 81, "a\x00b", "alerts.critical", "\udc00"])
async def test_names_that_no_queue_can_have(world: World, name: str) -> None:
    with pytest.raises(QueueNameInvalid):
        await find_channel(world.engine, world.caller, SEND, name)


async def test_fifo_queues_are_not_made_so(world: World) -> None:
    with pytest.raises(QueueDoesNotExist) as refusal:
        await find_channel(world.engine, world.caller, SEND, "orders.fifo")
    assert refusal.value.queue_name == "orders.fifo"


async def test_what_only_looks_makes_nothing(world: World) -> None:
    for _ in range(2):
        with pytest.raises(QueueDoesNotExist):
            await find_existing_channel(world.engine, world.caller, SEND, "alerts")


class _MaySend:
    def check(self, _: object, right: str, arn: str) -> None:
        if right != SEND:
            raise AccessDenied(f"{right} on {arn}")


async def test_to_make_a_channel_is_a_right_of_its_own(world: World) -> None:
    await find_channel(world.engine, world.caller, SEND, "known")
    world.engine.authority = _MaySend()
    assert await find_channel(world.engine, world.caller, SEND, "known")
    with pytest.raises(AccessDenied, match=r"sqs:CreateQueue on .*:unknown$"):
        await find_channel(world.engine, world.caller, SEND, "unknown")


async def test_what_is_published_is_json_for_everybody(world: World) -> None:
    headers = {"tenant": b'"acme"', "tries": b"3"}
    await publish_one(
        world.engine, world.caller, ChannelMessage("alerts", b'{"a": [1, "\xc3\xa9"]}', headers)
    )
    channel = await find_channel(world.engine, world.caller, SEND, "alerts")
    [message] = await _poll(world, channel)
    assert message.body == '{"a": [1, "é"]}'
    assert '"tenant":{"DataType":"String","StringValue":"acme"}' in (message.attributes or "")


async def test_a_bulk_has_an_outcome_for_each_message(world: World) -> None:
    small = await world.make_queue("small", MaximumMessageSize="1024")
    await world.make_queue("groups.fifo")
    outcomes = await publish(
        world.engine,
        world.caller,
        [
            ChannelMessage("alerts", b"1"),
            ChannelMessage("small", b'"%s"' % (b"x" * 2000)),
            ChannelMessage("small", b"2"),
            ChannelMessage("groups.fifo", b"3"),
            ChannelMessage("groups.fifo", b"4", group_id="g", deduplication_id="d"),
            ChannelMessage("alerts", b"5", {"AWS.x": b"1"}),
        ],
    )
    assert [type(one) for one in outcomes] == [
        PublishedToChannel, MessageTooLarge, PublishedToChannel,
        MessageIncomplete, PublishedToChannel, type(outcomes[5]),
    ]  # fmt: skip
    assert isinstance(outcomes[5], Rejected)
    assert [one.body for one in await _poll(world, small)] == ["2"]
    alerts = await find_channel(world.engine, world.caller, SEND, "alerts")
    [message] = await _poll(world, alerts)
    assert outcomes[0] == PublishedToChannel(message.sequence, str(message.message_id))


async def test_a_channel_that_is_full_of_trouble_leaves_the_others_alone(world: World) -> None:
    world.engine.refuse_sends("The disk is full.")
    outcomes = await publish(world.engine, world.caller, [ChannelMessage("a", b"1")] * 2)
    assert [str(one) for one in outcomes] == ["The disk is full."] * 2
    with pytest.raises(Unavailable):
        await publish_one(world.engine, world.caller, ChannelMessage("a", b"1"))


async def test_nothing_is_published_when_one_channel_cannot_be(world: World) -> None:
    with pytest.raises(QueueNameInvalid):
        await publish(
            world.engine, world.caller, [ChannelMessage("good", b"1"), ChannelMessage("b d", b"2")]
        )
    good = await find_channel(world.engine, world.caller, SEND, "good")
    assert await _poll(world, good) == []


async def test_only_the_last_receiver_acknowledges(world: World) -> None:
    channel = await find_channel(world.engine, world.caller, SEND, "alerts")
    await publish(world.engine, world.caller, [ChannelMessage("alerts", b"1")] * 2)
    early = _tokens(world, channel, await _poll(world, channel, visibility_timeout_seconds=0))
    late = _tokens(world, channel, await _poll(world, channel))
    assert await acknowledge(world.engine, world.caller, channel, early) == ["expired"] * 2
    assert await acknowledge(world.engine, world.caller, channel, late) == ["ok", "ok"]
    assert await acknowledge(world.engine, world.caller, channel, late) == ["gone", "gone"]
    assert world.engine.series.queues[channel.queue_id].deleted == 2


async def test_what_is_given_back_comes_again_and_counts(world: World) -> None:
    channel = await find_channel(world.engine, world.caller, SEND, "alerts")
    await publish_one(world.engine, world.caller, ChannelMessage("alerts", b"1"))
    [token] = _tokens(world, channel, await _poll(world, channel))
    assert await nack(world.engine, world.caller, channel, [token], 0) == ["ok"]
    [again] = await _poll(world, channel)
    assert again.receive_count == 2
    assert await nack(world.engine, world.caller, channel, [token], 0) == ["expired"]
    assert await _poll(world, channel) == []


async def test_fifo_queues_are_acknowledged_by_their_own_rules(world: World) -> None:
    queue = await world.make_queue("orders.fifo")
    publication = ChannelMessage("orders.fifo", b"1", group_id="g")
    await publish_one(world.engine, world.caller, publication)
    [token] = _tokens(world, queue, await _poll(world, queue))
    assert await nack(world.engine, world.caller, queue, [token], 0) == ["ok"]
    assert await acknowledge(world.engine, world.caller, queue, [token]) == ["expired"]
    [token] = _tokens(world, queue, await _poll(world, queue))
    assert await acknowledge(world.engine, world.caller, queue, [token]) == ["ok"]


async def test_tokens_of_others_are_refused_before_anything_is_done(world: World) -> None:
    channel = await find_channel(world.engine, world.caller, SEND, "alerts")
    other = await find_channel(world.engine, world.caller, SEND, "other")
    await publish_one(world.engine, world.caller, ChannelMessage("alerts", b"1"))
    [token] = _tokens(world, channel, await _poll(world, channel))
    forged = token[:-1] + ("A" if token[-1] != "A" else "B")
    for queue, wrong in ((other, token), (channel, forged), (channel, "QGS2"), (channel, "\x00")):
        with pytest.raises(ReceiptHandleIsInvalid):
            await acknowledge(world.engine, world.caller, queue, [token, wrong])
    assert await acknowledge(world.engine, world.caller, channel, [token]) == ["ok"]

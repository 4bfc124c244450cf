"""Messages pushed to consumers: credit, windows, and what becomes of what a consumer had."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from queuegate.gateway.operations.access.api_keys import (
    NewApiKey,
    change_key,
    create_key,
    revoke_key,
)
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.access.policies import Everybody, PolicyChecks
from queuegate.gateway.operations.channels.channel_consumers import PushConsumer, acknowledge, nack
from queuegate.gateway.operations.channels.channels import ChannelMessage, find_channel, publish
from queuegate.gateway.operations.channels.consumer_registry import (
    ConsumerEnding,
    PushedMessage,
    process_of,
    read_event_id,
)
from queuegate.gateway.operations.queues.queues import delete_queue
from queuegate.gateway.operations.runtime.background_tasks import settle
from queuegate.storage.queue_model import Queue
from tests.operations.world import World
from tests.waiting import until_so, yield_turns

RECEIVE = "sqs:ReceiveMessage"
SIZE = 100


class Wire:
    """Notes what was pushed; each message is so many bytes."""

    kind: ClassVar[str] = "sse"
    address = ""

    def __init__(self) -> None:
        self.pushed: list[PushedMessage] = []
        self.endings: list[ConsumerEnding] = []
        self.beats = 0
        self.unsent = 0
        self.at_once: list[int] = []
        self._written = 0

    def push(self, messages: list[PushedMessage]) -> list[int]:
        self.pushed += messages
        self.at_once.append(len(messages))
        ends = [self._written + SIZE * (place + 1) for place in range(len(messages))]
        self._written = ends[-1]
        return ends

    def sent_bytes(self) -> int:
        return self._written - self.unsent

    def beat(self) -> None:
        self.beats += 1

    def end(self, ending: ConsumerEnding) -> None:
        self.endings.append(ending)

    def texts(self) -> list[str]:
        return [one.message.body for one in self.pushed]

    def counts(self) -> list[int]:
        return [one.message.receive_count for one in self.pushed]

    async def until(self, *texts: str) -> None:
        await until_so(lambda: self.texts() == list(texts))


class Channel:
    """A channel and its consumers."""

    def __init__(self, world: World, queue: Queue) -> None:
        self.world = world
        self.queue = queue
        self.engine = world.engine

    def consumer(
        self, credit: int = 10, event: str = "", caller: Caller | None = None
    ) -> tuple[PushConsumer, Wire]:
        wire = Wire()
        consumer = PushConsumer(
            self.engine, self.queue, wire, credit, caller=caller or self.world.caller
        )
        consumer.open(read_event_id(event))
        return consumer, wire

    async def publish(self, *texts: str, **more: Any) -> None:
        new = [ChannelMessage(self.queue.name, text.encode(), **more) for text in texts]
        await publish(self.engine, self.world.caller, new)

    async def acknowledge(self, pushed: Sequence[PushedMessage]) -> list[str]:
        tokens = [one.token for one in pushed]
        return [*await acknowledge(self.engine, self.world.caller, self.queue, tokens)]

    def advance(self, seconds: float) -> None:
        self.world.clock.move_on(seconds)
        self.engine.wakeups.wake_all()
        self.engine.consumers.go_on()


@pytest.fixture
async def channel(world: World) -> Channel:
    return Channel(world, await find_channel(world.engine, world.caller, RECEIVE, "alerts"))


async def test_messages_come_as_they_are_published(channel: Channel) -> None:
    _, wire = channel.consumer()
    await channel.publish("1")
    await channel.publish("2", "3")
    await wire.until("1", "2", "3")
    assert wire.counts() == [1, 1, 1]
    await until_so(lambda: channel.engine.wakeups.parked_count() == 1)
    assert await channel.acknowledge(wire.pushed) == ["ok"] * 3
    assert await channel.acknowledge(wire.pushed) == ["gone"] * 3


async def test_what_is_there_already_comes_first(channel: Channel) -> None:
    await channel.publish("1", "2")
    _, wire = channel.consumer()
    await wire.until("1", "2")


async def test_no_more_than_the_credit_is_out(channel: Channel) -> None:
    await channel.publish(*"1234567")
    consumer, wire = channel.consumer(credit=2)
    await wire.until("1", "2")
    assert channel.engine.wakeups.parked_count() == 0
    await channel.acknowledge(wire.pushed[:1])
    await wire.until("1", "2", "3")
    await nack(channel.engine, channel.world.caller, channel.queue, [wire.pushed[1].token], 900)
    await wire.until("1", "2", "3", "4")
    consumer.set_credit(3)
    await wire.until(*"12345")
    consumer.set_credit(0)
    await channel.acknowledge(wire.pushed)
    await yield_turns(20)
    assert len(wire.pushed) == 5
    consumer.set_credit(100)
    await wire.until(*"1234567")


async def test_what_is_acknowledged_together_makes_room_together(channel: Channel) -> None:
    await channel.publish(*"123456")
    _, wire = channel.consumer(credit=3)
    await wire.until(*"123")
    await channel.acknowledge(wire.pushed)
    await wire.until(*"123456")
    assert wire.at_once == [3, 3]


async def test_a_window_that_ends_gives_the_credit_back(channel: Channel) -> None:
    await channel.publish("1", "2")
    _, wire = channel.consumer(credit=1)
    await wire.until("1")
    channel.advance(31)
    await wire.until("1", "1")
    assert wire.counts() == [1, 2]
    assert await channel.acknowledge(wire.pushed[:1]) == ["expired"]
    assert await channel.acknowledge(wire.pushed[1:]) == ["ok"]
    await wire.until("1", "1", "2")


async def test_who_does_not_read_gets_nothing_more(channel: Channel) -> None:
    consumer, wire = channel.consumer()
    await until_so(lambda: channel.engine.wakeups.parked_count() == 1)
    consumer.pause()
    await channel.publish("1")
    _, other = channel.consumer()
    await other.until("1")
    await channel.acknowledge(other.pushed)
    consumer.resume()
    await channel.publish("2", "3")
    await until_so(lambda: len(wire.pushed) + len(other.pushed) == 3)
    assert channel.engine.series.push.pushed_count == 3


async def test_large_messages_come_a_few_at_a_time(channel: Channel) -> None:
    large = '"' + "x" * 600_000 + '"'
    await channel.publish(*[large] * 3)
    consumer, wire = channel.consumer()
    await until_so(lambda: len(wire.pushed) == 3)
    consumer.pause()
    before = len(wire.at_once)
    await channel.publish(*[large] * 3)
    consumer.resume()
    await until_so(lambda: len(wire.pushed) == 6)
    assert wire.at_once[before:] == [1, 1, 1]


async def test_what_did_not_leave_the_process_comes_back_uncounted(channel: Channel) -> None:
    await channel.publish("1", "2", "3")
    consumer, wire = channel.consumer()
    await wire.until("1", "2", "3")
    consumer.lost(sent_bytes=SIZE + SIZE // 2)
    _, other = channel.consumer()
    await other.until("2", "3")
    assert other.counts() == [1, 1]
    channel.advance(31)
    await until_so(lambda: len(other.pushed) == 5)
    assert sorted(other.counts()) == [1, 1, 2, 2, 2]


async def test_who_resumes_gets_at_once_what_came_after(channel: Channel) -> None:
    await channel.publish("1", "2", "3", "4")
    consumer, wire = channel.consumer()
    await wire.until("1", "2", "3", "4")
    await channel.acknowledge(wire.pushed[3:])
    consumer.lost(sent_bytes=1000)
    _, again = channel.consumer(event=wire.pushed[0].event_id)
    await again.until("2", "3")
    # They may have arrived, so they count.
    assert again.counts() == [2, 2]
    assert await channel.acknowledge(wire.pushed[:2]) == ["ok", "expired"]
    assert not wire.endings


async def test_who_resumes_ends_the_connection_that_it_left(channel: Channel) -> None:
    await channel.publish("1", "2")
    _, wire = channel.consumer()
    await wire.until("1", "2")
    _, again = channel.consumer(event=wire.pushed[0].event_id)
    await again.until("2")
    assert wire.endings == [ConsumerEnding.RESUMED]
    await channel.publish("3")
    await again.until("2", "3")


@pytest.mark.parametrize("event", ["", "x", "12.ab~1~1", "~~", "a" * 5000, "1.a~g~1", "ü~1~1"])
async def test_an_event_of_nobody_resumes_nothing(channel: Channel, event: str) -> None:
    await channel.publish("1")
    _, wire = channel.consumer(event=event)
    await wire.until("1")


async def test_an_event_of_another_channel_resumes_nothing_here_or_elsewhere(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Channel(
        channel.world,
        await find_channel(channel.engine, channel.world.caller, RECEIVE, "others"),
    )
    await channel.publish("1")
    _, wire = channel.consumer()
    await wire.until("1")
    process, consumer, _ = wire.pushed[0].event_id.split("~")
    told: list[int] = []
    monkeypatch.setattr(
        channel.engine.wakeups, "resumed_here", lambda consumer, _: told.append(consumer)
    )
    for event in (f"{process}~{consumer}~0", f"1.a~{consumer}~0"):
        other.consumer(event=event)
    assert not wire.endings
    assert not told
    channel.consumer(event=f"1.a~{consumer}~0")
    assert told == [int(consumer, 16)]


async def test_a_consumer_that_drains_keeps_what_it_was_sent(channel: Channel) -> None:
    await channel.publish("1", "2")
    consumer, wire = channel.consumer()
    await wire.until("1", "2")
    wire.unsent = SIZE
    consumer.end(ConsumerEnding.DRAINING)
    assert wire.endings == [ConsumerEnding.DRAINING]
    await settle()
    _, other = channel.consumer()
    await other.until("2")


async def test_a_channel_that_is_deleted_ends_its_consumers(channel: Channel) -> None:
    _, wire = channel.consumer()
    await until_so(lambda: channel.engine.wakeups.parked_count() == 1)
    await delete_queue(channel.engine, channel.world.caller, channel.queue)
    await until_so(lambda: wire.endings == [ConsumerEnding.CHANNEL_GONE])


async def test_a_channel_that_is_deleted_during_the_first_look_ends_them_too(
    channel: Channel,
) -> None:
    _, wire = channel.consumer()
    await delete_queue(channel.engine, channel.world.caller, channel.queue)
    await until_so(lambda: wire.endings == [ConsumerEnding.CHANNEL_GONE])


async def _with_key(channel: Channel, seconds: int) -> tuple[int, Caller]:
    """A new key that is good for so long, and who shows it."""
    expires_at = channel.world.clock.instant() + timedelta(seconds=seconds)
    wanted = NewApiKey("shop", None, expires_at)
    key, shown = await create_key(channel.engine, channel.world.caller, wanted)
    found = channel.engine.keys.find(shown)
    assert found is not None
    return key.key_id, replace(channel.world.caller, producer=found[1])


async def test_a_key_that_is_revoked_ends_whoever_came_with_it(channel: Channel) -> None:
    key_id, caller = await _with_key(channel, 60)
    _, wire = channel.consumer(caller=caller)
    _, other = channel.consumer()
    await revoke_key(channel.engine, channel.world.caller, key_id)
    assert (wire.endings, other.endings) == ([ConsumerEnding.KEY_GONE], [])
    await channel.publish("1")
    await other.until("1")


async def test_a_key_that_may_not_receive_any_more_ends_whoever_came_with_it(
    channel: Channel,
) -> None:
    engine = channel.engine
    engine.policies, engine.authority = PolicyChecks(engine.clock, enforces=True), Everybody()
    engine.policies.policy_of = engine.keys.policy_of
    key_id, caller = await _with_key(channel, 60)
    _, wire = channel.consumer(caller=caller)
    statement = {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": statement})
    await change_key(engine, channel.world.caller, key_id, policy=policy)
    assert wire.endings == [ConsumerEnding.KEY_GONE]


async def test_a_key_that_expires_does_so_by_the_next_beat(channel: Channel) -> None:
    channel.engine.consumers.beat_every(1, tick_seconds=0.001)
    _, caller = await _with_key(channel, 60)
    _, wire = channel.consumer(caller=caller)
    await until_so(lambda: wire.beats > 1)
    channel.advance(60)
    await until_so(lambda: wire.endings == [ConsumerEnding.KEY_GONE])


async def test_tokens_name_the_process_that_hears_of_them(channel: Channel) -> None:
    await channel.publish("1")
    _, wire = channel.consumer()
    await wire.until("1")
    assert process_of(wire.pushed[0].token) == channel.engine.wakeups.process


async def test_messages_in_groups_are_numbered_apart(channel: Channel) -> None:
    """Messages of one channel use no credit of another."""
    fifo = Channel(channel.world, await channel.world.make_queue("orders.fifo"))
    async with channel.engine.database.transaction() as tx:
        await tx.execute(
            "SELECT setval('message_sequence', n), setval('fifo_sequence', n) FROM (SELECT "
            "greatest(nextval('message_sequence'), nextval('fifo_sequence')) AS n) AS last"
        )
    consumer, wire = channel.consumer(credit=2)
    in_order, other = fifo.consumer()
    await channel.publish("1", "2")
    await wire.until("1", "2")
    for number in "12":
        await fifo.publish(number, group_id="g" + number, deduplication_id=number)
    await other.until("1", "2")
    assert {*consumer.out} & {*in_order.out}
    assert await fifo.acknowledge(other.pushed) == ["ok", "ok"]
    assert (len(consumer.out), len(in_order.out)) == (2, 0)


async def test_of_who_has_gone_nothing_is_kept_but_what_is_out(channel: Channel) -> None:
    consumers = channel.engine.consumers
    consumers.beat_every(1, tick_seconds=0.001)
    await channel.publish("1")
    consumer, wire = channel.consumer()
    idle, _ = channel.consumer()
    await wire.until("1")
    idle.lost(sent_bytes=0)
    assert consumers.find(idle.number) is None
    consumer.lost(sent_bytes=SIZE)
    assert consumers.find(consumer.number) is consumer
    channel.advance(31)
    await until_so(lambda: consumers.find(consumer.number) is None)


async def test_hearts_beat(channel: Channel) -> None:
    channel.engine.consumers.beat_every(2, tick_seconds=0.001)
    _, wire = channel.consumer()
    await until_so(lambda: wire.beats)

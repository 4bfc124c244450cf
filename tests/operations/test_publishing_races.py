"""Publishing and receiving when something goes away in the middle."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence

import pytest

from queuegate.gateway.operations.logs.log_records import ReadLimits, RecordRange, read_records
from queuegate.gateway.operations.logs.logs import create_log
from queuegate.gateway.operations.runtime import background_tasks
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.topics.message_signing import EnvelopeSigner
from queuegate.gateway.operations.topics.topic_publishing import PublishMessage, PublishResult
from queuegate.protocol import sns_envelopes
from queuegate.storage.lanes import NULL_REPLY
from queuegate.storage.logs import stored_logs
from queuegate.storage.model import LogRetention, Topic
from queuegate.storage.queue_model import Queue, Received
from queuegate.storage.storage_errors import Unavailable
from tests.operations.topics_and_subscriptions import Sns
from tests.operations.world import World
from tests.sqs_calls import ReceiveMessage, answered, receive_message
from tests.storage.fifo_queue import Replied
from tests.waiting import until_so, yield_turns

RAW = {"RawMessageDelivery": "true"}


async def delete_unnoticed(engine: Engine, queue: Queue) -> None:
    """The cache still has the queue; the database knows better."""
    async with engine.database.transaction() as tx:
        await tx.execute("UPDATE queues SET deleted_at = now() WHERE queue_id = $1", queue.queue_id)


def redrive(queue: Queue) -> dict[str, str]:
    return {"RedrivePolicy": json.dumps({"deadLetterTargetArn": queue.arn})}


async def test_a_number_stays_with_its_message_when_its_queue_goes_away(sns: Sns) -> None:
    """Duplicates in the same batch have been answered; what is looked at again is another."""
    topic = await sns.topic("news.fifo")
    gone, dead = await sns.make_queue("gone.fifo"), await sns.make_queue("dead.fifo")
    await sns.subscribe(topic, gone.arn, **redrive(dead))
    first = PublishMessage("one", group_id="g", deduplication_id="1")
    [one] = await sns.publish_batch(topic, first)
    await delete_unnoticed(sns.engine, gone)
    second = PublishMessage("two", group_id="g", deduplication_id="2")
    again, two = await sns.publish_batch(topic, first, second)
    assert again == one
    [kept] = await sns.receive(dead)
    envelope = json.loads(kept.body)
    assert (envelope["Message"], envelope["SequenceNumber"]) == ("two", two.sequence_number)
    assert envelope["MessageId"] == two.message_id


@pytest.mark.parametrize("name", ["news", "news.fifo"])
async def test_queues_of_others_in_the_same_flush_are_none_of_our_business(
    world: World, sns: Sns, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    suffix = name.removeprefix("news")
    topics: list[Topic] = [await sns.topic(f"{each}{suffix}") for each in ("lucky", "unlucky")]
    queues = [await world.make_queue(f"{each}{suffix}") for each in ("stays", "goes")]
    for topic, queue in zip(topics, queues, strict=True):
        await sns.subscribe(topic, queue.arn, **RAW)
    # One in front keeps the lane busy, so that the two go together.
    ids = [
        {"group_id": "g", "deduplication_id": str(number)} if suffix else {} for number in range(9)
    ]
    await sns.publish(topics[1], "before", **ids[0])
    await delete_unnoticed(world.engine, queues[1])
    with caplog.at_level(logging.WARNING):
        outcomes = await asyncio.gather(
            *[sns.publish(topics[n % 2], str(n), **ids[n]) for n in range(1, 9)]
        )
    assert all(isinstance(one, PublishResult) for one in outcomes)
    assert sorted(m.body for m in await world.receive(queues[0])) == ["2", "4", "6", "8"]
    assert "again and again" not in caplog.text


async def test_a_queue_that_always_goes_away_ends_the_attempts(
    world: World, sns: Sns, caplog: pytest.LogCaptureFixture
) -> None:
    topic = await sns.topic()
    gone, stays = await world.make_queue("gone"), await world.make_queue("stays")
    for queue in (gone, stays):
        await sns.subscribe(topic, queue.arn, **RAW)
    await sns.publish(topic, "before")
    await delete_unnoticed(world.engine, gone)
    world.engine.queues.forget = lambda queue_id: None  # type: ignore[method-assign]
    with caplog.at_level(logging.WARNING):
        assert (await sns.publish(topic, "after")).message_id
    assert "again and again" in caplog.text
    assert [m.body for m in await world.receive(stays)] == ["before", "after"]


class Stopped(EnvelopeSigner):
    """A signer that waits for the test before it signs."""

    def hold(self) -> None:
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()

    async def sign_many(self, items: Sequence[tuple[str, bytes]]) -> list[str]:
        self.asked.set()
        await self.go_on.wait()
        return await super().sign_many(items)


@pytest.fixture
def stopped(engine: Engine) -> Stopped:
    signer = engine.signer
    assert type(signer) is EnvelopeSigner
    signer.__class__ = Stopped
    assert isinstance(signer, Stopped)
    signer.hold()
    return signer


async def test_messages_come_back_when_the_client_leaves_while_they_are_signed(
    world: World, sns: Sns, stopped: Stopped
) -> None:
    topic, queue = await sns.topic(), await world.make_queue(VisibilityTimeout="600")
    await sns.subscribe(topic, queue.arn)
    await sns.publish_batch(topic, *[PublishMessage(text) for text in ("a", "b")])
    unheard: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    request = ReceiveMessage(max_messages=10, wait_seconds=0)
    under_way = receive_message(world.engine, world.caller, queue, request, Replied(unheard))
    await stopped.asked.wait()
    assert under_way is not None
    under_way.cancel()
    stopped.go_on.set()
    await background_tasks.settle()
    assert not unheard.done()
    back = await world.receive(queue)
    assert [json.loads(m.body)["Message"] for m in back] == ["a", "b"]
    # Nobody has seen them: it was no receipt.
    assert [m.receive_count for m in back] == [1, 1]
    for message in back:
        assert sns_envelopes.verify(stopped.certificate_pem, json.loads(message.body))


async def test_messages_come_back_when_they_cannot_be_signed(
    world: World, sns: Sns, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, queue = await sns.topic(), await world.make_queue(VisibilityTimeout="600")
    await sns.subscribe(topic, queue.arn)
    await sns.publish(topic)

    async def refuse(items: object) -> list[str]:
        raise Unavailable("no key")

    with monkeypatch.context() as patch:
        patch.setattr(world.engine.signer, "sign_many", refuse)
        request = ReceiveMessage(max_messages=10, wait_seconds=0)
        with pytest.raises(Unavailable, match="no key"):
            await answered(receive_message, world.engine, world.caller, queue, request)
    await background_tasks.settle()
    assert len(await world.receive(queue)) == 1


async def test_a_poll_behind_the_client_that_left_gets_what_came_back(
    world: World, sns: Sns, stopped: Stopped
) -> None:
    topic, queue = await sns.topic(), await world.make_queue(VisibilityTimeout="600")
    await sns.subscribe(topic, queue.arn)
    await sns.publish(topic)
    request = ReceiveMessage(max_messages=10, wait_seconds=0)
    leaving = receive_message(world.engine, world.caller, queue, request, NULL_REPLY)
    await stopped.asked.wait()
    poll = asyncio.create_task(
        answered(receive_message, world.engine, world.caller, queue, ReceiveMessage(10, None, 20))
    )
    async with asyncio.timeout(10):
        await until_so(world.engine.wakeups.parked_count)
        assert leaving is not None
        leaving.cancel()
        stopped.go_on.set()
        received: list[Received] = await poll
    assert [json.loads(m.body)["Message"] for m in received] == ["hello"]


async def test_what_the_first_publishes_need_is_loaded_once(
    world: World, sns: Sns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is cached and the key is not made yet: many publishes at once agree on all of it."""
    topic, queue = await sns.topic(), await world.make_queue()
    await sns.subscribe(topic, queue.arn)
    world.engine.queues.clear()
    loads = 0
    fetch = world.engine.database.transaction

    def counted() -> object:
        nonlocal loads
        loads += 1
        return fetch()

    with monkeypatch.context() as patch:
        patch.setattr(world.engine.topics._database, "transaction", counted)
        audience = world.engine.topics.find(topic.account_id, topic.region, topic.name)
        leaving = asyncio.ensure_future(audience)
        await yield_turns()
        leaving.cancel()
        audiences = [
            world.engine.topics.find(topic.account_id, topic.region, topic.name) for _ in range(50)
        ]
        found = await asyncio.gather(*audiences)
    # The topic, and the patterns of its namespace.
    assert loads == 2
    assert all(each is found[0] for each in found)
    outcomes = await asyncio.gather(*[sns.publish(topic, str(number)) for number in range(10)])
    assert len({one.message_id for one in outcomes}) == 10
    received = await world.receive(queue)
    assert sorted(json.loads(m.body)["Message"] for m in received) == sorted(map(str, range(10)))
    for message in received:
        envelope = json.loads(message.body)
        assert world.engine.signer.fingerprint in envelope["SigningCertURL"]
        assert sns_envelopes.verify(world.engine.signer.certificate_pem, envelope)


async def test_a_change_during_a_load_is_not_overlooked(world: World, sns: Sns) -> None:
    """A publish after the change uses no load that began before it."""
    topic, queue = await sns.topic(), await world.make_queue()
    for turns in range(0, 40, 3):
        world.engine.topics.clear()
        before = asyncio.ensure_future(
            world.engine.topics.find(topic.account_id, topic.region, topic.name)
        )
        await yield_turns(turns)
        await sns.subscribe(topic, f"{queue.arn}{turns}", **RAW)
        after = await world.engine.topics.find(topic.account_id, topic.region, topic.name)
        await before
        again = await world.engine.topics.find(topic.account_id, topic.region, topic.name)
        assert len(after.targets) == len(again.targets) == turns // 3 + 1


@pytest.mark.parametrize("message", ["[" * 200_000, '{"a":' * 500 + "1" + "}" * 500, "[]", "1e999"])
async def test_bodies_of_any_depth_are_no_error_of_ours(sns: Sns, message: str) -> None:
    topic, filtered, every = await sns.topic(), await sns.make_queue("f"), await sns.make_queue("e")
    policy = {"FilterPolicy": '{"a":{"b":["c"]}}', "FilterPolicyScope": "MessageBody"}
    await sns.subscribe(topic, filtered.arn, **RAW, **policy)
    await sns.subscribe(topic, every.arn, **RAW)
    await sns.publish(topic, message)
    assert await sns.receive(filtered) == []
    assert [m.body for m in await sns.receive(every)] == [message]


async def test_a_fifo_topic_s_dead_letters(world: World, sns: Sns) -> None:
    """Of standard and FIFO queues, to queues of either kind."""
    topic = await sns.topic("news.fifo")
    dead = {suffix: await world.make_queue(f"dead{suffix}") for suffix in ("", ".fifo")}
    for name, suffix in (("a.fifo", ".fifo"), ("b", ".fifo"), ("c", "")):
        arn = dead[suffix].arn.replace("dead", "missing-").removesuffix(suffix) + name
        await sns.subscribe(topic, arn, **RAW, **redrive(dead[suffix]))
    await sns.publish(topic, "x", group_id="g", deduplication_id="d")
    # The FIFO queue folds the second copy: it has the same deduplication id.
    for queue in dead.values():
        [kept] = await world.receive(queue)
        assert kept.body == "x"
        assert kept.attributes is None


async def test_a_log_that_goes_away_unnoticed_is_looked_for_again(world: World, sns: Sns) -> None:
    """Its copy goes where it would have gone; what was for a log that is there is there once."""
    topic, dead = await sns.topic("news.fifo"), await world.make_queue("dead.fifo")
    made = []
    for name, more in (("gone", redrive(dead)), ("stays", {})):
        log = (await create_log(world.engine, world.caller, name, None, LogRetention())).log
        await sns.subscribe(topic, log.arn, "log", **RAW, **more)
        made.append(log)
    gone, stays = made
    await sns.publish_batch(topic, PublishMessage("1", group_id="g", deduplication_id="1"))
    async with world.engine.database.transaction() as tx:
        await stored_logs.delete(tx, None, gone.log_id)
    await sns.publish_batch(topic, PublishMessage("2", group_id="g", deduplication_id="2"))
    assert [one.body for one in await world.receive(dead)] == ["2"]
    [found] = await read_records(world.engine, stays, [RecordRange(0, 0, 9)], ReadLimits(9, 99))
    assert [one.payload for one in found.records] == [b"1", b"2"]

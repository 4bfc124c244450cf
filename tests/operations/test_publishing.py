"""Publishing: who gets what, in one transaction (docs/contract/sns.md 3.5 and 3.6)."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode

import pytest

from queuegate.gateway.faces.aws.sns import sns_publishing
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.topics import topic_publishing
from queuegate.gateway.operations.topics.fan_out import choose, choose_gently
from queuegate.gateway.operations.topics.topic_publishing import PublishMessage, PublishResult
from queuegate.protocol import opaque_tokens, sns_envelopes
from queuegate.protocol.digests import content_based_id, md5_of_body
from queuegate.storage import lanes
from queuegate.storage.queue_model import Queue
from tests.operations.conftest import MakeQueue, ReceiveFrom
from tests.operations.sqs import delete_queue
from tests.operations.topics_and_subscriptions import BASE_URL, Sns
from tests.operations.world import World

RAW = {"RawMessageDelivery": "true"}


def text(value: str, data_type: str = "String") -> dict[str, str]:
    return {"DataType": data_type, "StringValue": value}


async def rows(engine: Engine, table: str) -> list[dict[str, object]]:
    async with engine.database.transaction() as tx:
        return [dict(row) for row in await tx.fetch(f"SELECT * FROM {table} ORDER BY 1")]


async def test_an_envelope_has_aws_s_members_in_their_order_and_a_valid_signature(sns: Sns) -> None:
    topic, queue = await sns.topic(), await sns.make_queue()
    subscription = await sns.subscribe(topic, queue.arn)
    attributes = {
        "colour": text("red"),
        "raw": {"DataType": "Binary", "BinaryValue": b"\0\xff"},
    }
    published = await sns.publish(
        topic, 'say "hi" \u00fc\n', subject="A subject", attributes=attributes
    )
    [received] = await sns.receive(queue)
    envelope = json.loads(received.body)
    assert list(envelope) == [
        "Type",
        "MessageId",
        "TopicArn",
        "Subject",
        "Message",
        "Timestamp",
        "SignatureVersion",
        "Signature",
        "SigningCertURL",
        "UnsubscribeURL",
        "MessageAttributes",
    ]
    assert envelope["MessageId"] == published.message_id != str(received.message_id)
    assert envelope["Message"] == 'say "hi" \u00fc\n'
    assert envelope["Timestamp"] == "2026-11-21T12:00:00.000Z"
    fingerprint = sns.engine.signer.fingerprint
    assert envelope["SigningCertURL"] == f"{BASE_URL}/SimpleNotificationService-{fingerprint}.pem"
    assert envelope["UnsubscribeURL"] == (
        f"{BASE_URL}/?Action=Unsubscribe&SubscriptionArn={subscription.arn}"
    )
    assert envelope["MessageAttributes"] == {
        "colour": {"Type": "String", "Value": "red"},
        "raw": {"Type": "Binary", "Value": b64encode(b"\0\xff").decode()},
    }
    assert received.attributes is None
    assert sns_envelopes.verify(sns.engine.signer.certificate_pem, envelope)


@pytest.mark.parametrize("version", ["1", "2"])
async def test_a_signature_is_the_same_at_every_receipt(sns: Sns, version: str) -> None:
    topic = await sns.topic(SignatureVersion=version)
    queue = await sns.make_queue(VisibilityTimeout="0")
    await sns.subscribe(topic, queue.arn)
    # What looks like the place of a signature is part of the message.
    await sns.publish(topic, '\n  "Signature" : "",\n')
    [first], [second] = await sns.receive(queue), await sns.receive(queue)
    assert first.body == second.body
    assert sns_envelopes.verify(sns.engine.signer.certificate_pem, json.loads(first.body))
    assert json.loads(first.body)["SignatureVersion"] == version


async def test_without_signing_of_queues_an_envelope_has_no_place_for_a_signature(sns: Sns) -> None:
    sns.engine.rules.sign_queue_envelopes = False
    topic, queue = await sns.topic(), await sns.make_queue()
    await sns.subscribe(topic, queue.arn)
    await sns.publish(topic)
    [received] = await sns.receive(queue)
    assert "Signature" not in received.body
    assert received.body_md5 == bytes.fromhex(md5_of_body(received.body))


async def test_raw_delivery_gives_the_text_and_its_attributes(sns: Sns) -> None:
    topic, queue = await sns.topic(), await sns.make_queue()
    await sns.subscribe(topic, queue.arn, **RAW)
    attributes = {"list": text('["a", 1]', "String.Array"), "n": text("1.50", "Number")}
    await sns.publish(topic, "plain", attributes=attributes, trace_header="Root=1-2-3")
    [received] = await sns.receive(queue)
    assert received.body == "plain"
    assert received.body_md5 == bytes.fromhex(md5_of_body("plain"))
    assert json.loads(received.attributes or "") == attributes
    assert json.loads(received.system or "") == {"AWSTraceHeader": "Root=1-2-3"}


async def test_a_standard_topic_passes_the_group_on_to_standard_queues(sns: Sns) -> None:
    topic, queue = await sns.topic(), await sns.make_queue()
    await sns.subscribe(topic, queue.arn, **RAW)
    await sns.publish_batch(
        topic, PublishMessage("a", group_id="tenant-1"), PublishMessage("b", group_id="tenant-2")
    )
    received = await sns.receive(queue)
    groups = {m.body: json.loads(m.system or "")["MessageGroupId"] for m in received}
    assert groups == {"a": "tenant-1", "b": "tenant-2"}


async def test_each_protocol_gets_its_text(world: World, sns: Sns) -> None:
    topic, queue = await sns.topic(), await world.make_queue()
    await sns.subscribe(topic, queue.arn, **RAW)
    await sns.subscribe(topic, "https://example.com/hook", "https", **RAW)
    await sns.subscribe(topic, "someone@example.com", "email")
    texts = {"default": "for all", "sqs": "for queues", "email": "for people", "http": 7}
    await sns.publish(topic, json.dumps(texts), structure="json")
    [received] = await world.receive(queue)
    [delivery], [mail] = await rows(world.engine, "deliveries"), await rows(world.engine, "outbox")
    assert (received.body, delivery["body"], mail["body"]) == (
        "for queues",
        "for all",
        "for people",
    )


async def test_filters_choose_by_attributes_and_by_the_message(sns: Sns) -> None:
    topic = await sns.topic()
    red, big, every = [await sns.make_queue(name) for name in ("red", "big", "every")]
    await sns.subscribe(topic, red.arn, **RAW, FilterPolicy='{"colour": ["red"]}')
    await sns.subscribe(
        topic,
        big.arn,
        **RAW,
        FilterPolicy='{"size": [{"numeric": [">", 5]}]}',
        FilterPolicyScope="MessageBody",
    )
    await sns.subscribe(topic, every.arn, **RAW)
    await sns.publish(topic, '{"size": 9}', attributes={"colour": text("blue")})
    await sns.publish(topic, '{"size": 1}', attributes={"colour": text("red")})
    await sns.publish(topic, "no json")
    got = {queue.name: [m.body for m in await sns.receive(queue)] for queue in (red, big, every)}
    assert got == {
        "red": ['{"size": 1}'],
        "big": ['{"size": 9}'],
        "every": ['{"size": 9}', '{"size": 1}', "no json"],
    }


async def test_much_text_for_many_filters_gives_way_to_others(world: World, sns: Sns) -> None:
    """One second of filtering must not be a second in which nobody else is served."""
    topic = await sns.topic()
    queues = [await world.make_queue(f"q{number}") for number in range(8)]
    for number, queue in enumerate(queues):
        policy = {"words": [{"prefix": f"{number % 2}-"}]}
        by_body = {"FilterPolicy": json.dumps(policy), "FilterPolicyScope": "MessageBody"}
        await sns.subscribe(topic, queue.arn, **RAW, **by_body)
    message = json.dumps({"words": ["x" * 9] * 15_000 + ["1-"]})
    audience = await world.engine.topics.find(topic.account_id, topic.region, topic.name)
    outgoing = sns_publishing.check(world.engine, audience.topic, PublishMessage(message))
    loop = asyncio.get_running_loop()
    turns: list[asyncio.Handle] = []
    choosing = asyncio.create_task(choose_gently(audience.targets, outgoing))

    def take_a_turn() -> None:
        if not choosing.done():
            turns.append(loop.call_soon(take_a_turn))

    take_a_turn()
    assert await choosing == choose(audience.targets, outgoing)
    assert len(turns) >= 2
    await sns.publish_batch(topic, PublishMessage("{}"), PublishMessage(message))
    await sns.publish(topic, message)
    assert [len(await world.receive(queue)) for queue in queues] == [0, 2] * 4


async def test_nobody_to_tell_is_a_success(engine: Engine, sns: Sns) -> None:
    topic = await sns.topic()
    await sns.subscribe(topic, "https://example.com/", "https", FilterPolicy='{"a": ["b"]}')
    assert (await sns.publish(topic)).message_id
    assert await rows(engine, "deliveries") == []


async def test_copies_deliveries_and_outbox_are_one_transaction(world: World, sns: Sns) -> None:
    """When one of them cannot be written, none is, and the publisher hears of it."""
    topic, queue = await sns.topic(), await world.make_queue()
    await sns.subscribe(topic, queue.arn, **RAW)
    await sns.subscribe(topic, "https://example.com/", "https", **RAW)
    await sns.subscribe(topic, "+15550100", "sms")
    async with world.engine.database.transaction() as tx:
        await tx.execute("ALTER TABLE outbox ADD CONSTRAINT never CHECK (body <> 'poison')")
    outcomes = await asyncio.gather(
        sns.publish(topic, "good"), sns.publish(topic, "poison"), return_exceptions=True
    )
    assert isinstance(outcomes[0], PublishResult)
    assert isinstance(outcomes[1], Exception)
    assert [m.body for m in await world.receive(queue)] == ["good"]
    assert [row["body"] for row in await rows(world.engine, "deliveries")] == ["good"]
    assert [row["body"] for row in await rows(world.engine, "outbox")] == ["good"]


async def test_a_missing_queue_sends_its_copy_to_the_dead_letter_queue(sns: Sns) -> None:
    topic = await sns.topic()
    gone, dead, other = [await sns.make_queue(name) for name in ("gone", "dead", "other")]
    redrive = json.dumps({"deadLetterTargetArn": dead.arn})
    await sns.subscribe(topic, gone.arn, **RAW, RedrivePolicy=redrive)
    await sns.subscribe(topic, other.arn, **RAW)
    await sns.publish(topic, "before")
    await delete_queue(sns.engine, sns.caller, gone)
    await sns.publish(topic, "after")
    assert [m.body for m in await sns.receive(other)] == ["before", "after"]
    [kept] = await sns.receive(dead)
    assert kept.body == "after"
    assert kept.attributes is None


async def test_a_queue_that_went_away_unnoticed_is_noticed_by_the_publish(sns: Sns) -> None:
    """The cache still has the queue; the database knows better."""
    topic = await sns.topic()
    gone, dead = await sns.make_queue("gone"), await sns.make_queue("dead")
    redrive = json.dumps({"deadLetterTargetArn": dead.arn})
    await sns.subscribe(topic, gone.arn, **RAW, RedrivePolicy=redrive)
    await sns.publish(topic, "before")
    async with sns.engine.database.transaction() as tx:
        await tx.execute("UPDATE queues SET deleted_at = now() WHERE queue_id = $1", gone.queue_id)
    await sns.publish(topic, "after")
    assert [m.body for m in await sns.receive(dead)] == ["after"]


async def test_a_queue_made_again_gets_what_is_published_now(world: World, sns: Sns) -> None:
    world.engine.rules.queue_recreate_seconds = 0
    topic, queue = await sns.topic(), await world.make_queue()
    await sns.subscribe(topic, queue.arn, **RAW)
    await sns.publish(topic, "one")
    await delete_queue(world.engine, world.caller, queue)
    await sns.publish(topic, "two")
    again = await world.make_queue()
    await sns.publish(topic, "three")
    assert [m.body for m in await world.receive(again)] == ["three"]


async def test_what_a_queue_cannot_take_goes_to_the_dead_letter_queue(
    sns: Sns, make_queue: MakeQueue, receive: ReceiveFrom
) -> None:
    """More than ten attributes with raw delivery, and messages longer than the queue takes."""
    topic = await sns.topic()
    small, dead = await make_queue("small", MaximumMessageSize="2000"), await make_queue("dead")
    redrive = json.dumps({"deadLetterTargetArn": dead.arn})
    await sns.subscribe(topic, small.arn, **RAW, RedrivePolicy=redrive)
    await sns.publish(topic, "x" * 2000)
    await sns.publish(topic, "y" * 2001)
    await sns.publish(topic, "z", attributes={f"a{n}": text("v") for n in range(11)})
    assert [m.body for m in await receive(small)] == ["x" * 2000]
    assert [m.body for m in await receive(dead)] == ["y" * 2001, "z"]


async def test_a_fifo_topic_numbers_and_keeps_the_order_in_every_queue(sns: Sns) -> None:
    topic = await sns.topic("news.fifo")
    fifo, standard = await sns.make_queue("a.fifo"), await sns.make_queue("b")
    await sns.subscribe(topic, fifo.arn)
    await sns.subscribe(topic, standard.arn, **RAW)
    published = [
        await sns.publish(topic, f"m{n}", group_id="g", deduplication_id=f"d{n}") for n in range(5)
    ]
    numbers = [one.sequence_number or "" for one in published]
    assert numbers == sorted(set(numbers))
    assert all(len(number) == 20 for number in numbers)
    received = await sns.receive(fifo)
    envelopes = [json.loads(m.body) for m in received]
    assert [one["Message"] for one in envelopes] == [f"m{n}" for n in range(5)]
    assert [one["SequenceNumber"] for one in envelopes] == numbers
    assert list(envelopes[0]) == [
        "Type",
        "MessageId",
        "SequenceNumber",
        "TopicArn",
        "Message",
        "Timestamp",
        "UnsubscribeURL",
    ]
    assert {(m.group_id, m.deduplication_id) for m in received} == {
        ("g", f"d{n}") for n in range(5)
    }
    plain = await sns.receive(standard)
    assert [m.body for m in plain] == [f"m{n}" for n in range(5)]
    assert all(m.system is None and m.group_id is None for m in plain)


@pytest.mark.parametrize(
    ("scope", "expected"), [("Topic", ["one"]), ("MessageGroup", ["one", "two"])]
)
async def test_deduplication_lasts_five_minutes_and_has_two_scopes(
    world: World, sns: Sns, scope: str, expected: list[str]
) -> None:
    topic = await sns.topic("news.fifo", FifoThroughputScope=scope)
    queue = await world.make_queue("q.fifo", DeduplicationScope="messageGroup")
    await sns.subscribe(topic, queue.arn, **RAW)
    first = await sns.publish(topic, "one", group_id="g1", deduplication_id="d")
    again = await sns.publish(topic, "other text", group_id="g1", deduplication_id="d")
    assert again == first
    await sns.publish(topic, "two", group_id="g2", deduplication_id="d")
    assert sorted(m.body for m in await world.receive(queue)) == expected


async def test_duplicates_in_one_flush_are_folded(sns: Sns) -> None:
    topic = await sns.topic("news.fifo", ContentBasedDeduplication="true")
    queue = await sns.make_queue("q.fifo")
    await sns.subscribe(topic, queue.arn, **RAW)
    published = await asyncio.gather(
        *[sns.publish(topic, "same", group_id=f"g{n}") for n in range(20)]
    )
    assert len(set(published)) == 1
    [received] = await sns.receive(queue)
    assert received.deduplication_id == content_based_id("same")


async def test_publishers_at_once_never_disagree_between_queues(sns: Sns) -> None:
    """The order of a group is the same in all queues, whoever published."""
    topic = await sns.topic("news.fifo")
    queues = [await sns.make_queue(f"q{n}.fifo") for n in range(3)]
    for queue in queues:
        await sns.subscribe(topic, queue.arn, **RAW)
    published = await asyncio.gather(
        *[sns.publish(topic, f"m{n}", group_id="g", deduplication_id=f"{n}") for n in range(10)]
    )
    in_order = sorted(range(10), key=lambda n: published[n].sequence_number or "")
    for queue in queues:
        assert [m.body for m in await sns.receive(queue)] == [f"m{n}" for n in in_order]


async def test_an_archive_keeps_what_queues_get(engine: Engine, sns: Sns) -> None:
    topic = await sns.topic(
        "news.fifo",
        ArchivePolicy='{"MessageRetentionPeriod":"30"}',
        ContentBasedDeduplication="true",
    )
    published = await sns.publish(topic, "kept", group_id="g", subject="about")
    await sns.publish(topic, "kept", group_id="g")
    [row] = await rows(engine, "topic_archive")
    assert (row["message"], row["subject"], row["group_id"]) == ("kept", "about", "g")
    assert (
        opaque_tokens.topic_sequence_number(int(str(row["sequence"]))) == published.sequence_number
    )
    assert str(row["message_id"]) == published.message_id


async def test_a_large_message_for_many_queues_is_written_in_parts(world: World, sns: Sns) -> None:
    topic = await sns.topic()
    queues: list[Queue] = [await world.make_queue(f"q{n}") for n in range(30)]
    for queue in queues:
        await sns.subscribe(topic, queue.arn, **RAW)
    await sns.publish(topic, "x" * 262_144)
    for queue in queues:
        [received] = await world.receive(queue)
        assert len(received.body) == 262_144


async def test_a_large_message_for_many_queues_leaves_room_in_line(
    engine: Engine, sns: Sns, make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_MOST_WAITING_BYTES", 6 << 20)
    topic = await sns.topic()
    for number in range(30):
        await sns.subscribe(topic, (await make_queue(f"q{number}")).arn, **RAW)
    await sns.publish(topic, "the queues are known from now on")
    await asyncio.gather(*[sns.publish(topic, "x" * 262_144) for _ in range(2)])
    assert len(await rows(engine, "messages")) == 90


async def test_copies_for_very_many_queues_hold_up_nobody_s_sends(
    engine: Engine, sns: Sns, make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However short a message is: a flush of the send lane is everybody's."""
    monkeypatch.setattr(topic_publishing, "_MOST_ON_SEND_LANE_COPIES", 6)
    topic = await sns.topic()
    for number in range(4):
        await sns.subscribe(topic, (await make_queue(f"q{number}")).arn)
    await sns.publish(topic, "the queues are known from now on")
    sends: list[int] = []
    publishes: list[int] = []
    engine.standard.send.observe = sends.append
    engine.publish.lane.observe = publishes.append
    await sns.publish(topic, "few")
    assert (sends, publishes) == ([1], [])
    await sns.publish_batch(topic, PublishMessage("many"), PublishMessage("more"))
    assert (sends, publishes) == ([1], [1])
    assert len(await rows(engine, "messages")) == 16


async def test_receivers_of_every_copy_are_woken(world: World, sns: Sns) -> None:
    topic = await sns.topic()
    queues = [await world.make_queue(f"q{n}") for n in range(3)]
    for queue in queues:
        await sns.subscribe(topic, queue.arn, **RAW)
    await sns.publish(topic)
    told = getattr(world.engine.wakeups, "arrivals_told")  # noqa: B009 - the recording kind
    assert sorted(told) == [(queue.queue_id, 1) for queue in queues]


async def test_copies_of_one_flush_keep_their_texts_apart(world: World, sns: Sns) -> None:
    """Copies share their text on the way to the database; sends of the same flush do not."""
    topic = await sns.topic()
    queues = [await world.make_queue(f"q{n}") for n in range(3)]
    for queue in queues:
        await sns.subscribe(topic, queue.arn, **RAW)
    await sns.publish(topic, "first")
    await asyncio.gather(
        *[sns.publish(topic, f"m{n}") for n in range(3)],
        *[world.send(queues[1], f"s{n}") for n in range(3)],
    )
    texts = ["first", "m0", "m1", "m2"]
    for queue in queues:
        received = await world.receive(queue)
        more = ["s0", "s1", "s2"] if queue is queues[1] else []
        assert sorted(m.body for m in received) == texts + more
        assert all(m.body_md5 == bytes.fromhex(md5_of_body(m.body)) for m in received)

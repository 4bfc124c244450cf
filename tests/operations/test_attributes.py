"""Queue attributes: what is taken, what is refused, what reads back (docs/contract/sqs.md 2.2)."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from queuegate.gateway.faces.aws.aws_rules import AWS
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage.queue_model import Queue
from queuegate.storage.storage_errors import (
    InvalidAttributeName,
    InvalidAttributeValue,
    InvalidParameterValue,
    OverLimit,
    Rejected,
)
from tests.operations.conftest import (
    ACCOUNT,
    REGION,
    MakeQueue,
    ReceiveFrom,
    RecordingWakeups,
    SendTo,
    TestClock,
)
from tests.operations.sqs import (
    AddPermission,
    CreateQueue,
    DeleteQueue,
    GetQueueAttributes,
    SetQueueAttributes,
    add_permission,
    create_queue,
    delete_queue,
    get_queue_attributes,
    set_queue_attributes,
)

POLICY = (
    '{"Version":"2012-10-17","Statement":'
    '[{"Effect":"Allow","Principal":"*","Action":"SQS:SendMessage"}]}'
)


def arn(name: str) -> str:
    return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"


class Attributes:
    """Reads and writes the attributes of queues."""

    def __init__(self, engine: Engine, caller: Caller) -> None:
        self.engine = engine
        self.caller = caller

    async def get(self, queue: Queue, *names: str) -> dict[str, str]:
        return await get_queue_attributes(
            self.engine, self.caller, GetQueueAttributes(queue, names or ("All",))
        )

    async def set(self, queue: Queue, **attributes: str) -> None:
        await set_queue_attributes(self.engine, self.caller, SetQueueAttributes(queue, attributes))


@pytest.fixture
def attributes(engine: Engine, caller: Caller) -> Attributes:
    return Attributes(engine, caller)


async def test_all_of_a_new_standard_queue(
    attributes: Attributes, make_queue: MakeQueue, clock: TestClock
) -> None:
    queue = await make_queue("orders")
    assert clock.fixed is not None
    created = str(int(clock.fixed.timestamp()))

    assert await attributes.get(queue) == {
        "QueueArn": arn("orders"),
        "ApproximateNumberOfMessages": "0",
        "ApproximateNumberOfMessagesNotVisible": "0",
        "ApproximateNumberOfMessagesDelayed": "0",
        "CreatedTimestamp": created,
        "LastModifiedTimestamp": created,
        "VisibilityTimeout": "30",
        "MaximumMessageSize": "1048576",
        "MessageRetentionPeriod": "345600",
        "DelaySeconds": "0",
        "ReceiveMessageWaitTimeSeconds": "0",
        "SqsManagedSseEnabled": "true",
    }


async def test_all_of_a_new_fifo_queue(attributes: Attributes, make_queue: MakeQueue) -> None:
    everything = await attributes.get(await make_queue("orders.fifo"))

    standard = await attributes.get(await make_queue("orders"))
    assert everything.keys() - standard.keys() == {
        "FifoQueue",
        "ContentBasedDeduplication",
        "DeduplicationScope",
        "FifoThroughputLimit",
    }
    assert everything["FifoQueue"] == "true"
    assert everything["ContentBasedDeduplication"] == "false"
    assert everything["DeduplicationScope"] == "queue"
    assert everything["FifoThroughputLimit"] == "perQueue"


async def test_without_names_there_is_nothing(engine: Engine, caller: Caller) -> None:
    queue = await create_queue(engine, caller, CreateQueue("orders"))

    assert await get_queue_attributes(engine, caller, GetQueueAttributes(queue)) == {}


async def test_only_what_was_asked_for_in_one_order(
    attributes: Attributes, make_queue: MakeQueue
) -> None:
    queue = await make_queue("orders")

    some = await attributes.get(queue, "VisibilityTimeout", "QueueArn", "Policy", "FifoQueue")
    assert list(some) == ["QueueArn", "VisibilityTimeout"]
    assert list(await attributes.get(queue, "DelaySeconds", "All")) == list(
        await attributes.get(queue, "All")
    )


async def test_unknown_name_is_refused(attributes: Attributes, make_queue: MakeQueue) -> None:
    queue = await make_queue("orders")

    with pytest.raises(InvalidAttributeName) as refusal:
        await attributes.get(queue, "All", "Foobar")
    assert str(refusal.value) == "Unknown Attribute Foobar."


STANDARD_VALUES = [
    ("VisibilityTimeout", "0", "0"),
    ("VisibilityTimeout", "43200", "43200"),
    ("VisibilityTimeout", "0045", "45"),
    ("MaximumMessageSize", "1024", "1024"),
    ("MaximumMessageSize", "1048576", "1048576"),
    ("MaximumMessageSize", "262144", "262144"),
    ("MessageRetentionPeriod", "60", "60"),
    ("MessageRetentionPeriod", "1209600", "1209600"),
    ("DelaySeconds", "900", "900"),
    ("ReceiveMessageWaitTimeSeconds", "20", "20"),
    ("SqsManagedSseEnabled", "False", "false"),
    ("SqsManagedSseEnabled", "TRUE", "true"),
    ("KmsMasterKeyId", "alias/aws/sqs", "alias/aws/sqs"),
    ("KmsDataKeyReusePeriodSeconds", "60", "60"),
    ("KmsDataKeyReusePeriodSeconds", "86400", "86400"),
    ("Policy", POLICY.replace(",", " , "), POLICY),
    ("RedriveAllowPolicy", '{"redrivePermission": "allowAll"}', '{"redrivePermission":"allowAll"}'),
    ("RedriveAllowPolicy", '{"redrivePermission": "denyAll"}', '{"redrivePermission":"denyAll"}'),
    (
        "RedriveAllowPolicy",
        f'{{"sourceQueueArns": ["{arn("a")}"], "redrivePermission": "byQueue"}}',
        f'{{"redrivePermission":"byQueue","sourceQueueArns":["{arn("a")}"]}}',
    ),
    (
        "RedrivePolicy",
        f'{{"maxReceiveCount": "5", "deadLetterTargetArn": "{arn("dead")}"}}',
        f'{{"deadLetterTargetArn":"{arn("dead")}","maxReceiveCount":5}}',
    ),
    (
        "RedrivePolicy",
        f'{{"deadLetterTargetArn": "{arn("dead")}", "maxReceiveCount": 1000}}',
        f'{{"deadLetterTargetArn":"{arn("dead")}","maxReceiveCount":1000}}',
    ),
]


@pytest.mark.parametrize(("name", "value", "reads_back"), STANDARD_VALUES)
async def test_every_settable_attribute_round_trips(
    engine: Engine,
    caller: Caller,
    attributes: Attributes,
    make_queue: MakeQueue,
    name: str,
    value: str,
    reads_back: str,
) -> None:
    await make_queue("dead")
    created = await make_queue("created", **{name: value})
    changed = await make_queue("changed")
    await attributes.set(changed, **{name: value})

    for queue in (created, changed):
        assert (await attributes.get(queue, name))[name] == reads_back
        await attributes.set(queue, **{name: reads_back})
        assert (await attributes.get(queue))[name] == reads_back
    again = await create_queue(engine, caller, CreateQueue("created", {name: reads_back}))
    assert again.queue_id == created.queue_id


@pytest.mark.parametrize(
    ("name", "value", "reads_back"),
    [
        ("ContentBasedDeduplication", "True", "true"),
        ("DeduplicationScope", "messageGroup", "messageGroup"),
        ("DeduplicationScope", "queue", "queue"),
        ("FifoThroughputLimit", "perQueue", "perQueue"),
        ("FifoQueue", "TRUE", "true"),
    ],
)
async def test_every_settable_attribute_of_fifo_round_trips(
    attributes: Attributes, make_queue: MakeQueue, name: str, value: str, reads_back: str
) -> None:
    created = await make_queue("created.fifo", **{name: value})
    changed = await make_queue("changed.fifo")
    await attributes.set(changed, **{name: value})

    for queue in (created, changed):
        assert (await attributes.get(queue, name)) == {name: reads_back}


async def test_what_reads_back_can_be_created_again(
    engine: Engine, caller: Caller, attributes: Attributes, make_queue: MakeQueue
) -> None:
    dead = await make_queue("dead")
    policy = f'{{"deadLetterTargetArn":"{dead.arn}","maxReceiveCount":5}}'
    queue = await make_queue("orders", RedrivePolicy=policy, Policy=POLICY, KmsMasterKeyId="key")
    settable = {
        name: value
        for name, value in (await attributes.get(queue)).items()
        if not name.startswith(("Approximate", "Created", "LastModified", "QueueArn"))
    }

    again = await create_queue(engine, caller, CreateQueue("orders", settable))
    assert again.queue_id == queue.queue_id


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VisibilityTimeout", "-1"),
        ("VisibilityTimeout", "43201"),
        ("VisibilityTimeout", ""),
        ("VisibilityTimeout", "1.5"),
        ("VisibilityTimeout", "1_0"),
        ("VisibilityTimeout", "٣"),
        ("VisibilityTimeout", "9" * 5000),
        ("MaximumMessageSize", "1023"),
        ("MaximumMessageSize", "1048577"),
        ("MessageRetentionPeriod", "59"),
        ("MessageRetentionPeriod", "1209601"),
        ("DelaySeconds", "901"),
        ("ReceiveMessageWaitTimeSeconds", "21"),
        ("SqsManagedSseEnabled", "yes"),
        ("KmsDataKeyReusePeriodSeconds", "59"),
        ("KmsDataKeyReusePeriodSeconds", "86401"),
        ("KmsMasterKeyId", "a\x00"),
        ("Policy", "no json"),
        ("Policy", "{}"),
        ("Policy", POLICY.replace("Allow", "allow")),
        ("Policy", POLICY.replace('"Principal"', '"Principals"')),
        ("Policy", "[]"),
        ("Policy", '{"a":"\\ud800"}'),
        ("Policy", '{"a":' * 100_000),
        ("Policy", '{"a":' * 900 + "1" + "}" * 900),
        ("ContentBasedDeduplication", "maybe"),
        ("DeduplicationScope", "group"),
        ("FifoThroughputLimit", "perGroup"),
    ],
)
async def test_values_out_of_range_are_refused(
    attributes: Attributes, make_queue: MakeQueue, name: str, value: str
) -> None:
    queue = await make_queue("orders.fifo")

    with pytest.raises(InvalidAttributeValue) as refusal:
        await attributes.set(queue, **{name: value})
    assert str(refusal.value) == f"Invalid value for the parameter {name}."
    with pytest.raises(InvalidAttributeValue):
        await make_queue("other.fifo", **{name: value})


@pytest.mark.parametrize(
    ("name", "given", "refusal", "text"),
    [
        ("orders", {"Foobar": "1"}, InvalidAttributeName, "Unknown Attribute Foobar."),
        ("orders", {"QueueArn": "x"}, InvalidAttributeName, "Unknown Attribute QueueArn."),
        ("orders", {"All": "x"}, InvalidAttributeName, "Unknown Attribute All."),
        ("orders", {"FifoQueue": "true"}, InvalidAttributeName, "Unknown Attribute FifoQueue."),
        (
            "orders",
            {"ContentBasedDeduplication": "true"},
            InvalidAttributeName,
            "Unknown Attribute ContentBasedDeduplication.",
        ),
        (
            "orders",
            {"FifoThroughputLimit": "perQueue"},
            InvalidAttributeName,
            "You can specify the FifoThroughputLimit only when FifoQueue is set to true.",
        ),
        (
            "orders.fifo",
            {"FifoQueue": "false"},
            InvalidAttributeValue,
            "Invalid value for the parameter FifoQueue. "
            "Reason: Modifying queue type is not supported.",
        ),
        (
            "orders",
            {"KmsMasterKeyId": "k", "SqsManagedSseEnabled": "true"},
            InvalidAttributeName,
            "You can use one type of server-side encryption (SSE) at one time. "
            "You can either enable KMS SSE or SQS SSE.",
        ),
        (
            "orders.fifo",
            {"FifoThroughputLimit": "perMessageGroupId"},
            InvalidAttributeValue,
            "Invalid value for the parameter FifoThroughputLimit. Reason: The perMessageGroupId "
            "value is allowed only when the value for DeduplicationScope is messageGroup.",
        ),
    ],
)
async def test_refusals_of_set_queue_attributes(
    attributes: Attributes,
    make_queue: MakeQueue,
    name: str,
    given: dict[str, str],
    refusal: type[Rejected],
    text: str,
) -> None:
    queue = await make_queue(name)

    with pytest.raises(refusal) as raised:
        await attributes.set(queue, **given)
    assert str(raised.value) == text


async def test_refused_change_changes_nothing(
    attributes: Attributes, make_queue: MakeQueue
) -> None:
    queue = await make_queue("orders")
    before = await attributes.get(queue)

    with pytest.raises(InvalidAttributeValue):
        await attributes.set(queue, VisibilityTimeout="5", DelaySeconds="901")
    assert await attributes.get(queue) == before


async def test_high_throughput_needs_both_attributes(
    attributes: Attributes, make_queue: MakeQueue
) -> None:
    queue = await make_queue("orders.fifo")
    await attributes.set(
        queue, FifoThroughputLimit="perMessageGroupId", DeduplicationScope="messageGroup"
    )

    with pytest.raises(InvalidAttributeValue):
        await attributes.set(queue, DeduplicationScope="queue")
    await attributes.set(queue, DeduplicationScope="queue", FifoThroughputLimit="perQueue")
    everything = await attributes.get(queue)
    assert everything["DeduplicationScope"] == "queue"
    assert everything["FifoThroughputLimit"] == "perQueue"


async def test_key_switches_managed_encryption_off_for_good(
    attributes: Attributes, make_queue: MakeQueue
) -> None:
    queue = await make_queue("orders")
    names = ("KmsMasterKeyId", "SqsManagedSseEnabled")
    await attributes.set(queue, KmsMasterKeyId="k")
    assert await attributes.get(queue, *names) == {
        "KmsMasterKeyId": "k",
        "SqsManagedSseEnabled": "false",
    }

    with pytest.raises(InvalidAttributeName):
        await attributes.set(queue, SqsManagedSseEnabled="true")

    await attributes.set(queue, KmsMasterKeyId="")
    assert await attributes.get(queue, *names) == {"SqsManagedSseEnabled": "false"}
    await attributes.set(queue, SqsManagedSseEnabled="true")
    assert await attributes.get(queue, *names) == {"SqsManagedSseEnabled": "true"}


async def test_both_kinds_of_encryption_are_swapped_in_one_request(
    attributes: Attributes, make_queue: MakeQueue
) -> None:
    queue = await make_queue("orders", KmsMasterKeyId="k")

    await attributes.set(queue, KmsMasterKeyId="", SqsManagedSseEnabled="true")
    assert (await attributes.get(queue))["SqsManagedSseEnabled"] == "true"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Policy", POLICY),
        ("RedriveAllowPolicy", '{"redrivePermission":"denyAll"}'),
        ("RedrivePolicy", f'{{"deadLetterTargetArn":"{arn("dead")}","maxReceiveCount":5}}'),
        ("KmsMasterKeyId", "k"),
    ],
)
async def test_empty_text_unsets(
    attributes: Attributes, make_queue: MakeQueue, name: str, value: str
) -> None:
    await make_queue("dead")
    queue = await make_queue("orders", **{name: value})
    assert name in await attributes.get(queue)

    await attributes.set(queue, **{name: ""})
    assert name not in await attributes.get(queue)
    await attributes.set(queue, **{name: ""})
    assert name not in (await make_queue("unset", **{name: ""})).attributes


async def test_default_reuse_period_is_not_shown(
    attributes: Attributes, make_queue: MakeQueue
) -> None:
    queue = await make_queue("orders", KmsDataKeyReusePeriodSeconds="60")
    assert (await attributes.get(queue))["KmsDataKeyReusePeriodSeconds"] == "60"

    await attributes.set(queue, KmsDataKeyReusePeriodSeconds="300")
    assert "KmsDataKeyReusePeriodSeconds" not in await attributes.get(queue)


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("no json", "Redrive policy is not a valid JSON map."),
        ("[]", "Redrive policy is not a valid JSON map."),
        ("{}", "Redrive policy does not contain mandatory attribute: maxReceiveCount."),
        (
            '{"maxReceiveCount":3}',
            "Redrive policy does not contain mandatory attribute: deadLetterTargetArn.",
        ),
        (
            f'{{"maxReceiveCount":0,"deadLetterTargetArn":"{arn("dead")}"}}',
            "Invalid value for maxReceiveCount: 0, valid values are from 1 to 1000 both inclusive.",
        ),
        (
            f'{{"maxReceiveCount":"1001","deadLetterTargetArn":"{arn("dead")}"}}',
            "Invalid value for maxReceiveCount: 1001, "
            "valid values are from 1 to 1000 both inclusive.",
        ),
        (
            f'{{"maxReceiveCount":true,"deadLetterTargetArn":"{arn("dead")}"}}',
            "Invalid value for maxReceiveCount: True, "
            "valid values are from 1 to 1000 both inclusive.",
        ),
        (
            f'{{"maxReceiveCount":1.5,"deadLetterTargetArn":"{arn("dead")}"}}',
            "Invalid value for maxReceiveCount: 1.5, "
            "valid values are from 1 to 1000 both inclusive.",
        ),
        (
            '{"maxReceiveCount":3,"deadLetterTargetArn":"dead"}',
            "Invalid value for deadLetterTargetArn.",
        ),
        (
            '{"maxReceiveCount":3,"deadLetterTargetArn":7}',
            "Invalid value for deadLetterTargetArn.",
        ),
        (
            f'{{"maxReceiveCount":3,"deadLetterTargetArn":"{arn("dead")}","more":1}}',
            "Only following attributes are supported: [deadLetterTargetArn, maxReceiveCount].",
        ),
        (
            f'{{"maxReceiveCount":3,"deadLetterTargetArn":"{arn("nobody")}"}}',
            "Dead letter target does not exist.",
        ),
        (
            f'{{"maxReceiveCount":3,"deadLetterTargetArn":"{arn("dead.fifo")}"}}',
            "Dead-letter queue must be same type of queue as the source.",
        ),
        (
            f'{{"maxReceiveCount":3,"deadLetterTargetArn":"arn:aws:sqs:{REGION}:999988887777:dead"}}',
            "Dead-letter target owner should be same as the source.",
        ),
        (
            f'{{"maxReceiveCount":3,"deadLetterTargetArn":"arn:aws:sqs:us-east-1:{ACCOUNT}:dead"}}',
            "Dead-letter target must be in the same region as the source.",
        ),
    ],
)
async def test_redrive_policies_that_are_refused(
    attributes: Attributes, make_queue: MakeQueue, policy: str, reason: str
) -> None:
    await make_queue("dead")
    await make_queue("dead.fifo")
    queue = await make_queue("orders")
    text = f"Value {policy} for parameter RedrivePolicy is invalid. Reason: {reason}"

    with pytest.raises(InvalidParameterValue) as changing:
        await attributes.set(queue, RedrivePolicy=policy)
    assert str(changing.value) == text
    with pytest.raises(InvalidParameterValue) as creating:
        await make_queue("other", RedrivePolicy=policy)
    assert str(creating.value) == text


@pytest.mark.parametrize(
    "policy",
    [
        "no json",
        "{}",
        '{"redrivePermission":"some"}',
        '{"redrivePermission":["allowAll"]}',
        '{"redrivePermission":"byQueue"}',
        '{"redrivePermission":"byQueue","sourceQueueArns":[]}',
        '{"redrivePermission":"byQueue","sourceQueueArns":["a"]}',
        '{"redrivePermission":"byQueue","sourceQueueArns":[1]}',
        json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [arn("a")] * 11}),
        json.dumps({"redrivePermission": "allowAll", "sourceQueueArns": [arn("a")]}),
        json.dumps({"redrivePermission": "denyAll", "sourceQueueArns": []}),
        '{"redrivePermission":"denyAll","more":1}',
    ],
)
async def test_redrive_allow_policies_that_are_refused(
    attributes: Attributes, make_queue: MakeQueue, policy: str
) -> None:
    queue = await make_queue("dead")

    with pytest.raises(InvalidParameterValue) as refusal:
        await attributes.set(queue, RedriveAllowPolicy=policy)
    assert str(refusal.value).startswith(
        f"Value {policy} for parameter RedriveAllowPolicy is invalid. Reason: "
    )


async def test_allow_policy_decides_when_the_source_sets_its_policy(
    attributes: Attributes, make_queue: MakeQueue
) -> None:
    dead = await make_queue("dead")
    source = await make_queue("orders")
    policy = f'{{"deadLetterTargetArn":"{dead.arn}","maxReceiveCount":5}}'

    for allowed, permission in (
        (False, {"redrivePermission": "denyAll"}),
        (False, {"redrivePermission": "byQueue", "sourceQueueArns": [arn("other")]}),
        (True, {"redrivePermission": "byQueue", "sourceQueueArns": [arn("other"), source.arn]}),
        (True, {"redrivePermission": "allowAll"}),
    ):
        await attributes.set(dead, RedriveAllowPolicy=json.dumps(permission))
        if allowed:
            await attributes.set(source, RedrivePolicy=policy)
        else:
            with pytest.raises(InvalidParameterValue):
                await attributes.set(source, RedrivePolicy=policy)

    await attributes.set(dead, RedriveAllowPolicy='{"redrivePermission":"denyAll"}')
    assert (await attributes.get(source))["RedrivePolicy"] == policy


async def test_queue_may_be_its_own_dead_letter_queue(
    attributes: Attributes, make_queue: MakeQueue
) -> None:
    queue = await make_queue("orders")
    await attributes.set(
        queue, RedrivePolicy=f'{{"deadLetterTargetArn":"{queue.arn}","maxReceiveCount":5}}'
    )

    assert "RedrivePolicy" in await attributes.get(queue)


async def test_redrive_policy_outlives_its_target(
    engine: Engine, caller: Caller, attributes: Attributes, make_queue: MakeQueue
) -> None:
    dead = await make_queue("dead")
    policy = f'{{"deadLetterTargetArn":"{dead.arn}","maxReceiveCount":5}}'
    queue = await make_queue("orders", RedrivePolicy=policy)
    await delete_queue(engine, caller, DeleteQueue(dead))

    await attributes.set(queue, VisibilityTimeout="7")
    assert (await attributes.get(queue, "RedrivePolicy")) == {"RedrivePolicy": policy}


async def test_typed_fields_follow_the_attributes(
    engine: Engine, caller: Caller, attributes: Attributes, make_queue: MakeQueue
) -> None:
    dead = await make_queue("dead.fifo")
    made = await make_queue("orders.fifo")
    await attributes.set(
        made,
        VisibilityTimeout="1",
        DelaySeconds="2",
        MaximumMessageSize="1025",
        MessageRetentionPeriod="61",
        ReceiveMessageWaitTimeSeconds="3",
        ContentBasedDeduplication="true",
        DeduplicationScope="messageGroup",
        RedrivePolicy=f'{{"deadLetterTargetArn":"{dead.arn}","maxReceiveCount":"4"}}',
    )
    queue = await engine.queues.find(ACCOUNT, REGION, "orders.fifo")

    assert queue.visibility_timeout_seconds == 1
    assert queue.delay_seconds == 2
    assert queue.maximum_message_size_bytes == 1025
    assert queue.retention_seconds == 61
    assert queue.receive_wait_seconds == 3
    assert queue.content_based_deduplication
    assert queue.deduplication_per_group
    assert queue.dead_letter_arn == dead.arn
    assert queue.max_receive_count == 4


async def test_change_is_told_and_dated(
    attributes: Attributes,
    make_queue: MakeQueue,
    clock: TestClock,
    wakeups: RecordingWakeups,
) -> None:
    queue = await make_queue("orders")
    wakeups.changed.clear()
    assert clock.fixed is not None
    clock.fixed += timedelta(seconds=90)

    await attributes.set(queue, DelaySeconds="1")
    everything = await attributes.get(queue)
    assert wakeups.changed == [queue.queue_id]
    assert int(everything["LastModifiedTimestamp"]) - int(everything["CreatedTimestamp"]) == 90


async def test_counters_add_up_through_a_messages_life(
    attributes: Attributes,
    make_queue: MakeQueue,
    send: SendTo,
    receive: ReceiveFrom,
    clock: TestClock,
) -> None:
    queue = await make_queue("orders", VisibilityTimeout="10")
    names = (
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesNotVisible",
        "ApproximateNumberOfMessagesDelayed",
    )

    async def counters() -> tuple[int, ...]:
        values = await attributes.get(queue, *names)
        return tuple(int(values[name]) for name in names)

    for _ in range(5):
        await send(queue)
    for _ in range(3):
        await send(queue, delay_seconds=60)
    assert await counters() == (5, 0, 3)

    assert len(await receive(queue, 2)) == 2
    assert await counters() == (3, 2, 3)

    assert clock.fixed is not None
    clock.fixed += timedelta(seconds=11)
    assert await counters() == (5, 0, 3)
    clock.fixed += timedelta(seconds=60)
    assert await counters() == (8, 0, 0)


async def test_many_delayed_messages_are_counted_exactly(
    attributes: Attributes,
    make_queue: MakeQueue,
    send: SendTo,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("queuegate.storage.queues.standard_queues._MOST_HIDDEN_COUNTED", 5)
    queue = await make_queue("orders")
    for i in range(12):
        await send(queue, delay_seconds=60 if i < 9 else 0)

    everything = await attributes.get(queue)
    assert everything["ApproximateNumberOfMessages"] == "3"
    assert everything["ApproximateNumberOfMessagesDelayed"] == "9"


async def test_delay_of_a_fifo_queue_holds_for_what_was_sent_before(
    attributes: Attributes,
    make_queue: MakeQueue,
    send: SendTo,
    receive: ReceiveFrom,
    wakeups: RecordingWakeups,
) -> None:
    queue = await make_queue("orders.fifo", ContentBasedDeduplication="true", DelaySeconds="60")
    await send(queue, group_id="g")
    assert await receive(queue) == []

    wakeups.arrivals_told.clear()
    await attributes.set(queue, DelaySeconds="0")
    assert [told for told, _ in wakeups.arrivals_told] == [queue.queue_id]
    assert len(await receive(queue)) == 1


async def test_policies_have_a_limit(attributes: Attributes, make_queue: MakeQueue) -> None:
    queue = await make_queue("orders")
    empty = len('{"Id":"","Statement":[]}')
    document = {"Id": "x" * (AWS.policy_bytes - empty), "Statement": []}
    largest = json.dumps(document, separators=(",", ":"))

    await attributes.set(queue, Policy=largest)
    assert await attributes.get(queue, "Policy") == {"Policy": largest}
    # White space does not count, what is written in several bytes does.
    await attributes.set(queue, Policy=largest.replace(":", ":   "))
    for text in (largest.replace("x", "xx", 1), largest.replace("x", "\u00e9", 1)):
        with pytest.raises(InvalidAttributeValue) as refusal:
            await attributes.set(queue, Policy=text)
        assert str(refusal.value) == "Invalid value for the parameter Policy."


async def test_permissions_do_not_go_beyond_the_limit_of_policies(
    engine: Engine, caller: Caller, make_queue: MakeQueue
) -> None:
    queue = await make_queue("orders")
    accounts = [f"{number:012}" for number in range(AWS.policy_bytes // 12)]
    with pytest.raises(OverLimit):
        await add_permission(engine, caller, AddPermission(queue, "many", accounts, ["*"]))

"""Creating, finding, listing and deleting queues."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from queuegate.gateway.faces.aws.aws_refusals import text_of
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage.storage_errors import (
    InvalidParameterValue,
    MissingParameter,
    QueueDeletedRecently,
    QueueDoesNotExist,
    QueueNameExists,
)
from tests.operations.conftest import (
    ACCOUNT,
    REGION,
    MakeQueue,
    RecordingWakeups,
    SendTo,
    TestClock,
)
from tests.operations.sqs import (
    CreateQueue,
    DeleteQueue,
    GetQueueAttributes,
    GetQueueUrl,
    ListDeadLetterSourceQueues,
    ListQueues,
    ListQueueTags,
    PurgeQueue,
    SetQueueAttributes,
    TagQueue,
    UntagQueue,
    create_queue,
    delete_queue,
    get_queue_attributes,
    get_queue_url,
    list_dead_letter_source_queues,
    list_queue_tags,
    list_queues,
    purge_queue,
    set_queue_attributes,
    tag_queue,
    untag_queue,
)

_POLICY = '{"Version":"2012-10-17","Statement":{"Effect":"Allow","Principal":"*","Action":"*"}}'
_SAME_POLICY = (
    '{"Statement": {"Action": "*", "Principal": "*", "Effect": "Allow"}, "Version": "2012-10-17"}'
)

STANDARD_TEXT = (
    "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
)
FIFO_TEXT = (
    "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, "
    "must end with .fifo suffix and be 1 to 80 in length"
)


async def test_created_queue_has_the_callers_namespace_and_all_defaults(
    make_queue: MakeQueue, wakeups: RecordingWakeups
) -> None:
    queue = await make_queue("orders")

    assert queue.arn == f"arn:aws:sqs:{REGION}:{ACCOUNT}:orders"
    assert not queue.is_fifo
    assert queue.attributes == {}
    assert queue.visibility_timeout_seconds == 30
    assert queue.delay_seconds == 0
    assert queue.maximum_message_size_bytes == 1_048_576
    assert queue.retention_seconds == 345_600
    assert queue.receive_wait_seconds == 0
    assert queue.max_receive_count == 0
    assert queue.dead_letter_arn is None
    assert wakeups.changed == [queue.queue_id]


@pytest.mark.parametrize("name", ["", "a b", "a.b", "a" * 81, "é", "a/b", "a\n", "a\x00"])
async def test_standard_name_rules(engine: Engine, caller: Caller, name: str) -> None:
    with pytest.raises(InvalidParameterValue) as refusal:
        await create_queue(engine, caller, CreateQueue(name))

    assert str(refusal.value) == STANDARD_TEXT


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("orders.fifo", {}),
        ("orders.fifo", {"FifoQueue": "false"}),
        ("orders", {"FifoQueue": "true"}),
        ("or ders.fifo", {"FifoQueue": "true"}),
        ("o" * 76 + ".fifo", {"FifoQueue": "true"}),
        (".fifo", {"FifoQueue": "true"}),
    ],
)
async def test_fifo_name_rules(
    engine: Engine, caller: Caller, name: str, attributes: dict[str, str]
) -> None:
    with pytest.raises(InvalidParameterValue) as refusal:
        await create_queue(engine, caller, CreateQueue(name, attributes))

    assert str(refusal.value) == FIFO_TEXT


@pytest.mark.parametrize("name", ["a", "A-b_9", "a" * 80])
async def test_names_that_are_allowed(make_queue: MakeQueue, name: str) -> None:
    assert (await make_queue(name)).name == name


async def test_fifo_name_of_eighty_characters_is_allowed(make_queue: MakeQueue) -> None:
    queue = await make_queue("o" * 75 + ".fifo", FifoQueue="True")

    assert queue.is_fifo


async def test_create_without_name_is_a_missing_parameter(engine: Engine, caller: Caller) -> None:
    with pytest.raises(MissingParameter) as refusal:
        await create_queue(engine, caller, CreateQueue(None))

    assert str(refusal.value) == "The request must contain the parameter QueueName."


@pytest.mark.parametrize(
    ("first", "changes", "again", "differs"),
    [
        ({}, {}, {}, None),
        ({"DelaySeconds": "5"}, {}, {}, None),
        ({"DelaySeconds": "5"}, {}, {"DelaySeconds": "5"}, None),
        ({}, {}, {"DelaySeconds": "0", "VisibilityTimeout": "30"}, None),
        ({}, {}, {"SqsManagedSseEnabled": "True"}, None),
        ({}, {}, {"DelaySeconds": "1"}, "DelaySeconds"),
        ({"DelaySeconds": "5"}, {}, {"DelaySeconds": "0"}, "DelaySeconds"),
        ({}, {"DelaySeconds": "7"}, {"DelaySeconds": "7"}, None),
        ({"DelaySeconds": "5"}, {"DelaySeconds": "7"}, {"DelaySeconds": "5"}, "DelaySeconds"),
        ({}, {}, {"VisibilityTimeout": "30", "DelaySeconds": "1"}, "DelaySeconds"),
        (
            {},
            {},
            {"MessageRetentionPeriod": "61", "DelaySeconds": "1"},
            "MessageRetentionPeriod",
        ),
        ({"Policy": _POLICY}, {}, {"Policy": _SAME_POLICY}, None),
        ({"Policy": _POLICY}, {}, {"Policy": _POLICY.replace("Allow", "Deny")}, "Policy"),
        ({"Policy": _POLICY}, {}, {"Policy": ""}, "Policy"),
        ({}, {}, {"Policy": ""}, None),
        ({"KmsMasterKeyId": "k"}, {}, {"SqsManagedSseEnabled": "false"}, None),
        ({"KmsMasterKeyId": "k"}, {}, {"KmsMasterKeyId": "l"}, "KmsMasterKeyId"),
        ({"KmsDataKeyReusePeriodSeconds": "300"}, {}, {}, None),
        ({}, {}, {"KmsDataKeyReusePeriodSeconds": "300"}, None),
    ],
)
async def test_second_create_compares_only_what_it_names(
    engine: Engine,
    caller: Caller,
    make_queue: MakeQueue,
    first: dict[str, str],
    changes: dict[str, str],
    again: dict[str, str],
    differs: str | None,
) -> None:
    queue = await make_queue("orders", **first)
    await set_queue_attributes(engine, caller, SetQueueAttributes(queue, changes))

    if differs is None:
        assert (await make_queue("orders", **again)).queue_id == queue.queue_id
        return
    with pytest.raises(QueueNameExists) as refusal:
        await make_queue("orders", **again)
    assert str(refusal.value) == (
        f"A queue already exists with the same name and a different value for attribute {differs}"
    )


async def test_second_create_ignores_tags(engine: Engine, caller: Caller) -> None:
    queue = await create_queue(engine, caller, CreateQueue("orders", {}, {"team": "a"}))

    again = await create_queue(engine, caller, CreateQueue("orders", {}, {"team": "b"}))

    assert again.queue_id == queue.queue_id
    assert again.tags == {"team": "a"}


async def test_second_create_of_a_fifo_queue_may_repeat_its_type(make_queue: MakeQueue) -> None:
    queue = await make_queue("orders.fifo", ContentBasedDeduplication="TRUE")

    again = await make_queue("orders.fifo", ContentBasedDeduplication="true")

    assert again.queue_id == queue.queue_id


async def test_same_name_in_another_account_or_region_is_another_queue(
    engine: Engine, make_queue: MakeQueue
) -> None:
    queue = await make_queue("orders")
    elsewhere = Caller(ACCOUNT, "us-east-1", "me")
    other = Caller("999988887777", REGION, "you")

    for caller in (elsewhere, other):
        created = await create_queue(engine, caller, CreateQueue("orders", {"DelaySeconds": "9"}))
        assert created.queue_id != queue.queue_id


async def test_two_hundred_creators_of_one_name_get_one_queue(
    engine: Engine, caller: Caller
) -> None:
    created = await asyncio.gather(
        *[create_queue(engine, caller, CreateQueue("orders")) for _ in range(200)]
    )

    assert len({queue.queue_id for queue in created}) == 1


async def test_creators_that_differ_are_refused_and_never_fail(
    engine: Engine, caller: Caller
) -> None:
    results = await asyncio.gather(
        *[
            create_queue(engine, caller, CreateQueue("orders", {"DelaySeconds": str(i % 4)}))
            for i in range(40)
        ],
        return_exceptions=True,
    )

    refused = [result for result in results if isinstance(result, BaseException)]
    assert len(refused) == 30
    assert all(isinstance(result, QueueNameExists) for result in refused)


async def test_name_is_blocked_for_sixty_seconds_after_delete(
    engine: Engine, caller: Caller, make_queue: MakeQueue, clock: TestClock
) -> None:
    queue = await make_queue("orders")
    await delete_queue(engine, caller, DeleteQueue(queue))
    assert clock.fixed is not None

    clock.fixed += timedelta(seconds=59)
    with pytest.raises(QueueDeletedRecently) as refusal:
        await make_queue("orders")
    assert str(refusal.value) == (
        "You must wait 60 seconds after deleting a queue before you can create another with "
        "the same name."
    )

    clock.fixed += timedelta(seconds=1)
    assert (await make_queue("orders")).queue_id != queue.queue_id


async def test_waiting_time_after_delete_can_be_switched_off(
    engine: Engine, caller: Caller, make_queue: MakeQueue
) -> None:
    engine.rules.queue_recreate_seconds = 0
    queue = await make_queue("orders")
    await delete_queue(engine, caller, DeleteQueue(queue))

    assert (await make_queue("orders")).queue_id != queue.queue_id


async def test_other_default_visibility_timeout_is_the_testers(
    engine: Engine, caller: Caller, make_queue: MakeQueue
) -> None:
    engine.rules.default_visibility_timeout_seconds = 5

    assert (await make_queue("a")).visibility_timeout_seconds == 5
    assert (await make_queue("b", VisibilityTimeout="30")).visibility_timeout_seconds == 30


async def test_every_action_on_a_deleted_queue_is_refused(
    engine: Engine, caller: Caller, make_queue: MakeQueue
) -> None:
    queue = await make_queue("orders")
    await delete_queue(engine, caller, DeleteQueue(queue))

    for attempt in (
        delete_queue(engine, caller, DeleteQueue(queue)),
        get_queue_url(engine, caller, GetQueueUrl("orders")),
        get_queue_attributes(engine, caller, GetQueueAttributes(queue, ["All"])),
        set_queue_attributes(engine, caller, SetQueueAttributes(queue, {"DelaySeconds": "1"})),
        purge_queue(engine, caller, PurgeQueue(queue)),
        tag_queue(engine, caller, TagQueue(queue, {"a": "b"})),
        untag_queue(engine, caller, UntagQueue(queue, ["a"])),
        list_queue_tags(engine, caller, ListQueueTags(queue)),
        list_dead_letter_source_queues(engine, caller, ListDeadLetterSourceQueues(queue)),
    ):
        with pytest.raises(QueueDoesNotExist) as refusal:
            await attempt
        assert str(refusal.value) == "The specified queue does not exist."
        assert text_of(refusal.value, is_query=True) == (
            "The specified queue does not exist for this wsdl version."
        )


async def test_delete_wakes_who_waits(
    engine: Engine,
    caller: Caller,
    make_queue: MakeQueue,
    send: SendTo,
    wakeups: RecordingWakeups,
) -> None:
    queue = await make_queue("orders")
    await delete_queue(engine, caller, DeleteQueue(queue))

    assert queue.queue_id in wakeups.changed
    assert queue.queue_id in [told for told, _ in wakeups.arrivals_told]
    with pytest.raises(QueueDoesNotExist):
        await send(queue)


async def test_queue_url_of_own_and_of_other_accounts(
    engine: Engine, caller: Caller, make_queue: MakeQueue
) -> None:
    queue = await make_queue("orders")
    stranger = Caller("999988887777", REGION, "you")

    assert await get_queue_url(engine, caller, GetQueueUrl("orders")) == queue
    assert await get_queue_url(engine, stranger, GetQueueUrl("orders", ACCOUNT)) == queue
    for request in (GetQueueUrl("orders"), GetQueueUrl("orders", "me"), GetQueueUrl("a\x00b")):
        with pytest.raises(QueueDoesNotExist):
            await get_queue_url(engine, stranger, request)


@pytest.mark.parametrize("name", [None, ""])
async def test_queue_url_without_name_is_an_invalid_value(
    engine: Engine, caller: Caller, name: str | None
) -> None:
    with pytest.raises(InvalidParameterValue):
        await get_queue_url(engine, caller, GetQueueUrl(name))


async def test_listing_is_by_prefix_and_only_the_callers(
    engine: Engine, caller: Caller, make_queue: MakeQueue
) -> None:
    for name in ("b", "ab", "a", "a-", "A", "ab.fifo"):
        await make_queue(name)
    await create_queue(engine, Caller(ACCOUNT, "us-east-1", "me"), CreateQueue("abc"))

    async def names(prefix: str | None) -> list[str]:
        return (await list_queues(engine, caller, ListQueues(prefix))).queue_names

    assert await names(None) == ["A", "a", "a-", "ab", "ab.fifo", "b"]
    assert await names("a") == ["a", "a-", "ab", "ab.fifo"]
    assert await names("ab") == ["ab", "ab.fifo"]
    assert await names("zz") == []
    assert await names("a%\x00") == []


async def test_pages_follow_each_other_without_gap_or_repetition(
    engine: Engine, caller: Caller, make_queue: MakeQueue
) -> None:
    expected = sorted([f"q{i}" for i in range(25)])
    for name in expected:
        await make_queue(name)
    seen: list[str] = []
    token: str | None = None
    sizes = []
    while True:
        page = await list_queues(engine, caller, ListQueues("q", 10, token))
        seen += page.queue_names
        sizes.append(len(page.queue_names))
        token = page.next_token
        if token is None:
            break

    assert seen == expected
    assert sizes == [10, 10, 5]
    whole = await list_queues(engine, caller, ListQueues("q", 25))
    assert whole.next_token is None


async def test_without_max_results_there_is_no_token(
    engine: Engine, caller: Caller, make_queue: MakeQueue
) -> None:
    await make_queue("a")
    await make_queue("b")

    assert (await list_queues(engine, caller, ListQueues())).next_token is None


@pytest.mark.parametrize(
    "request_",
    [ListQueues(max_results=0), ListQueues(max_results=1001), ListQueues(max_results=-1)],
)
async def test_page_size_has_bounds(engine: Engine, caller: Caller, request_: ListQueues) -> None:
    with pytest.raises(InvalidParameterValue) as refusal:
        await list_queues(engine, caller, request_)

    assert str(refusal.value) == (
        f"Value {request_.max_results} for parameter MaxResults is invalid. "
        "Reason: Must be between 1 and 1000, if provided."
    )


@pytest.mark.parametrize("token", ["x", "é", "cXVldWVzOg==", "c291cmNlczox", "=" * 300])
async def test_foreign_token_is_refused(engine: Engine, caller: Caller, token: str) -> None:
    with pytest.raises(InvalidParameterValue):
        await list_queues(engine, caller, ListQueues(next_token=token))


async def test_sources_of_a_dead_letter_queue_come_in_pages(
    engine: Engine, caller: Caller, make_queue: MakeQueue
) -> None:
    target = await make_queue("dead")
    policy = f'{{"deadLetterTargetArn":"{target.arn}","maxReceiveCount":3}}'
    for i in range(5):
        await make_queue(f"source{i}", RedrivePolicy=policy)
    gone = await make_queue("gone", RedrivePolicy=policy)
    await delete_queue(engine, caller, DeleteQueue(gone))

    seen = []
    token = None
    while True:
        page = await list_dead_letter_source_queues(
            engine, caller, ListDeadLetterSourceQueues(target, 2, token)
        )
        seen.append(page.queue_names)
        token = page.next_token
        if token is None:
            break

    assert seen == [["source0", "source1"], ["source2", "source3"], ["source4"]]
    for bad in ("cXVldWVzOmE=", "c291cmNlczotMQ==", "c291cmNlczoxMjM0NTY3ODkwMTI="):
        with pytest.raises(InvalidParameterValue):
            await list_dead_letter_source_queues(
                engine, caller, ListDeadLetterSourceQueues(target, 2, bad)
            )


async def test_tags_are_added_overwritten_and_removed(
    engine: Engine, caller: Caller, wakeups: RecordingWakeups
) -> None:
    queue = await create_queue(engine, caller, CreateQueue("orders", {}, {"Team": "a"}))

    await tag_queue(engine, caller, TagQueue(queue, {"team": "b", "empty": "", "Team": "c"}))
    assert await list_queue_tags(engine, caller, ListQueueTags(queue)) == {
        "Team": "c",
        "team": "b",
        "empty": "",
    }

    await untag_queue(engine, caller, UntagQueue(queue, ["Team", "unknown"]))
    assert await list_queue_tags(engine, caller, ListQueueTags(queue)) == {"team": "b", "empty": ""}
    assert wakeups.changed == [queue.queue_id] * 3


@pytest.mark.parametrize(
    "tags",
    [
        {"": "v"},
        {"k" * 129: "v"},
        {"k": "v" * 257},
        {"k\x00": "v"},
        {"k": "v\x00"},
        {f"k{i}": "v" for i in range(51)},
    ],
)
async def test_tags_out_of_bounds_are_refused(
    engine: Engine, caller: Caller, make_queue: MakeQueue, tags: dict[str, str]
) -> None:
    queue = await make_queue("orders")

    with pytest.raises(InvalidParameterValue):
        await tag_queue(engine, caller, TagQueue(queue, tags))
    with pytest.raises(InvalidParameterValue):
        await create_queue(engine, caller, CreateQueue("tagged", {}, tags))


async def test_fifty_tags_in_all(engine: Engine, caller: Caller, make_queue: MakeQueue) -> None:
    queue = await make_queue("orders")
    await tag_queue(engine, caller, TagQueue(queue, {f"k{i}": "v" for i in range(50)}))

    await tag_queue(engine, caller, TagQueue(queue, {"k0": "w"}))
    with pytest.raises(InvalidParameterValue):
        await tag_queue(engine, caller, TagQueue(queue, {"one more": "v"}))


async def test_missing_parameters_are_named(
    engine: Engine, caller: Caller, make_queue: MakeQueue
) -> None:
    queue = await make_queue("orders")

    for attempt, name in (
        (tag_queue(engine, caller, TagQueue(queue, None)), "Tags"),
        (untag_queue(engine, caller, UntagQueue(queue, [])), "TagKeys"),
        (set_queue_attributes(engine, caller, SetQueueAttributes(queue, None)), "Attributes"),
    ):
        with pytest.raises(MissingParameter) as refusal:
            await attempt
        assert str(refusal.value) == f"The request must contain the parameter {name}."

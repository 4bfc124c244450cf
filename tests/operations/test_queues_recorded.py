"""Recorded refusals of the control plane: code and exact text, from tests/protocol/vectors."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest

from queuegate.gateway.faces.aws.aws_refusals import text_of
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage import storage_errors
from queuegate.storage.queue_model import Queue
from queuegate.storage.storage_errors import Rejected
from tests.operations.conftest import ACCOUNT, REGION, MakeQueue
from tests.operations.sqs import (
    AddPermission,
    CancelMessageMoveTask,
    CreateQueue,
    DeleteQueue,
    GetQueueAttributes,
    GetQueueUrl,
    PurgeQueue,
    RemovePermission,
    SetQueueAttributes,
    StartMessageMoveTask,
    add_permission,
    cancel_message_move_task,
    create_queue,
    delete_queue,
    get_queue_attributes,
    get_queue_url,
    purge_queue,
    remove_permission,
    set_queue_attributes,
    start_message_move_task,
)
from tests.protocol.contract import load

NOBODY = f"arn:aws:sqs:{REGION}:{ACCOUNT}:nobody"
REFUSALS = {
    "QueueAlreadyExists": storage_errors.QueueNameExists,
    "AWS.SimpleQueueService.QueueDeletedRecently": storage_errors.QueueDeletedRecently,
    "AWS.SimpleQueueService.NonExistentQueue": storage_errors.QueueDoesNotExist,
    "AWS.SimpleQueueService.PurgeQueueInProgress": storage_errors.PurgeQueueInProgress,
    "InvalidParameterValue": storage_errors.InvalidParameterValue,
    "InvalidAttributeName": storage_errors.InvalidAttributeName,
    "InvalidAttributeValue": storage_errors.InvalidAttributeValue,
    "ResourceNotFoundException": storage_errors.ResourceNotFound,
}


class World:
    """Makes each recorded request; queues are named as the recordings' placeholders say."""

    def __init__(self, engine: Engine, caller: Caller, make_queue: MakeQueue) -> None:
        self.engine = engine
        self.caller = caller
        self.make_queue = make_queue

    def create(self, name: str, attributes: dict[str, str] | None = None) -> Awaitable[Queue]:
        return create_queue(self.engine, self.caller, CreateQueue(name, attributes or {}))

    async def create_different(self, _: Any) -> None:
        await self.create("orders")
        await self.create("orders", {"DelaySeconds": "1"})

    async def create_deleted(self, _: Any) -> None:
        queue = await self.create("orders")
        await delete_queue(self.engine, self.caller, DeleteQueue(queue))
        await self.create("orders")

    async def create_named(self, given: Any) -> None:
        await self.create(given["QueueName"])

    async def create_with(self, given: Any) -> None:
        await self.create("orders", given["Attributes"])

    async def set_fifo(self, given: Any) -> None:
        await self._set(await self.make_queue("orders.fifo"), given)

    async def set_standard(self, given: Any) -> None:
        await self._set(await self.make_queue("orders"), given)

    async def _set(self, queue: Queue, given: Any) -> None:
        await set_queue_attributes(self.engine, self.caller, SetQueueAttributes(queue, given))

    async def get_attributes(self, given: Any) -> None:
        request = GetQueueAttributes(await self.make_queue("orders"), given["AttributeNames"])
        await get_queue_attributes(self.engine, self.caller, request)

    async def missing(self, _: Any) -> None:
        await get_queue_url(self.engine, self.caller, GetQueueUrl("nobody"))

    async def purge_twice(self, _: Any) -> None:
        queue = await self.make_queue("queue-name")
        for _i in range(2):
            await purge_queue(self.engine, self.caller, PurgeQueue(queue))

    async def add_twice(self, _: Any) -> None:
        queue = await self.make_queue("orders")
        for _i in range(2):
            request = AddPermission(queue, "label", [ACCOUNT], ["SendMessage"])
            await add_permission(self.engine, self.caller, request)

    async def remove_unknown(self, _: Any) -> None:
        queue = await self.make_queue("orders")
        await remove_permission(self.engine, self.caller, RemovePermission(queue, "label"))

    async def start_plain(self, _: Any) -> None:
        await self._start((await self.make_queue("orders")).arn)

    async def start_twice(self, _: Any) -> None:
        dead = await self._dead()
        await self._start(dead.arn)
        await self._start(dead.arn)

    async def start_to_nobody(self, _: Any) -> None:
        await self._start((await self._dead()).arn, NOBODY)

    async def _dead(self) -> Queue:
        dead = await self.make_queue("dead")
        policy = json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": 1})
        await self.make_queue("orders", RedrivePolicy=policy)
        return dead

    async def _start(self, source_arn: str, destination_arn: str | None = None) -> None:
        request = StartMessageMoveTask(source_arn, destination_arn)
        await start_message_move_task(self.engine, self.caller, request)

    async def cancel_garbage(self, _: Any) -> None:
        await self._cancel("garbage")

    async def cancel_of_nobody(self, _: Any) -> None:
        await self._cancel(self._handle(NOBODY))

    async def cancel_unknown(self, _: Any) -> None:
        await self._cancel(self._handle((await self.make_queue("orders")).arn))

    async def _cancel(self, handle: str) -> None:
        await cancel_message_move_task(self.engine, self.caller, CancelMessageMoveTask(handle))

    @staticmethod
    def _handle(source_arn: str) -> str:
        content = {"taskId": str(uuid4()), "sourceArn": source_arn}
        return b64encode(json.dumps(content).encode()).decode()


Step = Callable[[World, Any], Awaitable[None]]
STEPS: dict[tuple[str, str], Step] = {
    ("CreateQueue", "exists, DelaySeconds differs"): World.create_different,
    ("CreateQueue", "deleted < 60 s ago"): World.create_deleted,
    ("CreateQueue", '{"QueueName": "a b"}'): World.create_named,
    ("CreateQueue standard", '{"Attributes": {"FifoQueue": "false"}}'): World.create_with,
    ("CreateQueue standard", '{"Attributes": {"DeduplicationScope": "queue"}}'): World.create_with,
    ("SetQueueAttributes FIFO", '{"FifoQueue": "false"}'): World.set_fifo,
    (
        "SetQueueAttributes",
        '{"KmsMasterKeyId": "k", "SqsManagedSseEnabled": "true"}',
    ): World.set_standard,
    ("GetQueueAttributes", '{"AttributeNames": ["Foobar"]}'): World.get_attributes,
    ("any", "missing queue, JSON"): World.missing,
    ("any", "missing queue, Query"): World.missing,
    ("PurgeQueue", "second within 60 s"): World.purge_twice,
    ("AddPermission", "label exists"): World.add_twice,
    ("RemovePermission", "label missing"): World.remove_unknown,
    ("StartMessageMoveTask", "source is not a DLQ"): World.start_plain,
    ("StartMessageMoveTask", "second active task"): World.start_twice,
    ("StartMessageMoveTask", "destination missing"): World.start_to_nobody,
    ("CancelMessageMoveTask", "undecodable handle"): World.cancel_garbage,
    ("CancelMessageMoveTask", "source queue in handle missing"): World.cancel_of_nobody,
    ("CancelMessageMoveTask", "unknown task id"): World.cancel_unknown,
}
MESSAGE_ACTIONS = ("ReceiveMessage", "SendMessage", "DeleteMessage", "ChangeMessageVisibility")


def key(case: dict[str, Any]) -> tuple[str, str]:
    given = case["input"]
    return case["action"], given if isinstance(given, str) else json.dumps(given)


CASES = [
    case
    for case in load("sqs_validation")["cases"]
    if not case["action"].startswith(MESSAGE_ACTIONS)
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(key(case)))
async def test_refusal_is_the_recorded_one(
    engine: Engine, caller: Caller, make_queue: MakeQueue, case: dict[str, Any]
) -> None:
    step = STEPS[key(case)]

    with pytest.raises(Rejected) as refusal:
        await step(World(engine, caller, make_queue), case["input"])

    assert type(refusal.value) is REFUSALS[case["query_code"]]
    expected = case["message"].replace("<queue-name>", "queue-name").replace("<label>", "label")
    is_query = case["input"] == "missing queue, Query"
    assert text_of(refusal.value, is_query=is_query) == expected

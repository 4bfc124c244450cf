"""AddPermission and RemovePermission (docs/contract/sqs.md 2.9)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage.queue_model import Queue
from queuegate.storage.storage_errors import (
    InvalidParameterValue,
    MissingParameter,
    OverLimit,
    QueueDoesNotExist,
    Rejected,
)
from tests.operations.conftest import MakeQueue, RecordingWakeups
from tests.operations.sqs import (
    AddPermission,
    DeleteQueue,
    GetQueueAttributes,
    RemovePermission,
    SetQueueAttributes,
    add_permission,
    delete_queue,
    get_queue_attributes,
    remove_permission,
    set_queue_attributes,
)

ONE = "111111111111"
TWO = "222222222222"


async def policy_text(engine: Engine, caller: Caller, queue: Queue) -> str | None:
    found = await get_queue_attributes(engine, caller, GetQueueAttributes(queue, ["Policy"]))
    return found.get("Policy")


async def statements(engine: Engine, caller: Caller, queue: Queue) -> list[dict[str, Any]]:
    text = await policy_text(engine, caller, queue)
    assert text is not None
    found: list[dict[str, Any]] = json.loads(text)["Statement"]
    return found


async def test_first_permission_writes_the_document_that_aws_writes(
    engine: Engine, caller: Caller, make_queue: MakeQueue, wakeups: RecordingWakeups
) -> None:
    queue = await make_queue("orders")
    wakeups.changed.clear()

    await add_permission(engine, caller, AddPermission(queue, "crossaccount", [ONE], ["*"]))

    assert await policy_text(engine, caller, queue) == (
        f'{{"Version":"2008-10-17","Id":"{queue.arn}/SQSDefaultPolicy","Statement":['
        '{"Sid":"crossaccount","Effect":"Allow",'
        f'"Principal":{{"AWS":"arn:aws:iam::{ONE}:root"}},'
        f'"Action":"SQS:*","Resource":"{queue.arn}"}}]}}'
    )
    assert wakeups.changed == [queue.queue_id]


async def test_several_values_are_arrays(
    engine: Engine, caller: Caller, make_queue: MakeQueue
) -> None:
    queue = await make_queue("orders")

    await add_permission(
        engine,
        caller,
        AddPermission(queue, "two", [ONE, TWO], ["SendMessage", "ReceiveMessage"]),
    )
    (statement,) = await statements(engine, caller, queue)
    assert statement["Principal"] == {
        "AWS": [f"arn:aws:iam::{ONE}:root", f"arn:aws:iam::{TWO}:root"]
    }
    assert statement["Action"] == ["SQS:SendMessage", "SQS:ReceiveMessage"]


async def test_removing_the_last_statement_removes_the_policy(
    engine: Engine, caller: Caller, make_queue: MakeQueue
) -> None:
    queue = await make_queue("orders")
    for label in ("a", "b"):
        await add_permission(engine, caller, AddPermission(queue, label, [ONE], ["SendMessage"]))

    await remove_permission(engine, caller, RemovePermission(queue, "a"))
    assert [found["Sid"] for found in await statements(engine, caller, queue)] == ["b"]

    await remove_permission(engine, caller, RemovePermission(queue, "b"))
    assert await policy_text(engine, caller, queue) is None


async def test_permission_joins_a_policy_of_the_owners(
    engine: Engine, caller: Caller, make_queue: MakeQueue
) -> None:
    queue = await make_queue("orders")
    policy = '{"Version":"2012-10-17","Statement":{"Effect":"Allow","Principal":"*","Action":"*"}}'
    await set_queue_attributes(engine, caller, SetQueueAttributes(queue, {"Policy": policy}))

    await add_permission(engine, caller, AddPermission(queue, "a", [ONE], ["SendMessage"]))
    found = await statements(engine, caller, queue)
    assert found[0] == {"Effect": "Allow", "Principal": "*", "Action": "*"}
    assert found[1]["Sid"] == "a"


async def test_permissions_that_are_added_at_once_are_all_there(
    engine: Engine, caller: Caller, make_queue: MakeQueue
) -> None:
    queue = await make_queue("orders")

    await asyncio.gather(
        *[
            add_permission(engine, caller, AddPermission(queue, f"l{i}", [ONE], ["SendMessage"]))
            for i in range(12)
        ]
    )
    found = {statement["Sid"] for statement in await statements(engine, caller, queue)}
    assert found == {f"l{i}" for i in range(12)}


@pytest.mark.parametrize(
    ("given", "refusal", "text"),
    [
        (
            ("taken", [ONE], ["SendMessage"]),
            InvalidParameterValue,
            "Value taken for parameter Label is invalid. Reason: Already exists.",
        ),
        (
            ("a b", [ONE], ["SendMessage"]),
            InvalidParameterValue,
            "Value a b for parameter Label is invalid. Reason: Can only include alphanumeric "
            "characters, hyphens, or underscores. 1 to 80 in length",
        ),
        (
            ("a", [ONE], ["Fly"]),
            InvalidParameterValue,
            "Value SQS:Fly for parameter ActionName is invalid. Reason: Please refer to the "
            "appropriate WSDL for a list of valid actions.",
        ),
        (
            ("a", [ONE], ["SendMessage"] * 8),
            OverLimit,
            "8 Actions were found, maximum allowed is 7.",
        ),
        (
            ("a", ["me"], ["SendMessage"]),
            InvalidParameterValue,
            "Value me for parameter PrincipalId is invalid. Reason: Unable to verify.",
        ),
        (
            (None, [ONE], ["SendMessage"]),
            MissingParameter,
            "The request must contain the parameter Label.",
        ),
        (
            ("a", [], ["SendMessage"]),
            MissingParameter,
            "The request must contain the parameter AWSAccountIds.",
        ),
        (
            ("a", [ONE], None),
            MissingParameter,
            "The request must contain the parameter Actions.",
        ),
    ],
)
async def test_refusals_of_add_permission(
    engine: Engine,
    caller: Caller,
    make_queue: MakeQueue,
    given: tuple[str | None, list[str] | None, list[str] | None],
    refusal: type[Rejected],
    text: str,
) -> None:
    queue = await make_queue("orders")
    await add_permission(engine, caller, AddPermission(queue, "taken", [ONE], ["SendMessage"]))
    before = await policy_text(engine, caller, queue)

    with pytest.raises(refusal) as raised:
        await add_permission(engine, caller, AddPermission(queue, *given))
    assert str(raised.value) == text
    assert await policy_text(engine, caller, queue) == before


async def test_removing_an_unknown_label_is_refused(
    engine: Engine, caller: Caller, make_queue: MakeQueue
) -> None:
    queue = await make_queue("orders")

    with pytest.raises(InvalidParameterValue) as refusal:
        await remove_permission(engine, caller, RemovePermission(queue, "nobody"))
    assert str(refusal.value) == (
        "Value nobody for parameter Label is invalid. Reason: can't find label."
    )


async def test_permissions_of_a_deleted_queue_are_refused(
    engine: Engine, caller: Caller, make_queue: MakeQueue
) -> None:
    queue = await make_queue("orders")
    await delete_queue(engine, caller, DeleteQueue(queue))

    with pytest.raises(QueueDoesNotExist):
        await add_permission(engine, caller, AddPermission(queue, "a", [ONE], ["SendMessage"]))
    with pytest.raises(QueueDoesNotExist):
        await remove_permission(engine, caller, RemovePermission(queue, "a"))

"""AddPermission and RemovePermission: statements of a queue's policy (docs/contract/sqs.md 2.9)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from gateway.operations.caller import Caller
from gateway.operations.limits import Limits
from gateway.operations.queues.live_queues import locked
from protocol import names
from protocol.sqs_shapes import SQS
from storage.errors import InvalidParameterValue, MissingParameter, OverLimit
from storage.model import Queue
from storage.queues import queues

if TYPE_CHECKING:
    from gateway.operations.engine import Engine

_ACTIONS = frozenset({*SQS.actions, "*"})
_OF_OWNERS = frozenset(
    {
        "AddPermission",
        "CancelMessageMoveTask",
        "CreateQueue",
        "DeleteQueue",
        "ListMessageMoveTasks",
        "ListQueues",
        "ListQueueTags",
        "RemovePermission",
        "SetQueueAttributes",
        "StartMessageMoveTask",
        "TagQueue",
        "UntagQueue",
    }
)
"""What no policy allows others ("Overview of managing access in Amazon SQS")."""
_ACCOUNT = re.compile(r"[0-9]{12}")
_ACCOUNT_OR_ARN = re.compile(r"[0-9]{12}|arn:aws[a-z-]{0,20}:iam::[0-9]{12}:[!-~]{1,512}")


@dataclass(frozen=True, slots=True)
class AddPermission:
    """None: the caller did not send the parameter."""

    queue: Queue
    label: str | None
    account_ids: Sequence[str] | None
    actions: Sequence[str] | None


async def add_permission(engine: Engine, caller: Caller, request: AddPermission) -> None:
    """Add a statement that allows the accounts these actions on the queue.

    Raises MissingParameter, OverLimit (too many actions, too large a policy), and
    InvalidParameterValue for a label that is taken or malformed, an unknown action, an account
    that cannot be one.
    """
    label, statement = _statement(request, engine.limits)
    now = engine.clock.of(request.queue.account_id).now()
    async with engine.database.transaction() as tx:
        queue = await locked(tx, request.queue)
        policy = _policy(queue)
        if any(_sid(other) == label for other in policy["Statement"]):
            raise _bad_label(label, "Already exists.")
        policy["Statement"].append(statement)
        text = orjson.dumps(policy).decode()
        if len(text.encode()) > engine.limits.policy_bytes:
            raise OverLimit(f"The policy is larger than {engine.limits.policy_bytes} bytes.")
        attributes = {**queue.attributes, "Policy": text}
        await queues.set_attributes(tx, now, queue.queue_id, attributes)
    engine.wakeups.queue_changed(queue.queue_id)


def _statement(request: AddPermission, limits: Limits) -> tuple[str, dict[str, Any]]:
    """The checked label, and the statement as AWS writes it: one value as a scalar, several as an
    array.
    """
    label = _checked_label(request.label)
    if not request.account_ids:
        raise MissingParameter("AWSAccountIds")
    if not request.actions:
        raise MissingParameter("Actions")
    if len(request.actions) > limits.permission_actions:
        raise OverLimit(
            f"{len(request.actions)} Actions were found, "
            f"maximum allowed is {limits.permission_actions}."
        )
    for action in request.actions:
        if action in _OF_OWNERS:
            raise InvalidParameterValue("Only the queue owner is allowed to invoke this action.")
        if action not in _ACTIONS:
            raise InvalidParameterValue(
                f"Value SQS:{action} for parameter ActionName is invalid. "
                "Reason: Please refer to the appropriate WSDL for a list of valid actions."
            )
    for account_id in request.account_ids:
        if _ACCOUNT_OR_ARN.fullmatch(account_id) is None:
            raise InvalidParameterValue(
                f"Value {account_id} for parameter PrincipalId is invalid. "
                "Reason: Unable to verify."
            )
    principals = [
        f"arn:aws:iam::{account_id}:root" if _ACCOUNT.fullmatch(account_id) else account_id
        for account_id in request.account_ids
    ]
    return label, {
        "Sid": label,
        "Effect": "Allow",
        "Principal": {"AWS": _scalar_or_list(principals)},
        "Action": _scalar_or_list([f"SQS:{action}" for action in request.actions]),
        "Resource": request.queue.arn,
    }


def _scalar_or_list(values: list[str]) -> str | list[str]:
    return values[0] if len(values) == 1 else values


def _checked_label(label: str | None) -> str:
    if label is None:
        raise MissingParameter("Label")
    if not names.is_label(label):
        reason = (
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
        )
        raise _bad_label(label, reason)
    return label


def _bad_label(label: str, reason: str) -> InvalidParameterValue:
    return InvalidParameterValue(f"Value {label} for parameter Label is invalid. Reason: {reason}")


def _policy(queue: Queue) -> dict[str, Any]:
    """The queue's policy with its statements as a list, or the empty one that AWS begins with."""
    text = queue.attributes.get("Policy")
    if text is None:
        policy: dict[str, Any] = {"Version": "2008-10-17", "Id": f"{queue.arn}/SQSDefaultPolicy"}
    else:
        policy = orjson.loads(text)
    statements = policy.get("Statement", [])
    policy["Statement"] = statements if isinstance(statements, list) else [statements]
    return policy


def _sid(statement: object) -> object:
    return statement.get("Sid") if isinstance(statement, dict) else None


@dataclass(frozen=True, slots=True)
class RemovePermission:
    queue: Queue
    label: str | None


async def remove_permission(engine: Engine, caller: Caller, request: RemovePermission) -> None:
    """Remove the statement with that label; with the last one the policy goes too."""
    label = _checked_label(request.label)
    now = engine.clock.of(request.queue.account_id).now()
    async with engine.database.transaction() as tx:
        queue = await locked(tx, request.queue)
        policy = _policy(queue)
        kept = [statement for statement in policy["Statement"] if _sid(statement) != label]
        if len(kept) == len(policy["Statement"]):
            raise _bad_label(label, "can't find label.")
        attributes = {**queue.attributes}
        if kept:
            attributes["Policy"] = orjson.dumps({**policy, "Statement": kept}).decode()
        else:
            del attributes["Policy"]
        await queues.set_attributes(tx, now, queue.queue_id, attributes)
    engine.wakeups.queue_changed(queue.queue_id)

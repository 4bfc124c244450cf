"""AddPermission and RemovePermission: statements of a queue's policy (docs/contract/sqs.md 2.9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from queuegate.gateway.faces.aws import permissions
from queuegate.gateway.faces.aws.face import Binding, Call
from queuegate.gateway.faces.aws.limits import AWS
from queuegate.gateway.operations.access.policies import OF_OWNERS
from queuegate.gateway.operations.queues import queues
from queuegate.gateway.operations.runtime.limits import Limits
from queuegate.protocol import names
from queuegate.protocol.sqs_shapes import SQS
from queuegate.storage.errors import InvalidParameterValue, MissingParameter, OverLimit
from queuegate.storage.model import Queue

_ACTIONS = frozenset({*SQS.actions, "*"})


async def add_permission(call: Call) -> None:
    """Add a statement that allows the accounts these actions on the queue."""
    queue = await call.queue()
    label = _checked_label(call.members.get("Label"))
    accounts = call.members.get("AWSAccountIds")
    actions = call.members.get("Actions")
    limits = call.engine.limits
    if not accounts:
        raise MissingParameter("AWSAccountIds")
    if not actions:
        raise MissingParameter("Actions")
    _check_actions(actions, limits)
    for account in accounts:
        if not permissions.is_principal(account):
            raise InvalidParameterValue(
                f"Value {account} for parameter PrincipalId is invalid. Reason: Unable to verify."
            )
    qualified = [f"SQS:{action}" for action in actions]
    statement = permissions.statement(label, accounts, qualified, queue.arn)

    def add(attributes: Mapping[str, str]) -> Mapping[str, str]:
        policy = _policy(queue, attributes)
        if permissions.without(policy, label) is not None:
            raise _bad_label(label, "Already exists.")
        policy["Statement"].append(statement)
        text = orjson.dumps(policy)
        if len(text) > AWS.policy_bytes:
            raise OverLimit(f"The policy is larger than {AWS.policy_bytes} bytes.")
        return {**attributes, "Policy": text.decode()}

    await queues.change_attributes(call.engine, call.caller, queue, add)


def _check_actions(actions: Sequence[str], limits: Limits) -> None:
    if len(actions) > AWS.permission_actions:
        raise OverLimit(
            f"{len(actions)} Actions were found, maximum allowed is {AWS.permission_actions}."
        )
    for action in actions:
        if action in OF_OWNERS:
            raise InvalidParameterValue("Only the queue owner is allowed to invoke this action.")
        if action not in _ACTIONS:
            raise InvalidParameterValue(
                f"Value SQS:{action} for parameter ActionName is invalid. "
                "Reason: Please refer to the appropriate WSDL for a list of valid actions."
            )


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


def _policy(queue: Queue, attributes: Mapping[str, str]) -> permissions.Policy:
    """The queue's policy, or the empty one that AWS begins with."""
    text = attributes.get("Policy")
    if text is None:
        return {"Version": "2008-10-17", "Id": f"{queue.arn}/SQSDefaultPolicy", "Statement": []}
    return permissions.read(text)


async def remove_permission(call: Call) -> None:
    """Remove the statement with that label; with the last one the policy goes too."""
    queue = await call.queue()
    label = _checked_label(call.members.get("Label"))

    def remove(attributes: Mapping[str, str]) -> Mapping[str, str]:
        policy = permissions.without(_policy(queue, attributes), label)
        if policy is None:
            raise _bad_label(label, "can't find label.")
        text = orjson.dumps(policy).decode() if policy["Statement"] else ""
        return {**attributes, "Policy": text}

    await queues.change_attributes(call.engine, call.caller, queue, remove)


BINDINGS: dict[str, Binding] = {
    "AddPermission": add_permission,
    "RemovePermission": remove_permission,
}

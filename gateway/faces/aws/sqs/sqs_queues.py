"""SQS actions on queues, their tags, permissions and message move tasks (docs/contract/sqs.md 2.2,
2.3, 2.9, 2.10)."""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from uuid import UUID

import orjson

from queuegate.gateway.faces.aws import aws_rules
from queuegate.gateway.faces.aws.aws_face import AwsCall, Members
from queuegate.gateway.faces.aws.aws_rules import (
    AWS,
    TagRules,
    dead_letter_of,
    invalid_value,
    removing,
)
from queuegate.gateway.faces.aws.sqs import sqs_queue_attributes
from queuegate.gateway.faces.aws.sqs.sqs_queue_attributes import worded
from queuegate.gateway.operations.access import policies
from queuegate.gateway.operations.access.policies import OF_OWNERS
from queuegate.gateway.operations.queues import dead_letter_moves, queues
from queuegate.protocol import arns, names, opaque_tokens
from queuegate.protocol.malformed import Malformed, refusing
from queuegate.protocol.opaque_tokens import token_behind
from queuegate.protocol.policy_documents import PolicyKind
from queuegate.protocol.sqs_shapes import SQS
from queuegate.protocol.urls import QueueAddress
from queuegate.storage.queue_model import MoveFailure, MoveTask, Queue
from queuegate.storage.storage_errors import (
    InvalidParameterValue,
    OverLimit,
    QueueDoesNotExist,
    QueueNameExists,
    QueueNameInvalid,
)


def check_range(parameter: str, value: int | None, most: int) -> None:
    """Refuse a value outside 1 to ``most``."""
    if value is not None and not 1 <= value <= most:
        raise invalid_value(parameter, value, f"Must be between 1 and {most}, if provided.")


def page_size(max_results: int | None, most: int) -> int:
    """Return the number of entries of a page; without MaxResults the maximum."""
    check_range("MaxResults", max_results, most)
    return most if max_results is None else max_results


def last_of(listing: str, token: str | None) -> str:
    """Return the last entry in a page token; "" without one."""
    with refusing(InvalidParameterValue):
        return opaque_tokens.last_of(listing, token) or ""


def rules(queue_name: str) -> TagRules:
    """Return the tag rules for the queue of that name."""
    return TagRules(
        AWS.tags,
        lambda: InvalidParameterValue(f"Too many tags added for queue {queue_name}."),
        lambda: InvalidParameterValue("Tag keys must be between 1 and 128 characters in length."),
        lambda: InvalidParameterValue("Tag values must be between 0 and 256 characters in length."),
    )


async def tag_queue(call: AwsCall) -> None:
    queue = await call.queue()
    tags = call.required("Tags", may_be_empty=False)
    of_queue = rules(queue.name)
    of_queue.check_count(len(tags))
    added = of_queue.checked(tags.items())
    await queues.change_tags(call.engine, call.caller, queue, of_queue.adding(added))


async def untag_queue(call: AwsCall) -> None:
    queue = await call.queue()
    keys = call.required("TagKeys", may_be_empty=False)
    of_queue = rules(queue.name)
    for key in keys:
        of_queue.check_key(key)
    await queues.change_tags(call.engine, call.caller, queue, removing(keys))


async def list_queue_tags(call: AwsCall) -> Members:
    queue = await queues.look(call.engine, call.caller, await call.queue())
    return {"Tags": dict(queue.tags) or None}


_ACTIONS = frozenset({*SQS.actions, "*"})


async def add_permission(call: AwsCall) -> None:
    """Add a statement that allows the accounts to use these actions on the queue."""
    queue = await call.queue()
    label = _checked_label(call)
    accounts = call.required("AWSAccountIds", may_be_empty=False)
    actions = call.required("Actions", may_be_empty=False)
    _check_actions(actions)
    for account in accounts:
        if not aws_rules.is_principal(account):
            raise invalid_value("PrincipalId", account, "Unable to verify.")
    qualified = [f"SQS:{action}" for action in actions]
    statement = aws_rules.permission_statement(label, accounts, qualified, queue.arn)

    def add(attributes: Mapping[str, str]) -> Mapping[str, str]:
        policy = _policy(queue, attributes)
        if aws_rules.without_label(policy, label) is not None:
            raise invalid_value("Label", label, "Already exists.")
        policy["Statement"].append(statement)
        text = orjson.dumps(policy)
        if len(text) > AWS.policy_bytes:
            raise OverLimit(f"The policy is larger than {AWS.policy_bytes} bytes.")
        return {**attributes, "Policy": text.decode()}

    await queues.change_attributes(call.engine, call.caller, queue, add)


def _check_actions(actions: Sequence[str]) -> None:
    if len(actions) > AWS.permission_actions:
        raise OverLimit(
            f"{len(actions)} Actions were found, maximum allowed is {AWS.permission_actions}."
        )
    for action in actions:
        if action in OF_OWNERS:
            raise InvalidParameterValue("Only the queue owner is allowed to invoke this action.")
        if action not in _ACTIONS:
            reason = "Please refer to the appropriate WSDL for a list of valid actions."
            raise invalid_value("ActionName", f"SQS:{action}", reason)


def _checked_label(call: AwsCall) -> str:
    label: str = call.required("Label")
    if not names.is_label(label):
        reason = (
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
        )
        raise invalid_value("Label", label, reason)
    return label


def _policy(queue: Queue, attributes: Mapping[str, str]) -> aws_rules.PolicyDocument:
    """Return the queue's policy, or AWS's empty initial policy."""
    text = attributes.get("Policy")
    if text is None:
        return {"Version": "2008-10-17", "Id": f"{queue.arn}/SQSDefaultPolicy", "Statement": []}
    return aws_rules.read_policy(text)


async def remove_permission(call: AwsCall) -> None:
    """Remove the statement with that label. The policy is removed with its last statement."""
    queue = await call.queue()
    label = _checked_label(call)

    def remove(attributes: Mapping[str, str]) -> Mapping[str, str]:
        policy = aws_rules.without_label(_policy(queue, attributes), label)
        if policy is None:
            raise invalid_value("Label", label, "can't find label.")
        text = orjson.dumps(policy).decode() if policy["Statement"] else ""
        return {**attributes, "Policy": text}

    await queues.change_attributes(call.engine, call.caller, queue, remove)


_FAILURES: Mapping[str, str] = {
    MoveFailure.QUEUE_GONE: "AWS.SimpleQueueService.NonExistentQueue",
    MoveFailure.SOURCE_UNKNOWN: "CouldNotDetermineMessageSource",
    MoveFailure.TOO_LONG: "The task ran longer than 36 hours.",
}


async def start_message_move_task(call: AwsCall) -> Members:
    members = call.members
    rate = members.get("MaxNumberOfMessagesPerSecond")
    most = AWS.move_rate_per_second
    check_range("MaxNumberOfMessagesPerSecond", rate, most)
    source, destination = call.required("SourceArn"), members.get("DestinationArn")
    task = await dead_letter_moves.start_move(call.engine, call.caller, source, destination, rate)
    return {"TaskHandle": _handle(task)}


async def cancel_message_move_task(call: AwsCall) -> Members:
    handle = call.required("TaskHandle")
    task_id, source_arn = _read_handle(handle)
    task = await dead_letter_moves.cancel_move(call.engine, call.caller, source_arn, task_id)
    return {"ApproximateNumberOfMessagesMoved": task.moved_count}


async def list_message_move_tasks(call: AwsCall) -> Members:
    """List the newest tasks of a source, by default one."""
    source, max_results = call.required("SourceArn"), call.members.get("MaxResults")
    check_range("MaxResults", max_results, call.engine.limits.move_tasks_listed)
    limit = 1 if max_results is None else max_results
    tasks = await dead_letter_moves.list_moves(call.engine, call.caller, source, limit)
    return {"Results": [_task(task) for task in tasks] or None}


def _task(task: MoveTask) -> Members:
    reason = task.failure_reason
    return {
        "TaskHandle": _handle(task) if task.status == "RUNNING" else None,
        "Status": task.status,
        "SourceArn": task.source_arn,
        "DestinationArn": task.destination_arn,
        "MaxNumberOfMessagesPerSecond": task.max_per_second,
        "ApproximateNumberOfMessagesMoved": task.moved_count,
        "ApproximateNumberOfMessagesToMove": task.to_move_count,
        # Tasks that failed before codes were stored have a text.
        "FailureReason": reason and _FAILURES.get(reason, reason),
        "StartedTimestamp": int(task.started_at.timestamp() * 1000),
    }


def _handle(task: MoveTask) -> str:
    content = {"taskId": str(task.task_id), "sourceArn": task.source_arn}
    return b64encode(orjson.dumps(content)).decode("ascii")


def _read_handle(handle: str) -> tuple[UUID, str]:
    """Return the task id and the source ARN of a handle."""
    try:
        if len(handle) > AWS.move_handle_length:
            raise ValueError(handle)
        content = orjson.loads(b64decode(handle, validate=True))
        source_arn = content["sourceArn"]
        arns.parse_queue(source_arn)
        return UUID(content["taskId"]), source_arn
    except (binascii.Error, ValueError, KeyError, TypeError, AttributeError, Malformed):
        raise InvalidParameterValue("Value for parameter TaskHandle is invalid.") from None


_ACCOUNT = re.compile(r"[0-9]{12}")
_PREFIX = re.compile(r"[A-Za-z0-9_.-]{0,80}")


async def create_queue(call: AwsCall) -> Members:
    """Create a queue, or return the existing one that has every attribute of the request. Tags of
    an existing queue are neither compared nor changed."""
    members = call.members
    given, tags = members.get("Attributes") or {}, members.get("tags") or {}
    name = _checked_name(call, given)
    wanted = sqs_queue_attributes.normalise(given, is_fifo=queues.is_fifo_name(name))
    attributes = sqs_queue_attributes.merge({}, wanted)
    of_queue = rules(name)
    of_queue.check_count(len(tags))
    request = queues.CreateQueue(
        name,
        attributes,
        of_queue.checked(tags.items()),
        dead_letter_of(attributes),
        blocked_seconds=call.engine.rules.queue_recreate_seconds,
    )
    with worded(given):
        queue, is_new = await queues.create_queue(call.engine, call.caller, request)
    differs = None if is_new else sqs_queue_attributes.first_difference(queue, wanted)
    if differs is not None:
        raise QueueNameExists(differs)
    if is_new:
        policies.warn_of(given.get("Policy"), PolicyKind.RESOURCE, queue.arn)
    return {"QueueUrl": call.queue_url(queue.region, queue.account_id, queue.name)}


def _checked_name(call: AwsCall, attributes: Mapping[str, str]) -> str:
    name: str = call.required("QueueName")
    is_fifo = attributes.get("FifoQueue", "").lower() == "true"
    if is_fifo != name.endswith(names.FIFO_SUFFIX):
        raise QueueNameInvalid(name, is_fifo=True)
    return name


async def get_queue_url(call: AwsCall) -> Members:
    name = call.members.get("QueueName")
    if not name:
        raise InvalidParameterValue(
            "Value for parameter QueueName is invalid. Reason: Must specify a queue name."
        )
    account_id = call.members.get("QueueOwnerAWSAccountId") or call.caller.account_id
    known = names.is_standard_queue_name(name) or names.is_fifo_queue_name(name)
    if not known or _ACCOUNT.fullmatch(account_id) is None:
        raise QueueDoesNotExist
    queue = await call.find(QueueAddress(account_id, name))
    return {"QueueUrl": call.queue_url(queue.region, queue.account_id, queue.name)}


async def list_queues(call: AwsCall) -> Members:
    """List live queues by name, in byte order. Without MaxResults there is no next page."""
    caller = call.caller
    max_results = call.members.get("MaxResults")
    size = page_size(max_results, AWS.queues_page)
    after = last_of("queues", call.members.get("NextToken"))
    prefix = call.members.get("QueueNamePrefix") or ""
    if _PREFIX.fullmatch(prefix) is None:
        return {"QueueUrls": None, "NextToken": None}
    found, has_more = await queues.list_names(
        call.engine, caller, prefix=prefix, after=after, limit=size
    )
    token = None
    if max_results is not None and has_more:
        token = token_behind("queues", found[-1])
    urls = [call.queue_url(caller.region, caller.account_id, name) for name in found]
    return {"QueueUrls": urls or None, "NextToken": token}


async def list_dead_letter_source_queues(call: AwsCall) -> Members:
    """List the queues whose redrive policy names this queue, oldest first."""
    queue = await call.queue()
    max_results = call.members.get("MaxResults")
    size = page_size(max_results, AWS.queues_page)
    last = last_of("sources", call.members.get("NextToken")) or "0"
    if not last.isdigit() or len(last) > 9:
        raise InvalidParameterValue("Invalid or expired next token.")
    found, has_more = await queues.list_dead_letter_sources(
        call.engine, call.caller, queue, after_queue_id=int(last), limit=size
    )
    token = None
    if max_results is not None and has_more:
        token = token_behind("sources", str(found[-1].queue_id))
    urls = [call.queue_url(queue.region, queue.account_id, source.name) for source in found]
    return {"queueUrls": urls or None, "NextToken": token}


async def delete_queue(call: AwsCall) -> None:
    await queues.delete_queue(call.engine, call.caller, await call.queue())


async def purge_queue(call: AwsCall) -> None:
    """Purge a queue. A second purge within 60 s is refused, because clients rely on it
    (docs/contract/sqs.md 2.1)."""
    seconds = call.engine.rules.purge_interval_seconds
    queue = await call.queue()
    await queues.purge_queue(call.engine, call.caller, queue, interval_seconds=seconds)


async def get_queue_attributes(call: AwsCall) -> Members:
    """Return the requested attributes that the queue has; without names none."""
    queue = await call.queue()
    wanted = sqs_queue_attributes.wanted_names(call.members.get("AttributeNames") or ())
    counts = None
    if sqs_queue_attributes.need_counts(wanted):
        queue, counts = await queues.count(call.engine, call.caller, queue)
    else:
        queue = await queues.look(call.engine, call.caller, queue)
    return {"Attributes": sqs_queue_attributes.read(queue, wanted, counts) or None}


async def set_queue_attributes(call: AwsCall) -> None:
    """Change all given attributes or none; "" unsets an attribute that can be unset."""
    queue = await call.queue()
    given = call.required("Attributes")
    changes = sqs_queue_attributes.normalise(given, is_fifo=queue.is_fifo)
    with worded(given):
        await queues.change_attributes(
            call.engine,
            call.caller,
            queue,
            lambda attributes: sqs_queue_attributes.merge(attributes, changes),
            dead_letter_arn=dead_letter_of(changes),
        )
    policies.warn_of(given.get("Policy"), PolicyKind.RESOURCE, queue.arn)

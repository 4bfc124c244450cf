"""Targets of EventBridge Scheduler (docs/contract/scheduler.md 4.2).

Queues and topics are targets, templated or universal. The outbox keeps the calls to all other
targets. As on AWS, the queue or topic need not exist: a failed invocation is retried and ends in
the dead-letter queue.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from queuegate.gateway.faces.aws import aws_message_attributes
from queuegate.gateway.faces.aws.aws_refusals import text_of
from queuegate.gateway.faces.aws.aws_rules import json_object
from queuegate.gateway.operations.access import authorization
from queuegate.gateway.operations.access.authorization import check_elsewhere, check_right
from queuegate.gateway.operations.queues.json_messages import stored
from queuegate.gateway.operations.schedules.stored_schedules import (
    StoredTarget,
    queue_target,
    topic_target,
)
from queuegate.protocol import arns, json_wire, names
from queuegate.protocol.malformed import Malformed, refusing
from queuegate.protocol.scheduler_shapes import PARAMETERS, SERVICES, UNIVERSAL
from queuegate.protocol.sns_shapes import SNS
from queuegate.protocol.sqs_shapes import SQS
from queuegate.protocol.urls import queue_from_url
from queuegate.storage.storage_errors import (
    IdInvalid,
    InvalidParameterValue,
    Rejected,
    ScheduleInvalid,
    UnsupportedOperation,
)

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.engine import Engine


SEND_MESSAGE = "arn:aws:scheduler:::aws-sdk:sqs:sendMessage"
PUBLISH = "arn:aws:scheduler:::aws-sdk:sns:publish"
_NO_INPUT = "{}"
_UNIVERSAL = re.compile(rf"{UNIVERSAL}:[a-z0-9]{{1,64}}:[A-Za-z0-9]{{1,128}}")


def stored_target(engine: Engine, caller: Caller, target: Mapping[str, Any]) -> StoredTarget:
    """Return the target of a schedule as it is stored. Raises ScheduleInvalid."""
    arn = target["Arn"]
    parsed = _parsed(arn)
    for name in PARAMETERS:
        if name in target and name not in SERVICES.get(parsed.service, ()):
            raise ScheduleInvalid(f"{name} does not go with the target {arn}.")
    text = _checked_input(engine, target.get("Input"))
    group_id = (target.get("SqsParameters") or {}).get("MessageGroupId")
    if group_id is not None and not names.is_fifo_id(group_id):
        raise ScheduleInvalid(
            "MessageGroupId can only include alphanumeric and punctuation characters."
        )
    if parsed.service == "sqs":
        return _queue(parsed, text or _NO_INPUT, group_id)
    if target.get("SqsParameters"):
        raise ScheduleInvalid("SqsParameters go with a target that is the ARN of a queue only.")
    if arn in (SEND_MESSAGE, PUBLISH):
        return _universal(engine, caller, arn, text)
    if parsed.service == "sns":
        return _topic(parsed, text or _NO_INPUT)
    return {
        "kind": "outbox",
        "protocol": UNIVERSAL if parsed.service == "scheduler" else parsed.service,
        "arn": arn,
        "message": text or _NO_INPUT,
        "substitutes": True,
    }


def _parsed(text: str) -> arns.Arn:
    """Parse the ARN of a target: a queue, a topic, a templated target or an SDK action. Raises
    ScheduleInvalid."""
    with refusing(_no_target(text)):
        arn = arns.parse(text)
        if arn.service == "sqs":
            return arns.parse_queue(text)
        if arn.service == "sns":
            return arns.parse_topic(text)
    is_universal = arn.service == "scheduler" and _UNIVERSAL.fullmatch(arn.resource)
    if arn.service not in SERVICES and not is_universal:
        raise _no_target(text)
    return arn


def _no_target(text: str) -> ScheduleInvalid:
    return ScheduleInvalid(
        f"Provided Arn is not in correct format: {text}. A target is a queue "
        "(arn:aws:sqs:<region>:<account>:<name>), a topic (arn:aws:sns:<region>:<account>:<name>), "
        f"something of {', '.join(SERVICES)}, or "
        f"arn:aws:scheduler:::{UNIVERSAL}:<service>:<action>."
    )


def dead_letter(target: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the dead-letter queue of a target; None: there is none."""
    arn = (target.get("DeadLetterConfig") or {}).get("Arn")
    if arn is None:
        return None
    with refusing(ScheduleInvalid(f"DeadLetterConfig has the ARN of no queue: {arn}.")):
        parsed = arns.parse_queue(arn)
    return _place(parsed, "queue_name")


def check_rights(engine: Engine, caller: Caller, kept: Mapping[str, Any]) -> None:
    """Check the caller's right to send to the target or to publish. The policy of another account's
    queue or topic is asked when the schedule fires."""
    place = kept.get("region", ""), kept.get("account_id", "")
    check = check_right if place[1] == caller.account_id else check_elsewhere
    if kept.get("queue_name"):
        check(engine, caller, authorization.SEND, arns.queue_arn(*place, kept["queue_name"]))
    elif kept.get("topic_name"):
        check(engine, caller, authorization.PUBLISH, arns.topic_arn(*place, kept["topic_name"]))


def _checked_input(engine: Engine, text: str | None) -> str | None:
    if text is None:
        return None
    most = engine.limits.message_bytes
    if len(text.encode()) > most:
        raise ScheduleInvalid(f"Input is longer than the {most} bytes that a message may have.")
    if names.invalid_characters(text):
        raise ScheduleInvalid("Input has characters that no message may have.")
    return text


def _place(arn: arns.Arn, name: str) -> dict[str, str]:
    return {"account_id": arn.account_id, "region": arn.region, name: arn.resource}


def _queue(arn: arns.Arn, body: str, group_id: str | None) -> StoredTarget:
    if arn.resource.endswith(".fifo") and group_id is None:
        raise ScheduleInvalid("A FIFO queue needs a MessageGroupId in SqsParameters.")
    return queue_target(_place(arn, "queue_name"), body, group_id=group_id, substitutes=True)


def _topic(arn: arns.Arn, message: str) -> StoredTarget:
    if arn.resource.endswith(".fifo"):
        raise ScheduleInvalid(
            f"A FIFO topic needs a MessageGroupId: use the target {PUBLISH}, whose Input can have "
            "one."
        )
    return topic_target(_place(arn, "topic_name"), message, substitutes=True)


def _universal(engine: Engine, caller: Caller, arn: str, text: str | None) -> StoredTarget:
    """Return the target for the request in Input. Input must be a JSON object. Any other fault
    fails the invocations instead."""
    if text is None or json_object(text) is None:
        raise ScheduleInvalid(f"The Input for {arn} must be the request as a JSON object.")
    make = _send_message if arn == SEND_MESSAGE else _publish
    try:
        target = make(engine, caller, text.encode())
    except (Rejected, Malformed) as error:
        reason = text_of(error, is_query=False) if isinstance(error, Rejected) else str(error)
        place = {"account_id": caller.account_id, "region": caller.region}
        if arn == SEND_MESSAGE:
            target = queue_target({**place, "queue_name": ""}, text, error=reason)
        else:
            target = topic_target({**place, "topic_name": ""}, text, error=reason)
    return {**target, "arn": arn, "substitutes": True}


def _send_message(engine: Engine, caller: Caller, encoded: bytes) -> StoredTarget:
    members = json_wire.decode(SQS.actions["SendMessage"].input, encoded)
    address = queue_from_url(members.get("QueueUrl") or "")
    if address is None:
        raise InvalidParameterValue("The Input has no QueueUrl that names a queue.")
    if members.get("MessageBody") is None:
        raise InvalidParameterValue("The Input has no MessageBody.")
    if members.get("MessageSystemAttributes"):
        raise UnsupportedOperation("A schedule sends no MessageSystemAttributes.")
    place = {
        "account_id": address.account_id or caller.account_id,
        "region": address.region or caller.region,
        "queue_name": address.name,
    }
    _check_send(engine, members, is_fifo=address.name.endswith(".fifo"))
    checked = aws_message_attributes.check(members.get("MessageAttributes"), engine.limits)
    return queue_target(
        place,
        members["MessageBody"],
        attributes=checked.stored,
        group_id=members.get("MessageGroupId"),
        deduplication_id=members.get("MessageDeduplicationId"),
        delay_seconds=members.get("DelaySeconds"),
    )


def _check_send(engine: Engine, members: Mapping[str, Any], *, is_fifo: bool) -> None:
    """Check ids and delay by the kind of queue (docs/contract/sqs.md 2.1)."""
    delay, most = members.get("DelaySeconds"), engine.limits.delay_seconds
    if delay is not None and (is_fifo or not 0 <= delay <= most):
        reason = "a FIFO queue has one for all messages" if is_fifo else f"it is 0 to {most}"
        raise InvalidParameterValue(f"DelaySeconds {delay} is invalid: {reason}.")
    group_id = members.get("MessageGroupId")
    deduplication_id = members.get("MessageDeduplicationId")
    if is_fifo and group_id is None:
        raise InvalidParameterValue("The Input has no MessageGroupId, which a FIFO queue needs.")
    if not is_fifo and deduplication_id is not None:
        raise InvalidParameterValue("MessageDeduplicationId is for FIFO queues only.")
    if group_id is not None and not names.is_fifo_id(group_id):
        raise IdInvalid("group_id", group_id)
    if deduplication_id is not None and not names.is_fifo_id(deduplication_id):
        raise IdInvalid("deduplication_id", deduplication_id)


def _publish(_: Engine, __: Caller, encoded: bytes) -> StoredTarget:
    members = json_wire.decode(SNS.actions["Publish"].input, encoded)
    if members.get("PhoneNumber") is not None:
        raise UnsupportedOperation("A schedule publishes to topics, not to phone numbers.")
    arn = arns.parse_topic(members.get("TopicArn") or members.get("TargetArn") or "")
    if members.get("Message") is None:
        raise InvalidParameterValue("The Input has no Message.")
    values = members.get("MessageAttributes")
    return topic_target(
        _place(arn, "topic_name"),
        members["Message"],
        subject=members.get("Subject"),
        attributes=stored(values) if values else None,
        structure=members.get("MessageStructure"),
        group_id=members.get("MessageGroupId"),
        deduplication_id=members.get("MessageDeduplicationId"),
    )

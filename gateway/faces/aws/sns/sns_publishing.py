"""Publish and PublishBatch, and the checks of messages (docs/contract/sns.md 3.2 and 3.5).

Publishing to a topic is a hot action, shared by the ordinary path and the fast path. A message to
one push endpoint or phone number is stored in the outbox and sent nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from queuegate.gateway.faces.aws import aws_refusals
from queuegate.gateway.faces.aws.aws_face import AwsCall, HotAction, Members, published_topic
from queuegate.gateway.faces.aws.aws_refusals import (
    InvalidParameter,
    ParameterValueInvalid,
    ValidationFailed,
)
from queuegate.gateway.faces.aws.aws_rules import AWS
from queuegate.gateway.faces.aws.sns import mobile_push
from queuegate.gateway.faces.aws.sns.sns_members import checked_topic_arn
from queuegate.gateway.faces.aws.sns.sns_sms import number_to_publish_to
from queuegate.gateway.operations.access.authorization import find_audience
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.queues.json_messages import Values
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.runtime.replies import Reply, answered
from queuegate.gateway.operations.topics import mobile, topic_publishing
from queuegate.gateway.operations.topics.fan_out import FanOutMessage, Publisher
from queuegate.gateway.operations.topics.topic_cache import Audience
from queuegate.gateway.operations.topics.topic_publishing import (
    PublishMessage,
    PublishResult,
    outgoing,
)
from queuegate.protocol import names
from queuegate.storage.model import Topic
from queuegate.storage.storage_errors import (
    BatchEntryIdsNotDistinct,
    BatchRequestTooLong,
    InvalidBatchEntryId,
    PriorEntryRefused,
    Rejected,
    TooManyEntriesInBatchRequest,
)

_SUBJECT_CHARACTERS = 100
_NAME_BYTES = 256
_NAME_TEXT = (
    " was found in the message attribute name. Can only include alphanumeric characters, hyphens, "
    "underscores, or dots."
)
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.")


def check(
    engine: Engine, topic: Topic, request: PublishMessage, *, is_of_batch: bool = False
) -> FanOutMessage:
    """Check one message. The limit of bytes applies to all messages of a batch together."""
    message, subject, structure, attributes, _, _, _ = request
    encoded = check_message(message)
    if subject is not None:
        check_subject(subject)
    texts = check_structure(structure, message) if structure and message else None
    attribute_bytes = check_attributes(attributes) if attributes else 0
    new = outgoing(
        engine,
        topic,
        request,
        message_bytes=len(encoded),
        attribute_bytes=attribute_bytes,
        texts=texts,
    )
    if new.size_bytes > topic.maximum_message_bytes and not is_of_batch:
        raise InvalidParameter("Message too long")
    return new


def check_message(message: str | None) -> bytes:
    """Return the message in UTF-8. It must be present, not empty, and valid for queues."""
    if message is None:
        raise ValidationFailed("message")
    if not message:
        raise InvalidParameter("Empty message")
    try:
        encoded = message.encode()
    except UnicodeEncodeError:
        raise InvalidParameter("Message Reason: the message is not valid Unicode") from None
    if names.invalid_utf8(encoded):
        raise InvalidParameter("Message Reason: the message has characters that XML cannot express")
    return encoded


def check_subject(subject: str | None) -> None:
    """Check the subject: 1 to 100 characters on one line."""
    if subject is None:
        return
    if (
        not 1 <= len(subject) <= _SUBJECT_CHARACTERS
        or names.invalid_characters(subject)
        or any(character < " " or character == "\x7f" for character in subject)
    ):
        raise InvalidParameter("Subject")


def check_structure(structure: str | None, message: str) -> dict[str, str] | None:
    """Return the texts by protocol of a message in JSON; None for a plain message."""
    if structure is None or structure == "":
        return None
    if structure != "json":
        raise InvalidParameter("MessageStructure")
    try:
        members = orjson.loads(message)
    except (ValueError, RecursionError):
        members = None
    if not isinstance(members, dict):
        raise InvalidParameter("Message Structure - JSON message body failed to parse")
    texts = {name: text for name, text in members.items() if isinstance(text, str)}
    if "default" not in texts:
        raise InvalidParameter("Message Structure - No default entry in JSON message body")
    if any(names.invalid_characters(text) for text in texts.values()):
        raise InvalidParameter("Message Reason: the message has characters that XML cannot express")
    return texts


def check_attributes(values: Values | None) -> int:
    """Return the bytes of message attributes. Raises ParameterValueInvalid."""
    size = 0
    for name, value in (values or {}).items():
        _check_name(name)
        size += len(name.encode()) + _check_value(name, value)
    return size


def _check_name(name: str) -> None:
    if len(name.encode(errors="replace")) > _NAME_BYTES:
        raise ParameterValueInvalid("Length of message attribute name must be less than 256 bytes.")
    if not name:
        raise ParameterValueInvalid("The message attribute name must not be empty.")
    for character in name:
        if character not in _PLAIN and (character < "\x80" or names.invalid_characters(character)):
            raise ParameterValueInvalid(
                f"Invalid non-alphanumeric character '#x{ord(character):X}'{_NAME_TEXT}"
            )
    for place, character in (("starting", name[0]), ("ending", name[-1])):
        if character == ".":
            raise ParameterValueInvalid(
                f"Invalid message attribute name {place} with character '.' was found."
            )
    if ".." in name:
        raise ParameterValueInvalid("Message attribute name can not have successive '.' character.")


def _check_value(name: str, value: Mapping[str, Any]) -> int:
    data_type = value.get("DataType")
    if data_type is None:
        raise ValidationFailed(f"messageAttributes.{name}.member.dataType")
    if not names.is_topic_data_type(data_type):
        raise ParameterValueInvalid(
            f"The message attribute '{name}' has an invalid message attribute type, the set of "
            "supported type prefixes is Binary, Number, and String."
        )
    kind = names.base_type(data_type)
    field, other = ("Binary", "String") if kind == "Binary" else ("String", "Binary")
    payload = value.get(f"{field}Value")
    if not payload:
        if value.get(f"{other}Value"):
            raise ParameterValueInvalid(
                f"The message attribute '{name}' with type '{data_type}' must use field '{field}'."
            )
        raise ParameterValueInvalid(
            f"The message attribute '{name}' must contain non-empty message attribute value for "
            f"message attribute type '{data_type}'."
        )
    type_bytes = len(data_type.encode())
    if isinstance(payload, bytes):
        return type_bytes + len(payload)
    if names.invalid_characters(payload):
        raise ParameterValueInvalid(
            f"The message attribute '{name}' has characters that XML cannot express."
        )
    if kind == "Number" and not names.is_number(payload):
        raise ParameterValueInvalid(f"Could not cast message attribute '{name}' value to number.")
    return type_bytes + len(payload.encode())


_SMS_CHARACTERS = 1_600


async def send_text(
    engine: Engine, caller: Caller, phone_number: str, request: PublishMessage
) -> str:
    """Store an SMS and return its id. Refuses invalid numbers and numbers that opted out."""
    text = _checked(request, ("sms",))
    if len(text) > _SMS_CHARACTERS:
        raise aws_refusals.InvalidParameter("Message too long")
    number = await number_to_publish_to(engine, caller, phone_number)
    return await mobile.keep(engine, caller, "sms", number, text, request)


async def push(engine: Engine, caller: Caller, target_arn: str, request: PublishMessage) -> str:
    """Store a message to a push endpoint and return its id. Refuses absent and disabled
    endpoints."""
    endpoint = await mobile_push.endpoint_for_publish(engine, caller, target_arn)
    text = _checked(request, (endpoint.platform, "default"))
    return await mobile.keep(engine, caller, "application", target_arn, text, request)


def _checked(request: PublishMessage, keys: tuple[str, ...]) -> str:
    """Return the text for the first of these keys in a message in JSON."""
    encoded = check_message(request.message)
    assert request.message is not None
    check_subject(request.subject)
    size = len(encoded) + check_attributes(request.attributes)
    if size > LIMITS.published_bytes:
        raise aws_refusals.InvalidParameter("Message too long")
    texts = check_structure(request.structure, request.message)
    if texts is None:
        return request.message
    return next((texts[key] for key in keys if key in texts), texts["default"])


_NO_TARGET = "TopicArn or TargetArn Reason: no value for required parameter"


class TopicContext(NamedTuple):
    """The context of a request to publish."""

    engine: Engine
    publisher: Publisher
    audience: Audience

    @property
    def caller(self) -> Caller:
        """Return the caller that publishes."""
        return self.publisher.caller

    def traced(self, trace_header: str) -> TopicContext:
        """Return the context with this trace header, unless the client sent one."""
        if self.publisher.trace_header:
            return self
        return self._replace(publisher=self.publisher._replace(trace_header=trace_header))

    @property
    def arn(self) -> str:
        """Return the ARN of the topic."""
        return self.audience.topic.arn


def _to_publish(members: Members) -> PublishMessage:
    return PublishMessage(
        members.get("Message"),
        members.get("Subject"),
        members.get("MessageStructure"),
        members.get("MessageAttributes"),
        members.get("MessageGroupId"),
        members.get("MessageDeduplicationId"),
    )


def _published_members(published: PublishResult) -> Members:
    members: Members = {"MessageId": published.message_id}
    if published.sequence_number is not None:
        members["SequenceNumber"] = published.sequence_number
    return members


def _start_publish(
    context: TopicContext, members: Members, reply: Reply[list[PublishResult]]
) -> None:
    engine, publisher, audience = context
    message = check(engine, audience.topic, _to_publish(members))
    topic_publishing.publish(engine, publisher, audience, [message], reply)


def _finish_publish(_: TopicContext, __: Members, published: list[PublishResult]) -> Members:
    return _published_members(published[0])


Outcomes = list[PublishResult | Rejected]


class _Batch:
    """A reply that merges published messages with refused entries of a batch."""

    __slots__ = ("_count", "_refused", "_reply", "failed")

    def __init__(self, count: int, refused: dict[int, Rejected], reply: Reply[Outcomes]) -> None:
        self._count = count
        self._refused = refused
        self._reply = reply
        self.failed = reply.failed

    def done(self, published: list[PublishResult]) -> None:
        left, refused = iter(published), self._refused
        self._reply.done([refused.get(place) or next(left) for place in range(self._count)])


def _start_batch(context: TopicContext, members: Members, reply: Reply[Outcomes]) -> None:
    engine, publisher, audience = context
    entries = _checked_entries(members.get("PublishBatchRequestEntries"))
    good, refused = _checked_messages(context, entries)
    batch = _Batch(len(entries), refused, reply)
    if good:
        topic_publishing.publish(engine, publisher, audience, good, batch)
    else:
        batch.done([])


def _checked_messages(
    context: TopicContext, entries: Sequence[Members]
) -> tuple[list[FanOutMessage], dict[int, Rejected]]:
    """Return valid messages, and refusals by index. Refused alone are an empty message and, on a
    FIFO topic, later messages of its group. Any other fault fails the whole batch."""
    engine, _, audience = context
    refused: dict[int, Rejected] = {}
    closed: set[str | None] = set()
    good: list[FanOutMessage] = []
    total = 0
    for place, entry in enumerate(entries):
        group_id = entry.get("MessageGroupId")
        if entry.get("Message") == "":
            refused[place] = aws_refusals.InvalidParameter("Empty message")
            if audience.topic.is_fifo:
                closed.add(group_id)
            continue
        try:
            message = check(engine, audience.topic, _to_publish(entry), is_of_batch=True)
        except aws_refusals.ValidationFailed as refusal:
            raise refusal.within(f"publishBatchRequestEntries.{place + 1}.member") from None
        total += message.size_bytes
        if closed and group_id in closed:
            refused[place] = PriorEntryRefused(group_id or "")
        else:
            good.append(message)
    if total > audience.topic.maximum_message_bytes:
        raise BatchRequestTooLong(
            "The length of all the messages put together is more than the limit."
        )
    return good, refused


def _checked_entries(entries: Sequence[Members] | None) -> Sequence[Members]:
    """Apply the rules that fail a batch as a whole (docs/contract/sns.md 3.5)."""
    if entries is None:
        raise aws_refusals.ValidationFailed("publishBatchRequestEntries")
    if not entries:
        raise aws_refusals.ValidationFailed(
            "publishBatchRequestEntries",
            "'[]'",
            "Member must have length greater than or equal to 1",
        )
    if len(entries) > AWS.batch_entries:
        raise TooManyEntriesInBatchRequest(
            "The batch request contains more entries than permissible."
        )
    for number, entry in enumerate(entries, 1):
        entry_id = entry.get("Id")
        if entry_id is None:
            raise aws_refusals.ValidationFailed(f"publishBatchRequestEntries.{number}.member.id")
        if len(entry_id) > AWS.batch_entry_id_length:
            raise InvalidBatchEntryId(
                f"The Id of a batch entry in the batch request is too long: {entry_id}"
            )
        if not names.is_batch_entry_id(entry_id):
            raise InvalidBatchEntryId(
                "The Id of a batch entry in the batch request contains an impermissible "
                f"character: {entry_id}"
            )
    if len({entry["Id"] for entry in entries}) < len(entries):
        raise BatchEntryIdsNotDistinct("Two or more batch entries in the request have the same Id.")
    return entries


def _finish_batch(_: TopicContext, members: Members, outcomes: Outcomes) -> Members:
    successful: list[Members] = []
    failed: list[Members] = []
    for entry, outcome in zip(members["PublishBatchRequestEntries"], outcomes, strict=True):
        if isinstance(outcome, Rejected):
            failed.append(aws_refusals.failed_entry("sns", entry["Id"], outcome))
        else:
            successful.append({"Id": entry["Id"], **_published_members(outcome)})
    return {"Failed": failed, "Successful": successful}


HOT: dict[str, HotAction[TopicContext, Any]] = {
    "Publish": HotAction(_start_publish, _finish_publish),
    "PublishBatch": HotAction(_start_batch, _finish_batch),
}
"""Hot actions on topics."""


async def _to_topic(call: AwsCall, pair: HotAction[TopicContext, Any], member: str) -> Members:
    arn = checked_topic_arn(call.caller, published_topic(call.members), member)
    audience = await find_audience(call.engine, call.caller, call.right, arn)
    publisher = Publisher(
        call.caller, call.request.links_url, call.request.headers.get("x-amzn-trace-id")
    )
    context = TopicContext(call.engine, publisher, audience)
    result = await answered(pair.start, context, call.members)
    return pair.finish(context, call.members, result) or {}


async def publish(call: AwsCall) -> Members:
    """Publish to a topic, a push endpoint or a phone number."""
    members = call.members
    given = [name for name in ("TopicArn", "TargetArn", "PhoneNumber") if members.get(name)]
    if not given and "TopicArn" in members:
        checked_topic_arn(call.caller, members["TopicArn"])
    if not given:
        raise aws_refusals.InvalidParameter(_NO_TARGET)
    if published_topic(members) is not None:
        member = "topicArn" if "TopicArn" in given else "targetArn"
        return await _to_topic(call, HOT["Publish"], member)
    engine, caller, message = call.engine, call.caller, _to_publish(members)
    if members.get("PhoneNumber"):
        phone_number = members["PhoneNumber"]
        message_id = await send_text(engine, caller, phone_number, message)
    else:
        target_arn = members.get("TargetArn") or members["TopicArn"]
        message_id = await push(engine, caller, target_arn, message)
    return {"MessageId": message_id}


async def publish_batch(call: AwsCall) -> Members:
    """Publish a batch to a topic. Each entry succeeds or fails."""
    return await _to_topic(call, HOT["PublishBatch"], "topicArn")

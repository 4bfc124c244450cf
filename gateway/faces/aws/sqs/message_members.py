"""Messages as AWS's members: request members to operations' requests, results to response members.

The ordinary path and the fast path share these, so that they cannot come apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from queuegate.gateway.faces.aws import message_attributes
from queuegate.gateway.faces.aws.limits import AWS
from queuegate.gateway.faces.aws.refusals import failed_entry
from queuegate.gateway.faces.aws.sqs.receiving import ReceiveMessage
from queuegate.gateway.faces.aws.sqs.sending import SendMessage, Sent
from queuegate.protocol import names, sequence_numbers
from queuegate.protocol.attribute_values import with_bytes
from queuegate.protocol.digests import md5_of_attributes, md5_of_body
from queuegate.storage.errors import (
    BatchEntryIdsNotDistinct,
    EmptyBatchRequest,
    InvalidBatchEntryId,
    Rejected,
    TooManyEntriesInBatchRequest,
)
from queuegate.storage.model import Received

Members = dict[str, Any]
# A named tuple is made by a function of its own otherwise: three times the time.
_new = tuple.__new__

_ID_TEXT = (
    "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be "
    "at most 80 letters long."
)


def to_send(members: Members, trace_header: str | None) -> SendMessage:
    """The request of SendMessage, or of one entry of a batch.

    A trace header of the HTTP request stands in for one among the system attributes (2.5).
    """
    system = members.get("MessageSystemAttributes")
    if trace_header and not (system and "AWSTraceHeader" in system):
        system = {
            **(system or {}),
            "AWSTraceHeader": {"DataType": "String", "StringValue": trace_header},
        }
    get = members.get
    return _new(
        SendMessage,
        (
            get("MessageBody"),
            get("DelaySeconds"),
            get("MessageAttributes"),
            system,
            get("MessageGroupId"),
            get("MessageDeduplicationId"),
        ),
    )


def sent_members(sent: Sent, *, explicit_system: bool, entry_id: str | None = None) -> Members:
    """The answer to one send, or to an entry of a batch; what does not apply is left out."""
    members: Members = {} if entry_id is None else {"Id": entry_id}
    members["MessageId"] = sent.message_id
    members["MD5OfMessageBody"] = sent.md5_of_body
    if sent.md5_of_attributes is not None:
        members["MD5OfMessageAttributes"] = sent.md5_of_attributes
    if explicit_system and sent.md5_of_system_attributes is not None:
        members["MD5OfMessageSystemAttributes"] = sent.md5_of_system_attributes
    if sent.sequence_number is not None:
        members["SequenceNumber"] = sent.sequence_number
    return members


def check_entries(entries: Sequence[Members] | None, kind: str) -> Sequence[Members]:
    """The rules that fail a batch as a whole, in AWS's order (docs/contract/sqs.md 2.8)."""
    if not entries:
        raise EmptyBatchRequest(f"There should be at least one {kind} in the request.")
    if len(entries) > AWS.batch_entries:
        raise TooManyEntriesInBatchRequest(
            f"Maximum number of entries per request are {AWS.batch_entries}. "
            f"You have sent {len(entries)}."
        )
    for entry in entries:
        if not names.is_batch_entry_id(entry.get("Id") or ""):
            raise InvalidBatchEntryId(_ID_TEXT)
    return entries


def check_distinct(entries: Iterable[Members]) -> None:
    """No two entries share an id; AWS looks at this after the FIFO ids."""
    seen: set[str] = set()
    for entry in entries:
        if entry["Id"] in seen:
            raise BatchEntryIdsNotDistinct(f"Id {entry['Id']} repeated.")
        seen.add(entry["Id"])


def batch_members(
    entries: Sequence[Members], outcomes: Sequence[Any], successful: Sequence[Members | None]
) -> Members:
    """Successful and Failed, in the order of the entries; empty ones are left out. ``successful``:
    the members of each that was, None where there is only its id."""
    good = []
    failed = []
    for entry, outcome, members in zip(entries, outcomes, successful, strict=True):
        if isinstance(outcome, Rejected):
            failed.append(failed_entry("sqs", entry["Id"], outcome))
        else:
            good.append(members or {"Id": entry["Id"]})
    answer: Members = {}
    if good:
        answer["Successful"] = good
    if failed:
        answer["Failed"] = failed
    return answer


class Wanted:
    """Which parts of a message a receive asked for; the same few lists come all day."""

    __slots__ = ("attributes", "everything", "system")

    def __init__(self, system: tuple[str, ...], attributes: tuple[str, ...]) -> None:
        self.everything = "All" in system
        self.system = frozenset(system)
        self.attributes = message_attributes.Selection(attributes) if attributes else None


_MOST_WANTED = 1024
_MOST_NAMES = 32
_MOST_LETTERS = 2048
_wanted: dict[tuple[tuple[str, ...], tuple[str, ...]], Wanted] = {}


def wanted(members: Members, *, is_query: bool) -> Wanted:
    """What to return: both name lists count on JSON, AttributeName decides on Query (2.5)."""
    system = members.get("AttributeNames") or ()
    newer = members.get("MessageSystemAttributeNames") or ()
    if newer and not (is_query and system):
        system = [*system, *newer]
    key = (tuple(system), tuple(members.get("MessageAttributeNames") or ()))
    found = _wanted.get(key)
    if found is None:
        found = Wanted(*key)
        names_asked = (*key[0], *key[1])
        if len(names_asked) <= _MOST_NAMES and sum(map(len, names_asked)) <= _MOST_LETTERS:
            if len(_wanted) >= _MOST_WANTED:
                _wanted.clear()
            _wanted[key] = found
    return found


def to_receive(members: Members) -> ReceiveMessage:
    """The request of ReceiveMessage."""
    return ReceiveMessage(
        members.get("MaxNumberOfMessages"),
        members.get("VisibilityTimeout"),
        members.get("WaitTimeSeconds"),
        members.get("ReceiveRequestAttemptId"),
    )


def received_members(message: Received, want: Wanted, receipt_handle: str) -> Members:
    """One message as ReceiveMessage shows it."""
    digest = message.body_md5
    members: Members = {
        "MessageId": str(message.message_id),
        "ReceiptHandle": receipt_handle,
        "MD5OfBody": digest.hex() if digest is not None else md5_of_body(message.body),
        "Body": message.body,
    }
    if want.system:
        attributes = _system_members(message, want)
        if attributes:
            members["Attributes"] = attributes
    if want.attributes is not None and message.attributes is not None:
        chosen = want.attributes.of(message.attributes)
        if chosen:
            values = with_bytes(chosen)
            members["MD5OfMessageAttributes"] = md5_of_attributes(values)
            members["MessageAttributes"] = values
    return members


def _system_members(message: Received, want: Wanted) -> dict[str, str]:
    attributes = {
        "SenderId": message.sender_id,
        "SentTimestamp": str(message.sent_at_ms),
        "ApproximateReceiveCount": str(message.receive_count),
        "ApproximateFirstReceiveTimestamp": str(message.first_received_at_ms),
    }
    if message.system is not None:
        attributes.update(message.system_members())
    if message.group_id is not None:
        attributes["MessageGroupId"] = message.group_id
        attributes["MessageDeduplicationId"] = message.deduplication_id or ""
        attributes["SequenceNumber"] = sequence_numbers.of_queue(message.sequence)
    if want.everything:
        return attributes
    return {name: value for name, value in attributes.items() if name in want.system}

"""Calls to SQS and SNS, the same for every carrier: parameters in, results out."""

from __future__ import annotations

import hashlib
import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from spark_connectors.errors import Fault, NotNow, Refused
from spark_connectors.transport.aws.error_codes import code_of
from spark_connectors.transport.http.http_retries import TransientFailure, retried

# A message in SQS's JSON protocol: MessageId, ReceiptHandle, Body, MD5OfBody, Attributes (name ->
# text), MessageAttributes (name -> DataType, StringValue, BinaryValue as bytes).
Message = Mapping[str, Any]

MOST_PER_CALL = 10
"""Of SQS and SNS; ``Transport.most_per_call`` may be more."""


class AcceptedEntry(NamedTuple):
    """An entry of a batch that the service has accepted."""

    message_id: str
    sequence_number: str | None = None


class MessageEntry(NamedTuple):
    """One message to send or publish. ``attributes``: name -> (data type, text or bytes)."""

    body: str
    attributes: Mapping[str, tuple[str, str | bytes]] = {}
    group_id: str | None = None
    deduplication_id: str | None = None
    delay_seconds: int | None = None  # queues only
    subject: str | None = None  # topics only
    message_structure: str | None = None  # topics only
    trace_header: str | None = None  # of AWS X-Ray; queues only


class AttributeNames(NamedTuple):
    """Names of attributes to receive with a message."""

    attributes: Sequence[str] = ("All",)
    system: Sequence[str] = ("All",)


EVERYTHING = AttributeNames()


class QueueFigures(NamedTuple):
    """Approximate counts of a queue, from GetQueueAttributes."""

    visible: int
    in_flight: int
    delayed: int


_log = logging.getLogger(__name__)
MOST_RECEIPTS = 1_000
_COUNTS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
_NOT_NAMED = Fault("NotAnswered", "the answer does not say what became of this entry", False)


class Carrier(Protocol):
    """Carries one call: parameters in the names of SQS's JSON protocol, blobs as bytes.

    Raises Refused, NotNow, and ConnectorError without credentials.
    """

    @property
    def place(self) -> str:
        """The endpoint of SQS, for messages."""
        ...

    def sqs(
        self, action: str, parameters: Mapping[str, object], *, wait_seconds: int = 0
    ) -> Mapping[str, Any]: ...

    def publish_batch(self, parameters: Mapping[str, object]) -> Mapping[str, Any]: ...

    def has_receipts(self) -> bool:
        """Return True if the endpoint has Queuegate's ``/v1/receipts``: up to 1,000 messages a
        call."""
        ...

    def receipts(
        self, method: str, asked: Mapping[str, object], *, wait_seconds: int = 0
    ) -> Mapping[str, Any]:
        """Return the answer to a request there; messages as SQS's, blobs as bytes."""
        ...

    def close(self) -> None: ...


class Transport:
    """Calls to one endpoint. Thread-safe; each call retries transient failures.

    Every method raises Refused, or NotNow when retries (full jitter, 8 by
    default) are used up.
    """

    def __init__(self, carrier: Carrier, max_retries: int) -> None:
        self._carrier = carrier
        self._max_retries = max_retries
        self._most: int | None = None

    @property
    def most_per_call(self) -> int:
        """The most messages that one call receives, hides or deletes: 10, or the limit of the
        endpoint's own API."""
        if self._most is None:
            try:
                self._most = MOST_RECEIPTS if self._carrier.has_receipts() else MOST_PER_CALL
            except NotNow:
                # The next call asks again: a restart of the gateway must not end a stream.
                return MOST_PER_CALL
        return self._most

    def receive(
        self,
        queue_url: str,
        *,
        most: int = MOST_PER_CALL,
        visibility_seconds: int | None = None,
        wait_seconds: int = 0,
        attempt_id: str | None = None,
        wanted: AttributeNames = EVERYTHING,
    ) -> list[Message]:
        """Call ReceiveMessage with these attributes. Returns fewer than ``most`` messages where
        that exceeds the limit of one call.

        ``attempt_id``: ReceiveRequestAttemptId of FIFO; a retry after a lost answer sends the same.
        """

        def attempt() -> list[Message]:
            # Requests for at most ten do not depend on the endpoint's own API.
            if most > MOST_PER_CALL and self.most_per_call > MOST_PER_CALL:
                asked: dict[str, object] = {
                    "queue": queue_url,
                    "max": min(most, self.most_per_call),
                    "visibility_timeout": visibility_seconds,
                    "wait": wait_seconds,
                    "attempt_id": attempt_id,
                    "attributes": wanted.system,
                    "message_attributes": wanted.attributes,
                }
                answer = self._many("POST", asked, wait_seconds=wait_seconds)
                if answer is not None:
                    return _intact(answer["messages"])
            found = self._carrier.sqs("ReceiveMessage", parameters, wait_seconds=wait_seconds)
            return _intact(found.get("Messages") or [])

        parameters: dict[str, object] = {
            "QueueUrl": queue_url,
            # The older name as well: some endpoints know only that.
            "AttributeNames": list(wanted.system),
            "MessageSystemAttributeNames": list(wanted.system),
            "MaxNumberOfMessages": min(most, MOST_PER_CALL),
            "WaitTimeSeconds": wait_seconds,
        }
        if wanted.attributes:
            parameters["MessageAttributeNames"] = list(wanted.attributes)
        if visibility_seconds is not None:
            parameters["VisibilityTimeout"] = visibility_seconds
        if attempt_id is not None:
            parameters["ReceiveRequestAttemptId"] = attempt_id
        return retried(
            attempt,
            action="ReceiveMessage",
            place=self._carrier.place,
            max_retries=self._max_retries,
        )

    def delete(self, queue_url: str, receipts: Sequence[str]) -> list[Fault | None]:
        """Call DeleteMessageBatch, as often as needed. Returns None for each deleted message, in
        order."""
        return self._each(queue_url, receipts, "DELETE", "DeleteMessageBatch")

    def change_visibility(
        self, queue_url: str, receipts: Sequence[str], seconds: int
    ) -> list[Fault | None]:
        """Call ChangeMessageVisibilityBatch, as often as needed. Returns as ``delete`` does."""
        return self._each(queue_url, receipts, "PATCH", "ChangeMessageVisibilityBatch", seconds)

    def _each(
        self,
        queue_url: str,
        receipts: Sequence[str],
        method: str,
        action: str,
        seconds: int | None = None,
    ) -> list[Fault | None]:
        """Return the result for each receipt."""
        most = self.most_per_call if len(receipts) > MOST_PER_CALL else MOST_PER_CALL
        if len(receipts) > most:
            parts = [receipts[at : at + most] for at in range(0, len(receipts), most)]
            each = [self._each(queue_url, part, method, action, seconds) for part in parts]
            return list(itertools.chain.from_iterable(each))
        if not receipts:
            return []
        if most > MOST_PER_CALL:
            asked: dict[str, object] = {"queue": queue_url, "receipt_handles": receipts}
            if seconds is not None:
                asked["visibility_timeout"] = seconds
            answer = self._many(method, asked)
            if answer is None:
                return self._each(queue_url, receipts, method, action, seconds)
            faults: list[Fault | None] = [None] * len(receipts)
            for failed in answer["failed"]:
                faults[int(failed["Id"])] = _fault(failed)
            return faults
        entries: list[dict[str, object]] = [
            {"Id": str(place), "ReceiptHandle": receipt} for place, receipt in enumerate(receipts)
        ]
        if seconds is not None:
            entries = [{**entry, "VisibilityTimeout": seconds} for entry in entries]
        found = self._carrier.sqs(action, {"QueueUrl": queue_url, "Entries": entries})
        return _faults(len(receipts), found)

    def _many(
        self, method: str, asked: Mapping[str, object], *, wait_seconds: int = 0
    ) -> Mapping[str, Any] | None:
        """Call the endpoint's own API. None: it refuses, so the caller uses SQS, whose answer says
        why. Later calls use SQS, too: another version may serve there now."""
        try:
            return self._carrier.receipts(method, asked, wait_seconds=wait_seconds)
        except Refused as refused:
            _log.info("%s: ten messages a call from now on: %s", self._carrier.place, refused)
            self._most = MOST_PER_CALL
            return None

    def send(self, queue_url: str, entries: Sequence[MessageEntry]) -> list[AcceptedEntry | Fault]:
        """Call SendMessageBatch for at most 10 entries, in their order."""
        if not entries:
            return []
        members = []
        for place, entry in enumerate(entries):
            member = _member(place, entry)
            member["MessageBody"] = entry.body
            if entry.delay_seconds is not None:
                member["DelaySeconds"] = entry.delay_seconds
            if entry.trace_header:
                member["MessageSystemAttributes"] = {
                    "AWSTraceHeader": {"DataType": "String", "StringValue": entry.trace_header}
                }
            members.append(member)
        answer = self._carrier.sqs("SendMessageBatch", {"QueueUrl": queue_url, "Entries": members})
        return _taken(len(entries), answer)

    def publish(
        self, topic_arn: str, entries: Sequence[MessageEntry]
    ) -> list[AcceptedEntry | Fault]:
        """Call PublishBatch for at most 10 entries, in their order."""
        if not entries:
            return []
        members = []
        for place, entry in enumerate(entries):
            member = _member(place, entry)
            member["Message"] = entry.body
            if entry.subject is not None:
                member["Subject"] = entry.subject
            if entry.message_structure is not None:
                member["MessageStructure"] = entry.message_structure
            members.append(member)
        answer = self._carrier.publish_batch(
            {"TopicArn": topic_arn, "PublishBatchRequestEntries": members}
        )
        return _taken(len(entries), answer)

    def figures(self, queue_url: str) -> QueueFigures:
        """Return the three counts of GetQueueAttributes."""
        found = self._attributes(queue_url, _COUNTS)
        return QueueFigures(*[int(found.get(name, 0)) for name in _COUNTS])

    def attributes(self, queue_url: str) -> dict[str, str]:
        """Return all attributes of GetQueueAttributes."""
        return self._attributes(queue_url, ("All",))

    def queue_url(self, name: str, owner_account_id: str | None = None) -> str:
        """Return the URL of GetQueueUrl."""
        parameters = {"QueueName": name}
        if owner_account_id is not None:
            parameters["QueueOwnerAWSAccountId"] = owner_account_id
        url: str = self._carrier.sqs("GetQueueUrl", parameters)["QueueUrl"]
        return url

    def close(self) -> None:
        """Close connections. A later call opens new ones."""
        self._carrier.close()

    def _attributes(self, queue_url: str, names: Iterable[str]) -> dict[str, str]:
        answer = self._carrier.sqs(
            "GetQueueAttributes", {"QueueUrl": queue_url, "AttributeNames": list(names)}
        )
        return dict(answer.get("Attributes") or {})


def _intact(messages: list[Message]) -> list[Message]:
    """Return the messages, if their bodies match their MD5. Damaged ones stay in the queue."""
    for message in messages:
        digest = message.get("MD5OfBody")
        body = message["Body"].encode("utf-8")
        if digest and hashlib.md5(body, usedforsecurity=False).hexdigest() != digest:
            raise TransientFailure(
                f"the body of message {message['MessageId']} is not what its MD5 says"
            )
    return messages


def _member(place: int, entry: MessageEntry) -> dict[str, object]:
    member: dict[str, object] = {"Id": str(place)}
    if entry.attributes:
        member["MessageAttributes"] = {
            name: {
                "DataType": data_type,
                "BinaryValue" if isinstance(value, bytes) else "StringValue": value,
            }
            for name, (data_type, value) in entry.attributes.items()
        }
    if entry.group_id is not None:
        member["MessageGroupId"] = entry.group_id
    if entry.deduplication_id is not None:
        member["MessageDeduplicationId"] = entry.deduplication_id
    return member


def _fault(failed: Mapping[str, Any]) -> Fault:
    return Fault(
        code_of(failed.get("Code", "")),
        failed.get("Message") or "",
        bool(failed.get("SenderFault")),
    )


def _faults(count: int, answer: Mapping[str, Any]) -> list[Fault | None]:
    results: list[Fault | None] = [_NOT_NAMED] * count
    for done in answer.get("Successful") or ():
        results[int(done["Id"])] = None
    for failed in answer.get("Failed") or ():
        results[int(failed["Id"])] = _fault(failed)
    return results


def _taken(count: int, answer: Mapping[str, Any]) -> list[AcceptedEntry | Fault]:
    results: list[AcceptedEntry | Fault] = [_NOT_NAMED] * count
    for done in answer.get("Successful") or ():
        results[int(done["Id"])] = AcceptedEntry(done["MessageId"], done.get("SequenceNumber"))
    for failed in answer.get("Failed") or ():
        results[int(failed["Id"])] = _fault(failed)
    return results

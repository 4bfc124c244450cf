"""The calls of a transport, the same for every carrier: parameters in, results out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from spark_connectors.errors import Fault
from spark_connectors.transport.aws.refusals import code_of
from spark_connectors.transport.aws.wire import MOST_PER_CALL, Entry, Message, QueueFigures, Taken
from spark_connectors.transport.http.retries import Passing, retried

_COUNTS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
_PAGE = 1000
_MOST_PAGES = 1000
_NOT_NAMED = Fault("NotAnswered", "the answer does not say what became of this entry", False)


class Carrier(Protocol):
    """Carries one call: parameters as SQS's JSON protocol names them, blobs as bytes.

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

    def close(self) -> None: ...


class Calls:
    """A Transport over a carrier."""

    def __init__(self, carrier: Carrier, max_retries: int) -> None:
        self._carrier = carrier
        self._max_retries = max_retries

    def receive(
        self,
        queue_url: str,
        *,
        most: int = MOST_PER_CALL,
        visibility_seconds: int | None = None,
        wait_seconds: int = 0,
        attempt_id: str | None = None,
        attribute_names: Sequence[str] = ("All",),
    ) -> list[Message]:
        parameters: dict[str, object] = {
            "QueueUrl": queue_url,
            # The older name as well: some endpoints know nothing else.
            "AttributeNames": ["All"],
            "MessageSystemAttributeNames": ["All"],
            "MaxNumberOfMessages": most,
            "WaitTimeSeconds": wait_seconds,
        }
        if attribute_names:
            parameters["MessageAttributeNames"] = list(attribute_names)
        if visibility_seconds is not None:
            parameters["VisibilityTimeout"] = visibility_seconds
        if attempt_id is not None:
            parameters["ReceiveRequestAttemptId"] = attempt_id

        def attempt() -> list[Message]:
            answer = self._carrier.sqs("ReceiveMessage", parameters, wait_seconds=wait_seconds)
            return _intact(answer.get("Messages") or [])

        return retried(
            attempt,
            action="ReceiveMessage",
            place=self._carrier.place,
            max_retries=self._max_retries,
        )

    def delete(self, queue_url: str, receipts: Sequence[str]) -> list[Fault | None]:
        if not receipts:
            return []
        entries = [
            {"Id": str(place), "ReceiptHandle": receipt} for place, receipt in enumerate(receipts)
        ]
        answer = self._carrier.sqs(
            "DeleteMessageBatch", {"QueueUrl": queue_url, "Entries": entries}
        )
        return _faults(len(receipts), answer)

    def change_visibility(
        self, queue_url: str, receipts: Sequence[str], seconds: int
    ) -> list[Fault | None]:
        if not receipts:
            return []
        entries = [
            {"Id": str(place), "ReceiptHandle": receipt, "VisibilityTimeout": seconds}
            for place, receipt in enumerate(receipts)
        ]
        answer = self._carrier.sqs(
            "ChangeMessageVisibilityBatch", {"QueueUrl": queue_url, "Entries": entries}
        )
        return _faults(len(receipts), answer)

    def send(self, queue_url: str, entries: Sequence[Entry]) -> list[Taken | Fault]:
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

    def publish(self, topic_arn: str, entries: Sequence[Entry]) -> list[Taken | Fault]:
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
        found = self._attributes(queue_url, _COUNTS)
        return QueueFigures(*[int(found.get(name, 0)) for name in _COUNTS])

    def attributes(self, queue_url: str) -> dict[str, str]:
        return self._attributes(queue_url, ("All",))

    def queue_url(self, name: str, owner_account_id: str | None = None) -> str:
        parameters = {"QueueName": name}
        if owner_account_id is not None:
            parameters["QueueOwnerAWSAccountId"] = owner_account_id
        url: str = self._carrier.sqs("GetQueueUrl", parameters)["QueueUrl"]
        return url

    def source_queues(self, queue_url: str) -> list[str]:
        parameters: dict[str, object] = {"QueueUrl": queue_url, "MaxResults": _PAGE}
        urls: list[str] = []
        for _ in range(_MOST_PAGES):
            page = self._carrier.sqs("ListDeadLetterSourceQueues", parameters)
            urls += page.get("queueUrls") or []
            if not page.get("NextToken"):
                break
            parameters["NextToken"] = page["NextToken"]
        return urls

    def close(self) -> None:
        self._carrier.close()

    def _attributes(self, queue_url: str, names: Iterable[str]) -> dict[str, str]:
        answer = self._carrier.sqs(
            "GetQueueAttributes", {"QueueUrl": queue_url, "AttributeNames": list(names)}
        )
        return dict(answer.get("Attributes") or {})


def _intact(messages: list[Message]) -> list[Message]:
    """The messages, if they came as they were sent. What is damaged stays in the queue."""
    for message in messages:
        digest = message.get("MD5OfBody")
        body = message["Body"].encode("utf-8")
        if digest and hashlib.md5(body, usedforsecurity=False).hexdigest() != digest:
            raise Passing(f"the body of message {message['MessageId']} is not what its MD5 says")
    return messages


def _member(place: int, entry: Entry) -> dict[str, object]:
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


def _taken(count: int, answer: Mapping[str, Any]) -> list[Taken | Fault]:
    results: list[Taken | Fault] = [_NOT_NAMED] * count
    for done in answer.get("Successful") or ():
        results[int(done["Id"])] = Taken(done["MessageId"], done.get("SequenceNumber"))
    for failed in answer.get("Failed") or ():
        results[int(failed["Id"])] = _fault(failed)
    return results

"""Calls to SQS and SNS by our own HTTP requests: about an eighth of boto3's CPU for each call.

botocore's chain supplies credentials at every call, so expired ones are renewed. Where a connection
names no endpoint, botocore works out AWS's own. Importing this module imports no AWS library.

A call whose answer was lost is repeated, as in botocore: a standard queue may then hold a message
twice, a FIFO queue recognizes the deduplication id. AWS's SNS speaks no JSON, so PublishBatch uses
the Query protocol.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote_plus

from spark_connectors.endpoints import (
    NO_CONTENT,
    Connection,
    HttpAnswer,
    ServiceEndpoint,
    TransientFailure,
    code_of,
    json_bytes,
    json_value,
    parse_endpoint,
    retried,
)
from spark_connectors.errors import Fault, NotNow, Refused

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from spark_connectors.signed_service import BotoSession, SignedService

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
# A message in SQS's JSON protocol: MessageId, ReceiptHandle, Body, MD5OfBody, Attributes (name ->
# text), MessageAttributes (name -> DataType, StringValue, BinaryValue as bytes).
Message = Mapping[str, Any]
MOST_PER_CALL = 10
"""Of SQS and SNS; ``Transport.most_per_call`` may be more."""
MOST_RECEIPTS = 1_000
_COUNTS = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
_NOT_NAMED = Fault("NotAnswered", "the answer does not say what became of this entry", False)
_READ_SECONDS = 30.0
_JSON = "application/x-amz-json-1.0"
_FORM = "application/x-www-form-urlencoded; charset=utf-8"
_MOST_XML_BYTES = 1024 * 1024
_RECEIPTS = "/v1/receipts"
# A balancer's answers while a gateway restarts.
_AWAY = (502, 503, 504)
_ATTRIBUTE_MEMBERS = frozenset({"DataType", "StringValue", "BinaryValue"})


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


class Transport:
    """Calls to one endpoint. Thread-safe; each call retries transient failures. ``known``:
    endpoints by service; others are AWS's. Every method raises Refused, NotNow when retries (full
    jitter, 8 by default) are used up, and ConnectorError without credentials."""

    def __init__(
        self,
        session: BotoSession,
        known: Mapping[str, ServiceEndpoint],
        max_retries: int,
        *,
        read_seconds: float = _READ_SECONDS,
    ) -> None:
        from spark_connectors.signed_service import KeySource

        self._session = session
        self._known = known
        self._max_retries = max_retries
        self._read_seconds = read_seconds
        self._keys = KeySource(session)
        self._services: dict[str, SignedService] = {}
        self._lock = threading.Lock()
        self._most: int | None = None

    @property
    def place(self) -> str:
        """The endpoint of SQS, for messages."""
        return self._service("sqs").endpoint.url

    @property
    def most_per_call(self) -> int:
        """The most messages that one call receives, hides or deletes: 10, or the limit of the
        endpoint's own API."""
        if self._most is None:
            try:
                self._most = MOST_RECEIPTS if self._has_receipts() else MOST_PER_CALL
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
        that exceeds the limit of one call. ``attempt_id``: ReceiveRequestAttemptId of FIFO; a retry
        after a lost answer sends the same."""

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
            found = self._sqs("ReceiveMessage", parameters, wait_seconds=wait_seconds)
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
        return self._retried(attempt, "ReceiveMessage", self._service("sqs"))

    def delete(self, queue_url: str, receipts: Sequence[str]) -> list[Fault | None]:
        """Call DeleteMessageBatch, as often as needed. Returns None for each deleted message, in
        order."""
        return self._each(queue_url, receipts, "DELETE", "DeleteMessageBatch")

    def change_visibility(
        self, queue_url: str, receipts: Sequence[str], seconds: int
    ) -> list[Fault | None]:
        """Call ChangeMessageVisibilityBatch, as often as needed. Returns as ``delete`` does."""
        return self._each(queue_url, receipts, "PATCH", "ChangeMessageVisibilityBatch", seconds)

    def send(self, queue_url: str, entries: Sequence[MessageEntry]) -> list[Fault | None]:
        """Call SendMessageBatch for at most 10 entries. Returns None for each accepted one, in
        order."""
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
        answer = self._sqs("SendMessageBatch", {"QueueUrl": queue_url, "Entries": members})
        return _faults(len(entries), answer)

    def publish(self, topic_arn: str, entries: Sequence[MessageEntry]) -> list[Fault | None]:
        """Call PublishBatch for at most 10 entries. Returns as ``send`` does."""
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
        service = self._service("sns")
        body = _publish_batch_form(topic_arn, members)

        def attempt() -> dict[str, Any]:
            text = service.call(
                {"content-type": _FORM},
                body,
                timeout_seconds=self._read_seconds,
                reader=_query_error,
            )
            try:
                return _publish_batch_result(text)
            except ValueError as error:
                raise TransientFailure(f"the answer is not XML: {error}") from error

        answer = self._retried(attempt, "PublishBatch", service)
        return _faults(len(entries), answer)

    def figures(self, queue_url: str) -> QueueFigures:
        """Return the three counts of GetQueueAttributes."""
        found = self.attributes(queue_url, _COUNTS)
        return QueueFigures(*[int(found.get(name, 0)) for name in _COUNTS])

    def attributes(self, queue_url: str, names: Iterable[str] = ("All",)) -> dict[str, str]:
        """Return these attributes of GetQueueAttributes."""
        answer = self._sqs(
            "GetQueueAttributes", {"QueueUrl": queue_url, "AttributeNames": list(names)}
        )
        return dict(answer.get("Attributes") or {})

    def queue_url(self, name: str, owner_account_id: str | None = None) -> str:
        """Return the URL of GetQueueUrl."""
        parameters = {"QueueName": name}
        if owner_account_id is not None:
            parameters["QueueOwnerAWSAccountId"] = owner_account_id
        url: str = self._sqs("GetQueueUrl", parameters)["QueueUrl"]
        return url

    def close(self) -> None:
        """Close connections. A later call opens new ones."""
        for service in list(self._services.values()):
            service.close()

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
        found = self._sqs(action, {"QueueUrl": queue_url, "Entries": entries})
        return _faults(len(receipts), found)

    def _sqs(
        self, action: str, parameters: Mapping[str, object], *, wait_seconds: int = 0
    ) -> Mapping[str, Any]:
        """Make one call: parameters in the names of SQS's JSON protocol, blobs as bytes."""
        headers = {"content-type": _JSON, "x-amz-target": f"AmazonSQS.{action}"}
        answer = self._json(action, headers, parameters, wait_seconds, reader=_json_error)
        for message in answer.get("Messages") or ():
            decode_attributes(message.get("MessageAttributes"))
        return answer

    def _many(
        self, method: str, asked: Mapping[str, object], *, wait_seconds: int = 0
    ) -> Mapping[str, Any] | None:
        """Call Queuegate's ``/v1/receipts``: up to 1,000 messages a call. None: it refuses, so the
        caller uses SQS, whose answer says why. Later calls use SQS, too: another version may serve
        there now."""
        headers = {"content-type": "application/json"}
        try:
            answer = self._json(
                f"{method} {_RECEIPTS}", headers, asked, wait_seconds, method=method, path=_RECEIPTS
            )
        except Refused as refused:
            _log.info("%s: ten messages a call from now on: %s", self.place, refused)
            self._most = MOST_PER_CALL
            return None
        for message in answer.get("messages", ()):
            decode_attributes(message.get("MessageAttributes"))
        return answer

    def _json(
        self,
        action: str,
        headers: Mapping[str, str],
        asked: Mapping[str, object],
        wait_seconds: int,
        **how: Any,
    ) -> dict[str, Any]:
        service = self._service("sqs")
        body = json_bytes(asked)
        seconds = self._read_seconds + wait_seconds

        def attempt() -> dict[str, Any]:
            text = service.call(headers, body, timeout_seconds=seconds, **how)
            # Only an action of SQS may answer without a body.
            return _members(text) if text or "path" in how else {}

        return self._retried(attempt, action, service)

    def _has_receipts(self) -> bool:
        """Ask the endpoint; AWS's is not asked. Raises NotNow."""
        from spark_connectors.signed_service import is_aws_host

        service = self._service("sqs")
        if is_aws_host(service.endpoint.host):
            return False

        def attempt() -> HttpAnswer:
            answer = service.ask("OPTIONS", _RECEIPTS, timeout_seconds=self._read_seconds)
            if answer.status in _AWAY:
                raise TransientFailure(f"HTTP {answer.status}")
            return answer

        # No retries: the answer is not worth a wait.
        answer = retried(attempt, action="OPTIONS", place=service.endpoint.url, max_retries=0)
        return answer.status == NO_CONTENT and "PATCH" in answer.headers.get("allow", "")

    def _retried(
        self, attempt: Callable[[], _Result], action: str, service: SignedService
    ) -> _Result:
        return retried(
            attempt, action=action, place=service.endpoint.url, max_retries=self._max_retries
        )

    def _service(self, name: str) -> SignedService:
        found = self._services.get(name)
        if found is not None:
            return found
        from spark_connectors.signed_service import SignedService, aws_endpoint

        with self._lock:
            if name not in self._services:
                known = self._known.get(name)
                endpoint = known or parse_endpoint(aws_endpoint(self._session, self._keys, name))
                self._services[name] = SignedService(name, self._session, endpoint, self._keys)
            return self._services[name]


def open_transport(connection: Connection) -> Transport:
    """Open a transport; it opens sockets and looks for credentials when first used. Raises
    ConnectorError for an unknown profile or region, and for an invalid endpoint."""
    from spark_connectors.signed_service import configured, is_aws_host, open_session, settle_region

    session = open_session(connection)
    known = configured(connection, session)
    is_not_aws = bool(known) and not any(is_aws_host(each.host) for each in known.values())
    settle_region(session, may_default=is_not_aws)
    return Transport(session, known, connection.max_retries)


@functools.lru_cache(maxsize=8)
def shared_transport(connection: Connection) -> Transport:
    """Return one transport for this process. Spark reuses its Python workers, and opening one costs
    as much as dozens of calls."""
    return open_transport(connection)


def is_aws(connection: Connection) -> bool:
    """Return True if the queues are AWS's own: no endpoint, or one of AWS's hosts. Raises
    ConnectorError as open_transport does."""
    return _own_endpoint(connection)[1] is None


def open_service(connection: Connection) -> SignedService | None:
    """Open the endpoint's API beside SQS, signed as for SQS; None for AWS. Raises ConnectorError as
    open_transport does."""
    from spark_connectors.signed_service import KeySource, SignedService, settle_region

    session, endpoint = _own_endpoint(connection)
    if endpoint is None:
        return None
    settle_region(session, may_default=True)
    return SignedService("sqs", session, endpoint, KeySource(session))


def _own_endpoint(connection: Connection) -> tuple[BotoSession, ServiceEndpoint | None]:
    from spark_connectors.signed_service import configured, is_aws_host, open_session

    session = open_session(connection)
    found = configured(connection, session).get("sqs")
    return session, None if found is None or is_aws_host(found.host) else found


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
    code = code_of(failed.get("Code", ""))
    return Fault(code, failed.get("Message") or "", bool(failed.get("SenderFault")))


def _faults(count: int, answer: Mapping[str, Any]) -> list[Fault | None]:
    """Return None for each successful entry of a batch, in order."""
    faults: list[Fault | None] = [_NOT_NAMED] * count
    for done in answer.get("Successful") or ():
        faults[int(done["Id"])] = None
    for failed in answer.get("Failed") or ():
        faults[int(failed["Id"])] = _fault(failed)
    return faults


def _members(text: bytes) -> dict[str, Any]:
    try:
        value = json_value(text)
    except ValueError as error:
        raise TransientFailure("the answer is not JSON") from error
    if not isinstance(value, dict):
        raise TransientFailure("the answer is not a JSON object")
    return value


def _json_error(body: bytes) -> tuple[str, str] | None:
    value = json_value(body)
    if not isinstance(value, dict) or not isinstance(value.get("__type"), str):
        return None
    return value["__type"], str(value.get("message") or value.get("Message") or "")


def decode_attributes(attributes: dict[str, dict[str, Any]] | None) -> None:
    """Decode binary values in place, and drop members that SQS does not have."""
    for value in (attributes or {}).values():
        for name in value.keys() - _ATTRIBUTE_MEMBERS:
            del value[name]
        if value.get("BinaryValue") is not None:
            value["BinaryValue"] = base64.b64decode(value["BinaryValue"])


def _publish_batch_form(topic_arn: str, entries: Iterable[Mapping[str, Any]]) -> bytes:
    """Return the body of a request with the members of SNS's PublishBatch."""
    pairs = [("Action", "PublishBatch"), ("Version", "2010-03-31"), ("TopicArn", topic_arn)]
    for number, entry in enumerate(entries, 1):
        prefix = f"PublishBatchRequestEntries.member.{number}."
        pairs += [(prefix + name, text) for name, text in _flat(entry)]
    return "&".join([f"{name}={quote_plus(text)}" for name, text in pairs]).encode("ascii")


def _flat(entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in entry.items():
        if name == "MessageAttributes":
            for number, (attribute, members) in enumerate(value.items(), 1):
                prefix = f"MessageAttributes.entry.{number}."
                yield prefix + "Name", attribute
                for member, content in members.items():
                    is_binary = isinstance(content, bytes)
                    text = base64.b64encode(content).decode() if is_binary else content
                    yield f"{prefix}Value.{member}", text
        else:
            yield name, value


def _publish_batch_result(text: bytes) -> dict[str, Any]:
    """Return Successful and Failed, as boto3 does. Raises ValueError for any other answer."""
    root = _parsed(text)
    if _name(root) != "PublishBatchResponse":
        raise ValueError(f"a {_name(root)[:40]} instead of a PublishBatchResponse")
    result: dict[str, Any] = {"Successful": [], "Failed": []}
    for element in root.iter():
        if (kind := _name(element)) in result:
            for member in element:
                result[kind].append({_name(each): each.text or "" for each in member})
    for failed in result["Failed"]:
        failed["SenderFault"] = failed.get("SenderFault") == "true"
    return result


def _query_error(text: bytes) -> tuple[str, str] | None:
    """Return code and message of an ErrorResponse. None or ValueError for any other answer."""
    found = {_name(element): element.text or "" for element in _parsed(text).iter()}
    return (found["Code"], found.get("Message", "")) if "Code" in found else None


def _parsed(text: bytes) -> Element:
    from xml.etree import ElementTree

    # A genuine answer is short and declares no entities.
    if len(text) > _MOST_XML_BYTES or b"<!DOCTYPE" in text:
        raise ValueError("not an answer of SNS")
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(str(error)) from None


def _name(element: Element) -> str:
    return element.tag.rpartition("}")[2]

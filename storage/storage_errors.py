"""The errors of storage, as classes.

    Rejected          the caller's mistake: a face turns it into its own 4xx form
    └── one leaf for each case to distinguish; most faces use only its kind
    Unavailable       temporary: 503 with Retry-After
    ├── Away          because the database does not answer
    └── Overloaded    because more is asked than can be answered in time

Any other exception is a bug and becomes a 500 without detail.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from enum import Enum, auto
from inspect import get_annotations
from typing import ClassVar, Literal, NamedTuple, Protocol, dataclass_transform


class Unavailable(Exception):
    """A temporary failure: the same call may succeed later."""

    log_level = logging.WARNING
    """Level of the log line for this error."""


class Away(Unavailable):
    """The database cannot be reached or did not answer in time.

    ``storage.database.Availability`` logs the outage, so that calls do not log it once each.
    """

    log_level = logging.DEBUG


class Overloaded(Unavailable):
    """The request would wait too long, or has no room. AWS's clients get the code of throttling, so
    that they slow down.

    The gateway counts these refusals, and logs a line a minute for each text.
    """

    log_level = logging.DEBUG


class Locked(Unavailable):
    """Another session holds a lock for too long. The text says what to do."""


class Kind(Enum):
    """The kind of a refusal, from which a face derives its own name."""

    ABSENT = auto()
    """The object does not exist."""
    BUSY = auto()
    """Another operation on the object is in progress."""
    DISABLED = auto()
    """The object is disabled."""
    EXISTS = auto()
    """The object exists with other properties."""
    FORBIDDEN = auto()
    """The caller has no permission."""
    FULL = auto()
    """The target is full, possibly only for now."""
    INVALID = auto()
    """A value is absent, out of range, or does not fit the object."""
    LIMIT = auto()
    """A count exceeds its limit."""
    MALFORMED = auto()
    """The input could not be decoded."""
    THROTTLED = auto()
    """The rate exceeds its limit."""
    TOO_LARGE = auto()
    """The size exceeds its limit."""
    UNKNOWN = auto()
    """The operation does not exist here."""
    UNSUPPORTED = auto()
    """A valid request that is not supported here."""


class Denied(NamedTuple):
    """The permission that a refused call lacked."""

    by: Literal["policy", "right", "origin", "quota"]
    """The deciding rule. right: owned by another account; origin: the source of the call."""
    resource: str = ""
    """The ARN of the object."""
    statement: str = ""
    """The denying statement of a policy: its id, or its number."""


class Rejected(Exception):
    """Base of every refusal. ``str(error)`` is the text for the caller."""

    kind = Kind.INVALID
    retry_after_seconds: int | None = None
    """Time until a retry may succeed; None: never unchanged, or unknown."""
    denied: Denied | None = None
    """Set if a permission check has more detail than the caller's text."""

    def __init_subclass__(cls, *, kind: Kind | None = None) -> None:
        cls.kind = kind or cls.kind


@dataclass_transform()
class Stated(Rejected):
    """A refusal whose text is a template with the fields of its class, which are arguments."""

    template: ClassVar[str]
    _names: ClassVar[Collection[str]] = ()
    _defaults: ClassVar[Mapping[str, object]] = {}

    def __init_subclass__(cls, *, kind: Kind | None = None) -> None:
        super().__init_subclass__(kind=kind)
        cls._names = tuple(get_annotations(cls))
        cls._defaults = {name: vars(cls)[name] for name in cls._names if name in vars(cls)}

    def __init__(self, *facts: object, **named: object) -> None:
        known = {**self._defaults, **dict(zip(self._names, facts, strict=False)), **named}
        self.__dict__.update(known)
        super().__init__(self.template.format_map(known))


class QueueDoesNotExist(Rejected, kind=Kind.ABSENT):
    """No queue of that name in the caller's account and region.

    The name is for faces that show it: AWS does not.
    """

    def __init__(self, queue_name: str | None = None) -> None:
        super().__init__("The specified queue does not exist.")
        self.queue_name = queue_name


class QueueNameInvalid(Rejected):
    """An invalid queue name. A name with the suffix ``.fifo`` is that of a FIFO queue."""

    def __init__(self, name: str, *, is_fifo: bool) -> None:
        super().__init__(
            f"A queue cannot be called '{name[:100]}'. Allowed are letters, digits, hyphens and "
            f"underscores, at most {75 if is_fifo else 80} of them, and .fifo at the end of the "
            "name of a FIFO queue."
        )
        self.is_fifo = is_fifo


class DeadLetterQueueUnfit(Rejected):
    """The dead-letter queue that a queue names cannot accept its dead letters."""

    def __init__(self, reason: Literal["account", "region", "absent", "kind", "forbidden"]) -> None:
        super().__init__(
            "The dead-letter queue has to be there, of the same account, region and kind, and to "
            "allow the queue that names it."
        )
        self.reason = reason


class MoveQueueAbsent(Rejected, kind=Kind.ABSENT):
    """The source or the destination of a move task does not exist."""

    def __init__(self, *, is_source: bool) -> None:
        role = "source" if is_source else "destination"
        super().__init__(f"The {role} of the messages to move does not exist.")
        self.is_source = is_source


MoveFault = Literal["not dead letters", "same queue", "other kind", "runs already", "not running"]


class MoveRefused(Stated):
    """An invalid move of messages."""

    template = "Messages cannot be moved so: {fault}."
    fault: MoveFault


class QueueNameExists(Stated, kind=Kind.EXISTS):
    """A queue of that name exists, with another value for one attribute."""

    template = (
        "A queue already exists with the same name and a different value for attribute "
        "{attribute_name}"
    )
    attribute_name: str


class QueueDeletedRecently(Stated, kind=Kind.BUSY):
    """The name of a deleted queue is blocked for a while."""

    template = (
        "You must wait {seconds} seconds after deleting a queue before you can create "
        "another with the same name."
    )
    seconds: int


class PurgeQueueInProgress(Stated, kind=Kind.BUSY):
    """A second purge within the caller's interval."""

    template = "Queue {queue_name} was purged less than {seconds} seconds ago."
    queue_name: str
    seconds: int


class InvalidParameterValue(Rejected):
    """A parameter is out of its range or does not fit the queue; the text names it."""


class MissingParameter(Stated):
    """A required parameter is absent."""

    template = "The request must contain the parameter {parameter_name}."
    parameter_name: str


class InvalidAttributeName(Rejected):
    """An attribute that does not exist or does not fit this kind of queue."""


class InvalidAttributeValue(Rejected):
    """An attribute's value is out of its range."""


class InvalidMessageContents(Rejected):
    """The body contains characters that not every wire format can carry."""

    def __init__(self, *, is_unicode: bool) -> None:
        super().__init__(
            "the message holds a character that XML, and so SQS, cannot express "
            "(U+FFFE, U+FFFF or a control character). Escape it, as in \\uffff."
            if is_unicode
            else "the message is not valid Unicode."
        )


class MessageTooLarge(Stated, InvalidParameterValue):
    """A message larger than the queue's limit, set by its owner."""

    template = "the message and its headers have {size_bytes} bytes; queue '{name}' takes {most}."
    size_bytes: int
    most: int
    name: str


class MessageIncomplete(InvalidParameterValue):
    """A message without a body, or without a required group."""

    def __init__(self, what: Literal["body", "group_id"], order: str = "FIFO") -> None:
        super().__init__(
            "a message needs a body."
            if what == "body"
            else f"a message for a {order} queue needs a group_id."
        )
        self.what = what


class DeduplicationIdMissing(Stated, InvalidParameterValue):
    """A message without a deduplication id where none is derived from the content."""

    template = "a message for '{name}', which makes none of the content, needs a deduplication_id."
    name: str


class DelayOutOfRange(Stated, InvalidParameterValue):
    """A delay of a message beyond the limit."""

    template = "delay is {seconds}; allowed is 0 to {most}."
    seconds: int
    most: int


class DelayUnfit(Stated, InvalidParameterValue):
    """A message of a queue with groups that has its own delay."""

    template = "messages in groups have no delay of their own; set the queue's."
    seconds: int


class DeduplicationIdUnfit(Stated, InvalidParameterValue):
    """A deduplication id for a queue without deduplication."""

    template = "deduplication_id is for FIFO queues, '{name}' is none."
    value: str
    name: str


IdName = Literal["group_id", "deduplication_id", "attempt_id"]


class IdInvalid(Stated, InvalidParameterValue):
    """An invalid id: FIFO queues allow letters, digits and punctuation, 1 to 128."""

    template = (
        "Value {value} for parameter {what} is invalid. Reason: {what} {allowed}. 1 to 128 in "
        "length."
    )
    what: IdName
    value: str
    allowed: str = "can only include alphanumeric and punctuation characters"


class VisibilityTimeoutOutOfRange(Stated, InvalidParameterValue):
    """A visibility timeout beyond the limit."""

    template = "The visibility timeout is {seconds}; allowed is 0 to {most}."
    seconds: int
    most: int


class ReceiptHandleIsInvalid(Stated):
    """A text that is no receipt handle of this queue."""

    template = 'The input receipt handle "{receipt_handle}" is not a valid receipt handle.'
    receipt_handle: str


class OverLimit(Rejected, kind=Kind.LIMIT):
    """More than a limit allows: actions in a permission, messages in flight."""


class _Bounded(Protocol):
    """A queue with a capacity."""

    @property
    def title(self) -> str: ...

    @property
    def most_messages(self) -> int | None: ...


class QueueFull(Rejected, kind=Kind.FULL):
    """The queue is at its capacity."""

    retry_after_seconds = 1

    def __init__(self, queue: _Bounded) -> None:
        self.most = queue.most_messages
        super().__init__(
            f"Queue '{queue.title}' is full: its size is {self.most}. Send this again when "
            "messages were deleted."
        )


class EmptyBatchRequest(Rejected):
    """A batch without entries."""


class TooManyEntriesInBatchRequest(Rejected):
    """A batch of more than ten entries."""


class BatchEntryIdsNotDistinct(Rejected):
    """Two entries of a batch share an id."""


class InvalidBatchEntryId(Rejected):
    """An entry's id breaks the rules of ids."""


class BatchRequestTooLong(Rejected, kind=Kind.TOO_LARGE):
    """The entries of a batch together exceed the batch limit."""


class PriorEntryRefused(Stated, kind=Kind.BUSY):
    """A batch entry behind a refused one of its message group: resend it after that one, to keep
    the order of the group."""

    template = (
        "An earlier entry of message group {group_id} in this batch was not accepted. Send "
        "this one again once that one is dealt with: so the group keeps its order."
    )
    group_id: str


class UnsupportedOperation(Rejected, kind=Kind.UNSUPPORTED):
    """A valid request that the service does not support (list-valued attributes)."""


class ResourceNotFound(Rejected, kind=Kind.ABSENT):
    """A move task, or a queue that one refers to, does not exist."""


class MalformedInput(Rejected, kind=Kind.MALFORMED):
    """The request could not be decoded."""


class UnknownAction(Rejected, kind=Kind.UNKNOWN):
    """A request without an action, or with one that this endpoint does not have."""


class AccessDenied(Rejected, kind=Kind.FORBIDDEN):
    """Missing credentials, or an object of another caller."""


class IncompleteSignature(Rejected, kind=Kind.MALFORMED):
    """Credentials that start like a signature but cannot be parsed."""


class RequestTooLarge(Rejected, kind=Kind.TOO_LARGE):
    """The request's body exceeds a limit: a number of bytes, or one that a text explains."""

    def __init__(self, limit: int | str) -> None:
        if isinstance(limit, int):
            limit = f"The request body is larger than the {limit} bytes that this endpoint takes."
        super().__init__(limit)


class NotFound(Rejected, kind=Kind.ABSENT):
    """No such topic, subscription, or application or endpoint of mobile push."""


class AuthorizationError(Rejected, kind=Kind.FORBIDDEN):
    """The caller has no permission for this."""


class FilterPolicyLimitExceeded(Rejected, kind=Kind.LIMIT):
    """More filter policies than a topic may have."""


class SubscriptionLimitExceeded(Rejected, kind=Kind.LIMIT):
    """More subscriptions than a topic may have."""


class LargeMessagesUnfit(Stated):
    """A topic with messages above 256 KiB has a subscription that cannot take them, or too many."""

    template = (
        "Invalid parameter: MaximumMessageSize Reason: A topic with messages of more than "
        "262144 bytes can have {most} subscriptions, all of them to SQS, Firehose or Lambda."
    )
    most: int


class ReplayLimitExceeded(Rejected, kind=Kind.LIMIT):
    """More replays at once than allowed."""


class OptedOut(Rejected, kind=Kind.DISABLED):
    """The owner of the phone number has opted out."""


class TopicKeepsArchive(Rejected):
    """A topic that archives its messages is not deleted."""


class PushTokenTaken(Stated, kind=Kind.EXISTS):
    """A push endpoint with that token exists, with other attributes."""

    template = "The endpoint {arn} has that token, and other attributes."
    arn: str


class SettingRefused(Stated):
    """An invalid policy of a subscription."""

    template = "Invalid parameter: Attributes Reason: {reason}"
    reason: str


class WebHookRefused(Stated):
    """An invalid URL of a web hook."""

    template = "Invalid parameter: {reason}"
    reason: str


class SubscriptionPending(Rejected, kind=Kind.BUSY):
    """A pending subscription, which cannot be ended before its confirmation."""


class TokenRefused(Rejected):
    """No subscription has that token, or its topic is in another region."""

    def __init__(self, *, is_of_other_region: bool = False) -> None:
        super().__init__("There is no subscription with that token.")
        self.is_of_other_region = is_of_other_region


class SubscriptionExists(Stated, kind=Kind.EXISTS):
    """The endpoint is subscribed to the topic or the pattern, with other settings."""

    template = (
        "There is a subscription of this endpoint to '{pattern}' with other settings. Delete "
        "it first."
    )
    pattern: str


class KeyDoesNotExist(Stated, kind=Kind.ABSENT):
    """The caller's account has no key of that number."""

    template = "There is no key {key_id}."
    key_id: int


class KeyExists(Stated, kind=Kind.EXISTS):
    """A key of the account that was not revoked has that name."""

    template = "There is a key '{name}': revoke it, or call the new one otherwise."
    name: str


class TooManyKeys(Stated, kind=Kind.LIMIT):
    """Every gateway caches all keys, so their number is limited."""

    template = "There are {most} keys that were not revoked, which is the limit."
    most: int


class TooManyRequests(Rejected, kind=Kind.THROTTLED):
    """A producer is over its rate limit, or an account or key over its limit of requests."""

    def __init__(self, retry_after_seconds: int, limit: str = "rate limit of the key") -> None:
        super().__init__(f"This is more than the {limit} allows. Retry in {retry_after_seconds} s.")
        self.retry_after_seconds = retry_after_seconds


class QuotaReached(Rejected, kind=Kind.LIMIT):
    """The account is at its limit of queues or logs."""


class TopicLimitExceeded(Rejected, kind=Kind.LIMIT):
    """The account is at its limit of topics."""


class KeyUnfit(Rejected):
    """The request does not fit this kind of key, or this gateway."""


class PolicyRefused(Rejected):
    """An invalid policy of a key. The text begins with AWS's code."""


class UnrecognizedClient(Rejected, kind=Kind.FORBIDDEN):
    """An unknown key of our format: wrong, disabled, revoked or expired."""

    def __init__(self, text: str = "") -> None:
        super().__init__(
            text or "The key is none of this gateway's: it is wrong, revoked or expired."
        )


class InvalidSignature(Rejected, kind=Kind.FORBIDDEN):
    """A signature by another key or for another request, or an old one."""


class ExpiredToken(Stated, kind=Kind.FORBIDDEN):
    """The session of temporary credentials has ended."""

    template = "The security token included in the request is expired"


class MalformedPolicyDocument(Rejected):
    """An invalid session policy."""


class PackedPolicyTooLarge(Stated):
    """The session policies exceed the size of a token."""

    template = "Packed policy consumes {percent}% of allotted space, please use smaller policy."
    percent: int


class InvalidIdentityToken(Rejected):
    """A token of an unknown identity provider."""


class LogDoesNotExist(Stated, kind=Kind.ABSENT):
    """The caller has no log of that name."""

    template = "There is no log '{name:.100}'."
    name: str


class LogExists(Stated, kind=Kind.EXISTS):
    """The caller has a log of that name, with other settings."""

    template = "There is a log '{name}' with other settings."
    name: str


class LogNameInvalid(Stated):
    """An invalid log name."""

    template = (
        "A log cannot be called '{name:.100}'. Allowed are 1 to 80 letters, digits, "
        "hyphens and underscores."
    )
    name: str


class PartitionDoesNotExist(Stated, kind=Kind.ABSENT):
    """The log has no partition of that number."""

    template = "The log has no partition {number}."
    number: int


class RecordDoesNotExist(Stated, kind=Kind.ABSENT):
    """No record is kept at that offset."""

    template = "Partition {number} has no record at offset {offset}."
    number: int
    offset: int


class RecordInvalid(Stated):
    """A record that cannot be stored."""

    template = "The record is refused: {reason}"
    reason: str


class TooManyPartitions(Stated, kind=Kind.LIMIT):
    """The log is at its limit of partitions."""

    template = (
        "A log has at most {most} partitions, and each key one of its own. Make a log with "
        "`partitions`, which keys share."
    )
    most: int


class TooManyGroups(Stated, kind=Kind.LIMIT):
    """The log is at its limit of groups."""

    template = "A log has at most {most} groups."
    most: int


class TooManySubscribers(Stated, kind=Kind.LIMIT):
    """The group is at its limit of subscribers."""

    template = "A group has at most {most} subscribers at once."
    most: int


class GroupDoesNotExist(Stated, kind=Kind.ABSENT):
    """The log has no group of that name."""

    template = "The log has no group '{name:.100}'."
    name: str


class GroupExists(Stated, kind=Kind.EXISTS):
    """The log has a group of that name, with other settings."""

    template = "The log has a group '{name}' with other settings."
    name: str


class GroupInvalid(Rejected):
    """Invalid settings of a group."""


class SubscriberFenced(Stated, kind=Kind.EXISTS):
    """Another session of this subscriber is live, or it left, or its lease expired."""

    template = (
        "The subscriber '{name:.100}' has another session, or none: send a heartbeat "
        "without one to begin anew, which ends any other."
    )
    name: str


class PartitionHeld(Stated, kind=Kind.EXISTS):
    """A live subscriber holds a partition that another client wants to move."""

    template = "A live subscriber of the group holds partition {number}."
    number: int


class PriorityOutOfRange(InvalidParameterValue):
    """A priority out of range."""


class PriorityUnfit(Stated, InvalidParameterValue):
    """A message with a priority for an ordered queue."""

    template = "'{name}' has its messages in order: they have no priority."
    priority: int
    name: str


class TtlOutOfRange(InvalidParameterValue):
    """A lifetime out of range."""


class ScheduleInvalid(Rejected):
    """An absent, invalid or conflicting member of a schedule or a group."""


class ScheduleDoesNotExist(Stated, kind=Kind.ABSENT):
    """No schedule of that name in the group."""

    template = "Schedule {name} does not exist."
    name: str


class ScheduleExists(Stated, kind=Kind.EXISTS):
    """A schedule of that name in the group."""

    template = "Schedule {name} already exists."
    name: str


class ScheduleConflict(Rejected, kind=Kind.EXISTS):
    """A conflict: an existing or deleting group, or a client token with other parameters."""


class ScheduleQuotaExceeded(Rejected, kind=Kind.LIMIT):
    """More groups of schedules than an account may have."""


class InjectedFault(Rejected):
    """An error on purpose, for tests. ``status`` None: that of the code."""

    def __init__(self, code: str, status: int | None = None, text: str | None = None) -> None:
        self.code = code
        self.status = status
        super().__init__(text or f"{code}: a fault on purpose (/_admin/faults).")

"""Fields and parameters that several JSON faces share, with one meaning on all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from queuegate.gateway.faces.json.json_endpoints import Call, next_page
from queuegate.gateway.operations.queues import queues
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage.queue_model import Queue

StructType = TypeVar("StructType", bound=type[Struct])


def schema_name(name: str) -> Callable[[StructType], StructType]:
    """Name the schema of a Struct in the OpenAPI document, where its class has another name."""

    def rename(kind: StructType) -> StructType:
        kind.__name__ = name
        return kind

    return rename


def about(text: str, shown: Any = UNSET, **rules: Any) -> Meta:
    """Describe a member, with the rules of ``Meta``. ``shown``: see ``example``."""
    extra = None if shown is UNSET else {"example": shown}
    return Meta(description=text, extra=extra, **rules)


def example(value: Any) -> Meta:
    """Give a member its value in the examples of answers, where its type implies another."""
    return Meta(extra={"example": value})


QUEUE_NAME_PATTERN = r"^([A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo)$"
"""Valid names of queues (docs/contract/sqs.md 2.1)."""
BIGGEST_ID = (1 << 63) - 1
"""Maximum of a bigint: ids of messages and archived messages, positions."""
Limit = Annotated[int, about("Maximum number of results.", ge=1, le=LIMITS.listed)]
Instant = Annotated[datetime, Meta(tz=True)]
SqsId = Annotated[
    str, about("The id of the message in SQS.", "0f1a2b3c-5d6e-4f70-8a9b-0c1d2e3f4a5b")
]
ShownHeaders = Annotated[
    Raw,
    about("An object.", {"tenant": "acme", "priority": 3}, extra_json_schema={"type": "object"}),
]
_HEADER_NAME = (
    r"^(?!([Aa][Ww][Ss]|[Aa][Mm][Aa][Zz][Oo][Nn])\.)"
    r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"
)
_FIFO_ID = "^[!-~]{1,128}$"

HeaderName = Annotated[str, Meta(extra_json_schema={"pattern": _HEADER_NAME, "maxLength": 256})]
Headers = Annotated[
    dict[HeaderName, Raw],
    about(
        "Metadata of the message as JSON. SQS receivers get each header as a message "
        "attribute: strings as String, numbers as Number, other values as String.boolean, "
        "String.null and String.json.",
        extra_json_schema={"maxProperties": LIMITS.headers},
    ),
]
JsonMessage = Annotated[Raw, about("Any JSON value. SQS receivers get its text unchanged.")]
MessageId = Annotated[
    int, about("Id of a message, unique in its queue.", ge=1, le=BIGGEST_ID, examples=[1042])
]
Delay = Annotated[
    int,
    about("Seconds until the message becomes visible. Absent or null: the delay of the queue."),
    Meta(ge=0, le=LIMITS.delay_seconds),
]
FifoId = Annotated[str, Meta(extra_json_schema={"pattern": _FIFO_ID, "maxLength": 128})]
AttemptId = Annotated[str, Meta(pattern=_FIFO_ID, max_length=128)]
"""Validated here, because receives of standard queues ignore it."""
Timeout = Annotated[
    int,
    about("Visibility timeout of the received messages in seconds."),
    Meta(ge=0, le=LIMITS.visibility_timeout_seconds),
]
Priority = Annotated[
    int, about("10 is the highest and comes first, 0 the lowest.", ge=0, le=LIMITS.priority)
]
Ttl = Annotated[
    int,
    about(
        "Seconds until the message expires. Absent or null: the retention period of "
        "the queue, by default four days."
    ),
    Meta(ge=1, le=LIMITS.ttl_seconds),
]


def instant_of(milliseconds: int) -> datetime:
    """Return the instant of milliseconds since the epoch."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


QueueName = Annotated[
    str,
    about("Name of a queue of the account. The suffix `.fifo` may be omitted."),
    Meta(examples=["jobs"], extra_json_schema={"pattern": QUEUE_NAME_PATTERN, "maxLength": 80}),
]
"""Documented, not validated: a queue with an invalid name does not exist."""

PausedAt = Annotated[datetime | UnsetType, about("Start of the pause. Absent: not paused.")]


class ListQuery(Struct, forbid_unknown_fields=True):
    """A page of queues."""

    limit: Limit = LIMITS.listed
    after: Annotated[
        str, about("Only later names: the last name of the page before.", max_length=80)
    ] = ""


_NOTHING: Mapping[str, str] = {}


async def page_of_queues(
    call: Call, place: str, kept: Mapping[str, str] = _NOTHING, **prefix: str
) -> tuple[list[Queue], dict[str, str]]:
    """Return the queues of a ``ListQuery``, and the Link header to the next page at ``place``.

    ``prefix``: the required prefix of names, by the name of its query parameter. ``kept``: other
    parameters of the next page.
    """
    query: ListQuery = call.query
    begins = "".join(prefix.values())
    found, has_more = await queues.list_queues(
        call.engine, call.caller, prefix=begins, after=query.after, limit=query.limit
    )
    if not (has_more and found):
        return found, {}
    more = {**kept, **(prefix if begins else {})}
    return found, next_page(place, limit=query.limit, after=found[-1].name, **more)

"""The OpenAPI document of the pages below ``/_admin`` (``operator_pages``), which read requests
themselves: their endpoints are declared here as those of JSON faces."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NoReturn

from msgspec import UNSET, Meta, Struct, UnsetType

from queuegate.gateway.faces.json.json_endpoints import Answered, Call, Endpoint, Endpoints, Error
from queuegate.gateway.faces.json.json_fields import Instant, SqsId, about, example
from queuegate.gateway.faces.json.json_openapi import FaceDescription
from queuegate.protocol.scheduler_shapes import SERVICES, UNIVERSAL

ADMIN_KINDS = ("Invocation", "Notification", "SubscriptionConfirmation", "VerificationCode")
ADMIN_PROTOCOLS = tuple(sorted({"application", "email", "email-json", "sms", UNIVERSAL, *SERVICES}))
"""Values of the filters of the outbox."""
MOST_OUTBOX_MESSAGES = 1_000
DEFAULT_OUTBOX_MESSAGES = 100

_DIGITS = "^[0-9]{12}$"
_AccountId = Annotated[
    str, Meta(pattern=_DIGITS, max_length=12, description="An account.", examples=["111122223333"])
]
_Ahead = Annotated[
    float, about("Seconds ahead of the real clock; for an account, of the common clock.", 300.0)
]
_Region = Annotated[str, example("us-east-1")]
_Text = Annotated[
    str,
    Meta(extra_json_schema={"pattern": r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]+$"}),
]


class ClockMove(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """At most one of `advance`, `advance_seconds`, `to` and `ahead_seconds`; without one, `freeze`.
    A clock shows a time between the years 2001 and 2099."""

    advance: Annotated[
        str | UnsetType,
        about('A duration: numbers with s, m, h, d or w, such as "90s" or "1h30m".', "5m"),
    ] = UNSET
    advance_seconds: Annotated[float | UnsetType, about("Move on by seconds.")] = UNSET
    to: Annotated[Instant | UnsetType, about("Move to an instant.")] = UNSET
    ahead_seconds: Annotated[
        float | UnsetType, about("Move to so many seconds ahead of the real clock.")
    ] = UNSET
    freeze: Annotated[bool | UnsetType, about("True stops the clock, false lets it run.")] = UNSET
    account: _AccountId | UnsetType = UNSET
    back: Annotated[bool, about("Allow a move back in time.")] = False


class AccountClock(Struct):
    """The clock of an account that differs from the common one."""

    ahead_seconds: _Ahead
    now: Instant
    frozen: bool


class ShownClock(AccountClock):
    """The common clock, or that of an account."""

    account: _AccountId | UnsetType = UNSET
    accounts: Annotated[
        dict[str, AccountClock] | UnsetType, about("Clocks by account, beside the common clock.")
    ] = UNSET


class ResetWish(Struct, forbid_unknown_fields=True):
    """The account to delete everything of. Absent or null: all accounts."""

    account: _AccountId | None = None


class ResetDone(Struct):
    """Everything was deleted."""

    status: Literal["ok"]


class AdminQuery(Struct, forbid_unknown_fields=True):
    """The account of a page."""

    account: _AccountId | UnsetType = UNSET


class OutboxSelection(AdminQuery, forbid_unknown_fields=True):
    """Conditions of messages in the outbox, all of which hold."""

    region: _Text | UnsetType = UNSET
    protocol: Annotated[
        str | UnsetType,
        about("An outlet of SNS or schedules.", extra_json_schema={"enum": [*ADMIN_PROTOCOLS]}),
    ] = UNSET
    destination: Annotated[
        _Text | UnsetType, about("A number, an address, an endpoint or an ARN.")
    ] = UNSET
    topic_arn: _Text | UnsetType = UNSET
    kind: Annotated[
        str | UnsetType, about("A kind.", extra_json_schema={"enum": [*ADMIN_KINDS]})
    ] = UNSET


class OutboxPageQuery(OutboxSelection, forbid_unknown_fields=True):
    """A page of the outbox."""

    after_id: Annotated[int, about("`next` of the page before.", ge=0, lt=10**18)] = 0
    limit: Annotated[int, Meta(ge=1, le=MOST_OUTBOX_MESSAGES)] = DEFAULT_OUTBOX_MESSAGES


class StoredOutboxMessage(Struct):
    """A message that the gateway did not send."""

    id: int
    account: _AccountId
    region: _Region
    protocol: Annotated[str, example("sms")]
    destination: Annotated[str, example("+14255550100")]
    kind: Annotated[str, example("Notification")]
    topic_arn: str | None
    subscription_arn: str | None
    message_id: SqsId
    subject: str | None
    body: Annotated[str, example("Your code is 1234.")]
    attributes: dict[str, Any] | None
    created_at: Instant


class PageOfOutbox(Struct):
    """Messages, the oldest first."""

    messages: list[StoredOutboxMessage]
    next: Annotated[int | None, about("`after_id` of the next page. Null: this is the last one.")]


class OutboxCleared(Struct):
    """Messages were deleted."""

    deleted: int


class PhoneNumberState(Struct):
    """A phone number of an account."""

    account: _AccountId
    region: _Region
    phone_number: Annotated[str, example("+14255550100")]
    opted_out: bool


ABOUT = FaceDescription(
    "Queuegate for testers",
    "The clock, the reset and the outbox. Pages below `/_admin` are for the gateway's own machine; "
    "an ephemeral gateway shows them to everybody, and one that verifies signatures to "
    "administrators.\n\n"
    'Every refusal is `{"error": "..."}` with the necessary change.',
    {
        "clock": "Time that passes at once.",
        "reset": "Back to nothing.",
        "outbox": "Messages that the gateway does not send: SMS, e-mail, push, invocations.",
        "about": "This API.",
    },
    "An AWS signature, whose access key is an account, or any value.",
    Error,
    needs_credentials=False,
)


async def _page(_: Call) -> NoReturn:
    raise AssertionError("operator_pages answers")


_of_outbox = Endpoints(
    "outbox",
    outbox_id=Annotated[str, Meta(extra_json_schema={"pattern": "^[0-9]{1,18}$"}, examples=["1"])],
    number=Annotated[
        str, Meta(extra_json_schema={"pattern": r"^\+[1-9][0-9]{7,14}$"}, examples=["+14255550100"])
    ],
)
_of_clock, _of_reset = Endpoints("clock"), Endpoints("reset")


def _declare(
    to: Endpoints, route: str, name: str, content: type[Struct], texts: str, **declared: Any
) -> None:
    """``texts``: summary, description and success."""
    summary, description, success = texts.split("; ")
    declared = {"refusals": (), "summary": summary, "description": description} | declared
    answers = (Answered(200, content, success),)
    to.declare(route, name=name, handler=_page, answers=answers, right="", **declared)


_declare(
    *(_of_clock, "GET /_admin/clock", "getClock", ShownClock),
    "Show a clock; Shows the common clock, or that of an account.; The clock.",
    query=AdminQuery,
)
_declare(
    *(_of_clock, "POST /_admin/clock", "moveClock", ShownClock),
    "Move a clock; Moves all clocks, or that of an account.; The clock after the move.",
    body=ClockMove,
)
_declare(
    *(_of_reset, "POST /_admin/reset", "reset", ResetDone),
    "Delete everything; Empties an account, or all of an ephemeral gateway.; It is done.",
    body=ResetWish,
    body_is_optional=True,
)
_declare(
    *(_of_outbox, "GET /_admin/outbox", "listOutbox", PageOfOutbox),
    "List messages that were not sent; Lists those of the caller's account.; A page.",
    query=OutboxPageQuery,
)
_declare(
    *(_of_outbox, "DELETE /_admin/outbox", "clearOutbox", OutboxCleared),
    "Delete messages that were not sent; Deletes those of the caller's account.; Their number.",
    query=OutboxSelection,
)
_declare(
    *(_of_outbox, "GET /_admin/outbox/{outbox_id}", "getOutboxMessage", StoredOutboxMessage),
    "Show a message; Shows a message that was not sent.; The message.",
    query=AdminQuery,
    refusals=(404,),
)
_declare(
    *(_of_outbox, "PUT /_admin/sms/opted-out/{number}", "optOut", PhoneNumberState),
    "Opt a phone number out; Makes SMS of the caller's account to it fail.; The number.",
)
_declare(
    *(_of_outbox, "DELETE /_admin/sms/opted-out/{number}", "optIn", PhoneNumberState),
    "Opt a phone number in; Allows SMS of the caller's account to it.; The number.",
)
ENDPOINTS: tuple[Endpoint, ...] = (*_of_clock, *_of_reset, *_of_outbox)
"""Every endpoint but the document itself."""

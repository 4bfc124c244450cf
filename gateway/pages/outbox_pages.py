"""/_admin/outbox: messages that the gateway does not send; and phone numbers that opted out."""

from __future__ import annotations

from datetime import UTC
from typing import Annotated, Any

import orjson
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from queuegate.gateway.faces.aws.sns.sns_sms import checked_number
from queuegate.gateway.faces.json.json_endpoints import Answer, Endpoints
from queuegate.gateway.faces.json.json_fields import Instant, SqsId, about, example
from queuegate.gateway.operations.topics import mobile
from queuegate.gateway.pages.admin_endpoints import AccountId, AdminCall, AdminQuery, Text
from queuegate.protocol.scheduler_shapes import SERVICES, UNIVERSAL
from queuegate.storage.storage_errors import MalformedInput, NotFound
from queuegate.storage.topics.stored_outbox import OutboxFilter, OutboxMessage

KINDS = ("Invocation", "Notification", "SubscriptionConfirmation", "VerificationCode")
PROTOCOLS = tuple(sorted({"application", "email", "email-json", "sms", UNIVERSAL, *SERVICES}))
"""Values of the filters of the outbox."""
_MOST_MESSAGES = 1_000
_MESSAGES = 100
_Region = Annotated[str, example("us-east-1")]


class OutboxSelection(AdminQuery, forbid_unknown_fields=True):
    """Conditions of messages in the outbox, all of which hold."""

    region: Text | UnsetType = UNSET
    protocol: Annotated[
        str | UnsetType,
        about("An outlet of SNS or schedules.", extra_json_schema={"enum": [*PROTOCOLS]}),
    ] = UNSET
    destination: Annotated[
        Text | UnsetType, about("A number, an address, an endpoint or an ARN.")
    ] = UNSET
    topic_arn: Text | UnsetType = UNSET
    kind: Annotated[str | UnsetType, about("A kind.", extra_json_schema={"enum": [*KINDS]})] = UNSET


class OutboxPageQuery(OutboxSelection, forbid_unknown_fields=True):
    """A page of the outbox."""

    after_id: Annotated[int, about("`next` of the page before.", ge=0, lt=10**18)] = 0
    limit: Annotated[int, Meta(ge=1, le=_MOST_MESSAGES)] = _MESSAGES


class StoredOutboxMessage(Struct):
    """A message that the gateway did not send."""

    id: int
    account: AccountId
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

    account: AccountId
    region: _Region
    phone_number: Annotated[str, example("+14255550100")]
    opted_out: bool


endpoint = Endpoints(
    "outbox",
    outbox_id=Annotated[str, Meta(pattern="^[0-9]{1,18}$", examples=["1"])],
    number=Annotated[
        str, Meta(extra_json_schema={"pattern": r"^\+[1-9][0-9]{7,14}$"}, examples=["+14255550100"])
    ],
)


@endpoint("GET /_admin/outbox", "", refusals=())
async def list_outbox(call: AdminCall, query: OutboxPageQuery) -> Answer[PageOfOutbox]:
    """List messages that were not sent. Lists those of the caller's account. Returns 200: A
    page."""
    found, next_id = await mobile.list_outbox(
        call.engine, _filter(call), after_id=query.after_id, limit=query.limit
    )
    return _answer({"messages": [_shown(one) for one in found], "next": next_id})


@endpoint("DELETE /_admin/outbox", "", refusals=())
async def clear_outbox(call: AdminCall, query: OutboxSelection) -> Answer[OutboxCleared]:
    """Delete messages that were not sent. Deletes those of the caller's account. Returns 200: Their
    number."""
    return Answer(200, OutboxCleared(await mobile.clear_outbox(call.engine, _filter(call))))


@endpoint("GET /_admin/outbox/{outbox_id}", "")
async def get_outbox_message(call: AdminCall, query: AdminQuery) -> Answer[StoredOutboxMessage]:
    """Show a message. Shows a message that was not sent. Returns 200: The message."""
    account_id = call.account_id
    message = await mobile.find_in_outbox(call.engine, account_id, int(call.path.outbox_id))
    if message is None:
        raise NotFound(f"The outbox of account {account_id} has no message of this id.")
    return _answer(_shown(message))


@endpoint("PUT /_admin/sms/opted-out/{number}", "", refusals=())
async def opt_out(call: AdminCall) -> Answer[PhoneNumberState]:
    """Opt a phone number out. Makes SMS of the caller's account to it fail. Returns 200: The
    number."""
    return await _opted(call, is_out=True)


@endpoint("DELETE /_admin/sms/opted-out/{number}", "", refusals=())
async def opt_in(call: AdminCall) -> Answer[PhoneNumberState]:
    """Opt a phone number in. Allows SMS of the caller's account to it. Returns 200: The number."""
    return await _opted(call, is_out=False)


async def _opted(call: AdminCall, *, is_out: bool) -> Answer[PhoneNumberState]:
    caller, number = call.caller, checked_number(call.path.number)
    await (mobile.opt_out if is_out else mobile.opt_in)(call.engine, caller, number)
    return Answer(200, PhoneNumberState(caller.account_id, caller.region, number, is_out))


def _filter(call: AdminCall) -> OutboxFilter:
    query: OutboxSelection = call.query
    for name, choices in (("kind", KINDS), ("protocol", PROTOCOLS)):
        if getattr(query, name) not in (UNSET, *choices):
            raise MalformedInput(f"{name} is one of {', '.join(choices)}.")
    given = (query.region, query.protocol, query.destination, query.topic_arn, query.kind)
    return OutboxFilter(call.account_id, *(one or None for one in given))


def _answer(content: dict[str, Any]) -> Answer[Any]:
    return Answer(200, Raw(orjson.dumps(content)))


def _shown(message: OutboxMessage) -> dict[str, Any]:
    written = message.written._asdict()
    account_id, attributes = written.pop("account_id"), written["attributes"]
    return {
        "id": message.outbox_id,
        "account": account_id,
        **written,
        "attributes": None if attributes is None else orjson.loads(attributes),
        "created_at": message.created_at.astimezone(UTC).isoformat(timespec="milliseconds"),
    }

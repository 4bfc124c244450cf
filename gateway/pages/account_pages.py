"""Pages about what an account has: clock, reset, saved states, outbox and seeds."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import UTC
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import orjson
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from queuegate.gateway.faces.aws.sns.sns_sms import checked_number
from queuegate.gateway.faces.json.json_endpoints import Answer, Endpoints
from queuegate.gateway.faces.json.json_fields import Instant, SqsId, about, example
from queuegate.gateway.operations.runtime import account_contents, clock_moves
from queuegate.gateway.operations.topics import mobile
from queuegate.gateway.pages.admin_endpoints import AccountId, AdminCall, AdminQuery, Text
from queuegate.gateway.seeding import seeds
from queuegate.gateway.seeding.resource_kinds import SeedResource
from queuegate.protocol.scheduler_shapes import SERVICES, UNIVERSAL
from queuegate.storage import account_states
from queuegate.storage.account_states import SavedState
from queuegate.storage.storage_errors import (
    AuthorizationError,
    MalformedInput,
    NotFound,
    Rejected,
)
from queuegate.storage.topics.stored_outbox import OutboxFilter, OutboxMessage

if TYPE_CHECKING:
    from queuegate.gateway.operations.runtime.account_clocks import Clock
    from queuegate.gateway.operations.runtime.engine import Engine

_OFF = "Moving the clock is off: start with --ephemeral or QUEUEGATE_ADMIN_CLOCK=true."
_KEEPS_DATA = "Only an ephemeral gateway forgets its data: start with --ephemeral."
_STATE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", re.ASCII).fullmatch
_STATE_NAMES = (
    "The path ends in the name of a state: 1 to {} letters, digits, dots, hyphens and underscores, "
    "no dot at the start."
)
_Ahead = Annotated[
    float, about("Seconds ahead of the real clock; for an account, of the common clock.", 300.0)
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
    account: AccountId | UnsetType = UNSET
    back: Annotated[bool, about("Allow a move back in time.")] = False


class AccountClock(Struct):
    """The clock of an account that differs from the common one."""

    ahead_seconds: _Ahead
    now: Instant
    frozen: bool


class ShownClock(AccountClock):
    """The common clock, or that of an account."""

    account: AccountId | UnsetType = UNSET
    accounts: Annotated[
        dict[str, AccountClock] | UnsetType, about("Clocks by account, beside the common clock.")
    ] = UNSET


class ResetWish(Struct, forbid_unknown_fields=True):
    """The account to delete everything of. Absent or null: all accounts."""

    account: AccountId | None = None


class ResetDone(Struct):
    """Everything was deleted."""

    status: Literal["ok"]


class ShownState(Struct):
    """A saved state."""

    name: Annotated[str, example("before-upgrade")]
    saved_at: Annotated[Instant, about("By the account's clock.")]
    rows: Annotated[dict[str, int], about("Rows by table.", {"messages": 3, "queues": 1})]


class ListedStates(Struct):
    """The states of an account, by name."""

    account: AccountId
    states: list[ShownState]


class ChangedState(ShownState):
    """The state, which is now saved, or loaded."""

    account: AccountId


class DeletedState(Struct):
    """The state is deleted."""

    account: AccountId
    deleted: Annotated[str, example("before-upgrade")]


of_clock, of_reset = Endpoints("clock"), Endpoints("reset")


@of_clock("GET /_admin/clock", "", refusals=())
async def get_clock(call: AdminCall, query: AdminQuery) -> Answer[ShownClock]:
    """Show a clock. Shows the common clock, or that of an account. Returns 200: The clock."""
    return _standing(call, query.account or None)


@of_clock("POST /_admin/clock", "", refusals=(), body=ClockMove)
async def move_clock(call: AdminCall) -> Answer[ShownClock]:
    """Move a clock. Moves all clocks, or that of an account. Returns 200: The clock after the
    move."""
    if not call.settings.admin_clock:
        raise AuthorizationError(_OFF)
    try:
        wanted = clock_moves.read_move(orjson.loads(call.request.body))
    except orjson.JSONDecodeError:
        raise MalformedInput(f"The body is not JSON. {clock_moves.USAGE}") from None
    await clock_moves.move(call.engine, wanted)
    return _standing(call, wanted.account_id)


def _standing(call: AdminCall, account_id: str | None) -> Answer[ShownClock]:
    common = call.engine.clock
    if account_id is None:
        accounts = {name: _shown(clock) for name, clock in sorted(common.accounts.items())}
        shown = {**_shown(common), "accounts": accounts}
    else:
        clock = common.of(account_id)
        ahead = 0.0 if clock is common else clock.ahead_seconds
        shown = {"account": account_id, **_shown(clock), "ahead_seconds": ahead}
    return _raw(shown)


def _shown(clock: Clock) -> dict[str, Any]:
    now = clock.instant().isoformat(timespec="milliseconds")
    return {"ahead_seconds": clock.ahead_seconds, "now": now, "frozen": clock.is_frozen}


@of_reset("POST /_admin/reset", "", refusals=())
async def reset(call: AdminCall, body: ResetWish | None) -> Answer[ResetDone]:
    """Delete everything. Empties an account, or all of an ephemeral gateway. Returns 200: It is
    done."""
    if not call.settings.ephemeral:
        raise AuthorizationError(_KEEPS_DATA)
    await account_contents.reset(call.engine, None if body is None else body.account)
    return Answer(200, ResetDone("ok"))


of_states = Endpoints(
    "states",
    name=Annotated[
        str,
        Meta(
            extra_json_schema={"pattern": "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,79}$"},
            examples=["before-upgrade"],
        ),
    ],
)


@of_states("GET /_admin/states", "", refusals=())
async def list_states(call: AdminCall, query: AdminQuery) -> Answer[ListedStates]:
    """List saved states. Lists those of the caller's account. Returns 200: The states."""
    async with call.engine.database.transaction() as tx:
        found = await account_states.list_states(tx, call.account_id)
    return _answer(call, {"states": [_state(one) for one in found]})


@of_states("PUT /_admin/states/{name}", "", refusals=(409,))
async def save_state(call: AdminCall, query: AdminQuery) -> Answer[ChangedState]:
    """Save the account. Replaces a state of the name. Returns 200: The state."""
    return await _changed(call, account_contents.save)


@of_states("POST /_admin/states/{name}", "", refusals=(404, 409))
async def load_state(call: AdminCall, query: AdminQuery) -> Answer[ChangedState]:
    """Load a state. Replaces everything that the account has. Returns 200: The state."""
    return await _changed(call, account_contents.load)


@of_states("DELETE /_admin/states/{name}", "")
async def delete_state(call: AdminCall, query: AdminQuery) -> Answer[DeletedState]:
    """Delete a state. The account stays as it is. Returns 200: The state is deleted."""
    return await _changed(call, account_contents.delete_state)


_Change = Callable[["Engine", str, str], Awaitable[SavedState | None]]


async def _changed(call: AdminCall, change: _Change) -> Answer[Any]:
    name, most = call.path.name, call.engine.limits.state_name_length
    if _STATE_NAME(name) is None or len(name) > most:
        raise MalformedInput(_STATE_NAMES.format(most))
    state = await change(call.engine, call.account_id, name)
    return _answer(call, {"deleted": name} if state is None else _state(state))


def _answer(call: AdminCall, content: dict[str, Any]) -> Answer[Any]:
    return _raw({"account": call.account_id, **content})


def _raw(content: dict[str, Any]) -> Answer[Any]:
    return Answer(200, Raw(orjson.dumps(content)))


def _state(state: SavedState) -> dict[str, Any]:
    saved_at = state.saved_at.astimezone(UTC).isoformat(timespec="milliseconds")
    return {"name": state.name, "saved_at": saved_at, "rows": state.counts}


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


of_outbox = Endpoints(
    "outbox",
    outbox_id=Annotated[str, Meta(pattern="^[0-9]{1,18}$", examples=["1"])],
    number=Annotated[
        str, Meta(extra_json_schema={"pattern": r"^\+[1-9][0-9]{7,14}$"}, examples=["+14255550100"])
    ],
)


@of_outbox("GET /_admin/outbox", "", refusals=())
async def list_outbox(call: AdminCall, query: OutboxPageQuery) -> Answer[PageOfOutbox]:
    """List messages that were not sent. Lists those of the caller's account. Returns 200: A
    page."""
    found, next_id = await mobile.list_outbox(
        call.engine, _filter(call), after_id=query.after_id, limit=query.limit
    )
    return _raw({"messages": [_outbox_message(one) for one in found], "next": next_id})


@of_outbox("DELETE /_admin/outbox", "", refusals=())
async def clear_outbox(call: AdminCall, query: OutboxSelection) -> Answer[OutboxCleared]:
    """Delete messages that were not sent. Deletes those of the caller's account. Returns 200: Their
    number."""
    return Answer(200, OutboxCleared(await mobile.clear_outbox(call.engine, _filter(call))))


@of_outbox("GET /_admin/outbox/{outbox_id}", "")
async def get_outbox_message(call: AdminCall, query: AdminQuery) -> Answer[StoredOutboxMessage]:
    """Show a message. Shows a message that was not sent. Returns 200: The message."""
    account_id = call.account_id
    message = await mobile.find_in_outbox(call.engine, account_id, int(call.path.outbox_id))
    if message is None:
        raise NotFound(f"The outbox of account {account_id} has no message of this id.")
    return _raw(_outbox_message(message))


@of_outbox("PUT /_admin/sms/opted-out/{number}", "", refusals=())
async def opt_out(call: AdminCall) -> Answer[PhoneNumberState]:
    """Opt a phone number out. Makes SMS of the caller's account to it fail. Returns 200: The
    number."""
    return await _opted(call, is_out=True)


@of_outbox("DELETE /_admin/sms/opted-out/{number}", "", refusals=())
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


def _outbox_message(message: OutboxMessage) -> dict[str, Any]:
    written = message.written._asdict()
    account_id, attributes = written.pop("account_id"), written["attributes"]
    return {
        "id": message.outbox_id,
        "account": account_id,
        **written,
        "attributes": None if attributes is None else orjson.loads(attributes),
        "created_at": message.created_at.astimezone(UTC).isoformat(timespec="milliseconds"),
    }


_RESOURCES = {
    "resources": [
        {"kind": "queue", "account_id": "111122223333", "region": "us-east-1", "name": "orders"}
    ]
}
_APPLIED: dict[str, Any] = {"changes": ["Created the queue orders."], "faults": [], "secrets": {}}


class SeedBody(seeds.Seed, forbid_unknown_fields=True):
    """Resources to create and change, in one transaction."""


class ExportedSeed(Struct):
    """The resources of an account, in the form of a seed."""

    account: AccountId
    region: _Region
    resources: list[SeedResource]


class AppliedSeed(Struct):
    """The outcome. With faults, nothing was changed."""

    account: AccountId
    region: _Region
    changes: Annotated[list[str], about("A line for each changed resource.")]
    faults: list[seeds.SeedFault]
    secrets: Annotated[dict[int, str], about("Secrets of new keys, by index of their resources.")]


of_seeds = Endpoints("seed")


@of_seeds("GET /_admin/seed", "", refusals=(), shows={200: _RESOURCES})
async def export_seed(call: AdminCall) -> Answer[ExportedSeed]:
    """Export an account. Returns the resources of the caller's account in its region, without
    messages and secrets. Returns 200: The resources."""
    caller = call.caller
    found = await seeds.export_account(call.engine, caller.account_id, caller.region)
    return Answer(200, ExportedSeed(caller.account_id, caller.region, found))


@of_seeds(
    "POST /_admin/seed",
    "",
    refusals=(),
    body=SeedBody,
    example=_RESOURCES,
    shows={200: _APPLIED},
)
async def apply_seed(call: AdminCall) -> Answer[AppliedSeed]:
    """Apply a seed. Creates and changes what differs from it. A key that is not an administrator's
    is for its own account. Returns 200: The outcome."""
    caller = call.caller
    try:
        seed = msgspec.json.decode(call.request.body, type=SeedBody)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedInput(f"The body is not a seed: {error}.") from None
    others = {one.account_id for one in seed.resources} | {one[0] for one in seed.places}
    others.discard(caller.account_id)
    if others and caller.producer is not None and not caller.is_administrator:
        text = f"The key is of account {caller.account_id}, and the file is about {min(others)}."
        raise AuthorizationError(text)
    try:
        result = await seeds.apply_seed(
            call.settings,
            call.engine,
            seed,
            call.request.links_url,
            is_administrator=caller.is_administrator,
        )
    except Rejected as refusal:
        raise AuthorizationError(str(refusal)) from None
    members: dict[str, Any] = {name: getattr(result, name) for name in result.__struct_fields__}
    return Answer(200, AppliedSeed(caller.account_id, caller.region, **members))

"""Pages that change what an account has, or its time: the clock, the reset, and saved states."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import UTC
from typing import TYPE_CHECKING, Annotated, Any, Literal

import orjson
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from queuegate.gateway.faces.json.json_endpoints import Answer, Endpoints
from queuegate.gateway.faces.json.json_fields import Instant, about, example
from queuegate.gateway.operations.runtime import account_contents, clock_moves
from queuegate.gateway.operations.runtime.clock_moves import BadMove
from queuegate.gateway.pages.admin_endpoints import (
    AccountId,
    AdminCall,
    AdminQuery,
    AdminRefused,
)
from queuegate.storage import account_states
from queuegate.storage.account_states import SavedState, StateRefused, StateUnknown

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
        raise AdminRefused(403, _OFF)
    try:
        wanted = clock_moves.read_move(orjson.loads(call.request.body))
        await clock_moves.move(call.engine, wanted)
    except orjson.JSONDecodeError:
        raise AdminRefused(400, f"The body is not JSON. {clock_moves.USAGE}") from None
    except BadMove as refusal:
        raise AdminRefused(400, str(refusal)) from None
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
    return Answer(200, Raw(orjson.dumps(shown)))


def _shown(clock: Clock) -> dict[str, Any]:
    now = clock.instant().isoformat(timespec="milliseconds")
    return {"ahead_seconds": clock.ahead_seconds, "now": now, "frozen": clock.is_frozen}


@of_reset("POST /_admin/reset", "", refusals=())
async def reset(call: AdminCall, body: ResetWish | None) -> Answer[ResetDone]:
    """Delete everything. Empties an account, or all of an ephemeral gateway. Returns 200: It is
    done."""
    if not call.settings.ephemeral:
        raise AdminRefused(403, _KEEPS_DATA)
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
        raise AdminRefused(400, _STATE_NAMES.format(most))
    try:
        state = await change(call.engine, call.account_id, name)
    except StateRefused as refusal:
        status = 404 if isinstance(refusal, StateUnknown) else 409
        raise AdminRefused(status, str(refusal)) from None
    return _answer(call, {"deleted": name} if state is None else _state(state))


def _answer(call: AdminCall, content: dict[str, Any]) -> Answer[Any]:
    return Answer(200, Raw(orjson.dumps({"account": call.account_id, **content})))


def _state(state: SavedState) -> dict[str, Any]:
    saved_at = state.saved_at.astimezone(UTC).isoformat(timespec="milliseconds")
    return {"name": state.name, "saved_at": saved_at, "rows": state.counts}

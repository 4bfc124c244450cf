"""Keys by which clients say who they are: make, list, look at, revoke."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from gateway.faces.json.endpoints import PAGED, Answer, Answered, Call, Endpoint, next_page
from gateway.faces.json.message_members import BIGGEST_ID
from gateway.operations import keys
from gateway.operations.keys import NewApiKey
from storage.key_model import Key
from storage.key_model import RateLimit as Limit

_TAG = "keys"

KeyName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=80,
        pattern="^[A-Za-z0-9._-]+$",
        description="For people and metrics: no two keys of an account have the same.",
        examples=["shop"],
    ),
]
KeyId = Annotated[int, Meta(ge=1, le=BIGGEST_ID, description="The number of a key.", examples=[17])]


class RateLimit(Struct, forbid_unknown_fields=True):
    """In no such window of time more requests than that, over all gateways."""

    requests: Annotated[int, Meta(ge=1, le=1_000_000)]
    window_seconds: Annotated[int, Meta(ge=1, le=86_400)] = 1


class NewKey(Struct, forbid_unknown_fields=True):
    """A key to make."""

    name: KeyName
    rate_limit: RateLimit | None = None
    expires_at: Annotated[datetime, Meta(tz=True)] | None = None


class KeyShown(Struct):
    """A key, without its secret."""

    id: KeyId
    name: str
    account_id: str
    rate_limit: RateLimit | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class MadeKey(KeyShown):
    """A key with all of it: what clients show."""

    key: Annotated[str, Meta(description="Shown once: the gateway keeps a hash of it.")]


class KeyPath(Struct, forbid_unknown_fields=True):
    """A key."""

    id: KeyId


class KeysQuery(Struct, forbid_unknown_fields=True):
    """Which keys."""

    revoked: Annotated[
        bool, Meta(description="Also those that were revoked in the last 30 days.")
    ] = False
    after: Annotated[int, Meta(ge=0, le=BIGGEST_ID, description="Only those behind this one.")] = 0
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 1_000


def _members(key: Key) -> dict[str, Any]:
    return {
        "id": key.key_id,
        "name": key.name,
        "account_id": key.account_id,
        "rate_limit": None if key.limit is None else RateLimit(*key.limit),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
    }


async def _create(call: Call) -> Answer:
    body: NewKey = call.body
    rate = body.rate_limit
    limit = None if rate is None else Limit(rate.requests, rate.window_seconds)
    wanted = NewApiKey(body.name, limit, body.expires_at)
    key, shown = await keys.create_key(call.engine, call.caller, wanted)
    made = MadeKey(**_members(key), key=shown)
    return Answer(201, made, {"location": f"/v1/keys/{key.key_id}", "cache-control": "no-store"})


async def _list(call: Call) -> Answer:
    query: KeysQuery = call.query
    found = await keys.list_keys(
        call.engine,
        call.caller,
        after_id=query.after,
        with_revoked=query.revoked,
        limit=query.limit + 1,
    )
    shown = found[: query.limit]
    headers = None
    if len(found) > query.limit:
        revoked = "true" if query.revoked else None
        headers = next_page("/v1/keys", after=shown[-1].key_id, limit=query.limit, revoked=revoked)
    return Answer(200, [KeyShown(**_members(key)) for key in shown], headers)


async def _look(call: Call) -> Answer:
    key = await keys.find_key(call.engine, call.caller, call.path.id)
    return Answer(200, KeyShown(**_members(key)))


async def _revoke(call: Call) -> Answer:
    await keys.revoke_key(call.engine, call.caller, call.path.id)
    return Answer(204)


_EXAMPLE = {
    "id": 17,
    "name": "shop",
    "account_id": "000000000000",
    "rate_limit": {"requests": 500, "window_seconds": 1},
    "created_at": "2030-01-31T09:00:00Z",
    "expires_at": None,
    "revoked_at": None,
}
_ID = {"id": "$response.body#/id"}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        "/v1/keys",
        "createKey",
        "Make a key",
        "Of the account of whoever asks. Clients send it as X-Api-Key or Authorization: Bearer. "
        "All gateways take it when this is answered. 409: there is one of that name, or there are "
        "10,000.",
        _TAG,
        _create,
        (
            Answered(
                201,
                MadeKey,
                "The key.",
                _EXAMPLE | {"key": "qg_17_kW0yGdn1ZzL3vT9bq5sXo2fRh7cAeJm4uPi8lNtYxQE"},
                headers={"Location": "Where the key is.", "Cache-Control": "no-store"},
                links={"getKey": _ID, "revokeKey": _ID},
            ),
        ),
        refusals=(409,),
        body=NewKey,
        example={"name": "shop", "rate_limit": {"requests": 500, "window_seconds": 1}},
        right="queuegate:CreateKey",
        resource="key/*",
    ),
    Endpoint(
        "GET",
        "/v1/keys",
        "listKeys",
        "List keys",
        "Of the account, by number. When there are more, the header Link leads to them.",
        _TAG,
        _list,
        (Answered(200, list[KeyShown], "Keys.", [_EXAMPLE], headers=PAGED),),
        query=KeysQuery,
        refusals=(),
        right="queuegate:ListKeys",
        resource="key/*",
    ),
    Endpoint(
        "GET",
        "/v1/keys/{id}",
        "getKey",
        "Look at a key",
        "One that was revoked, too, for 30 days. Nobody can see its secret again.",
        _TAG,
        _look,
        (Answered(200, KeyShown, "The key.", _EXAMPLE),),
        path_params=KeyPath,
        right="queuegate:GetKey",
        resource="key/{id}",
    ),
    Endpoint(
        "DELETE",
        "/v1/keys/{id}",
        "revokeKey",
        "Revoke a key",
        "No gateway takes it any more when this is answered. Once more changes nothing.",
        _TAG,
        _revoke,
        (Answered(204, None, "It is revoked."),),
        path_params=KeyPath,
        right="queuegate:RevokeKey",
        resource="key/{id}",
    ),
)

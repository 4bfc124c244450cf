"""Keys by which clients say who they are: make, list, look at, change, revoke."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
import orjson
from msgspec import UNSET, Meta, Struct, UnsetType

from queuegate.gateway.faces.json.endpoints import (
    PAGED,
    Answer,
    Answered,
    Call,
    Endpoint,
    next_page,
)
from queuegate.gateway.faces.json.message_members import BIGGEST_ID
from queuegate.gateway.operations.access import api_keys
from queuegate.gateway.operations.access.api_keys import LONGEST_OVERLAP_SECONDS, NewApiKey
from queuegate.storage.key_model import ACCESS, Key
from queuegate.storage.key_model import RateLimit as Limit

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


AccountId = Annotated[
    str,
    Meta(pattern="^[0-9]{12}$", description="Of another account: for administrators."),
]


Policy = Annotated[
    dict[str, Any],
    Meta(
        description="What the key may do: a policy of IAM's without Principal, of 6,144 "
        "characters at most. Without one it is everything in its account.",
        examples=[
            {
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Allow",
                        "Action": "sqs:*",
                        "Resource": "arn:aws:sqs:*:000000000000:shop-*",
                    }
                ],
            }
        ],
    ),
]


class RateLimit(Struct, forbid_unknown_fields=True):
    """In no such window of time more requests than that, over all gateways."""

    requests: Annotated[int, Meta(ge=1, le=1_000_000)]
    window_seconds: Annotated[int, Meta(ge=1, le=86_400)] = 1


class NewKey(Struct, forbid_unknown_fields=True):
    """A key to make."""

    name: KeyName
    rate_limit: RateLimit | None = None
    expires_at: Annotated[datetime, Meta(tz=True)] | None = None
    kind: Annotated[
        Literal["api", "access"],
        Meta(description="api: clients show it. access: clients sign with it, as for AWS."),
    ] = "api"
    administrator: Annotated[bool, Meta(description="Whether it may do everything.")] = False
    account_id: AccountId | None = None
    policy: Policy | None = None


class KeyShown(Struct):
    """A key, without its secret."""

    id: KeyId
    name: str
    account_id: str
    rate_limit: RateLimit | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    kind: Literal["api", "access"]
    administrator: bool
    access_key_id: Annotated[str, Meta(description="Of one that signs.")] | None
    disabled_at: Annotated[datetime, Meta(description="Since when it is not taken.")] | None
    previous_until: (
        Annotated[datetime, Meta(description="How long the secret before is good.")] | None
    )
    policy: Policy | None


class MadeKey(KeyShown, omit_defaults=True):
    """A key with all of it: what clients show, or sign with."""

    key: Annotated[str, Meta(description="Of kind api. The gateway keeps a hash of it.")] = ""
    secret_access_key: Annotated[str, Meta(description="Of kind access. Shown once.")] = ""


class KeyPath(Struct, forbid_unknown_fields=True):
    """A key."""

    id: KeyId


class Rotation(Struct, forbid_unknown_fields=True):
    """How a secret is replaced."""

    overlap_seconds: Annotated[
        int,
        Meta(ge=0, le=LONGEST_OVERLAP_SECONDS, description="That the one before is good, too."),
    ] = 86_400


class KeyChange(Struct, forbid_unknown_fields=True):
    """What is different of a key; what is absent stays as it is."""

    disabled: (
        Annotated[bool, Meta(description="true: gateways refuse it until it is false.")] | UnsetType
    ) = UNSET
    policy: Annotated[
        Policy | UnsetType | None, Meta(description="Another policy; null: none.")
    ] = UNSET


class KeysQuery(Struct, forbid_unknown_fields=True):
    """Which keys."""

    revoked: Annotated[
        bool, Meta(description="Also those that were revoked in the last 30 days.")
    ] = False
    after: Annotated[int, Meta(ge=0, le=BIGGEST_ID, description="Only those behind this one.")] = 0
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 1_000
    account: AccountId | None = None


def _members(key: Key) -> dict[str, Any]:
    return {
        "id": key.key_id,
        "name": key.name,
        "account_id": key.account_id,
        "rate_limit": None if key.limit is None else RateLimit(*key.limit),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "kind": key.kind,
        "administrator": key.is_administrator,
        "access_key_id": key.access_key,
        "disabled_at": key.disabled_at,
        "previous_until": key.previous_until,
        "policy": None if key.policy is None else orjson.loads(key.policy),
    }


async def _create(call: Call) -> Answer:
    body: NewKey = call.body
    rate = body.rate_limit
    limit = None if rate is None else Limit(rate.requests, rate.window_seconds)
    policy = None if body.policy is None else msgspec.json.encode(body.policy).decode()
    wanted = NewApiKey(body.name, limit, body.expires_at, body.kind, body.administrator, policy)
    key, shown = await api_keys.create_key(call.engine, call.caller, wanted, body.account_id)
    return _shown_once(201, key, shown)


def _shown_once(status: int, key: Key, shown: str) -> Answer:
    made = MadeKey(**_members(key))
    if key.kind == ACCESS:
        made.secret_access_key = shown
    else:
        made.key = shown
    headers = {"cache-control": "no-store"}
    if status == 201:
        headers["location"] = f"/v1/keys/{key.key_id}"
    return Answer(status, made, headers)


async def _list(call: Call) -> Answer:
    query: KeysQuery = call.query
    found = await api_keys.list_keys(
        call.engine,
        call.caller,
        after_id=query.after,
        with_revoked=query.revoked,
        limit=query.limit + 1,
        account_id=query.account,
    )
    shown = found[: query.limit]
    headers = None
    if len(found) > query.limit:
        revoked = "true" if query.revoked else None
        headers = next_page(
            "/v1/keys",
            after=shown[-1].key_id,
            limit=query.limit,
            revoked=revoked,
            account=query.account,
        )
    return Answer(200, [KeyShown(**_members(key)) for key in shown], headers)


async def _look(call: Call) -> Answer:
    key = await api_keys.find_key(call.engine, call.caller, call.path.id)
    return Answer(200, KeyShown(**_members(key)))


async def _rotate(call: Call) -> Answer:
    body: Rotation = call.body or Rotation()
    key, secret = await api_keys.rotate_key(
        call.engine, call.caller, call.path.id, body.overlap_seconds
    )
    return _shown_once(200, key, secret)


async def _change(call: Call) -> Answer:
    body: KeyChange = call.body
    policy = None if body.policy is UNSET else msgspec.json.encode(body.policy).decode()
    key = await api_keys.change_key(
        call.engine,
        call.caller,
        call.path.id,
        is_disabled=None if body.disabled is UNSET else body.disabled,
        policy="" if policy == _NULL else policy,
    )
    return Answer(200, KeyShown(**_members(key)))


async def _revoke(call: Call) -> Answer:
    await api_keys.revoke_key(call.engine, call.caller, call.path.id)
    return Answer(204)


_NULL = "null"
_EXAMPLE = {
    "id": 17,
    "name": "shop",
    "account_id": "000000000000",
    "rate_limit": {"requests": 500, "window_seconds": 1},
    "created_at": "2030-01-31T09:00:00Z",
    "expires_at": None,
    "revoked_at": None,
    "kind": "api",
    "administrator": False,
    "access_key_id": None,
    "disabled_at": None,
    "previous_until": None,
    "policy": None,
}
_ID = {"id": "$response.body#/id"}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        "/v1/keys",
        "createKey",
        "Make a key",
        "Of the account of whoever asks. Clients send it as X-Api-Key or Authorization: Bearer. "
        "One of kind access signs requests; administrators make these, those of administrators, "
        "and those of other accounts. All gateways take it when this is answered. 409: there is "
        "one of that name, or there are 10,000.",
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
        "PATCH",
        "/v1/keys/{id}",
        "changeKey",
        "Disable or enable a key, or say what it may do",
        "All gateways know when this is answered. Of keys that sign, and of those of "
        "administrators, it takes an administrator, as all changes do.",
        _TAG,
        _change,
        (Answered(200, KeyShown, "The key.", _EXAMPLE),),
        path_params=KeyPath,
        body=KeyChange,
        example={"disabled": True},
        right="queuegate:ChangeKey",
        resource="key/{id}",
    ),
    Endpoint(
        "POST",
        "/v1/keys/{id}/rotations",
        "rotateKey",
        "Give a key another secret",
        "Of kind access. The secret before stays good for a day, or as long as is said; one before "
        "that ends.",
        _TAG,
        _rotate,
        (
            Answered(
                200,
                MadeKey,
                "The key with its new secret, which is shown once.",
                _EXAMPLE
                | {
                    "kind": "access",
                    "access_key_id": "AKQGU4SZH4WCAKFKFKG7",
                    "previous_until": "2030-02-01T09:00:00Z",
                    "secret_access_key": "RFybcPshj3MkoDrngvO64u5vf1WjvJhwtfKoFPIE",
                },
                headers={"Cache-Control": "no-store"},
            ),
        ),
        path_params=KeyPath,
        body=Rotation,
        body_is_optional=True,
        example={"overlap_seconds": 3600},
        right="queuegate:RotateKey",
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

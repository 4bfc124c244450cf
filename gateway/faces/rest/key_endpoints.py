"""Endpoints of keys, which authenticate clients, and of quotas of accounts and keys."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
import orjson
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from queuegate.gateway.faces.json.json_endpoints import (
    PAGED,
    Answer,
    Answered,
    Call,
    Endpoint,
    next_page,
    schema_name,
)
from queuegate.gateway.faces.json.json_fields import BIGGEST_ID
from queuegate.gateway.operations.access import api_keys
from queuegate.gateway.operations.access.api_keys import LONGEST_OVERLAP_SECONDS, NewApiKey
from queuegate.storage.model import ACCESS, ANY, UNLIMITED, Key
from queuegate.storage.model import Quota as Stored
from queuegate.storage.model import RateLimit as Limit

_TAG = "keys"

KeyName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=80,
        pattern="^[A-Za-z0-9._-]+$",
        description="A name for people and metrics, unique in the account.",
        examples=["shop"],
    ),
]
KeyId = Annotated[int, Meta(ge=1, le=BIGGEST_ID, description="The number of a key.", examples=[17])]


AccountId = Annotated[
    str,
    Meta(pattern="^[0-9]{12}$", description="Another account, for administrators."),
]


Policy = Annotated[
    dict[str, Any],
    Meta(
        description="Permissions of the key: an IAM policy without Principal, of at most 6,144 "
        "characters. Without a policy: everything in its account.",
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


@schema_name("RateLimit")
class RequestLimit(Struct, forbid_unknown_fields=True):
    """Maximum requests in each window of time, over all gateways."""

    requests: Annotated[int, Meta(ge=1, le=1_000_000)]
    window_seconds: Annotated[int, Meta(ge=1, le=86_400)] = 1


@schema_name("NewKey")
class NewKeyBody(Struct, forbid_unknown_fields=True):
    """A key to create."""

    name: KeyName
    rate_limit: RequestLimit | None = None
    expires_at: Annotated[datetime, Meta(tz=True)] | None = None
    kind: Annotated[
        Literal["api", "access"],
        Meta(description="api: clients send the key. access: clients sign with it, as for AWS."),
    ] = "api"
    administrator: Annotated[bool, Meta(description="True: all permissions.")] = False
    account_id: AccountId | None = None
    policy: Policy | None = None


class KeyShown(Struct):
    """A key, without its secret."""

    id: KeyId
    name: str
    account_id: str
    rate_limit: RequestLimit | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    kind: Literal["api", "access"]
    administrator: bool
    access_key_id: Annotated[str, Meta(description="Present for kind access.")] | None
    disabled_at: Annotated[datetime, Meta(description="Time of the disablement.")] | None
    previous_until: Annotated[datetime, Meta(description="Expiry of the previous secret.")] | None
    policy: Policy | None


class MadeKey(KeyShown, omit_defaults=True):
    """A key with its secret."""

    key: Annotated[str, Meta(description="For kind api. The gateway stores a hash.")] = ""
    secret_access_key: Annotated[str, Meta(description="For kind access. Shown once.")] = ""


class KeyPath(Struct, forbid_unknown_fields=True):
    """A key."""

    id: KeyId


class Rotation(Struct, forbid_unknown_fields=True):
    """A replacement of a secret."""

    overlap_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=LONGEST_OVERLAP_SECONDS,
            description="Seconds for which the previous secret stays valid.",
        ),
    ] = 86_400


class KeyChange(Struct, forbid_unknown_fields=True):
    """Settings to change. Absent members stay unchanged."""

    disabled: Annotated[bool, Meta(description="True: gateways refuse the key.")] | UnsetType = (
        UNSET
    )
    policy: Annotated[
        Policy | UnsetType | None, Meta(description="A new policy. Null: no policy.")
    ] = UNSET


class KeysQuery(Struct, forbid_unknown_fields=True):
    """A page of keys."""

    revoked: Annotated[
        bool, Meta(description="True: include keys revoked in the last 30 days.")
    ] = False
    after: Annotated[int, Meta(ge=0, le=BIGGEST_ID, description="Only higher numbers.")] = 0
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 1_000
    account: AccountId | None = None


def _members(key: Key) -> dict[str, Any]:
    return {
        "id": key.key_id,
        "name": key.name,
        "account_id": key.account_id,
        "rate_limit": None if key.limit is None else RequestLimit(*key.limit),
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
    body: NewKeyBody = call.body
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


async def _get(call: Call) -> Answer:
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


Count = Annotated[
    int,
    Meta(ge=ANY, le=1_000_000, description="-1: no limit. Null: the limit of the settings."),
]
Subject = Annotated[
    str,
    Meta(
        pattern="^([0-9]{12}|key-[1-9][0-9]{0,17})$",
        description="An account, or a key by number.",
        examples=["111122223333", "key-17"],
    ),
]


class ByteLimit(Struct, forbid_unknown_fields=True):
    """Approximate maximum bytes of requests and answers in each window, over all gateways."""

    bytes: Annotated[int, Meta(ge=1024, le=1 << 40)]
    window_seconds: Annotated[int, Meta(ge=1, le=86_400)] = 1


@schema_name("Quota")
class QuotaBody(Struct, forbid_unknown_fields=True):
    """The limits of an account or a key. A key has only `requests` and `bytes`."""

    requests: RequestLimit | None = None
    """Rate limit of requests, all actions together."""
    unlimited_requests: Annotated[
        bool, Meta(description="True: no rate limit, whatever the settings are.")
    ] = False
    queues: Count | None = None
    topics: Count | None = None
    subscriptions: Count | None = None
    logs: Count | None = None
    bytes: ByteLimit | None = None
    """Limit of bytes of requests and answers, all actions together."""
    unlimited_bytes: bool = False


class QuotaShown(QuotaBody, kw_only=True):
    """A quota and its subject."""

    subject: Subject


class QuotaPath(Struct, forbid_unknown_fields=True):
    """The subject of a quota."""

    subject: Subject


def _shown_quota(subject: str, quota: Stored) -> QuotaShown:
    requests, in_bytes = quota.requests, quota.bytes
    return QuotaShown(
        None if requests is None or requests == UNLIMITED else RequestLimit(*requests),
        requests == UNLIMITED,
        quota.queues,
        quota.topics,
        quota.subscriptions,
        quota.logs,
        None if in_bytes is None or in_bytes == UNLIMITED else ByteLimit(*in_bytes),
        in_bytes == UNLIMITED,
        subject=subject,
    )


def _limit_of(body: RequestLimit | ByteLimit | None, *, is_unlimited: bool) -> Limit | None:
    if is_unlimited:
        return UNLIMITED
    return None if body is None else Limit(*structs.astuple(body))


async def _list_quotas(call: Call) -> Answer:
    found = await api_keys.list_quotas(call.engine, call.caller)
    return Answer(200, [_shown_quota(subject, quota) for subject, quota in found.items()])


async def _put_quota(call: Call) -> Answer:
    body: QuotaBody = call.body
    quota = Stored(
        _limit_of(body.requests, is_unlimited=body.unlimited_requests),
        body.queues,
        body.topics,
        body.subscriptions,
        body.logs,
        _limit_of(body.bytes, is_unlimited=body.unlimited_bytes),
    )
    await api_keys.put_quota(call.engine, call.caller, call.path.subject, quota)
    return Answer(200, _shown_quota(call.path.subject, quota))


async def _delete_quota(call: Call) -> Answer:
    await api_keys.remove_quota(call.engine, call.caller, call.path.subject)
    return Answer(204)


_QUOTA = {"requests": {"requests": 500, "window_seconds": 1}, "queues": 100}
_QUOTA_SHOWN = {
    "requests": {"requests": 500, "window_seconds": 1},
    "unlimited_requests": False,
    "queues": 100,
    "topics": None,
    "subscriptions": None,
    "logs": None,
    "bytes": None,
    "unlimited_bytes": False,
    "subject": "111122223333",
}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        "/v1/keys",
        "createKey",
        "Create a key",
        "Creates a key of the caller's account. Clients send it as X-Api-Key or Authorization: "
        "Bearer. A key of kind access signs requests. Only administrators create keys of kind "
        "access, administrator keys and keys of other accounts. All gateways accept the key when "
        "the answer arrives. 409: the name is taken, or the account has 10,000 keys.",
        _TAG,
        _create,
        (
            Answered(
                201,
                MadeKey,
                "The key.",
                _EXAMPLE | {"key": "qg_17_kW0yGdn1ZzL3vT9bq5sXo2fRh7cAeJm4uPi8lNtYxQE"},
                headers={"Location": "Path of the key.", "Cache-Control": "no-store"},
                links={"getKey": _ID, "revokeKey": _ID},
            ),
        ),
        refusals=(409,),
        body=NewKeyBody,
        example={"name": "shop", "rate_limit": {"requests": 500, "window_seconds": 1}},
        right="queuegate:CreateKey",
        resource="key/*",
    ),
    Endpoint(
        "GET",
        "/v1/keys",
        "listKeys",
        "List keys",
        "Lists the keys of the account by number. The header Link leads to the next page.",
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
        "Get a key",
        "Returns a key without its secret. Revoked keys are available for 30 days.",
        _TAG,
        _get,
        (Answered(200, KeyShown, "The key.", _EXAMPLE),),
        path_params=KeyPath,
        right="queuegate:GetKey",
        resource="key/{id}",
    ),
    Endpoint(
        "PATCH",
        "/v1/keys/{id}",
        "changeKey",
        "Disable or enable a key, or change its policy",
        "All gateways apply the change when the answer arrives. Only administrators change keys of "
        "kind access and administrator keys.",
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
        "Replace the secret of a key",
        "Applies to keys of kind access. The previous secret stays valid for `overlap_seconds`. An "
        "older secret ends at once.",
        _TAG,
        _rotate,
        (
            Answered(
                200,
                MadeKey,
                "The key with its new secret, which is shown only once.",
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
        "All gateways refuse the key when the answer arrives. Repeated requests succeed.",
        _TAG,
        _revoke,
        (Answered(204, None, "The key is revoked."),),
        path_params=KeyPath,
        right="queuegate:RevokeKey",
        resource="key/{id}",
    ),
    Endpoint(
        "GET",
        "/v1/quotas",
        "listQuotas",
        "List quotas",
        "Lists the quotas of accounts and keys that differ from the settings. For administrators.",
        _TAG,
        _list_quotas,
        (Answered(200, list[QuotaShown], "Quotas.", [_QUOTA_SHOWN]),),
        refusals=(),
        right="queuegate:ListQuotas",
        resource="quota/*",
    ),
    Endpoint(
        "PUT",
        "/v1/quotas/{subject}",
        "putQuota",
        "Set the quota of an account or a key",
        "Replaces the whole quota. Absent members use the settings. All gateways apply it within a "
        "second. For administrators.",
        _TAG,
        _put_quota,
        (Answered(200, QuotaShown, "The quota.", _QUOTA_SHOWN),),
        path_params=QuotaPath,
        body=QuotaBody,
        example=_QUOTA,
        refusals=(429,),
        right="queuegate:PutQuota",
        resource="quota/{subject}",
    ),
    Endpoint(
        "DELETE",
        "/v1/quotas/{subject}",
        "deleteQuota",
        "Delete the quota of an account or a key",
        "The settings apply again. Repeated requests succeed. For administrators.",
        _TAG,
        _delete_quota,
        (Answered(204, None, "The quota is deleted."),),
        path_params=QuotaPath,
        refusals=(),
        right="queuegate:DeleteQuota",
        resource="quota/{subject}",
    ),
)

"""Endpoints of keys, which authenticate clients, and of quotas of accounts and keys."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
import orjson
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from queuegate.gateway.faces.json.json_endpoints import PAGED, Answer, Call, Endpoints, next_page
from queuegate.gateway.faces.json.json_fields import BIGGEST_ID, about, example, schema_name
from queuegate.gateway.operations.access import api_keys
from queuegate.gateway.operations.access.api_keys import LONGEST_OVERLAP_SECONDS, NewApiKey
from queuegate.storage.model import ACCESS, ANY, UNLIMITED, Key
from queuegate.storage.model import Quota as Stored
from queuegate.storage.model import RateLimit as Limit

KeyName = Annotated[
    str,
    about("A name for people and metrics, unique in the account."),
    Meta(min_length=1, max_length=80, pattern="^[A-Za-z0-9._-]+$", examples=["shop"]),
]
KeyId = Annotated[int, about("The number of a key.", ge=1, le=BIGGEST_ID, examples=[17])]


AccountId = Annotated[str, about("Another account, for administrators.", pattern="^[0-9]{12}$")]


Policy = Annotated[
    dict[str, Any],
    about(
        "Permissions of the key: an IAM policy without Principal, of at most 6,144 "
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
Subject = Annotated[
    str,
    about("An account, or a key by number."),
    Meta(pattern="^([0-9]{12}|key-[1-9][0-9]{0,17})$", examples=["111122223333", "key-17"]),
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
    rate_limit: Annotated[RequestLimit | None, example({"requests": 500, "window_seconds": 1})] = (
        None
    )
    expires_at: Annotated[datetime, Meta(tz=True)] | None = None
    kind: Annotated[
        Literal["api", "access"],
        about("api: clients send the key. access: clients sign with it, as for AWS."),
    ] = "api"
    administrator: Annotated[bool, about("True: all permissions.")] = False
    account_id: AccountId | None = None
    policy: Policy | None = None


class KeyShown(Struct):
    """A key, without its secret."""

    id: KeyId
    name: Annotated[str, example("shop")]
    account_id: Annotated[str, example("000000000000")]
    rate_limit: Annotated[RequestLimit | None, example({"requests": 500, "window_seconds": 1})]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    kind: Annotated[Literal["api", "access"], example("api")]
    administrator: bool
    access_key_id: Annotated[str, about("Present for kind access.")] | None
    disabled_at: Annotated[datetime, about("Time of the disablement.")] | None
    previous_until: Annotated[datetime, about("Expiry of the previous secret.")] | None
    policy: Policy | None


class MadeKey(KeyShown, omit_defaults=True):
    """A key with its secret."""

    key: Annotated[str, about("For kind api. The gateway stores a hash.")] = ""
    secret_access_key: Annotated[str, about("For kind access. Shown once.")] = ""


class Rotation(Struct, forbid_unknown_fields=True):
    """A replacement of a secret."""

    overlap_seconds: Annotated[
        int,
        about(
            "Seconds for which the previous secret stays valid.", ge=0, le=LONGEST_OVERLAP_SECONDS
        ),
        example(3600),
    ] = 86_400


class KeyChange(Struct, forbid_unknown_fields=True):
    """Settings to change. Absent members stay unchanged."""

    disabled: (
        Annotated[bool, about("True: gateways refuse the key."), example(True)] | UnsetType
    ) = UNSET
    policy: Annotated[Policy | UnsetType | None, about("A new policy. Null: no policy.")] = UNSET


class KeysQuery(Struct, forbid_unknown_fields=True):
    """A page of keys."""

    revoked: Annotated[bool, about("True: include keys revoked in the last 30 days.")] = False
    after: Annotated[int, about("Only higher numbers.", ge=0, le=BIGGEST_ID)] = 0
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 1_000
    account: AccountId | None = None


def members_of(key: Key) -> dict[str, Any]:
    """Return the members of a key, without its secret."""
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


endpoint = Endpoints("keys", id=KeyId, subject=Subject)
_ID = {"id": "$response.body#/id"}
_QUOTA = {"requests": {"requests": 500, "window_seconds": 1}, "queues": 100}


@endpoint(
    "POST /v1/keys",
    "queuegate:CreateKey",
    resource="key/*",
    refusals=(409,),
    headers={"Location": "Path of the key.", "Cache-Control": "no-store"},
    links={"getKey": _ID, "revokeKey": _ID},
    shows={201: {"key": "qg_17_kW0yGdn1ZzL3vT9bq5sXo2fRh7cAeJm4uPi8lNtYxQE"}},
)
async def create_key(call: Call, body: NewKeyBody) -> Answer[MadeKey]:
    """Create a key. Creates a key of the caller's account. Clients send it as X-Api-Key or
    Authorization: Bearer. A key of kind access signs requests. Only administrators create keys of
    kind access, administrator keys and keys of other accounts. All gateways accept the key when the
    answer arrives. 409: the name is taken, or the account has 10,000 keys. Returns 201: The key."""
    rate = body.rate_limit
    limit = None if rate is None else Limit(rate.requests, rate.window_seconds)
    policy = None if body.policy is None else msgspec.json.encode(body.policy).decode()
    wanted = NewApiKey(body.name, limit, body.expires_at, body.kind, body.administrator, policy)
    key, shown = await api_keys.create_key(call.engine, call.caller, wanted, body.account_id)
    return _shown_once(201, key, shown)


def _shown_once(status: int, key: Key, shown: str) -> Answer[MadeKey]:
    made = MadeKey(**members_of(key))
    if key.kind == ACCESS:
        made.secret_access_key = shown
    else:
        made.key = shown
    headers = {"cache-control": "no-store"}
    if status == 201:
        headers["location"] = f"/v1/keys/{key.key_id}"
    return Answer(status, made, headers)


@endpoint("GET /v1/keys", "queuegate:ListKeys", resource="key/*", refusals=(), headers=PAGED)
async def list_keys(call: Call, query: KeysQuery) -> Answer[list[KeyShown]]:
    """List keys. Lists the keys of the account by number. The header Link leads to the next page.
    Returns 200: Keys."""
    found = await api_keys.list_keys(
        call.engine,
        call.caller,
        after_id=query.after,
        with_revoked=query.revoked,
        limit=query.limit + 1,
        account_id=query.account,
    )
    shown = found[: query.limit]
    headers = next_page(
        "/v1/keys",
        after=shown[-1].key_id if len(found) > query.limit else None,
        limit=query.limit,
        revoked="true" if query.revoked else None,
        account=query.account,
    )
    return Answer(200, [KeyShown(**members_of(key)) for key in shown], headers)


@endpoint("GET /v1/keys/{id}", "queuegate:GetKey", resource="key/{id}")
async def get_key(call: Call) -> Answer[KeyShown]:
    """Get a key. Returns a key without its secret. Revoked keys are available for 30 days. Returns
    200: The key."""
    key = await api_keys.find_key(call.engine, call.caller, call.path.id)
    return Answer(200, KeyShown(**members_of(key)))


@endpoint(
    "POST /v1/keys/{id}/rotations",
    "queuegate:RotateKey",
    resource="key/{id}",
    shows={
        200: {
            "kind": "access",
            "access_key_id": "AKQGU4SZH4WCAKFKFKG7",
            "previous_until": "2030-02-01T09:00:00Z",
            "secret_access_key": "RFybcPshj3MkoDrngvO64u5vf1WjvJhwtfKoFPIE",
        }
    },
    headers={"Cache-Control": "no-store"},
)
async def rotate_key(call: Call, body: Rotation | None) -> Answer[MadeKey]:
    """Replace the secret of a key. Applies to keys of kind access. The previous secret stays valid
    for `overlap_seconds`. An older secret ends at once. Returns 200: The key with its new secret,
    which is shown only once."""
    key, secret = await api_keys.rotate_key(
        call.engine, call.caller, call.path.id, (body or Rotation()).overlap_seconds
    )
    return _shown_once(200, key, secret)


@endpoint("PATCH /v1/keys/{id}", "queuegate:ChangeKey", resource="key/{id}")
async def change_key(call: Call, body: KeyChange) -> Answer[KeyShown]:
    """Disable or enable a key, or change its policy. All gateways apply the change when the answer
    arrives. Only administrators change keys of kind access and administrator keys. Returns 200: The
    key."""
    policy = None if body.policy is UNSET else msgspec.json.encode(body.policy).decode()
    key = await api_keys.change_key(
        call.engine,
        call.caller,
        call.path.id,
        is_disabled=None if body.disabled is UNSET else body.disabled,
        policy="" if policy == _NULL else policy,
    )
    return Answer(200, KeyShown(**members_of(key)))


@endpoint("DELETE /v1/keys/{id}", "queuegate:RevokeKey", resource="key/{id}")
async def revoke_key(call: Call) -> Answer[None]:
    """Revoke a key. All gateways refuse the key when the answer arrives. Repeated requests succeed.
    Returns 204: The key is revoked."""
    await api_keys.revoke_key(call.engine, call.caller, call.path.id)
    return Answer(204)


_NULL = "null"


Count = Annotated[
    int, about("-1: no limit. Null: the limit of the settings.", ge=ANY, le=1_000_000)
]


class ByteLimit(Struct, forbid_unknown_fields=True):
    """Approximate maximum bytes of requests and answers in each window, over all gateways."""

    bytes: Annotated[int, Meta(ge=1024, le=1 << 40)]
    window_seconds: Annotated[int, Meta(ge=1, le=86_400)] = 1


@schema_name("Quota")
class QuotaBody(Struct, forbid_unknown_fields=True):
    """The limits of an account or a key. A key has only `requests` and `bytes`."""

    requests: Annotated[RequestLimit | None, example({"requests": 500, "window_seconds": 1})] = None
    """Rate limit of requests, all actions together."""
    unlimited_requests: Annotated[
        bool, about("True: no rate limit, whatever the settings are.", False)
    ] = False
    queues: Annotated[Count | None, example(100)] = None
    topics: Annotated[Count | None, example(None)] = None
    subscriptions: Annotated[Count | None, example(None)] = None
    logs: Annotated[Count | None, example(None)] = None
    bytes: Annotated[ByteLimit | None, example(None)] = None
    """Limit of bytes of requests and answers, all actions together."""
    unlimited_bytes: Annotated[bool, example(False)] = False


class QuotaShown(QuotaBody, kw_only=True):
    """A quota and its subject."""

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


@endpoint("GET /v1/quotas", "queuegate:ListQuotas", resource="quota/*", refusals=())
async def list_quotas(call: Call) -> Answer[list[QuotaShown]]:
    """List quotas. Lists the quotas of accounts and keys that differ from the settings. For
    administrators. Returns 200: Quotas."""
    found = await api_keys.list_quotas(call.engine, call.caller)
    return Answer(200, [_shown_quota(subject, quota) for subject, quota in found.items()])


@endpoint(
    "PUT /v1/quotas/{subject}",
    "queuegate:PutQuota",
    resource="quota/{subject}",
    refusals=(429,),
    example=_QUOTA,
)
async def put_quota(call: Call, body: QuotaBody) -> Answer[QuotaShown]:
    """Set the quota of an account or a key. Replaces the whole quota. Absent members use the
    settings. All gateways apply it within a second. For administrators. Returns 200: The quota."""
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


@endpoint(
    "DELETE /v1/quotas/{subject}", "queuegate:DeleteQuota", resource="quota/{subject}", refusals=()
)
async def delete_quota(call: Call) -> Answer[None]:
    """Delete the quota of an account or a key. The settings apply again. Repeated requests succeed.
    For administrators. Returns 204: The quota is deleted."""
    await api_keys.remove_quota(call.engine, call.caller, call.path.subject)
    return Answer(204)

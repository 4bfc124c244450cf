"""What accounts may have, and how often they may ask: for administrators."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, structs

from queuegate.gateway.faces.json.endpoints import Answer, Answered, Call, Endpoint
from queuegate.gateway.faces.rest.keys import RateLimit
from queuegate.gateway.operations.access import account_quotas
from queuegate.storage.key_model import ANY, UNLIMITED
from queuegate.storage.key_model import Quota as Stored
from queuegate.storage.key_model import RateLimit as Limit

_TAG = "keys"

Count = Annotated[
    int,
    Meta(ge=ANY, le=1_000_000, description="-1: any number. null: what the settings say."),
]
Subject = Annotated[
    str,
    Meta(
        pattern="^([0-9]{12}|key-[1-9][0-9]{0,17})$",
        description="An account, or a key by its number.",
        examples=["111122223333", "key-17"],
    ),
]


class ByteLimit(Struct, forbid_unknown_fields=True):
    """In such a window of time about so many bytes, of requests and answers, over all gateways."""

    bytes: Annotated[int, Meta(ge=1024, le=1 << 40)]
    window_seconds: Annotated[int, Meta(ge=1, le=86_400)] = 1


class Quota(Struct, forbid_unknown_fields=True):
    """The limits of an account or a key. A key has requests and bytes only."""

    requests: RateLimit | None = None
    """How often it may ask, whatever it asks."""
    unlimited_requests: Annotated[
        bool, Meta(description="As often as it likes, whatever the settings say.")
    ] = False
    queues: Count | None = None
    topics: Count | None = None
    subscriptions: Count | None = None
    logs: Count | None = None
    bytes: ByteLimit | None = None
    """The bytes of its requests and answers, all actions together."""
    unlimited_bytes: bool = False


class QuotaShown(Quota, kw_only=True):
    """A quota, and whose it is."""

    subject: Subject


class QuotaPath(Struct, forbid_unknown_fields=True):
    """Whose quota."""

    subject: Subject


def _shown(subject: str, quota: Stored) -> QuotaShown:
    requests, in_bytes = quota.requests, quota.bytes
    return QuotaShown(
        None if requests is None or requests == UNLIMITED else RateLimit(*requests),
        requests == UNLIMITED,
        quota.queues,
        quota.topics,
        quota.subscriptions,
        quota.logs,
        None if in_bytes is None or in_bytes == UNLIMITED else ByteLimit(*in_bytes),
        in_bytes == UNLIMITED,
        subject=subject,
    )


def _limit(body: RateLimit | ByteLimit | None, *, is_unlimited: bool) -> Limit | None:
    if is_unlimited:
        return UNLIMITED
    return None if body is None else Limit(*structs.astuple(body))


async def _list(call: Call) -> Answer:
    found = await account_quotas.list_quotas(call.engine, call.caller)
    return Answer(200, [_shown(subject, quota) for subject, quota in found.items()])


async def _put(call: Call) -> Answer:
    body: Quota = call.body
    quota = Stored(
        _limit(body.requests, is_unlimited=body.unlimited_requests),
        body.queues,
        body.topics,
        body.subscriptions,
        body.logs,
        _limit(body.bytes, is_unlimited=body.unlimited_bytes),
    )
    await account_quotas.put_quota(call.engine, call.caller, call.path.subject, quota)
    return Answer(200, _shown(call.path.subject, quota))


async def _remove(call: Call) -> Answer:
    await account_quotas.remove_quota(call.engine, call.caller, call.path.subject)
    return Answer(204)


_EXAMPLE = {"requests": {"requests": 500, "window_seconds": 1}, "queues": 100}
_SHOWN = {
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
        "GET",
        "/v1/quotas",
        "listQuotas",
        "List quotas",
        "Of accounts and keys for which the settings are not all. For administrators.",
        _TAG,
        _list,
        (Answered(200, list[QuotaShown], "Quotas.", [_SHOWN]),),
        refusals=(),
        right="queuegate:ListQuotas",
        resource="quota/*",
    ),
    Endpoint(
        "PUT",
        "/v1/quotas/{subject}",
        "putQuota",
        "Set the quota of an account or a key",
        "All of it: what is absent is left to the settings. All gateways know within a second. For "
        "administrators.",
        _TAG,
        _put,
        (Answered(200, QuotaShown, "The quota.", _SHOWN),),
        path_params=QuotaPath,
        body=Quota,
        example=_EXAMPLE,
        refusals=(429,),
        right="queuegate:PutQuota",
        resource="quota/{subject}",
    ),
    Endpoint(
        "DELETE",
        "/v1/quotas/{subject}",
        "deleteQuota",
        "Leave an account or a key to the settings",
        "Once more changes nothing. For administrators.",
        _TAG,
        _remove,
        (Answered(204, None, "The settings are all."),),
        path_params=QuotaPath,
        refusals=(),
        right="queuegate:DeleteQuota",
        resource="quota/{subject}",
    ),
)

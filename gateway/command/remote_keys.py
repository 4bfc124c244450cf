"""`queuegate keys` and `quotas` of a running gateway, over REST: one with ephemeral data."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from queuegate.gateway.command import asking
from queuegate.gateway.command.stored import Refused, plain
from queuegate.storage.key_model import KINDS, UNLIMITED, Key, Quota, RateLimit

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings

_PER_PAGE = 1_000
_INSTANTS = ("created_at", "expires_at", "revoked_at", "disabled_at", "previous_until")


def is_asked(settings: Settings, options: argparse.Namespace) -> bool:
    """Return True if the command is for a running gateway and not for a database."""
    return bool(options.url) or settings.ephemeral


def with_gateway(
    settings: Settings, options: argparse.Namespace, act: Callable[[Remote], int]
) -> int:
    """Return what the command makes of the gateway, or 1 when it could not be done."""
    if options.url and (options.data_dir or options.database_url):
        return _failed("--url names a gateway: leave --data and --database-url out")
    remote = Remote(asking.Gateway(settings, options, "keys"))
    try:
        code = act(remote)
    except (asking.NoAnswer, asking.Refused, Refused) as refusal:
        return _failed(plain(str(refusal)))
    if options.action != "list":
        url = options.url or asking.default_url(settings)
        print(f"Gateway: {url}", file=sys.stderr)
    return code


def _failed(text: str) -> int:
    print(f"queuegate: {text}", file=sys.stderr)
    return 1


class Remote:
    """The keys and quotas of one gateway."""

    def __init__(self, gateway: asking.Gateway) -> None:
        self._gateway = gateway

    def create(self, account_id: str | None, wanted: dict[str, Any]) -> tuple[Key, str]:
        """Make a key; the key, and what is shown once."""
        given = {name: value for name, value in wanted.items() if value is not None}
        if account_id is not None:
            given["account_id"] = account_id
        return _made(self._gateway.call("POST", "/v1/keys", given))

    def rotate(self, key_id: int, overlap_seconds: int) -> tuple[Key, str]:
        """Give a key another secret; the key, and the secret."""
        body = {"overlap_seconds": overlap_seconds}
        return _made(self._gateway.call("POST", f"/v1/keys/{key_id}/rotations", body))

    def keys(self, account_id: str | None, *, with_revoked: bool) -> list[Key]:
        """All keys, by number."""
        found: list[Key] = []
        query: dict[str, object] = {"limit": _PER_PAGE, "revoked": str(with_revoked).lower()}
        if account_id is not None:
            query["account"] = account_id
        while True:
            query["after"] = found[-1].key_id if found else 0
            page = self._gateway.call("GET", f"/v1/keys?{urlencode(query)}")
            found += map(_key_of, page)
            if len(page) < _PER_PAGE:
                return found

    def key(self, key_id: int) -> Key:
        """One key."""
        return _key_of(self._gateway.call("GET", f"/v1/keys/{key_id}"))

    def change(self, key_id: int, **members: object) -> Key:
        """Disable or enable a key, or give it a policy."""
        return _key_of(self._gateway.call("PATCH", f"/v1/keys/{key_id}", members))

    def revoke(self, key_id: int) -> Key:
        """Delete a key."""
        self._gateway.call("DELETE", f"/v1/keys/{key_id}")
        return self.key(key_id)

    def quotas(self) -> dict[str, Quota]:
        """All quotas."""
        found = self._gateway.call("GET", "/v1/quotas")
        return {one["subject"]: _quota_of(one) for one in found}

    def put_quota(self, subject: str, quota: Quota) -> None:
        """Set a quota."""
        body: dict[str, Any] = {kind: getattr(quota, kind) for kind in KINDS}
        for name, limit in (("requests", quota.requests), ("bytes", quota.bytes)):
            body[f"unlimited_{name}"] = is_unlimited = limit == UNLIMITED
            if limit is not None and not is_unlimited:
                body[name] = {name: limit.requests, "window_seconds": limit.window_seconds}
        self._gateway.call("PUT", f"/v1/quotas/{quote(subject, safe='')}", body)

    def remove_quota(self, subject: str) -> None:
        """Leave an account or a key to the settings."""
        self._gateway.call("DELETE", f"/v1/quotas/{quote(subject, safe='')}")


def _made(facts: dict[str, Any]) -> tuple[Key, str]:
    return _key_of(facts), facts.get("key") or facts["secret_access_key"]


def _limit_of(name: str, facts: dict[str, int] | None) -> RateLimit | None:
    return None if facts is None else RateLimit(facts[name], facts["window_seconds"])


def _key_of(facts: dict[str, Any]) -> Key:
    instants: dict[str, Any] = {
        name: facts[name] and datetime.fromisoformat(facts[name]) for name in _INSTANTS
    }
    return Key(
        facts["id"],
        facts["kind"],
        facts["account_id"],
        facts["name"],
        _limit_of("requests", facts["rate_limit"]),
        is_administrator=facts["administrator"],
        access_key=facts["access_key_id"],
        policy=None if facts["policy"] is None else json.dumps(facts["policy"]),
        **instants,
    )


def _quota_of(facts: dict[str, Any]) -> Quota:
    requests, in_bytes = (
        UNLIMITED if facts[f"unlimited_{name}"] else _limit_of(name, facts[name])
        for name in ("requests", "bytes")
    )
    queues, topics, subscriptions, logs = (facts[kind] for kind in KINDS)
    return Quota(requests, queues, topics, subscriptions, logs, in_bytes)

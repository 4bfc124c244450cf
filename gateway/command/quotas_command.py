"""`queuegate quotas`: quotas of accounts and keys, in the database or by a running gateway."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from queuegate.gateway.command.command_line import (
    CommandRefused,
    actions_of,
    add_database,
    add_options,
    add_url,
    counted,
    print_table,
)
from queuegate.gateway.command.database_session import note_change, opened, with_keeper
from queuegate.gateway.command.gateway_client import GatewayClient
from queuegate.gateway.configuration.values import (
    BadValue,
    format_rate,
    integer,
    parse_byte_rate,
    parse_rate,
)
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol.malformed import refusing
from queuegate.storage.model import ANY, KINDS, UNLIMITED, Quota, RateLimit

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings
    from queuegate.storage.database import Database


_DESCRIPTION = """\
Limit the resources of an account, and the request rate of an account or a key. A quota replaces the
settings QUEUEGATE_QUOTA_... for its account or key. The command works with or without a running
gateway. Changes take effect on all gateways within a second.

examples:
  queuegate quotas list
  queuegate quotas set 111122223333 --requests 500/s --queues 100
  queuegate quotas set 111122223333 --topics any
  queuegate quotas set 444455556666 --bytes 10MB/s
  queuegate quotas set key-17 --requests 50/s
  queuegate quotas remove 111122223333
"""
_SET = """\
Set the whole quota of an account or a key. The settings apply to limits that are left out. `any`
removes a limit, also one of the settings.

examples:
  queuegate quotas set 111122223333 --requests 500/s --queues 100
  queuegate quotas set key-17 --requests 50/s
"""
_LIST = "List accounts and keys that have a quota."
_REMOVE = "Remove quotas of accounts or keys: the settings apply again."


_SET_OPTIONS = """\
subject SUBJECT    an account, or key-17
--requests R       limit in requests/time, such as 500/s, or any
--bytes R          limit in bytes/time, such as 10MB/s, or any
--queues N         maximum number of queues, or any
--topics N         maximum number of topics, or any
--subscriptions N  maximum number of subscriptions, or any
--logs N           maximum number of logs, or any
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the actions of `queuegate quotas`."""
    command.description = _DESCRIPTION
    add = actions_of(command, add_database, add_url)
    add("list", "list quotas", _LIST)
    add_options(add("set", "set a quota", _SET), _SET_OPTIONS)
    remove = add("remove", "remove quotas", _REMOVE)
    add_options(remove, "subjects SUBJECT ...  as `list` shows them")


_ANY = "any"
_count = integer(0, 1_000_000)


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Run the action; return 0, or 1 if it was refused."""

    async def in_database(dsn: str) -> int:
        async with opened(dsn, "quotas") as (database, _):
            return await _act(StoredQuotas(database), options)

    return with_keeper(
        settings, options, lambda gateway: _act(RemoteQuotas(gateway), options), in_database
    )


async def _act(quotas: StoredQuotas | RemoteQuotas, options: argparse.Namespace) -> int:
    if options.action == "list":
        _print_list(await quotas.read())
    elif options.action == "set":
        await quotas.put(options.subject, _quota(options))
        print(f"The quota of {options.subject} is set.")
    else:
        found = await quotas.remove(options.subjects)
        missing = [subject for subject in options.subjects if subject not in found]
        if missing:
            raise CommandRefused(f"there is no quota of {', '.join(missing)}")
        print(f"{counted(len(found), 'quota')} removed.")
    return 0


def _print_list(found: Mapping[str, Quota]) -> None:
    if not found:
        print("No quotas: the settings apply to all accounts and keys.")
        return
    heads = ("SUBJECT", "REQUESTS", *(kind.upper() for kind in KINDS), "BYTES")
    print_table(heads, [(subject, *_cells(quota)) for subject, quota in found.items()])


def _cells(quota: Quota) -> tuple[str, ...]:
    counts = ["-" if n is None else _ANY if n == ANY else str(n) for n in quota.counts]
    return (_shown(quota.requests), *counts, _shown(quota.bytes).replace("/", "B/"))


def _shown(rate: RateLimit | None) -> str:
    return "-" if rate is None else _ANY if rate.requests == ANY else format_rate(rate)


def _quota(options: argparse.Namespace) -> Quota:
    queues, topics, subscriptions, logs = [_number(getattr(options, kind)) for kind in KINDS]
    rate = _rate(options.requests, parse_rate, "requests/time, such as 500/s or 5000/10m")
    in_bytes = _rate(options.bytes, parse_byte_rate, "bytes/time, such as 10MB/s or 1GiB/10m")
    return Quota(rate, queues, topics, subscriptions, logs, in_bytes)


def _account(subject: str) -> str | None:
    return None if subject.startswith("key-") else subject


def _number(text: str | None) -> int | None:
    with refusing(CommandRefused(f"{text!r} is not a number up to 1000000, nor `any`"), BadValue):
        return None if text is None else ANY if text == _ANY else _count(text)


def _rate(text: str | None, parse: Callable[[str], tuple[int, int]], form: str) -> RateLimit | None:
    try:
        if text is None or text == _ANY:
            return None if text is None else UNLIMITED
        return RateLimit(*parse(text))
    except BadValue as bad:
        reason = str(bad) or f"it is {form}, or any"
        raise CommandRefused(f"{text!r} is not a rate: {reason}") from None


class StoredQuotas:
    """The quotas in the database. A change is audited after its commit."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self) -> dict[str, Quota]:
        """Return all quotas, by account or key."""
        from queuegate.storage import stored_keys

        async with self._database.transaction() as tx:
            return await stored_keys.read_quotas(tx, LIMITS.quotas)

    async def put(self, subject: str, quota: Quota) -> None:
        """Set a quota."""
        from queuegate.gateway.operations.access.api_keys import put

        async with self._database.transaction() as tx:
            await put(tx, subject, quota)
        note_change("quotas set", _account(subject), subject)

    async def remove(self, subjects: list[str]) -> list[str]:
        """Remove quotas; return the accounts and keys that had one."""
        from queuegate.storage import stored_keys

        async with self._database.transaction() as tx:
            found = [one for one in subjects if await stored_keys.remove_quota(tx, one)]
        for subject in found:
            note_change("quotas remove", _account(subject), subject)
        return found


class RemoteQuotas:
    """The quotas of a running gateway, over its REST API."""

    def __init__(self, gateway: GatewayClient) -> None:
        self._gateway = gateway

    async def read(self) -> dict[str, Quota]:
        """Return all quotas, by account or key."""
        found = self._gateway.call("GET", "/v1/quotas")
        return {one["subject"]: _quota_of(one) for one in found}

    async def put(self, subject: str, quota: Quota) -> None:
        """Set a quota."""
        body: dict[str, Any] = {kind: getattr(quota, kind) for kind in KINDS}
        for name, limit in (("requests", quota.requests), ("bytes", quota.bytes)):
            body[f"unlimited_{name}"] = is_unlimited = limit == UNLIMITED
            if limit is not None and not is_unlimited:
                body[name] = {name: limit.requests, "window_seconds": limit.window_seconds}
        self._gateway.call("PUT", f"/v1/quotas/{quote(subject, safe='')}", body)

    async def remove(self, subjects: list[str]) -> list[str]:
        """Remove quotas; return the accounts and keys that had one."""
        stored = await self.read()
        found = [subject for subject in subjects if subject in stored]
        for subject in found:
            self._gateway.call("DELETE", f"/v1/quotas/{quote(subject, safe='')}")
        return found


def _limit_of(name: str, facts: dict[str, int] | None) -> RateLimit | None:
    return None if facts is None else RateLimit(facts[name], facts["window_seconds"])


def _quota_of(facts: dict[str, Any]) -> Quota:
    requests, in_bytes = (
        UNLIMITED if facts[f"unlimited_{name}"] else _limit_of(name, facts[name])
        for name in ("requests", "bytes")
    )
    queues, topics, subscriptions, logs = (facts[kind] for kind in KINDS)
    return Quota(requests, queues, topics, subscriptions, logs, in_bytes)

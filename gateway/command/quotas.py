"""`queuegate quotas`: quotas are set in the database; gateways hear of it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from queuegate.gateway.command.remote_keys import Remote, is_asked, with_gateway
from queuegate.gateway.command.stored import (
    Refused,
    note_change,
    opened,
    print_table,
    with_database,
)
from queuegate.gateway.configuration.values import (
    BadValue,
    format_rate,
    integer,
    parse_byte_rate,
    parse_rate,
)
from queuegate.gateway.operations.access.account_quotas import put
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage.key_model import ANY, KINDS, UNLIMITED, Quota, RateLimit
from queuegate.storage.keys import quotas

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings
    from queuegate.storage.database import Database

_ANY = "any"
_count = integer(0, 1_000_000)


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Do what was asked; 0, or 1 when it could not be done."""
    if is_asked(settings, options):
        return with_gateway(settings, options, lambda remote: _ask(remote, options))
    tells = options.action != "list"
    return with_database(settings, lambda dsn: _act(dsn, options), tells=tells)


def _ask(remote: Remote, options: argparse.Namespace) -> int:
    """Do it by a running gateway."""
    if options.action == "list":
        _print_list(remote.quotas())
    elif options.action == "set":
        remote.put_quota(options.subject, _quota(options))
        print(f"The quota of {options.subject} is set.")
    else:
        there = remote.quotas()
        found = [subject for subject in options.subjects if subject in there]
        for subject in found:
            remote.remove_quota(subject)
        _tell_removed(found, options.subjects)
    return 0


async def _act(dsn: str, options: argparse.Namespace) -> int:
    async with opened(dsn, "quotas") as (database, _):
        if options.action == "list":
            return await _list(database)
        if options.action == "set":
            return await _set(database, options)
        return await _remove(database, options.subjects)


async def _list(database: Database) -> int:
    async with database.transaction() as tx:
        found = await quotas.read(tx, LIMITS.quotas)
    _print_list(found)
    return 0


def _print_list(found: Mapping[str, Quota]) -> None:
    if not found:
        print("No quotas: the settings are all.")
        return
    heads = ("WHOSE", "REQUESTS", *(kind.upper() for kind in KINDS), "BYTES")
    print_table(heads, [(subject, *_cells(quota)) for subject, quota in found.items()])


def _cells(quota: Quota) -> tuple[str, ...]:
    counts = ["-" if n is None else _ANY if n == ANY else str(n) for n in quota.counts]
    return (_shown(quota.requests), *counts, _shown(quota.bytes).replace("/", "B/"))


def _shown(rate: RateLimit | None) -> str:
    return "-" if rate is None else _ANY if rate.requests == ANY else format_rate(rate)


async def _set(database: Database, options: argparse.Namespace) -> int:
    quota = _quota(options)
    async with database.transaction() as tx:
        await put(tx, options.subject, quota)
    note_change("quotas set", _account(options.subject), options.subject)
    print(f"The quota of {options.subject} is set.")
    return 0


def _quota(options: argparse.Namespace) -> Quota:
    queues, topics, subscriptions, logs = [_number(getattr(options, kind)) for kind in KINDS]
    rate = _rate(options.requests, parse_rate, "requests/time, such as 500/s or 5000/10m")
    in_bytes = _rate(options.bytes, parse_byte_rate, "bytes/time, such as 10MB/s or 1GiB/10m")
    return Quota(rate, queues, topics, subscriptions, logs, in_bytes)


def _account(subject: str) -> str | None:
    return None if subject.startswith("key-") else subject


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else ANY if text == _ANY else _count(text)
    except BadValue:
        raise Refused(f"{text!r} is not a number up to 1000000, nor `any`") from None


def _rate(text: str | None, parse: Callable[[str], tuple[int, int]], form: str) -> RateLimit | None:
    try:
        if text is None or text == _ANY:
            return None if text is None else UNLIMITED
        return RateLimit(*parse(text))
    except BadValue as bad:
        reason = str(bad) or f"it is {form}, or any"
        raise Refused(f"{text!r} is not a rate: {reason}") from None


async def _remove(database: Database, subjects: list[str]) -> int:
    async with database.transaction() as tx:
        found = [subject for subject in subjects if await quotas.remove(tx, subject)]
    for subject in found:
        note_change("quotas remove", _account(subject), subject)
    _tell_removed(found, subjects)
    return 0


def _tell_removed(found: list[str], subjects: list[str]) -> None:
    missing = [subject for subject in subjects if subject not in found]
    if missing:
        raise Refused(f"there is no quota of {', '.join(missing)}")
    print(f"{len(found)} {'quota' if len(found) == 1 else 'quotas'} removed.")

"""`queuegate keys`: keys are made, listed and revoked in the database; gateways hear of it."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gateway.command.stored import Refused, opened, print_lines, print_table, with_database
from gateway.configuration.settings import Settings
from gateway.configuration.values import BadValue, format_rate, parse_account_id, parse_rate
from gateway.operations.keys import NewApiKey, insert, token
from storage.key_model import RateLimit
from storage.keys import keys

if TYPE_CHECKING:
    from storage.database import Database
    from storage.key_model import Key

_PER_PAGE = 1_000


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Do what was asked; 0, or 1 when it could not be done."""
    return with_database(settings, lambda dsn: _act(dsn, settings, options))


async def _act(dsn: str, settings: Settings, options: argparse.Namespace) -> int:
    account_id = _account(getattr(options, "account", None))
    if options.action == "create":
        return await _create(dsn, account_id or settings.account_id, options)
    async with opened(dsn, "keys", account_id) as (database, now):
        if options.action == "list":
            return await _list(database, account_id, options)
        return await _revoke(database, now, options)


def _account(text: str | None) -> str | None:
    try:
        return None if text is None else parse_account_id(text)
    except BadValue:
        raise Refused(f"{text!r} is not an account: it has 12 digits") from None


async def _create(dsn: str, account_id: str, options: argparse.Namespace) -> int:
    wanted = NewApiKey(options.name, _rate(options.rate), _instant(options.expires))
    async with opened(dsn, "keys", account_id) as (database, now), database.transaction() as tx:
        key, secret = await insert(tx, now, account_id, wanted)
    shown = token(key, secret)
    if options.json:
        print_lines([{**_as_object(key), "key": shown}])
        return 0
    print(shown)
    print(
        f"This is key {key.key_id} of account {account_id}. It is shown here only.", file=sys.stderr
    )
    return 0


def _rate(text: str | None) -> RateLimit | None:
    try:
        return None if text is None else RateLimit(*parse_rate(text))
    except BadValue as bad:
        reason = str(bad) or "it is requests/time, such as 500/s or 5000/10m"
        raise Refused(f"{text!r} is not a rate: {reason}") from None


def _instant(text: str | None) -> datetime | None:
    try:
        instant = None if text is None else datetime.fromisoformat(text)
    except ValueError:
        raise Refused(
            f"{text!r} is not an instant, such as 2030-01-31 or 2030-01-31T09:00:00Z"
        ) from None
    return instant.replace(tzinfo=UTC) if instant is not None and not instant.tzinfo else instant


async def _list(database: Database, account_id: str | None, options: argparse.Namespace) -> int:
    found: list[Key] = []
    after_id: int | None = 0
    while after_id is not None:
        async with database.transaction() as tx:
            page = await keys.page(
                tx, account_id, after_id=after_id, with_revoked=options.all, limit=_PER_PAGE
            )
        found += page
        after_id = page[-1].key_id if len(page) == _PER_PAGE else None
    if options.json:
        print_lines(map(_as_object, found))
    elif not found:
        print("No keys.")
    else:
        heads = ("ID", "ACCOUNT", "NAME", "RATE", "CREATED", "EXPIRES", "REVOKED")
        print_table(heads, [_cells(key) for key in found])
    return 0


def _cells(key: Key) -> tuple[str, ...]:
    instants = [
        "-" if instant is None else instant.isoformat(" ", "seconds").removesuffix("+00:00")
        for instant in (key.created_at, key.expires_at, key.revoked_at)
    ]
    rate = "-" if key.limit is None else format_rate(key.limit)
    return (str(key.key_id), key.account_id, key.name, rate, *instants)


async def _revoke(database: Database, now: datetime | None, options: argparse.Namespace) -> int:
    ids = sorted(set(options.ids))
    async with database.transaction() as tx:
        found = [await keys.revoke(tx, now, None, key_id) for key_id in ids]
    revoked = [key for key in found if key is not None]
    if options.json:
        print_lines(map(_as_object, revoked))
    else:
        print(f"{len(revoked)} {'key' if len(revoked) == 1 else 'keys'} revoked.")
    missing = [str(key_id) for key_id, key in zip(ids, found, strict=True) if key is None]
    if missing:
        print(f"queuegate: there is no key {', '.join(missing)}", file=sys.stderr)
    return 1 if missing else 0


def _as_object(key: Key) -> dict[str, Any]:
    instants = (key.created_at, key.expires_at, key.revoked_at)
    created, expires, revoked = [
        None if instant is None else instant.isoformat() for instant in instants
    ]
    return {
        "id": key.key_id,
        "name": key.name,
        "account_id": key.account_id,
        "rate_limit": None if key.limit is None else key.limit._asdict(),
        "created_at": created,
        "expires_at": expires,
        "revoked_at": revoked,
    }

"""`queuegate keys`: keys are made, listed and changed in the database; gateways hear of it."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import orjson

from queuegate.gateway.command.first_key import as_variables
from queuegate.gateway.command.remote_keys import Remote, is_asked, with_gateway
from queuegate.gateway.command.stored import (
    Refused,
    note_change,
    opened,
    print_lines,
    print_table,
    with_database,
)
from queuegate.gateway.configuration.settings import Settings
from queuegate.gateway.configuration.values import (
    BadValue,
    format_rate,
    parse_account_id,
    parse_rate,
)
from queuegate.gateway.operations.access import policies
from queuegate.gateway.operations.access.api_keys import (
    LONGEST_OVERLAP_SECONDS,
    NewApiKey,
    insert,
    rotate,
    token,
)
from queuegate.gateway.operations.access.key_secrets import KeySecrets, WrongMasterKey, move
from queuegate.storage.key_model import ACCESS, API, RateLimit
from queuegate.storage.keys import keys

if TYPE_CHECKING:
    from queuegate.storage.database import Database, Transaction
    from queuegate.storage.key_model import Key

_PER_PAGE = 1_000
_HEADS = ("ID", "ACCOUNT", "NAME", "RATE", "CREATED", "EXPIRES", "REVOKED")
_MORE_HEADS = ("ACCESS KEY", "MAY DO", "STATE")
"""Where some keys sign, are administrators', or are not taken."""
_DONE = {"disable": "disabled", "enable": "enabled", "delete": "deleted", "revoke": "revoked"}


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Do what was asked; 0, or 1 when it could not be done."""
    if is_asked(settings, options):
        return with_gateway(settings, options, lambda remote: _ask(remote, options))
    tells = options.action != "list"
    return with_database(settings, lambda dsn: _act(dsn, settings, options), tells=tells)


def _ask(remote: Remote, options: argparse.Namespace) -> int:
    """Do it by a running gateway."""
    account_id = _account(getattr(options, "account", None))
    if options.action == "create":
        wanted = _wanted(options)
        policy = None if wanted.policy is None else _json(wanted.policy)
        facts = {
            "name": wanted.name,
            "rate_limit": wanted.limit and wanted.limit._asdict(),
            "expires_at": wanted.expires_at and wanted.expires_at.isoformat(),
            "kind": wanted.kind,
            "administrator": wanted.is_administrator or None,
            "policy": policy,
        }
        _show(*remote.create(account_id, facts), options)
    elif options.action == "list":
        _print_list(remote.keys(account_id, with_revoked=options.all), options)
    elif options.action == "rotate":
        _show(*remote.rotate(options.id, _overlap(options)), options)
    elif options.action == "policy":
        document = None if options.remove else _document(options.set)
        is_change = options.remove or document is not None
        policy = None if document is None else _json(document)
        key = remote.change(options.id, policy=policy) if is_change else remote.key(options.id)
        _print_policy(key, options, is_change=is_change)
    elif options.action == "rotate-master":
        raise Refused("a gateway does not move its master key: name the database")
    else:
        is_end = options.action in ("delete", "revoke")
        disabled = options.action == "disable"
        changed = [
            remote.revoke(key_id) if is_end else remote.change(key_id, disabled=disabled)
            for key_id in sorted(set(options.ids))
        ]
        _print_changed(changed, options)
    return 0


def _json(document: str) -> Any:
    try:
        return orjson.loads(document)
    except orjson.JSONDecodeError as error:
        raise Refused(f"the policy is not JSON: {error}") from None


async def _act(dsn: str, settings: Settings, options: argparse.Namespace) -> int:
    account_id = _account(getattr(options, "account", None))
    if options.action == "create":
        return await _create(dsn, settings, account_id or settings.account_id, options)
    async with opened(dsn, "keys", account_id) as (database, now):
        if options.action == "list":
            return await _list(database, account_id, options)
        if options.action == "rotate-master":
            return await _rotate_master(database, settings)
        if options.action == "rotate":
            return await _rotate(database, now, settings, options)
        if options.action == "policy":
            return await _policy(database, options)
        return await _change(database, now, options)


def _account(text: str | None) -> str | None:
    try:
        return None if text is None else parse_account_id(text)
    except BadValue:
        raise Refused(f"{text!r} is not an account: it has 12 digits") from None


def _secrets(settings: Settings) -> KeySecrets | None:
    return None if settings.master_keys is None else KeySecrets(*settings.master_keys)


async def _create(
    dsn: str, settings: Settings, account_id: str, options: argparse.Namespace
) -> int:
    wanted = _wanted(options)
    async with opened(dsn, "keys", account_id) as (database, now), database.transaction() as tx:
        key, secret = await insert(tx, now, account_id, wanted, _secrets(settings))
    _note("create", key)
    _show(key, _shown(key, secret), options)
    return 0


def _wanted(options: argparse.Namespace) -> NewApiKey:
    name = options.name or (f"administrator-{token_hex(4)}" if options.administrator else "")
    if not name:
        raise Refused("a key needs a name: `queuegate keys create NAME`")
    return NewApiKey(
        name,
        _rate(options.rate),
        _instant(options.expires),
        ACCESS if options.access or options.administrator else API,
        options.administrator,
        _document(options.policy),
    )


def _note(action: str, key: Key) -> None:
    note_change(f"keys {action}", key.account_id, f"key {key.key_id} {key.name}")


def _shown(key: Key, secret: str) -> str:
    return token(key, secret) if key.access_key is None else secret


def _show(key: Key, shown: str, options: argparse.Namespace) -> None:
    is_shown = key.access_key is None
    if options.json:
        print_lines([{**_as_object(key), "key" if is_shown else "secret_access_key": shown}])
        return
    print(shown if is_shown else as_variables(key, shown).rstrip("\n"))
    text = f"This is key {key.key_id} of account {key.account_id}. It is shown here only."
    if key.previous_until is not None:
        text += f" The secret before is good until {_shown_instant(key.previous_until)} UTC."
    print(text, file=sys.stderr)


def _document(path: str | None) -> str | None:
    """The text of a file, or of standard input. One that is empty is a policy, though a bad one."""
    if path is None:
        return None
    most = policies.MOST_READ + 1
    try:
        if path == "-":
            return sys.stdin.read(most) or " "
        with Path(path).open(encoding="utf-8") as file:
            return file.read(most) or " "
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Refused(f"{path} cannot be read: {reason}") from None


async def _policy(database: Database, options: argparse.Namespace) -> int:
    """Show the policy of a key, or give it another one, or none."""
    document = "" if options.remove else _document(options.set)
    async with database.transaction() as tx:
        key = await _found(tx, options.id)
        if document is not None:
            key = await policies.give(tx, key, document)
    if document is not None:
        _note("policy", key)
    _print_policy(key, options, is_change=document is not None)
    return 0


def _print_policy(key: Key, options: argparse.Namespace, *, is_change: bool) -> None:
    if options.json:
        print_lines([_as_object(key)])
    elif is_change:
        print(f"Key {key.key_id} may do {_may(key)}.")
    elif key.policy is None:
        print(f"Key {key.key_id} has no policy: it may do {_may(key)}.")
    else:
        print(orjson.dumps(orjson.loads(key.policy), option=orjson.OPT_INDENT_2).decode())


async def _found(tx: Transaction, key_id: int) -> Key:
    found = await keys.page(tx, None, after_id=key_id - 1, with_revoked=False, limit=1)
    if not found or found[0].key_id != key_id:
        raise Refused(f"there is no key {key_id}")
    return found[0]


async def _rotate(
    database: Database, now: datetime | None, settings: Settings, options: argparse.Namespace
) -> int:
    overlap = _overlap(options)
    async with database.transaction() as tx:
        key = await _found(tx, options.id)
        key, secret = await rotate(tx, now, key, overlap, _secrets(settings))
    _note("rotate", key)
    _show(key, _shown(key, secret), options)
    return 0


def _overlap(options: argparse.Namespace) -> int:
    overlap = int(options.overlap)
    if overlap > LONGEST_OVERLAP_SECONDS:
        raise Refused(f"two secrets are good for {LONGEST_OVERLAP_SECONDS // 86_400} days at most")
    return overlap


async def _rotate_master(database: Database, settings: Settings) -> int:
    key_secrets = _secrets(settings)
    if key_secrets is None or key_secrets.count == 1:
        raise Refused(
            "there is no second master key: let every gateway have the next one as the second line "
            "of its QUEUEGATE_MASTER_KEY_FILE first"
        )
    try:
        async with database.transaction() as tx:
            done = await move(tx, key_secrets)
    except WrongMasterKey:
        raise Refused(
            "some secrets are encrypted with neither of these master keys; nothing was changed"
        ) from None
    note_change("keys rotate-master", None, f"{done.moved} access keys")
    print(
        f"{done.moved} of {done.total} access keys were encrypted again. All are with the second "
        "master key now: the first one can leave the file."
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
    _print_list(found, options)
    return 0


def _print_list(found: list[Key], options: argparse.Namespace) -> None:
    if options.json:
        print_lines(map(_as_object, found))
    elif not found:
        print("No keys.")
    else:
        heads: tuple[str, ...] = _HEADS
        more = any(
            key.access_key or key.disabled_at or key.is_administrator or key.policy for key in found
        )
        print_table(
            heads + _MORE_HEADS if more else heads,
            [_cells(key) + _more_cells(key) if more else _cells(key) for key in found],
        )


def _more_cells(key: Key) -> tuple[str, ...]:
    return (key.access_key or "-", _may(key), "disabled" if key.disabled_at else "-")


def _may(key: Key) -> str:
    if key.is_administrator:
        return "everything"
    return "all in its account" if key.policy is None else "what its policy says"


def _cells(key: Key) -> tuple[str, ...]:
    instants = [
        "-" if instant is None else _shown_instant(instant)
        for instant in (key.created_at, key.expires_at, key.revoked_at)
    ]
    rate = "-" if key.limit is None else format_rate(key.limit)
    return (str(key.key_id), key.account_id, key.name, rate, *instants)


def _shown_instant(instant: datetime) -> str:
    return instant.isoformat(" ", "seconds").removesuffix("+00:00")


async def _change(database: Database, now: datetime | None, options: argparse.Namespace) -> int:
    ids = sorted(set(options.ids))
    is_end = options.action in ("delete", "revoke")
    is_disabled = options.action == "disable"
    async with database.transaction() as tx:
        found = [
            await keys.revoke(tx, now, None, key_id)
            if is_end
            else await keys.disable(tx, now, None, key_id, is_disabled=is_disabled)
            for key_id in ids
        ]
    changed = [key for key in found if key is not None]
    for key in changed:
        _note(options.action, key)
    _print_changed(changed, options)
    missing = [str(key_id) for key_id, key in zip(ids, found, strict=True) if key is None]
    if missing:
        print(f"queuegate: there is no key {', '.join(missing)}", file=sys.stderr)
    return 1 if missing else 0


def _print_changed(changed: list[Key], options: argparse.Namespace) -> None:
    if options.json:
        print_lines(map(_as_object, changed))
    else:
        count = f"{len(changed)} {'key' if len(changed) == 1 else 'keys'}"
        print(f"{count} {_DONE[options.action]}.")


def _as_object(key: Key) -> dict[str, Any]:
    facts = {
        "id": key.key_id,
        "kind": key.kind,
        "name": key.name,
        "account_id": key.account_id,
        "access_key_id": key.access_key,
        "administrator": key.is_administrator,
        "rate_limit": None if key.limit is None else key.limit._asdict(),
    }
    instants = ("created_at", "expires_at", "revoked_at", "disabled_at", "previous_until")
    for name in instants:
        instant: datetime | None = getattr(key, name)
        facts[name] = None if instant is None else instant.isoformat()
    facts["policy"] = None if key.policy is None else orjson.loads(key.policy)
    return facts

"""`queuegate keys`: API keys and access keys, in the database or by a running gateway."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import orjson

from queuegate.gateway.command.command_line import (
    CommandRefused,
    actions_of,
    add_database,
    add_json,
    add_options,
    add_url,
    age,
    counted,
    fail,
    print_lines,
    print_table,
    whole_number,
)
from queuegate.gateway.command.database_session import (
    as_variables,
    note_change,
    opened,
    with_keeper,
)
from queuegate.gateway.command.gateway_client import GatewayClient
from queuegate.gateway.configuration.settings import Settings
from queuegate.gateway.configuration.values import (
    BadValue,
    format_rate,
    parse_account_id,
    parse_rate,
)
from queuegate.protocol.malformed import refusing
from queuegate.storage.model import ACCESS, API, Key, RateLimit

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.api_keys import NewApiKey
    from queuegate.storage.database import Database, Transaction

_DESCRIPTION = """\
Create, list, change and delete API keys and access keys. Clients send API keys in the header
X-Api-Key or Authorization: Bearer; they sign requests with access keys, as for AWS. The command
works with or without a running gateway. Changes take effect on all gateways at once. A key names
its account on every API, and may have a rate limit. Its secret is shown only once. The database
stores a hash of each API key, and encrypted secrets of access keys: QUEUEGATE_MASTER_KEY_FILE
configures the encryption.

examples:
  queuegate keys create shop
  queuegate keys create shop --account 111122223333 --rate 500/s --expires 2030-01-31
  queuegate keys create billing --access
  queuegate keys create --administrator
  queuegate keys list
  queuegate keys list --url http://127.0.0.1:9324
  queuegate keys rotate 17 --overlap 2d
  queuegate keys policy 17 --set shop.json
  queuegate keys delete 17
"""

_CREATE = """\
Create a key and print its secret. The secret is shown only once. An access key is printed as the
environment variables of the AWS tools.

examples:
  queuegate keys create shop
  queuegate keys create shop --rate 5000/10m --json
  queuegate keys create billing --access > billing.env
  queuegate keys create shop --access --policy shop.json
  queuegate keys create --administrator
"""
_POLICY = """\
Show or change the policy of a key: an IAM policy without Principal, at most 6,144 characters. With
QUEUEGATE_POLICIES, a policy limits its key to what it allows; a key without a policy may do
everything in its account. Changes take effect at once.

examples:
  queuegate keys policy 17
  queuegate keys policy 17 --set shop.json
  queuegate keys policy 17 --set - < shop.json
  queuegate keys policy 17 --remove
"""
_LIST = "List keys by number, without deleted ones. Secrets are not shown."
_DELETE = """\
Delete keys permanently; `revoke` is the same action. Running gateways refuse them at once. `list
--all` shows deleted keys for 30 days.
"""
_DISABLE = "Disable keys: gateways refuse them at once, until the keys are enabled again."
_ENABLE = "Enable disabled keys again."
_ROTATE = """\
Create a new secret for an access key and print it. The previous secret stays valid for a while, so
that clients can change over. Secrets before that one become invalid.

examples:
  queuegate keys rotate 17
  queuegate keys rotate 17 --overlap 0
"""
_ROTATE_MASTER = """\
Encrypt the secrets of all access keys with the next master key: the second line of
QUEUEGATE_MASTER_KEY_FILE. Start every gateway with that file first. The command encrypts all
secrets or none. Secrets stay the same, and gateways keep running.

example:
  openssl rand -base64 32 >> master.key   # then restart the gateways, one after the other
  queuegate keys rotate-master
  sed -i 1d master.key                    # and restart them at any time
"""


_CREATE_OPTIONS = """\
[name] NAME      name of letters, digits, periods, - and _ (default for administrators: a free one)
--account ID     account of the key (default: QUEUEGATE_ACCOUNT_ID)
--rate R         rate limit in requests/time, such as 500/s or 5000/10m
--expires T      expiry, a date or instant of ISO 8601 in UTC
--access         create an access key, which signs requests
--administrator  create an access key that may do everything
--policy FILE    IAM policy of the key (-: standard input)
"""
_LIST_OPTIONS = """\
--account ID  list only keys of this account
--all         also list deleted keys
"""
_POLICY_OPTIONS = """\
--set FILE  set this policy (-: standard input)
--remove    remove the policy: allow everything in the account
"""
_OVERLAP = "--overlap T  validity of the previous secret, such as 90s, 6h or 2d (default: 1d)"


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the actions of `queuegate keys`."""
    command.description = _DESCRIPTION
    add = actions_of(command, add_database, add_url)
    create = add("create", "create a key", _CREATE)
    add_options(create, _CREATE_OPTIONS)
    listing = add("list", "list keys", _LIST)
    add_options(listing, _LIST_OPTIONS)
    rotate = add("rotate", "create a new secret for an access key", _ROTATE)
    policy = add("policy", "show or change the policy of a key", _POLICY)
    for action in (rotate, policy):
        add_options(action, "id ID  as `list` shows it", id=whole_number)
    add_options(rotate, _OVERLAP, overlap=age)
    rotate.set_defaults(overlap="1d")
    add_options(policy.add_mutually_exclusive_group(), _POLICY_OPTIONS)
    add("rotate-master", "encrypt all secrets with the next master key", _ROTATE_MASTER)
    changes = [
        add("disable", "disable keys until they are enabled", _DISABLE),
        add("enable", "enable disabled keys", _ENABLE),
        add("delete", "delete keys", _DELETE),
        add("revoke", "delete keys, as `delete` does", _DELETE),
    ]
    for action in changes:
        add_options(action, "ids ID ...  as `list` shows them", ids=whole_number)
    for action in (rotate, policy, *changes):
        add_options(action, "--account ID  with --url: account of the key")
    for action in (create, listing, rotate, policy, *changes):
        add_json(action)


_PER_PAGE = 1_000
_INSTANTS = ("created_at", "expires_at", "revoked_at", "disabled_at", "previous_until")
_HEADS = ("ID", "ACCOUNT", "NAME", "RATE", "CREATED", "EXPIRES", "REVOKED")
_MORE_HEADS = ("ACCESS KEY", "MAY DO", "STATE")
"""Printed if a key is an access key, an administrator's or disabled, or has a policy."""
_DELETIONS = ("delete", "revoke")
_DONE = {"disable": "disabled", "enable": "enabled", "delete": "deleted", "revoke": "revoked"}


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Run the action; return 0, or 1 if it was refused."""
    account_id = _account(getattr(options, "account", None))

    async def in_database(dsn: str) -> int:
        owner = account_id or (settings.account_id if options.action == "create" else None)
        async with opened(dsn, "keys", owner) as (database, now):
            return await _act(StoredKeys(database, now, settings), owner, options)

    return with_keeper(
        settings,
        options,
        lambda gateway: _act(RemoteKeys(gateway), account_id, options),
        in_database,
    )


async def _act(
    keys: StoredKeys | RemoteKeys, account_id: str | None, options: argparse.Namespace
) -> int:
    if options.action == "create":
        _show(*await keys.create(account_id, _wanted(options)), options)
    elif options.action == "list":
        _print_list(await keys.keys(account_id, with_revoked=options.all), options)
    elif options.action == "rotate":
        _show(*await keys.rotate(options.id, _overlap(options)), options)
    elif options.action == "policy":
        document = "" if options.remove else _document(options.set)
        is_change = document is not None
        key = await (
            keys.key(options.id) if document is None else keys.set_policy(options.id, document)
        )
        _print_policy(key, options, is_change=is_change)
    elif options.action == "rotate-master":
        print(await keys.rotate_master())
    else:
        ids = sorted(set(options.ids))
        found = await keys.change(options.action, ids)
        _print_changed([key for key in found if key is not None], options)
        missing = [str(key_id) for key_id, key in zip(ids, found, strict=True) if key is None]
        if missing:
            return fail(f"there is no key {', '.join(missing)}")
    return 0


def _json(document: str) -> Any:
    try:
        return orjson.loads(document)
    except orjson.JSONDecodeError as error:
        raise CommandRefused(f"the policy is not JSON: {error}") from None


def _account(text: str | None) -> str | None:
    with refusing(CommandRefused(f"{text!r} is not an account: it has 12 digits"), BadValue):
        return None if text is None else parse_account_id(text)


def _wanted(options: argparse.Namespace) -> NewApiKey:
    from queuegate.gateway.operations.access.api_keys import NewApiKey

    name = options.name or (f"administrator-{token_hex(4)}" if options.administrator else "")
    if not name:
        raise CommandRefused("a key needs a name: `queuegate keys create NAME`")
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


def _show(key: Key, shown: str, options: argparse.Namespace) -> None:
    is_shown = key.access_key is None
    if options.json:
        print_lines([{**_as_object(key), "key" if is_shown else "secret_access_key": shown}])
        return
    print(shown if is_shown else as_variables(key, shown).rstrip("\n"))
    text = f"This is key {key.key_id} of account {key.account_id}. Its secret is shown only once."
    if key.previous_until is not None:
        text += f" The previous secret is valid until {_shown_instant(key.previous_until)} UTC."
    print(text, file=sys.stderr)


def _document(path: str | None) -> str | None:
    """Return the text of a file or of standard input; a space, a bad policy, if it is empty."""
    if path is None:
        return None
    from queuegate.gateway.operations.access import policies

    most = policies.MOST_READ + 1
    try:
        if path == "-":
            return sys.stdin.read(most) or " "
        with Path(path).open(encoding="utf-8") as file:
            return file.read(most) or " "
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise CommandRefused(f"{path} cannot be read: {reason}") from None


def _print_policy(key: Key, options: argparse.Namespace, *, is_change: bool) -> None:
    if options.json:
        print_lines([_as_object(key)])
    elif is_change:
        print(f"Key {key.key_id} may do {_may(key)}.")
    elif key.policy is None:
        print(f"Key {key.key_id} has no policy: it may do {_may(key)}.")
    else:
        print(orjson.dumps(orjson.loads(key.policy), option=orjson.OPT_INDENT_2).decode())


def _overlap(options: argparse.Namespace) -> int:
    from queuegate.gateway.operations.access.api_keys import LONGEST_OVERLAP_SECONDS

    overlap = int(options.overlap)
    if overlap > LONGEST_OVERLAP_SECONDS:
        raise CommandRefused(
            f"the overlap of two secrets is at most {LONGEST_OVERLAP_SECONDS // 86_400} days"
        )
    return overlap


def _rate(text: str | None) -> RateLimit | None:
    try:
        return None if text is None else RateLimit(*parse_rate(text))
    except BadValue as bad:
        reason = str(bad) or "it is requests/time, such as 500/s or 5000/10m"
        raise CommandRefused(f"{text!r} is not a rate: {reason}") from None


def _instant(text: str | None) -> datetime | None:
    try:
        instant = None if text is None else datetime.fromisoformat(text)
    except ValueError:
        raise CommandRefused(
            f"{text!r} is not an instant, such as 2030-01-31 or 2030-01-31T09:00:00Z"
        ) from None
    return instant.replace(tzinfo=UTC) if instant is not None and not instant.tzinfo else instant


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


def _print_changed(changed: list[Key], options: argparse.Namespace) -> None:
    if options.json:
        print_lines(map(_as_object, changed))
    else:
        print(f"{counted(len(changed), 'key')} {_DONE[options.action]}.")


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
    for name in _INSTANTS:
        instant: datetime | None = getattr(key, name)
        facts[name] = None if instant is None else instant.isoformat()
    facts["policy"] = None if key.policy is None else orjson.loads(key.policy)
    return facts


class StoredKeys:
    """The keys in the database. A change is audited after its commit."""

    def __init__(self, database: Database, now: datetime | None, settings: Settings) -> None:
        from queuegate.gateway.operations.access.key_cache import KeySecrets

        self._database = database
        self._now = now
        master_keys = settings.master_keys
        self._secrets = None if master_keys is None else KeySecrets(*master_keys)

    async def create(self, account_id: str | None, wanted: NewApiKey) -> tuple[Key, str]:
        """Create a key; return the key and the secret to show."""
        from queuegate.gateway.operations.access.api_keys import insert, token

        assert account_id is not None
        async with self._database.transaction() as tx:
            key, secret = await insert(tx, self._now, account_id, wanted, self._secrets)
        _note("create", key)
        return key, token(key, secret) if key.access_key is None else secret

    async def rotate(self, key_id: int, overlap_seconds: int) -> tuple[Key, str]:
        """Create a new secret; return the key and the secret to show."""
        from queuegate.gateway.operations.access.api_keys import rotate

        async with self._database.transaction() as tx:
            key = await _found(tx, key_id)
            key, secret = await rotate(tx, self._now, key, overlap_seconds, self._secrets)
        _note("rotate", key)
        return key, secret

    async def keys(self, account_id: str | None, *, with_revoked: bool) -> list[Key]:
        """Return all keys, by number."""
        from queuegate.storage import stored_keys

        found: list[Key] = []
        while True:
            async with self._database.transaction() as tx:
                page = await stored_keys.page(
                    tx,
                    account_id,
                    after_id=found[-1].key_id if found else 0,
                    with_revoked=with_revoked,
                    limit=_PER_PAGE,
                )
            found += page
            if len(page) < _PER_PAGE:
                return found

    async def key(self, key_id: int) -> Key:
        """Return one key."""
        async with self._database.transaction() as tx:
            return await _found(tx, key_id)

    async def set_policy(self, key_id: int, document: str) -> Key:
        """Set the policy of a key; "" removes it."""
        from queuegate.gateway.operations.access import policies

        async with self._database.transaction() as tx:
            key = await policies.give(tx, await _found(tx, key_id), document)
        _note("policy", key)
        return key

    async def change(self, action: str, ids: list[int]) -> list[Key | None]:
        """Disable, enable or delete keys in one transaction; None: no such key exists."""
        from queuegate.storage import stored_keys

        async with self._database.transaction() as tx:
            found = [
                await stored_keys.revoke(tx, self._now, None, key_id)
                if action in _DELETIONS
                else await stored_keys.disable(
                    tx, self._now, None, key_id, is_disabled=action == "disable"
                )
                for key_id in ids
            ]
        for key in found:
            if key is not None:
                _note(action, key)
        return found

    async def rotate_master(self) -> str:
        """Encrypt all secrets with the second master key; return the result to print."""
        from queuegate.gateway.operations.access.key_cache import WrongMasterKey, move

        if self._secrets is None or self._secrets.count == 1:
            raise CommandRefused(
                "there is no second master key: add the next one as the second line of "
                "QUEUEGATE_MASTER_KEY_FILE and restart every gateway first"
            )
        try:
            async with self._database.transaction() as tx:
                done = await move(tx, self._secrets)
        except WrongMasterKey:
            raise CommandRefused(
                "some secrets are encrypted with neither of these master keys; nothing was changed"
            ) from None
        note_change("keys rotate-master", None, f"{done.moved} access keys")
        return (
            f"{done.moved} of {done.total} access keys were encrypted again. All use the second "
            "master key now: remove the first one from the file."
        )


async def _found(tx: Transaction, key_id: int) -> Key:
    from queuegate.storage import stored_keys

    found = await stored_keys.page(tx, None, after_id=key_id - 1, with_revoked=False, limit=1)
    if not found or found[0].key_id != key_id:
        raise CommandRefused(f"there is no key {key_id}")
    return found[0]


class RemoteKeys:
    """The keys of a running gateway, over its REST API."""

    def __init__(self, gateway: GatewayClient) -> None:
        self._gateway = gateway

    async def create(self, account_id: str | None, wanted: NewApiKey) -> tuple[Key, str]:
        """Create a key; return the key and the secret to show."""
        body = {
            "name": wanted.name,
            "rate_limit": wanted.limit and wanted.limit._asdict(),
            "expires_at": wanted.expires_at and wanted.expires_at.isoformat(),
            "kind": wanted.kind,
            "administrator": wanted.is_administrator or None,
            "policy": None if wanted.policy is None else _json(wanted.policy),
            "account_id": account_id,
        }
        given = {name: value for name, value in body.items() if value is not None}
        return _made(self._gateway.call("POST", "/v1/keys", given))

    async def rotate(self, key_id: int, overlap_seconds: int) -> tuple[Key, str]:
        """Create a new secret; return the key and the secret to show."""
        body = {"overlap_seconds": overlap_seconds}
        return _made(self._gateway.call("POST", f"/v1/keys/{key_id}/rotations", body))

    async def keys(self, account_id: str | None, *, with_revoked: bool) -> list[Key]:
        """Return all keys, by number."""
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

    async def key(self, key_id: int) -> Key:
        """Return one key."""
        return _key_of(self._gateway.call("GET", f"/v1/keys/{key_id}"))

    async def set_policy(self, key_id: int, document: str) -> Key:
        """Set the policy of a key; "" removes it."""
        policy = _json(document) if document else None
        return _key_of(self._gateway.call("PATCH", f"/v1/keys/{key_id}", {"policy": policy}))

    async def change(self, action: str, ids: list[int]) -> list[Key]:
        """Disable, enable or delete keys, one after the other."""
        changed = []
        for key_id in ids:
            path = f"/v1/keys/{key_id}"
            if action in _DELETIONS:
                self._gateway.call("DELETE", path)
                changed.append(await self.key(key_id))
            else:
                body = {"disabled": action == "disable"}
                changed.append(_key_of(self._gateway.call("PATCH", path, body)))
        return changed

    async def rotate_master(self) -> str:
        """Refuse: a gateway has no such request."""
        raise CommandRefused("a gateway does not encrypt secrets again: name the database")


def _made(facts: dict[str, Any]) -> tuple[Key, str]:
    return _key_of(facts), facts.get("key") or facts["secret_access_key"]


def _key_of(facts: dict[str, Any]) -> Key:
    instants: dict[str, Any] = {
        name: facts[name] and datetime.fromisoformat(facts[name]) for name in _INSTANTS
    }
    limit = facts["rate_limit"]
    return Key(
        facts["id"],
        facts["kind"],
        facts["account_id"],
        facts["name"],
        limit and RateLimit(limit["requests"], limit["window_seconds"]),
        is_administrator=facts["administrator"],
        access_key=facts["access_key_id"],
        policy=None if facts["policy"] is None else json.dumps(facts["policy"]),
        **instants,
    )

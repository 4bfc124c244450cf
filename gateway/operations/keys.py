"""Keys of ours: made, changed, revoked, and all that are good, in the memory of each process.

A key of one kind is shown: ``qg_<number>_<secret>``. The number finds it, the secret is 256 random
bits of which the database has the SHA-256: nobody can try out all of them, so a slow hash would
only slow us down. A key of the other kind signs requests, as AWS's do: who checks a signature needs
the secret itself, so the database has it encrypted (``key_secrets``).
Checking one asks nobody, so wrong ones cost neither memory nor the database anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations import key_policies, policy_warnings, sessions
from queuegate.gateway.operations.caller import Producer
from queuegate.gateway.operations.key_secrets import WrongMasterKey
from queuegate.gateway.operations.limits import LIMITS
from queuegate.gateway.operations.master_keys import WRONG_MASTER_KEY, new_secret
from queuegate.gateway.operations.repeating import Rereading
from queuegate.protocol.policies import Kind
from queuegate.storage.errors import AuthorizationError, InvalidParameterValue
from queuegate.storage.key_errors import (
    ExpiredToken,
    KeyDoesNotExist,
    KeyExists,
    KeyUnfit,
    TooManyKeys,
)
from queuegate.storage.key_model import ACCESS, API
from queuegate.storage.keys import keys
from queuegate.storage.keys.keys import LiveKey, NewKey

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.clock import Clock
    from queuegate.gateway.operations.engine import Engine
    from queuegate.gateway.operations.key_secrets import KeySecrets
    from queuegate.gateway.operations.wakeups import Wakeups
    from queuegate.protocol.sessions import Session
    from queuegate.storage.database import Database, Transaction
    from queuegate.storage.key_model import Key, RateLimit

_log = logging.getLogger("queuegate.keys")

PREFIX = "qg_"
"""How keys of ours begin, and nothing else that is shown may."""
_SECRET_BYTES = 32
_ACCESS_PREFIX = "AKQG"
_ACCESS_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_ACCESS_LENGTH = 16
LONGEST_OVERLAP_SECONDS = 30 * 86_400
"""That two secrets of a key are good."""
_TOKEN = re.compile(r"qg_([1-9][0-9]{0,17})_([A-Za-z0-9_-]{43})", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9._-]{1,80}", re.ASCII)
_LAST_YEAR = datetime(9999, 1, 1, tzinfo=UTC)
"""At its end, in UTC, no instant can be stored, or it comes back as infinity."""
_NO_RIGHTS = '{"Statement":[]}'
"""The policy of keys that are not good any more, for whoever came with one of them before."""
_PATIENCE_SECONDS = 1.0
_DOUBT_SECONDS = 0.5


class AccessKey(NamedTuple):
    """A key that signs, which is good."""

    key: Key
    producer: Producer
    secrets: tuple[str, ...]
    """Whatever may have signed: the present one, and for a while the one before."""


class Keys:
    """All keys that are good, as this process knows them. What a notification names is read again,
    and good as it was until then, but not for long: who has another secret now is not refused
    meanwhile."""

    def __init__(self, database: Database, clock: Clock, wakeups: Wakeups) -> None:
        self._database = database
        self._clock = clock
        self._wakeups = wakeups
        self.secrets: KeySecrets | None = None
        """What opens the secrets of access keys; None: this gateway knows none of them."""
        self._live: dict[int, tuple[LiveKey, Producer]] = {}
        self._access: dict[str, AccessKey] = {}
        self._policies: dict[str, str | None] = {}
        """By the ids of producers."""
        self._unread: set[int] = set()
        self._doubted: set[int] = set()
        """Those that have changed since they were read."""
        self._is_stale = False
        self._reading = Rereading(
            self._read, lambda: self._is_stale or self._unread, _log, "keys are not read"
        )
        self.on_read: Callable[[], None] = lambda: None
        """Told when some may not be good any more."""
        wakeups.on_key_changed = self.changed

    def find(self, shown: str) -> tuple[Key, Producer] | None:
        """The key that a client shows, if it is good: as it was made, not revoked, not expired."""
        found = _TOKEN.fullmatch(shown)
        known = found and self._live.get(int(found[1]))
        if not found or not known:
            return None
        live, producer = known
        key = live.key
        if live.secret_hash is None or not compare_digest(_hash(found[2]), live.secret_hash):
            return None
        return None if self._has_expired(key) else (key, producer)

    def find_access(self, access_key: str) -> AccessKey | None:
        """The key of that name in signatures, if it is good and this gateway can open it."""
        found = self._access.get(access_key)
        if found is None:
            return None
        key = found.key
        if key.expires_at is not None and self._has_expired(key):
            return None
        until = key.previous_until
        if until is not None and until <= self._present(key.account_id):
            return found._replace(secrets=found.secrets[:1])
        return found

    def find_session(self, access_key: str, token: str) -> tuple[AccessKey, Session] | None:
        """The temporary key of that name and token, and its session. None: it is none of ours, or
        the key that began the session is not good any more. Raises ExpiredToken."""
        found = None if self.secrets is None else sessions.opened(self.secrets, access_key, token)
        known = found and self._live.get(found[0].key_id)
        if not found or not known or self._has_expired(known[0].key):
            return None
        session, secret = found
        key, producer = known[0].key, known[1]
        if key.access_key is not None:
            parent = self.find_access(key.access_key)
            if parent is None or session.secret_mark not in map(sessions.mark, parent.secrets):
                return None
        if self._has_ended(session):
            raise ExpiredToken()
        return AccessKey(key, producer, (secret,)), session

    def _has_ended(self, session: Session) -> bool:
        return session.expires_at <= self._present(session.account_id).timestamp()

    def _has_expired(self, key: Key) -> bool:
        expires_at = key.expires_at
        return expires_at is not None and expires_at <= self._present(key.account_id)

    def still_takes(self, caller: Caller) -> bool:
        """Whether the key of a caller from before is still good, if it was one of ours."""
        producer = caller.producer
        if producer is None or not producer.name:
            return True
        if caller.session is not None and self._has_ended(caller.session):
            return False
        known = self._live.get(int(producer.producer_id))
        return known is not None and not self._has_expired(known[0].key)

    def policy_of(self, caller: Caller) -> str | None:
        """What the key of a caller may do, as it is now; None: everything in its account, or it is
        none of ours."""
        producer = caller.producer
        if producer is None or not producer.name:
            return None
        return self._policies.get(producer.producer_id, _NO_RIGHTS)

    def _present(self, account_id: str) -> datetime:
        return self._clock.of(account_id).instant()

    def changed(self, key_id: int | None) -> None:
        """That key is another one now; None: any may be, for nobody told us for a while."""
        if key_id is None:
            self._is_stale = True
        else:
            self._unread.add(key_id)
            self._doubted.add(key_id)
            asyncio.get_running_loop().call_later(_DOUBT_SECONDS, self._give_up, key_id)
        self._reading.begin()

    def _give_up(self, key_id: int) -> None:
        """What has not been read by now may be revoked."""
        if key_id in self._doubted:
            self._forget(key_id)

    def _forget(self, key_id: int) -> None:
        gone = self._live.pop(key_id, None)
        self._policies.pop(str(key_id), None)
        if gone is not None and gone[0].key.access_key is not None:
            self._access.pop(gone[0].key.access_key, None)

    async def load(self) -> None:
        """Read all of them."""
        self.changed(None)
        await self.settle()

    async def settle(self) -> None:
        """Until all is known of what changed so far."""
        await self._reading.settle()

    async def close(self) -> None:
        """Read no more."""
        await self._reading.close()

    async def _read(self) -> None:
        wanted = None if self._is_stale else self._unread
        unread, self._unread, self._is_stale = self._unread, set(), False
        try:
            async with self._database.transaction() as tx:
                found = await keys.live(tx, wanted)
        except BaseException:
            self._unread |= unread
            self._is_stale = wanted is None
            raise
        for key_id in {*self._live} if wanted is None else unread:
            # What has changed meanwhile is read again.
            if key_id not in self._unread:
                self._forget(key_id)
        for live in found:
            if live.key.key_id not in self._unread:
                self._know(live)
        self._doubted &= self._unread
        self.on_read()
        for key_id in unread:
            self._wakeups.key_known(key_id)

    def _know(self, live: LiveKey) -> None:
        key, producer = live.key, _producer(live.key)
        self._live[key.key_id] = live, producer
        self._policies[producer.producer_id] = key.policy
        if self.secrets is None or key.access_key is None:
            return
        closed = [one for one in (live.secret, live.previous_secret) if one is not None]
        try:
            opened = tuple(self.secrets.open(key.access_key, one) for one in closed)
        except WrongMasterKey:
            _log.error("key %d is not taken: %s", key.key_id, WRONG_MASTER_KEY)
            return
        self._access[key.access_key] = AccessKey(key, producer, opened)


def _producer(key: Key) -> Producer:
    return Producer(str(key.key_id), key.name, key.limit)


def _hash(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


class NewApiKey(NamedTuple):
    """A key as somebody wants it."""

    name: str
    limit: RateLimit | None = None
    expires_at: datetime | None = None
    kind: str = API
    is_administrator: bool = False
    policy: str | None = None
    """What it may do, in JSON; None: everything in its account."""


def token(key: Key, secret: str) -> str:
    """What the owner of a key that is shown shows: nobody can make it again."""
    return f"{PREFIX}{key.key_id}_{secret}"


def _check(now: datetime | None, wanted: NewApiKey) -> None:
    if not _NAME.fullmatch(wanted.name):
        raise InvalidParameterValue(
            f"A key cannot be called '{wanted.name[:100]}'. Allowed are letters, digits, periods, "
            "hyphens and underscores, at most 80 of them."
        )
    if wanted.expires_at is not None and wanted.expires_at <= (now or datetime.now(UTC)):
        raise InvalidParameterValue("The key would have expired already.")
    if wanted.expires_at is not None and wanted.expires_at >= _LAST_YEAR:
        raise InvalidParameterValue(
            f"The key can expire before {_LAST_YEAR.year}; without an instant it never does."
        )


async def insert(
    tx: Transaction,
    now: datetime | None,
    account_id: str,
    wanted: NewApiKey,
    key_secrets: KeySecrets | None = None,
) -> tuple[Key, str]:
    """A new key of that account, and its secret. Raises InvalidParameterValue, KeyExists, KeyUnfit,
    PolicyRefused and TooManyKeys."""
    _check(now, wanted)
    policy = key_policies.checked(wanted.policy, is_administrator=wanted.is_administrator)
    if await keys.count(tx) >= LIMITS.keys:
        raise TooManyKeys(LIMITS.keys)
    new = NewKey(
        account_id,
        wanted.name,
        wanted.limit,
        wanted.expires_at,
        wanted.is_administrator,
        policy=policy,
    )
    if wanted.kind == ACCESS:
        access_key = _ACCESS_PREFIX + "".join(
            secrets.choice(_ACCESS_LETTERS) for _ in range(_ACCESS_LENGTH)
        )
        secret, closed = await new_secret(tx, access_key, key_secrets)
        new = new._replace(access_key=access_key, secret=closed)
    else:
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        new = new._replace(secret_hash=_hash(secret))
    key = await keys.create(tx, now, new)
    if key is None:
        raise KeyExists(wanted.name)
    policy_warnings.warn_of(wanted.policy, Kind.IDENTITY, f"key {key.name}")
    return key, secret


async def create_key(
    engine: Engine, caller: Caller, wanted: NewApiKey, account_id: str | None = None
) -> tuple[Key, str]:
    """A new key of the caller's account, or of another one, and its secret, once; of a key that is
    shown what is shown. All processes know it then.

    Keys that sign, administrators' keys, and those of other accounts are made by administrators.
    Raises AuthorizationError, InvalidParameterValue, KeyExists, KeyUnfit, PolicyRefused and
    TooManyKeys.
    """
    account_id = account_id or caller.account_id
    if account_id != caller.account_id or wanted.kind == ACCESS or wanted.is_administrator:
        _check_administrator(caller)
    async with engine.database.transaction() as tx:
        now = engine.clock.of(account_id).now()
        key, secret = await insert(tx, now, account_id, wanted, engine.keys.secrets)
        engine.wakeups.expect_to_know(key.key_id)
    await _told(engine, key.key_id)
    return key, secret if key.kind == ACCESS else token(key, secret)


def _check_administrator(caller: Caller) -> None:
    if not caller.is_administrator:
        raise AuthorizationError(
            "This takes the key of an administrator: `queuegate keys create --administrator` makes "
            "one."
        )


def _reach(caller: Caller) -> str | None:
    """Whose keys the caller reaches; None: everybody's."""
    return None if caller.is_administrator else caller.account_id


async def list_keys(
    engine: Engine,
    caller: Caller,
    *,
    after_id: int,
    with_revoked: bool,
    limit: int,
    account_id: str | None = None,
) -> list[Key]:
    """Keys of the caller's account, or for administrators of another one, by number. Raises
    AuthorizationError."""
    account_id = account_id or caller.account_id
    if account_id != caller.account_id:
        _check_administrator(caller)
    async with engine.database.transaction() as tx:
        return await keys.page(
            tx, account_id, after_id=after_id, with_revoked=with_revoked, limit=limit
        )


async def find_key(engine: Engine, caller: Caller, key_id: int) -> Key:
    """A key that the caller reaches. Raises KeyDoesNotExist."""
    async with engine.database.transaction() as tx:
        return await _find(tx, caller, key_id)


async def _find(tx: Transaction, caller: Caller, key_id: int) -> Key:
    found = await keys.page(tx, _reach(caller), after_id=key_id - 1, with_revoked=True, limit=1)
    for key in found:
        if key.key_id == key_id:
            return key
    raise KeyDoesNotExist(key_id)


_Change = Callable[["Transaction", datetime | None], Awaitable["Key | None"]]


async def _change(engine: Engine, caller: Caller, key_id: int, change: _Change) -> Key:
    async with engine.database.transaction() as tx:
        key = await _find(tx, caller, key_id)
        if key.kind == ACCESS or key.is_administrator:
            _check_administrator(caller)
        changed = await change(tx, engine.clock.of(key.account_id).now())
        if changed is None:
            raise KeyDoesNotExist(key_id)
        engine.wakeups.expect_to_know(key_id)
    await _told(engine, key_id)
    return changed


async def revoke_key(engine: Engine, caller: Caller, key_id: int) -> Key:
    """End a key that the caller reaches: no process takes it any more then. Once more changes
    nothing. Raises AuthorizationError and KeyDoesNotExist."""

    async def revoke(tx: Transaction, now: datetime | None) -> Key | None:
        return await keys.revoke(tx, now, _reach(caller), key_id)

    return await _change(engine, caller, key_id, revoke)


async def change_key(
    engine: Engine,
    caller: Caller,
    key_id: int,
    *,
    is_disabled: bool | None = None,
    policy: str | None = None,
) -> Key:
    """Let no process take a key, or let all take it again; give it a policy, or with an empty text
    none. What is None stays. Raises AuthorizationError, KeyDoesNotExist, of revoked ones, too,
    KeyUnfit and PolicyRefused."""

    async def change(tx: Transaction, now: datetime | None) -> Key | None:
        changed: Key | None = await _find(tx, caller, key_id)
        if policy is not None and changed is not None:
            changed = await key_policies.give(tx, changed, policy)
        if is_disabled is not None:
            changed = await keys.disable(tx, now, None, key_id, is_disabled=is_disabled)
        return changed

    return await _change(engine, caller, key_id, change)


async def rotate_key(
    engine: Engine, caller: Caller, key_id: int, overlap_seconds: int
) -> tuple[Key, str]:
    """Give an access key another secret, which is returned once; the one before is good for so many
    seconds more. Raises AuthorizationError, KeyDoesNotExist, of revoked ones, too, and KeyUnfit."""
    made = ""

    async def renew(tx: Transaction, now: datetime | None) -> Key | None:
        nonlocal made
        key, made = await rotate(
            tx, now, await _find(tx, caller, key_id), overlap_seconds, engine.keys.secrets
        )
        return key

    key = await _change(engine, caller, key_id, renew)
    return key, made


async def rotate(
    tx: Transaction,
    now: datetime | None,
    key: Key,
    overlap_seconds: int,
    key_secrets: KeySecrets | None,
) -> tuple[Key, str]:
    """The same of a key that was found. Raises KeyDoesNotExist and KeyUnfit."""
    if key.access_key is None:
        raise KeyUnfit(f"Key {key.key_id} does not sign: make another one, and revoke this one.")
    secret, closed = await new_secret(tx, key.access_key, key_secrets)
    changed = await keys.rotate(
        tx, now, None, key.key_id, secret=closed, overlap_seconds=overlap_seconds
    )
    if changed is None:
        raise KeyDoesNotExist(key.key_id)
    return changed, secret


async def _told(engine: Engine, key_id: int) -> None:
    """The change is known here, and elsewhere, or in a second."""
    engine.keys.changed(key_id)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await engine.keys.settle()
    await engine.wakeups.wait_for_key(key_id)

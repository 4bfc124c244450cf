"""Keys of ours: made, listed, revoked, and all that are good, in the memory of each process.

A key is ``qg_<number>_<secret>``. The number finds it, the secret is 256 random bits of which the
database has the SHA-256: nobody can try out all of them, so a slow hash would only slow us down.
Checking one asks nobody, so wrong ones cost neither memory nor the database anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
from datetime import UTC, datetime
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, NamedTuple

from gateway.operations.caller import Producer
from gateway.operations.limits import LIMITS
from gateway.operations.repeating import until_available
from storage.errors import InvalidParameterValue
from storage.key_errors import KeyDoesNotExist, KeyExists, TooManyKeys
from storage.keys import keys
from storage.keys.keys import LiveKey, NewKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.operations.caller import Caller
    from gateway.operations.clock import Clock
    from gateway.operations.engine import Engine
    from gateway.operations.wakeups import Wakeups
    from storage.database import Database, Transaction
    from storage.key_model import Key, RateLimit

_log = logging.getLogger("queuegate.keys")

PREFIX = "qg_"
"""How keys of ours begin, and nothing else that is shown may."""
_SECRET_BYTES = 32
_TOKEN = re.compile(r"qg_([1-9][0-9]{0,17})_([A-Za-z0-9_-]{43})", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9._-]{1,80}", re.ASCII)
_LAST_YEAR = datetime(9999, 1, 1, tzinfo=UTC)
"""At its end, in UTC, no instant can be stored, or it comes back as infinity."""
_PATIENCE_SECONDS = 1.0


class Keys:
    """All keys that are good, as this process knows them. A notification drops one at once; what is
    known of it now is read then."""

    def __init__(self, database: Database, clock: Clock, wakeups: Wakeups) -> None:
        self._database = database
        self._clock = clock
        self._wakeups = wakeups
        self._live: dict[int, tuple[LiveKey, Producer]] = {}
        self._unread: set[int] = set()
        self._is_stale = False
        self._reading: asyncio.Task[None] | None = None
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
        if not compare_digest(_hash(found[2]), live.secret_hash):
            return None
        if key.expires_at is not None and key.expires_at <= self._present(key.account_id):
            return None
        return key, producer

    def still_takes(self, caller: Caller) -> bool:
        """Whether the key of a caller from before is still good, if it was one of ours."""
        producer = caller.producer
        if producer is None or not producer.name:
            return True
        known = self._live.get(int(producer.producer_id))
        if known is None:
            return False
        expires_at = known[0].key.expires_at
        return expires_at is None or expires_at > self._present(caller.account_id)

    def _present(self, account_id: str) -> datetime:
        return self._clock.of(account_id).instant()

    def changed(self, key_id: int | None) -> None:
        """That key is another one now; None: any may be, for nobody told us for a while."""
        if key_id is None:
            self._is_stale = True
        else:
            self._live.pop(key_id, None)
            self._unread.add(key_id)
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._read_changes())

    async def load(self) -> None:
        """Read all of them."""
        self.changed(None)
        await self.settle()

    async def settle(self) -> None:
        """Until all is known of what changed so far."""
        while self._reading is not None and not self._reading.done():
            await asyncio.shield(self._reading)

    async def close(self) -> None:
        """Read no more."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read_changes(self) -> None:
        while self._is_stale or self._unread:
            await until_available(self._read, _log, "keys are not read")

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
        if wanted is None:
            self._live = {}
        for live in found:
            # What has changed meanwhile is read again.
            if live.key.key_id not in self._unread:
                self._live[live.key.key_id] = live, _producer(live.key)
        self.on_read()
        for key_id in unread:
            self._wakeups.key_known(key_id)


def _producer(key: Key) -> Producer:
    return Producer(str(key.key_id), key.name, key.limit)


def _hash(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


class NewApiKey(NamedTuple):
    """A key as somebody wants it."""

    name: str
    limit: RateLimit | None = None
    expires_at: datetime | None = None


def token(key: Key, secret: str) -> str:
    """What its owner shows: nobody can make it again."""
    return f"{PREFIX}{key.key_id}_{secret}"


async def insert(
    tx: Transaction, now: datetime | None, account_id: str, wanted: NewApiKey
) -> tuple[Key, str]:
    """A new key of that account, and its secret. Raises InvalidParameterValue, KeyExists and
    TooManyKeys."""
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
    if await keys.count(tx) >= LIMITS.keys:
        raise TooManyKeys(LIMITS.keys)
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    new = NewKey(account_id, wanted.name, _hash(secret), wanted.limit, wanted.expires_at)
    key = await keys.create(tx, now, new)
    if key is None:
        raise KeyExists(wanted.name)
    return key, secret


async def create_key(engine: Engine, caller: Caller, wanted: NewApiKey) -> tuple[Key, str]:
    """A new key of the caller's account and what is shown of it, once. All processes know it then.

    Raises InvalidParameterValue, KeyExists and TooManyKeys.
    """
    account_id = caller.account_id
    async with engine.database.transaction() as tx:
        now = engine.clock.of(account_id).now()
        key, secret = await insert(tx, now, account_id, wanted)
        engine.wakeups.expect_to_know(key.key_id)
    await _told(engine, key.key_id)
    return key, token(key, secret)


async def list_keys(
    engine: Engine, caller: Caller, *, after_id: int, with_revoked: bool, limit: int
) -> list[Key]:
    """Keys of the caller's account, by number."""
    async with engine.database.transaction() as tx:
        return await keys.page(
            tx, caller.account_id, after_id=after_id, with_revoked=with_revoked, limit=limit
        )


async def find_key(engine: Engine, caller: Caller, key_id: int) -> Key:
    """A key of the caller's account. Raises KeyDoesNotExist."""
    found = await list_keys(engine, caller, after_id=key_id - 1, with_revoked=True, limit=1)
    for key in found:
        if key.key_id == key_id:
            return key
    raise KeyDoesNotExist(key_id)


async def revoke_key(engine: Engine, caller: Caller, key_id: int) -> Key:
    """End a key of the caller's account: no process takes it any more then. Once more changes
    nothing. Raises KeyDoesNotExist."""
    account_id = caller.account_id
    async with engine.database.transaction() as tx:
        key = await keys.revoke(tx, engine.clock.of(account_id).now(), account_id, key_id)
        if key is None:
            raise KeyDoesNotExist(key_id)
        engine.wakeups.expect_to_know(key_id)
    await _told(engine, key_id)
    return key


async def _told(engine: Engine, key_id: int) -> None:
    """The change is known here, and elsewhere, or in a second."""
    engine.keys.changed(key_id)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_SECONDS):
            await engine.keys.settle()
    await engine.wakeups.wait_for_key(key_id)

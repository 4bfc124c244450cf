"""All valid keys, in the memory of each process. Checking a key takes no query, so wrong keys are
cheap."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from datetime import datetime
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.access.caller import Producer
from queuegate.gateway.operations.access.key_secrets import (
    WRONG_MASTER_KEY,
    WrongMasterKey,
    opened_session,
    secret_mark,
)
from queuegate.gateway.operations.runtime.background_tasks import StateReloader
from queuegate.storage import stored_keys
from queuegate.storage.storage_errors import ExpiredToken
from queuegate.storage.stored_keys import LiveKey

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.access.key_secrets import KeySecrets
    from queuegate.gateway.operations.runtime.account_clocks import Clock
    from queuegate.gateway.operations.runtime.wakeups import Wakeups
    from queuegate.protocol.session_tokens import Session
    from queuegate.storage.database import Database
    from queuegate.storage.model import Key


_log = logging.getLogger("queuegate.keys")
_TOKEN = re.compile(r"qg_([1-9][0-9]{0,17})_([A-Za-z0-9_-]{43})", re.ASCII)
_NO_RIGHTS = '{"Statement":[]}'
"""The policy of keys that have become invalid, for connections that were opened with them."""
_DOUBT_SECONDS = 0.5


class AccessKey(NamedTuple):
    """A valid key that signs requests."""

    key: Key
    producer: Producer
    secrets: tuple[str, ...]
    """Secrets that may have signed: the present one, and the previous one during a rotation."""


class Keys:
    """All valid keys, as this process knows them.

    A notification names a changed key. Until the key is reloaded, at most 0.5 s, the old state
    counts, so that clients with the new secret are not refused meanwhile.
    """

    def __init__(self, database: Database, clock: Clock, wakeups: Wakeups) -> None:
        self._database = database
        self._clock = clock
        self._wakeups = wakeups
        self.secrets: KeySecrets | None = None
        """Decrypts secrets of access keys; None: this gateway accepts no access keys."""
        self._live: dict[int, tuple[LiveKey, Producer]] = {}
        self._access: dict[str, AccessKey] = {}
        self._policies: dict[str, str | None] = {}
        """By producer id."""
        self._unread: set[int] = set()
        self._doubted: set[int] = set()
        """Keys that have changed since they were read."""
        self._is_stale = False
        self._reading = StateReloader(
            self._read, lambda: self._is_stale or self._unread, _log, "cannot read keys"
        )
        self.on_read: Callable[[], None] = lambda: None
        """Called when keys may have become invalid."""
        wakeups.on_key_changed = self.changed

    def find(self, shown: str) -> tuple[Key, Producer] | None:
        """Return the key of a bearer token if it is valid: the secret matches, not revoked, not
        expired."""
        found = _TOKEN.fullmatch(shown)
        known = found and self._live.get(int(found[1]))
        if not found or not known:
            return None
        live, producer = known
        key = live.key
        if live.secret_hash is None or not compare_digest(hash_of(found[2]), live.secret_hash):
            return None
        return None if self._has_expired(key) else (key, producer)

    def find_access(self, access_key: str) -> AccessKey | None:
        """Return the access key of that name if it is valid and this gateway can decrypt its
        secret."""
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
        """Return the temporary access key and its session. None: unknown token, or the key that
        started the session is no longer valid. Raises ExpiredToken."""
        found = None if self.secrets is None else opened_session(self.secrets, access_key, token)
        known = found and self._live.get(found[0].key_id)
        if not found or not known or self._has_expired(known[0].key):
            return None
        session, secret = found
        key, producer = known[0].key, known[1]
        if key.access_key is not None:
            parent = self.find_access(key.access_key)
            if parent is None or session.secret_mark not in map(secret_mark, parent.secrets):
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
        """Return True if the key of an earlier request is still valid, or is not ours."""
        producer = caller.producer
        if producer is None or not producer.name:
            return True
        if caller.session is not None and self._has_ended(caller.session):
            return False
        known = self._live.get(int(producer.producer_id))
        return known is not None and not self._has_expired(known[0].key)

    def policy_of(self, caller: Caller) -> str | None:
        """Return the present policy of the caller's key. None: no restriction, or not our key."""
        producer = caller.producer
        if producer is None or not producer.name:
            return None
        return self._policies.get(producer.producer_id, _NO_RIGHTS)

    def _present(self, account_id: str) -> datetime:
        return self._clock.of(account_id).instant()

    def changed(self, key_id: int | None) -> None:
        """Reload a changed key; None: reload all, because notifications may have been lost."""
        if key_id is None:
            self._is_stale = True
        else:
            self._unread.add(key_id)
            self._doubted.add(key_id)
            asyncio.get_running_loop().call_later(_DOUBT_SECONDS, self._give_up, key_id)
        self._reading.begin()

    def _give_up(self, key_id: int) -> None:
        """Forget a changed key that could not be reloaded in time: it may be revoked."""
        if key_id in self._doubted:
            self._forget(key_id)

    def _forget(self, key_id: int) -> None:
        gone = self._live.pop(key_id, None)
        self._policies.pop(str(key_id), None)
        if gone is not None and gone[0].key.access_key is not None:
            self._access.pop(gone[0].key.access_key, None)

    async def load(self) -> None:
        """Reload all keys and wait for the result."""
        self.changed(None)
        await self.settle()

    async def settle(self) -> None:
        """Wait until all changes so far are loaded."""
        await self._reading.settle()

    async def close(self) -> None:
        """Stop reloading."""
        await self._reading.close()

    async def _read(self) -> None:
        wanted = None if self._is_stale else self._unread
        unread, self._unread, self._is_stale = self._unread, set(), False
        try:
            async with self._database.transaction() as tx:
                found = await stored_keys.live(tx, wanted)
        except BaseException:
            self._unread |= unread
            self._is_stale = wanted is None
            raise
        for key_id in {*self._live} if wanted is None else unread:
            # Keys that changed meanwhile are read again.
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


def hash_of(secret: str) -> bytes:
    return sha256(secret.encode()).digest()

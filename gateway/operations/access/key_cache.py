"""All valid keys, in the memory of each process, so that checking a key takes no query; secrets of
access keys and sessions, encrypted with a master key that the database does not have.

AES-GCM with 256 bits and a nonce for each secret. The access key is bound to its secret, so that
rows cannot be exchanged. The cryptography package is imported at first use: gateways without access
keys do not need it.

One master key encrypts all secrets at a time. During a change of the master key, gateways have
both, and new secrets use the key that existing secrets use. ``move`` is one transaction, so
gateways need no coordination.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from hmac import compare_digest, digest
from secrets import token_bytes
from typing import TYPE_CHECKING, Final, NamedTuple

from queuegate.gateway.operations.access.caller import Caller, Producer
from queuegate.gateway.operations.runtime.background_tasks import StateReloader
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol import opaque_tokens
from queuegate.protocol.malformed import Malformed
from queuegate.protocol.opaque_tokens import Session
from queuegate.storage import stored_keys
from queuegate.storage.storage_errors import ExpiredToken, KeyUnfit
from queuegate.storage.stored_keys import LiveKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from queuegate.gateway.operations.runtime.account_clocks import Clock
    from queuegate.gateway.operations.runtime.wakeups import Wakeups
    from queuegate.storage.database import Database, Transaction
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


class Keys(StateReloader):
    """All valid keys, as this process knows them. A notification names a changed key. Until the key
    is reloaded, at most 0.5 s, the old state counts, so that clients with the new secret are not
    refused meanwhile."""

    def __init__(self, database: Database, clock: Clock, wakeups: Wakeups) -> None:
        super().__init__(_log, "cannot read keys")
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
        self.on_read: Callable[[], None] = lambda: None
        """Called when keys may have become invalid."""
        wakeups.on["key_changed"] = self.changed

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
        self._begin()

    def _give_up(self, key_id: int) -> None:
        """Forget a changed key that could not be reloaded in time: it may be revoked."""
        if key_id in self._doubted:
            self._forget(key_id)

    def _forget(self, key_id: int) -> None:
        gone = self._live.pop(key_id, None)
        self._policies.pop(str(key_id), None)
        if gone is not None and gone[0].key.access_key is not None:
            self._access.pop(gone[0].key.access_key, None)

    def _needs_reload(self) -> bool:
        return self._is_stale or bool(self._unread)

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
        key = live.key
        producer = Producer(str(key.key_id), key.name, key.limit)
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


def hash_of(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


_NONCE_BYTES = 12


class WrongMasterKey(Exception):
    """A secret was encrypted with another master key."""


class KeySecrets:
    """A cipher that encrypts with the last of its master keys, and decrypts with any of them."""

    def __init__(self, *master_keys: bytes) -> None:
        self._master_keys = master_keys

    @property
    def count(self) -> int:
        return len(self._master_keys)

    @cached_property
    def _ciphers(self) -> list[AESGCM]:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return [AESGCM(key) for key in self._master_keys]

    def close(self, access_key: str, secret: str) -> bytes:
        """Return the encrypted secret."""
        nonce = token_bytes(_NONCE_BYTES)
        return nonce + self._ciphers[-1].encrypt(nonce, secret.encode(), access_key.encode())

    def open(self, access_key: str, closed: bytes) -> str:
        """Return the decrypted secret. Raises WrongMasterKey."""
        return self.opened(access_key, closed)[0]

    def only(self, number: int) -> KeySecrets:
        return KeySecrets(self._master_keys[number])

    def derived(self, purpose: str) -> KeySecrets:
        """Return master keys derived for another purpose; they do not disclose these."""
        return KeySecrets(*(digest(key, purpose.encode(), "sha256") for key in self._master_keys))

    def mac(self, text: bytes) -> bytes:
        return digest(self._master_keys[-1], text, "sha256")

    def opened(self, access_key: str, closed: bytes) -> tuple[str, int]:
        """Return the secret and the index of its master key. Raises WrongMasterKey."""
        from cryptography.exceptions import InvalidTag

        nonce, text = closed[:_NONCE_BYTES], closed[_NONCE_BYTES:]
        for number, cipher in enumerate(self._ciphers):
            try:
                return cipher.decrypt(nonce, text, access_key.encode()).decode(), number
            except (InvalidTag, ValueError):
                continue
        raise WrongMasterKey


_SECRET_BYTES = 30
"""Forty characters, as in AWS."""
WRONG_MASTER_KEY = (
    "the master key (QUEUEGATE_MASTER_KEY_FILE, QUEUEGATE_MASTER_KEY) is not the one that secrets "
    "of access keys are encrypted with"
)


class ReencryptedSecrets(NamedTuple):
    """The number of keys whose secrets were reencrypted, and the number of all keys."""

    moved: int
    total: int


async def new_secret(
    tx: Transaction, access_key: str, key_secrets: KeySecrets | None
) -> tuple[str, bytes]:
    """Return a new secret, plain and encrypted. Raises KeyUnfit."""
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    return secret, (await present_master_key(tx, key_secrets)).close(access_key, secret)


async def present_master_key(tx: Transaction, key_secrets: KeySecrets | None) -> KeySecrets:
    """Return the master key that existing secrets use. Raises KeyUnfit."""
    if key_secrets is None:
        raise KeyUnfit(
            "Secrets of access keys are stored encrypted: QUEUEGATE_MASTER_KEY_FILE or "
            "QUEUEGATE_MASTER_KEY must be set."
        )
    try:
        # The very first secret uses the first master key: either the only one, or the present one.
        sample = await stored_keys.sample(tx)
        return key_secrets.only(0 if sample is None else key_secrets.opened(*sample)[1])
    except WrongMasterKey:
        raise KeyUnfit(WRONG_MASTER_KEY) from None


async def opens_all(tx: Transaction, key_secrets: KeySecrets) -> bool:
    return all(_opens(key_secrets, *found) for found in await stored_keys.sealed(tx, LIMITS.keys))


async def move(tx: Transaction, key_secrets: KeySecrets) -> ReencryptedSecrets:
    """Encrypt with the last master key all secrets that use another one. No key can be created
    until the transaction ends; keys are checked as before. Raises WrongMasterKey if a secret uses
    none of these master keys."""
    newest = key_secrets.only(-1)
    found = await stored_keys.all_sealed(tx)
    changed = []
    for key in found:
        if not _opens(newest, key.access_key, key.secret):
            changed.append(
                key._replace(
                    secret=_reencrypted(key_secrets, key.access_key, key.secret),
                    previous_secret=key.previous_secret
                    and _reencrypted(key_secrets, key.access_key, key.previous_secret),
                )
            )
    await stored_keys.seal_again(tx, changed)
    return ReencryptedSecrets(len(changed), len(found))


def _opens(key_secrets: KeySecrets, access_key: str, closed: bytes) -> bool:
    try:
        key_secrets.open(access_key, closed)
    except WrongMasterKey:
        return False
    return True


def _reencrypted(key_secrets: KeySecrets, access_key: str, closed: bytes) -> bytes:
    return key_secrets.close(access_key, key_secrets.open(access_key, closed))


_SEAL: Final = "session tokens"
_SIGN: Final = "secrets of sessions"
SESSION_SECRET_BYTES: Final = 30


def opened_session(
    key_secrets: KeySecrets, access_key: str, token: str
) -> tuple[Session, str] | None:
    """Return the session of a token and its signing secret; None: not our token."""
    try:
        closed = urlsafe_b64decode(token)
        sealed = key_secrets.derived(_SEAL)
        text, number = sealed.opened(access_key, closed)
        session = opaque_tokens.loaded(text.encode())
    except (Malformed, ValueError, WrongMasterKey):
        return None
    return session, _session_secret(key_secrets.only(number), token)


def secret_mark(secret: str) -> str:
    """Return an identifier of a secret that does not disclose it."""
    return sha256(secret.encode()).hexdigest()[:16]


def _session_secret(master_key: KeySecrets, token: str) -> str:
    made = master_key.derived(_SIGN).mac(token.encode())
    return urlsafe_b64encode(made[:SESSION_SECRET_BYTES]).decode()


def sealed_session(master_key: KeySecrets, access_key: str, session: Session) -> tuple[str, str]:
    """Return the token of a session, and the secret that is derived from the token."""
    closed = master_key.derived(_SEAL).close(access_key, session.dumped().decode())
    token = urlsafe_b64encode(closed).decode()
    return token, _session_secret(master_key, token)

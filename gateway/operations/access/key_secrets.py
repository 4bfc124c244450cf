"""Secrets of access keys and sessions, encrypted with a master key that the database does not have.

AES-GCM with 256 bits and a nonce for each secret. The access key is bound to its secret, so that
rows cannot be exchanged. The cryptography package is imported at first use: gateways without access
keys do not need it.

One master key encrypts all secrets at a time. During a change of the master key, gateways have
both, and new secrets use the key that existing secrets use. ``move`` is one transaction, so
gateways need no coordination.
"""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import cached_property
from hashlib import sha256
from hmac import digest
from secrets import token_bytes
from typing import TYPE_CHECKING, Final, NamedTuple

from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol import session_tokens
from queuegate.protocol.malformed import Malformed
from queuegate.protocol.session_tokens import Session
from queuegate.storage import stored_keys
from queuegate.storage.storage_errors import KeyUnfit

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from queuegate.storage.database import Transaction


_NONCE_BYTES = 12


class WrongMasterKey(Exception):
    """A secret was encrypted with another master key."""


class KeySecrets:
    """A cipher that encrypts with the last of its master keys, and decrypts with any of them."""

    def __init__(self, *master_keys: bytes) -> None:
        self._master_keys = master_keys

    @property
    def count(self) -> int:
        """Return the number of master keys."""
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

    def that_closed(self, access_key: str, closed: bytes) -> KeySecrets:
        """Return the one master key that encrypted this. Raises WrongMasterKey."""
        return self.only(self.opened(access_key, closed)[1])

    def only(self, number: int) -> KeySecrets:
        """Return one of the master keys alone."""
        return KeySecrets(self._master_keys[number])

    def derived(self, purpose: str) -> KeySecrets:
        """Return master keys derived for another purpose; they do not disclose these."""
        return KeySecrets(*(digest(key, purpose.encode(), "sha256") for key in self._master_keys))

    def mac(self, text: bytes) -> bytes:
        """Return the HMAC of a text with the last master key."""
        return digest(self._master_keys[-1], text, "sha256")

    @property
    def oldest(self) -> KeySecrets:
        """Return the first master key alone."""
        return self.only(0)

    @property
    def newest(self) -> KeySecrets:
        """Return the last master key alone."""
        return self.only(-1)

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
        return key_secrets.oldest if sample is None else key_secrets.that_closed(*sample)
    except WrongMasterKey:
        raise KeyUnfit(WRONG_MASTER_KEY) from None


async def opens_all(tx: Transaction, key_secrets: KeySecrets) -> bool:
    """Return True if these master keys decrypt all access keys."""
    return all(_opens(key_secrets, *found) for found in await stored_keys.sealed(tx, LIMITS.keys))


async def move(tx: Transaction, key_secrets: KeySecrets) -> ReencryptedSecrets:
    """Encrypt with the last master key all secrets that use another one. No key can be created
    until the transaction ends; keys are checked as before. Raises WrongMasterKey if a secret uses
    none of these master keys."""
    newest = key_secrets.newest
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
_SESSION_SECRET_BYTES: Final = 30


def opened_session(
    key_secrets: KeySecrets, access_key: str, token: str
) -> tuple[Session, str] | None:
    """Return the session of a token and its signing secret; None: not our token."""
    try:
        closed = urlsafe_b64decode(token)
        sealed = key_secrets.derived(_SEAL)
        text, number = sealed.opened(access_key, closed)
        session = session_tokens.loaded(text.encode())
    except (Malformed, ValueError, WrongMasterKey):
        return None
    return session, _session_secret(key_secrets.only(number), token)


def secret_mark(secret: str) -> str:
    """Return an identifier of a secret that does not disclose it."""
    return sha256(secret.encode()).hexdigest()[:16]


def _session_secret(master_key: KeySecrets, token: str) -> str:
    made = master_key.derived(_SIGN).mac(token.encode())
    return urlsafe_b64encode(made[:_SESSION_SECRET_BYTES]).decode()


def sealed_session(master_key: KeySecrets, access_key: str, session: Session) -> tuple[str, str]:
    """Return the token of a session, and the secret that is derived from the token."""
    closed = master_key.derived(_SEAL).close(access_key, session.dumped().decode())
    token = urlsafe_b64encode(closed).decode()
    return token, _session_secret(master_key, token)


def new_session_secret() -> str:
    """Return a random secret, for gateways that verify no signatures."""
    return secrets.token_urlsafe(_SESSION_SECRET_BYTES)

"""Secrets of access keys, as they lie in the database: encrypted, with a key that is not there.

AES-GCM with 256 bits and a nonce of its own for each secret. The access key is bound to its secret,
so that rows cannot be exchanged. What does cryptography is imported where it is used: gateways
without access keys need none.
"""

from __future__ import annotations

from functools import cached_property
from hmac import digest
from secrets import token_bytes
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES = 12


class WrongMasterKey(Exception):
    """What should open a secret is not what it was closed with."""


class KeySecrets:
    """Encrypts with the last of some master keys, decrypts with any of them, and shows none."""

    def __init__(self, *master_keys: bytes) -> None:
        self._master_keys = master_keys

    @property
    def count(self) -> int:
        """How many master keys there are."""
        return len(self._master_keys)

    @cached_property
    def _ciphers(self) -> list[AESGCM]:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return [AESGCM(key) for key in self._master_keys]

    def close(self, access_key: str, secret: str) -> bytes:
        """The secret as it is stored."""
        nonce = token_bytes(_NONCE_BYTES)
        return nonce + self._ciphers[-1].encrypt(nonce, secret.encode(), access_key.encode())

    def open(self, access_key: str, closed: bytes) -> str:
        """The secret again. Raises WrongMasterKey."""
        return self.opened(access_key, closed)[0]

    def that_closed(self, access_key: str, closed: bytes) -> KeySecrets:
        """The one master key that this was encrypted with. Raises WrongMasterKey."""
        return self.only(self.opened(access_key, closed)[1])

    def only(self, number: int) -> KeySecrets:
        """Return one of the master keys alone."""
        return KeySecrets(self._master_keys[number])

    def derived(self, purpose: str) -> KeySecrets:
        """Return master keys for another purpose, from which these cannot be found out."""
        return KeySecrets(*(digest(key, purpose.encode(), "sha256") for key in self._master_keys))

    def mac(self, text: bytes) -> bytes:
        """Return the HMAC of a text with the last master key."""
        return digest(self._master_keys[-1], text, "sha256")

    @property
    def oldest(self) -> KeySecrets:
        """The first master key alone."""
        return self.only(0)

    @property
    def newest(self) -> KeySecrets:
        """The last master key alone."""
        return self.only(-1)

    def opened(self, access_key: str, closed: bytes) -> tuple[str, int]:
        """Return the secret, and the number of its master key. Raises WrongMasterKey."""
        from cryptography.exceptions import InvalidTag

        nonce, text = closed[:_NONCE_BYTES], closed[_NONCE_BYTES:]
        for number, cipher in enumerate(self._ciphers):
            try:
                return cipher.decrypt(nonce, text, access_key.encode()).decode(), number
            except (InvalidTag, ValueError):
                continue
        raise WrongMasterKey

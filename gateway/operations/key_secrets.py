"""Secrets of access keys, as they lie in the database: encrypted, with a key that is not there.

AES-GCM with 256 bits and a nonce of its own for each secret. The access key is bound to its secret,
so that rows cannot be exchanged. What does cryptography is imported where it is used: gateways
without access keys need none.
"""

from __future__ import annotations

from secrets import token_bytes
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES = 12


class WrongMasterKey(Exception):
    """What should open a secret is not what it was closed with."""


class KeySecrets:
    """Encrypts and decrypts with one master key, which it does not show."""

    def __init__(self, master_key: bytes) -> None:
        self._master_key = master_key
        self._cipher: AESGCM | None = None

    def _ready(self) -> AESGCM:
        if self._cipher is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._cipher = AESGCM(self._master_key)
        return self._cipher

    def close(self, access_key: str, secret: str) -> bytes:
        """The secret as it is stored."""
        nonce = token_bytes(_NONCE_BYTES)
        return nonce + self._ready().encrypt(nonce, secret.encode(), access_key.encode())

    def open(self, access_key: str, closed: bytes) -> str:
        """The secret again. Raises WrongMasterKey."""
        cipher = self._ready()
        from cryptography.exceptions import InvalidTag

        nonce, text = closed[:_NONCE_BYTES], closed[_NONCE_BYTES:]
        try:
            return cipher.decrypt(nonce, text, access_key.encode()).decode()
        except (InvalidTag, ValueError):
            raise WrongMasterKey from None

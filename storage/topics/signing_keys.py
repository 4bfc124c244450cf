"""Keys that sign messages, and certificates of earlier keys: one list for all processes.

A certificate outlives its key, because delivered messages refer to it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_SQL = load("topics/signing_keys")
_LOCK = _SQL["lock_signing_keys"].text

_NAME = "signing_keys"
# "QG" in ASCII, second use; migrations are the first.
_LOCKED = (0x5147, 2)

MOST_CERTIFICATES = 100
"""Limit of certificates of supplied keys; the newest are kept."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key and its certificate, in PEM. Supplied keys store only the certificate."""

    fingerprint: str
    certificate_pem: str
    private_key_pem: str | None = field(default=None, repr=False)


async def stored_signing_keys(tx: Transaction) -> list[SigningKey]:
    """Return every key and certificate, in order of addition."""
    text = await tx.fetchval(_SQL["read_signing_keys"].text, _NAME)
    return [SigningKey(**members) for members in json.loads(text)] if text else []


def private_key_of(keys: list[SigningKey]) -> SigningKey | None:
    """Return the key that signs if none is supplied; None if none was created yet."""
    return next((key for key in keys if key.private_key_pem is not None), None)


async def agree_on_signing_key(tx: Transaction, made: SigningKey) -> list[SigningKey]:
    """Store this key unless one exists; return all keys.

    Processes that start together create a key each; the first one stored becomes that of all.
    """
    await tx.execute(_LOCK, *_LOCKED)
    keys = await stored_signing_keys(tx)
    if private_key_of(keys) is None:
        keys.append(made)
        await _write(tx, keys)
    return keys


async def remember_signing_key(tx: Transaction, certificate: SigningKey) -> list[SigningKey]:
    """Store the certificate of a supplied key; return all keys."""
    await tx.execute(_LOCK, *_LOCKED)
    keys = await stored_signing_keys(tx)
    if certificate.fingerprint not in {key.fingerprint for key in keys}:
        keys.append(SigningKey(certificate.fingerprint, certificate.certificate_pem))
        supplied = [key for key in keys if key.private_key_pem is None]
        dropped = {key.fingerprint for key in supplied[:-MOST_CERTIFICATES]}
        keys = [key for key in keys if key.fingerprint not in dropped]
        await _write(tx, keys)
    return keys


async def _write(tx: Transaction, keys: list[SigningKey]) -> None:
    await tx.execute(
        _SQL["write_signing_keys"].text, _NAME, json.dumps([asdict(key) for key in keys])
    )

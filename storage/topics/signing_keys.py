"""Keys that sign messages, and certificates of keys that signed some: one list for all processes.

A certificate stays when another key takes over, for a message that was delivered long ago names it.
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
# "QG" in ASCII, and the second use of it; migrations are the first.
_LOCKED = (0x5147, 2)

MOST_CERTIFICATES = 100
"""Certificates of supplied keys that are kept, the newest ones."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key and its certificate, in PEM. Of a key that was supplied, only the certificate is
    stored."""

    fingerprint: str
    certificate_pem: str
    private_key_pem: str | None = field(default=None, repr=False)


async def stored(tx: Transaction) -> list[SigningKey]:
    """Every key and certificate, in the order in which they were added."""
    text = await tx.fetchval(_SQL["read_signing_keys"].text, _NAME)
    return [SigningKey(**members) for members in json.loads(text)] if text else []


def private_key_of(keys: list[SigningKey]) -> SigningKey | None:
    """The key that signs when none is supplied; None when none was made yet."""
    return next((key for key in keys if key.private_key_pem is not None), None)


async def agree_on(tx: Transaction, made: SigningKey) -> list[SigningKey]:
    """Store this key unless there is one already; every key there is then.

    Processes that start together make a key each; the first one to come here gives the key of all.
    """
    await tx.execute(_LOCK, *_LOCKED)
    keys = await stored(tx)
    if private_key_of(keys) is None:
        keys.append(made)
        await _write(tx, keys)
    return keys


async def remember(tx: Transaction, certificate: SigningKey) -> list[SigningKey]:
    """Store the certificate of a supplied key; every key there is then."""
    await tx.execute(_LOCK, *_LOCKED)
    keys = await stored(tx)
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

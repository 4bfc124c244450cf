"""What secrets of access keys are encrypted with: one master key at a time, for all of them.

While they go over to another one, gateways have both, and what is new is encrypted as what is there
is: so the move is one transaction, and no gateway has to know that it was made.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.key_secrets import WrongMasterKey
from queuegate.gateway.operations.limits import LIMITS
from queuegate.storage.key_errors import KeyUnfit
from queuegate.storage.keys import keys

if TYPE_CHECKING:
    from queuegate.gateway.operations.key_secrets import KeySecrets
    from queuegate.storage.database import Transaction

_SECRET_BYTES = 30
"""Forty characters, as AWS's have."""
WRONG_MASTER_KEY = (
    "the master key (QUEUEGATE_MASTER_KEY_FILE, QUEUEGATE_MASTER_KEY) is not the one that secrets "
    "of access keys are encrypted with"
)


class Moved(NamedTuple):
    """How many keys' secrets are encrypted with another master key now, and of how many."""

    moved: int
    total: int


async def new_secret(
    tx: Transaction, access_key: str, key_secrets: KeySecrets | None
) -> tuple[str, bytes]:
    """A secret, and the same encrypted. Raises KeyUnfit."""
    secret = secrets.token_urlsafe(_SECRET_BYTES)
    return secret, (await present(tx, key_secrets)).close(access_key, secret)


async def present(tx: Transaction, key_secrets: KeySecrets | None) -> KeySecrets:
    """Return the master key by which existing secrets are encrypted. Raises KeyUnfit."""
    if key_secrets is None:
        raise KeyUnfit(
            "Secrets of access keys are kept encrypted: QUEUEGATE_MASTER_KEY_FILE or "
            "QUEUEGATE_MASTER_KEY has to say with what."
        )
    try:
        # The first one of all is by the first master key: it is the only one, or the present one.
        sample = await keys.sample(tx)
        return key_secrets.oldest if sample is None else key_secrets.that_closed(*sample)
    except WrongMasterKey:
        raise KeyUnfit(WRONG_MASTER_KEY) from None


async def opens_all(tx: Transaction, key_secrets: KeySecrets) -> bool:
    """Whether these open the access keys that there are."""
    return all(_opens(key_secrets, *found) for found in await keys.sealed(tx, LIMITS.keys))


async def move(tx: Transaction, key_secrets: KeySecrets) -> Moved:
    """Encrypt all secrets with the last master key that are not. Nobody makes another one until the
    transaction ends; keys are checked as before. Raises WrongMasterKey, if any of them was
    encrypted with none of these."""
    newest = key_secrets.newest
    found = await keys.all_sealed(tx)
    changed = []
    for key in found:
        if not _opens(newest, key.access_key, key.secret):
            changed.append(
                key._replace(
                    secret=_again(key_secrets, key.access_key, key.secret),
                    previous_secret=key.previous_secret
                    and _again(key_secrets, key.access_key, key.previous_secret),
                )
            )
    await keys.seal_again(tx, changed)
    return Moved(len(changed), len(found))


def _opens(key_secrets: KeySecrets, access_key: str, closed: bytes) -> bool:
    try:
        key_secrets.open(access_key, closed)
    except WrongMasterKey:
        return False
    return True


def _again(key_secrets: KeySecrets, access_key: str, closed: bytes) -> bytes:
    return key_secrets.close(access_key, key_secrets.open(access_key, closed))

"""The secret that verifies receipt handles, shared by all processes on a database."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_SQL = load("queues/receipt_secrets")

_NAME = "receipt_secret"


class ReceiptSecret(NamedTuple):
    """The secret, the second since the epoch of its creation, and whether queues existed then:
    those of gateways without a secret."""

    secret: bytes
    made_at: int
    is_upgrade: bool


async def agree_on_receipt_secret(tx: Transaction, made: bytes) -> ReceiptSecret:
    """Store this secret unless one exists; return the stored one.

    Processes that start together each create a secret; the first one stored becomes that of all.
    """
    await tx.execute(_SQL["offer_receipt_secret"].text, _NAME, made.hex())
    row = await tx.fetchrow(_SQL["read_receipt_secret"].text, _NAME)
    assert row is not None
    secret, made_at, is_upgrade = row
    return ReceiptSecret(bytes.fromhex(secret), made_at, is_upgrade)

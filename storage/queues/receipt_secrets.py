"""The secret that receipt handles are checked with: one for all processes on a database."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_SQL = load("queues/receipt_secrets")

_NAME = "receipt_secret"


class ReceiptSecret(NamedTuple):
    """The secret, the second since the epoch in which it was made, and whether there were queues
    then: those of gateways that knew no secret."""

    secret: bytes
    made_at: int
    is_upgrade: bool


async def agree_on(tx: Transaction, made: bytes) -> ReceiptSecret:
    """Store this secret unless there is one already; the one that there is then.

    Processes that start together make one each; the first one to come here gives that of all.
    """
    await tx.execute(_SQL["offer_receipt_secret"].text, _NAME, made.hex())
    row = await tx.fetchrow(_SQL["read_receipt_secret"].text, _NAME)
    assert row is not None
    secret, made_at, is_upgrade = row
    return ReceiptSecret(bytes.fromhex(secret), made_at, is_upgrade)

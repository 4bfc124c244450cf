"""The monotonic present of all statements, even if the server's clock steps back."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_SQL = load("clocks/presents")

# "QG" in ASCII, third use; functions/present.sql has the same key.
_LOCK = (0x5147, 3)


class Present(NamedTuple):
    """The server's clock, and the present that statements use."""

    clock: datetime
    present: datetime

    @property
    def behind_seconds(self) -> float:
        """Return the lag of the clock behind its latest reading."""
        return max((self.present - self.clock).total_seconds(), 0.0)


async def keep_present(tx: Transaction, at_least: datetime | None) -> Present:
    """Record the present, or ``at_least`` if it is later, as a lower bound of later presents.

    While another process records, return the present and ignore ``at_least``.
    """
    row = await tx.fetchrow(_SQL["keep_present"].text, *_LOCK, at_least)
    assert row is not None
    return Present(row["clock"], row["present"])

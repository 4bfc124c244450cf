"""What keeps the present of all statements from going back when the server's clock does."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.queries import load

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_SQL = load("clocks/presents")

# "QG" in ASCII, and the third use of it; functions/present.sql has it, too.
_LOCK = (0x5147, 3)


class Present(NamedTuple):
    """What the server's clock says, and what statements take for the present."""

    clock: datetime
    present: datetime

    @property
    def behind_seconds(self) -> float:
        """How far the clock is behind what it was once."""
        return max((self.present - self.clock).total_seconds(), 0.0)


async def keep(tx: Transaction, at_least: datetime | None) -> Present:
    """Note the present, or ``at_least`` if it is later: no present will lie before it.

    While another process notes, return the present and ignore ``at_least``.
    """
    row = await tx.fetchrow(_SQL["keep_present"].text, *_LOCK, at_least)
    assert row is not None
    return Present(row["clock"], row["present"])

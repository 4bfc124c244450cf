"""Offsets as Spark's checkpoint keeps them: which spool, and how far."""

from __future__ import annotations

from typing import Any, NamedTuple

from spark_connectors.spool.spool import SpoolMismatch


class Offset(NamedTuple):
    """Everything up to segment ``seq`` of that spool, itself included. ``slots``: how many tasks
    of executors fill that batch, whatever the number of cores is when it is read again."""

    spool: str
    seq: int
    slots: int | None = None

    def to_json(self) -> dict[str, Any]:
        """As Spark stores it."""
        found: dict[str, Any] = {"spool": self.spool, "seq": self.seq}
        return found if self.slots is None else {**found, "slots": self.slots}

    @classmethod
    def of(cls, given: dict[str, Any]) -> Offset:
        """Raises SpoolMismatch when this is no offset of ours."""
        try:
            slots = given.get("slots")
            count = None if slots is None else int(slots)
            return cls(str(given["spool"]), int(given["seq"]), count)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise SpoolMismatch(
                f"the checkpoint has an offset that is not of this source: {given}"
            ) from None

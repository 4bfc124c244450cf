"""Offsets as Spark's checkpoint keeps them: which spool, and how far."""

from __future__ import annotations

from typing import Any, NamedTuple

from spark_connectors.spool.spool import SpoolMismatch


class Offset(NamedTuple):
    """Everything up to segment ``seq`` of that spool, itself included."""

    spool: str
    seq: int

    def to_json(self) -> dict[str, Any]:
        """As Spark stores it."""
        return {"spool": self.spool, "seq": self.seq}

    @classmethod
    def of(cls, given: dict[str, Any]) -> Offset:
        """Raises SpoolMismatch when this is no offset of ours."""
        try:
            return cls(str(given["spool"]), int(given["seq"]))
        except (KeyError, TypeError, ValueError):
            raise SpoolMismatch(
                f"the checkpoint has an offset that is not of this source: {given}"
            ) from None

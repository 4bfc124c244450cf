"""Offsets as Spark's checkpoint keeps them: which spool, and how far."""

from __future__ import annotations

from typing import Any, NamedTuple

from spark_connectors.spool.spool import SpoolMismatch


class Offset(NamedTuple):
    """Everything up to segment ``seq`` of that spool, itself included. In executor mode also how
    that batch was planned, for when it is read again: in so many ``slots``, of together at most so
    many ``rows``, of which the driver has ``taken`` some, as slot 0."""

    spool: str
    seq: int
    slots: int | None = None
    rows: int | None = None
    taken: int | None = None

    def to_json(self) -> dict[str, Any]:
        """As Spark stores it."""
        return {name: value for name, value in self._asdict().items() if value is not None}

    @classmethod
    def of(cls, given: dict[str, Any]) -> Offset:
        """Raises SpoolMismatch when this is no offset of ours."""
        try:
            plan = (given.get(name) for name in ("slots", "rows", "taken"))
            numbers = (None if one is None else int(one) for one in plan)
            return cls(str(given["spool"]), int(given["seq"]), *numbers)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise SpoolMismatch(
                f"the checkpoint has an offset that is not of this source: {given}"
            ) from None

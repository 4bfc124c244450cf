"""Keys that clients show, and the limits of their rates, as they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple


class RateLimit(NamedTuple):
    """How many requests in how many seconds."""

    requests: int
    window_seconds: int


@dataclass(frozen=True, slots=True)
class Key:
    """A key that clients show, without what it is checked with."""

    key_id: int
    kind: str
    account_id: str
    name: str
    limit: RateLimit | None
    """How often its producer may ask; None: as often as it wants."""
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

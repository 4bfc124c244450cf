"""Keys that clients show, and the limits of their rates, as they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, NamedTuple

API = "api"
ACCESS = "access"


class RateLimit(NamedTuple):
    """How many requests in how many seconds."""

    requests: int
    window_seconds: int


@dataclass(frozen=True, slots=True)
class Key:
    """A key that clients show or sign with, without what it is checked with."""

    key_id: int
    kind: str
    """``API``, which is shown itself, or ``ACCESS``, whose secret signs requests."""
    account_id: str
    name: str
    limit: RateLimit | None
    """How often its producer may ask; None: as often as it wants."""
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    is_administrator: bool = False
    """Whoever shows it may do everything, in every account."""
    disabled_at: datetime | None = None
    """Since when it is not taken; it may be again."""
    access_key: str | None = None
    """Of an access key its name in signatures."""
    previous_until: datetime | None = None
    """How long the secret before its last rotation is good, too."""
    policy: str | None = None
    """What it may do, in JSON; None: everything in its account."""


What = Literal["queues", "topics", "subscriptions", "logs"]
"""What an account may have so many of."""
KINDS: Final[tuple[What, ...]] = ("queues", "topics", "subscriptions", "logs")
ANY: Final = -1
"""In place of a number: it is not limited, whatever the settings say."""
UNLIMITED: Final = RateLimit(ANY, 1)


class Quota(NamedTuple):
    """What one account, or key, is limited to; None: nothing is said of it."""

    requests: RateLimit | None = None
    """Of any kind; ``UNLIMITED``: as often as it likes."""
    queues: int | None = None
    topics: int | None = None
    subscriptions: int | None = None
    logs: int | None = None
    bytes: RateLimit | None = None
    """Of requests and answers, instead of requests."""

    @property
    def counts(self) -> tuple[int | None, ...]:
        """Those of ``KINDS``."""
        return self[1:5]

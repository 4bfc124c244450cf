"""Stored API keys and access keys, and their rate limits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, NamedTuple

API = "api"
ACCESS = "access"


class RateLimit(NamedTuple):
    """A number of requests per window in seconds."""

    requests: int
    window_seconds: int


@dataclass(frozen=True, slots=True)
class Key:
    """An API key or access key, without the data that verifies it."""

    key_id: int
    kind: str
    """``API``, a bearer key, or ``ACCESS``, whose secret signs requests."""
    account_id: str
    name: str
    limit: RateLimit | None
    """Rate limit of its producer; None: unlimited."""
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    is_administrator: bool = False
    """Allows everything, in every account."""
    disabled_at: datetime | None = None
    """Start of the disabled period; None: enabled."""
    access_key: str | None = None
    """The name of an access key in signatures."""
    previous_until: datetime | None = None
    """End of validity of the previous secret after a rotation."""
    policy: str | None = None
    """Permissions in JSON; None: everything in its account."""


CountedKind = Literal["queues", "topics", "subscriptions", "logs"]
"""Kinds of objects with a quota per account."""
KINDS: Final[tuple[CountedKind, ...]] = ("queues", "topics", "subscriptions", "logs")
ANY: Final = -1
"""Replaces a number: unlimited, regardless of the settings."""
UNLIMITED: Final = RateLimit(ANY, 1)


class Quota(NamedTuple):
    """Limits of one account or key; None: not set."""

    requests: RateLimit | None = None
    """All requests; ``UNLIMITED``: no limit."""
    queues: int | None = None
    topics: int | None = None
    subscriptions: int | None = None
    logs: int | None = None
    bytes: RateLimit | None = None
    """Bytes of requests and answers."""

    @property
    def counts(self) -> tuple[int | None, ...]:
        """Return the limits of ``KINDS``."""
        return self[1:5]

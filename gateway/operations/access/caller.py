"""The caller of an operation: account, region, key and origin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from queuegate.protocol.arns import user_arn

if TYPE_CHECKING:
    from queuegate.protocol.opaque_tokens import Session
    from queuegate.storage.model import RateLimit


class RequestOrigin(NamedTuple):
    """The client address and URL of a request."""

    address: str = ""
    """Client address behind all trusted proxies, without port; empty: unknown."""
    scheme: str = "http"
    host: str = ""
    """Host that a trusted proxy received; empty: use the Host header."""


NOWHERE = RequestOrigin("", "https")


class Producer(NamedTuple):
    """A client whose requests are counted together for its rate limit (``rates``)."""

    producer_id: str
    """The number of our key. For other keys, a hash of the credential, which does not disclose
    it."""
    name: str = ""
    """The name of our key, for people and metrics; empty: not our key."""
    limit: RateLimit | None = None
    """The limit of our key; None: no limit."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The namespace of a request: account from the credential, region from the signing scope.
    ``principal`` is the stable id that receivers see as SenderId. ``access_key`` is the key of the
    signature, if it was readable."""

    account_id: str
    region: str
    principal: str
    is_anonymous: bool = False
    """The request carried no credentials. SNS requires credentials for a few actions."""
    access_key: str = ""
    producer: Producer | None = None
    """None: no rate limit."""
    is_administrator: bool = False
    """The key was verified and may do everything."""
    role_arn: str = ""
    """The role in whose name a schedule acts, if it has one."""
    origin: RequestOrigin | None = None
    """None: unknown. Policies that refer to the origin refuse the request."""
    agent: str | None = None
    """The User-Agent header; None: unknown."""
    session: Session | None = None
    secret_mark: str = ""
    """Identifies the secret that signed a request to STS (``temporary_credentials``)."""

    @property
    def user_name(self) -> str:
        """Return the user name in AWS's ARNs: the access key, or else the account."""
        return self.access_key or self.account_id

    @property
    def arn(self) -> str:
        """Return the ARN of the user, or of the session of a role."""
        if self.session is not None and self.session.role:
            return self.session.arn
        return user_arn(self.account_id, self.user_name)

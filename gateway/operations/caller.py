"""Who calls, as far as operations need to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from queuegate.protocol.arns import user_arn

if TYPE_CHECKING:
    from queuegate.protocol.sessions import Session
    from queuegate.storage.key_model import RateLimit


class Origin(NamedTuple):
    """Where a request comes from."""

    address: str = ""
    """Of whoever asked, behind all trusted proxies, without port; empty: it is not known."""
    scheme: str = "http"
    """What the client spoke: ``http`` or ``https``."""
    host: str = ""
    """The host that a trusted proxy was asked by; empty: the header Host has it."""


NOWHERE = Origin("", "https")
"""What begins here, and goes over no wire."""


class Producer(NamedTuple):
    """Whose requests count together where their rate is limited (``operations.rates``)."""

    producer_id: str
    """Of a key of ours its number; of others a hash of what they call themselves, which nobody can
    read it from."""
    name: str = ""
    """Of a key of ours, for people and metrics; empty: it is none."""
    limit: RateLimit | None = None
    """Of a key of ours; None: it has none."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The namespace of a request: account from the credential, region from the signing scope.

    ``principal`` is the stable id that receivers see as SenderId, ``access_key`` whose signature it
    is, if there is one that could be read.
    """

    account_id: str
    region: str
    principal: str
    is_anonymous: bool = False
    """The request carried no credentials: SNS asks for some on a few actions."""
    access_key: str = ""
    producer: Producer | None = None
    """None: its rate is not limited."""
    is_administrator: bool = False
    """Its key, which was verified, may do everything."""
    role_arn: str = ""
    """Of a schedule the role of its account in which it acts, if it has one."""
    origin: Origin | None = None
    """None: nobody looked. Policies that ask for it refuse then."""
    agent: str | None = None
    """What the client calls itself; None: nobody looked."""
    session: Session | None = None
    """Of temporary credentials that were verified."""
    secret_mark: str = ""
    """Of the secret that signed a request to STS (``operations.sessions``)."""

    @property
    def user_name(self) -> str:
        """The name of the user that AWS's ARNs show: the access key, else the account."""
        return self.access_key or self.account_id

    @property
    def arn(self) -> str:
        """The ARN of the user, or of the session of a role."""
        if self.session is not None and self.session.role:
            return self.session.arn
        return user_arn(self.account_id, self.user_name)

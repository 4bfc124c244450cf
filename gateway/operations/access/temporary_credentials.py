"""Temporary credentials of STS, which no database stores (docs/contract/protocol.md 1.8).

Where signatures are verified, a key that is derived from the master key encrypts the session token,
and the secret is derived from the token: every gateway can verify the session. Elsewhere any secret
is accepted, and the token only names the identity for GetCallerIdentity.
"""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from queuegate.gateway.operations.access import key_cache, policies
from queuegate.gateway.operations.access.key_cache import SESSION_SECRET_BYTES, sealed_session
from queuegate.protocol import opaque_tokens
from queuegate.protocol.malformed import Malformed
from queuegate.protocol.opaque_tokens import Session
from queuegate.storage.storage_errors import (
    AuthorizationError,
    InvalidIdentityToken,
    InvalidParameterValue,
    MalformedPolicyDocument,
    PackedPolicyTooLarge,
    PolicyRefused,
)

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.engine import Engine


ROLE_SECONDS: Final = 3_600
"""Default duration of a role's session, and maximum if another session started it."""
USER_SECONDS: Final = 43_200
MOST_POLICY: Final = 2_048


class Credentials(NamedTuple):
    """The credentials of a session, and their expiry."""

    access_key: str
    secret: str
    token: str
    expires_at: datetime


class RoleRequest(NamedTuple):
    """A request for the session of a role."""

    role_arn: str
    name: str
    seconds: int = ROLE_SECONDS
    policy: str | None = None
    has_managed_policies: bool = False


def unverified(token: str) -> Session | None:
    """Return the session in a token of a gateway that verifies no signatures; None: not such a
    token."""
    try:
        return opaque_tokens.loaded(urlsafe_b64decode(token))
    except (Malformed, ValueError):
        return None


async def assume_role(
    engine: Engine, caller: Caller, wanted: RoleRequest
) -> tuple[Session, Credentials]:
    """Start a session of a role. Roles need not be created: each account has every role. Where
    signatures are verified, the session may do what both its key and its policies allow. Raises
    InvalidParameterValue, KeyUnfit, MalformedPolicyDocument and PackedPolicyTooLarge."""
    role = opaque_tokens.role_of(wanted.role_arn)
    if role is None:
        if engine.verifies:
            raise InvalidParameterValue(f"{wanted.role_arn} is invalid")
        role = caller.account_id, wanted.role_arn.rpartition(":")[2]
    before = caller.session
    if before is not None and before.role and wanted.seconds > ROLE_SECONDS:
        raise InvalidParameterValue(
            "The requested DurationSeconds exceeds the 1 hour session limit for roles assumed by "
            "role chaining"
        )
    if engine.verifies and wanted.has_managed_policies:
        raise InvalidParameterValue("There are no managed policies here: PolicyArns must be empty.")
    policies = () if before is None else before.policies
    if wanted.policy:
        policies = *policies, _checked(wanted.policy)
    if packed_percent(policies) > 100:
        raise PackedPolicyTooLarge(packed_percent(policies))
    session = Session(*role, wanted.name, wanted.seconds, policies=policies)
    return await _begin(engine, caller, session)


async def assume_role_with_web_identity(
    engine: Engine, caller: Caller, wanted: RoleRequest, token: str
) -> tuple[Session, Credentials, dict[str, str]]:
    """Start a session of a role with any token, and return the token's claims. Where signatures are
    verified, no identity provider is known: raises InvalidIdentityToken; otherwise as
    ``assume_role``."""
    claims = _claims(token)
    if engine.verifies:
        raise InvalidIdentityToken(
            f"No OpenIDConnect provider found in your account for {claims['iss']}"
            if "iss" in claims
            else "The ID Token provided is not a valid JWT. "
            "(You may see this error if you sent an Access Token)"
        )
    return *await assume_role(engine, caller, wanted), claims


async def get_session_token(engine: Engine, caller: Caller, seconds: int) -> Credentials:
    """Start a session of the caller. Raises AuthorizationError if the caller is in a session."""
    if caller.session is not None:
        raise AuthorizationError("Cannot call GetSessionToken with session credentials")
    session = Session(caller.account_id, "", caller.user_name, seconds)
    return (await _begin(engine, caller, session))[1]


def _claims(token: str) -> dict[str, str]:
    """Return the claims of a JWT that are texts; none if the token is not a JWT."""
    payload = token.split(".")[1] if token.count(".") == 2 else ""
    try:
        claims = orjson.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except ValueError:
        return {}
    if not isinstance(claims, dict):
        return {}
    return {name: value for name, value in claims.items() if isinstance(value, str)}


def packed_percent(policies: tuple[str, ...]) -> int:
    """Return the share of the maximum that these policies have, in percent."""
    return -(-100 * sum(map(len, policies)) // MOST_POLICY)


def _checked(policy: str) -> str:
    try:
        return policies.checked_key_policy(policy, is_administrator=False) or ""
    except PolicyRefused as refusal:
        code, _, text = str(refusal).partition(": ")
        if code == "LimitExceeded":
            raise PackedPolicyTooLarge(packed_percent((policy,))) from None
        raise MalformedPolicyDocument(text) from None


async def _begin(engine: Engine, caller: Caller, session: Session) -> tuple[Session, Credentials]:
    """Return credentials of a session. Its ``expires_at`` is a duration here."""
    now = engine.clock.of(session.account_id).instant().astimezone(UTC).replace(microsecond=0)
    expires_at = now + timedelta(seconds=session.expires_at)
    session = session._replace(expires_at=int(expires_at.timestamp()))
    access_key = opaque_tokens.access_key_of(session.account_id, secrets.randbits(32))
    if not engine.verifies:
        secret = secrets.token_urlsafe(SESSION_SECRET_BYTES)
        token = urlsafe_b64encode(session._replace(policies=()).dumped()).decode()
        return session, Credentials(access_key, secret, token, expires_at)
    producer = caller.producer
    session = session._replace(
        key_id=0 if producer is None else int(producer.producer_id),
        secret_mark=caller.secret_mark if caller.session is None else caller.session.secret_mark,
    )
    async with engine.database.transaction() as tx:
        master_key = await key_cache.present_master_key(tx, engine.keys.secrets)
    token, secret = sealed_session(master_key, access_key, session)
    return session, Credentials(access_key, secret, token, expires_at)

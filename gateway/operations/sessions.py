"""Sessions: temporary credentials that no database knows (docs/contract/protocol.md 1.8).

Where signatures are verified, the session token is encrypted with a key made from the master key,
and the secret is made from the token: every gateway verifies the session. Elsewhere any secret
will do, and the token only says whom GetCallerIdentity shows.
"""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from queuegate.gateway.operations import key_policies, master_keys
from queuegate.gateway.operations.key_secrets import WrongMasterKey
from queuegate.protocol import sessions
from queuegate.protocol.errors import Malformed
from queuegate.protocol.sessions import Session
from queuegate.storage.errors import AuthorizationError, InvalidParameterValue
from queuegate.storage.key_errors import (
    InvalidIdentityToken,
    MalformedPolicyDocument,
    PackedPolicyTooLarge,
    PolicyRefused,
)

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.gateway.operations.key_secrets import KeySecrets

ROLE_SECONDS: Final = 3_600
"""That the session of a role lasts unless told otherwise, and the most of one begun by another."""
USER_SECONDS: Final = 43_200
MOST_POLICY: Final = 2_048
"""Characters of all policies of a session."""
_SEAL: Final = "session tokens"
_SIGN: Final = "secrets of sessions"
_SECRET_BYTES: Final = 30


class Credentials(NamedTuple):
    """The credentials of a session, and their expiry."""

    access_key: str
    secret: str
    token: str
    expires_at: datetime


class WantedRole(NamedTuple):
    """The session of a role as somebody wants it."""

    role_arn: str
    name: str
    seconds: int = ROLE_SECONDS
    policy: str | None = None
    has_managed_policies: bool = False


def opened(key_secrets: KeySecrets, access_key: str, token: str) -> tuple[Session, str] | None:
    """Return the session of a token and the secret that signs; None: the token is none."""
    try:
        closed = urlsafe_b64decode(token)
        sealed = key_secrets.derived(_SEAL)
        text, number = sealed.opened(access_key, closed)
        session = sessions.loaded(text.encode())
    except (Malformed, ValueError, WrongMasterKey):
        return None
    return session, _secret(key_secrets.only(number), token)


def unverified(token: str) -> Session | None:
    """Return the session that a token of a gateway says which verifies none; None: none."""
    try:
        return sessions.loaded(urlsafe_b64decode(token))
    except (Malformed, ValueError):
        return None


def mark(secret: str) -> str:
    """Return what names a secret and does not give it away."""
    return sha256(secret.encode()).hexdigest()[:16]


def _secret(master_key: KeySecrets, token: str) -> str:
    made = master_key.derived(_SIGN).mac(token.encode())
    return urlsafe_b64encode(made[:_SECRET_BYTES]).decode()


async def assume_role(
    engine: Engine, caller: Caller, wanted: WantedRole
) -> tuple[Session, Credentials]:
    """Begin the session of a role. Nobody makes roles: each account has every role.

    Where signatures are verified, the session may do what its key may and its policies allow.
    Raises InvalidParameterValue, KeyUnfit, MalformedPolicyDocument and PackedPolicyTooLarge.
    """
    role = sessions.role_of(wanted.role_arn)
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
    engine: Engine, caller: Caller, wanted: WantedRole, token: str
) -> tuple[Session, Credentials, dict[str, str]]:
    """Begin the same for any token, and return what it claims. Where signatures are verified, no
    identity provider is known: raises InvalidIdentityToken, else what ``assume_role`` raises."""
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
    """Begin a session of the caller. Raises AuthorizationError for one who is in a session."""
    if caller.session is not None:
        raise AuthorizationError("Cannot call GetSessionToken with session credentials")
    session = Session(caller.account_id, "", caller.user_name, seconds)
    return (await _begin(engine, caller, session))[1]


def _claims(token: str) -> dict[str, str]:
    """Return the claims of a JWT that are texts; none of what is no JWT."""
    payload = token.split(".")[1] if token.count(".") == 2 else ""
    try:
        claims = orjson.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except ValueError:
        return {}
    if not isinstance(claims, dict):
        return {}
    return {name: value for name, value in claims.items() if isinstance(value, str)}


def packed_percent(policies: tuple[str, ...]) -> int:
    """Return how much of the room for policies these take, in percent."""
    return -(-100 * sum(map(len, policies)) // MOST_POLICY)


def _checked(policy: str) -> str:
    try:
        return key_policies.checked(policy, is_administrator=False) or ""
    except PolicyRefused as refusal:
        code, _, text = str(refusal).partition(": ")
        if code == "LimitExceeded":
            raise PackedPolicyTooLarge(packed_percent((policy,))) from None
        raise MalformedPolicyDocument(text) from None


async def _begin(engine: Engine, caller: Caller, session: Session) -> tuple[Session, Credentials]:
    """Make the credentials of a session whose ``expires_at`` is how long it lasts."""
    now = engine.clock.of(session.account_id).instant().astimezone(UTC).replace(microsecond=0)
    expires_at = now + timedelta(seconds=session.expires_at)
    session = session._replace(expires_at=int(expires_at.timestamp()))
    access_key = sessions.access_key_of(session.account_id, secrets.randbits(32))
    if not engine.verifies:
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        token = urlsafe_b64encode(session._replace(policies=()).dumped()).decode()
        return session, Credentials(access_key, secret, token, expires_at)
    producer = caller.producer
    session = session._replace(
        key_id=0 if producer is None else int(producer.producer_id),
        secret_mark=caller.secret_mark if caller.session is None else caller.session.secret_mark,
    )
    async with engine.database.transaction() as tx:
        master_key = await master_keys.present(tx, engine.keys.secrets)
    closed = master_key.derived(_SEAL).close(access_key, session.dumped().decode())
    token = urlsafe_b64encode(closed).decode()
    return session, Credentials(access_key, _secret(master_key, token), token, expires_at)

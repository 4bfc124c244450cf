"""STS actions (docs/contract/protocol.md 1.8)."""

from __future__ import annotations

from queuegate.gateway.faces.aws.aws_face import AwsCall, Members
from queuegate.gateway.operations.access import temporary_credentials
from queuegate.gateway.operations.access.temporary_credentials import Credentials, RoleRequest
from queuegate.protocol import shapes
from queuegate.protocol.opaque_tokens import Session, account_of
from queuegate.protocol.service_detection import SERVICES
from queuegate.protocol.sts_shapes import RULES
from queuegate.storage.storage_errors import InvalidParameterValue

_TOKEN = "X-Amz-Security-Token"


async def assume_role(call: AwsCall) -> Members:
    """Start a session of a role."""
    _check(call)
    session, credentials = await temporary_credentials.assume_role(
        call.engine, call.caller, _wanted(call)
    )
    return _started(session, credentials) | {"SourceIdentity": call.members.get("SourceIdentity")}


async def assume_role_with_web_identity(call: AwsCall) -> Members:
    """Start a session of a role for the token of an identity provider."""
    _check(call)
    token = call.members["WebIdentityToken"]
    session, credentials, claims = await temporary_credentials.assume_role_with_web_identity(
        call.engine, call.caller, _wanted(call), token
    )
    return _started(session, credentials) | {
        "SubjectFromWebIdentityToken": claims.get("sub"),
        "Audience": claims.get("aud"),
        "Provider": call.members.get("ProviderId") or claims.get("iss"),
    }


async def get_session_token(call: AwsCall) -> Members:
    """Start a session of the caller."""
    _check(call)
    seconds = call.members.get("DurationSeconds", temporary_credentials.USER_SECONDS)
    return {
        "Credentials": _shown(
            await temporary_credentials.get_session_token(call.engine, call.caller, seconds)
        )
    }


async def get_access_key_info(call: AwsCall) -> Members:
    """Return the account of an access key."""
    _check(call)
    return {"Account": call.engine.account_of_key(call.members["AccessKeyId"])}


async def get_caller_identity(call: AwsCall) -> Members:
    """Return the identity of the credentials: a user named like the access key, or the session of a
    role."""
    caller = call.caller
    session = caller.session
    if not call.engine.verifies and account_of(caller.access_key) is not None:
        token = call.request.headers.get(_TOKEN.lower()) or call.detected.params.get(_TOKEN, "")
        session = temporary_credentials.unverified(token)
    if session is not None and session.account_id == caller.account_id:
        return {"UserId": session.user_id, "Account": session.account_id, "Arn": session.arn}
    return {"UserId": caller.principal, "Account": caller.account_id, "Arn": caller.arn}


def _check(call: AwsCall) -> None:
    """Raise InvalidParameterValue for members that break the service model."""
    action = SERVICES["sts"].actions[call.detected.action or ""]
    breaches = shapes.constraint_errors(action.input, call.members, RULES)
    if breaches is not None:
        raise InvalidParameterValue(breaches)


def _wanted(call: AwsCall) -> RoleRequest:
    members = call.members
    return RoleRequest(
        members["RoleArn"],
        members["RoleSessionName"],
        members.get("DurationSeconds", temporary_credentials.ROLE_SECONDS),
        members.get("Policy"),
        bool(members.get("PolicyArns")),
    )


def _started(session: Session, credentials: Credentials) -> Members:
    packed = temporary_credentials.packed_percent(session.policies)
    return {
        "Credentials": _shown(credentials),
        "AssumedRoleUser": {"AssumedRoleId": session.user_id, "Arn": session.arn},
        "PackedPolicySize": packed or None,
    }


def _shown(credentials: Credentials) -> Members:
    return {
        "AccessKeyId": credentials.access_key,
        "SecretAccessKey": credentials.secret,
        "SessionToken": credentials.token,
        "Expiration": credentials.expires_at,
    }

"""The one STS action: action -> binding."""

from __future__ import annotations

from gateway.faces.aws.face import Binding, Call, Members
from protocol.arns import user_arn


async def get_caller_identity(call: Call) -> Members:
    """Whose the credentials are: a user named like the access key (docs/contract/protocol.md 1.8).

    The id is the one that receivers see as SenderId.
    """
    caller = call.caller
    return {
        "UserId": caller.principal,
        "Account": caller.account_id,
        "Arn": user_arn(caller.account_id, caller.user_name),
    }


BINDINGS: dict[str, Binding] = {"GetCallerIdentity": get_caller_identity}
"""STS actions."""

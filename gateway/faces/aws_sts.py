"""The one STS action: action -> binding."""

from __future__ import annotations

from gateway.faces.aws import Binding, Call, Members
from protocol.arns import root_arn


async def get_caller_identity(call: Call) -> Members:
    """Who the credentials belong to: the owner of their account, as AWS says of root credentials.

    The id is the one that receivers see as SenderId.
    """
    account_id = call.caller.account_id
    return {
        "UserId": call.caller.principal,
        "Account": account_id,
        "Arn": root_arn(account_id),
    }


BINDINGS: dict[str, Binding] = {"GetCallerIdentity": get_caller_identity}
"""STS actions."""

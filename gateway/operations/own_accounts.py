"""Who may do what where signatures are verified: whoever has a key everything in its account but
make and change keys, administrators everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuegate.storage.errors import AuthorizationError, Denied

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller

_OF_ADMINISTRATORS = "queuegate:"
"""How rights begin that are nobody else's: those to keys."""
_ACCOUNT = 4
"""Where the parts of an ARN have the account."""


class OwnAccounts:
    """An ``Authority`` (``operations.access``)."""

    def check(self, caller: Caller, right: str, arn: str) -> None:
        """Raise AuthorizationError unless it is the caller's own, or who calls an administrator."""
        if caller.is_administrator:
            return
        parts = arn.split(":", 5)
        # What is no ARN is nobody's: it is refused for that.
        is_own = len(parts) <= _ACCOUNT or parts[_ACCOUNT] == caller.account_id
        if is_own and not right.startswith(_OF_ADMINISTRATORS):
            return
        refusal = AuthorizationError(
            f"User: {caller.arn} is not authorized to perform: {right} on resource: {arn}"
        )
        refusal.denied = Denied("right", arn)
        raise refusal

"""Refusals that only SNS has; the others are in ``storage.errors``."""

from __future__ import annotations

from queuegate.storage.errors import Kind, Rejected


class InvalidParameter(Rejected):
    """A parameter that cannot be accepted. A few texts go without the usual beginning."""

    def __init__(self, reason: str, *, prefix: str = "Invalid parameter: ") -> None:
        super().__init__(prefix + reason)


class ParameterValueInvalid(Rejected):
    """A message attribute that breaks the rules."""


class ValidationFailed(Rejected):
    """A member is absent or breaks a constraint. ``member`` is its lower camel case path."""

    def __init__(
        self, member: str, value: str = "null", constraint: str = "Member must not be null"
    ) -> None:
        self._what = value, constraint
        self._member = member
        super().__init__(
            f"1 validation error detected: Value {value} at '{member}' failed to satisfy "
            f"constraint: {constraint}"
        )

    def within(self, path: str) -> ValidationFailed:
        """The same of a member of what is at that path."""
        return ValidationFailed(f"{path}.{self._member}", *self._what)


class TagLimitExceeded(Rejected):
    """More than fifty tags."""

    kind = Kind.LIMIT


class EndpointDisabled(Rejected):
    """A push endpoint that was disabled."""

    kind = Kind.DISABLED


class PlatformApplicationDisabled(Rejected):
    """The platform application of an endpoint was disabled."""

    kind = Kind.DISABLED


class VerificationFailed(Rejected):
    """Not the one-time password that was sent to a phone number of the sandbox."""

"""What the client raises: all of it is a LogError."""

from __future__ import annotations


class LogError(Exception):
    """Whatever goes wrong between this client and the log."""


class Refused(LogError):
    """The gateway's no, in its words. To ask again does not help."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


class NotFound(Refused):
    """There is no such log, group or record."""


class Conflict(Refused):
    """It is there already, with other settings; or somebody holds what was to be changed."""


class AccessDenied(Refused):
    """Credentials are missing, or do not allow this."""


class Unavailable(LogError):
    """Nobody answered, or only "not now", for as long as the client had patience."""


class Closed(LogError):
    """This client or subscription was closed."""


class LeaseLost(LogError):
    """What was to be done with a record is no longer this subscriber's to do."""


class Superseded(LeaseLost):
    """The delivery is over: the record was delivered again, was given back, or is gone."""


class Replaced(LeaseLost):
    """Somebody else subscribed under the same name: this subscription has ended."""


_BY_STATUS = {401: AccessDenied, 403: AccessDenied, 404: NotFound, 409: Conflict}


def refusal(status: int, text: str) -> Refused:
    """What a 4xx is raised as."""
    return _BY_STATUS.get(status, Refused)(text, status)

"""What can go wrong, whatever is read or written; other modules have refusals of their own."""

from __future__ import annotations

from typing import NamedTuple


class ConnectorError(Exception):
    """What went wrong, in a sentence that the user of a Spark job can act on."""


class Refused(ConnectorError):
    """The service said no, and will say so again: bad parameters, no such queue, no permission.

    ``code`` is the service's own, without namespace or suffix: ``QueueDoesNotExist`` from either
    wire, whichever transport.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class DataLost(ConnectorError):
    """What Spark planned a batch with is no longer there to be read."""


class NotNow(ConnectorError):
    """The service did not answer, or asked to come again, more often than the transport retries."""


class Fault(NamedTuple):
    """Why one entry of a batch failed."""

    code: str
    message: str
    is_senders: bool  # the same entry will fail again

"""Errors of the connectors. Each module may add errors of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class ConnectorError(Exception):
    """An error whose sentence tells the user of a Spark job what to do."""


class Refused(ConnectorError):
    """A refusal that the service will repeat: bad parameters, no such queue, no permission.
    ``code`` is the service's own, without namespace or suffix: ``QueueDoesNotExist`` from either
    wire and any transport."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class DataLost(ConnectorError):
    """Data that Spark planned a batch with can no longer be read."""


class NotNow(ConnectorError):
    """The service did not answer, or answered "not now", more often than the transport retries."""


class Fault(NamedTuple):
    """The reason why one entry of a batch failed."""

    code: str
    message: str
    is_senders: bool  # the same entry will fail again


# A Python worker of Spark reads it before it writes an exception for the JVM, and ends.
_HIDE = "SPARK_HIDE_TRACEBACK"


@contextmanager
def hiding_traceback() -> Iterator[None]:
    """Let Spark report a ConnectorError by its sentence alone, when it ends a Python worker. The
    sentence says what to do, and the stack says nothing to the user of a job. Other exceptions are
    bugs, and keep their traceback."""
    try:
        yield
    except ConnectorError:
        os.environ[_HIDE] = "1"
        raise


def hide_traceback() -> None:
    """Do the same in a ``finally``, for the exception that is being handled."""
    if isinstance(sys.exception(), ConnectorError):
        os.environ[_HIDE] = "1"

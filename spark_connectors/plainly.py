"""Let Spark tell our errors in their one sentence, where its processes would add our stack."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from spark_connectors.errors import ConnectorError

# What a Python worker of Spark asks before it writes an exception for the JVM, and ends.
_HIDE = "SPARK_HIDE_TRACEBACK"


@contextmanager
def plainly() -> Iterator[None]:
    """What is called by a worker of Spark, where a ConnectorError ends that worker.

    The sentence says what to do; where it was raised says nothing to whoever runs a job. Anything
    else is a bug, and keeps its traceback.
    """
    try:
        yield
    except ConnectorError:
        os.environ[_HIDE] = "1"
        raise


def end_plainly() -> None:
    """The same for whoever is only told that it is over, in a ``finally``."""
    if isinstance(sys.exception(), ConnectorError):
        os.environ[_HIDE] = "1"

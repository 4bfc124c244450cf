"""Retries of transient failures: exponential backoff with full jitter."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from spark_connectors.errors import NotNow

_FIRST_SECONDS = 0.05
_LONGEST_SECONDS = 5.0

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")


class TransientFailure(Exception):
    """A failure that may be over at the next attempt. The text holds no secrets."""


def retried(
    attempt: Callable[[], _Result], *, action: str, place: str, max_retries: int
) -> _Result:
    """Return the result of the first attempt without TransientFailure. Raises NotNow
    when all attempts fail.

    Sleeps between attempts, in the calling thread, up to 5 s each time.
    """
    failures = 0
    while True:
        try:
            return attempt()
        except TransientFailure as error:
            failures += 1
            _log.debug("%s at %s: attempt %d failed: %s", action, place, failures, error)
            if failures > max_retries:
                raise not_now(action, place, failures, str(error)) from error
        time.sleep(random.uniform(0, min(_LONGEST_SECONDS, _FIRST_SECONDS * 2**failures / 2)))


def not_now(action: str, place: str, attempts: int, cause: str) -> NotNow:
    """Return the error of a call whose every attempt failed."""
    times = "once" if attempts == 1 else f"{attempts} times"
    return NotNow(f"{action} at {place} failed {times}; the last cause: {cause}")

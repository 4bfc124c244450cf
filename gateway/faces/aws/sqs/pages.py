"""Pages of listings of SQS: MaxResults, and behind what the next one begins."""

from __future__ import annotations

from queuegate.protocol import page_tokens
from queuegate.protocol.errors import Malformed
from queuegate.storage.errors import InvalidParameterValue


def check_range(parameter: str, value: int | None, most: int) -> None:
    """From 1, if there is one."""
    if value is not None and not 1 <= value <= most:
        raise InvalidParameterValue(
            f"Value {value} for parameter {parameter} is invalid. "
            f"Reason: Must be between 1 and {most}, if provided."
        )


def page_size(max_results: int | None, most: int) -> int:
    """How many entries a page has; without MaxResults as many as are allowed."""
    check_range("MaxResults", max_results, most)
    return most if max_results is None else max_results


def last_of(listing: str, token: str | None) -> str:
    """What the token was made of; "" without one."""
    try:
        return page_tokens.last_of(listing, token) or ""
    except Malformed as error:
        raise InvalidParameterValue(str(error)) from None

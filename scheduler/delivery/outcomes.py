"""Outcomes of attempts to deliver to a web hook (docs/contract/sns.md 3.6)."""

from __future__ import annotations

from typing import NamedTuple

_TOO_MANY_REQUESTS = 429
_LONGEST_ERROR = 500


class Outcome(NamedTuple):
    """The outcome of an attempt. ``error`` None: delivered."""

    status: int | None
    """None: no complete answer arrived."""
    error: str | None
    is_permanent: bool = False
    """True: a retry would not help."""

    @property
    def is_delivered(self) -> bool:
        return self.error is None


DELIVERED = Outcome(200, None)


def judge(status: int) -> Outcome:
    """Return the outcome of a complete answer: retry 5xx and 429, but no other client errors.

    Redirects are not followed, because their target did not subscribe. They count as client errors.
    """
    if 200 <= status < 300:
        return Outcome(status, None)
    if status >= 500 or status == _TOO_MANY_REQUESTS:
        return Outcome(status, f"HTTP {status}")
    if 300 <= status < 400:
        return Outcome(status, f"HTTP {status}: redirects are not followed", is_permanent=True)
    return Outcome(status, f"HTTP {status}: client errors are not tried again", is_permanent=True)


def of_event(outcome: Outcome) -> Outcome:
    """Return the outcome for a subscription that gets events: every answer except 2xx is retried,
    client errors and redirects too (docs/seeds.md 1.5)."""
    status = outcome.status
    if status is None or outcome.is_delivered:
        return outcome
    return Outcome(status, f"HTTP {status}")


def no_answer(reason: str, *, is_permanent: bool = False) -> Outcome:
    """Return the outcome of a request without a complete answer."""
    return Outcome(None, _clean(reason), is_permanent)


def _clean(text: str) -> str:
    """Return text from a server in a form that all columns and message attributes accept."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    return printable.encode("utf-8", "replace").decode()[:_LONGEST_ERROR] or "failed"

"""What one attempt to deliver to a web hook comes to (docs/contract/sns.md 3.6)."""

from __future__ import annotations

from typing import NamedTuple

_TOO_MANY_REQUESTS = 429
_LONGEST_ERROR = 500


class Outcome(NamedTuple):
    """How an attempt ended. ``error`` None: delivered."""

    status: int | None
    """None: there was no answer, or not a whole one."""
    error: str | None
    is_permanent: bool = False
    """Trying again would not help."""

    @property
    def is_delivered(self) -> bool:
        return self.error is None


DELIVERED = Outcome(200, None)


def judge(status: int) -> Outcome:
    """What a whole answer means: 5xx and 429 are tried again, other client errors are not.

    A redirect is not followed, whoever it leads to did not subscribe; it counts as a client error.
    """
    if 200 <= status < 300:
        return Outcome(status, None)
    if status >= 500 or status == _TOO_MANY_REQUESTS:
        return Outcome(status, f"HTTP {status}")
    if 300 <= status < 400:
        return Outcome(status, f"HTTP {status}: redirects are not followed", is_permanent=True)
    return Outcome(status, f"HTTP {status}: client errors are not tried again", is_permanent=True)


def of_event(outcome: Outcome) -> Outcome:
    """The same for a subscription that gets events: every answer but 2xx is tried again, client
    errors and redirects too (docs/seeds.md 1.5)."""
    status = outcome.status
    if status is None or outcome.is_delivered:
        return outcome
    return Outcome(status, f"HTTP {status}")


def no_answer(reason: str, *, is_permanent: bool = False) -> Outcome:
    """No answer, or half of one, because of that."""
    return Outcome(None, _clean(reason), is_permanent)


def _clean(text: str) -> str:
    """Something that every column and every message attribute takes, of what a server may say."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    return printable.encode("utf-8", "replace").decode()[:_LONGEST_ERROR] or "failed"

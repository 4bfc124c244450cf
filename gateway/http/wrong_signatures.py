"""Delays of answers to wrong signatures and wrong keys, by the address of the client.

An address gets five such answers at once, then ten a second. Further answers are delayed, up to a
limit. All other answers are sent at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address
from time import monotonic
from typing import TYPE_CHECKING, Final

from queuegate.storage.storage_errors import InvalidSignature, UnrecognizedClient

if TYPE_CHECKING:
    from queuegate.gateway.faces.interface import Request, Response

_FREE: Final = 5
"""Answers that an address gets at once after a pause."""
_SECONDS_EACH: Final = 0.1
_MOST_ADDRESSES: Final = 10_000
_MOST_HELD: Final = 1_000
"""Limit of answers delayed at the same time. Further ones are sent at once and close their
connection."""


class WrongSignatures:
    """Counts wrong signatures by address and computes the delays of their answers."""

    def __init__(self, longest_seconds: float, now: Callable[[], float] = monotonic) -> None:
        self._longest_seconds = longest_seconds
        self._now = now
        self._paid_at: OrderedDict[str, float] = OrderedDict()
        """By address, the time at which its count is zero again, least recently used first."""
        self._held = 0

    def hold(self, request: Request, response: Response) -> float:
        """Return the seconds by which to delay an answer; 0: no delay.

        After a delay, call ``release``.
        """
        refusal = request.refusal
        if refusal is None or not isinstance(refusal, (InvalidSignature, UnrecognizedClient)):
            return 0.0
        now, whose = self._now(), _network(request.origin.address)
        paid_at = max(self._paid_at.pop(whose, now), now) + _SECONDS_EACH
        seconds = min(paid_at - now - _FREE * _SECONDS_EACH, self._longest_seconds)
        self._paid_at[whose] = min(paid_at, now + _FREE * _SECONDS_EACH + self._longest_seconds)
        if len(self._paid_at) > _MOST_ADDRESSES:
            self._paid_at.popitem(last=False)
        if seconds <= 0:
            return 0.0
        if self._held >= _MOST_HELD:
            response.headers.append((b"connection", b"close"))
            return 0.0
        self._held += 1
        # A delayed answer no longer needs the body.
        request.body = b""
        return seconds

    def release(self) -> None:
        """End a delay."""
        self._held -= 1


def _network(address: str) -> str:
    """Return the address; of IPv6 the first half, since one client may have all of a /64."""
    return IPv6Address(address).exploded[:19] if ":" in address else address

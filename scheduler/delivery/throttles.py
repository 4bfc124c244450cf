"""maxReceivesPerSecond: a rate limit for each subscription across all processes.

Each limited subscription stores the instant at which its next delivery may start. A worker that
starts deliveries advances the instant by their number, in the transaction of the claim.
"""

from __future__ import annotations

from typing import NamedTuple

# Deliveries missed within this time may be made up for.
_CATCH_UP_SECONDS = 0.2
# A correct instant is at most one second ahead. A larger distance means that the clock was moved.
_LONGEST_AHEAD_SECONDS = 3.0
_SHORTEST_PAUSE_SECONDS = 0.02


class Allowance(NamedTuple):
    """Allowance of a subscription: ``most`` deliveries may start now."""

    most: int
    late_seconds: float
    """Seconds by which the first start is backdated."""
    per_second: int

    def free_in(self, begun: int) -> float:
        """Return the seconds until the next delivery may start, after ``begun`` starts."""
        return begun / self.per_second - self.late_seconds

    def pause(self, begun: int) -> float:
        """Return the seconds to wait before the next claim."""
        return max(_SHORTEST_PAUSE_SECONDS, self.free_in(begun))


def allowance(free_in: float, per_second: int) -> Allowance:
    """Return the allowance when the next delivery may start in ``free_in`` seconds; negative: since
    then."""
    if free_in > _LONGEST_AHEAD_SECONDS:
        free_in = 0.0
    if free_in > 0:
        return Allowance(0, -free_in, per_second)
    late = -free_in if -free_in <= _CATCH_UP_SECONDS else 0.0
    return Allowance(int(late * per_second) + 1, late, per_second)

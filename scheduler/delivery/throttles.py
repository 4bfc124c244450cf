"""maxReceivesPerSecond: deliveries of a subscription begin no faster, whoever begins them.

Every subscription with such a limit keeps the instant at which its next delivery may begin; whoever
begins some moves it on by their number, within the transaction that claims them.
"""

from __future__ import annotations

from typing import NamedTuple

# How much of what was missed, while nobody looked, may be made up for.
_CATCH_UP_SECONDS = 0.2
# No subscription is ahead by more than one delivery a second allows: the clock was moved back.
_LONGEST_AHEAD_SECONDS = 3.0
_SHORTEST_PAUSE_SECONDS = 0.02


class Allowance(NamedTuple):
    """What may begin now: ``most`` deliveries."""

    most: int
    late_seconds: float
    """How far back the first of them counts as begun."""
    per_second: int

    def free_in(self, begun: int) -> float:
        """In how many seconds the next one may begin, after so many."""
        return begun / self.per_second - self.late_seconds

    def pause(self, begun: int) -> float:
        """How long it pays to wait for it."""
        return max(_SHORTEST_PAUSE_SECONDS, self.free_in(begun))


def allowance(free_in: float, per_second: int) -> Allowance:
    """What may begin when the next delivery was to begin in ``free_in`` seconds (negative: could
    have begun since)."""
    if free_in > _LONGEST_AHEAD_SECONDS:
        free_in = 0.0
    if free_in > 0:
        return Allowance(0, -free_in, per_second)
    late = -free_in if -free_in <= _CATCH_UP_SECONDS else 0.0
    return Allowance(int(late * per_second) + 1, late, per_second)

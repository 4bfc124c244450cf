"""Retry policies: how long to wait before each retry of a delivery (docs/contract/sns.md 3.6).

The phases follow each other: retries without delay, with the least delay, with delays that rise
from the least to the greatest, with the greatest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """A `healthyRetryPolicy`, its fields in AWS's order. Delays are seconds."""

    min_delay_target: int = 20
    max_delay_target: int = 20
    num_retries: int = 3
    num_max_delay_retries: int = 0
    num_no_delay_retries: int = 0
    num_min_delay_retries: int = 0
    backoff_function: str = "linear"

    @property
    def num_backoff_retries(self) -> int:
        """The retries that are left for the phase between minimum and maximum."""
        others = self.num_no_delay_retries + self.num_min_delay_retries
        return self.num_retries - others - self.num_max_delay_retries

    def delay(self, retry: int) -> float:
        """Seconds before this retry, from 1 to num_retries."""
        position = retry - 1 - self.num_no_delay_retries
        if position < 0:
            return 0.0
        position -= self.num_min_delay_retries
        last = self.num_backoff_retries - 1
        if position < 0 or position == 0 <= last:
            return float(self.min_delay_target)
        if position >= last:
            return float(self.max_delay_target)
        delay = BACKOFF_FUNCTIONS[self.backoff_function](self, position, last)
        # Powers of fractions may end a hair beside the bounds.
        return min(max(delay, float(self.min_delay_target)), float(self.max_delay_target))


def _linear(policy: RetryPolicy, position: int, last: int) -> float:
    return _between(policy, position / last)


def _arithmetic(policy: RetryPolicy, position: int, last: int) -> float:
    """Each step is longer than the one before by the same time."""
    return _between(policy, position * (position + 1) / (last * (last + 1)))


def _geometric(policy: RetryPolicy, position: int, last: int) -> float:
    """Each delay is the one before, times the same number."""
    ratio = policy.max_delay_target / policy.min_delay_target
    return float(policy.min_delay_target * ratio ** (position / last))


def _exponential(policy: RetryPolicy, position: int, last: int) -> float:
    """Each step is twice as long as the one before."""
    return _between(policy, (2.0**position - 1) / (2.0**last - 1))


def _between(policy: RetryPolicy, fraction: float) -> float:
    return policy.min_delay_target + fraction * (policy.max_delay_target - policy.min_delay_target)


BACKOFF_FUNCTIONS: Final[dict[str, Callable[[RetryPolicy, int, int], float]]] = {
    "linear": _linear,
    "arithmetic": _arithmetic,
    "geometric": _geometric,
    "exponential": _exponential,
}
"""AWS names the functions and draws them, but publishes no formula. Each takes the position of a
retry within its phase and the last one; it is asked for what lies between the ends."""

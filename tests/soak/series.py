"""Values over time, and the verdict on them: the last third of a run against the second one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True)
class Tolerance:
    """A last third of at most ``factor`` times the second one, and ``slack`` more, is flat."""

    factor: float
    slack: float


LATENCY_P50 = Tolerance(1.5, 3.0)
LATENCY_P99 = Tolerance(2.0, 20.0)
MEMORY = Tolerance(1.05, 4.0)
SIZE = Tolerance(1.1, 8.0)
DEAD_ROWS = Tolerance(1.5, 20_000)
COUNT = Tolerance(1.1, 5.0)


@dataclass
class Series:
    """One line of a chart. Without a tolerance it is shown, and not judged."""

    chart: str
    name: str
    unit: str
    tolerance: Tolerance | None = None
    points: list[tuple[float, float]] = field(default_factory=list)

    def third(self, number: int, ends_at: float) -> float | None:
        """Return the median of a third of the run, from 0; None if nothing was measured then."""
        low, high = ends_at * number / 3, ends_at * (number + 1) / 3
        found = [value for at, value in self.points if low < at <= high]
        return median(found) if found else None

    def is_flat(self, ends_at: float) -> bool | None:
        """Return False if the last third is higher than the second one allows; None: not judged."""
        before, after = self.third(1, ends_at), self.third(2, ends_at)
        if self.tolerance is None or before is None or after is None:
            return None
        return after <= before * self.tolerance.factor + self.tolerance.slack


class Recording:
    """All series of a run, by chart and name."""

    def __init__(self, *, is_judged: bool) -> None:
        """``is_judged``: False for a run that is too short for a verdict."""
        self._is_judged = is_judged
        self._series: dict[tuple[str, str], Series] = {}
        self._seconds: dict[tuple[str, str], list[float]] = {}
        self.ends_at = 0.0
        self.counts: dict[str, int] = {}
        """Finished work by load."""
        self.errors: list[str] = []

    def add(
        self, chart: str, name: str, unit: str, value: float, tolerance: Tolerance | None = None
    ) -> None:
        """Add a point at the time of the present sample."""
        key = (chart, name)
        if key not in self._series:
            kept = tolerance if self._is_judged else None
            self._series[key] = Series(chart, name, unit, kept)
        self._series[key].points.append((self.ends_at, value))

    def note(self, load: str, verb: str, seconds: float) -> None:
        """Note a request that was answered."""
        self._seconds.setdefault((load, verb), []).append(seconds)

    def sample_latencies(self) -> None:
        """Add percentiles of what was noted since the last sample."""
        noted, self._seconds = self._seconds, {}
        for (load, verb), seconds in noted.items():
            seconds.sort()
            for percent, tolerance in ((50, LATENCY_P50), (99, LATENCY_P99)):
                value = seconds[max(0, -(-len(seconds) * percent // 100) - 1)] * 1000
                self.add(f"latency-{load}", f"{verb} p{percent}", "ms", value, tolerance)

    def charts(self) -> Iterator[tuple[str, Sequence[Series]]]:
        """Yield the series of each chart."""
        for chart in dict.fromkeys(chart for chart, _ in self._series):
            yield chart, [one for one in self._series.values() if one.chart == chart]

    def rising(self) -> list[Series]:
        """Return the judged series that are not flat."""
        return [one for one in self._series.values() if one.is_flat(self.ends_at) is False]

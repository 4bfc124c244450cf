"""Hypothesis' settings for all tests: `quick` for `make test`, `fuzz` for `make fuzz`."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase, ReadOnlyDatabase

FOUND = Path(__file__).parent / "found"


class _Kept(DirectoryBasedExampleDatabase):
    """Keeps an example after its defect was mended: it is a test of that from then on."""

    def delete(self, key: bytes, value: bytes) -> None:
        pass


def register() -> None:
    """Make both known, and `quick` the one in effect. Settings of a test's own begin with it."""
    # How long an example takes says how busy the machine is.
    patient = settings(deadline=None, derandomize=False, suppress_health_check=_TOLD_BY_LOAD)
    quick = settings(patient, max_examples=15, database=ReadOnlyDatabase(_Kept(FOUND)))
    settings.register_profile("quick", quick)
    settings.register_profile("fuzz", patient, max_examples=400, database=_Kept(FOUND))
    settings.load_profile("quick")


_TOLD_BY_LOAD = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


def few() -> settings:
    """For tests of which an example is a request, or several: a third of the profile's number.

    What they share between examples is theirs to keep apart.
    """
    return settings(max_examples=settings().max_examples // 3)

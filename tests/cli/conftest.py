from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import clusters


@contextlib.contextmanager
def _place() -> Iterator[Path]:
    """A directory that every user can enter.

    pytest's own directories are closed to others, and as root PostgreSQL runs as somebody else.
    """
    place = Path(tempfile.mkdtemp(prefix="queuegate-test-"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def data() -> Iterator[Path]:
    """A data directory that is not there yet, in a place that every user can enter."""
    with _place() as place:
        yield place / "data"


@pytest.fixture
def used_data(data: Path) -> Path:
    """The directory ``data``, with a migrated database, as a server left it that ran there and was
    stopped."""
    clusters.copy(data)
    return data

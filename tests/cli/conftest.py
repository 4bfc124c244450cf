from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def data() -> Iterator[Path]:
    """A data directory that is not there yet, in a place that every user can enter.

    pytest's own directories are closed to others, and as root PostgreSQL runs as somebody else.
    """
    parent = Path(tempfile.mkdtemp(prefix="queuegate-test-", dir="/tmp"))
    parent.chmod(0o755)
    yield parent / "data"
    shutil.rmtree(parent, ignore_errors=True)

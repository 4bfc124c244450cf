from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import databases

pytest.register_assert_rewrite("tests.faults.load", "tests.faults.log_load")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "faults: kills real processes under load")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/faults/" in item.path.as_posix():
            item.add_marker(pytest.mark.faults)


@pytest.fixture
def data() -> Iterator[Path]:
    """A data directory that is not there yet, in a place that every user can enter.

    pytest's own directories are closed to others, and as root PostgreSQL runs as somebody else.
    """
    parent = Path(tempfile.mkdtemp(prefix="queuegate-fault-"))
    parent.chmod(0o755)
    yield parent / "data"
    shutil.rmtree(parent, ignore_errors=True)


@pytest.fixture
def dsn() -> Iterator[str]:
    """A database that outlives a gateway."""
    dsn = databases.of_this_process().copy()
    yield dsn
    databases.of_this_process().drop(dsn)

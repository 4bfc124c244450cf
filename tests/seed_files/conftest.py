"""A gateway for seed files, and a directory for them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.processes import Gateway


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory that the account of PostgreSQL can enter, unlike pytest's own."""
    place = Path(tempfile.mkdtemp(prefix="queuegate-test-"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="package")
def gateway() -> Iterator[Gateway]:
    with Gateway("--ephemeral", QUEUEGATE_LOG_LEVEL="error") as running:
        yield running

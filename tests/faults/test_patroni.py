"""The shortest run of `make failover`: Patroni and its PostgreSQL are killed under load."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.failover.patroni_cluster import missing

pytestmark = pytest.mark.timeout(300)

_QUICK = '{"ttl": 8, "loop_wait": 1, "retry_timeout": 3}'


@pytest.mark.skipif(missing() != "", reason=missing())
def test_a_promoted_standby_has_all_that_was_acknowledged() -> None:
    """Two servers are made, and one is killed: what takes time is Patroni's patience."""
    words = ["--seed", "1", "--faults", "killed", "--rate", "100", "--dcs", _QUICK]
    command = [sys.executable, "-m", "tests.failover", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing is lost, back or out of order" in done.stdout

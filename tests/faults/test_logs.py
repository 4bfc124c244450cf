"""The gateway and PostgreSQL die while a group consumes a log."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.cli.processes import Watch, postmaster
from tests.faults.gateways import serving
from tests.faults.load import times
from tests.faults.log_load import log_loaded

pytestmark = pytest.mark.timeout(180)


async def test_nothing_is_lost_and_what_was_acknowledged_does_not_come_again(data: Path) -> None:
    """A load, two kills, recoveries, and the wait for visibility timeouts."""
    async with serving(data) as server, log_loaded(server) as load:
        for _ in times(3):
            await load.more(400)
            await server.kill(load.up.clear)
            await server.start()
            load.up.set()
            await load.more(400)
            watch = Watch(postmaster(data))
            os.kill(postmaster(data), signal.SIGKILL)
            assert await asyncio.to_thread(watch.wait)
        await load.more(400)
        assert load.unanswered > 0
        await load.end_and_check()


async def test_the_count_of_the_load_can_fail(data: Path) -> None:
    async with serving(data) as server, log_loaded(server) as load:
        await load.more(100)
        load.promised.add("9.9")
        load.acknowledged[0, 0] = 0.0
        load._note({"payload": "9.8"}, (0, 0), 1.0)
        with pytest.raises(AssertionError, match="came after its ack"):
            await load.end_and_check()
        load.violations.clear()
        with pytest.raises(AssertionError, match=r"9\.9"):
            await load.end_and_check()

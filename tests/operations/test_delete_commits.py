"""Which commits wait for the disk, as the settings of a process say."""

from __future__ import annotations

from typing import Any

import pytest

from queuegate.gateway.configuration.settings import Settings
from queuegate.gateway.process.assembly import build_engine
from queuegate.storage.database import Database
from queuegate.storage.lanes import Lane


async def _overrides(lane: Lane[Any]) -> str | None:
    """Return the lane's own `synchronous_commit`, or None if the database's counts."""
    await lane.open()
    assert lane._connection is not None
    asked: str | None = await lane._connection.fetchval(
        "SELECT setting FROM pg_settings WHERE name = 'synchronous_commit' AND source = 'session'"
    )
    return asked


@pytest.mark.parametrize(
    ("environ", "deletes"),
    [
        ({}, None),
        ({"QUEUEGATE_DELETE_COMMIT": "durable"}, None),
        ({"QUEUEGATE_DELETE_COMMIT": "relaxed"}, "off"),
    ],
)
async def test_deletes_wait_for_the_disk_unless_they_are_relaxed(
    database: Database, environ: dict[str, str], deletes: str | None
) -> None:
    """All other lanes commit as before."""
    engine = build_engine(Settings.from_env(environ), database)
    commits = {lane.name: await _overrides(lane) for lane in engine.lanes}
    await engine.close()
    # docs/how-to/production.md counts the connections.
    assert len(commits) == len(engine.lanes) == 13
    assert commits.pop("delete") == deletes
    relaxed = {"receive", "ordered_receive", "rates"}
    assert {name for name, asked in commits.items() if asked} == relaxed

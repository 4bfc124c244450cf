"""Removes the schedules of groups that are being deleted, when they are too many to go at once."""

from __future__ import annotations

from storage.database import Database
from storage.planning import probe_by_key
from storage.schedules import schedule_groups


class RemoveScheduleGroups:
    """A round is one transaction: some schedules of one group, which goes with its last one."""

    name = "remove_schedule_groups"
    pause_seconds = 5.0

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run_round(self, rows: int) -> int:
        """Remove up to ``rows`` schedules of the first group that nobody else is at."""
        async with self._database.transaction() as tx:
            await probe_by_key(tx)
            for group_id in await schedule_groups.find_deleting(tx, 1):
                return await schedule_groups.remove_some(tx, group_id, rows)
        return 0

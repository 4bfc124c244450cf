"""A cache of logs, groups and partitions. Notifications invalidate logs and groups; partitions
never change and are dropped with their log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from queuegate.storage.database import Database
from queuegate.storage.logs import log_groups, stored_logs
from queuegate.storage.model import ConsumerGroup, LogPartition, StoredLog

_MOST_LOGS = 10_000
_MOST_PARTITIONS = 500_000
_FIRST_GUESS_BYTES = 500


class LogCache:
    """Logs by name, and partitions by key and by number. ``_epoch`` counts notifications: a load
    that a notification overtakes is not cached."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._epoch = 0
        self._by_name: dict[tuple[str, str, str], StoredLog] = {}
        self._by_id: dict[int, StoredLog] = {}
        self._groups: dict[int, dict[str, ConsumerGroup]] = {}
        self._by_key: dict[int, dict[str, LogPartition]] = {}
        self._by_number: dict[int, dict[int, LogPartition]] = {}
        self._partition_count = 0
        self._record_bytes: dict[int, float] = {}

    def cached(self, account_id: str, region: str, name: str) -> StoredLog | None:
        return self._by_name.get((account_id, region, name))

    async def find(self, account_id: str, region: str, name: str) -> StoredLog | None:
        """Return the log of that name; None: there is none."""
        log = self._by_name.get((account_id, region, name))
        if log is None:
            epoch = self._epoch
            async with self._database.transaction() as tx:
                log = await stored_logs.find(tx, account_id, region, name)
            if log is not None and epoch == self._epoch:
                self._keep(log)
        return log

    def _keep(self, log: StoredLog) -> None:
        if len(self._by_id) >= _MOST_LOGS:
            self.clear()
        self._by_name[log.account_id, log.region, log.name] = self._by_id[log.log_id] = log

    def by_key(self, log: StoredLog) -> Mapping[str, LogPartition]:
        return self._by_key.get(log.log_id, {})

    def by_number(self, log: StoredLog) -> Mapping[int, LogPartition]:
        return self._by_number.get(log.log_id, {})

    async def find_group(self, log: StoredLog, name: str) -> ConsumerGroup | None:
        """Return the group of a log; None: there is none."""
        group = self.cached_group(log, name)
        if group is None:
            epoch = self._epoch
            async with self._database.transaction() as tx:
                group = await log_groups.find(tx, log.log_id, name)
            if group is not None and epoch == self._epoch:
                self._groups.setdefault(log.log_id, {})[name] = group
        return group

    def cached_group(self, log: StoredLog, name: str) -> ConsumerGroup | None:
        return self._groups.get(log.log_id, {}).get(name)

    def keep_partitions(self, log: StoredLog, partitions: Iterable[LogPartition]) -> None:
        if self._partition_count >= _MOST_PARTITIONS:
            self._by_key.clear()
            self._by_number.clear()
            self._partition_count = 0
        by_key = self._by_key.setdefault(log.log_id, {})
        by_number = self._by_number.setdefault(log.log_id, {})
        before = len(by_number)
        for partition in partitions:
            if partition.key is not None:
                by_key[partition.key] = partition
            by_number[partition.number] = partition
        self._partition_count += len(by_number) - before

    def records_within(self, log: StoredLog, most_bytes: int) -> int:
        """Estimate the number of records with so many bytes from the last read of the log. A read
        asks the database for no more."""
        return int(most_bytes / self._record_bytes.get(log.log_id, _FIRST_GUESS_BYTES) * 1.25) + 16

    def note_read(self, log: StoredLog, count: int, size: int) -> None:
        if count:
            self._record_bytes[log.log_id] = max(size / count, 1.0)

    def changed(self, log_id: int | None) -> None:
        """Invalidate a log, also for loads under way. None: invalidate all, because notifications
        may have been lost."""
        if log_id is None:
            self.clear()
            return
        self._epoch += 1
        self._groups.pop(log_id, None)
        log = self._by_id.pop(log_id, None)
        if log is not None:
            self._by_name.pop((log.account_id, log.region, log.name), None)

    def forget(self, log: StoredLog) -> None:
        self.changed(log.log_id)
        self._by_key.pop(log.log_id, None)
        self._record_bytes.pop(log.log_id, None)
        self._partition_count -= len(self._by_number.pop(log.log_id, ()))

    def clear(self) -> None:
        self._epoch += 1
        self._groups.clear()
        self._by_name.clear()
        self._by_id.clear()
        self._by_key.clear()
        self._by_number.clear()
        self._partition_count = 0
        self._record_bytes.clear()

"""What this process counts for groups of logs, by group: plain numbers, as in ``series``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from queuegate.gateway.operations.bounded_series import BoundedSeries

if TYPE_CHECKING:
    from queuegate.storage.log_model import Group, Log


@dataclass(slots=True, eq=False)
class GroupSeries:
    """The numbers of one group."""

    account_id: str
    region: str
    log: str
    name: str
    delivered: int = 0
    redelivered: int = 0
    buried: int = 0
    fed: int = 0

    def labels(self) -> tuple[str, str, str, str]:
        """What tells it apart: account, region, log and name."""
        return self.account_id, self.region, self.log, self.name

    def uses(self) -> int:
        """How much was counted, whatever it was."""
        return self.delivered + self.buried + self.fed


class GroupNumbers(BoundedSeries[int, GroupSeries]):
    """The series of groups by their numbers, ``most`` of them; what comes after them is counted
    under the labels _other."""

    def __init__(self, most: int) -> None:
        super().__init__(most, GroupSeries("_other", "_other", "_other", "_other"))

    def of(self, log: Log, group: Group) -> GroupSeries:
        """Those of a group."""
        series = self._series.get(group.group_id)
        if series is None:
            if self.is_full:
                return self._other
            series = GroupSeries(log.account_id, log.region, log.name, group.name)
            self._series[group.group_id] = series
        return series

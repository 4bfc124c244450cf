"""CPU and memory of a process tree, the database told apart from the gateway, read from /proc.

CPU is that of every living process of the tree, by its CPU clock (nanoseconds; /proc counts in
hundredths of a second), plus what dead children left behind: a child that ends moves its time to
its parent, so that the sum never falls.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Event

_TICK_SECONDS = 1.0 / os.sysconf("SC_CLK_TCK")
_IDLE_SHARE = 0.05
_PAUSE = Event()
_MIB = 1024 * 1024


def pause(seconds: float) -> None:
    """Block this thread; used between looks at a process that is another program's."""
    _PAUSE.wait(seconds)


@dataclass(frozen=True)
class Usage:
    """CPU seconds since the processes began."""

    gateway_seconds: float
    database_seconds: float

    def __sub__(self, other: "Usage") -> "Usage":
        return Usage(
            self.gateway_seconds - other.gateway_seconds,
            self.database_seconds - other.database_seconds,
        )


@dataclass(frozen=True)
class Memory:
    """Resident and proportional set sizes in MiB; RSS counts a shared page once per process."""

    gateway_rss: float
    gateway_pss: float
    database_rss: float
    database_pss: float


@dataclass(frozen=True)
class _Process:
    parent_id: int
    name: str
    own_seconds: float
    children_seconds: float


class Tree:
    """The processes below some roots; those named postgres, and all below, are the database."""

    def __init__(self, *root_ids: int) -> None:
        self._root_ids = root_ids

    def members(self) -> tuple[list[int], list[int]]:
        """Return the ids of the gateway's processes and of the database's."""
        gateway, database = self._split(_processes())
        return list(gateway), list(database)

    def usage(self) -> Usage:
        """Return the CPU time used so far."""
        gateway, database = self._split(_processes())
        return Usage(
            sum(_cpu_seconds(*item) for item in gateway.items()),
            sum(_cpu_seconds(*item) for item in database.items()),
        )

    def memory(self) -> Memory:
        """Return the memory held now; zero where /proc does not let us look."""
        gateway, database = self.members()
        gateway_rss, gateway_pss = _memory(gateway)
        database_rss, database_pss = _memory(database)
        return Memory(gateway_rss, gateway_pss, database_rss, database_pss)

    def postmaster_id(self) -> int | None:
        """Return the id of the database's first process, None when the tree has no database."""
        _, database = self._split(_processes())
        for process_id, process in database.items():
            if process.parent_id not in database:
                return process_id
        return None

    def settle(self, seconds_max: float = 6.0) -> None:
        """Return once the tree has been all but idle for 0.2 s, or after so many seconds."""
        before = self.usage()
        for _ in range(int(seconds_max / 0.2)):
            pause(0.2)
            after = self.usage()
            spent = after - before
            if spent.gateway_seconds + spent.database_seconds <= _IDLE_SHARE * 0.2:
                return
            before = after

    def cores(self) -> set[int]:
        """Return the cores that the first process may run on."""
        return os.sched_getaffinity(self._root_ids[0])

    def pin(self, cores: set[int]) -> None:
        """Keep every thread of the tree on these cores; new ones inherit it."""
        for process_id in (*self.members()[0], *self.members()[1]):
            for task in Path(f"/proc/{process_id}/task").iterdir():
                os.sched_setaffinity(int(task.name), cores)

    def _split(
        self, processes: dict[int, _Process]
    ) -> tuple[dict[int, _Process], dict[int, _Process]]:
        children: dict[int, list[int]] = {}
        for process_id, process in processes.items():
            children.setdefault(process.parent_id, []).append(process_id)
        gateway: dict[int, _Process] = {}
        database: dict[int, _Process] = {}
        waiting = [(root_id, False) for root_id in self._root_ids if root_id in processes]
        while waiting:
            process_id, below_database = waiting.pop()
            process = processes[process_id]
            is_database = below_database or process.name.startswith("postgres")
            (database if is_database else gateway)[process_id] = process
            waiting += [(child_id, is_database) for child_id in children.get(process_id, ())]
        return gateway, database


def _processes() -> dict[int, _Process]:
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as stat:
                line = stat.read()
        except (FileNotFoundError, ProcessLookupError):
            continue
        name = line[line.index("(") + 1 : line.rindex(")")]
        fields = line[line.rindex(")") + 2 :].split()
        own, children = (
            sum(int(value) for value in part) * _TICK_SECONDS
            for part in (fields[11:13], fields[13:15])
        )
        found[int(entry)] = _Process(int(fields[1]), name, own, children)
    return found


def _cpu_seconds(process_id: int, process: _Process) -> float:
    """Return the time of a process and its dead children; by /proc alone when it ended just now."""
    scheduler_clock = 2
    try:
        own = time.clock_gettime((~process_id << 3) | scheduler_clock)
    except OSError:
        own = process.own_seconds
    return own + process.children_seconds


def _memory(process_ids: list[int]) -> tuple[float, float]:
    rss = pss = 0
    for process_id in process_ids:
        try:
            text = Path(f"/proc/{process_id}/smaps_rollup").read_text(encoding="ascii")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        for line in text.splitlines():
            if line.startswith("Rss:"):
                rss += int(line.split()[1]) * 1024
            elif line.startswith("Pss:"):
                pss += int(line.split()[1]) * 1024
    return rss / _MIB, pss / _MIB

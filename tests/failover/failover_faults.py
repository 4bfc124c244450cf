"""The faults: what happens to the leader, and how it comes back."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.failover.patroni_cluster import Node, PatroniCluster, until_at_last

_ETCD_SECONDS = (12.0, 25.0)


@dataclass
class Struck:
    """One fault, with its moments in seconds of the epoch."""

    name: str
    leader: str
    began: float
    promoted: float | None = None
    """Read the time of the promotion from Patroni's log; None: the old leader has stayed."""
    healed: float = 0.0
    whole: float = 0.0
    notes: list[str] = field(default_factory=list)


def _nothing(cluster: PatroniCluster, leader: Node) -> None:
    """Nothing is to be done: Patroni repairs it."""


def _kill(cluster: PatroniCluster, leader: Node) -> None:
    leader.kill()


def _start(cluster: PatroniCluster, leader: Node) -> None:
    leader.start()


def _switch_over(cluster: PatroniCluster, leader: Node) -> None:
    cluster.switch_over(leader)


def _freeze(cluster: PatroniCluster, leader: Node) -> None:
    leader.signal(signal.SIGSTOP)


def _reset(cluster: PatroniCluster, leader: Node) -> None:
    """Do what the watchdog of the configuration does to a machine on which Patroni hangs."""
    leader.kill()
    leader.start()


def _thaw(cluster: PatroniCluster, leader: Node) -> None:
    leader.signal(signal.SIGCONT)


def _cut(cluster: PatroniCluster, leader: Node) -> None:
    cluster.cut(leader)


def _heal(cluster: PatroniCluster, leader: Node) -> None:
    cluster.heal(leader)


def _lose(cluster: PatroniCluster, leader: Node) -> None:
    cluster.cut(leader)
    leader.kill()


def _find(cluster: PatroniCluster, leader: Node) -> None:
    cluster.heal(leader)
    leader.start()


def _stop_etcd(cluster: PatroniCluster, leader: Node) -> None:
    cluster.kill_etcd()


def _start_etcd(cluster: PatroniCluster, leader: Node) -> None:
    cluster.start_etcd()


Act = Callable[[PatroniCluster, Node], None]
FAULTS: dict[str, tuple[Act, Act]] = {
    "killed": (_kill, _start),
    "switched over": (_switch_over, _nothing),
    "hung": (_freeze, _reset),
    "black hole": (_cut, _heal),
    "machine gone": (_lose, _find),
    "etcd away": (_stop_etcd, _start_etcd),
}
"""Name -> (what happens, what undoes it)."""
WITHOUT_WATCHDOG: dict[str, tuple[Act, Act]] = {"thawed": (_freeze, _thaw)}
"""Faults that only a watchdog makes harmless: Patroni 3.0.2 takes the leader's key back from the
promoted server, and PostgreSQL loses what that one has committed."""
ALL_FAULTS = FAULTS | WITHOUT_WATCHDOG


def order_of(seed: int, names: Sequence[str], round_number: int) -> tuple[list[str], random.Random]:
    """Return the order of the faults of a round, and what its moments are drawn from."""
    drawn = random.Random(f"{seed} {round_number}")
    order = [*names]
    drawn.shuffle(order)
    return order, drawn


async def strike(cluster: PatroniCluster, name: str, drawn: random.Random) -> Struck:
    """Do it, and return when there is a leader again; ``mend`` undoes it."""
    leader = await asyncio.to_thread(until_at_last, cluster.leader)
    assert leader is not None
    before = {node.name: len(node.promoted_at()) for node in cluster.nodes}
    struck = Struck(name, leader.name, time.time())
    await asyncio.to_thread(ALL_FAULTS[name][0], cluster, leader)
    if name == "etcd away":
        seconds = drawn.uniform(*_ETCD_SECONDS)
        struck.notes.append(f"etcd away for {seconds:.1f} s")
        await asyncio.sleep(seconds)
        return struck
    other = cluster.other(leader)
    await asyncio.to_thread(until_at_last, lambda: len(other.promoted_at()) > before[other.name])
    struck.promoted = other.promoted_at()[-1]
    return struck


async def mend(cluster: PatroniCluster, struck: Struck) -> None:
    """Undo it, and wait until the old leader is the synchronous standby."""
    [leader] = [node for node in cluster.nodes if node.name == struck.leader]
    struck.healed = time.time()
    await asyncio.to_thread(ALL_FAULTS[struck.name][1], cluster, leader)
    await asyncio.to_thread(cluster.until_whole)
    struck.whole = time.time()
    if struck.promoted is None:
        later = [at for node in cluster.nodes for at in node.promoted_at() if at > struck.began]
        struck.promoted = max(later, default=None)

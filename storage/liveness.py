"""Detection of servers that stopped answering without closing their connections, such as a frozen
one.

A statement may take minutes, so its duration says little. After some seconds, a new connection to
the same host is tried. If the host does not answer it, and no other connection to it got an answer
meanwhile, all connections to it are ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakSet

from queuegate.storage.connecting import FAILURES, DatabaseSession, Host, Hosts

SUSPECT_SECONDS = 3.0
"""A longer statement makes its host suspect."""
_PROBE_SECONDS = 3.0
_BETWEEN_SECONDS = 2.0


class Liveness:
    """The connections of one database, by host. ``ended`` is called with the reason."""

    def __init__(self, hosts: Callable[[], Hosts], ended: Callable[[str], None]) -> None:
        self._hosts = hosts
        self._ended = ended
        self._open: WeakSet[DatabaseSession] = WeakSet()
        self._probes: dict[Host, asyncio.Task[None]] = {}

    def add(self, session: DatabaseSession) -> DatabaseSession:
        """Watch a connection for as long as it is referenced."""
        self._open.add(session)
        return session

    def suspect(self, host: Host) -> None:
        """Probe the host, unless a probe is in progress or recent."""
        if host not in self._probes:
            task = asyncio.get_running_loop().create_task(self._probe(host))
            self._probes[host] = task
            task.add_done_callback(lambda _: self._probes.pop(host, None))

    def close(self) -> None:
        """Stop all probes."""
        for task in list(self._probes.values()):
            task.cancel()

    async def _probe(self, host: Host) -> None:
        before = self._answers(host)
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                options = {"target_session_attrs": "any"}
                session = await self._hosts().connect_to(host, {"jit": "off"}, options)
            session.terminate()
        except TimeoutError:
            if self._answers(host) == before:
                self._end(host)
        except FAILURES:
            # A host that refuses is alive, and a lost one ends its connections.
            pass
        await asyncio.sleep(_BETWEEN_SECONDS)

    def _answers(self, host: Host) -> int:
        return max((one.answers for one in self._open if one.host == host), default=0)

    def _end(self, host: Host) -> None:
        self._ended(f"{host} stopped answering, its connections are given up")
        for session in list(self._open):
            if session.host == host:
                session.terminate()

"""``python -m tests.failover.cut_network``: TCP links that may be cut, as a firewall that drops
packets cuts them.

Standard input takes one command per line: ``link NAME HOST PORT HOST PORT`` listens at the first
address and connects to the second one; ``cut NAME`` and ``heal NAME`` apply to all links of a name.
A link may have several names.
A cut link reads nothing and closes nothing: bytes wait in the kernel, as packets that TCP sends
again after the cut, and a new connection is never answered. Each command prints one line.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict

_MOST_WAITING_BYTES = 1 << 20


class _Pipe(asyncio.Protocol):
    """One end of a connection through a link."""

    def __init__(self, link: Link, other: _Pipe | None = None) -> None:
        self.link = link
        self.other = other
        self.transport: asyncio.Transport | None = None
        self.is_full = False
        self.early: list[bytes] = []
        """Bytes that came before the other end was connected."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.link.pipes.add(self)
        if self.other is None:
            self.link.opening(self)
        elif self.other.transport is None or self.other.transport.is_closing():
            transport.abort()
        else:
            self.other.other = self
            for data in self.other.early:
                transport.write(data)
        self.adjust()

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self.early.append(data)
        else:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        self.is_full = True
        if self.other is not None:
            self.other.adjust()

    def resume_writing(self) -> None:
        self.is_full = False
        if self.other is not None:
            self.other.adjust()

    def adjust(self) -> None:
        """Read unless the link is cut or the other end is full."""
        if self.transport is None or self.transport.is_closing():
            return
        if self.link.is_cut or (self.other is not None and self.other.is_full):
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.link.pipes.discard(self)
        if self.other is None or self.other.transport is None:
            return
        if self.link.is_cut:
            self.link.closing.append(self.other)
        else:
            self.other.transport.close()


class Link:
    """A listening address and the address behind it."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.is_cut = False
        self.pipes: set[_Pipe] = set()
        self.waiting: list[_Pipe] = []
        self.closing: list[_Pipe] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int) -> asyncio.Server:
        """Take connections at this address."""
        return await asyncio.get_running_loop().create_server(lambda: _Pipe(self), host, port)

    def opening(self, pipe: _Pipe) -> None:
        """Connect a new pipe to the target, once the link is not cut."""
        if self.is_cut:
            self.waiting.append(pipe)
            return
        task = asyncio.get_running_loop().create_task(self._open(pipe))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(self, pipe: _Pipe) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: _Pipe(self, pipe), *self.target)
        except OSError:
            assert pipe.transport is not None
            pipe.transport.abort()

    def cut(self) -> None:
        """Forward nothing."""
        self.is_cut = True
        for pipe in self.pipes:
            pipe.adjust()

    def heal(self) -> None:
        """Forward again, and first what has waited."""
        self.is_cut = False
        for pipe in [*self.pipes]:
            pipe.adjust()
        waiting, self.waiting = self.waiting, []
        for pipe in waiting:
            self.opening(pipe)
        closing, self.closing = self.closing, []
        for pipe in closing:
            if pipe.transport is not None:
                pipe.transport.close()


async def _main() -> None:
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    links: defaultdict[str, list[Link]] = defaultdict(list)
    opened: dict[str, Link] = {}
    while line := (await commands.readline()).decode():
        verb, name, *rest = line.split()
        if verb == "link":
            host, port, target, target_port = rest
            place = f"{host}:{port}"
            if place not in opened:
                opened[place] = Link((target, int(target_port)))
                await opened[place].listen(host, int(port))
            links[name].append(opened[place])
        else:
            for link in links[name]:
                link.cut() if verb == "cut" else link.heal()
        print(verb, name, flush=True)


if __name__ == "__main__":
    asyncio.run(_main())

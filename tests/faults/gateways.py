"""Starting, killing and waiting for gateways from within an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg

from queuegate.storage.embedded.embedded_server import running_dsn
from tests.cli.processes import PATIENCE_SECONDS, Gateway, Watch, postmaster
from tests.faults.load import Load, make_queue
from tests.waiting import until_async

if TYPE_CHECKING:
    from queuegate.storage.database import Connection


class Server:
    """A gateway on one data directory and port, which may be started again and again."""

    def __init__(self, data: Path, *arguments: str, **more: str) -> None:
        self.data = data
        self.port = 0
        self._arguments = arguments
        self._more = more
        self._gateway: Gateway | None = None
        self.kind: type[Gateway] = Gateway

    @property
    def gateway(self) -> Gateway:
        assert self._gateway is not None
        return self._gateway

    async def start(self) -> None:
        """Return when it is ready."""
        place = ("--port", str(self.port), *self._arguments)
        if "DATABASE_URL" not in self._more:
            place = ("--data", str(self.data), *place)
        self._gateway = await asyncio.to_thread(self.kind, *place, **self._more)
        self.port = int(self._gateway.port)

    async def kill(self, hold: Callable[[], None] | None = None) -> None:
        """kill -9, hold the load, and wait until its PostgreSQL has stopped by itself."""
        watch = Watch(postmaster(self.data))
        self.gateway.process.send_signal(signal.SIGKILL)
        # Not before: all that is under way might be answered meanwhile.
        if hold is not None:
            hold()
        await asyncio.to_thread(self.gateway.process.wait, PATIENCE_SECONDS)
        assert await asyncio.to_thread(watch.wait)
        await self.close()

    async def close(self) -> None:
        """Stop it if it still runs."""
        gateway, self._gateway = self._gateway, None
        if gateway is not None:
            await asyncio.to_thread(gateway.__exit__)

    async def until_ready(self) -> None:
        """Wait until its database answers again."""
        await until_async(
            lambda: asyncio.to_thread(self.gateway.get, "/readyz"), lambda found: found[0] == 200
        )

    async def until_metric(self, sample: str, least: float = 1) -> None:
        """Wait until a sample of /metrics, by its name and labels as written, is that high."""
        await until_async(lambda: self.metric(sample), lambda found: found >= least)

    async def metric(self, sample: str) -> float:
        """A sample of /metrics, by its name and labels as written; 0 when it is absent."""
        _, page = await asyncio.to_thread(self.gateway.get, "/metrics")
        lines = [line for line in page.splitlines() if line.startswith(sample + " ")]
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    async def connect(self) -> Connection:
        """A connection to the PostgreSQL that it started."""
        return await asyncpg.connect(
            running_dsn(self.data),
            server_settings={"search_path": "queuegate", "application_name": "test"},
        )


async def kill_backend(server: Server, query: str) -> None:
    """kill -9 of a backend whose last query has these words. PostgreSQL ends every connection then;
    wait for that."""
    connection = await server.connect()
    ended = asyncio.Event()
    connection.add_termination_listener(lambda _: ended.set())
    async with asyncio.timeout(20):
        backend = await until_async(
            lambda: connection.fetchval(
                "SELECT pid FROM pg_stat_activity WHERE query LIKE '%' || $1 || '%'"
                " AND pid <> pg_backend_pid()",
                query,
            )
        )
        os.kill(backend, signal.SIGKILL)
        await ended.wait()
    connection.terminate()


@contextlib.asynccontextmanager
async def serving(data: Path, *arguments: str, **more: str) -> AsyncIterator[Server]:
    """A gateway that is ready; stopped at the end."""
    server = Server(data, *arguments, **more)
    await server.start()
    try:
        yield server
    finally:
        await server.close()


class Loads:
    """A load on a standard and one on a FIFO queue."""

    def __init__(self, *loads: Load) -> None:
        self.standard, self.ordered = self.both = loads

    async def more(self, count: int) -> None:
        await asyncio.gather(self.standard.more(count), self.ordered.more(count // 2))

    def hold(self) -> None:
        for load in self.both:
            load.hold()

    def go_on(self) -> None:
        for load in self.both:
            load.go_on()

    @property
    def unanswered(self) -> int:
        return sum(load.unanswered for load in self.both)

    async def end_and_check(self) -> None:
        """End the load and count."""
        for load in self.both:
            await load.end()
        await asyncio.gather(*(load.check() for load in self.both))


@contextlib.asynccontextmanager
async def loaded(port: int) -> AsyncIterator[Loads]:
    """Load that runs until the test ends it, or fails."""
    loads = Loads(*[Load(port, await make_queue(port, name)) for name in ("load", "load.fifo")])
    for load in loads.both:
        load.start()
    try:
        yield loads
    except BaseException:
        for load in loads.both:
            load.cancel()
        raise

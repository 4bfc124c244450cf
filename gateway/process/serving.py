"""Uvicorn as our processes use it: on sockets that are there, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import uvicorn

from queuegate.gateway.http.tls import TlsDoor

if TYPE_CHECKING:
    from queuegate.gateway.faces.interface import Asgi
    from queuegate.gateway.http.fast_path import FastProtocol
    from queuegate.gateway.http.tls import Certificate


class Server(uvicorn.Server):
    """Uvicorn without its signal handlers: ours must run before connections are drained."""

    def __init__(
        self,
        config: uvicorn.Config,
        on_ready: Callable[[], object] = bool,
        on_tick: Callable[[], object] = bool,
        certificate: Certificate | None = None,
    ) -> None:
        super().__init__(config)
        self._certificate = certificate
        self._on_ready = on_ready
        self._on_tick = on_tick
        self._stop_wanted = asyncio.Event()

    def stop(self) -> None:
        """Begin to drain."""
        self.should_exit = True
        self._stop_wanted.set()

    async def main_loop(self) -> None:
        """Once a second, for the date header, where uvicorn ticks ten times as often."""
        while not await self.on_tick(0):
            self._on_tick()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop_wanted.wait(), 1.0)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing: who runs this has installed ours."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so."""
        if self._certificate is None:
            await super().startup(sockets)
        else:
            self._listen_by_tls(sockets or [], self._certificate)
        if self.started:
            self._on_ready()

    def _listen_by_tls(self, sockets: list[socket.socket], certificate: Certificate) -> None:
        protocol: Any = self.config.http_protocol_class

        def make() -> asyncio.Protocol:
            made: asyncio.Protocol = protocol(
                config=self.config, server_state=self.server_state, app_state={}
            )
            return made

        doors: Any = [TlsDoor(sock, certificate, make, protocol.traffic) for sock in sockets]
        self.servers = doors
        self.started = True


def config_of(app: Asgi, protocol: type[FastProtocol], shutdown_seconds: int) -> uvicorn.Config:
    """What uvicorn is told."""
    return uvicorn.Config(
        app,
        http=protocol,
        loop="none",
        lifespan="off",
        # Our connections ignore Upgrade, so the bytes behind such a head are the next request,
        # unless a face takes the connection over, as WebSockets of channels do.
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        date_header=True,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=shutdown_seconds,
        backlog=4096,
    )

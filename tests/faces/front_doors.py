"""A front door of its own in this process, over a real socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import uvicorn
from uvicorn.server import ServerState

from queuegate.gateway.http.app import App
from queuegate.gateway.http.fast_path import FastPath, protocol_class
from tests.faces.connections import Answer, Connection, request_bytes


@contextlib.asynccontextmanager
async def listening(
    app: App, fast_path: FastPath, connections: set[Any] | None = None
) -> AsyncIterator[str]:
    """The URL of this app while it listens; ``connections`` has those that are open."""
    config = uvicorn.Config(cast(Any, app), ws="none", lifespan="off", log_config=None)
    config.load()
    fast_path.app = app
    protocol: Any = protocol_class(fast_path)
    state = ServerState()
    if connections is not None:
        state.connections = connections
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: protocol(config, state, {}), "127.0.0.1", 0)
    try:
        yield "http://{}:{}".format(*server.sockets[0].getsockname())
    finally:
        server.close()
        await server.wait_closed()


async def ask(
    url: str, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
) -> Answer:
    """One request on a connection of its own, which the event loop serves meanwhile."""

    def asking() -> Answer:
        with Connection(url) as connection:
            named = {"Host": connection.host, **headers}
            connection.send(request_bytes(method, path, named, body))
            return connection.answer()

    return await asyncio.to_thread(asking)

"""A front door of its own in this process, over a real socket."""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import uvicorn
from uvicorn.server import ServerState

from queuegate.gateway.faces.aws.aws_face import AwsFace
from queuegate.gateway.faces.interface import Face, Mount, Request, Response
from queuegate.gateway.http.admission import Admission
from queuegate.gateway.http.app import App, AppOptions
from queuegate.gateway.http.authentication import Authenticator
from queuegate.gateway.http.fast_path import FastPath, protocol_class
from queuegate.gateway.operations.telemetry.series import Series
from queuegate.storage.storage_errors import Rejected, Unavailable
from tests.faces.connections import Answer, Connection, request_bytes


@contextlib.asynccontextmanager
async def listening(
    app: App, fast_path: FastPath, connections: set[Any] | None = None, **limits: float
) -> AsyncIterator[str]:
    """The URL of this app while it listens; ``connections`` has those that are open."""
    config = uvicorn.Config(cast(Any, app), ws="none", lifespan="off", log_config=None)
    config.load()
    fast_path.app = app
    protocol: Any = type("Limited", (protocol_class(fast_path),), limits)
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


class OneAnswer(Face):
    """A face on all paths, which refuses nothing."""

    @abstractmethod
    async def answer(self, request: Request) -> Response: ...

    def turned_away(self, _: Request, refusal: Rejected | Unavailable) -> Response:
        raise AssertionError(refusal)


@contextlib.asynccontextmanager
async def limited(
    face: Face, series: Series, connections: set[Any], **limits: float
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client of this face alone, whose connections have these limits."""
    engine: Any = SimpleNamespace(series=series, queues=SimpleNamespace(by_url={}), quotas=None)
    authenticator = Authenticator(mode="none", accounts={}, account_id="0", region="r")
    admission = Admission(listens_on=["0.0.0.0"])
    mount = Mount(lambda: face, prefixes=("",), label=lambda _: "/")
    mount.face = face
    options = AppOptions(None, None, 1 << 30, access_log=False)
    app = App((mount,), series, admission, options)
    fast_path = FastPath(
        AwsFace(engine, authenticator, {}), authenticator, admission, access_log=False
    )
    async with listening(app, fast_path, connections, **limits) as url:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, port)
        try:
            yield reader, writer
        finally:
            writer.close()


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

"""QUEUEGATE_OPERATIONS_ADDRESS: probes and /metrics on sockets of their own.

They have connections and bounds of their own, too: a gateway that is full of clients still says how
it is. One that drains answers here until it is done.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from queuegate.gateway.faces.interface import AsgiFace, Mount, is_navigation
from queuegate.gateway.http.admission import Admission
from queuegate.gateway.http.app import App, Options
from queuegate.gateway.http.fast_path import FastPath, protocol_class
from queuegate.gateway.operations.runtime.traffic import Traffic
from queuegate.gateway.pages.paths import probe_label
from queuegate.gateway.process.serving import Server, config_of

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings
    from queuegate.gateway.faces.aws.aws_face import AwsFace
    from queuegate.gateway.http.listening import Sockets
    from queuegate.gateway.metrics.scraping import Metrics

_MOST_CLIENTS = 256
_MOST_BODY_BYTES = 65_536


@contextlib.asynccontextmanager
async def served_apart(
    settings: Settings, aws: AwsFace, metrics: Metrics, sockets: Sockets
) -> AsyncIterator[None]:
    """Answer probes and scrapes on these sockets meanwhile; without any, do nothing."""
    if not sockets:
        yield
        return
    server = _server(settings, aws, metrics)
    serving = asyncio.create_task(server.serve(sockets=sockets), name="operators")
    try:
        yield
    finally:
        server.stop()
        await serving


def _server(settings: Settings, aws: AwsFace, metrics: Metrics) -> Server:
    def make_pages() -> AsgiFace:
        from queuegate.gateway.pages.routes import probes

        return probes(aws.engine, metrics)

    assert settings.operations_address is not None
    admission = Admission(
        listens_on=settings.operations_address[0],
        hosts=settings.allowed_hosts,
        proxies=settings.trusted_proxies,
    )
    entrance = Mount(
        make_pages, prefixes=("",), label=probe_label, may_navigate=is_navigation, is_operators=True
    )
    options = Options(None, None, _MOST_BODY_BYTES, access_log=False)
    app = App((entrance,), aws.engine.series, admission, options)
    fast_path = FastPath(aws, aws.callers, admission, access_log=False, is_open=False)
    fast_path.traffic = Traffic(most_bytes=settings.max_buffered_bytes, most_clients=_MOST_CLIENTS)
    return Server(config_of(app, protocol_class(fast_path), 1))

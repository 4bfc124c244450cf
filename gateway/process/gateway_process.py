"""One gateway process: it assembles database, engine, mounts and app, and serves until stopped.

The mounts are the one list of faces, in the order of routing. Each face has its name in
QUEUEGATE_FACES (``gateway.configuration.values.FACE_NAMES``).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import logging
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import uvicorn

from queuegate.gateway import audit_lines
from queuegate.gateway.audit_lines import Audit
from queuegate.gateway.faces.aws import aws_bindings
from queuegate.gateway.faces.aws.aws_face import AwsFace, is_link_of_sns
from queuegate.gateway.faces.interface import Mount, is_navigation
from queuegate.gateway.faces.switched_off import SwitchedOff
from queuegate.gateway.http.admission import Admission
from queuegate.gateway.http.app import App, AppOptions, Auditor
from queuegate.gateway.http.authentication import (
    Authenticator,
    CommonOptions,
    VerifyingAuthenticator,
)
from queuegate.gateway.http.connection_limits import TroubleLog, check_descriptors, client_capacity
from queuegate.gateway.http.fast_path import FastPath, FastProtocol, protocol_class
from queuegate.gateway.http.listening import ListeningSockets, Sockets, links_url
from queuegate.gateway.http.tls import TlsListener
from queuegate.gateway.metrics.scraping import MetricsPage
from queuegate.gateway.operations.channels.channel_consumers import CONNECTIONS, connections_here
from queuegate.gateway.operations.runtime.traffic import Traffic
from queuegate.gateway.operations.telemetry.live_views import READERS, readers_here
from queuegate.gateway.pages import page_paths
from queuegate.gateway.pages.page_paths import probe_label
from queuegate.gateway.process.assembly import open_engine
from queuegate.gateway.process.background import BackgroundWorker, time_keeping, workers_for
from queuegate.gateway.process.disk_watch import watching
from queuegate.gateway.process.key_files import tls_certificate
from queuegate.gateway.tracing.otlp_setup import open_tracing

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings
    from queuegate.gateway.faces.interface import Face
    from queuegate.gateway.http.tls import Certificate
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.gateway.operations.telemetry.series import Series
    from queuegate.gateway.process.init_scripts import InitScripts
    from queuegate.gateway.tracing.spans import Tracing


_log = logging.getLogger("queuegate.server")

_MAX_OPERATIONS_CLIENTS = 256
_MAX_OPERATIONS_BODY_BYTES = 65_536
_SWITCH_SECONDS = 0.001
"""Longest time that a thread may delay the event loop at once (``sys.setswitchinterval``)."""


_OPENED_AFTER_SECONDS = 2.0
_IMPORTED_LATER = (
    "queuegate.gateway.pages.operator_pages",
    "queuegate.gateway.faces.rest.rest_face",
    "queuegate.gateway.faces.simple_face",
    "queuegate.gateway.faces.channels.channels_face",
    "queuegate.gateway.faces.logs.logs_face",
    "queuegate.gateway.faces.text_face",
)
_CHANNELS = ("/v1/channels", "/v1/messages", "/v1/dead-letter", "/v1/metrics")


async def run(
    settings: Settings,
    dsn: str,
    listening: ListeningSockets,
    on_ready: Callable[[], None],
    *,
    worker_number: int = 0,
    scripts: InitScripts | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain and return.

    Draining accepts no new connections and ends long polls. Requests in flight finish within
    ``settings.shutdown_deadline_seconds``; then workers and lanes close. ``scripts``: those of the
    shutdown run before the gateway drains.
    """
    async with (
        contextlib.aclosing(Audit()) as audit,
        open_tracing(settings) as tracing,
        open_engine(settings, dsn, tracing) as engine,
        watching(engine, settings.watched_dir) as disk,
    ):
        authenticator = _authenticator(settings, engine)
        authenticator.console = engine.console if settings.console != "off" else None
        authenticator.notes_origins = engine.policies is not None
        engine.account_of_key = authenticator.account_of
        aws = AwsFace(engine, authenticator, aws_bindings.BINDINGS)
        engine.series.traffic = _traffic(settings)
        certificate = tls_certificate(settings)
        metrics = MetricsPage(engine, settings.runtime_dir, worker_number, disk, certificate)
        engine.siblings.answers = _answers(engine, audit)
        admission = _admission(settings)
        fast_path = FastPath(
            aws,
            authenticator,
            admission,
            access_log=settings.access_log,
            links_url=links_url(settings),
            is_open="aws" in settings.faces,
        )
        faces = *_swap_in_mounts(aws, settings, scripts), *mounts_of(aws, settings, metrics)
        app = App(faces, engine.series, admission, _options(settings))
        fast_path.serve(app, tracing)
        app.auditor = fast_path.auditor = Auditor(audit) if audit_lines.is_on(settings) else None
        troubles = TroubleLog(engine.series.traffic)
        look = partial(_tick, engine.series, troubles, listening.public[0].fileno())
        config = _uvicorn_config(app, protocol_class(fast_path), settings.shutdown_deadline_seconds)
        server = GatewayServer(config, on_ready, look, certificate)
        workers = [time_keeping(engine)]
        if worker_number == 0:
            workers = _workers_of_first(engine, settings, tracing, metrics)
        async with (
            metrics.shared(),
            _at_work(workers),
            opened_soon(faces),
            _serving_operations(settings, aws, metrics, listening.operators),
            certificate.watched() if certificate else contextlib.nullcontext(),
        ):
            await _serve(engine, server, listening.public, scripts)


def _workers_of_first(
    engine: Engine, settings: Settings, tracing: Tracing | None, metrics: MetricsPage
) -> list[BackgroundWorker]:
    """Return the workers of the first process of a gateway."""
    workers = workers_for(engine, settings, tracing)
    if settings.otlp_metrics_enabled:
        from queuegate.gateway.metrics.otlp_metrics import MetricsPusher

        workers.append(MetricsPusher(metrics, settings))
    return workers


async def run_workers(
    settings: Settings, dsn: str, operators: Sockets, stop: asyncio.Event
) -> None:
    """Run the workers without any face until ``stop`` is set. ``operators``: sockets for probes and
    /metrics, if any."""
    async with open_tracing(settings) as tracing, open_engine(settings, dsn, tracing) as engine:
        aws = AwsFace(engine, _authenticator(settings, engine), {})
        metrics = MetricsPage(engine, None, 0)
        async with (
            _serving_operations(settings, aws, metrics, operators, engine.series.loop_lag.tick),
            _at_work(workers_for(engine, settings, tracing)),
        ):
            await stop.wait()


def _answers(engine: Engine, audit: Audit) -> dict[str, Callable[[str], bytes]]:
    """Return the answers to questions of the other processes of the gateway."""
    return {
        CONNECTIONS: partial(connections_here, engine),
        READERS: partial(readers_here, engine),
        audit_lines.NEWEST: audit.newest,
    }


def _tick(series: Series, troubles: TroubleLog, descriptor: int) -> None:
    series.loop_lag.tick()
    check_descriptors(series.traffic, descriptor)
    troubles.look(time.monotonic())


@contextlib.asynccontextmanager
async def _at_work(workers: list[BackgroundWorker]) -> AsyncIterator[None]:
    for number, worker in enumerate(workers):
        worker.start(after_seconds=0.1 * number)
    try:
        yield
    finally:
        for worker in workers:
            await worker.stop()


def _options(settings: Settings) -> AppOptions:
    return AppOptions(
        settings.base_url,
        links_url(settings),
        settings.max_body_bytes,
        settings.access_log,
        settings.signature_delay_ms / 1000,
    )


def _authenticator(settings: Settings, engine: Engine) -> Authenticator:
    common: CommonOptions = {
        "account_id": settings.account_id,
        "region": settings.region,
        "api_key": settings.api_key,
        "keys": engine.keys,
    }
    if settings.auth != "sigv4":
        return Authenticator(mode=settings.auth, accounts=settings.accounts, **common)
    return VerifyingAuthenticator(
        takes_session_tokens=settings.session_tokens == "accept",
        unsigned_needs_tls=settings.unsigned_payload == "tls",
        **common,
    )


def _traffic(settings: Settings) -> Traffic:
    own_files = settings.max_database_connections + settings.delivery_concurrency
    return Traffic(
        most_bytes=settings.max_buffered_bytes,
        most_clients=client_capacity(settings.max_clients, own_files),
    )


def _admission(settings: Settings) -> Admission:
    return Admission(
        listens_on=settings.hosts,
        base_url=settings.base_url,
        hosts=settings.allowed_hosts,
        origins=settings.allowed_origins,
        proxies=settings.trusted_proxies,
    )


async def _serve(
    engine: Engine, server: GatewayServer, sockets: Sockets, scripts: InitScripts | None
) -> None:
    loop = asyncio.get_running_loop()
    sys.setswitchinterval(_SWITCH_SECONDS)

    def run_scripts_and_stop() -> None:
        if scripts is None:
            stop()
            return
        from queuegate.gateway.process.init_scripts import Stage

        # A second signal stops at once.
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        done = loop.run_in_executor(None, scripts.run, Stage.SHUTDOWN)
        done.add_done_callback(lambda _: stop())

    def stop() -> None:
        if not engine.stopping:
            _log.info("draining")
        engine.stopping = True
        engine.draining.set()
        engine.wakeups.wake_all()
        engine.events.end_reads()
        server.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, run_scripts_and_stop)
    # Objects of the start live as long as the process: exclude them from garbage collections.
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    try:
        await server.serve(sockets=sockets)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


@contextlib.asynccontextmanager
async def _serving_operations(
    settings: Settings,
    aws: AwsFace,
    metrics: MetricsPage,
    sockets: Sockets,
    on_tick: Callable[[], object] = bool,
) -> AsyncIterator[None]:
    """Serve probes and /metrics on these sockets (QUEUEGATE_OPERATIONS_ADDRESS), if there are any.

    They have connections and limits of their own, so that a gateway full of clients still answers
    probes. While the gateway drains, it answers here until it ends.
    """
    if not sockets:
        yield
        return
    server = _operations_server(settings, aws, metrics, on_tick)
    serving = asyncio.create_task(server.serve(sockets=sockets), name="operators")
    try:
        yield
    finally:
        server.stop()
        await serving


def _operations_server(
    settings: Settings, aws: AwsFace, metrics: MetricsPage, on_tick: Callable[[], object]
) -> GatewayServer:
    def make_pages() -> Face:
        from queuegate.gateway.pages.operator_pages import probes

        return probes(aws.engine, metrics)

    assert settings.operations_address is not None
    admission = Admission(
        listens_on=settings.operations_address[0],
        hosts=settings.allowed_hosts,
        proxies=settings.trusted_proxies,
    )
    mount = Mount(
        make_pages, prefixes=("",), label=probe_label, may_navigate=is_navigation, is_operators=True
    )
    options = AppOptions(None, None, _MAX_OPERATIONS_BODY_BYTES, access_log=False)
    app = App((mount,), aws.engine.series, admission, options)
    fast_path = FastPath(aws, aws.callers, admission, access_log=False, is_open=False)
    fast_path.app = app
    fast_path.traffic = Traffic(
        most_bytes=settings.max_buffered_bytes, most_clients=_MAX_OPERATIONS_CLIENTS
    )
    config = _uvicorn_config(app, protocol_class(fast_path), 1)
    return GatewayServer(config, on_tick=on_tick)


class GatewayServer(uvicorn.Server):
    """Uvicorn without its signal handlers: ours have to run before connections drain."""

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
        """Start to drain."""
        self.should_exit = True
        self._stop_wanted.set()

    async def main_loop(self) -> None:
        """Tick once a second, for the Date header; uvicorn ticks ten times as often."""
        while not await self.on_tick(0):
            self._on_tick()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop_wanted.wait(), 1.0)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install nothing: the caller has installed our handlers."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then call ``on_ready``."""
        if self._certificate is None:
            await super().startup(sockets)
        else:
            self._listen_by_tls(sockets or [], self._certificate)
        if self.started:
            self._on_ready()

    def _listen_by_tls(self, sockets: list[socket.socket], certificate: Certificate) -> None:
        protocol: Any = self.config.http_protocol_class

        def make() -> asyncio.Protocol:
            connection: asyncio.Protocol = protocol(
                config=self.config, server_state=self.server_state, app_state={}
            )
            return connection

        listeners: Any = [
            TlsListener(sock, certificate, make, protocol.traffic) for sock in sockets
        ]
        self.servers = listeners
        self.started = True


def _uvicorn_config(
    app: App, protocol: type[FastProtocol], shutdown_seconds: int
) -> uvicorn.Config:
    """Return the configuration of uvicorn."""
    return uvicorn.Config(
        app,
        http=protocol,
        loop="none",
        lifespan="off",
        # Our connections ignore Upgrade: the next bytes are the next request, unless a face takes
        # the connection over, as WebSockets of channels do.
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


def mounts_of(aws: AwsFace, settings: Settings, metrics: MetricsPage) -> tuple[Mount, ...]:
    """Return the mounts of operators' pages, of faces below a prefix, and of AWS, which has every
    other path. A face that is switched off answers with a refusal. The pages are always on.
    """
    engine, callers = aws.engine, aws.callers

    def make_pages() -> Face:
        from queuegate.gateway.pages.operator_pages import pages

        return pages(engine, metrics, settings, callers)

    def make_rest() -> Face:
        from queuegate.gateway.faces.rest.rest_face import rest_face

        return rest_face(engine, callers)

    def make_simple() -> Face:
        from queuegate.gateway.faces.simple_face import simple_face

        return simple_face(engine, callers)

    def make_channels() -> Face:
        from queuegate.gateway.faces.channels.channels_face import channels_face

        return channels_face(engine, callers)

    def make_logs() -> Face:
        from queuegate.gateway.faces.logs.logs_face import logs_face

        return logs_face(engine, callers)

    def make_text() -> Face:
        from queuegate.gateway.faces.text_face import TextFace

        return TextFace(engine, callers)

    page_mount = Mount(
        make_pages,
        prefixes=page_paths.PREFIXES,
        also=page_paths.is_page,
        label=page_paths.page_label,
        may_navigate=is_navigation,
        is_operators=True,
    )
    faces = {
        # These faces share `/v1`: channels and logs come before REST.
        "channels": Mount.below("/v1/channels", make_channels, roots=_CHANNELS),
        "log": Mount.below("/v1/logs", make_logs, roots=("/v1/logs",)),
        "rest": Mount.below("/v1", make_rest),
        "simple": Mount.below("/api", make_simple),
        # Queue URLs are below this path.
        "text": Mount.at("/queue", make_text),
        "aws": Mount(lambda: aws, prefixes=("",), label=lambda _: "/", may_navigate=is_link_of_sns),
    }
    for name, mount in faces.items():
        if name not in settings.faces:
            mount.face = SwitchedOff(name, aws)
    return page_mount, *faces.values()


def _swap_in_mounts(
    aws: AwsFace, settings: Settings, scripts: InitScripts | None
) -> tuple[Mount, ...]:
    """Return the mount of the pages of a server that the gateway replaces, if it does."""
    if settings.like is None:
        return ()

    def make_pages() -> Face:
        from queuegate.gateway.pages.swap_in_pages import SwapInPages

        return SwapInPages(aws.engine, aws.callers, settings, scripts)

    mount = Mount(
        make_pages,
        prefixes=page_paths.SWAP_IN_PREFIXES,
        label=lambda _: "/_localstack",
    )
    mount.paths = page_paths.SWAP_IN_PAGES.get(settings.like, ())
    return (mount,)


def import_all() -> None:
    """Import the modules that are otherwise imported at the first request."""
    for name in _IMPORTED_LATER:
        importlib.import_module(name)


@contextlib.asynccontextmanager
async def opened_soon(faces: Iterable[Mount]) -> AsyncIterator[None]:
    """Open the faces for clients shortly after the start.

    A face that is opened at its first request could import files that an upgrade has replaced.
    """
    task = asyncio.create_task(_open(faces), name="faces")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _open(faces: Iterable[Mount]) -> None:
    await asyncio.sleep(_OPENED_AFTER_SECONDS)
    for mount in faces:
        # Probes open the pages for operators.
        if not mount.is_operators:
            await mount.open()
    _log.debug("all faces are open")

"""One gateway process: database, engine and app are put together and serve until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from queuegate.gateway import audit_lines
from queuegate.gateway.audit_lines import Audit
from queuegate.gateway.faces.aws import aws_bindings
from queuegate.gateway.faces.aws.aws_face import AwsFace, Binding
from queuegate.gateway.http.admission import Admission
from queuegate.gateway.http.app import App, Options
from queuegate.gateway.http.auditing import Auditor
from queuegate.gateway.http.auth import Authenticator
from queuegate.gateway.http.counted_connections import look_for_files, room_for_clients
from queuegate.gateway.http.fast_path import FastPath, FastProtocol, protocol_class
from queuegate.gateway.http.listening import Sockets, links_url
from queuegate.gateway.http.verified import VerifyingAuthenticator
from queuegate.gateway.metrics.pushing import PushMetrics
from queuegate.gateway.metrics.scraping import Metrics
from queuegate.gateway.operations.runtime.traffic import Traffic
from queuegate.gateway.process.assembly import open_engine
from queuegate.gateway.process.background import Background, workers_for
from queuegate.gateway.process.disk import watching
from queuegate.gateway.process.faces import entrances, opened_soon
from queuegate.gateway.process.operators import served_apart
from queuegate.gateway.process.serving import Server, config_of
from queuegate.gateway.process.supplied_keys import tls_certificate
from queuegate.gateway.tracing.opening import open_tracing

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings
    from queuegate.gateway.faces.interface import Mount
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.gateway.operations.telemetry.series import Series
    from queuegate.gateway.tracing.spans import Tracing

_log = logging.getLogger("queuegate.server")

_NONE: Sockets = []
_SWITCH_SECONDS = 0.001
"""How long a thread beside the event loop may hold it up at a time (``sys.setswitchinterval``)."""


async def run(
    settings: Settings,
    dsn: str,
    sockets: Sockets,
    on_ready: Callable[[], None],
    *,
    operators: Sockets = _NONE,
    worker_number: int = 0,
) -> None:
    """Serve on ``sockets`` until SIGTERM or SIGINT, then drain and return. Probes and scrapes are
    answered on those for ``operators`` if there are any.

    Draining: no new connections, long polls end with what they have, what is in flight is finished
    within ``settings.shutdown_deadline_seconds``, then workers and lanes close.
    """
    async with (
        contextlib.aclosing(Audit()) as audit,
        open_tracing(settings) as tracing,
        open_engine(settings, dsn, tracing) as engine,
        watching(engine, settings.watched_dir) as disk,
    ):
        authenticator = _authenticator(settings, engine)
        authenticator.notes_origins = engine.policies is not None
        engine.account_of_key = authenticator.account_of
        aws = AwsFace(engine, authenticator, _bindings(tracing))
        engine.series.traffic = _traffic(settings)
        metrics = Metrics(engine, settings.runtime_dir, worker_number, disk)

        admission = _admission(settings)
        links = links_url(settings)
        fast_path = FastPath(
            aws,
            authenticator,
            admission,
            access_log=settings.access_log,
            links_url=links,
            is_open="aws" in settings.faces,
        )
        faces = entrances(aws, settings, metrics)
        doors = (faces, engine.series, admission, _options(settings))
        app, protocol = _served(doors, fast_path, tracing)
        app.auditor = fast_path.auditor = Auditor(audit) if audit_lines.is_on(settings) else None
        look = partial(look_for_files, engine.series.traffic, sockets[0].fileno())
        config = config_of(app, protocol, settings.shutdown_deadline_seconds)
        certificate = tls_certificate(settings)
        server = Server(config, on_ready, look, certificate)
        workers = workers_for(engine, settings, tracing) if worker_number == 0 else []
        if settings.otlp_metrics_enabled and worker_number == 0:
            workers.append(PushMetrics(metrics, settings))
        async with (
            metrics.shared(),
            _at_work(workers),
            opened_soon(faces),
            served_apart(settings, aws, metrics, operators),
            certificate.watched() if certificate else contextlib.nullcontext(),
        ):
            await _serve(engine, server, sockets)


@contextlib.asynccontextmanager
async def _at_work(workers: list[Background]) -> AsyncIterator[None]:
    for number, worker in enumerate(workers):
        worker.start(after_seconds=0.1 * number)
    try:
        yield
    finally:
        for worker in workers:
            await worker.stop()


def _options(settings: Settings) -> Options:
    return Options(
        settings.base_url,
        links_url(settings),
        settings.max_body_bytes,
        settings.access_log,
        settings.signature_delay_ms / 1000,
    )


def _authenticator(settings: Settings, engine: Engine) -> Authenticator:
    if settings.auth == "sigv4":
        return VerifyingAuthenticator(
            account_id=settings.account_id,
            region=settings.region,
            api_key=settings.api_key,
            keys=engine.keys,
            takes_session_tokens=settings.session_tokens == "accept",
            unsigned_needs_tls=settings.unsigned_payload == "tls",
        )
    return Authenticator(
        mode=settings.auth,
        accounts=settings.accounts,
        account_id=settings.account_id,
        region=settings.region,
        api_key=settings.api_key,
        keys=engine.keys,
    )


def _traffic(settings: Settings) -> Traffic:
    own_files = settings.max_database_connections + settings.delivery_concurrency
    return Traffic(
        most_bytes=settings.max_buffered_bytes,
        most_clients=room_for_clients(settings.max_clients, own_files),
    )


_Bindings = Mapping[str, Mapping[str, Binding]]


def _bindings(tracing: Tracing | None) -> _Bindings:
    if tracing is None:
        return aws_bindings.BINDINGS
    from queuegate.gateway.tracing.requests import traced_bindings

    return traced_bindings(aws_bindings.BINDINGS)


def _admission(settings: Settings) -> Admission:
    return Admission(
        listens_on=settings.hosts,
        base_url=settings.base_url,
        hosts=settings.allowed_hosts,
        origins=settings.allowed_origins,
        proxies=settings.trusted_proxies,
    )


def _served(
    doors: tuple[tuple[Mount, ...], Series, Admission, Options],
    fast_path: FastPath,
    tracing: Tracing | None,
) -> tuple[App, type[FastProtocol]]:
    """What answers on the ordinary path, and the protocol class with the fast one."""
    if tracing is None:
        app = fast_path.app = App(*doors)
        return app, protocol_class(fast_path)
    from queuegate.gateway.tracing.fast_path import traced_protocol_class
    from queuegate.gateway.tracing.requests import TracedApp

    return TracedApp(tracing, *doors), traced_protocol_class(tracing, fast_path)


async def _serve(engine: Engine, server: Server, sockets: Sockets) -> None:
    loop = asyncio.get_running_loop()
    sys.setswitchinterval(_SWITCH_SECONDS)

    def stop() -> None:
        if not engine.stopping:
            _log.info("draining")
        engine.stopping = True
        engine.wakeups.wake_all()
        server.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    # Whatever was made until now stays: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    try:
        await server.serve(sockets=sockets)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

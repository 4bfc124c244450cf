"""`queuegate serve` and its relatives: the database up, then the gateway, then both down."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from queuegate.gateway import audit_lines, log_lines
from queuegate.gateway.command.banner import banner
from queuegate.gateway.command.privileges import give_up_root, remaining_risk
from queuegate.gateway.command.supervisor import Supervisor
from queuegate.gateway.configuration.settings import BadSetting, Settings
from queuegate.gateway.configuration.values import is_loopback
from queuegate.gateway.http.listening import (
    OPERATIONS_ADDRESS,
    Binding,
    CannotListen,
    Doors,
    bind,
    closing,
    links_url,
    port_of,
    reserve,
)
from queuegate.gateway.process.supplied_keys import tls_certificate
from queuegate.storage.embedded import CannotStart, EmbeddedPostgres

# What one process uses beside its pool: lanes, listening, workers, with room to spare.
_CONNECTIONS_BESIDE_POOL = 17
_CONNECTIONS_IN_RESERVE = 20
_RUNTIME_PREFIX = "queuegate-run-"
_log = logging.getLogger("queuegate.server")


_Result = TypeVar("_Result")


class _Stopped(BaseException):
    """A signal to stop, while nothing is served yet."""


def serve(settings: Settings) -> int:
    """Serve until SIGINT or SIGTERM, then drain and stop what was started; the exit code."""
    log_lines.configure(settings)
    try:
        with _stop_by_signal(), _listening(settings) as doors:
            # Again: whose user we are now may not read what root did.
            tls_certificate(settings)
            return _serve_at(settings, doors)
    except _Stopped:
        return 0
    except (CannotListen, CannotStart, BadSetting, _refused()) as refusal:
        return _fail(refusal)


def _serve_at(settings: Settings, doors: Doors) -> int:
    with _Database(settings) as database:
        audit_lines.configure(settings)
        if settings.workers > 1:
            return _supervise(settings, database, doors)
        return _serve_here(settings, database, doors)


def migrate_only(settings: Settings, *, finish: bool) -> int:
    """Apply what is missing, with ``finish`` also what older gateways would miss, and say what; the
    exit code."""
    try:
        give_up_root(settings)
        with _stop_by_signal(), _Database(settings) as database:
            names = _run(_prepared(database.wait_ready(), finish=finish))
    except _Stopped:
        return 1
    except (CannotStart, _refused()) as refusal:
        return _fail(refusal)
    print(
        "\n".join(f"applied {name}" for name in names) or "nothing to do: the database is current"
    )
    return 0


def work(settings: Settings) -> int:
    """Run the background workers on DATABASE_URL until SIGINT or SIGTERM; the exit code."""
    if settings.database_url is None:
        print(
            "queuegate: worker needs DATABASE_URL: the bundled PostgreSQL belongs to `queuegate "
            "serve`, which runs the workers itself",
            file=sys.stderr,
        )
        return 2
    dsn = settings.database_url
    log_lines.configure(settings)
    try:
        with _stop_by_signal():
            # Listening nowhere, they have no loopback address to allow private web hooks by.
            settings = replace(settings, private_webhooks=bool(settings.private_webhooks))
            _run(_work(settings, dsn))
    except _Stopped:
        return 0
    except _refused() as refusal:
        return _fail(refusal)
    return 0


def _serve_as_worker(settings: Settings, number: int, parent: socket.socket) -> int:
    """Serve in one gateway process of several; the exit code."""

    def stop_when_parent_dies() -> None:
        with contextlib.suppress(OSError):
            parent.recv(1)
        os.kill(os.getpid(), signal.SIGTERM)

    # Death of the supervisor closes its end of the pair, whatever it died of, on every system.
    threading.Thread(target=stop_when_parent_dies, daemon=True).start()
    how = Binding(shared=True, quiet=True)
    sockets = bind(settings.hosts, settings.port, how)
    # One of them is enough: it adds up what all of them have counted.
    apart = settings.operations_address if number == 0 else None
    operators = bind(*apart, how) if apart else []
    from queuegate.gateway.process import server

    def tell_parent() -> None:
        parent.sendall(b"1")

    assert settings.database_url is not None
    with contextlib.suppress(_Stopped):
        _run(
            server.run(
                settings,
                settings.database_url,
                sockets,
                tell_parent,
                operators=operators,
                worker_number=number,
            )
        )
    return 0


def _serve_here(settings: Settings, database: _Database, doors: Doors) -> int:
    # While the database boots, import what takes longest. The collector would only look at modules.
    gc.disable()
    from queuegate.gateway.process import server

    gc.enable()
    dsn = database.wait_ready()
    # Where nothing but a schedule publishes, links lead to the port that was taken.
    own = replace(settings, port=port_of(doors.public), watched_dir=_watched_dir(settings))

    async def prepare_and_run() -> None:
        await _prepared(dsn)
        await _keys_prepared(settings, dsn, database.data_dir)
        database.wait_durable()
        await server.run(
            own, dsn, doors.public, lambda: _announce(settings, doors), operators=doors.operators
        )

    _run(prepare_and_run())
    return 0


def _supervise(settings: Settings, database: _Database, doors: Doors) -> int:
    gc.disable()
    from queuegate.gateway.process import server  # noqa: F401 - the children have it then
    from queuegate.gateway.process.faces import import_all

    import_all()
    gc.enable()
    dsn = database.wait_ready()
    _run(_prepared(dsn))
    _run(_keys_prepared(settings, dsn, database.data_dir))
    database.wait_durable()
    runtime_dir = _make_runtime_dir()
    own = replace(
        settings,
        database_url=dsn,
        port=port_of(doors.public),
        operations_address=_taken(settings, doors),
        runtime_dir=runtime_dir,
        watched_dir=_watched_dir(settings),
    )
    supervisor = Supervisor(
        work=partial(_serve_as_worker, own),
        count=settings.workers,
        drain_seconds=settings.shutdown_deadline_seconds + 5.0,
    )
    try:
        return supervisor.run(lambda: _announce(settings, doors))
    finally:
        shutil.rmtree(runtime_dir, ignore_errors=True)


def _watched_dir(settings: Settings) -> Path | None:
    """Whose disk is ours to watch: not that of somebody's database, nor one for a test."""
    return None if settings.database_url or settings.ephemeral else settings.data_dir


def _make_runtime_dir() -> Path:
    """A private directory with a short path, named for this process; those of dead ones go."""
    for left in Path("/tmp").glob(_RUNTIME_PREFIX + "*"):
        owner = left.name.removeprefix(_RUNTIME_PREFIX).partition("-")[0]
        with contextlib.suppress(OSError, ValueError):
            if left.lstat().st_uid == os.geteuid() and not _is_alive(int(owner)):
                shutil.rmtree(left, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_RUNTIME_PREFIX}{os.getpid()}-", dir="/tmp"))


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


async def _work(settings: Settings, dsn: str) -> None:
    import asyncio

    from queuegate.gateway.process import background

    await _prepared(dsn)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    print("Queuegate's background workers run. Ctrl-C stops them.", flush=True)
    await background.run_workers(settings, dsn, stop)


async def _prepared(dsn: str, *, finish: bool = False) -> list[str]:
    """Check the database and bring it up to date; the names of the migrations that were applied."""
    from queuegate.storage import preflight
    from queuegate.storage.migrate import migrate

    connection = await preflight.connect(dsn)
    try:
        return await migrate(connection, finish=finish)
    finally:
        await connection.close()


async def _keys_prepared(settings: Settings, dsn: str, directory: Path) -> None:
    if settings.master_keys is not None:
        from queuegate.gateway.command.first_key import prepare_keys

        await prepare_keys(settings, dsn, settings.master_keys, directory)


def _run(main: Coroutine[Any, Any, _Result]) -> _Result:
    """Run it to its end, or to a signal to stop that it does not take itself: _Stopped."""
    import asyncio

    import uvloop

    is_stopped = False

    async def stoppable() -> _Result:
        task = asyncio.ensure_future(main)

        def stop() -> None:
            nonlocal is_stopped
            is_stopped = True
            task.cancel()

        loop = asyncio.get_running_loop()
        # Whatever a handler of Python raises while the loop runs is logged by uvloop and forgotten.
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        return await task

    try:
        return uvloop.run(stoppable())
    except asyncio.CancelledError:
        if is_stopped:
            raise _Stopped from None
        raise


@contextlib.contextmanager
def _listening(settings: Settings) -> Iterator[Doors]:
    apart = settings.operations_address
    with contextlib.ExitStack() as stack:
        if settings.workers > 1:
            # Processes that share a port must be one user's.
            give_up_root(settings)
            public = stack.enter_context(closing(reserve(settings.hosts, settings.port)))
            operators = reserve(*apart, OPERATIONS_ADDRESS) if apart else []
        else:
            public = stack.enter_context(closing(bind(settings.hosts, settings.port)))
            how = Binding(named_by=OPERATIONS_ADDRESS)
            operators = bind(*apart, how) if apart else []
            give_up_root(settings)
        yield Doors(public, stack.enter_context(closing(operators)))


def _taken(settings: Settings, doors: Doors) -> tuple[tuple[str, ...], int] | None:
    """Where probes are answered, with the port that is a free one where none was asked for."""
    apart = settings.operations_address
    return (apart[0], port_of(doors.operators)) if apart else None


class _Database:
    """The database that is served from: ours, started and stopped here, or one that is there."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.database_url
        self.data_dir = settings.data_dir
        """Where what belongs to the data may lie: with ephemeral data it goes when they go."""
        self._postgres: EmbeddedPostgres | None = None
        self._is_lost = False
        if self._url is None:
            per_process = settings.max_database_connections + _CONNECTIONS_BESIDE_POOL
            self._postgres = EmbeddedPostgres(
                settings.data_dir,
                ephemeral=settings.ephemeral,
                max_connections=_CONNECTIONS_IN_RESERVE + settings.workers * per_process,
            )
            self.data_dir = self._postgres.data_dir
            self._postgres.on_lost = self._lost
            risk = remaining_risk(settings)
            if risk:
                _log.warning("%s", risk)

    def __enter__(self) -> _Database:
        if self._postgres is not None:
            try:
                self._postgres.start()
            except BaseException:
                self._postgres.stop()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        # A second Ctrl-C must not leave the database half stopped; it has its own deadline.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        if self._postgres is not None:
            self._postgres.stop()
        if self._is_lost:
            raise CannotStart(
                f"the data directory {self.data_dir} was deleted while it was in use: stopped"
            )

    def _lost(self) -> None:
        self._is_lost = True
        os.kill(os.getpid(), signal.SIGTERM)

    def wait_ready(self) -> str:
        """The URL, once it takes connections."""
        if self._postgres is None:
            assert self._url is not None
            return self._url
        self._postgres.wait_ready(on_slow=lambda text: print(text + " ...", flush=True))
        return self._postgres.dsn

    def wait_durable(self) -> None:
        """Return when what is committed from now on survives a loss of power."""
        if self._postgres is not None:
            self._postgres.wait_durable()


@contextlib.contextmanager
def _stop_by_signal() -> Iterator[None]:
    """Turn SIGINT and SIGTERM into _Stopped until the gateway takes them over."""

    def stop(*_: object) -> None:
        raise _Stopped

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _announce(settings: Settings, doors: Doors) -> None:
    # Whoever read our output may be gone; that is no reason to stop serving.
    with contextlib.suppress(OSError):
        print(banner(settings, doors), flush=True)
    if not settings.is_local:
        _warn_of_strangers(replace(settings, port=port_of(doors.public)))


def _warn_of_strangers(settings: Settings) -> None:
    """Say what whoever reaches a port beyond loopback may do."""
    if settings.auth != "sigv4":
        _log.warning(
            "listening on %s without verifying signatures (QUEUEGATE_AUTH=%s): whoever reaches port"
            " %d may read and change everything",
            ", ".join(host for host in settings.hosts if not is_loopback(host)),
            settings.auth,
            settings.port,
        )
    if settings.base_url is None:
        _log.warning(
            "links in messages of SNS lead to %s: set QUEUEGATE_BASE_URL to where their receivers "
            "reach this gateway",
            links_url(settings),
        )


def _refused() -> type[Exception]:
    # Imported late: it brings asyncpg, which the bundled database's boot hides.
    from queuegate.storage.preflight import DatabaseRefused

    return DatabaseRefused


def _fail(refusal: BaseException) -> int:
    print(f"queuegate: {refusal}", file=sys.stderr)
    return 1

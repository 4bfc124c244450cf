"""`queuegate serve`, `migrate` and `worker`: start the database, run the processes, stop both."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from queuegate.gateway import audit_lines, log_lines
from queuegate.gateway.command.command_line import fail
from queuegate.gateway.command.supervisor import Supervisor, give_up_root, remaining_risk
from queuegate.gateway.configuration.settings import BadSetting, Settings, process_environment
from queuegate.gateway.configuration.swap_ins import SWAP_INS, missing_services
from queuegate.gateway.configuration.values import is_loopback
from queuegate.gateway.http.listening import (
    OPERATIONS_ADDRESS,
    Binding,
    CannotListen,
    ListeningSockets,
    bind,
    closing,
    links_url,
    port_of,
    reserve,
    shown_addresses,
    url_of,
)
from queuegate.gateway.process.key_files import tls_certificate
from queuegate.storage.embedded.cache_directory import cache_directory
from queuegate.storage.embedded.embedded_server import EmbeddedPostgres
from queuegate.storage.embedded.postgres_account import CannotStart

if TYPE_CHECKING:
    from queuegate.gateway.command.seed_command import StartWithSeed
    from queuegate.gateway.process.init_scripts import InitScripts


# Connections of one process outside its pool: lanes, notifications and workers, with a reserve.
_CONNECTIONS_BESIDE_POOL = 17
_CONNECTIONS_IN_RESERVE = 20
_PARENT_SECONDS = 0.5
_RUNTIME_PREFIX = "queuegate-run-"
_log = logging.getLogger("queuegate.server")


_Result = TypeVar("_Result")


class _Stopped(BaseException):
    """SIGINT or SIGTERM came before the gateway handles signals itself."""


def serve(settings: Settings) -> int:
    """Serve until SIGINT or SIGTERM, drain, and stop the database; return the exit code."""
    log_lines.configure(settings)
    try:
        with _stop_by_signal(), _listening(settings) as listening:
            # Checked again: the unprivileged account may be unable to read the files.
            tls_certificate(settings)
            return _serve_at(settings, listening)
    except _Stopped:
        return 0
    except (CannotListen, CannotStart, BadSetting, _refused()) as refusal:
        return fail(str(refusal))


def _serve_at(settings: Settings, listening: ListeningSockets) -> int:
    seed = _seed_of(settings)
    with _scripts_of(settings) as scripts, _Database(settings) as database:
        audit_lines.configure(settings)
        if settings.workers > 1:
            return _supervise(settings, database, listening, seed)
        return _serve_here(settings, database, listening, scripts, seed)


def _seed_of(settings: Settings) -> StartWithSeed | None:
    if settings.config is None:
        return None
    from queuegate.gateway.command.seed_command import seed_of_settings

    return seed_of_settings(settings, settings.config)


def migrate_only(settings: Settings, *, finish: bool, backup: Path | None = None) -> int:
    """Apply and print missing migrations; return the exit code.

    ``finish``: also those that break gateways of an older version. ``backup``: file for a backup
    before data is changed.
    """
    try:
        give_up_root(settings)
        with _stop_by_signal(), _Database(settings) as database:
            names = _run(_migrated(database.wait_ready(), finish=finish, backup=backup))
    except _Stopped:
        return 1
    except (CannotStart, _refused()) as refusal:
        return fail(str(refusal))
    print(
        "\n".join(f"applied {name}" for name in names) or "nothing to do: the database is current"
    )
    return 0


def work(settings: Settings) -> int:
    """Run the background workers on DATABASE_URL until SIGINT or SIGTERM; return the exit code."""
    dsn = settings.session_url
    if dsn is None:
        print(
            "queuegate: worker needs DATABASE_URL: the bundled PostgreSQL belongs to `queuegate "
            "serve`, which runs the workers itself",
            file=sys.stderr,
        )
        return 2
    log_lines.configure(settings)
    try:
        with _stop_by_signal(), closing(_operators_bound(settings)) as operators:
            # Workers do not listen on loopback, so private web hooks need an explicit setting.
            settings = replace(settings, private_webhooks=bool(settings.private_webhooks))
            _run(_work(settings, dsn, ListeningSockets([], operators)))
    except _Stopped:
        return 0
    except (CannotListen, _refused()) as refusal:
        return fail(str(refusal))
    return 0


def _serve_as_worker(settings: Settings, number: int, parent: socket.socket) -> int:
    """Serve in one of several gateway processes; return the exit code."""

    def stop_when_parent_dies() -> None:
        with contextlib.suppress(OSError):
            parent.recv(1)
        os.kill(os.getpid(), signal.SIGTERM)

    # The supervisor's end of the pair closes when it dies of any cause, on every system.
    threading.Thread(target=stop_when_parent_dies, daemon=True).start()
    how = Binding(shared=True, quiet=True)
    sockets = bind(settings.hosts, settings.port, how)
    # One process is enough: it adds up the counters of all.
    apart = settings.operations_address if number == 0 else None
    operators = bind(*apart, how) if apart else []
    from queuegate.gateway.process import gateway_process

    def notify_parent() -> None:
        parent.sendall(b"1")

    assert settings.session_url is not None
    with contextlib.suppress(_Stopped):
        _run(
            gateway_process.run(
                settings,
                settings.session_url,
                ListeningSockets(sockets, operators),
                notify_parent,
                worker_number=number,
            )
        )
    return 0


@contextlib.contextmanager
def _scripts_of(settings: Settings) -> Iterator[InitScripts | None]:
    """Yield the scripts of the start and the end, if there are any, after those of the boot."""
    environ = process_environment()
    missing = missing_services(settings.like, environ)
    if missing:
        _log.warning("SERVICES names %s: this gateway does not have them", ", ".join(missing))
    if settings.init_dir is None:
        yield None
        return
    from queuegate.gateway.process.init_scripts import InitScripts, Stage

    scripts = InitScripts(settings.init_dir, environ, settings.region)
    try:
        scripts.run(Stage.BOOT)
        scripts.run(Stage.START)
        yield scripts
    finally:
        scripts.close()


def _serve_here(
    settings: Settings,
    database: _Database,
    listening: ListeningSockets,
    scripts: InitScripts | None,
    seed: StartWithSeed | None,
) -> int:
    # Import the slowest modules while the database boots.
    from queuegate.gateway.process import gateway_process

    gc.enable()
    dsn = database.wait_ready()
    # Links in messages of schedules need the port that was bound.
    own = replace(settings, port=port_of(listening.public), watched_dir=_watched_dir(settings))

    async def prepare_and_run() -> None:
        await _data_prepared(own, dsn, database, seed)
        await gateway_process.run(
            own,
            dsn,
            listening,
            lambda: _announce(settings, listening, scripts),
            scripts=scripts,
        )

    _run(prepare_and_run())
    return 0


def _supervise(
    settings: Settings,
    database: _Database,
    listening: ListeningSockets,
    seed: StartWithSeed | None,
) -> int:
    from queuegate.gateway.process.gateway_process import import_all

    import_all()
    gc.enable()
    dsn = database.wait_ready()
    settings = replace(settings, port=port_of(listening.public))
    _run(_data_prepared(settings, dsn, database, seed))
    runtime_dir = _make_runtime_dir()
    own = replace(
        settings,
        database_url=settings.database_url or dsn,
        operations_address=_taken(settings, listening),
        runtime_dir=runtime_dir,
        watched_dir=_watched_dir(settings),
    )
    supervisor = Supervisor(
        work=partial(_serve_as_worker, own),
        count=settings.workers,
        drain_seconds=settings.shutdown_deadline_seconds + 5.0,
    )
    try:
        return supervisor.run(lambda: _announce(settings, listening))
    finally:
        shutil.rmtree(runtime_dir, ignore_errors=True)


def _watched_dir(settings: Settings) -> Path | None:
    """Return the data directory to watch; None for a database of others or ephemeral data."""
    return None if settings.database_url or settings.ephemeral else settings.data_dir


def _make_runtime_dir() -> Path:
    """Create a private directory with a short path; delete those of dead processes."""
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


async def _work(settings: Settings, dsn: str, listening: ListeningSockets) -> None:
    import asyncio

    from queuegate.gateway.process import gateway_process

    await _prepared(dsn, settings.database_url)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    print("Queuegate's background workers run. Ctrl-C stops them.")
    print(_operators(settings, listening), end="", flush=True)
    await gateway_process.run_workers(settings, dsn, listening.operators, stop)


async def _prepared(dsn: str, pool_dsn: str | None) -> None:
    """Check and migrate the database, and check its pooler if it has one."""
    from queuegate.storage import preflight
    from queuegate.storage.migrate import migrate

    connection = await preflight.connect(dsn)
    try:
        await migrate(connection)
        if pool_dsn not in (None, dsn):
            await preflight.check_pool(pool_dsn, connection)
    finally:
        await connection.close()


async def _migrated(dsn: str, *, finish: bool, backup: Path | None) -> list[str]:
    """Back up the database if it has data to migrate, and migrate it; return the names of the
    applied migrations."""
    from queuegate.gateway.command.backup_command import back_up
    from queuegate.storage import preflight
    from queuegate.storage.backups import has_data
    from queuegate.storage.migrate import migrate, pending

    connection = await preflight.connect(dsn)
    try:
        if await pending(connection, finish=finish) and await has_data(connection):
            if backup is not None:
                await back_up(dsn, backup)
            else:
                print(
                    "queuegate: a migration cannot be undone: `queuegate migrate --backup FILE` "
                    "backs the data up first",
                    file=sys.stderr,
                )
        elif backup is not None:
            print(f"no data to migrate: {backup} is not written", file=sys.stderr)
        return await migrate(connection, finish=finish)
    finally:
        await connection.close()


async def _data_prepared(
    settings: Settings, dsn: str, database: _Database, seed: StartWithSeed | None
) -> None:
    """Migrate the database, prepare keys, and apply a seed file."""
    await database.prepare(dsn)
    await _keys_prepared(settings, dsn, database.data_dir)
    database.wait_durable()
    if seed is not None:
        await seed(settings, dsn)


async def _keys_prepared(settings: Settings, dsn: str, directory: Path) -> None:
    if settings.master_keys is not None:
        from queuegate.gateway.command.database_session import prepare_keys

        await prepare_keys(settings, dsn, settings.master_keys, directory)


def _run(main: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a coroutine. Raises _Stopped on a signal that the coroutine does not handle itself."""
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
        # uvloop logs and drops exceptions of Python signal handlers, so the loop handles signals.
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
def _listening(settings: Settings) -> Iterator[ListeningSockets]:
    apart = settings.operations_address
    with contextlib.ExitStack() as stack:
        if settings.workers > 1:
            # Processes that share a port need the same user.
            give_up_root(settings)
            public = stack.enter_context(closing(reserve(settings.hosts, settings.port)))
            operators = reserve(*apart, OPERATIONS_ADDRESS) if apart else []
        else:
            public = stack.enter_context(closing(bind(settings.hosts, settings.port)))
            operators = _operators_bound(settings)
            give_up_root(settings)
        yield ListeningSockets(public, stack.enter_context(closing(operators)))


def _operators_bound(settings: Settings) -> list[socket.socket]:
    """Return the sockets of QUEUEGATE_OPERATIONS_ADDRESS, if it is set."""
    apart = settings.operations_address
    return bind(*apart, Binding(named_by=OPERATIONS_ADDRESS)) if apart else []


def _taken(settings: Settings, listening: ListeningSockets) -> tuple[tuple[str, ...], int] | None:
    """Return the operations address with the port that was bound."""
    apart = settings.operations_address
    return (apart[0], port_of(listening.operators)) if apart else None


class _Database:
    """The database of a gateway: the bundled one, started and stopped here, or an existing one."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.session_url
        self._pool_url = settings.database_url
        self.data_dir = settings.data_dir
        """Directory for files that belong to the data; ephemeral data is deleted with it."""
        self._postgres: EmbeddedPostgres | None = None
        self._is_lost = False
        if self._url is None:
            per_process = settings.max_database_connections + _CONNECTIONS_BESIDE_POOL
            self._postgres = EmbeddedPostgres(
                settings.data_dir,
                ephemeral=settings.ephemeral,
                max_connections=_CONNECTIONS_IN_RESERVE + settings.workers * per_process,
                cache=cache_directory(process_environment()) if settings.ephemeral else None,
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
        # A second Ctrl-C must not interrupt the stop, which has a deadline of its own.
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
        """Wait until the database accepts connections; return its URL."""
        if self._postgres is None:
            assert self._url is not None
            return self._url
        self._postgres.wait_ready(on_slow=lambda text: print(text + " ...", flush=True))
        return self._postgres.dsn

    async def prepare(self, dsn: str) -> None:
        """Check and migrate the database, unless it is a copy of a migrated cluster."""
        if self._postgres is None or not self._postgres.is_migrated:
            await _prepared(dsn, self._pool_url)
            if self._postgres is not None:
                self._postgres.keep_template()

    def wait_durable(self) -> None:
        """Wait until commits survive a power loss."""
        if self._postgres is not None:
            self._postgres.wait_durable()


@contextlib.contextmanager
def _stop_by_signal() -> Iterator[None]:
    """Turn SIGINT and SIGTERM into _Stopped until the gateway handles them."""

    def stop(*_: object) -> None:
        raise _Stopped

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _announce(
    settings: Settings, listening: ListeningSockets, scripts: InitScripts | None = None
) -> None:
    # A closed stdout must not stop the gateway.
    with contextlib.suppress(OSError):
        print(_banner(settings, listening), flush=True)
    if settings.parent_pid is not None:
        watch = partial(_end_with, settings.parent_pid)
        threading.Thread(target=watch, name="parent", daemon=True).start()
    if settings.like is not None or scripts is not None:
        url = url_of(listening.public, settings.hosts, settings.scheme)
        run = partial(_run_scripts, settings, scripts, url)
        threading.Thread(target=run, name="init", daemon=True).start()
    if not settings.is_local:
        _warn_of_exposure(replace(settings, port=port_of(listening.public)))


def _end_with(parent_pid: int) -> None:
    """End this process when its parent has ended."""
    with contextlib.suppress(ProcessLookupError):
        if sys.platform == "linux":
            # Unlike its number, it is never that of a later process.
            with open(os.pidfd_open(parent_pid)) as parent:
                select.select([parent], [], [])
        while _is_alive(parent_pid):
            time.sleep(_PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def _run_scripts(settings: Settings, scripts: InitScripts | None, url: str) -> None:
    """Run the scripts that need a gateway; then print the line that other servers print."""
    if scripts is not None:
        from queuegate.gateway.process.init_scripts import Stage

        scripts.use_endpoint(url)
        scripts.run(Stage.READY)
    if settings.like is not None:
        with contextlib.suppress(OSError):
            print(SWAP_INS[settings.like].ready_line, flush=True)


def _warn_of_exposure(settings: Settings) -> None:
    """Warn of a port beyond loopback that needs no signatures, and of links without a base URL."""
    if settings.auth != "sigv4":
        _log.warning(
            "listening on %s without verifying signatures (QUEUEGATE_AUTH=%s): every client of port"
            " %d can read and change everything",
            ", ".join(host for host in settings.hosts if not is_loopback(host)),
            settings.auth,
            settings.port,
        )
    if settings.base_url is None and settings.like is None:
        _log.warning(
            "links in SNS messages lead to %s: set QUEUEGATE_BASE_URL to the address at which "
            "receivers reach this gateway",
            links_url(settings),
        )


def _refused() -> type[Exception]:
    # Imported late: asyncpg loads while the bundled database boots.
    from queuegate.storage.preflight import DatabaseRefused

    return DatabaseRefused


def _banner(settings: Settings, listening: ListeningSockets) -> str:
    """Return the start banner: addresses, data, documentation, and lines to paste into a shell."""
    url = settings.base_url or url_of(listening.public, settings.hosts, settings.scheme)
    if settings.banner == "json":
        return json.dumps({"url": url, "pid": os.getpid()})
    return f"""\
Queuegate is ready: {url}
  listen   {" ".join(shown_addresses(listening.public))}
{_operators(settings, listening)}\
  data     {_data(settings)}
  pages    {url}/docs{"" if settings.console == "off" else f" {url}/console"}
  stop     Ctrl-C
{_usage(settings, url) if settings.like is None and "aws" in settings.faces else ""}"""


def _usage(settings: Settings, url: str) -> str:
    key, secret, by_curl = "any", "any", "-H 'Authorization: any'"
    if settings.auth == "sigv4":
        key, secret = "KEY", "SECRET"
        by_curl = f"--aws-sigv4 aws:amz:{settings.region}:sqs --user KEY:SECRET"
    return f"""\
export AWS_ENDPOINT_URL={url} AWS_DEFAULT_REGION={settings.region}
export AWS_ACCESS_KEY_ID={key} AWS_SECRET_ACCESS_KEY={secret}
curl {by_curl} {url} -d Action=CreateQueue -d QueueName=hello"""


def _operators(settings: Settings, listening: ListeningSockets) -> str:
    if settings.operations_address is None:
        return ""
    url = url_of(listening.operators, settings.operations_address[0])
    return f"  operate  {url}/metrics, /livez and /readyz\n"


def _data(settings: Settings) -> str:
    if settings.database_url is not None:
        from queuegate.storage.preflight import shown

        return f"PostgreSQL at {shown(settings.database_url)}"
    if settings.ephemeral:
        return "ephemeral: deleted when the gateway stops"
    return f"{settings.data_dir} (later starts reuse it)"

"""The bundled PostgreSQL: a direct child of the gateway, on a Unix socket only.

It starts and stops with the gateway. A stop is a fast shutdown. If the gateway is killed with -9,
Linux sends the child SIGINT (the parent-death signal), which is the same fast shutdown: no process
remains, no data is lost, and the next start needs no recovery. Without this signal, the next start
stops the remaining server.

Its settings are written to `queuegate.conf` in the data directory, outside of PostgreSQL's own
files. They are read after `postgresql.conf` and before `postgresql.auto.conf`: ALTER SYSTEM
overrides them. If root runs PostgreSQL as another account, processes of that account reach the
socket, too: they need the superuser's password, which only root can read.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import hashlib
import hmac
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from queuegate.storage.embedded.cluster_templates import ClusterTemplate
from queuegate.storage.embedded.data_directory import (
    DiskSpace,
    disk_space_at,
    disown,
    hand_over,
    lock_file_of,
    open_data_directory,
    open_ephemeral_directory,
    read_regular,
    reap,
    release_ballast,
    release_reserve,
    running_process_id,
    stop_orphan,
    sync_file_system,
    take_ballast,
)
from queuegate.storage.embedded.postgres_account import CannotStart, binaries_for, choose_account
from queuegate.storage.queries import load

_ALWAYS = """\
# Written at every start. Your own settings: ALTER SYSTEM SET ..., which is read after this file.
include = 'pgdata/postgresql.conf'
shared_buffers = 128MB
huge_pages = off
jit = off
# Reads come from memory: three helper processes for them would be idle.
io_method = sync
max_worker_processes = 1
max_parallel_workers = 0
max_parallel_workers_per_gather = 0
max_parallel_maintenance_workers = 0
max_logical_replication_workers = 0
# Idle memory: all of this is touched at the start, and none of it is needed. A flush of the hot
# path rarely exceeds the WAL buffers, and nothing here is SERIALIZABLE.
wal_buffers = 1MB
max_locks_per_transaction = 32
max_pred_locks_per_transaction = 10
serializable_buffers = 128kB
commit_timestamp_buffers = 128kB
subtransaction_buffers = 128kB
wal_level = minimal
max_wal_senders = 0
wal_compression = off
checkpoint_timeout = 15min
checkpoint_completion_target = 0.9
# Queues are churn: dead rows must go as fast as they come.
autovacuum_naptime = 5s
autovacuum_max_workers = 2
autovacuum_worker_slots = 3
autovacuum_vacuum_cost_delay = 1ms
autovacuum_vacuum_cost_limit = 10000
# A forgotten session keeps all dead rows.
idle_in_transaction_session_timeout = 5min
random_page_cost = 1.1
update_process_title = off
timezone = 'UTC'
log_timezone = 'UTC'
log_checkpoints = off
log_autovacuum_min_duration = -1
log_line_prefix = '%m [%p] '
"""

_EPHEMERAL = """\
fsync = off
full_page_writes = off
synchronous_commit = off
"""


# Access rules if other users may reach the socket, too: they need the password.
ACCESS = "local all all scram-sha-256\n"


def configuration(max_connections: int, wal_bytes: int, *, ephemeral: bool) -> str:
    """Return the configuration for so many connections and bytes of WAL between checkpoints."""
    wal_mb = wal_bytes >> 20
    text = _ALWAYS + f"max_connections = {max_connections}\n"
    text += f"max_wal_size = {wal_mb}MB\nmin_wal_size = {min(160, wal_mb // 2)}MB\n"
    return text + _EPHEMERAL if ephemeral else text


SUPERUSER = "queuegate"
PASSWORD_FILE = "password"
# Enough for a random password, and the cheapest per connection.
_ITERATIONS = 1
_PASSWORD_BYTES = 32


def new_password() -> str:
    """Return a random password."""
    return secrets.token_hex(_PASSWORD_BYTES)


def known_password(data: Path) -> str | None:
    """Return the password stored in this data directory; None if there is none of ours."""
    found = read_regular(data / PASSWORD_FILE, 4 * _PASSWORD_BYTES)
    if found is None or found[1].st_uid != os.geteuid() or found[1].st_nlink != 1:
        return None
    text = found[0].decode("ascii", "replace")
    return text if len(text) == 2 * _PASSWORD_BYTES else None


def verifier_of(password: str) -> str:
    """Return PostgreSQL's verifier of a password (SCRAM-SHA-256), which does not reveal it."""
    salt = os.urandom(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, _ITERATIONS)
    stored_key = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    parts = [base64.b64encode(part).decode() for part in (salt, stored_key, server_key)]
    return f"SCRAM-SHA-256${_ITERATIONS}:{parts[0]}${parts[1]}:{parts[2]}"


_log = logging.getLogger("queuegate.postgres")

_SQL = load("embedded/embedded_server")
_DROP_TEMPLATES = ("unmark_template0", "drop_template0", "unmark_template1", "drop_template1")
"""Statements that drop the databases that initdb adds for CREATE DATABASE."""
_PORT = 5432
# sun_path has 108 bytes on Linux and 104 on macOS, with the final zero.
_LONGEST_SOCKET_PATH = 103
_START_DEADLINE_SECONDS = 300.0
_STOP_DEADLINE_SECONDS = 15.0
_LOG_LIMIT_BYTES = 8 * 1024 * 1024
_LOG_CHECK_SECONDS = 60.0
_LEAST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
# Messages of a server while processes of the previous one are still ending.
_RETRIED = ("pre-existing shared memory block", "lock file")


class EmbeddedPostgres:
    """A manager that starts, watches and stops one bundled PostgreSQL.

    `start` returns at once, so that the caller can import and prepare while the server boots;
    `wait_ready` returns when it accepts connections. Both raise CannotStart. From then on a server
    that dies is restarted. Call both from a thread that lives as long as the process: Linux ties
    the parent-death signal to the forking thread.
    """

    def __init__(
        self,
        data: Path | None = None,
        *,
        ephemeral: bool = False,
        max_connections: int = 60,
        cache: Path | None = None,
    ) -> None:
        """Lock the directory `data`, or create a temporary one without it or if ephemeral.

        `cache`: directory of templates for an ephemeral cluster.
        """
        ephemeral = ephemeral or data is None
        self.restart_count = 0
        # Called after each restart of a server that died.
        self.on_restart: Callable[[], None] | None = None
        # Called from the watching thread, once, when the data directory was deleted.
        self.on_lost: Callable[[], None] | None = None
        self.first_start = False
        self.is_migrated = False
        """The cluster is a copy that was migrated by this version of the gateway."""
        self._cache = cache
        self._template: ClusterTemplate | None = None
        self._keeper: threading.Thread | None = None
        self._ephemeral = ephemeral
        self._max_connections = max_connections
        self._account = choose_account(None if data is None else data / "pgdata")
        self._directory = (
            open_ephemeral_directory(self._account)
            if ephemeral or data is None
            else open_data_directory(data, self._account)
        )
        self._socket_dir = Path()
        self._binaries = Path()
        self._password: str | None = None
        self._is_low = False
        self._initdb: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None
        self._flush: threading.Thread | None = None
        self._watcher: threading.Thread | None = None
        self._stopping = threading.Event()

    @property
    def data_dir(self) -> Path:
        return self._directory.path

    @property
    def pid(self) -> int | None:
        """Return the process id of the server, which changes at a restart."""
        return self._server.pid if self._server is not None else None

    @property
    def dsn(self) -> str:
        """Return the URL of the database for asyncpg."""
        return dsn_at(self._socket_dir, self._password)

    @property
    def socket_path(self) -> Path:
        return self._socket_dir / f".s.PGSQL.{_PORT}"

    @property
    def is_lost(self) -> bool:
        """Return True if the data was deleted: PostgreSQL cannot serve without it."""
        try:
            (self._directory.pgdata / "PG_VERSION").lstat()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return False

    def start(self) -> None:
        """Start the server, after initdb if there is no data yet."""
        self._binaries = binaries_for(self._account, self._directory.path)
        self._socket_dir = self._make_socket_dir()
        stop_orphan(self._directory.pgdata)
        _limit(self._directory.log)
        self._keep_room()
        if self._directory.pgdata.is_dir():
            self._spawn()
            return
        if self._cache is not None and self._copy_template(self._cache):
            self._spawn()
            return
        self._begin_initdb()

    def _copy_template(self, cache: Path) -> bool:
        self._template = ClusterTemplate(cache, self._binaries)
        password = self._template.copy_to(self._directory.pgdata, self._account)
        if password:
            self._directory.write(PASSWORD_FILE, password.decode("ascii", "replace"), private=True)
        self.is_migrated = password is not None
        return self.is_migrated

    def _begin_initdb(self) -> None:
        self.first_start = True
        scratch = self._directory.make("pgdata.new")
        self._initdb = self._popen(
            *("initdb", "-D", str(scratch), "-U", SUPERUSER, "--auth=trust"),
            *("--encoding=UTF8", "--locale=C", "--data-checksums"),
            *("--no-sync", "--no-instructions"),
        )

    def wait_ready(
        self,
        deadline_seconds: float = _START_DEADLINE_SECONDS,
        on_slow: Callable[[str], None] | None = None,
    ) -> None:
        """Return when the server accepts connections; CannotStart if it does not start.

        `on_slow` is called once with a sentence, after 2 s.
        """
        if self._initdb is not None:
            self._finish_initdb(self._initdb)
            self._initdb = None
            self._spawn()
            if not self._ephemeral:
                # initdb ran without fsync. The server boots meanwhile; see wait_durable.
                path = self._directory.path
                self._flush = threading.Thread(target=sync_file_system, args=(path,))
                self._flush.start()
        try:
            self._await_server(deadline_seconds, on_slow)
        except CannotStart:
            if not self.is_migrated:
                raise
            self._forget_template()
            self.wait_ready(deadline_seconds, on_slow)
        if self._template is None or self.is_migrated:
            self._start_watching()

    def _start_watching(self) -> None:
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, name="postgres", daemon=True)
            self._watcher.start()

    def _forget_template(self) -> None:
        """Begin a cluster in place of a copy that does not start."""
        assert self._template is not None
        _log.warning("the template %s does not start: %s", self._template.path, self._reason())
        self._template.discard()
        self.is_migrated = False
        shutil.rmtree(self._directory.pgdata, ignore_errors=True)
        (self._directory.path / PASSWORD_FILE).unlink(missing_ok=True)
        self._begin_initdb()

    def keep_template(self) -> None:
        """Make the template of later starts, unless this cluster is a copy. The server restarts:
        call after the migration and before other connections are opened."""
        if self._template is None or self.is_migrated or self._server is None:
            return
        _end(self._server, ((signal.SIGINT, _STOP_DEADLINE_SECONDS), (signal.SIGQUIT, 5.0)))
        place = ["-D", str(self._directory.pgdata)]
        place += ["-c", f"config_file={self._directory.path / 'queuegate.conf'}"]
        # Without the databases that initdb adds, a copy has a third of the files.
        self._run_alone(place, "\n".join(_SQL[name].text for name in _DROP_TEMPLATES))
        password = (self._password or "").encode()
        self._keeper = self._template.keep(self._directory.pgdata, password)
        self._spawn()
        self._await_server(_START_DEADLINE_SECONDS)
        self._start_watching()

    def wait_durable(self) -> None:
        """Return when the files of a first start are on disk.

        Before that, a power loss could destroy the whole database with its commits.
        """
        if self._flush is not None:
            self._flush.join()
            self._flush = None

    def stop(self) -> None:
        """Stop the server and wait for it; delete the data if it is ephemeral. Idempotent."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        if self._initdb is not None:
            _end(self._initdb, ((signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)))
        if self._watcher is not None:
            self._watcher.join()
        if self._keeper is not None:
            self._keeper.join()
        if self._server is not None:
            gentle = signal.SIGQUIT if self._ephemeral or self.is_lost else signal.SIGINT
            stages = (
                (gentle, _STOP_DEADLINE_SECONDS),
                (signal.SIGQUIT, 5.0),
                (signal.SIGKILL, 5.0),
            )
            _end(self._server, stages)
        if self._socket_dir != Path():
            shutil.rmtree(self._socket_dir, ignore_errors=True)
        self._directory.close()

    def _make_socket_dir(self) -> Path:
        inside = self._directory.path / "socket"
        if len(os.fsencode(inside)) + len(f"/.s.PGSQL.{_PORT}.lock") <= _LONGEST_SOCKET_PATH:
            return self._directory.make("socket")
        elsewhere = Path(tempfile.mkdtemp(prefix="queuegate-socket-", dir="/tmp"))
        hand_over(elsewhere, self._account)
        return elsewhere

    def _finish_initdb(self, initdb: subprocess.Popen[bytes]) -> None:
        if initdb.wait() != 0:
            raise CannotStart(
                f"PostgreSQL could not create its data in {self._directory.path}: {self._reason()}"
            )
        (self._directory.path / "pgdata.new").rename(self._directory.pgdata)

    def _spawn(self) -> None:
        settings = self._configure(disk_space_at(self._directory.path))
        disown(self._directory.pgdata, self._account)
        place = ["-D", str(self._directory.pgdata), "-c", f"config_file={settings}"]
        if self._account.switch:
            self._password = self._ensured_password(place)
            place += ["-c", f"hba_file={self._directory.write('pg_hba.conf', ACCESS)}"]
        place += ["-k", str(self._socket_dir), "-p", str(_PORT), "-c", "listen_addresses="]
        self._server = self._popen("postgres", *place)

    def _configure(self, room: DiskSpace) -> Path:
        text = configuration(self._max_connections, room.wal_bytes, ephemeral=self._ephemeral)
        return self._directory.write("queuegate.conf", text)

    def _keep_room(self) -> None:
        """Check the disk: release or recreate the ballast, and fit the WAL to the free space.

        On a low disk PostgreSQL shrinks its WAL at the next checkpoint.
        """
        if self._ephemeral:
            return
        room = disk_space_at(self._directory.path)
        release_ballast(self._directory.path, room)
        is_low = room.is_low(was_low=self._is_low)
        is_running = self._server is not None and self._server.poll() is None
        if is_low and not is_running:
            # A restarting server needs another WAL file before it can remove one.
            release_reserve(self._directory.path)
        if self._server is not None and is_running:
            # Not before the server runs: on some file systems it takes a while.
            take_ballast(self._directory.path, room)
            if is_low != self._is_low:
                self._configure(room)
                self._server.send_signal(signal.SIGHUP)
        self._is_low = is_low

    def _ensured_password(self, place: list[str]) -> str:
        """Return the superuser's password; set one before the server runs if none is known."""
        known = known_password(self._directory.path)
        if known is not None:
            return known
        password = new_password()
        statement = _SQL["set_password"].text.replace("verifier", verifier_of(password))
        self._run_alone(place, statement)
        self._directory.write(PASSWORD_FILE, password, private=True)
        return password

    def _run_alone(self, place: list[str], statements: str) -> None:
        """Run statements, one a line, by a server without a socket, unreachable for others."""
        alone = ["--single", *place, "-c", "exit_on_error=on", "postgres"]
        if self.first_start:
            # The files of initdb are not on disk yet either: see wait_durable.
            alone.insert(1, "-F")
        single = self._popen("postgres", *alone, stdin=subprocess.PIPE)
        single.communicate(statements.encode() + b"\n")
        if single.returncode != 0:
            raise CannotStart(
                f"PostgreSQL did not start: {self._reason()} (see {self._directory.log})"
            )

    def _popen(
        self, program: str, *arguments: str, stdin: int = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        log = os.open(self._directory.log, flags, 0o600)
        try:
            return subprocess.Popen(
                [str(self._binaries / program), *arguments],
                cwd="/",
                env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"},
                stdin=stdin,
                stdout=log,
                stderr=log,
                # Its own session: Ctrl-C at the terminal reaches only the gateway, which drains
                # first and stops the server last.
                start_new_session=True,
                preexec_fn=_die_with_parent(),
                **self._account.popen_options(),
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise CannotStart(
                f"PostgreSQL cannot be run as {self._account.name} ({error}): run Queuegate as an "
                "ordinary user, or set DATABASE_URL"
            ) from None
        finally:
            os.close(log)

    def _await_server(
        self, deadline_seconds: float, on_slow: Callable[[str], None] | None = None
    ) -> None:
        began = time.monotonic()
        while not self._is_ready() and not self._stopping.is_set():
            waited = time.monotonic() - began
            if self._server is None or self._server.poll() is not None:
                reason = self._reason()
                if waited > 10.0 or not any(text in reason for text in _RETRIED):
                    raise CannotStart(
                        f"PostgreSQL did not start: {reason} (see {self._directory.log})"
                    )
                stop_orphan(self._directory.pgdata)
                time.sleep(0.05)
                self._spawn()
            if waited > deadline_seconds:
                raise CannotStart(
                    f"PostgreSQL was not ready after {deadline_seconds:.0f} s "
                    f"(see {self._directory.log})"
                )
            if on_slow is not None and waited > 2.0:
                on_slow(
                    "PostgreSQL is reading its log after an unclean stop; this can take a while"
                )
                on_slow = None
            time.sleep(0.002)

    def _is_ready(self) -> bool:
        """Read the state written by the server; a connection attempt would cost a fork."""
        lines = (lock_file_of(self._directory.pgdata) or b"").splitlines()
        ours = self._server is not None and lines[:1] == [b"%d" % self._server.pid]
        return ours and len(lines) >= 8 and lines[7].strip() == b"ready"

    def _watch(self) -> None:
        """Restart the server when it dies, and keep its log small."""
        pause = _LEAST_PAUSE_SECONDS
        while not self._stopping.is_set():
            is_dead = self._dies()
            if self.is_lost and not self._stopping.is_set():
                if self.on_lost is not None:
                    self.on_lost()
                return
            if not is_dead:
                pause = _LEAST_PAUSE_SECONDS
                _limit(self._directory.log)
                continue
            status = self._server.returncode if self._server is not None else None
            _log.error("PostgreSQL ended (status %s): %s; restarting it", status, self._reason())
            if self._stopping.wait(pause):
                return
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
            self._restart()

    def _dies(self) -> bool:
        """Wait for the server to die; return False when the stop begins, or after a minute."""
        limit = time.monotonic() + _LOG_CHECK_SECONDS
        while time.monotonic() < limit:
            if self._server is None or self._server.poll() is not None:
                return not self._stopping.is_set()
            if self._stopping.wait(0.2) or self.is_lost:
                return False
            with contextlib.suppress(OSError, CannotStart):
                self._keep_room()
        return False

    def _restart(self) -> None:
        try:
            self._keep_room()
            stop_orphan(self._directory.pgdata)
            self._spawn()
            self._await_server(_START_DEADLINE_SECONDS)
        except (CannotStart, OSError) as refusal:
            _log.error("%s", refusal)
            return
        reap(self.pid)
        self.restart_count += 1
        _log.warning("PostgreSQL runs again as process %s", self.pid)
        if self.on_restart is not None:
            self.on_restart()

    def _reason(self) -> str:
        """Return the last error in the server's log, as one line."""
        try:
            with self._directory.log.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 8192))
                lines = file.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return "no message"
        for line in reversed(lines):
            for mark in ("FATAL:", "PANIC:", "initdb: error:", "could not"):
                if mark in line:
                    return line[line.index(mark) :].removeprefix(mark).strip()
        return lines[-1].strip() if lines else "no message"


def dsn_at(socket_dir: Path, password: str | None = None) -> str:
    """Return the URL of a bundled server that listens on a socket in this directory."""
    user = SUPERUSER if password is None else f"{SUPERUSER}:{password}"
    return f"postgresql://{user}@/postgres?host={quote(str(socket_dir), safe='')}"


def running_dsn(data: Path) -> str | None:
    """Return the URL of the server that another process runs on this data directory; None: none
    runs, or it is not accessible."""
    pgdata = data / "pgdata"
    if running_process_id(pgdata) is None:
        return None
    lines = (lock_file_of(pgdata) or b"").splitlines()
    if len(lines) <= 4 or not lines[4]:
        return None
    return dsn_at(Path(os.fsdecode(lines[4])), known_password(data))


def _die_with_parent() -> Callable[[], None] | None:
    """Return a function for the child that requests SIGINT at the parent's death, if supported."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=False).prctl
    parent = os.getpid()
    set_parent_death_signal = 1

    def ask() -> None:
        prctl(set_parent_death_signal, int(signal.SIGINT), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return ask


def _end(
    process: subprocess.Popen[bytes], stages: tuple[tuple[signal.Signals, float], ...]
) -> None:
    for stage, patience in stages:
        if process.poll() is not None:
            return
        process.send_signal(stage)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue


def _limit(log: Path) -> None:
    """Keep the newest part of a large log. The server appends, so truncation is safe."""
    try:
        if log.stat().st_size > _LOG_LIMIT_BYTES:
            shutil.copyfile(log, log.with_suffix(".log.1"))
            os.truncate(log, 0)
    except OSError:
        return

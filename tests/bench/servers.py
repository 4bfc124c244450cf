"""Servers to measure, started as a user starts them: Queuegate, a second gateway, moto."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import MappingProxyType

from queuegate.storage.embedded.embedded_server import running_dsn
from tests.bench.processes import Tree, pause
from tests.bench.rendering import Renderer
from tests.ports import reserved_port

HOST = "127.0.0.1"
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0
_LOOK_SECONDS = 0.002
ROOT = Path(__file__).resolve().parents[2]


class CannotMeasure(Exception):
    """A server did not come up or a part of the measurement cannot be made; the text says why."""


@dataclass
class Server:
    """A server that answers, and the processes it consists of."""

    name: str
    address: tuple[str, int]
    tree: Tree
    start_seconds: float = 0.0
    process: subprocess.Popen[bytes] | None = None
    log: Path | None = None

    def stop(self) -> None:
        """Ask it to end, wait, kill it only when it does not. Nothing for one we did not start."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(STOP_SECONDS_MAX)


class Workshop:
    """Starts servers in a directory of its own; everything it started is gone after `close`."""

    def __init__(self, parent: Path | None, serve_arguments: Sequence[str] = ()) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="queuegate-bench-", dir=parent))
        self.directory.chmod(0o755)  # the database runs as another user when we are root
        self._serve_arguments = list(serve_arguments)
        self._started: list[Server] = []
        self._reserved = contextlib.ExitStack()

    def new_data_directory(self) -> Path:
        """Return a name, not yet taken, for the data of a server."""
        path = Path(tempfile.mkdtemp(prefix="data-", dir=self.directory))
        path.rmdir()
        return path

    def start_queuegate(
        self,
        data: Path,
        environment: Mapping[str, str] = MappingProxyType({}),
        checkout: Path = ROOT,
    ) -> Server:
        """Start `queuegate serve` on this data, durable, and return when it answers a request.

        Another ``checkout`` than this one runs by the environment in its ``.venv``; CannotMeasure
        when it has none.
        """
        command = self._serve(["--data", str(data), *self._serve_arguments])
        if checkout == ROOT:
            return self._start("queuegate", command, {**os.environ, **environment})
        queuegate = checkout / ".venv" / "bin" / "queuegate"
        if not queuegate.exists():
            raise CannotMeasure(f"{checkout} has no .venv: run `make .venv/.ready-run` there")
        command = [str(queuegate), *command[command.index("serve") :]]
        return self._start("beside", command, {**os.environ, **environment}, checkout)

    def start_second_gateway(self, database_url: str) -> Server:
        """Start another gateway process on the database of the first."""
        environment = {**os.environ, "DATABASE_URL": database_url}
        return self._start("second gateway", self._serve([]), environment)

    def start_moto(self) -> Server:
        """Start moto's server and return when it answers a request."""
        command = [sys.executable, "-m", "moto.server", "-H", HOST, "-p", "{port}"]
        return self._start("moto", command, dict(os.environ))

    def close(self) -> None:
        """Stop what was started, newest first, and delete all data."""
        for server in reversed(self._started):
            server.stop()
        self._reserved.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    @staticmethod
    def _serve(extra: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "queuegate", "serve", "--port", "{port}", *extra]

    def _start(
        self, name: str, command: Sequence[str], environment: dict[str, str], root: Path = ROOT
    ) -> Server:
        port = self._reserved.enter_context(reserved_port())
        log = self.directory / f"{name.replace(' ', '-')}-{port}.log"
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with log.open("wb") as output:
            started = perf_counter()
            process = subprocess.Popen(
                [word.replace("{port}", str(port)) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=root,
            )
        server = Server(name, (HOST, port), Tree(process.pid), process=process, log=log)
        self._started.append(server)
        request = Renderer(HOST, port).request("ListQueues", {"QueueNamePrefix": "none"})
        while not _answers(server.address, request):
            if process.poll() is not None:
                raise CannotMeasure(f"{name} ended with {process.returncode}:\n{last_lines(log)}")
            if perf_counter() - started > START_SECONDS_MAX:
                raise CannotMeasure(
                    f"{name} did not answer in {START_SECONDS_MAX:.0f} s:\n{last_lines(log)}"
                )
            pause(_LOOK_SECONDS)
        server.start_seconds = perf_counter() - started
        return server


def running_server(url: str, process_id: int, database_process_id: int | None) -> Server:
    """Return a server that somebody else started."""
    host, _, port = url.removeprefix("http://").rstrip("/").partition(":")
    roots = [process_id] if database_process_id is None else [process_id, database_process_id]
    return Server("queuegate", (host, int(port or 80)), Tree(*roots))


def database_url(server: Server) -> str:
    """Return the URL of the embedded database; CannotMeasure when the server has none below it."""
    postmaster_id = server.tree.postmaster_id()
    if postmaster_id is None:
        raise CannotMeasure("the server has no database process below it")
    data = Path(f"/proc/{postmaster_id}/cwd").resolve()
    dsn = running_dsn(data.parent)
    if dsn is None:
        raise CannotMeasure("the embedded database does not say where it listens")
    return dsn


def postgres_version(server: Server) -> str:
    """Return what the database's own program says, empty when there is none below the server."""
    postmaster_id = server.tree.postmaster_id()
    if postmaster_id is None:
        return ""
    program = Path(f"/proc/{postmaster_id}/exe").resolve()
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return answer.stdout.strip()


def last_lines(log: Path | None, count: int = 20) -> str:
    """Return the end of a server's output, indented."""
    if log is None or not log.exists():
        return ""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-count:]
    return "\n".join(f"    {line}" for line in lines)


def _answers(address: tuple[str, int], request: bytes) -> bool:
    try:
        with socket.create_connection(address, timeout=5.0) as connection:
            connection.sendall(request)
            answer = connection.recv(65536)
    except OSError:
        return False
    # Where signatures are verified, 403 says that it is up.
    return answer[9:12] in (b"200", b"403")

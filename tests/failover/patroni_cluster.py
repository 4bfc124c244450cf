"""Two PostgreSQL servers under Patroni and one etcd, with links between them that may be cut.

The configuration of Patroni is the one that docs/how-to/failover.md shows: addresses, directories
and programs are this machine's, everything else is used as it stands there.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import yaml  # type: ignore[import-untyped]

from queuegate.storage.embedded.data_directory import hand_over
from queuegate.storage.embedded.postgres_account import choose_account
from tests.standbys import signal_server
from tests.waiting import until

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "failover.md"
_INSTALL = "apt-get install patroni etcd-server postgresql"
_PROGRAMS = Path("/usr/lib/postgresql")
_ETCD, _POSTGRES, _REST = 2379, 5432, 8008
_TIMES = 4
Result = TypeVar("Result")
_PROMOTED = re.compile(r"^(\S+ \S+),(\d{3}) .*promoted self to leader", re.MULTILINE)


def missing() -> str:
    """Return the reason why there can be no cluster here, or an empty text."""
    absent = [name for name in ("patroni", "patronictl", "etcd") if shutil.which(name) is None]
    if not sorted(_PROGRAMS.glob("*/bin/postgres")):
        absent.append("postgres")
    if not sys.platform.startswith("linux"):
        return "it needs Linux"
    return f"{', '.join(absent)} not installed ({_INSTALL})" if absent else ""


def until_at_last(look: Callable[[], Result]) -> Result:
    """Look until there is something, for a few minutes: a server may have to be copied anew."""
    for _ in range(_TIMES):
        with contextlib.suppress(AssertionError):
            return until(look)
    return until(look)


def page_configuration() -> dict[str, Any]:
    """Return the configuration of Patroni on the page about failover."""
    found = re.search(r"```yaml\n(scope: .*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None, PAGE
    configuration: dict[str, Any] = yaml.safe_load(found[1])
    return configuration


def _read(url: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            found: dict[str, Any] = json.load(answer)
    except OSError:
        return {}
    return found


class Node:
    """One server with its Patroni."""

    def __init__(self, cluster: PatroniCluster, number: int) -> None:
        self.name = f"db{number + 1}"
        self.cluster = cluster
        self.address = cluster.address(number)
        """The server's own address."""
        self.seen_at = cluster.address(2 + number)
        """The address at which others reach it, by a link."""
        self.sees_etcd_at = cluster.address(4 + number)
        self.folder = cluster.make_folder(self.name)
        self.data = self.folder / "data"
        self.log = cluster.folder / f"{self.name}.patroni.log"
        self._configuration = self.folder / "patroni.yml"
        self._configuration.write_text(yaml.safe_dump(self._configured()))
        self._process: subprocess.Popen[bytes] | None = None

    def _configured(self) -> dict[str, Any]:
        found = page_configuration()
        rest = f"{self.address}:{_REST}"
        found |= {
            "name": self.name,
            "restapi": {"listen": rest, "connect_address": f"{self.seen_at}:{_REST}"},
            # Otherwise Patroni would ask etcd for its address, and pass the link by.
            "etcd3": {"hosts": f"{self.sees_etcd_at}:{_ETCD}", "use_proxies": True},
            "watchdog": {"mode": "off"},
        }
        found["bootstrap"]["dcs"] |= self.cluster.settings
        found["postgresql"] |= {
            "listen": f"{self.address}:{_POSTGRES}",
            "connect_address": f"{self.seen_at}:{_POSTGRES}",
            "data_dir": str(self.data),
            "bin_dir": str(self.cluster.programs),
            "pgpass": str(self.folder / "pgpass"),
            "pg_hba": [
                line.replace("10.0.0.0/24", "127.0.0.0/8") for line in found["postgresql"]["pg_hba"]
            ],
        }
        found["postgresql"].setdefault("parameters", {})["unix_socket_directories"] = ""
        return found

    def start(self) -> None:
        """Start Patroni, which starts the server."""
        with self.log.open("ab") as log:
            self._process = self.cluster.run("patroni", str(self._configuration), log=log)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to Patroni and to each process of the server, Patroni first."""
        assert self._process is not None
        self._process.send_signal(number)
        signal_server(self.data, number)

    def kill(self) -> None:
        """kill -9 of Patroni and of the server."""
        self.signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()

    def promoted_at(self) -> list[float]:
        """Return the times at which this Patroni made its server the leader, by its own log."""
        return [
            datetime.strptime(f"{text}.{milliseconds}", "%Y-%m-%d %H:%M:%S.%f")
            .replace(tzinfo=UTC)
            .timestamp()
            for text, milliseconds in _PROMOTED.findall(self.log.read_text())
        ]

    def ask(self, path: str) -> dict[str, Any]:
        """Return what Patroni's REST API answers; empty if it does not answer."""
        return _read(f"http://{self.address}:{_REST}/{path}")


class PatroniCluster:
    """The servers, etcd and the links. ``settings`` change those that the page has for etcd."""

    def __init__(self, folder: Path, settings: dict[str, Any] | None = None) -> None:
        self.folder = folder
        self.settings = settings or {}
        self._account = choose_account(None)
        self.programs = sorted(_PROGRAMS.glob("*/bin"), key=lambda path: int(path.parent.name))[-1]
        self._number = os.getpid()
        self._network = subprocess.Popen(
            [sys.executable, "-m", "tests.failover.cut_network"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._commands = threading.Lock()
        self._etcd_data = self.make_folder("etcd")
        self._etcd: subprocess.Popen[bytes] | None = None
        self.nodes = [Node(self, number) for number in (0, 1)]
        self._link_all()

    def address(self, number: int) -> str:
        """Return a loopback address of its own, so no port is looked for."""
        return f"127.{81 + number}.{self._number >> 8 & 255}.{self._number % 253 + 1}"

    def make_folder(self, name: str) -> Path:
        """Make a folder for the account of PostgreSQL."""
        folder = self.folder / name
        folder.mkdir(mode=0o700)
        hand_over(folder, self._account)
        return folder

    def run(self, *command: str, log: Any = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """Start a program as the account of PostgreSQL."""
        return subprocess.Popen(
            command,
            cwd="/",
            env={"PATH": os.environ["PATH"], "TZ": "UTC", "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            **self._account.popen_options(),
        )

    def _link_all(self) -> None:
        for node in self.nodes:
            links = [
                (node.seen_at, _POSTGRES, node.address, _POSTGRES),
                (node.seen_at, _REST, node.address, _REST),
                (node.sees_etcd_at, _ETCD, self.address(6), _ETCD),
            ]
            for link in links:
                self._command("link", node.name, *map(str, link))
            # Only the other node uses it, which may be the one that is cut off.
            self._command("link", self.other(node).name, *map(str, links[1]))

    def _command(self, *words: str) -> None:
        assert self._network.stdin is not None
        assert self._network.stdout is not None
        with self._commands:
            print(*words, file=self._network.stdin, flush=True)
            answer = self._network.stdout.readline()
        assert answer.split() == [*words[:2]], answer

    def cut(self, node: Node) -> None:
        """Drop all packets to and from a node."""
        self._command("cut", node.name)

    def heal(self, node: Node) -> None:
        """End the cut."""
        self._command("heal", node.name)

    def start_etcd(self) -> None:
        """Start etcd on what it has stored."""
        client = f"http://{self.address(6)}:{_ETCD}"
        peer = f"http://{self.address(6)}:{_ETCD + 1}"
        words = ["--name", "etcd", "--data-dir", str(self._etcd_data / "data")]
        words += ["--listen-client-urls", client, "--advertise-client-urls", client]
        words += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        words += ["--initial-cluster", f"etcd={peer}"]
        with (self.folder / "etcd.log").open("ab") as log:
            self._etcd = self.run("etcd", *words, log=log)
        # Patroni does not start before etcd has decided on a version.
        until(lambda: _read(f"{client}/version").get("etcdcluster") not in (None, "not_decided"))

    def kill_etcd(self) -> None:
        """kill -9 of etcd."""
        assert self._etcd is not None
        self._etcd.kill()
        self._etcd.wait()

    def start(self) -> None:
        """Start everything, and return when the second server is the synchronous standby."""
        self.start_etcd()
        for node in self.nodes:
            node.start()
            until_at_last(functools.partial(self._is_running, node))
        self.until_whole()

    @staticmethod
    def _is_running(node: Node) -> bool:
        return bool(node.ask("patroni").get("state") == "running")

    def leader(self) -> Node | None:
        """Return the node that says that it is the leader."""
        for node in self.nodes:
            if node.ask("patroni").get("role") in ("master", "primary"):
                return node
        return None

    def other(self, node: Node) -> Node:
        """Return the other node."""
        return self.nodes[1 - self.nodes.index(node)]

    def is_whole(self) -> bool:
        """Return True if one node leads and the other one is its synchronous standby."""
        roles = [node.ask("patroni").get("role") for node in self.nodes]
        standbys = [node.ask("patroni").get("sync_standby", False) for node in self.nodes]
        return sum(role in ("master", "primary") for role in roles) == 1 and any(standbys)

    def until_whole(self) -> None:
        """Wait for ``is_whole``."""
        until_at_last(self.is_whole)

    def switch_over(self, leader: Node) -> str:
        """Let patronictl make the other node the leader; what it prints."""
        path = str(leader.folder / "patroni.yml")
        words = ["patronictl", "-c", path, "switchover", "--master", leader.name]
        words += ["--candidate", self.other(leader).name, "--force"]
        with (self.folder / "patronictl.log").open("ab") as log:
            self.run(*words, log=log).wait(60)
        return (self.folder / "patronictl.log").read_text()

    def url(self, database: str = "postgres") -> str:
        """Return the URL of a database for gateways: both hosts, and the one that takes writes."""
        secret = page_configuration()["postgresql"]["authentication"]["superuser"]
        hosts = ",".join(f"{node.seen_at}:{_POSTGRES}" for node in self.nodes)
        user = f"{secret['username']}:{secret['password']}"
        return f"postgresql://{user}@{hosts}/{database}?target_session_attrs=read-write"

    def stop(self) -> None:
        """kill -9 of everything."""
        for node in self.nodes:
            if node._process is not None:
                node.kill()
        if self._etcd is not None:
            self.kill_etcd()
        self._network.kill()
        self._network.communicate()

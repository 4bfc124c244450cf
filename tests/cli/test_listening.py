"""Listening addresses: one host or several, both families, and the log lines about them."""

from __future__ import annotations

import errno
import socket
import sys
from typing import Any

import pytest

from queuegate.gateway.configuration.settings import Settings
from queuegate.gateway.http.listening import (
    Binding,
    CannotListen,
    bind,
    closing,
    links_url,
    port_of,
    reserve,
    shown_addresses,
    url_of,
)
from tests.cli.processes import run
from tests.faces.clients import Sqs
from tests.faces.connections import fetch
from tests.faces.servers import Server


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")


@needs_ipv6
@pytest.mark.parametrize("workers", ["1", "2"])
def test_without_a_word_it_listens_on_both_addresses_of_loopback(workers: str) -> None:
    with Server("--workers", workers) as server:
        places = [f"127.0.0.1:{server.port}", f"[::1]:{server.port}"]
        assert server.url == f"http://{places[0]}"
        assert f"  listen   {' '.join(places)}\n" in server.printed
        for place in places:
            assert fetch(f"http://{place}", "/livez").status == 200


@linux_only
@pytest.mark.parametrize(
    "flags", [["--host", "127.0.0.2", "--host", "127.0.0.3"], ["--host", "127.0.0.2,127.0.0.3"]]
)
def test_it_listens_on_each_host_and_nowhere_else(flags: list[str]) -> None:
    with Server(*flags) as server:
        assert server.url == f"http://127.0.0.2:{server.port}"
        for host in ("127.0.0.2", "127.0.0.3"):
            assert fetch(f"http://{host}:{server.port}", "/livez").status == 200
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(server.port)))


@needs_ipv6
def test_on_ipv6_the_example_runs_and_queue_urls_lead_back() -> None:
    """boto3 and `queuegate health`, in processes of their own."""
    with Server("--host", "::1") as server:
        assert server.url == f"http://[::1]:{server.port}"
        assert server.hello() == "Hello\n"
        with Sqs("json", server.url) as sqs:
            url = sqs.create()
            assert url.startswith(f"http://[::1]:{server.port}/")
            sqs.send(url, "six")
            assert sqs.bodies(url, 1) == ["six"]
        assert run("health", QUEUEGATE_HOST="::1", QUEUEGATE_PORT=server.port).returncode == 0


@needs_ipv6
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_port_that_is_taken_at_one_address_is_one_line(workers: str) -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as other:
        port = str(other.getsockname()[1])
        done = run("serve", "--ephemeral", "--port", port, "--workers", workers)
    assert done.returncode == 1
    assert done.stderr.startswith(f"queuegate: port {port} on ::1 is taken")
    assert done.stderr.count("\n") == 1


@needs_ipv6
def test_workers_get_one_port_at_every_address() -> None:
    with closing(reserve(["localhost"], 0)) as sockets:
        port = port_of(sockets)
        assert shown_addresses(sockets) == [f"127.0.0.1:{port}", f"[::1]:{port}"]
        # They only hold it: a worker listens.
        with closing(bind(["localhost"], port, Binding(shared=True))) as listening:
            socket.create_connection(("::1", port)).close()
            assert len(listening) == 2


def test_without_ipv6_localhost_is_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    _take_away_ipv6(monkeypatch)
    with closing(bind(["localhost"], 0)) as sockets:
        assert url_of(sockets, ["localhost"]) == f"http://127.0.0.1:{port_of(sockets)}"
        assert len(sockets) == 1


def test_an_address_that_was_asked_for_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    _take_away_ipv6(monkeypatch)
    with pytest.raises(CannotListen, match="::1 is not an address of this machine"):
        bind(["127.0.0.1", "::1"], 0)


def _take_away_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    class OldSocket(socket.socket):
        def __init__(self, family: int = -1, *more: Any, **options: Any) -> None:
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
            super().__init__(family, *more, **options)

    monkeypatch.setattr("socket.socket", OldSocket)


@linux_only
def test_a_name_is_all_of_its_addresses_that_are_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(name: str, *_: object, **__: object) -> list[Any]:
        assert name == "several.example"
        hosts = ("127.0.0.2", "192.0.2.1", "127.0.0.3", "127.0.0.2")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0)) for host in hosts]

    monkeypatch.setattr("socket.getaddrinfo", look_up)
    with closing(bind(["several.example"], 0)) as sockets:
        port = port_of(sockets)
        assert shown_addresses(sockets) == [f"127.0.0.2:{port}", f"127.0.0.3:{port}"]
        assert url_of(sockets, ["several.example"]) == f"http://several.example:{port}"


def test_what_a_wildcard_includes_is_not_bound_twice() -> None:
    with closing(bind(["127.0.0.1", "0.0.0.0"], 0)) as sockets:
        assert shown_addresses(sockets) == [f"0.0.0.0:{port_of(sockets)}"]


@needs_ipv6
def test_every_interface_of_ipv6_has_ipv4_in_it() -> None:
    with closing(bind(["0.0.0.0", "::", "::1"], 0)) as sockets:
        port = port_of(sockets)
        assert shown_addresses(sockets) == [f"[::]:{port}"]
        socket.create_connection(("127.0.0.1", port)).close()
        socket.create_connection(("::1", port)).close()


def test_an_unknown_name_is_one_line() -> None:
    done = run("serve", "--host", "localhost", "--host", "nowhere.invalid")
    assert done.returncode == 1
    assert "'nowhere.invalid' is not an address of this machine" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("hosts", "url"),
    [
        ("localhost", None),
        ("127.0.0.1,::1", None),
        ("localhost,10.0.0.7", "http://10.0.0.7:9324"),
        ("::1,fd00::7", "http://[fd00::7]:9324"),
        ("localhost,::", f"http://{socket.gethostname()}:9324"),
    ],
)
def test_links_lead_to_an_address_that_others_reach(hosts: str, url: str | None) -> None:
    assert links_url(Settings.from_env({"QUEUEGATE_HOST": hosts})) == url


@needs_ipv6
def test_doctor_looks_at_every_address() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as other:
        port = str(other.getsockname()[1])
        done = run("doctor", "--port", port)
    assert done.returncode == 1
    assert f"FAIL  port: port {port} on ::1 is taken" in done.stdout

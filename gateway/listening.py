"""The socket that the gateway listens on, bound before anything slow is started."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING

from gateway.setting_values import is_loopback

if TYPE_CHECKING:
    from gateway.config import Settings

_BACKLOG = 2048
_ANY = frozenset({"0.0.0.0", "::", ""})


class CannotListen(Exception):
    """The address cannot be listened on; the text is one line that says why and what to do."""


def bind(host: str, port: int, *, shared: bool = False, quiet: bool = False) -> socket.socket:
    """A socket bound to host and port, listening unless `quiet`.

    `shared` lets other processes of ours bind the same port (SO_REUSEPORT); the kernel spreads the
    connections over those that listen. CannotListen when the port is taken or the address unknown.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise CannotListen(
            f"{host!r} is not an address of this machine ({error.strerror})"
        ) from None
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # "::" alone would depend on a setting of the system; both families is what is meant.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != "::"))
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(address)
        if not quiet:
            sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise CannotListen(_explained(error, host, port)) from None
    sock.setblocking(False)
    return sock


def reserve(host: str, port: int) -> socket.socket:
    """A socket that holds the port for workers which bind it too; it takes no connections itself.

    A port that somebody else shares is refused: an exclusive socket must have been possible first.
    """
    with bind(host, port) as exclusive:
        taken_port: int = exclusive.getsockname()[1]
    return bind(host, taken_port, shared=True, quiet=True)


def url_of(sock: socket.socket, host: str) -> str:
    """The URL by which a client on this machine reaches the socket."""
    port = sock.getsockname()[1]
    name = "localhost" if host in _ANY else host
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def links_url(settings: Settings) -> str | None:
    """Where links in messages of SNS lead, which everybody gets who subscribes; None: to wherever
    the request that caused one was sent, which on loopback is one of our names.

    Beyond loopback a publisher's Host is what the publisher likes, so it is the base URL or the
    address that we listen on, which for every interface is the name of this machine.
    """
    if settings.base_url is not None or is_loopback(settings.host):
        return settings.base_url
    is_any = settings.host in _ANY
    name = socket.gethostname() if is_any else settings.host
    return f"http://[{name}]:{settings.port}" if ":" in name else f"http://{name}:{settings.port}"


def _explained(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is taken: another Queuegate or another program listens there. "
            "Stop it, or choose another port with --port (0 takes a free one)"
        )
    if error.errno == errno.EACCES:
        return f"port {port} is reserved for root: choose one from 1024 up with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine: see --host"
    return f"cannot listen on {host} port {port}: {error.strerror}"

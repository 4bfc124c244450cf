"""The sockets that the gateway listens on, bound before anything slow is started."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from queuegate.gateway.configuration.values import is_loopback, is_name_of_loopback

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings

_BACKLOG = 2048
_ANY = frozenset({"0.0.0.0", "::"})
_PORTS_TRIED = 20
# An address that this machine lacks, or all of a family: IPv6 that is switched off.
_NOT_HERE = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})

OPERATIONS_ADDRESS = "QUEUEGATE_OPERATIONS_ADDRESS"

Sockets = list[socket.socket]


class Doors(NamedTuple):
    """Where a gateway is asked."""

    public: Sockets
    operators: Sockets
    """Where probes and scrapes are answered; none: where everything is."""


class CannotListen(Exception):
    """The address cannot be listened on; the text is one line that says why and what to do."""


class _Taken(CannotListen):
    """Somebody else listens there."""


class _Address(NamedTuple):
    """Where to listen, but for the port."""

    family: int
    host: str
    more: tuple[int, ...]
    """What else ``socket.bind`` takes: flow and scope of IPv6."""
    is_needed: bool
    """False: one of several that a name has, and left out where this machine lacks it."""


class Binding(NamedTuple):
    """How a port is bound."""

    shared: bool = False
    """Others of ours may bind it, too (SO_REUSEPORT); the kernel spreads the connections over those
    that listen."""
    quiet: bool = False
    """Hold it without listening."""
    named_by: str = ""
    """The variable that a refusal names; empty: --host and --port."""


_ALONE = Binding()


def bind(hosts: Sequence[str], port: int, how: Binding = _ALONE) -> Sockets:
    """Sockets bound to the port at every address of the hosts.

    ``localhost`` is 127.0.0.1 and, where there is IPv6, ::1. Port 0 is a free one, the same for
    all. CannotListen when the port is taken or a host unknown.
    """
    addresses = _addresses(hosts)
    # A port that is free at the first address may be taken at the next one.
    for _ in range(_PORTS_TRIED if port == 0 else 0):
        with contextlib.suppress(_Taken):
            return _bind(addresses, port, how)
    return _bind(addresses, port, how)


def reserve(hosts: Sequence[str], port: int, named_by: str = "") -> Sockets:
    """Sockets that hold the port for workers which bind it too; they take no connections.

    A port that somebody else shares is refused: exclusive sockets must have been possible first.
    """
    with closing(bind(hosts, port, Binding(named_by=named_by))) as exclusive:
        taken_port = port_of(exclusive)
    return bind(hosts, taken_port, Binding(shared=True, quiet=True, named_by=named_by))


@contextlib.contextmanager
def closing(sockets: Sockets) -> Iterator[Sockets]:
    """Close them at the end."""
    with contextlib.ExitStack() as stack:
        for sock in sockets:
            stack.enter_context(sock)
        yield sockets


def port_of(sockets: Sockets) -> int:
    """The port, which is the same for all."""
    port: int = sockets[0].getsockname()[1]
    return port


def places_of(sockets: Sockets) -> list[str]:
    """Addresses and ports, as one reads them."""
    return [_authority(*sock.getsockname()[:2]) for sock in sockets]


def url_of(sockets: Sockets, hosts: Sequence[str], scheme: str = "http") -> str:
    """The URL by which a client on this machine reaches the first of them."""
    host = hosts[0]
    if is_name_of_loopback(host):
        # Not every resolver knows the name.
        host = sockets[0].getsockname()[0]
    return f"{scheme}://{_authority('localhost' if host in _ANY else host, port_of(sockets))}"


def links_url(settings: Settings) -> str | None:
    """Where links in messages of SNS lead, which everybody gets who subscribes; None: to wherever
    the request that caused one was sent, which on loopback is one of our names.

    Beyond loopback a publisher's Host is what the publisher likes, so it is the base URL or the
    first address that others reach, which for every interface is the name of this machine.
    """
    if settings.base_url is not None or settings.is_local:
        return settings.base_url
    host = next(host for host in settings.hosts if not is_loopback(host))
    name = socket.gethostname() if host in _ANY else host
    return f"{settings.scheme}://{_authority(name, settings.port)}"


def _bind(addresses: Sequence[_Address], port: int, how: Binding) -> Sockets:
    with contextlib.ExitStack() as undone:
        sockets: Sockets = []
        for address in addresses:
            try:
                sock = _open(address, port, how)
            except OSError as error:
                if error.errno in _NOT_HERE and not address.is_needed:
                    continue
                raise _explained(error, address.host, port, how.named_by) from None
            sockets.append(undone.enter_context(sock))
            port = port_of(sockets)
        if not sockets:
            raise CannotListen(
                "none of its addresses is one of this machine: see " + (how.named_by or "--host")
            )
        undone.pop_all()
        return sockets


def _open(address: _Address, port: int, how: Binding) -> socket.socket:
    sock = socket.socket(address.family)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if address.family == socket.AF_INET6:
            # "::" alone would depend on a setting of the system; both families is what is meant.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(address.host != "::"))
        if how.shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((address.host, port, *address.more))
        if not how.quiet:
            sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def _addresses(hosts: Sequence[str]) -> list[_Address]:
    """Each address once, and none that another one includes."""
    found = {(one.host, one.more): one for host in hosts for one in _addresses_of(host)}
    names = {one.host for one in found.values()}
    return [one for one in found.values() if not _is_included(one, names)]


def _is_included(address: _Address, names: set[str]) -> bool:
    if "::" in names:
        return address.host != "::"
    is_every = address.host == "0.0.0.0"
    return address.family == socket.AF_INET and "0.0.0.0" in names and not is_every


def _addresses_of(host: str) -> Iterator[_Address]:
    if is_name_of_loopback(host):
        yield _Address(socket.AF_INET, "127.0.0.1", (), is_needed=False)
        yield _Address(socket.AF_INET6, "::1", (0, 0), is_needed=False)
        return
    try:
        answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no name of a host"
        raise CannotListen(f"{host!r} is not an address of this machine ({reason})") from None
    for family, *_, place in answers:
        place_of_any_kind: Any = place
        name, _, *more = place_of_any_kind
        yield _Address(family, name, tuple(more), is_needed=len(answers) == 1)


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _explained(error: OSError, host: str, port: int, named_by: str) -> CannotListen:
    if error.errno == errno.EADDRINUSE:
        return _Taken(
            f"port {port} on {host} is taken: another Queuegate or another program listens there. "
            f"Stop it, or choose another port with {named_by or '--port'} (0 takes a free one)"
        )
    if error.errno == errno.EACCES:
        return CannotListen(
            f"port {port} is reserved for root: choose one from 1024 up with {named_by or '--port'}"
        )
    if error.errno in _NOT_HERE:
        return CannotListen(f"{host} is not an address of this machine: see {named_by or '--host'}")
    return CannotListen(f"cannot listen on {host} port {port}: {error.strerror}")

"""Listening sockets, bound before anything slow starts."""

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
# Errors for an address, or a family such as disabled IPv6, that this machine lacks.
_NOT_HERE = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})

OPERATIONS_ADDRESS = "QUEUEGATE_OPERATIONS_ADDRESS"

Sockets = list[socket.socket]


class ListeningSockets(NamedTuple):
    """The listening sockets of a gateway."""

    public: Sockets
    operators: Sockets
    """Sockets for probes and scrapes; empty: the public sockets serve them."""


class CannotListen(Exception):
    """The address cannot be bound. The text is one line with the reason and a remedy."""


class _Taken(CannotListen):
    """Another socket is bound to the port."""


class _Address(NamedTuple):
    """An address to bind, without the port."""

    family: int
    host: str
    more: tuple[int, ...]
    """Further elements for ``socket.bind``: flow and scope of IPv6."""
    is_needed: bool
    """False: one of several addresses of a name, skipped if this machine lacks it."""


class Binding(NamedTuple):
    """Options for binding a port."""

    shared: bool = False
    """Other processes of the gateway may bind the port, too (SO_REUSEPORT). The kernel distributes
    connections over the listening sockets."""
    quiet: bool = False
    """Bind without listening."""
    named_by: str = ""
    """The setting that a refusal names; empty: --host and --port."""


_ALONE = Binding()


def bind(hosts: Sequence[str], port: int, how: Binding = _ALONE) -> Sockets:
    """Return sockets bound to the port at all addresses of the hosts.

    ``localhost`` is 127.0.0.1 and, with IPv6, ::1. Port 0 selects a free port, the same for all.
    Raise CannotListen if the port is taken or a host unknown.
    """
    addresses = _addresses(hosts)
    # A port that is free at the first address may be taken at the next one.
    for _ in range(_PORTS_TRIED if port == 0 else 0):
        with contextlib.suppress(_Taken):
            return _bind(addresses, port, how)
    return _bind(addresses, port, how)


def reserve(hosts: Sequence[str], port: int, named_by: str = "") -> Sockets:
    """Return sockets that reserve the port for workers that bind it, too. They do not listen.

    Refuse a port that another program shares: exclusive sockets must bind first.
    """
    with closing(bind(hosts, port, Binding(named_by=named_by))) as exclusive:
        taken_port = port_of(exclusive)
    return bind(hosts, taken_port, Binding(shared=True, quiet=True, named_by=named_by))


@contextlib.contextmanager
def closing(sockets: Sockets) -> Iterator[Sockets]:
    """Close the sockets at the end of the block."""
    with contextlib.ExitStack() as stack:
        for sock in sockets:
            stack.enter_context(sock)
        yield sockets


def port_of(sockets: Sockets) -> int:
    """Return the port of all sockets."""
    port: int = sockets[0].getsockname()[1]
    return port


def shown_addresses(sockets: Sockets) -> list[str]:
    """Return addresses with ports, for logs."""
    return [_authority(*sock.getsockname()[:2]) for sock in sockets]


def url_of(sockets: Sockets, hosts: Sequence[str], scheme: str = "http") -> str:
    """Return the URL of the first host for a client on this machine."""
    host = hosts[0]
    if is_name_of_loopback(host):
        # Some resolvers do not know the name.
        host = sockets[0].getsockname()[0]
    return f"{scheme}://{_authority('localhost' if host in _ANY else host, port_of(sockets))}"


def links_url(settings: Settings) -> str | None:
    """Return the base of links in SNS messages; None: the URL of the request that caused one, which
    on loopback is a known name. A server that is replaced in tests knows no better one: it often
    has another port outside its container.

    All subscribers get these links, and beyond loopback a publisher can send any Host. So the base
    is the base URL, or the first address for other machines. For all interfaces it is the name of
    this machine.
    """
    if settings.base_url is not None or settings.is_local or settings.like is not None:
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
            # For "::" alone, a system setting decides about IPv4. Bind both families explicitly.
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
    """Return each address once, without those that a wildcard includes."""
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

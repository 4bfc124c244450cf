"""Ports for programs that must be told one: held until the program binds it, and meanwhile."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def reserved_port(host: str = "127.0.0.1") -> Iterator[int]:
    """Hold a port as long as the context lasts. Connections to it are refused until a program
    listens there.

    The socket is bound and does not listen, so the kernel gives the port to nobody who asks for a
    free one. A program that names it can bind it with SO_REUSEADDR, which servers set.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((host, 0))
        yield held.getsockname()[1]

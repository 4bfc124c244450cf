"""DB_HOST and its like: a database in parts, as containers of applications often have it."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from queuegate.gateway.configuration import values
from queuegate.gateway.configuration.fields import Kind, Variable, number

_NAME = Kind("text", values.parse_name)

PARTS: tuple[tuple[Variable, str], ...] = (
    (
        Variable(
            ("DB_HOST",),
            Kind("a host name, an address, or the directory of a socket", values.database_host),
            "A database in parts: each of these five has its default when another is set. None "
            "counts beside DATABASE_URL, --data or --ephemeral.",
        ),
        "localhost",
    ),
    (Variable(("DB_PORT",), number(1, 65535), "Its port."), "5432"),
    (Variable(("DB_USER",), _NAME, "Its user."), "postgres"),
    (Variable(("DB_PASSWORD",), _NAME, "The password of that user.", secret=True), "postgres"),
    (Variable(("DB_NAME",), _NAME, "The name of the database."), "postgres"),
)
"""The variables, each with its default."""

NAMES = tuple(variable.names[0] for variable, _ in PARTS)


def database_in_parts(environ: Mapping[str, str]) -> dict[str, str] | None:
    """The texts of the parts by their variables; None: nobody set one of them."""
    if not any(environ.get(name) for name in NAMES):
        return None
    return {
        variable.names[0]: environ.get(variable.names[0]) or default for variable, default in PARTS
    }


def url_of(parts: Mapping[str, object]) -> str:
    """The URL of a database in parts, which were checked."""
    host, port, user, password, name = [str(parts[variable]) for variable in NAMES]
    who = f"{quote(user, safe='')}:{quote(password, safe='')}"
    path = quote(name, safe="")
    if host.startswith("/"):
        return f"postgresql://{who}@/{path}?host={quote(host, safe='')}&port={port}"
    return f"postgresql://{who}@{f'[{host}]' if ':' in host else host}:{port}/{path}"

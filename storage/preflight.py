"""The first connection to a database, with each failure explained in one line."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import secrets
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import TypeAlias
from urllib.parse import parse_qs, urlsplit

import asyncpg

from queuegate.storage.database import RELAXED_PLANNER, SCHEMA, session_settings
from queuegate.storage.database_hosts import FAILURES, Hosts, NoHost
from queuegate.storage.database_statistics import DatabaseStatistics, read_statistics
from queuegate.storage.queries import load

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

_SQL = load("preflight")

OLDEST_MAJOR_VERSION = 15
_POOLER_SECONDS = 20.0
_NO_SESSIONS = (
    "is behind a pooler that keeps no session for us{reason}. Queuegate listens, prepares "
    "statements and sets search_path, so it needs connections of its own: name PostgreSQL itself "
    "in QUEUEGATE_DIRECT_DATABASE_URL, or a pool in session mode"
)
_NO_STATEMENTS = (
    "is behind a pooler by transaction that loses prepared statements{reason}: Queuegate needs "
    "PgBouncer 1.21 or newer with max_prepared_statements, or a pool in session mode"
)
_NO_PATH = (
    "is behind a pooler by transaction, and its sessions begin without the search_path of "
    f"Queuegate: run ALTER ROLE {{role}} SET search_path = {SCHEMA} there, and reconnect the pooler"
)


class DatabaseRefused(Exception):
    """The database cannot be used; the text is one line with the reason and the remedy."""


async def connect(dsn: str) -> Connection:
    """Connect to a database that is new enough and accepts writes; else DatabaseRefused."""
    _check_tls_files(dsn)
    try:
        connection = await Hosts(dsn).connect({"application_name": "queuegate start"})
    except (*FAILURES, ValueError) as error:
        raise DatabaseRefused(_explained(error, dsn)) from None
    refusal = _unfit(connection) or await _pooled(connection, dsn) or await _unlike_lanes(dsn)
    if refusal:
        await connection.close()
        raise DatabaseRefused(f"the PostgreSQL at {shown(dsn)} {refusal}")
    return connection


async def check_pool(dsn: str, direct: Connection) -> str:
    """Check a pooler in front of the database of ``direct``, for ordinary statements; return its
    kind. DatabaseRefused if they would fail."""
    _check_tls_files(dsn)
    try:
        async with asyncio.timeout(_POOLER_SECONDS):
            async with _session(dsn) as pooled, pooled.transaction():
                fault = ""
                if await pooled.fetchrow(_SQL["place"].text) != await direct.fetchrow(
                    _SQL["place"].text
                ):
                    fault = "is not the database of QUEUEGATE_DIRECT_DATABASE_URL: correct one"
            if fault or await _keeps_sessions(dsn):
                kind = "a pool in session mode, or no pool"
            else:
                kind = "a pool in transaction mode"
                fault = await _fault_of_transaction_mode(dsn)
    except (*FAILURES, ValueError) as error:
        raise DatabaseRefused(_explained(error, dsn)) from None
    if fault:
        raise DatabaseRefused(f"the PostgreSQL at {shown(dsn)} {fault}")
    return kind


async def _fault_of_transaction_mode(dsn: str) -> str:
    """Return the reason why statements of the pool would fail; empty if they would not.

    The second client has the server on which the first one prepared its statement, so the first
    one repeats it on another.
    """
    start = {"application_name": "queuegate start"}
    first, second = [await Hosts(dsn).connect(start) for _ in range(2)]
    try:
        await first.fetchrow(_SQL["role"].text)
        async with second.transaction():
            await second.fetchrow(_SQL["role"].text)
            found = await first.fetchrow(_SQL["role"].text)
    except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        return _NO_STATEMENTS.format(reason=f" ({error.args[0]})")
    finally:
        first.terminate()
        second.terminate()
    assert found is not None
    return "" if found["path"] == SCHEMA else _NO_PATH.format(role=found["role"])


async def clock_skew_seconds(connection: Connection) -> float:
    """Return the seconds by which the database's clock is ahead of ours."""
    here = datetime.datetime.now(datetime.UTC)
    there: datetime.datetime = await connection.fetchval(_SQL["server_clock"].text)
    return (there - here).total_seconds()


async def statistics(connection: Connection) -> DatabaseStatistics:
    """Return the statistics of the server."""

    @contextlib.asynccontextmanager
    async def begin() -> AsyncIterator[Connection]:
        async with connection.transaction():
            yield connection

    return await read_statistics(begin)


async def conditional_policies(connection: Connection) -> list[tuple[str, str, bool]]:
    """Return name, text and kind (True: of a key) of each stored policy that has conditions."""
    rows = await connection.fetch(_SQL["conditional_policies"].text)
    return [(row["of"], row["policy"], row["is_of_key"]) for row in rows]


def shown(dsn: str) -> str:
    """Return host, port and database of a URL, without user and password."""
    try:
        parts = urlsplit(dsn)
    except ValueError:
        return "DATABASE_URL"
    hosts = parts.netloc.rpartition("@")[2] or ",".join(parse_qs(parts.query).get("host", []))
    return hosts + parts.path or "the default host"


def _unfit(connection: Connection) -> str:
    version = connection.get_server_version()
    if version.major < OLDEST_MAJOR_VERSION:
        return (
            f"is version {version.major}: Queuegate needs {OLDEST_MAJOR_VERSION} or newer. Upgrade "
            "it, or unset DATABASE_URL to use the bundled one"
        )
    facts = connection.get_settings()
    if getattr(facts, "in_hot_standby", "off") == "on":
        return (
            "is a standby, which takes no writes: name the primary in DATABASE_URL, or several "
            "hosts with ?target_session_attrs=read-write"
        )
    return ""


async def _pooled(connection: Connection, dsn: str) -> str:
    """Return the fault of a pooler in between; empty if there is none, or a suitable one.

    One round trip without a pooler: a pooler does not know the process id of a session in advance.
    """
    try:
        async with asyncio.timeout(_POOLER_SECONDS):
            async with connection.transaction():
                backend = await connection.fetchval(_SQL["backend"].text)
            kept = backend == connection.get_server_pid() or await _keeps_sessions(dsn)
    except asyncpg.PostgresError as error:
        # Prepared statement names that another client left, or an unknown parameter.
        return _NO_SESSIONS.format(reason=f" ({error.args[0]})")
    except (asyncpg.InterfaceError, asyncpg.InternalClientError, TimeoutError):
        kept = False
    return "" if kept else _NO_SESSIONS.format(reason="")


async def _unlike_lanes(dsn: str) -> str:
    """Open a connection with the settings of lanes, and return its fault."""
    try:
        async with _session(dsn, RELAXED_PLANNER):
            return ""
    except FAILURES as error:
        return f"refuses a connection with the settings of Queuegate ({error})"


async def _keeps_sessions(dsn: str) -> bool:
    """Return True if two connections stay two sessions with their settings, across transactions.

    Checked while the second is in a transaction: a transaction pooler has given it the first one's
    session, or has another one for the first.
    """
    mark = secrets.token_hex(8)
    async with _session(dsn) as first, _session(dsn) as second:
        async with first.transaction():
            await first.fetchval(_SQL["mark_session"].text, mark)
        async with second.transaction():
            seen = await second.fetchrow(_SQL["session"].text)
            if seen is None or seen["mark"] == mark:
                return False
            async with first.transaction():
                kept = await first.fetchrow(_SQL["session"].text)
    return kept is not None and kept["mark"] == mark and kept["path"] == SCHEMA


@contextlib.asynccontextmanager
async def _session(
    dsn: str, settings: Mapping[str, str] | None = None
) -> AsyncIterator[Connection]:
    """Open a connection. ``settings``: only if sessions are kept. Otherwise the pooler gives them
    to the next client."""
    # Unnamed statements: names of another client would conflict.
    connection = await Hosts(dsn).connect(
        {**session_settings("queuegate start"), **(settings or {})}, statement_cache_size=0
    )
    try:
        yield connection
    finally:
        connection.terminate()


_TLS_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
# OpenSSL's codes for a certificate of another name or address.
_OF_ANOTHER = (62, 64)

# SQLSTATE -> remedy; {text} is the server's own message, {place} the host and database.
_BY_SQLSTATE = {
    "28P01": "{place} refuses the user or password: correct DATABASE_URL",
    "28000": "{place} does not let this user in ({text}): correct DATABASE_URL or pg_hba.conf",
    "3D000": "{place}: {text}: create it (CREATE DATABASE), or correct DATABASE_URL",
    "53300": "{place} has no connection left ({text}): raise max_connections there",
    "57P03": "{place} is not ready ({text}): wait a moment and start again",
}


def _check_tls_files(dsn: str) -> None:
    """Raise DatabaseRefused with the name of an unreadable file, which later errors lack."""
    for name in _TLS_FILES:
        for path in _query(dsn).get(name, []):
            try:
                with open(path, "rb"):
                    pass
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else "no name of a file"
                raise DatabaseRefused(
                    f"{name}={path} in DATABASE_URL cannot be read: {reason}"
                ) from None


def _query(dsn: str) -> dict[str, list[str]]:
    try:
        return parse_qs(urlsplit(dsn).query)
    except ValueError:
        return {}


def _explained(error: Exception, dsn: str) -> str:
    place = shown(dsn)
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    by_state = _BY_SQLSTATE.get(getattr(error, "sqlstate", None) or "")
    if by_state is not None:
        is_plain = _query(dsn).get("sslmode", [""])[-1] == "disable"
        hint = "; sslmode=disable asks it without TLS" if is_plain else ""
        return by_state.format(place=place, text=text) + hint
    of_tls = _about_tls(error, place, text)
    if of_tls:
        return of_tls
    if isinstance(error, asyncpg.exceptions.TargetServerAttributeNotMatched):
        return f"no host of {place} takes writes at the moment ({text})"
    if isinstance(error, asyncpg.exceptions.ClientConfigurationError):
        return f"DATABASE_URL cannot be used ({text}): see `queuegate serve --help`"
    if isinstance(error, socket.gaierror):
        return f"the host in {place} has no address ({text}): correct DATABASE_URL"
    if isinstance(error, NoHost):
        return f"no host of {place} can be used: {text}"
    if isinstance(error, TimeoutError):
        return f"{text}: is it the right host, and does it hang?"
    if isinstance(error, ConnectionError | FileNotFoundError):
        return f"no PostgreSQL answers at {place} ({text}): start it, or correct DATABASE_URL"
    if isinstance(error, ValueError):
        # The text may contain a part of the password.
        return "DATABASE_URL cannot be used (its host or port): see `queuegate serve --help`"
    return f"cannot connect to {place}: {text}"


def _about_tls(error: Exception, place: str, text: str) -> str:
    """Return the explanation of a TLS error, else an empty text."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _unverified(error, place)
    if isinstance(error, ssl.SSLError):
        return f"no TLS with {place} ({text}): correct sslmode and its files in DATABASE_URL"
    if type(error) is ConnectionError:
        # Subclasses are lost connections; the class itself means that the server refuses TLS.
        return f"{place} speaks no TLS ({text}): switch it on there, or correct sslmode"
    return ""


def _unverified(error: ssl.SSLCertVerificationError, place: str) -> str:
    about = f"the certificate of {place}"
    if error.verify_code in _OF_ANOTHER:
        return (
            f"{about} is for another host ({error.verify_message}): name it in DATABASE_URL as its "
            "certificate does, or use sslmode=verify-ca"
        )
    return (
        f"{about} is not signed by what sslrootcert in DATABASE_URL names ({error.verify_message}):"
        " name the file of its authority"
    )

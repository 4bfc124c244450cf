"""`queuegate doctor`: check everything that `serve` needs, without changing anything."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path

from queuegate.gateway.command.supervisor import remaining_risk
from queuegate.gateway.configuration.settings import Settings
from queuegate.gateway.http.listening import (
    OPERATIONS_ADDRESS,
    Binding,
    CannotListen,
    bind,
    closing,
    shown_addresses,
)
from queuegate.gateway.operations.access.policies import absent_keys
from queuegate.gateway.operations.telemetry.database_health import findings, oldest_transaction
from queuegate.protocol.malformed import Malformed
from queuegate.protocol.policy_documents import PolicyKind
from queuegate.storage import preflight
from queuegate.storage.database_hosts import Hosts
from queuegate.storage.database_statistics import DatabaseStatistics
from queuegate.storage.embedded.data_directory import holder_of
from queuegate.storage.embedded.postgres_account import (
    CannotStart,
    account_to_become,
    can_enter,
    choose_account,
    find_binaries,
)
from queuegate.storage.migrate import pending

_LEAST_FREE_BYTES = 1 << 30
_TOLERATED_SKEW_SECONDS = 5.0


class _Wrong(Exception):
    """A check failed; the text names the remedy."""


def examine(settings: Settings) -> int:
    """Print a line for each check; return 0 if all pass, else 1."""
    failed = 0
    for name, check in _checks(settings):
        try:
            print(f"ok    {name}: {check(settings)}")
        except (_Wrong, CannotStart, CannotListen, preflight.DatabaseRefused) as wrong:
            failed += 1
            print(f"FAIL  {name}: {wrong}")
            if isinstance(wrong, preflight.DatabaseRefused):
                break
    print("All checks passed." if failed == 0 else f"{failed} failed.")
    return 1 if failed else 0


def _checks(settings: Settings) -> Iterator[tuple[str, Callable[[Settings], str]]]:
    yield "python", _python
    yield "port", _port
    if settings.database_url is not None:
        yield "database", partial(_asked, _database)
        if settings.direct_database_url is not None:
            yield "pool", partial(_asked, partial(_pool, settings.database_url))
        yield "tables", partial(_asked, _tables)
        yield "clock", partial(_asked, _clock)
        yield "policies", partial(_asked, _policies)
        for about in _HEALTHY:
            yield about, partial(_asked, partial(_healthy, about))
        return
    yield "bundled PostgreSQL", _binaries
    yield "account", _account
    yield "data directory", _data_directory
    yield "free space", _free_space


def _python(_: Settings) -> str:
    return f"{platform.python_version()} at {sys.executable}"


def _port(settings: Settings) -> str:
    with closing(bind(settings.hosts, settings.port)) as sockets:
        places = shown_addresses(sockets)
        if settings.operations_address:
            how = Binding(named_by=OPERATIONS_ADDRESS)
            with closing(bind(*settings.operations_address, how)) as operators:
                places += shown_addresses(operators)
        return f"{', '.join(places)}: free"


def _binaries(_: Settings) -> str:
    return str(find_binaries())


def _account(settings: Settings) -> str:
    account = choose_account(settings.data_dir / "pgdata")
    if not account.switch:
        return "PostgreSQL runs as this user"
    becomes = account_to_become(settings.data_dir) or account
    return remaining_risk(settings) or f"the gateway becomes {becomes.name}"


def _data_directory(settings: Settings) -> str:
    account, path = choose_account(settings.data_dir / "pgdata"), settings.data_dir
    holder = holder_of(path)
    if holder:
        raise _Wrong(f"{path} is in use by another Queuegate (process {holder})")
    there = _nearest(path)
    if not os.access(there, os.W_OK | os.X_OK):
        raise _Wrong(f"{there} is not writable: choose another directory with --data")
    if not can_enter(account, there):
        raise _Wrong(
            f"PostgreSQL runs as {account.name}, which cannot enter {there}: choose another "
            "directory with --data"
        )
    state = "holds data" if (path / "pgdata").is_dir() else "is new"
    return f"{path} {state}"


def _free_space(settings: Settings) -> str:
    free = shutil.disk_usage(_nearest(settings.data_dir)).free
    if free < _LEAST_FREE_BYTES:
        raise _Wrong(f"only {free >> 20} MiB are free: PostgreSQL stops when the disk is full")
    return f"{free >> 30} GiB"


async def _database(connection: preflight.Connection, url: str) -> str:
    version = connection.get_server_version()
    silent = await Hosts(url).silent()
    return "; ".join([f"PostgreSQL {version.major}.{version.minor}", *silent])


async def _pool(pool_url: str, connection: preflight.Connection, _: str) -> str:
    return f"DATABASE_URL leads to {await preflight.check_pool(pool_url, connection)}"


async def _tables(connection: preflight.Connection, _: str) -> str:
    names = [step.name for step in await pending(connection)]
    later = await pending(connection, finish=True)
    last = [step.name for step in later if step.name not in names]
    if names:
        return f"`serve` will apply {', '.join(names)}"
    if last:
        return f"current; `migrate --finish` applies {', '.join(last)}, once no older gateway runs"
    return "current"


async def _clock(connection: preflight.Connection, _: str) -> str:
    skew = await preflight.clock_skew_seconds(connection)
    if abs(skew) > _TOLERATED_SKEW_SECONDS:
        raise _Wrong(f"the clock of the database differs by {skew:+.1f} s: synchronize both by NTP")
    return f"{skew * 1000:+.0f} ms from the clock of the database"


async def _policies(connection: preflight.Connection, _: str) -> str:
    if await pending(connection):
        return "checked once the tables are current"
    found = []
    for name, text, is_of_key in await preflight.conditional_policies(connection):
        try:
            absent = absent_keys(text, PolicyKind.IDENTITY if is_of_key else PolicyKind.RESOURCE)
        except Malformed as error:
            absent = f"allows and denies nothing: {error}"
        if absent:
            found.append(f"the policy of {name} {absent}")
    return "; ".join(found) or "every condition key has a value"


_HEALTHY: dict[str, Callable[[DatabaseStatistics], str]] = {
    "transactions": oldest_transaction,
    "vacuum": lambda found: f"{sum(one.dead_rows for one in found.tables):,} dead rows in all",
    "replication": lambda found: f"{len(found.replicas)} replicas, {len(found.slots)} slots",
    "rights": lambda _: "the role sees all sessions",
}
"""By subject of findings, the text without one."""


async def _healthy(about: str, connection: preflight.Connection, _: str) -> str:
    found = await preflight.statistics(connection)
    texts = [f"{one.text}: {one.remedy}" for one in findings(found) if one.about == about]
    if texts and about != "rights":
        raise _Wrong("; ".join(texts))
    return "; ".join(texts) or _HEALTHY[about](found)


def _asked(
    look: Callable[[preflight.Connection, str], Coroutine[None, None, str]], settings: Settings
) -> str:
    url = settings.session_url or ""

    async def connect_and_look() -> str:
        connection = await preflight.connect(url)
        try:
            return await look(connection, url)
        finally:
            await connection.close()

    return asyncio.run(connect_and_look())


def _nearest(path: Path) -> Path:
    return next(step for step in [path, *path.parents] if step.exists())

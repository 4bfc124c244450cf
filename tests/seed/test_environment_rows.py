"""Every row of the environment of cl-sqs (docs/seeds.md 3.6): what each does, and what it does
unset."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg
import pytest

from queuegate.gateway.configuration.settings import DATABASE_PART_NAMES, DATABASE_PARTS
from tests.cli.processes import Gateway
from tests.databases import Databases
from tests.faces.connections import Connection, request_bytes
from tests.seed.gateways import SharedServer
from tests.seed.rows import Table

variable = Table(*DATABASE_PART_NAMES, "API_KEY")
KEY = "a key that is decently long"


class Told(NamedTuple):
    """A gateway that was told its database in parts, and its key."""

    gateway: Gateway
    parts: dict[str, str]
    dsn: str


@pytest.fixture(scope="module")
def told(databases: Databases) -> Iterator[Told]:
    dsn = databases.copy()
    url = urlsplit(dsn)
    query = parse_qs(url.query)
    parts = {
        "DB_HOST": query["host"][0],
        "DB_PORT": query.get("port", ["5432"])[0],
        "DB_USER": unquote(url.username or ""),
        "DB_PASSWORD": unquote(url.password or ""),
        "DB_NAME": url.path.removeprefix("/"),
    }
    with Gateway(**parts, API_KEY=KEY, QUEUEGATE_LOG_LEVEL="error") as gateway:
        yield Told(gateway, parts, dsn)
    databases.drop(dsn)


@variable(*DATABASE_PART_NAMES)
def test_the_database_is_the_one_of_these_parts(row: str, told: Told) -> None:
    """With another value of any of them the gateway would not be there."""
    assert told.parts[row]
    assert "queuegate" in asyncio.run(_connected(told.dsn))


async def _connected(dsn: str) -> set[str]:
    """Return the names of the applications connected to that database."""
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch(
            "SELECT application_name FROM pg_stat_activity WHERE datname = current_database()"
        )
    finally:
        await connection.close()
    return {row[0] for row in rows}


def test_parts_that_are_unset_are_those_of_the_seed() -> None:
    assert dict(
        zip(DATABASE_PART_NAMES, [default for _, default in DATABASE_PARTS], strict=True)
    ) == {
        "DB_HOST": "localhost",
        "DB_PORT": "5432",
        "DB_USER": "postgres",
        "DB_PASSWORD": "postgres",
        "DB_NAME": "postgres",
    }


@variable("API_KEY")
def test_with_a_key_it_has_to_be_shown(row: str, told: Told, server: SharedServer) -> None:
    assert row == "API_KEY"
    assert _status(told.gateway.url) == 403
    assert _status(told.gateway.url, KEY + "x") == 403
    assert _status(told.gateway.url, KEY) == 200
    assert _status(server.url) == 200, "unset, nobody has to"


def _status(url: str, key: str = "") -> int:
    with Connection(url) as connection:
        headers = {"Host": connection.host} | ({"api-key": key} if key else {})
        connection.send(request_bytes("GET", "/api/queues", headers))
        return connection.answer().status


def test_each_row_is_shown() -> None:
    assert variable.missing == []

"""Statements of logs use an index, even when they were planned on empty tables."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from queuegate.storage.database import RECEIVE_PLANNER, SEND_PLANNER, Database
from queuegate.storage.queries import load
from tests.storage.test_queries import PROBING

_PARTITIONS = 300
_RECORDS = 50
_GROUPS = 20
_SUBSCRIBERS = 10
_TABLES = "log_partitions|log_records|log_positions|log_subscribers"
_RANGES = "'{1,2}', '{0,10}', '{50,20}'"

CASES: dict[str, tuple[str, Mapping[str, str], set[str]]] = {
    "stored_records.append": (
        "NULL, '{1,2}', '{1,1}', '{1,1}', '{1,2}', '{0,0}', '{a,b}', NULL, NULL",
        SEND_PLANNER,
        {"log_partitions_key"},
    ),
    "stored_records.read_ranges": (
        f"{_RANGES}, 100, 1000",
        {},
        {"log_partitions_key", "log_records_key"},
    ),
    "feeds.read_feed": (
        f"1, {_RANGES}, 100, 1000",
        {},
        {"log_records_key"},
    ),
    "stored_records.delete_record": ("1, 5", {}, {"log_partitions_key", "log_records_key"}),
    "stored_logs.find_partitions": ("1, '{5,6}'", {}, {"log_partitions_partition_key"}),
    "stored_logs.find_numbered": ("1, '{5,6}'", {}, {"log_partitions_number"}),
    "stored_records.retire": ("NULL, '{1,2}', 10", PROBING, {"log_records_key"}),
    "stored_records.find_unswept": ("10", PROBING, {"log_partitions_unswept"}),
    "stored_records.remove_records": (f"{_RANGES}, 10", PROBING, {"log_records_key"}),
    "log_deliveries.look": (
        "NULL, '{1,2}', '{s1,s2}', '{1,1}', 1000",
        RECEIVE_PLANNER,
        {"log_positions_held_by", "log_partitions_key"},
    ),
    "log_deliveries.lock": ("'{1,2}', '{1,2}'", RECEIVE_PLANNER, {"log_positions_key"}),
    "log_deliveries.load": (
        "NULL, '{1,2}', '{1,2}', '{0,1}', '{1}', '{s1}', '{1}', 9",
        RECEIVE_PLANNER,
        {"log_positions_key", "log_partitions_key"},
    ),
    "log_deliveries.read": (
        "'{1,1}', '{1,2}', '{0,10}', '{50,20}', 1000",
        RECEIVE_PLANNER,
        {"log_records_key"},
    ),
    "log_deliveries.store": (
        "'{1}', '{1}', '{1}', '{1}', '{1}', '{1}', '{0}', '{1}', '{0}', '{}'",
        RECEIVE_PLANNER,
        {"log_positions_key"},
    ),
    "log_deliveries.lock_held": (
        "NULL, 1, 's1', 1",
        {},
        {"log_subscribers_key"},
    ),
    "log_groups.beat": ("NULL, 1, 's1', 1, 30", {}, {"log_subscribers_key"}),
    "log_groups.held": ("1, 's1'", {}, {"log_positions_held_by", "log_partitions_key"}),
    "log_groups.list_subscribers": ("NULL, 1", {}, {"log_positions_held_by"}),
    "record_dead_letters.read_records": ("'{1,2}', '{1,2}'", {}, {"log_records_key"}),
    "record_dead_letters.take_records": ("'{1,2}', '{1,2}'", {}, {"log_records_key"}),
    "record_dead_letters.first_records": ("1, 'a', NULL, 10", PROBING, {"log_records_key"}),
    "record_dead_letters.list_records": ("1, 'a', NULL, 10", PROBING, {"log_records_key"}),
}

FUNCTIONS = (
    "SELECT make_positions(1)",
    "SELECT join_group(NULL, 1, 's1', NULL, 30)",
    "SELECT share FROM log_groups, balance_subscriber(NULL, 1, 's1', generation)"
    " WHERE group_id = 1",
    "SELECT leave_group(1, 's1', generation) FROM log_groups WHERE group_id = 1",
)
"""In this order: a subscriber comes, gets its share, and goes."""
_SCANS = (
    "SELECT relname FROM pg_stat_xact_user_tables WHERE seq_scan > 0 AND relname = ANY($1::text[])"
)


@pytest.fixture
def database_dsn(own_database_dsn: str) -> str:
    return own_database_dsn


async def fill(database: Database) -> None:
    async with database.transaction() as tx:
        await tx.execute(
            "INSERT INTO log_partitions (log_id, number, partition_key, next_offset)"
            " SELECT 1, n, n::text, $2 FROM generate_series(1, $1::int) AS n",
            _PARTITIONS,
            _RECORDS,
        )
        await tx.execute(
            "INSERT INTO log_records (partition_id, record_offset, published_at, payload)"
            " SELECT p.partition_id, n, now(), 'x' FROM log_partitions AS p,"
            " generate_series(0, $1::int - 1) AS n",
            _RECORDS,
        )
        await tx.execute(
            "INSERT INTO log_groups (log_id, group_name, created_at, start_at)"
            " SELECT 1, n::text, now(), '-infinity' FROM generate_series(1, $1::int) AS n",
            _GROUPS,
        )
        await tx.execute(
            "INSERT INTO log_positions (group_id, partition_id, number, held_by)"
            " SELECT g.group_id, p.partition_id, p.number, 's' || p.number % $1"
            " FROM log_groups AS g, log_partitions AS p",
            _SUBSCRIBERS,
        )
        await tx.execute(
            "INSERT INTO log_subscribers (group_id, subscriber_name, session, live_until)"
            " SELECT g.group_id, 's' || n, 1, now() + interval '1 hour'"
            " FROM log_groups AS g, generate_series(0, $1::int - 1) AS n",
            _SUBSCRIBERS,
        )


@pytest.mark.parametrize("planned", ["force_generic_plan", "auto"])
async def test_statements_go_by_index(database: Database, planned: str) -> None:
    connections = []
    for name, (arguments, settings, _) in CASES.items():
        connection = await database.connect({"plan_cache_mode": planned} | dict(settings))
        file, _, statement = name.partition(".")
        await connection.execute(f"PREPARE asked AS {load(f'logs/{file}')[statement].text}")
        await connection.execute(f"EXECUTE asked ({arguments})")
        connections.append(connection)
    await fill(database)
    for _ in range(2):
        for connection, (name, (arguments, _, indexes)) in zip(
            connections, CASES.items(), strict=True
        ):
            rows = await connection.fetch(f"EXPLAIN (COSTS OFF) EXECUTE asked ({arguments})")
            plan = "\n".join(row[0] for row in rows)
            assert not re.search(rf"Seq Scan on ({_TABLES})\b", plan), (name, plan)
            assert all(re.search(rf"\b{index}\b", plan) for index in indexes), (name, plan)
        async with database.transaction() as tx:
            await tx.execute("ANALYZE log_partitions, log_records, log_positions, log_subscribers")
    for connection in connections:
        await connection.close()


async def test_functions_go_by_index(database: Database) -> None:
    connection = await database.connect()
    async with database.transaction() as tx:
        await tx.execute(
            "INSERT INTO logs (account_id, region, log_name, created_at)"
            " VALUES ('1', 'r', 'a', now())"
        )
        await tx.execute(
            "INSERT INTO log_groups (log_id, group_name, created_at, start_at)"
            " VALUES (1, 'first', now(), '-infinity')"
        )
    for _ in range(7):
        for statement in FUNCTIONS:
            await connection.fetch(statement)
    async with database.transaction() as tx:
        await tx.execute("DELETE FROM log_groups")
        await tx.execute("ALTER TABLE log_groups ALTER group_id RESTART")
    await fill(database)
    async with database.transaction() as tx:
        await tx.execute("UPDATE logs SET next_partition = $1", _PARTITIONS)
        await tx.execute("UPDATE log_groups SET live_subscribers = $1", _SUBSCRIBERS)
    async with connection.transaction():
        for statement in FUNCTIONS:
            await connection.fetch(statement)
        assert await connection.fetch(_SCANS, _TABLES.split("|")) == []
    await connection.close()

"""What logs are asked goes by index, also when it was planned while the tables were empty."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from storage.database import Database
from storage.lanes import SEND_PLANNER
from storage.queries import load
from tests.storage.test_queries import PROBING

_PARTITIONS = 300
_RECORDS = 50
_TABLES = "log_partitions|log_records"
_RANGES = "'{1,2}', '{0,10}', '{50,20}'"

CASES: dict[str, tuple[str, Mapping[str, str], set[str]]] = {
    "records.append": (
        "NULL, '{1,2}', '{1,1}', '{1,1}', '{1,2}', '{0,0}', '{a,b}', NULL, NULL",
        SEND_PLANNER,
        {"log_partitions_key"},
    ),
    "records.read_ranges": (
        f"{_RANGES}, 100, 1000",
        {},
        {"log_partitions_key", "log_records_key"},
    ),
    "feeds.read_feed": (
        f"1, {_RANGES}, 100, 1000",
        {},
        {"log_records_key"},
    ),
    "records.delete_record": ("1, 5", {}, {"log_partitions_key", "log_records_key"}),
    "logs.find_partitions": ("1, '{5,6}'", {}, {"log_partitions_partition_key"}),
    "logs.find_numbered": ("1, '{5,6}'", {}, {"log_partitions_number"}),
    "retention.retire": ("NULL, '{1,2}', 10", PROBING, {"log_records_key"}),
    "retention.find_unswept": ("10", PROBING, {"log_partitions_unswept"}),
    "retention.remove_records": (f"{_RANGES}, 10", PROBING, {"log_records_key"}),
}


@pytest.fixture
def database_dsn(own_database_dsn: str) -> str:
    return own_database_dsn


@pytest.mark.parametrize("planned", ["force_generic_plan", "auto"])
async def test_statements_go_by_index(database: Database, planned: str) -> None:
    connections = []
    for name, (arguments, settings, _) in CASES.items():
        connection = await database.connect({"plan_cache_mode": planned} | dict(settings))
        file, _, statement = name.partition(".")
        await connection.execute(f"PREPARE asked AS {load(f'logs/{file}')[statement].text}")
        await connection.execute(f"EXECUTE asked ({arguments})")
        connections.append(connection)
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
    for _ in range(2):
        for connection, (name, (arguments, _, indexes)) in zip(
            connections, CASES.items(), strict=True
        ):
            rows = await connection.fetch(f"EXPLAIN (COSTS OFF) EXECUTE asked ({arguments})")
            plan = "\n".join(row[0] for row in rows)
            assert not re.search(rf"Seq Scan on ({_TABLES})\b", plan), (name, plan)
            assert all(re.search(rf"\b{index}\b", plan) for index in indexes), (name, plan)
        async with database.transaction() as tx:
            await tx.execute("ANALYZE log_partitions, log_records")
    for connection in connections:
        await connection.close()

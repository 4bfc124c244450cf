"""Saved states: every row of every table comes back, and other accounts keep theirs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from queuegate.gateway.configuration.settings import Settings
from queuegate.gateway.faces.interface import Request
from queuegate.gateway.http.authentication import Authenticator
from queuegate.gateway.operations.runtime import account_contents
from queuegate.gateway.pages.account_pages import of_reset
from queuegate.gateway.pages.admin_endpoints import AdminPages
from queuegate.scheduler import sweeps
from queuegate.storage import account_states
from queuegate.storage.account_states import StateRefused, StateUnknown
from queuegate.storage.logs import stored_records
from queuegate.storage.logs.stored_records import Unswept
from queuegate.storage.queues import archives, message_retention
from tests.operations.world import World

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction


MINE, OTHER = "111122223333", "444455556666"
SAVED, LOADED = "2026-01-01T00:00:00+00:00", "2026-01-01T01:00:00+00:00"
SAVED_MS, LOADED_MS = 1_767_225_600_000, 1_767_229_200_000
_IN_NO_STATE = {
    *("keys", "quotas", "rate_windows", "settings"),
    *("schema_functions", "schema_migrations", "state_rows", "states", "event_recordings"),
}
_LIMITED = {
    "deliveries": {"kind": "Notification", "state": "pending"},
    "replays": {"status": "Pending"},
    "move_tasks": {"status": "RUNNING"},
    "schedules": {"target_kind": "queue"},
}


async def _tables(tx: Transaction) -> list[str]:
    found = await tx.fetch("SELECT table_name FROM state_tables() ORDER BY place")
    return [row[0] for row in found]


def _value(kind: str, number: int, account: str, column: str) -> Any:
    """A value of a column: ids are the number, so that all references hold."""
    if column == "deleted_at":
        return None
    if column == "account_id":
        return account
    if column == "spans":
        return [SAVED_MS, 1, SAVED_MS, 2, 3, 1, 0, 0, -1]
    values: dict[str, Any] = {
        "boolean": False,
        "bytea": "\\x00ff",
        "uuid": f"00000000-0000-4000-8000-{number:012}",
        "json": {"b": [1, "ü\n"], "a": None},
        "jsonb": {"a": 1},
        "timestamp with time zone": SAVED,
    }
    if kind.endswith("[]"):
        return [_value(kind[:-2], number, account, ""), _value(kind[:-2], number + 1, account, "")]
    return values.get(kind, number if "int" in kind else f'x"\\ü{number}')


async def _fill(tx: Transaction, number: int, account: str) -> None:
    """One row in each table."""
    for table in await _tables(tx):
        columns = await tx.fetch(
            "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute"
            " WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped",
            table,
        )
        row = {name: _value(kind, number, account, name) for name, kind in columns}
        row |= _LIMITED.get(table, {})
        await tx.execute(
            f"INSERT INTO {table} OVERRIDING SYSTEM VALUE"
            f" SELECT * FROM json_populate_record(NULL::{table}, $1)",
            json.dumps(row),
        )


async def _rows(tx: Transaction, *accounts: str) -> list[tuple[str, str]]:
    return [
        (row[0], row[1])
        for account in accounts
        for row in await tx.fetch("SELECT * FROM state_of($1)", account)
    ]


def _moved(table: str, content: str) -> str:
    if table == "schedules":
        return content
    row = json.loads(content.replace(SAVED, LOADED).replace(str(SAVED_MS), str(LOADED_MS)))
    if table == "queues":
        row["created_at"] = SAVED
    return json.dumps(row)


@pytest.fixture
def saved(world: World) -> World:
    world.clock.fixed = datetime.fromisoformat(SAVED)
    return world


async def test_each_table_is_in_states_or_noted_here(world: World) -> None:
    async with world.engine.database.transaction() as tx:
        there = await tx.fetch(
            "SELECT relname FROM pg_class WHERE relkind = 'r'"
            " AND relnamespace = 'queuegate'::regnamespace"
        )
        assert {row[0] for row in there} - {*await _tables(tx)} == _IN_NO_STATE


async def test_every_row_comes_back_and_times_go_on(saved: World) -> None:
    engine = saved.engine
    async with engine.database.transaction() as tx:
        await _fill(tx, 7, MINE)
        await _fill(tx, 8, OTHER)
        mine, other = await _rows(tx, MINE), await _rows(tx, OTHER)
        assert [table for table, _ in mine] == await _tables(tx)
    state = await account_contents.save(engine, MINE, "all")
    assert state.counts == dict.fromkeys([table for table, _ in mine], 1)
    await account_contents.reset(engine, MINE)
    await account_contents.load(engine, MINE, "all")
    async with engine.database.transaction() as tx:
        assert (await _rows(tx, MINE), await _rows(tx, OTHER)) == (mine, other)
    saved.clock.move_on(hours=1)
    await account_contents.load(engine, MINE, "all")
    async with engine.database.transaction() as tx:
        found = [(table, json.loads(content)) for table, content in await _rows(tx, MINE)]
        assert await _rows(tx, OTHER) == other
    assert found == [(table, json.loads(_moved(table, content))) for table, content in mine]


async def test_a_state_of_other_tables_is_refused(saved: World) -> None:
    engine = saved.engine
    await account_contents.save(engine, MINE, "old")
    async with engine.database.transaction() as tx:
        await tx.execute("UPDATE states SET schema_version = '0001_queues_and_messages'")
        await _fill(tx, 7, MINE)
    with pytest.raises(StateRefused, match="before an upgrade"):
        await account_contents.load(engine, MINE, "old")
    async with engine.database.transaction() as tx:
        assert len(await _rows(tx, MINE)) == len(await _tables(tx))
    await account_contents.delete_state(engine, MINE, "old")
    with pytest.raises(StateUnknown, match="Its states: none"):
        await account_contents.load(engine, MINE, "old")


async def test_states_of_an_account_are_limited(saved: World) -> None:
    most = saved.engine.limits.states_of_account
    for number in range(most):
        await account_contents.save(saved.engine, MINE, f"s{number}")
    await account_contents.save(saved.engine, MINE, "s0")
    await account_contents.save(saved.engine, OTHER, "s0")
    with pytest.raises(StateRefused, match=f"has {most} states"):
        await account_contents.save(saved.engine, MINE, "more")


async def test_a_reset_goes_back_to_the_seed(saved: World) -> None:
    engine = saved.engine
    async with engine.database.transaction() as tx:
        await _fill(tx, 7, MINE)
        await _fill(tx, 8, OTHER)
        seeded = await _rows(tx, MINE)
    await account_contents.save(engine, MINE, account_states.SEED)
    for account_id, others in ((MINE, len(seeded)), (MINE, len(seeded)), (None, 0)):
        await account_contents.reset(engine, account_id)
        async with engine.database.transaction() as tx:
            assert await account_states.list_states(tx, MINE) == []
            found = await _rows(tx, MINE)
            # A reset of all accounts also ends the clock of this test, so times have moved.
            assert found == seeded or account_id is None
            assert [table for table, _ in found] == [table for table, _ in seeded]
            assert len(await _rows(tx, OTHER)) == others
    async with engine.database.transaction() as tx:
        await tx.execute("UPDATE states SET schema_version = 'older'")
    with pytest.raises(StateRefused):
        await account_contents.reset(engine, MINE)
    async with engine.database.transaction() as tx:
        assert await _rows(tx, MINE) == found


async def test_a_reset_without_a_database_is_a_503(saved: World) -> None:
    settings = Settings.from_env({}, {"ephemeral": True})
    callers = Authenticator(mode="none", accounts={}, account_id="7", region="r")
    pages = AdminPages(saved.engine, callers, settings, of_reset)
    path = "/_admin/reset"
    request = Request("POST", path, b"", {}, b"", "", "", "id", raw_path=path)
    statuses = [getattr(await pages.answer(request), "status", None)]
    await saved.engine.database.close()
    statuses.append(getattr(await pages.answer(request), "status", None))
    assert statuses == [200, 503]


async def test_workers_leave_what_a_load_brought_back(world: World) -> None:
    """A worker found a deleted queue and a deleted log, and cleans up after the load."""
    engine, account = world.engine, world.caller.account_id
    queue = await world.make_queue()
    await world.send(queue)
    await account_contents.save(engine, account, "before")
    sweep = sweeps.remove_deleted_queues(keep_seconds=120)
    job = sweep.job(engine.database, lambda: datetime.now(UTC))
    await account_contents.reset(engine, account)
    async with engine.database.transaction() as tx:
        [tombstone] = await message_retention.find_tombstones(
            tx, None, after_queue_id=0, limit=10, seconds=120
        )
        await _fill(tx, 7, MINE)
        # Deleted as the worker saw it: records before offset 8.
        assert await stored_records.sweep(tx, [Unswept(7, 0, 8)], 10) == 0
        assert await archives.remove_outdated(tx, archives.Outdated(7, None), 10) == 0
    await account_contents.load(engine, account, "before")
    assert await sweeps.clear_tombstone(job, tombstone, 10) == 0
    assert [message.body for message in await world.receive(queue)] == ["body"]

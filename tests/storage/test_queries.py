"""Every statement is understood by the database, and the hot ones go by index at any depth."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from queuegate import storage
from queuegate.storage.database import RECEIVE_PLANNER, SEND_PLANNER, Database
from queuegate.storage.queries import Query, load
from queuegate.storage.queues import fifo_queues as fifo_storage
from tests.storage.fifo_queue import FifoQueue
from tests.storage.fifo_queue import make_message as make_fifo_message
from tests.storage.fifo_queue import make_queue as make_fifo_queue
from tests.storage.standard_queue import MovingClock, PriorityQueue, StandardQueue, make_queue

if TYPE_CHECKING:
    from queuegate.storage.database import Connection, Transaction

ROOT = Path(storage.__file__).parent
NO_STATEMENTS = {"functions", "migrations"}
FILES = sorted(
    str(path.relative_to(ROOT).with_suffix(""))
    for path in ROOT.rglob("*.sql")
    if path.parent.name not in NO_STATEMENTS
)
FILLED = 20_000
TABLES = ("messages", "fifo_messages", "fifo_groups", "fifo_dedup", "message_archive")
PROBING = {"enable_seqscan": "off", "enable_bitmapscan": "off"}
"""As ``storage.database.probe_by_key`` sets them."""

# Arguments of EXECUTE for the hot statements, and the indexes that their plans must name.
HOT: dict[str, tuple[str, dict[str, str], set[str]]] = {
    "receive": (
        "NULL, '{1,2}', '{10,10}', '{2000-01-01,2000-01-01}', '{2000-01-01,2000-01-01}',"
        " '{345600,345600}', '{30000,30000}'",
        RECEIVE_PLANNER,
        {"messages_fresh", "messages_received"},
    ),
    "receive_in_one": (
        "NULL, 1, 10, '2000-01-01', '2000-01-01', 345600, 30000",
        RECEIVE_PLANNER,
        {"messages_fresh", "messages_received"},
    ),
    "delete": ("'{1,1}', '{5,6}'", RECEIVE_PLANNER, {"messages_key"}),
    "delete_in_one": ("1, '{5,6}'", RECEIVE_PLANNER, {"messages_key"}),
    "delete_and_archive": (
        "NULL, '{1,1}', '{5,6}', '{1,1}'",
        RECEIVE_PLANNER,
        {"messages_key", "queues_key"},
    ),
    "delete_and_archive_in_one": (
        "NULL, 1, '{5,6}', '{1,1}'",
        RECEIVE_PLANNER,
        {"messages_key", "queues_key"},
    ),
    "find_existing": ("'{1,1}', '{5,6}'", RECEIVE_PLANNER, {"messages_key"}),
    "change_visibility": (
        "NULL, '{1,1}', '{5,6}', '{0,0}'",
        RECEIVE_PLANNER,
        {"messages_key"},
    ),
    "insert": (
        "NULL, '{1}', '{00000000-0000-0000-0000-000000000001}', '{a}', '{b}', NULL, NULL, NULL,"
        " '{1}', '{1}', '\\x00', NULL, false, false, NULL",
        SEND_PLANNER,
        {"queues_key"},
    ),
    "insert_in_one": (
        "NULL, 1, '{00000000-0000-0000-0000-000000000001}', '{a}', 'b', NULL, NULL, NULL, 1,"
        " '\\x00'",
        SEND_PLANNER,
        {"queues_key"},
    ),
    "priorities.insert": (
        "NULL, '{1}', '{00000000-0000-0000-0000-000000000001}', '{a}', '{b}', NULL, NULL, NULL,"
        " '{1}', '{1}', '\\x00', NULL, false, false, '{5}', '{60}', '{1}'",
        SEND_PLANNER,
        {"queues_key"},
    ),
    "priorities.receive": (
        "NULL, '{1,2}', '{10,10}', array_fill(timestamptz '2000-01-01', '{24}'),"
        " array_fill(timestamptz '2000-01-01', '{24}'), '{345600,345600}', '{30000,30000}'",
        RECEIVE_PLANNER,
        {"messages_urgent", "messages_fresh", "messages_received"},
    ),
    "message_retention.find_overdue": ("NULL, 0, 10, '{}', false", PROBING, {"messages_expiring"}),
    "message_retention.remove_overdue": ("NULL, '{1,2}', 10", PROBING, {"messages_expiring"}),
    "fair_queues.sample": (
        "NULL, '{1,2}', 10000",
        PROBING,
        {"messages_fresh", "messages_received"},
    ),
    "fair_queues.backlogs": (
        "NULL, '{1,2}', '{a,b}', '{2000-01-01,2000-01-01}', '{2000-01-01,2000-01-01}'",
        PROBING,
        {"messages_fresh", "messages_received"},
    ),
    "fair_queues.quiet_depths": (
        "NULL, '{1,2}', '{1}', '{a}', 20000",
        PROBING,
        {"messages_key"},
    ),
    "depths.oldest_by_priority": ("NULL, 10", PROBING, {"messages_urgent", "messages_fresh"}),
    "depths.oldest_ages": (
        "NULL, 10, '{}', '{}'",
        PROBING,
        {"messages_fresh", "messages_received", "fifo_groups_ready", "fifo_messages_key"},
    ),
}


@pytest.fixture
def database_dsn(own_database_dsn: str) -> str:
    return own_database_dsn


def statements() -> Iterator[tuple[str, Query]]:
    for file in FILES:
        for query in load(file).values():
            yield file, query


def code(query: Query) -> str:
    """The statement without its comments."""
    return re.sub(r"--[^\n]*", "", query.text)


def sequential_scans(plan: str) -> list[str]:
    """The tables of messages that a plan reads from end to end."""
    return re.findall(rf"Seq Scan on ({'|'.join(TABLES)})\b", plan)


@pytest.fixture
async def connection(database: Database) -> AsyncIterator[Connection]:
    connection = await database.connect()
    yield connection
    await connection.close()


async def fill(connection: Transaction, priority: str = "NULL") -> None:
    """Twenty thousand messages in three queues; one in ten was received."""
    await connection.execute(
        "INSERT INTO messages (queue_id, visible_at, sent_at, receive_count, first_received_at,"
        " message_id, sender_id, body, priority)"
        " SELECT 1 + n % 3, clock_timestamp() - n * interval '1 millisecond', clock_timestamp(),"
        " CASE WHEN n % 10 = 0 THEN 1 ELSE 0 END, NULL, gen_random_uuid(), 's', 'body',"
        f" {priority}"
        " FROM generate_series(1, $1::int) AS n",
        FILLED,
    )


def test_a_statement_without_a_header_is_not_loaded() -> None:
    queries = load("queues/standard_queues")
    assert queries["release"].params == ("now", "queue_id", "sequences", "receive_counts")
    assert queries["release"].text.startswith("-- Undoes receives")
    assert "-- name:" not in "".join(query.text for query in queries.values())


async def test_every_statement_prepares_with_the_parameters_of_its_header(
    connection: Connection,
) -> None:
    assert "queues/standard_queues" in FILES
    for file, query in statements():
        prepared = await connection.prepare(query.text)
        found = len(prepared.get_parameters())
        assert found == len(query.params), f"{file}.{query.name}"


def test_every_statement_on_messages_names_its_queue() -> None:
    # Deduplication ids are cleaned by age, over all queues.
    tables = "|".join(table for table in TABLES if table != "fifo_dedup")
    word = re.compile(rf"\b(FROM|INTO|UPDATE|JOIN|USING)\s+({tables})\b")
    wrong = [
        f"{file}.{query.name}"
        for file, query in statements()
        if word.search(code(query)) and "queue_id" not in code(query)
    ]
    assert wrong == []


@pytest.mark.parametrize("name", HOT)
async def test_hot_statements_go_by_index(database: Database, name: str) -> None:
    """Also when they were planned while the tables were empty, and after they were analysed."""
    arguments, settings, indexes = HOT[name]
    hot = load("queues/standard_queues")
    for file in ("priorities", "message_retention", "depths", "fair_queues"):
        hot |= {f"{file}.{one.name}": one for one in load(f"queues/{file}").values()}
    connection = await database.connect(settings)
    await connection.execute(f"PREPARE hot AS {hot[name].text}")
    await make_queue(database)
    await connection.execute(f"EXECUTE hot ({arguments})")
    await fill(connection)
    for _ in range(2):
        rows = await connection.fetch(f"EXPLAIN (COSTS OFF) EXECUTE hot ({arguments})")
        plan = "\n".join(row[0] for row in rows)
        assert sequential_scans(plan) == [], plan
        assert all(re.search(rf"\b{index}\b", plan) for index in indexes), plan
        await connection.execute("ANALYZE messages")
    await connection.close()


def test_the_check_for_scans_can_fail() -> None:
    assert sequential_scans("  ->  Seq Scan on messages m") == ["messages"]
    assert sequential_scans("  ->  Seq Scan on queue_deltas") == []


async def watch_afterwards(database: Database) -> Connection:
    """Ends every session, so that they hand in their statistics; a connection to read those."""
    await database.close()
    watcher = await database.connect()
    others = -1
    while others:
        others = await watcher.fetchval(
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND backend_type = 'client backend'"
            " AND pid <> pg_backend_pid()"
        )
    return watcher


async def rows_scanned(database: Database) -> dict[str, int]:
    """Rows that sequential scans have read, by table."""
    watcher = await watch_afterwards(database)
    rows = await watcher.fetch(
        "SELECT relname, seq_tup_read FROM pg_stat_user_tables WHERE relname = ANY($1)",
        list(TABLES),
    )
    await watcher.close()
    return {row["relname"]: row["seq_tup_read"] for row in rows}


async def use_standard(queue: StandardQueue, dead_letter_id: int) -> None:
    """Everything that requests do with a standard queue."""
    await queue.send("a", "b", "c", "d")
    received = await queue.receive()
    await queue.hide(received[0], seconds=60)
    await queue.release(received[1])
    await queue.bury(dead_letter_id, received[2])
    await queue.delete(received[0])
    await queue.next_visible()


async def test_standard_queues_planned_when_empty_never_scan(database: Database) -> None:
    queue = StandardQueue(database, await make_queue(database), MovingClock())
    dead_letter_id = await make_queue(database, "dead")
    for _ in range(6):
        await use_standard(queue, dead_letter_id)
    async with database.transaction() as tx:
        await fill(tx)
    for _ in range(6):
        await use_standard(queue, dead_letter_id)
    await queue.lanes.close()
    assert max((await rows_scanned(database)).values()) < FILLED // 4


async def test_queues_with_priorities_planned_when_empty_never_scan(database: Database) -> None:
    """A million of each priority would be read from end to end, too."""
    queue = PriorityQueue(database, await make_queue(database), MovingClock())
    dead_letter_id = await make_queue(database, "dead")

    async def use() -> None:
        await use_standard(queue, dead_letter_id)
        await queue.send("e", priority=5, ttl=5)
        await queue.receive(1)
        await queue.counts()
        await queue.remove_overdue()

    for _ in range(6):
        await use()
    async with database.transaction() as tx:
        await fill(tx, "CASE WHEN n % 2 = 0 THEN n % 11 END")
    for _ in range(6):
        await use()
    await queue.close()
    assert max((await rows_scanned(database)).values()) < FILLED // 4


async def test_a_receive_by_priority_reads_what_it_leases(own_database_dsn: str) -> None:
    """And not all that waits, on a table of which nothing is known yet."""
    database = Database(own_database_dsn, max_connections=1)
    await database.open()
    queue = PriorityQueue(database, await make_queue(database), MovingClock())
    await queue.send("first", ttl=60)
    await queue.send(*[str(number) for number in range(1_000)])
    assert len(await queue.receive(10)) == 10
    await queue.close()
    watcher = await watch_afterwards(database)
    read = await watcher.fetchval(
        "SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'messages'"
    )
    await watcher.close()
    assert 10 <= read < 100


async def use_fifo(queue: FifoQueue) -> None:
    """Everything that requests do with a FIFO queue."""
    for group in ("a", "b"):
        await queue.send(make_fifo_message(group), make_fifo_message(group))
    first, *others = await queue.receive(4)
    await queue.hide(first, 0)
    await queue.delete(*others)
    await queue.counts()
    async with queue.database.transaction() as tx:
        await fifo_storage.next_ready(tx, queue.now, [queue.queue_id])
        await fifo_storage.release(tx, queue.now, await queue.receive(1))


async def test_fifo_queues_planned_when_empty_never_scan(
    database: Database, fifo: FifoQueue
) -> None:
    queue = fifo
    for _ in range(6):
        await use_fifo(queue)
    for start in range(0, FILLED // 4, 500):
        rows = [make_fifo_message(f"g{start + number}") for number in range(500)]
        await queue.send(*rows)
    for _ in range(6):
        await use_fifo(queue)
    await queue.lanes.close()
    assert max((await rows_scanned(database)).values()) < FILLED // 8


async def add_queues(database: Database, count: int) -> None:
    async with database.transaction() as tx:
        await tx.execute(
            "INSERT INTO queues (account_id, region, queue_name, is_fifo, created_at, modified_at)"
            " SELECT '1', 'r', 'q' || n, true, now(), now() FROM generate_series(1, $1::int) AS n",
            count,
        )


@pytest.mark.parametrize("analyzed", [False, True])
async def test_fifo_sends_and_moves_look_at_their_own_queues_only(
    own_database_dsn: str, analyzed: bool
) -> None:
    """With a plan from when there were few queues, and now there are ten thousand."""
    database = Database(own_database_dsn, max_connections=1)
    await database.open()
    queue = FifoQueue(database, await make_fifo_queue(database))

    async def use() -> None:
        await queue.send(make_fifo_message("g"))
        [message] = await queue.receive(1)
        async with database.transaction() as tx:
            row = (message.group_id or "", message.sequence, message.receive_count)
            moved = await fifo_storage.move_to_dead_letter(
                tx,
                queue.now,
                source_queue_id=queue.queue_id,
                target_queue_id=queue.queue_id,
                source_arn="arn",
                rows=[row],
            )
            assert moved == 1

    if analyzed:
        async with database.transaction() as tx:
            await tx.execute("ANALYZE queues")
    await use()
    await add_queues(database, 10_000)
    await use()
    await queue.lanes.close()
    watcher = await watch_afterwards(database)
    read = await watcher.fetchval(
        "SELECT (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'queues')"
        " + (SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'queues')"
    )
    await watcher.close()
    assert read < 100


async def test_the_check_for_scanned_rows_can_fail(database: Database) -> None:
    async with database.transaction() as tx:
        await fill(tx)
        await tx.execute("SET LOCAL enable_indexscan = off; SET LOCAL enable_bitmapscan = off")
        await tx.execute("SELECT body FROM messages WHERE queue_id = 1 AND sequence = 1")
    assert max((await rows_scanned(database)).values()) >= FILLED

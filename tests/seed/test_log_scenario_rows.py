"""Rows of the log's seed (docs/seeds.md 5.5 to 5.10): order, what is never lost, crashes, shares,
decisions, and what operators do."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from queuegate.log import Superseded
from queuegate.log.sync import LogClient
from tests.faces.logs.client import Logs, record
from tests.faces.logs.conftest import Run
from tests.faces.servers import Background
from tests.seed.gateways import SharedServer, locked, somebody_waits
from tests.seed.log_workers import Worker, collect, group, numbered, stored
from tests.seed.rows import Table, rows_between
from tests.waiting import until

shows = Table(
    # 5.5
    "in offset order, acked out of order",
    "nack example with five messages",
    "BatchSize = 1",
    "VisibilityTimeoutMs must exceed the maximum processing time",
    # 5.6
    "stops at the first non-acked",
    "bounded to prevent unbounded memory usage",
    "converging with large backlogs",
    "cleans up delivery state behind the watermark",
    "Garbage Collection",
    "Move to DLQ",
    "Delivery State Cleanup",
    "No Silent Deletions",
    # 5.7
    "Worker crashes while processing a message",
    "Worker crashes after ack before watermark update",
    "Graceful shutdown",
    "fair share computation fails",
    "Automatic failover",
    # 5.8
    "Same Consumer Group",
    "Different Consumer Groups",
    "Count active subscribers",
    "Count total partitions",
    "ceil(totalPartitions / activeSubscribers)",
    "Cap lease acquisitions",
    "release excess",
    "rebalance on join",
    "rebalance on leave",
    # 5.9
    "Polling vs Push",
    "Immutable Log + Delivery State vs Mutable Messages",
    "Non-Blocking Nack vs Head-of-Line Blocking",
    "Strict Serialization (BatchSize=1) vs Concurrent Delivery",
    "Visibility Timeout vs Heartbeat",
    "Database Leasing vs External Coordinator",
    "Fair Share via Heartbeats vs Static Assignment",
    "At-Least-Once vs Exactly-Once",
    "Ordering per partition key",
    "Table per topic",
    # 5.10
    "list topics",
    "stats",
    "lag per group and partition",
    "inspect messages",
    "delete a message",
    "delete a topic",
    "purge a topic",
    "DLQ list",
    "DLQ requeue",
    "DLQ purge",
    "confirmation",
)
shows.linked("tests/seed/test_log_rows.py", {"Same Consumer Group": "test_a_key_is_one_workers"})
shows.linked(
    "tests/faces/logs/test_python_client.py",
    {
        "Graceful shutdown": "test_a_shutdown_gives_back_what_nobody_saw",
        "BatchSize = 1": "test_strict_order",
        "Strict Serialization (BatchSize=1) vs Concurrent Delivery": "test_strict_order",
    },
)
KEYS = "abcdefgh"


def filled(logs: Logs, keys: str = KEYS) -> None:
    logs.publish(*[record(key, key) for key in keys])


def joined(logs: Logs, *names: str, group: str = "billing") -> list[Worker]:
    """Workers that have sorted out who holds what."""
    workers = [Worker(logs, name, group=group) for name in names]
    return beaten(*workers, *workers)


def beaten(*workers: Worker) -> list[Worker]:
    return [*dict.fromkeys(worker.beat() for worker in workers)]


def held(*workers: Worker) -> list[int]:
    """Return the number of partitions of each worker; all together hold each partition once."""
    numbers = [number for worker in workers for number in worker.partitions]
    assert sorted(numbers) == [*range(len(KEYS))]
    return sorted(len(worker.partitions) for worker in workers)


@shows("in offset order, acked out of order", "stops at the first non-acked")
def test_several_are_out_at_once(logs: Logs) -> None:
    """A batch is ten records of a partition unless the group says otherwise."""
    logs.publish(*numbered(12))
    worker = Worker(logs)
    records = worker.fetch()
    assert [one["offset"] for one in records] == [*range(10)]
    seen = []
    for number in (9, 0, 2, 1, 3):
        worker.ack(records[number])
        seen.append(worker.watermark)
    assert seen == [-1, 0, 0, 2, 3]


@shows("nack example with five messages", "Non-Blocking Nack vs Head-of-Line Blocking")
def test_the_nack_example(logs: Logs, server: SharedServer) -> None:
    """Its offsets 1 to 5 are 0 to 4 here."""
    logs.publish(*numbered(5))
    worker = Worker(logs)
    records = worker.fetch()
    worker.settle([records[2]], "nack", delay=30)
    worker.ack(*records[:2], *records[3:])
    assert worker.watermark == 1
    logs.publish(record("later"))
    assert worker.payloads() == ["later"]
    server.advance(20)
    assert worker.beat().fetch() == []
    server.advance(10)
    again, later = worker.beat().fetch()
    assert (again["offset"], again["attempt"], later["offset"]) == (2, 2, 5)
    worker.ack(again)
    assert worker.watermark == 4


@shows("VisibilityTimeoutMs must exceed the maximum processing time")
def test_who_takes_longer_than_the_timeout(logs: Logs, server: SharedServer) -> None:
    """The record comes again, and the older receipt counts no more; whoever extends keeps it."""
    logs.make()
    group(logs, batch_size=1, visibility_timeout=5)
    logs.publish(*numbered(2))
    worker = Worker(logs)
    [slow] = worker.fetch()
    worker.settle([slow], "extend", delay=60)
    server.advance(20)
    assert worker.beat().fetch() == []
    worker.ack(slow)
    [slow] = worker.fetch()
    server.advance(5)
    [again] = worker.fetch()
    assert (again["offset"], again["attempt"]) == (1, 2)
    assert worker.ack(slow) == ["superseded"]
    assert worker.ack(again) == ["done"]


@shows("converging with large backlogs")
def test_the_watermark_catches_up_at_once(logs: Logs) -> None:
    """However much was acknowledged behind it, in whatever order."""
    logs.make()
    group(logs, batch_size=1_000)
    logs.publish(*numbered(600))
    worker = Worker(logs)
    first, *others = worker.fetch(600)
    worker.ack(*others[::-2])
    worker.ack(*others[-2::-2])
    assert worker.watermark == -1
    worker.ack(first)
    assert worker.watermark == 599


@shows("bounded to prevent unbounded memory usage")
def test_a_window_of_ten_thousand(logs: Logs, server: SharedServer) -> None:
    """A group goes that far ahead of what it is not done with, and then it waits for that."""
    logs.make()
    group(logs, batch_size=1_000, lease=1_000)
    for _ in range(11):
        logs.publish(*[record("x")] * 1_000)
    worker = Worker(logs)
    [stuck] = worker.fetch(1)
    worker.settle([stuck], "nack", delay=600)
    count = 1
    while records := worker.fetch(1_000):
        count += len(records)
        worker.ack(*records)
    assert (count, worker.watermark) == (10_000, -1)
    server.advance(600)
    worker.finish_all()
    assert worker.watermark == 10_999


@shows(
    "cleans up delivery state behind the watermark",
    "Delivery State Cleanup",
    "Immutable Log + Delivery State vs Mutable Messages",
)
def test_what_a_group_knows_is_one_row_a_partition(logs: Logs, server: SharedServer) -> None:
    """The seed has a row for each message, to be cleaned up. No record goes by it."""
    logs.publish(*numbered(100))
    known = (
        "SELECT p.watermark, cardinality(p.spans) FROM log_positions AS p"
        " JOIN log_groups USING (group_id) JOIN logs AS l USING (log_id) WHERE l.account_id = $1"
    )
    for name in ("billing", "search"):
        worker = Worker(logs, group=name)
        some = worker.fetch()
        worker.ack(*some[1:])
        worker.settle(some[:1], "nack", delay=0)
        worker.finish_all()
    assert [tuple(row) for row in server.rows(known, logs.account)] == [(99, 0), (99, 0)]
    assert stored(server, logs) == 100


@shows("Garbage Collection")
def test_what_somebody_works_on_is_not_collected(logs: Logs, server: SharedServer) -> None:
    logs.publish(*numbered(4))
    worker = Worker(logs)
    records = worker.fetch()
    worker.ack(records[0], *records[2:])
    server.advance(7_200)
    collect(server)
    assert logs.payloads() == ["1", "2", "3"]
    # Nobody else got it meanwhile, so it may still be acknowledged.
    assert worker.ack(records[1]) == ["done"]
    collect(server)
    assert logs.payloads() == []


DISK_FULL = """
CREATE FUNCTION disk_is_full() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'the disk is full' USING ERRCODE = 'disk_full'; END $$
"""
FAILING = """
CREATE TRIGGER fails BEFORE INSERT ON log_records
FOR EACH ROW WHEN (NEW.failure IS NOT NULL) EXECUTE FUNCTION disk_is_full()
"""


@contextmanager
def no_dead_letter_fits(server: SharedServer) -> Iterator[None]:
    """Dead letters cannot be written during the block."""
    server.rows(DISK_FULL)
    try:
        server.rows(FAILING)
        yield
    finally:
        server.rows("DROP FUNCTION disk_is_full() CASCADE")


@shows("Move to DLQ")
def test_a_move_that_fails_has_not_happened(logs: Logs, server: SharedServer) -> None:
    logs.publish(record("poison"))
    worker = Worker(logs)
    [found] = worker.fetch()
    told = {"deliveries": [{"receipt": found["receipt"], "do": "reject"}]}
    place = "/v1/logs/orders/groups/billing/deliveries"
    with no_dead_letter_fits(server):
        logs.refusal("POST", place, told, status=503)
        assert (worker.place()["lag"], worker.place()["in_flight"]) == (1, 1)
    assert worker.settle([found], "reject") == ["dead_lettered"]
    assert logs.payloads(log="orders_dlq") == ["poison"]
    assert worker.place()["lag"] == 0


@shows("Move to DLQ", "No Silent Deletions")
def test_a_dead_letter_is_never_in_zero_tables(logs: Logs, server: SharedServer) -> None:
    """As far as a group has given records up, they are dead letters: whenever somebody looks. They
    stay in their log, too: other groups get them."""
    logs.make()
    group(logs, batch_size=100)
    logs.publish(*numbered(30))
    worker = Worker(logs)
    records = worker.fetch()
    both = (
        "SELECT (SELECT p.watermark + 1 FROM log_positions AS p JOIN log_groups USING (group_id)"
        " JOIN logs AS l USING (log_id) WHERE l.account_id = $1),"
        " (SELECT count(*) FROM log_records JOIN log_partitions USING (partition_id)"
        " JOIN logs AS l USING (log_id) WHERE l.account_id = $1 AND l.log_name = 'orders_dlq')"
    )

    def give_up() -> None:
        for one in records:
            worker.settle([one], "reject")

    giving_up = Background(give_up)
    seen: list[tuple[int, int]] = []
    while not seen or seen[-1][0] < 30:
        seen.append(tuple(server.rows(both, logs.account)[0]))
    giving_up.result()
    assert all(done == dead for done, dead in seen)
    assert logs.payloads() == [str(number) for number in range(30)]


@shows("No Silent Deletions")
def test_bounds_of_age_and_size_are_not_silent(logs: Logs, server: SharedServer) -> None:
    """They are ours, and unset: with them a log drops what nobody has read, and whoever reads hears
    where it begins."""
    logs.publish(*numbered(3))
    server.advance(86_400 * 30)
    collect(server)
    assert logs.payloads() == ["0", "1", "2"]
    logs.call("PATCH", "/v1/logs/orders", {"max_age": 3_600})
    collect(server)
    [found] = logs.read({"partition": 0, "from": 0})
    assert (found["start"], found["payloads"]) == (3, [])


@shows("Worker crashes while processing a message")
def test_a_worker_crashes_while_it_works(logs: Logs, server: SharedServer) -> None:
    """Another steals its partition and gets the record after its timeout, and that counts."""
    logs.publish(*numbered(2))
    crashed, another = joined(logs, "crashes", "stays")
    [record] = crashed.fetch(1)
    server.advance(20)
    assert another.beat().partitions == []
    server.advance(10)
    assert another.beat().partitions == [0]
    found = another.fetch()
    assert [(one["offset"], one["attempt"]) for one in found] == [(0, 2), (1, 1)]
    # It had only been slow: its receipt is void, and it is told to join again.
    assert crashed.ack(record) == ["superseded"]
    assert crashed.is_fenced()
    assert another.ack(*found) == ["done", "done"]


@shows("Worker crashes after ack before watermark update")
def test_a_worker_crashes_after_it_acknowledged(logs: Logs, server: SharedServer) -> None:
    """There is nothing in between: the watermark is in the same update as the acknowledgement. What
    was acknowledged out of order is not delivered again either."""
    logs.publish(*numbered(4))
    crashed = Worker(logs, "crashes")
    records = crashed.fetch()
    crashed.ack(records[0], records[2])
    assert crashed.watermark == 0
    server.advance(30)
    another = Worker(logs, "stays")
    assert another.payloads() == ["1", "3"]


@shows("fair share computation fails")
def test_shares_that_cannot_be_computed(logs: Logs, server: SharedServer) -> None:
    """There is no fallback to unlimited leases: while it fails everybody keeps what they have, and
    renews it."""
    filled(logs)
    one, two = joined(logs, "one", "two")
    with locked(server.dsn, "log_groups", "EXCLUSIVE"):
        joining = Background(Worker, logs, "three")
        until(lambda: somebody_waits(server.dsn, "log_groups"))
        server.advance(20)
        assert held(one.beat(), two.beat()) == [4, 4]
        assert len(one.fetch()) + len(two.fetch()) == 8
    three = joining.result()
    beaten(one, two, three, one, two, three)
    assert held(one, two, three) == [2, 3, 3]


@shows("Automatic failover")
def test_who_cannot_reach_a_gateway_asks_another(logs: Logs) -> None:
    """It is the client that knows several, and asks until one answers."""
    for urls in ([logs.url, "http://127.0.0.1:1"], ["http://127.0.0.1:1", logs.url]):
        with LogClient(urls, account=logs.account) as client:
            client.publish("orders", "1")
            for delivery in client.subscribe("orders", "billing"):
                delivery.ack().result()
                break
            assert client.group("orders", "billing").lag == 0


@shows("Database Leasing vs External Coordinator")
def test_workers_of_two_gateways_share(server: SharedServer, logs: Logs) -> None:
    """Leases are rows: it does not matter which gateway a worker asks, now or next time."""
    with SharedServer(server.dsn) as other, Logs(other.url, logs.account) as there:
        filled(logs)
        one, two = Worker(logs, "one"), Worker(there, "two")
        beaten(one, two, one, two)
        assert held(one, two) == [4, 4]
        found = [*one.fetch(), *two.fetch()]
        assert sorted(record["payload"] for record in found) == [*KEYS]
        assert two.ack(*found) == ["done"] * 8


@shows("Different Consumer Groups")
def test_groups_are_independent(logs: Logs) -> None:
    """Nacks, retries and dead letters of one are nothing to another, which gets all records, those
    of dead letters too: here the seed's step 8 would delete them for it."""
    filled(logs)
    [one] = joined(logs, "one", group="billing")
    [other] = joined(logs, "one", group="search")
    records = one.fetch()
    one.settle(records[:3], "nack", delay=60)
    one.settle(records[3:5], "reject")
    one.leave()
    assert sorted(other.finish_all()) == [*KEYS]
    assert other.place()["watermark"] == 0


@shows("Count active subscribers", "Count total partitions")
def test_what_a_share_is_computed_from(logs: Logs, server: SharedServer) -> None:
    """Partitions of all keys, leased or not; subscribers with a heartbeat within the lease."""
    filled(logs, "abc")
    one = Worker(logs, "one")
    assert one.share == 3
    filled(logs, "defgh")
    assert one.beat().share == 8
    two = Worker(logs, "two")
    assert one.beat().share == two.beat().share == 4
    server.advance(20)
    assert one.beat().share == 4
    server.advance(10)
    assert one.beat().share == 8


@shows(
    "ceil(totalPartitions / activeSubscribers)",
    "Cap lease acquisitions",
    "release excess",
    "rebalance on join",
    "Fair Share via Heartbeats vs Static Assignment",
)
def test_rebalance_on_join(logs: Logs) -> None:
    """The same partitions go each time: the last by number. A share is exact, and so never above
    the seed's: 3, 3 and 2 of 8, and nobody is left without any."""
    filled(logs)
    one = Worker(logs, "one")
    assert one.partitions == [*range(8)]
    two = Worker(logs, "two")
    assert (one.beat().partitions, two.beat().partitions) == ([0, 1, 2, 3], [4, 5, 6, 7])
    three = Worker(logs, "three")
    beaten(one, two, three)
    assert held(one, two, three) == [2, 3, 3]
    assert one.partitions == [0, 1, 2]


@shows("rebalance on leave")
def test_rebalance_on_leave(logs: Logs) -> None:
    """A subscriber that waits in a fetch is told at once to send a heartbeat."""
    filled(logs)
    one, two, three = joined(logs, "one", "two", "three")
    one.finish_all()
    waiting = Background(one.fetched, wait=20)
    two.leave()
    three.leave()
    assert waiting.result()["rebalance"]
    assert held(one.beat()) == [8]
    assert sorted(one.finish_all()) == [*"defgh"]


@shows("Polling vs Push")
def test_a_slow_consumer_has_what_it_takes(logs: Logs) -> None:
    """Back-pressure: the client fetches as its consumer settles, and no request waits 100 ms."""
    logs.publish(*numbered(10))
    with LogClient(logs.url, account=logs.account) as client:
        most = 0
        found = []
        for delivery in client.subscribe("orders", "billing", most_in_hand=2):
            most = max(most, client.group("orders", "billing").in_flight)
            found.append(delivery.text)
            delivery.ack()
            if len(found) == 10:
                break
    assert (most, found) == (2, [str(number) for number in range(10)])


@shows("Visibility Timeout vs Heartbeat")
def test_a_crash_costs_the_whole_timeout_and_leaving_does_not(
    logs: Logs, server: SharedServer
) -> None:
    logs.make()
    group(logs, visibility_timeout=120)
    logs.publish(record("1"))
    Worker(logs, "crashes").fetch()
    server.advance(60)
    another = Worker(logs, "another")
    assert another.partitions == [0]
    assert another.fetch() == []
    server.advance(60)
    [found] = another.beat().fetch()
    assert found["attempt"] == 2
    another.leave(releases=True)
    [found] = Worker(logs, "third").fetch()
    assert found["attempt"] == 2


@shows("At-Least-Once vs Exactly-Once")
def test_an_id_makes_a_duplicate_harmless(logs: Logs, server: SharedServer) -> None:
    """A worker that dies between its work and its acknowledgement."""
    charged: set[str] = set()
    with LogClient(logs.url, account=logs.account) as client:
        client.publish("orders", "charge", id="payment-7")
        charged.add(Worker(logs, "dies").fetch()[0]["id"])
        server.advance(30)
        for delivery in client.subscribe("orders", "billing"):
            assert delivery.attempt == 2
            assert delivery.id in charged
            delivery.ack().result()
            with pytest.raises(Superseded):
                delivery.nack().result()
            break


@shows("Ordering per partition key")
def test_keys_keep_their_order(logs: Logs) -> None:
    """A partition each, or a number of partitions that they share."""
    for name, settings in (("each", {}), ("shared", {"partitions": 3})):
        logs.make(name, **settings)
        for number in range(4):
            logs.publish(*[record(f"{number}", key) for key in KEYS], log=name)
        worker = Worker(logs, log=name)
        assert len(worker.partitions) == settings.get("partitions", len(KEYS))
        found: dict[str, list[str]] = {}
        while records := worker.fetch():
            for one in records:
                found.setdefault(one["key"], []).append(one["payload"])
            worker.ack(*records)
        assert found == {key: ["0", "1", "2", "3"] for key in KEYS}


@shows("Table per topic")
def test_a_topic_needs_no_migration(logs: Logs, server: SharedServer) -> None:
    """A log is a row, made by the first publish to it, and goes without a trace."""
    tables = "SELECT count(*) FROM pg_class"
    before = server.rows(tables)
    for number in range(20):
        logs.publish(record("1"), log=f"log-{number}")
    assert len(logs.call("GET", "/v1/logs")["logs"]) == 20
    assert server.rows(tables) == before


def members(printed: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in printed.splitlines()]


@shows("list topics", "stats")
def test_topics_are_listed(run: Run, logs: Logs) -> None:
    logs.publish(*numbered(3), record("1", "b"))
    Worker(logs).leave()
    [listed] = members(run("list", "--json"))
    assert (listed["log"], listed["records"], listed["groups"]) == ("orders", 4, 1)
    [shown] = members(run("show", "orders", "--json"))
    assert (shown["partition_count"], shown["bytes"]) == (2, 4)
    assert "billing" in run("show", "orders")


@shows("lag per group and partition")
def test_lag_is_shown(run: Run, logs: Logs) -> None:
    logs.publish(*numbered(3), record("1", "b"))
    one, _ = Worker(logs, group="billing"), Worker(logs, group="search")
    one.ack(*one.fetch(2))
    found = members(run("lag", "orders", "--json"))
    assert [(group["group"], group["lag"]) for group in found] == [("billing", 2), ("search", 4)]
    found = members(run("lag", "orders", "billing", "--json"))
    assert [(one["key"], one["lag"]) for one in found] == [("a", 1), ("b", 1)]


@shows("inspect messages", "delete a message")
def test_messages_are_inspected_and_deleted(run: Run, logs: Logs) -> None:
    logs.publish(*numbered(3))
    listed = run("records", "orders", "--limit", "2").splitlines()
    assert [line.split()[-1] for line in listed[1:3]] == ["0", "1"]
    assert run("record", "orders", "0", "1").endswith("\n\n1\n")
    assert run("delete-record", "orders", "0", "1", "--yes") == "Record 0:1 is deleted.\n"
    assert Worker(logs).finish_all() == ["0", "2"]


@shows("delete a topic", "purge a topic", "confirmation")
def test_topics_are_purged_and_deleted(
    run: Run, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When somebody said yes."""
    logs.publish(*numbered(3))
    answers = io.TextIOWrapper(io.BytesIO(b"no\nyes\nyes\n"))
    monkeypatch.setattr(sys, "stdin", answers)
    assert run("purge", "orders", code=1).endswith("Nothing was changed.\n")
    assert logs.payloads() == ["0", "1", "2"]
    assert run("purge", "orders").endswith("3 records deleted.\n")
    assert logs.publish(record("next"))[0]["offset"] == 3
    assert run("delete", "orders").endswith("orders is deleted.\n")
    assert run("list") == "There are no logs.\n"


@shows("DLQ list", "DLQ requeue", "DLQ purge")
def test_dead_letters_are_seen_to(run: Run, logs: Logs) -> None:
    """Requeued, they are published again: for the group that gave them up, and no other."""
    logs.publish(*numbered(3))
    worker, other = Worker(logs), Worker(logs, group="search")
    other.finish_all()
    worker.settle(worker.fetch(), "reject", error="no stock")
    assert run("dead-letters", "list", "orders").count("no stock") == 3
    printed = run("dead-letters", "requeue", "orders", "0:0")
    assert printed == "1 dead letter requeued.\n"
    assert (worker.finish_all(), other.finish_all()) == (["0"], [])
    assert run("dead-letters", "requeue", "orders", "--all") == "2 dead letters requeued.\n"
    worker.settle(worker.fetch(), "reject")
    assert run("dead-letters", "purge", "orders", "--yes") == "2 dead letters deleted.\n"
    assert run("dead-letters", "list", "orders") == "orders has no dead letters.\n"


def test_every_row_is_shown() -> None:
    assert shows.missing == []


def test_the_page_has_the_same_rows() -> None:
    assert rows_between("### 5.5", "### 5.11") == [*shows.rows]

"""Rows of the log's seed (docs/seeds.md 5.1 to 5.4): goals, parts, the way of a message, groups."""

from __future__ import annotations

import itertools
import signal
from datetime import datetime, timedelta
from time import monotonic

from tests.faces.connections import fetch
from tests.faces.logs.client import Logs, record
from tests.faces.servers import Background
from tests.seed.gateways import SharedServer
from tests.seed.log_workers import Worker, collect, group, numbered, stored
from tests.seed.rows import Table, rows_between

shows = Table(
    # 5.1
    "Publish/Subscribe",
    "Partitioning",
    "At-Least-Once Delivery",
    "Crash Recovery",
    "Distributed Workers",
    "Dead Letter Queue",
    "Delivery State Tracking",
    "Multi-Consumer-Group",
    "Operational Simplicity",
    "Sub-Second Latency",
    "Scalability",
    "Exactly-Once Delivery",
    "Message Ordering Across Partitions",
    "Real-Time Streaming",
    # 5.2
    "Immutable Message Log",
    "Watermark-Based Offset",
    "Partition Leasing",
    "Fair Partition Distribution",
    "Persistent Retry Tracking",
    "queue_messages",
    "(topic, partition_key, id)",
    "queue_delivery_state",
    "queue_partition_leases",
    "queue_offsets",
    "queue_subscriber_heartbeats",
    "failed_at, failure_count, last_error, original_topic",
    # 5.3
    "1. Publish",
    "2. Lease Acquisition",
    "3. Fetch",
    "4. Delivery Check",
    "No row (never delivered)",
    "acked = TRUE",
    "acked = FALSE, invisible_until <= now",
    "acked = FALSE, invisible_until > now",
    "5. Mark Delivered",
    "5a. Extend Visibility",
    "6. Ack",
    "7. Nack",
    "8. DLQ",
    "9. Garbage Collection",
    # 5.4
    "Independent delivery state",
    "Independent offsets",
    "Independent partition leases",
    "Independent heartbeats",
    "Shared immutable log",
    "MIN(offset_acked)",
)
shows.linked(
    "tests/faces/logs/test_records.py",
    dict.fromkeys(
        ("(topic, partition_key, id)", "1. Publish"), "test_an_id_is_published_once_for_a_key"
    ),
)
shows.linked("tests/faces/logs/test_groups.py", {"6. Ack": "test_an_ack_is_idempotent"})
shows.linked(
    "tests/operations/test_log_groups.py",
    {
        "Dead Letter Queue": "test_dead_letters_are_consumed_like_any_record",
        "8. DLQ": "test_retry_counts_survive_and_the_last_attempt_is_a_dead_letter",
        "Persistent Retry Tracking": (
            "test_retry_counts_survive_and_the_last_attempt_is_a_dead_letter"
        ),
        "failed_at, failure_count, last_error, original_topic": (
            "test_a_dead_letter_says_what_it_was"
        ),
    },
)
shows.linked(
    "tests/seed/test_log_scenario_rows.py",
    {
        "Watermark-Based Offset": "test_several_are_out_at_once",
        **dict.fromkeys(
            (
                "Delivery State Tracking",
                "queue_delivery_state",
                "Independent delivery state",
                "queue_offsets",
                "Independent offsets",
            ),
            "test_groups_are_independent",
        ),
        **dict.fromkeys(
            ("Partition Leasing", "queue_partition_leases", "2. Lease Acquisition"),
            "test_a_worker_crashes_while_it_works",
        ),
    },
)


@shows("Publish/Subscribe", "Multi-Consumer-Group", "Shared immutable log")
def test_who_publishes_knows_no_reader(logs: Logs) -> None:
    """Groups may be made before and after, and get the same."""
    logs.make()
    before = Worker(logs, group="before")
    logs.publish(*numbered(3))
    before.beat()
    after = Worker(logs, group="after")
    assert before.finish_all() == after.finish_all() == ["0", "1", "2"]
    assert logs.payloads() == ["0", "1", "2"]


@shows("Partitioning", "Distributed Workers")
def test_a_key_is_one_workers(logs: Logs) -> None:
    for number, key in itertools.product(range(5), "abcdef"):
        logs.publish(record(str(number), key))
    workers = [Worker(logs, name) for name in ("one", "two", "three")]
    for worker in [*workers, *workers]:
        worker.beat()
    found = [(one["key"], worker.name) for worker in workers for one in worker.fetch()]
    assert len(found) == 30
    owners = dict(found)
    assert all(owners[key] == name for key, name in found)
    assert sorted(list(owners.values()).count(worker.name) for worker in workers) == [2, 2, 2]


@shows("Partitioning", "Message Ordering Across Partitions")
def test_order_is_of_a_partition(logs: Logs) -> None:
    """A blocked partition does not block another."""
    logs.make()
    group(logs, batch_size=1)
    logs.publish(*numbered(3, "a"), *numbered(3, "b"))
    worker = Worker(logs)
    stuck, first = worker.fetch()
    assert (stuck["key"], first["key"]) == ("a", "b")
    found = [first["payload"]]
    worker.ack(first)
    found += worker.finish_all()
    assert found == ["0", "1", "2"]
    worker.ack(stuck)
    assert worker.finish_all() == ["1", "2"]


@shows("At-Least-Once Delivery", "Exactly-Once Delivery")
def test_a_record_comes_again_until_it_is_acknowledged(logs: Logs, server: SharedServer) -> None:
    """Its id is the same each time: that is how an application knows a duplicate."""
    logs.publish(record("charge", id="payment-7"))
    for attempt in (1, 2):
        [found] = Worker(logs).fetch()
        assert (found["id"], found["attempt"]) == ("payment-7", attempt)
        server.advance(30)
    worker = Worker(logs)
    worker.ack(*worker.fetch())
    server.advance(300)
    assert worker.beat().fetch() == []


@shows("Crash Recovery")
def test_workers_go_on_behind_what_was_acknowledged(server: SharedServer) -> None:
    """Also when their gateway is killed, and they ask another one."""
    with SharedServer(server.dsn) as dies, Logs(dies.url) as logs:
        logs.publish(*numbered(4))
        worker = Worker(logs)
        worker.ack(*worker.fetch(2))
        worker.fetch(1)
        account = logs.account
        dies.stop(signal.SIGKILL)
    with Logs(server.url, account) as logs:
        server.advance(30)
        assert Worker(logs, "another").payloads() == ["2", "3"]


@shows("Operational Simplicity")
def test_nothing_but_postgresql_is_needed(server: SharedServer, logs: Logs) -> None:
    """A gateway that was given a database and nothing else."""
    logs.publish(record("1"))
    assert Worker(logs).finish_all() == ["1"]
    assert fetch(server.url, "/readyz").status == 200
    [[server_version]] = server.rows("SELECT count(*) FROM pg_extension WHERE extname <> 'plpgsql'")
    assert server_version == 0


@shows("Sub-Second Latency", "Real-Time Streaming")
def test_a_publish_wakes_whoever_waits(logs: Logs, server: SharedServer) -> None:
    """The seed polls every 100 ms instead."""
    logs.publish(record("0"))
    worker = Worker(logs)
    worker.finish_all()
    waiting = Background(worker.payloads, wait=20)
    server.until_parked()
    began = monotonic()
    logs.publish(record("1"))
    assert waiting.result() == ["1"]
    assert monotonic() - began < 1


@shows("Scalability")
def test_many_workers_share_many_partitions(logs: Logs, server: SharedServer) -> None:
    """Half of them die; the others have everything after the length of a lease. `make bench` has
    more of both, and measures."""
    logs.make()
    group(logs, lease=300)
    logs.publish(*[record("1", f"key-{number}") for number in range(500)])
    workers = [Worker(logs, f"worker-{number:02}") for number in range(50)]
    for worker in [*workers, *workers]:
        worker.beat()
    assert {len(worker.partitions) for worker in workers} == {10}
    assert len({number for worker in workers for number in worker.partitions}) == 500
    survivors = workers[::2]
    for seconds in (200, 100):
        server.advance(seconds)
        for worker in survivors:
            worker.beat()
    for worker in survivors:
        worker.beat()
    assert {len(worker.partitions) for worker in survivors} == {20}
    assert sum(len(worker.fetch()) for worker in survivors) == 500


@shows("Immutable Message Log", "queue_messages")
def test_records_are_never_changed(logs: Logs, server: SharedServer) -> None:
    """However often they are delivered and given back."""
    logs.publish(record("paid", "acme", id="7", metadata={"tenant": "acme"}))
    versions = (
        "SELECT r.xmin::text FROM log_records AS r JOIN log_partitions USING (partition_id)"
        " JOIN logs AS l USING (log_id) WHERE l.account_id = $1"
    )
    before = logs.records(), server.rows(versions, logs.account)
    worker = Worker(logs)
    worker.settle(worker.fetch(), "nack", delay=0)
    worker.ack(*worker.fetch())
    assert (logs.records(), server.rows(versions, logs.account)) == before
    [found] = logs.records()
    assert found.pop("published_at")
    assert found == {
        "partition": 0,
        "offset": 0,
        "key": "acme",
        "id": "7",
        "payload": "paid",
        "metadata": {"tenant": "acme"},
    }


@shows("Fair Partition Distribution", "queue_subscriber_heartbeats")
def test_shares_go_by_heartbeats(logs: Logs, server: SharedServer) -> None:
    logs.publish(*[record("1", key) for key in "abcde"])
    one, two = Worker(logs, "one"), Worker(logs, "two")
    for worker in (one, two):
        assert worker.beat().share in (2, 3)
    assert sorted([*one.partitions, *two.partitions]) == [0, 1, 2, 3, 4]
    shown = logs.call("GET", "/v1/logs/orders/groups/billing")["subscribers"]
    assert {who["subscriber"] for who in shown} == {"one", "two"}
    now = datetime.fromisoformat(server.now())
    for who in shown:
        left = datetime.fromisoformat(who["live_until"]) - now
        assert timedelta(0) < left <= timedelta(seconds=30)
    two.leave()
    assert one.beat().partitions == [0, 1, 2, 3, 4]


@shows(
    "3. Fetch",
    "4. Delivery Check",
    "No row (never delivered)",
    "acked = TRUE",
    "acked = FALSE, invisible_until <= now",
    "acked = FALSE, invisible_until > now",
)
def test_what_is_deliverable(logs: Logs, server: SharedServer) -> None:
    """By offset: what is above the watermark and was never out, or is visible again."""
    logs.publish(*numbered(4))
    worker = Worker(logs)
    acked, expires, delayed = worker.fetch(3)
    worker.ack(acked)
    worker.settle([delayed], "nack", delay=100)
    assert worker.payloads() == ["3"]
    server.advance(20)
    assert worker.beat().payloads() == []
    server.advance(10)
    assert worker.beat().payloads() == ["1", "3"]
    assert worker.ack(expires) == ["superseded"]
    server.advance(70)
    assert worker.beat().payloads() == ["1", "2", "3"]


@shows("5. Mark Delivered", "5a. Extend Visibility")
def test_a_delivery_hides_and_counts_and_an_extension_only_hides(
    logs: Logs, server: SharedServer
) -> None:
    logs.publish(record("long"))
    worker = Worker(logs)
    [found] = worker.fetch()
    for _ in range(3):
        server.advance(20)
        worker.beat()
        assert worker.settle([found], "extend", delay=30) == ["done"]
    server.advance(20)
    assert worker.beat().fetch() == []
    server.advance(10)
    [again] = worker.beat().fetch()
    assert (found["attempt"], again["attempt"]) == (1, 2)
    assert worker.settle([found], "extend", delay=30) == ["superseded"]


@shows("7. Nack")
def test_a_nack_hides_for_its_delay_or_for_the_groups(logs: Logs, server: SharedServer) -> None:
    """Without one it backs off, up to the most."""
    logs.make()
    group(logs, backoff={"initial": 40, "factor": 2, "most": 100}, lease=600)
    logs.publish(record("flaky"))
    worker = Worker(logs)
    worker.settle(worker.fetch(), "nack", delay=60)
    for seconds in (60, 80, 100):
        server.advance(seconds - 20)
        assert worker.fetch() == []
        server.advance(20)
        [found] = worker.fetch()
        worker.settle([found], "nack")
    assert found["attempt"] == 4


@shows("9. Garbage Collection", "MIN(offset_acked)")
def test_only_what_all_groups_have_acked_is_collected(logs: Logs, server: SharedServer) -> None:
    """And not at once: it is kept for `retain_consumed`, an hour, for whoever seeks back."""
    logs.publish(*numbered(6))
    one, other = Worker(logs, group="billing"), Worker(logs, group="search")
    one.finish_all()
    other.ack(*other.fetch(2))
    collect(server)
    assert stored(server, logs) == 6
    server.advance(3_601)
    collect(server)
    assert logs.payloads() == ["2", "3", "4", "5"]
    assert stored(server, logs) == 4
    logs.call("DELETE", "/v1/logs/orders/groups/search", status=204)
    collect(server)
    assert stored(server, logs) == 0


@shows("Independent partition leases", "Independent heartbeats")
def test_groups_do_not_compete_for_partitions(logs: Logs, server: SharedServer) -> None:
    """Subscribers of one name in two groups are two."""
    logs.publish(*[record("1", key) for key in "abcd"])
    one, two = Worker(logs, "one", group="billing"), Worker(logs, "two", group="billing")
    alone = Worker(logs, "one", group="search")
    one.beat()
    two.beat()
    assert (len(one.partitions), len(two.partitions), len(alone.partitions)) == (2, 2, 4)
    server.advance(20)
    alone.beat()
    server.advance(10)
    # All of the other group is dead by now.
    assert alone.beat().partitions == [0, 1, 2, 3]
    assert Worker(logs, "three", group="billing").partitions == [0, 1, 2, 3]


def test_every_row_is_shown() -> None:
    assert shows.missing == []


def test_the_page_has_the_same_rows() -> None:
    assert rows_between("### 5.1", "### 5.5") == [*shows.rows]

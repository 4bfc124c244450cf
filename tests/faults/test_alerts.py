"""Each alert fires for its cause: a real Prometheus scrapes real gateways once a second.

Alerts of disk and clock are in test_full_disk.py and test_clock_steps.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from tests.cli.calling import call
from tests.faces.clients import Sqs
from tests.faces.connections import Connection, fetch, request_bytes
from tests.faces.servers import Server
from tests.faults.faked_postgres import faked_postgres
from tests.prometheus import Prometheus, scraping
from tests.protocol.certificates import write_pair
from tests.waiting import until

BUDGET_BYTES = 16_777_216
BODY_BYTES = 6_000_000


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(QUEUEGATE_MAX_BUFFERED_BYTES=str(BUDGET_BYTES)) as running:
        yield running


@pytest.fixture(scope="module")
def prometheus(server: Server) -> Iterator[Prometheus]:
    with scraping(server.url) as running:
        running.until_scraped()
        assert running.firing() == {}
        yield running


def test_dead_letters(server: Server, prometheus: Prometheus) -> None:
    with Sqs("json", server.url) as sqs:
        dead = sqs.arn(sqs.create("orders-dlq"))
        redrive = json.dumps({"deadLetterTargetArn": dead, "maxReceiveCount": 1})
        url = sqs.create(RedrivePolicy=redrive)
        sqs.send(url)
        assert sqs.receive(url, VisibilityTimeout=0)
        until(lambda: sqs.receive(url) or server.metric("queuegate_dead_letters_total"))
        labels = prometheus.until_firing("QueuegateDeadLetters")
        assert (labels["account"], labels["queue"]) == (sqs.account, "orders")


def test_throttling(server: Server, prometheus: Prometheus) -> None:
    with Sqs("json", server.url) as sqs:
        done = call("quotas", "set", sqs.account, "--requests", "1/h", DATABASE_URL=server.dsn)
        assert done.returncode == 0, done.stderr

        def refused() -> bool:
            for _ in range(100):
                sqs.ask("ListQueues", {})
            return "QueuegateThrottling" in prometheus.firing()

        until(refused)
        assert prometheus.firing()["QueuegateThrottling"]["account"] == sqs.account


def test_requests_refused(server: Server, prometheus: Prometheus) -> None:
    with Connection(server.url) as holding, Sqs("json", server.url) as sqs:
        head = {"X-Amz-Target": "AmazonSQS.SendMessage", "Content-Length": str(BODY_BYTES)}
        own = {"Host": server.url.partition("://")[2], "Authorization": "any"}
        large = request_bytes("POST", "/", head | own)
        holding.send(large + b" " * (BODY_BYTES - 1))
        until(lambda: server.metric("queuegate_buffered_bytes") > BODY_BYTES * 0.9)

        def refused() -> bool:
            for _ in range(10):
                with Connection(server.url) as connection, contextlib.suppress(ConnectionError):
                    connection.send(large)
                    connection.send(b" " * (BODY_BYTES - 1))
                    assert connection.answer().status == 503
            return "QueuegateRequestsRefused" in prometheus.firing()

        until(refused)
        assert sqs.create()


def test_fault_rules(server: Server, prometheus: Prometheus) -> None:
    rule = b'{"operation": "SendMessage", "queue": "nobodys", "error": "ThrottlingException"}'
    assert fetch(server.url, "/_admin/faults", "POST", rule).status == 200
    prometheus.until_firing("QueuegateFaultRules")
    assert fetch(server.url, "/_admin/faults", "DELETE").status == 200
    until(lambda: "QueuegateFaultRules" not in prometheus.firing())


def test_old_messages(server: Server, prometheus: Prometheus) -> None:
    with Sqs("json", server.url) as sqs:
        for name in ("orders", "orders-dlq"):
            sqs.send(sqs.create(name))
        server.advance(1_000)
        labels = prometheus.until_firing("QueuegateOldMessages")
        assert (labels["account"], labels["queue"]) == (sqs.account, "orders")


def test_certificate_expires(tmp_path: Path) -> None:
    """Of tomorrow. Takes more than 5 s: Prometheus looks for targets every 5 s."""
    certificate, key = write_pair(tmp_path)
    tls = {"QUEUEGATE_TLS_CERTIFICATE": str(certificate), "QUEUEGATE_TLS_KEY": str(key)}
    with Server(**tls) as server, scraping(server.url) as prometheus:
        assert prometheus.until_firing("QueuegateCertificateExpires")["certificate"] == "tls"


async def _hold_transaction(dsn: str, prometheus: Prometheus) -> None:
    """Make the troubles that a session of somebody makes, and wait for their alerts."""
    settings = {"application_name": "nightly report"}
    connection = await asyncpg.connect(dsn, server_settings=settings)
    await connection.execute("SELECT pg_create_physical_replication_slot('gone', true)")
    async with connection.transaction():
        await connection.execute("LOCK TABLE queuegate.move_tasks IN ACCESS EXCLUSIVE MODE")
        for alert in ("SlotInactive", "HeldTransaction", "WorkerStopped"):
            await asyncio.to_thread(prometheus.until_firing, f"Queuegate{alert}")
    # Without the lock, behind which sizes of tables cannot be read.
    async with connection.transaction(isolation="repeatable_read"):
        await connection.execute("SELECT count(*) FROM queuegate.queues")
        await _churn(dsn)
        held = "QueuegateHeldTransaction"
        firing = await asyncio.to_thread(
            until, prometheus.firing, lambda found: "pid" in found.get(held, {})
        )
        holder = firing[held]
        assert (holder["kind"], holder["name"]) == ("session", "nightly report")
        assert holder["pid"] == str(connection.get_server_pid())
    await connection.close()


async def _churn(dsn: str) -> None:
    """Use up transactions, and leave dead rows behind, more than the alert and the metric need."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(
        "INSERT INTO queuegate.queue_deltas (queue_id, delta)"
        " SELECT -1, 0 FROM generate_series(1, 220000)"
    )
    await connection.execute("DELETE FROM queuegate.queue_deltas WHERE queue_id = -1")
    await connection.execute(
        "DO $$ BEGIN FOR n IN 1..21000 LOOP PERFORM txid_current(); COMMIT; END LOOP; END $$"
    )
    await connection.close()


def test_trouble_of_the_database() -> None:
    """A held transaction, a lock that stops a worker, a slot without a reader, a server that hangs.
    Takes more than 5 s: each takes seconds to be one."""
    with (
        faked_postgres(None) as postgres,
        Server(dsn=postgres.dsn) as server,
        Sqs("json", server.url) as sqs,
        scraping(server.url) as prometheus,
    ):
        sqs.create()
        prometheus.until_scraped()
        assert prometheus.firing() == {}
        asyncio.run(_hold_transaction(postgres.dsn, prometheus))
        until(lambda: {*prometheus.firing()} == {"QueuegateSlotInactive"})
        with postgres.stopped():
            prometheus.until_firing("QueuegateDatabaseDown")
        until(lambda: "QueuegateDatabaseDown" not in prometheus.firing())
        assert sqs.create()

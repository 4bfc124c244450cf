"""The dashboard of Grafana: a real Prometheus has data for each of its queries, with two gateways
under a little load, of which one has a PostgreSQL with a standby, and the other its own."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.cli.calling import call
from tests.cli.processes import Gateway
from tests.faces.clients import Sqs
from tests.faces.connections import Connection, request_bytes
from tests.faces.logs.client import Logs, record
from tests.faces.logs.test_groups import join
from tests.faces.rest.client import Rest
from tests.faces.scheduler_client import Scheduler
from tests.faces.servers import Server
from tests.faces.sns_client import Sns
from tests.faces.test_webhooks import confirm
from tests.faces.web_hooks import WebHook
from tests.prometheus import Prometheus, scraping
from tests.protocol.certificates import write_pair
from tests.standbys import Pair
from tests.waiting import until

DASHBOARD = Path(__file__).parents[2] / "deploy/grafana/dashboards/queuegate.json"
VARIABLES = {"$__rate_interval": "20s", "$job": ".*", "$queue": ".*"}
LABEL_VALUES = "label_values("


def queries() -> Iterator[tuple[str, str]]:
    """Yield each query with the title of its panel, and those of variables."""
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            assert "$" not in expression
            yield panel["title"], expression
    for variable in dashboard["templating"]["list"]:
        if variable["query"].startswith(LABEL_VALUES):
            metric, _, label = variable["query"].removeprefix(LABEL_VALUES).partition(", ")
            yield variable["name"], f'{metric}{{{label.removesuffix(")")}!=""}}'


def without_data(prometheus: Prometheus) -> list[tuple[str, str]]:
    """Return the queries that find nothing, or no number."""
    return [
        (title, query)
        for title, query in queries()
        if not any(not math.isnan(float(one["value"][1])) for one in prometheus.query(query))
    ]


@pytest.fixture
def pair() -> Iterator[Pair]:
    running = Pair()
    yield running
    running.stop()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can enter: as root PostgreSQL runs as somebody else."""
    with tempfile.TemporaryDirectory(prefix="queuegate-dashboard-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


async def _add_slot(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute("SELECT pg_create_physical_replication_slot('standby', true)")
    await connection.execute("VACUUM queuegate.messages")
    await connection.close()


class LittleLoad:
    """An account that uses what the dashboard shows."""

    def __init__(self, server: Server, stack: contextlib.ExitStack) -> None:
        self.sqs = stack.enter_context(Sqs("json", server.url))
        account = self.sqs.account
        self.sns = stack.enter_context(Sns("json", server.url, account))
        self.logs = stack.enter_context(Logs(server.url, account))
        self.scheduler = stack.enter_context(contextlib.closing(Scheduler(server.url, account)))
        self.hook = stack.enter_context(WebHook())
        self.count = 0
        self._make(server)
        # A request that does not end holds bytes.
        held = stack.enter_context(Connection(server.url))
        head = {"Host": "x", "Authorization": "any", "Content-Length": "1000000"}
        held.send(request_bytes("POST", "/", head) + b" " * 900_000)

    def _make(self, server: Server) -> None:
        dead = self.sqs.arn(self.sqs.create("orders-dlq"))
        redrive = json.dumps({"deadLetterTargetArn": dead, "maxReceiveCount": 2})
        self.queue = self.sqs.create("orders", RedrivePolicy=redrive)
        self.copies = self.sqs.create("q")
        with Rest(server.url, self.sqs.account) as rest:
            rest.create("paused")
            rest.ask("PUT", "/v1/queues/paused/pause")
        self.topic = self.sns.create()
        self.sns.subscribe(self.topic, "sqs", self.sqs.arn(self.copies))
        self.sns.subscribe(self.topic, "http", self.hook.url)
        confirm(self.sns, self.hook.next())
        self.logs.publish(record())
        join(self.logs)
        none = ("set", self.sqs.account, "--queues", "3")
        assert call("quotas", *none, DATABASE_URL=server.dsn).returncode == 0

    def round(self, server: Server) -> None:
        """Do each thing once or a few times."""
        self.count += 1
        for number in range(5):
            self.sqs.send(self.queue, f"{self.count}-{number}")
        for _ in range(2):
            for message in self.sqs.receive(self.queue, 2, VisibilityTimeout=0):
                self.sqs.receive(self.queue, 1, VisibilityTimeout=0)
                self.sqs.ask(
                    "DeleteMessage",
                    {"QueueUrl": self.queue, "ReceiptHandle": message["ReceiptHandle"]},
                )
        self.sns.publish(self.topic)
        self.logs.publish(record(str(self.count)))
        now = datetime.datetime.now(datetime.UTC)
        self.scheduler.create(f"s{self.count}", ScheduleExpression=f"at({now:%Y-%m-%dT%H:%M:%S})")
        self.sqs.ask("CreateQueue", {"QueueName": "one-too-many"})
        self.logs.ask("POST", "/v1/messages", {"channel": "alerts", "payload": 1})


@pytest.mark.timeout(300)
def test_each_query_has_data(pair: Pair, open_folder: Path) -> None:
    """Takes more than 5 s: two gateways, a standby and Prometheus start."""
    certificate, key = write_pair(open_folder)
    tls = {"QUEUEGATE_TLS_CERTIFICATE": str(certificate), "QUEUEGATE_TLS_KEY": str(key)}
    data = open_folder / "data"
    with (
        Server(dsn=pair.url(), QUEUEGATE_CHANNEL_RATE_LIMIT="1/h") as server,
        Gateway("--data", str(data), **tls) as own,
        scraping(server.url, own.url) as prometheus,
        contextlib.ExitStack() as stack,
    ):
        load = LittleLoad(server, stack)
        asyncio.run(_add_slot(pair.url()))

        def missing() -> list[Any]:
            load.round(server)
            return without_data(prometheus)

        until(missing, lambda found: found == [])

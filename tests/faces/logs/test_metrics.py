"""Metrics of log groups at /metrics."""

from __future__ import annotations

from tests.faces.logs.client import Logs, record
from tests.faces.logs.test_groups import GROUP, fetch, join, settle
from tests.faces.servers import Server


def test_the_metrics_of_groups_are_there() -> None:
    """Counted by this process, and as the database has it."""
    with Server() as server, Logs(server.url) as logs:
        logs.publish(record("1"), record("2"), record("3", "b"), record("4", "c"))
        session = join(logs)["session"]
        first, second, *_ = fetch(logs, session, max=3)["records"]
        settle(logs, {"receipt": second["receipt"], "do": "reject"})
        settle(logs, {"receipt": first["receipt"], "do": "nack", "delay": 0})
        assert len(fetch(logs, session)["records"]) == 2
        logs.create("jobs")
        logs.call("PUT", "/v1/logs/orders/groups/fed", {"queue": "jobs"}, status=201)
        assert len(logs.messages("jobs", wait=20)) == 4
        logs.call("DELETE", "/v1/queues/jobs", status=204)
        labels = f'account="{logs.account}",group="{{}}",log="orders",region="us-east-1"'
        assert {
            line.removeprefix("queuegate_log_")
            for line in server.metrics().splitlines()
            if line.startswith("queuegate_log_")
            and not line.startswith("queuegate_log_watermark_age_seconds")
        } == {
            text.replace("*", labels.format(group))
            for group, texts in {
                "billing": (
                    "records_delivered_total{*} 5.0",
                    "records_redelivered_total{*} 1.0",
                    "dead_letters_total{*} 1.0",
                    "records_fed_total{*} 0.0",
                    "lag{*} 4.0",
                    "subscribers{*} 1.0",
                    'leases{*,state="held"} 3.0',
                    'leases{*,state="free"} 0.0',
                    "rebalances_total{*} 1.0",
                ),
                "fed": (
                    "records_delivered_total{*} 0.0",
                    "records_redelivered_total{*} 0.0",
                    "dead_letters_total{*} 0.0",
                    "records_fed_total{*} 4.0",
                    "lag{*} 0.0",
                    "rebalances_total{*} 0.0",
                    "feed_waiting{*} 1.0",
                ),
            }.items()
            for text in texts
        }
        age = server.metric('queuegate_log_watermark_age_seconds{group="billing"}')
        assert 0 < age < 60
        assert server.metric('queuegate_log_watermark_age_seconds{group="fed"}') == 0
        logs.call("DELETE", GROUP, status=204)

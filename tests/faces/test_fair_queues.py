"""Fair queues as a client meets them: quiet message groups of a standard queue go first."""

from __future__ import annotations

from tests.faces.clients import Sqs
from tests.faces.servers import Server
from tests.waiting import until


def _send(sqs: Sqs, url: str, group: str, count: int) -> None:
    for start in range(0, count, 10):
        entries = [
            {"Id": str(number), "MessageBody": group, "MessageGroupId": group}
            for number in range(min(10, count - start))
        ]
        assert len(sqs.call("SendMessageBatch", QueueUrl=url, Entries=entries)["Successful"])


def test_quiet_groups_go_first_and_metrics_show_it(sqs: Sqs, server: Server) -> None:
    """Ten seconds: /metrics asks the database as often."""
    url = sqs.create("orders", VisibilityTimeout="600")
    _send(sqs, url, "busy", 200)
    for _ in range(6):
        assert sqs.bodies(url) == ["busy"] * 10

    def goes_first() -> bool:
        """Once the gateway has sampled the queue."""
        _send(sqs, url, "quiet", 1)
        return "quiet" in sqs.bodies(url, 1)

    until(goes_first)
    while "quiet" in sqs.bodies(url, 1):
        # What was sent before the group was noisy.
        pass
    _send(sqs, url, "quiet", 12)
    assert sqs.bodies(url) == ["quiet"] * 10
    assert sorted(sqs.bodies(url, 4)) == ["busy", "busy", "quiet", "quiet"]
    assert not any("Noisy" in name or "Quiet" in name for name in sqs.attributes(url))
    server.until(f'queuegate_noisy_groups{{account="{sqs.account}"}}', 1)

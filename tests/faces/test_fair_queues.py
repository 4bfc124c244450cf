"""Fair queues as a client meets them: quiet message groups of a standard queue go first."""

from __future__ import annotations

from itertools import count

from tests.faces.clients import Sqs
from tests.faces.servers import Server
from tests.waiting import until

_TENANTS = count()


def _send(sqs: Sqs, url: str, group: str, number_of_messages: int) -> None:
    for start in range(0, number_of_messages, 10):
        entries = [
            {
                "Id": str(number),
                "MessageBody": group,
                # Each quiet message is of a tenant of its own.
                "MessageGroupId": group if group == "busy" else f"{group}-{next(_TENANTS)}",
            }
            for number in range(min(10, number_of_messages - start))
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
    # What was sent before the group was noisy goes next.
    until(lambda: sqs.bodies(url, 1) == ["busy"])
    _send(sqs, url, "quiet", 12)
    assert sqs.bodies(url) == ["quiet"] * 10
    assert sorted(sqs.bodies(url, 4)) == ["busy", "busy", "quiet", "quiet"]
    assert not any("Noisy" in name or "Quiet" in name for name in sqs.attributes(url))
    server.until(f'queuegate_noisy_groups{{account="{sqs.account}"}}', 1)

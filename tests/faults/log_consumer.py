"""A consumer of a log in a process of its own, which prints what it has got before it says so."""

from __future__ import annotations

import sys

from queuegate.log.sync import LogClient

if __name__ == "__main__":
    account, *urls = sys.argv[1:]
    with LogClient(urls, account=account) as client:
        for delivery in client.subscribe("orders", "billing", subscriber="process"):
            print(delivery.partition, delivery.offset, delivery.text, flush=True)
            delivery.ack()

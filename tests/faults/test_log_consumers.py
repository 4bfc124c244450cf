"""One of two gateways dies while consumers of a log work, and so does one of these."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import defaultdict

from queuegate.log import LogClient, NewRecord, Subscription
from tests.faces.clients import new_account
from tests.faces.servers import Server
from tests.waiting import until_async, until_so

CONSUMERS = 7
KEYS = 24
RECORDS = 1_600
LEASE_SECONDS = 2


class Work:
    """The records that consumers received, in order."""

    def __init__(self) -> None:
        self.seen: dict[int, list[int]] = defaultdict(list)
        self.payloads: set[str] = set()

    def got(self, partition: int, offset: int, payload: str) -> None:
        self.seen[partition].append(offset)
        self.payloads.add(payload)

    async def consume(self, subscription: Subscription) -> None:
        async for delivery in subscription:
            with delivery:
                self.got(delivery.partition, delivery.offset, delivery.text)

    async def read(self, process: asyncio.subprocess.Process) -> None:
        """Read the output of another process until it ends."""
        assert process.stdout is not None
        async for line in process.stdout:
            if line.endswith(b"\n"):
                partition, offset, payload = line.decode().split()
                self.got(int(partition), int(offset), payload)


async def test_nothing_is_lost_and_the_order_is_kept(dsn: str) -> None:
    """It takes the lease of who dies, and the visibility of what that had."""
    account = new_account()
    work = Work()
    with Server(dsn=dsn) as stays, Server(dsn=dsn) as dies:
        urls = [dies.url, stays.url]
        clients = [LogClient(urls[:: (-1) ** place], account=account) for place in range(CONSUMERS)]
        await clients[0].create_log("orders")
        await clients[0].create_group(
            "orders",
            "billing",
            batch_size=1,
            visibility_timeout=LEASE_SECONDS,
            lease=LEASE_SECONDS,
            max_attempts=100,
        )
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.faults.log_consumer", account, *urls),
            stdout=asyncio.subprocess.PIPE,
        )
        reading = asyncio.create_task(work.read(process))
        subscriptions = [client.subscribe("orders", "billing") for client in clients]
        consuming = [asyncio.create_task(work.consume(one)) for one in subscriptions]
        publishing = asyncio.create_task(publish(clients[0]))
        await until_so(lambda: len(work.payloads) > RECORDS // 4)
        dies.process.send_signal(signal.SIGKILL)
        process.kill()
        await until_so(lambda: len(work.payloads) > RECORDS // 2)
        await subscriptions[1].close()
        await publishing
        await until_async(
            lambda: clients[0].group("orders", "billing"), lambda group: not group.lag
        )
        await reading
        for client in clients:
            await client.close()
        await asyncio.gather(*consuming)
        await process.wait()
    assert work.payloads == {str(number) for number in range(RECORDS)}
    for offsets in work.seen.values():
        first_seen = list(dict.fromkeys(offsets))
        assert first_seen == sorted(first_seen)


async def publish(client: LogClient) -> None:
    for start in range(0, RECORDS, 100):
        numbers = range(start, start + 100)
        records = [NewRecord(str(number), key=str(number % KEYS)) for number in numbers]
        await client.publish_many("orders", records)

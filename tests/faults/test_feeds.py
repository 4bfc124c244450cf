"""One of two gateways dies while both feed queues from a log."""

from __future__ import annotations

import asyncio
import signal

import asyncpg
import pytest

from queuegate.log import LogClient
from tests.faces.clients import new_account
from tests.faces.rest.client import Rest
from tests.faces.servers import Server
from tests.faults.test_log_consumers import KEYS, RECORDS, publish
from tests.waiting import until_async

QUEUES = {"jobs": "messages", "jobs.fifo": "fifo_messages"}


@pytest.mark.timeout(120)
async def test_each_record_comes_once_and_in_order(dsn: str) -> None:
    """It publishes while gateways start and die."""
    account = new_account()
    with Server(dsn=dsn) as stays, Server(dsn=dsn) as dies:
        async with LogClient([dies.url, stays.url], account=account) as client:
            await client.create_log("orders")
            with Rest(stays.url, account) as rest:
                for number, queue in enumerate(QUEUES):
                    rest.create(queue)
                    await client.create_group("orders", f"g{number}", queue=queue)
            connection = await asyncpg.connect(dsn)

            async def bodies(queue: str) -> list[int]:
                rows = await connection.fetch(f"SELECT body FROM {QUEUES[queue]} ORDER BY sequence")
                return [int(row["body"]) for row in rows]

            publishing = asyncio.create_task(publish(client))
            await until_async(lambda: bodies("jobs.fifo"), lambda found: len(found) > RECORDS // 4)
            dies.process.send_signal(signal.SIGKILL)
            await publishing
            for number, queue in enumerate(QUEUES):
                await until_async(
                    lambda: client.group("orders", f"g{number}"),  # noqa: B023 - it is waited for
                    lambda group: not group.lag,
                )
                found = await bodies(queue)
                assert sorted(found) == [*range(RECORDS)]
                for key in range(KEYS):
                    of_key = [one for one in found if one % KEYS == key]
                    assert of_key == sorted(of_key)
            await connection.close()

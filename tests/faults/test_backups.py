"""A backup is made under load and restored elsewhere; then messages and records are counted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import run
from tests.faults.client import Client, clients
from tests.faults.gateways import Loads, Server, serving
from tests.faults.ledger import Bodies, Numbers
from tests.faults.load import Load, make_queue
from tests.faults.log_load import _GROUP, LogLoad, log_loaded

pytestmark = pytest.mark.timeout(240)

_BODIES = """
SELECT m.body FROM {} AS m JOIN queues AS q ON q.queue_id = m.queue_id WHERE q.queue_name = $1
"""
_RECORDS = """
SELECT p.number, r.record_offset, r.payload FROM log_records AS r
JOIN log_partitions AS p ON p.partition_id = r.partition_id
"""


async def bodies(server: Server, load: Load) -> list[str]:
    """The messages of the load's queue, as the tables have them."""
    table = "fifo_messages" if load.is_fifo else "messages"
    connection = await server.connect()
    name = load.queue_url.rpartition("/")[2]
    rows = await connection.fetch(_BODIES.format(table), name)
    await connection.close()
    return [row[0] for row in rows]


async def records(server: Server) -> set[tuple[int, int, str]]:
    """Partition, offset and payload of every record."""
    connection = await server.connect()
    rows = await connection.fetch(_RECORDS)
    await connection.close()
    return {(row[0], row[1], bytes(row[2]).decode()) for row in rows}


async def hold(client: Client, url: str) -> list[dict[str, Any]]:
    """Receive messages and delete none of them for an hour."""
    for number in range(3):
        members = {"MessageGroupId": str(number)} if url.endswith(".fifo") else {}
        members |= {"MessageDeduplicationId": str(number)} if members else {}
        await client.call("SendMessage", QueueUrl=url, MessageBody=str(number), **members)
    held: list[dict[str, Any]] = []
    while len(held) < 3:
        answer = await client.call(
            "ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=3600
        )
        held += answer.get("Messages", [])
    return held


async def started(client: Client, name: str) -> Load:
    """A load whose one receiver does not come to the end of its queue."""
    load = Load(client.port, await make_queue(client.port, name))
    for first in range(1, 500, 10):
        entries = []
        for number in range(first, first + 10):
            entry = {"Id": str(number), "MessageBody": f"early.{number}"}
            if load.is_fifo:
                entry |= {"MessageGroupId": "early", "MessageDeduplicationId": str(number)}
            entries.append(entry)
        answer = await client.call("SendMessageBatch", QueueUrl=load.queue_url, Entries=entries)
        load.sent |= {f"early.{entry['Id']}" for entry in answer["Successful"]}
    load.start(senders=6, receivers=1)
    return load


async def release(client: Client, url: str, held: list[dict[str, Any]]) -> None:
    """Delete the held messages with the receipts that they had before the backup."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    counted = await client.call("GetQueueAttributes", QueueUrl=url, AttributeNames=names)
    assert counted["Attributes"] == {names[0]: "0", names[1]: "3"}
    # A number that the old database gave out after the backup is not given out again.
    members = {"MessageGroupId": "9", "MessageDeduplicationId": "9"} if "fifo" in url else {}
    await client.call("SendMessage", QueueUrl=url, MessageBody="new", **members)
    entries = [
        {"Id": str(place), "ReceiptHandle": message["ReceiptHandle"]}
        for place, message in enumerate(held)
    ]
    answer = await client.call("DeleteMessageBatch", QueueUrl=url, Entries=entries)
    assert len(answer["Successful"]) == len(held)
    counted = await client.call("GetQueueAttributes", QueueUrl=url, AttributeNames=names)
    assert counted["Attributes"] == {names[0]: "1", names[1]: "0"}


async def check_queue(load: Load, sent: set[str], deleted: set[str], restored: Server) -> None:
    """Compare the restored queue with what was acknowledged before the backup began, and drain
    it."""
    found = await bodies(restored, load)
    assert len(set(found)) == len(found) > 100
    assert sent - set(load.maybe_deleted) <= set(found)
    assert not deleted & set(found)
    again = Load(restored.port, load.queue_url)
    again.sent = Bodies(found)
    again.maybe_deleted = Bodies(load.maybe_deleted)
    await again.check()


async def check_log(
    log: LogLoad, promised: set[str], acknowledged: set[tuple[int, int]], restored: Server
) -> None:
    """Let a subscriber of the restored group read to the end of the log."""
    found = await records(restored)
    assert promised <= {payload for _, _, payload in found}
    assert found <= await records(log.server)
    again = LogLoad(restored)
    again._account = log._account
    again.acknowledged = Numbers((place, 0.0) for place in acknowledged)
    again._tasks = [asyncio.create_task(again._subscribe("reader-0"))] * 4
    async with clients(restored.port, 1) as [client]:
        while (await again._ask(client, "GET", _GROUP))["lag"]:
            await asyncio.wait(again._tasks, timeout=0.05)
    again.cancel()
    assert again.violations == []
    read = {(number, offset) for number, offset, _ in found}
    assert read <= acknowledged | set(log.acknowledged) | set(again.acknowledged)


async def test_all_that_was_acknowledged_before_a_backup_is_restored(
    data: Path, tmp_path: Path
) -> None:
    """Loads of two queues and a log, a backup in between, and a second gateway."""
    file, elsewhere = tmp_path / "backup", data.with_name("restored")
    async with (
        serving(data) as server,
        log_loaded(server) as log,
        clients(server.port, 1) as [client],
    ):
        loads = Loads(*[await started(client, name) for name in ("load", "load.fifo")])
        urls = [await make_queue(server.port, name) for name in ("held", "held.fifo")]
        held = [await hold(client, url) for url in urls]
        await asyncio.gather(loads.more(400), log.more(200))
        facts = [(set(load.sent), set(load.deleted)) for load in loads.both]
        promised, acknowledged = set(log.promised), set(log.acknowledged)
        made = await asyncio.to_thread(run, "backup", str(file), "--data", str(data))
        assert (made.returncode, made.stderr) == (0, "")
        await asyncio.gather(loads.more(200), log.more(100))
        for load in loads.both:
            await load.end()
        into = ("--data", str(elsewhere))
        done = await asyncio.to_thread(run, "restore", str(file), *into)
        assert (done.returncode, done.stderr) == (0, "")
        async with serving(elsewhere) as restored, clients(restored.port, 1) as [other]:
            for url, messages in zip(urls, held, strict=True):
                await release(other, url, messages)
            for load, (sent, deleted) in zip(loads.both, facts, strict=True):
                await check_queue(load, sent, deleted, restored)
            await check_log(log, promised, acknowledged, restored)
        await log.end_and_check()

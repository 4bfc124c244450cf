"""The gateway or PostgreSQL dies while many publish: all copies of a message, or none."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from queuegate.storage.embedded.embedded_server import EmbeddedPostgres
from tests.cli.processes import Watch, children, postmaster
from tests.faults.client import Client, clients, make_request
from tests.faults.gateways import Server, kill_backend, serving
from tests.faults.load import times
from tests.faults.publishing_load import (
    Publishers,
    check_fifo,
    check_standard,
    make_topic,
    publishing,
)
from tests.waiting import yield_turns

pytestmark = pytest.mark.timeout(180)


class Loads:
    """Publishers of three topics: queues alone, queues and a web hook, FIFO queues."""

    def __init__(self, plain: Publishers, hooked: Publishers, ordered: Publishers) -> None:
        self.plain = plain
        self.hooked = hooked
        self.ordered = ordered
        self.all = (plain, hooked, ordered)

    async def more(self, count: int) -> None:
        await asyncio.gather(*[load.more(count) for load in self.all])

    def hold(self) -> None:
        for load in self.all:
            load.up.clear()

    def go_on(self) -> None:
        for load in self.all:
            load.up.set()

    async def end_and_check(self) -> None:
        for load in self.all:
            await load.end()
        await check_standard(self.plain)
        await check_standard(self.hooked, with_hook=True)
        await check_fifo(self.ordered)


async def make_topics(server: Server) -> list[str]:
    return [
        await make_topic(server, "plain"),
        await make_topic(server, "hooked", with_hook=True),
        await make_topic(server, "ordered.fifo"),
    ]


async def test_kill_of_the_gateway_leaves_all_copies_or_none(data: Path) -> None:
    async with serving(data) as server:
        topics = await make_topics(server)
        async with publishing(server, *topics) as started:
            loads = Loads(*started)
            for _ in times(3):
                await loads.more(200)
                await server.kill(loads.hold)
                await server.start()
                loads.go_on()
            await loads.more(100)
            assert loads.plain.unanswered
            assert loads.hooked.unanswered
            await loads.end_and_check()


async def test_kill_of_one_worker_leaves_all_copies_or_none(data: Path) -> None:
    """A load, a kill, and the count of what every queue has."""
    async with serving(data, "--workers", "2") as server:
        topics = await make_topics(server)
        async with publishing(server, *topics) as started:
            loads = Loads(*started)
            for _ in times(2):
                await loads.more(150)
                first = children(server.gateway.process.pid)[0]
                watch = Watch(first)
                os.kill(first, signal.SIGKILL)
                assert await asyncio.to_thread(watch.wait)
                await loads.more(100)
            await loads.end_and_check()


async def test_kill_of_a_backend_leaves_all_copies_or_none(data: Path) -> None:
    """PostgreSQL ends every connection when one backend dies hard, and reads its log again."""
    async with serving(data) as server:
        topics = await make_topics(server)
        async with publishing(server, *topics) as started:
            loads = Loads(*started)
            for query in ("Inserts the entries", "topic_number", "INSERT INTO deliveries"):
                await loads.more(100)
                await kill_backend(server, query)
            await loads.more(100)
            await loads.end_and_check()


async def test_kill_of_postgres_leaves_all_copies_or_none(data: Path) -> None:
    async with serving(data) as server:
        topics = await make_topics(server)
        async with publishing(server, *topics) as started:
            loads = Loads(*started)
            for _ in times(2):
                await loads.more(150)
                before = postmaster(data)
                watch = Watch(before)
                os.kill(before, signal.SIGKILL)
                assert await asyncio.to_thread(watch.wait)
                await loads.more(100)
                assert postmaster(data) != before
            await loads.end_and_check()


async def test_ended_connections_leave_all_copies_or_none(data: Path) -> None:
    """A load, kills, and the count of what every queue has."""
    async with serving(data) as server:
        topics = await make_topics(server)
        async with publishing(server, *topics) as started:
            loads = Loads(*started)
            connection = await server.connect()
            for _ in range(6):
                await loads.more(50)
                await connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
                )
            await connection.close()
            await loads.more(50)
            await loads.end_and_check()


def _started(data: Path) -> EmbeddedPostgres:
    server = EmbeddedPostgres(data)
    server.start()
    server.wait_ready()
    return server


async def test_a_restart_of_the_database_leaves_all_copies_or_none(data: Path) -> None:
    """In order, and everybody is told."""
    database = await asyncio.to_thread(_started, data)
    try:
        own = data.with_name("own")
        async with serving(own, DATABASE_URL=database.dsn) as server:
            # Its database is there, not in a directory of its own.
            server.data = data
            topics = await make_topics(server)
            async with publishing(server, *topics) as started:
                loads = Loads(*started)
                for _ in times(2):
                    await loads.more(100)
                    await asyncio.to_thread(database.stop)
                    database = await asyncio.to_thread(_started, data)
                await loads.more(100)
                await loads.end_and_check()
    finally:
        await asyncio.to_thread(database.stop)


async def test_the_count_can_fail(data: Path) -> None:
    """A copy that was promised and is not there is missed."""
    async with serving(data) as server:
        topics = await make_topics(server)
        async with publishing(server, *topics) as started:
            loads = Loads(*started)
            await loads.more(20)
            for load in loads.all:
                await load.end()
            connection = await server.connect()
            for table in ("messages", "deliveries", "fifo_messages"):
                await connection.execute(
                    f"DELETE FROM {table} WHERE ctid IN (SELECT max(ctid) FROM {table})"
                )
            await connection.close()
            with pytest.raises(AssertionError):
                await check_standard(loads.hooked, with_hook=True)
            with pytest.raises(AssertionError):
                await check_fifo(loads.ordered)


async def test_envelopes_come_back_from_clients_that_leave(data: Path) -> None:
    """Whenever a client goes away, also while its envelopes are being signed."""
    async with serving(data) as server, clients(server.port, 1) as [sqs]:
        async with clients(server.port, 1, "sns") as [sns]:
            topic = (await sns.call("CreateTopic", Name="news"))["TopicArn"]
            attributes = {"VisibilityTimeout": "43200"}
            created = await sqs.call("CreateQueue", QueueName="orders", Attributes=attributes)
            url = created["QueueUrl"]
            arn = topic.replace(":sns:", ":sqs:").replace(":news", ":orders")
            await sns.call("Subscribe", TopicArn=topic, Protocol="sqs", Endpoint=arn)
            for number in range(300):
                await sns.call("Publish", TopicArn=topic, Message=str(number))
        poll = make_request("ReceiveMessage", {"QueueUrl": url, "MaxNumberOfMessages": 10})
        async with clients(server.port, 30) as leaving:
            for turns, client in enumerate(leaving):
                await client.send(poll)
                await yield_turns(turns * 3)
                client.close()
        found: set[str] = set()
        # Those whose answer was written before the client had gone have had it. The others come, if
        # not at once: until then they are counted, too.
        async with asyncio.timeout(60):
            while len(found) <= 300 // 2 or await _not_visible(sqs, url) != 300:
                members = {"QueueUrl": url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 1}
                answer = await sqs.call("ReceiveMessage", **members)
                for message in answer.get("Messages", []):
                    envelope = json.loads(message["Body"])
                    assert envelope["Signature"]
                    assert envelope["Message"] not in found
                    found.add(envelope["Message"])


async def _not_visible(sqs: Client, url: str) -> int:
    names = ["ApproximateNumberOfMessagesNotVisible"]
    counted = await sqs.call("GetQueueAttributes", QueueUrl=url, AttributeNames=names)
    return int(counted["Attributes"][names[0]])

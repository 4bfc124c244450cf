"""The gateway dies, or is told to stop, under load. Nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import Watch, children
from tests.faults.client import clients, make_request
from tests.faults.gateways import Server, loaded, serving
from tests.faults.load import make_queue, times
from tests.waiting import until, yield_turns

pytestmark = pytest.mark.timeout(180)


async def test_kill_of_the_gateway_loses_nothing(data: Path) -> None:
    """A load, a kill, a restart, and the wait for visibility timeouts."""
    async with serving(data) as server, loaded(server.port) as loads:
        for _ in times(2):
            await loads.more(400)
            await server.kill(loads.hold)
            await server.start()
            loads.go_on()
        await loads.more(200)
        assert loads.unanswered > 0
        await loads.end_and_check()


async def test_a_stop_under_load_loses_nothing(data: Path) -> None:
    async with serving(data) as server, loaded(server.port) as loads:
        await loads.more(400)
        loads.hold()
        assert await asyncio.to_thread(server.gateway.stop, signal.SIGTERM) == 0
        await server.close()
        await server.start()
        loads.go_on()
        await loads.more(200)
        await loads.end_and_check()


async def test_a_stop_answers_what_is_in_flight(data: Path) -> None:
    async with serving(data) as server, clients(server.port, 9) as (poller, *senders):
        url = await make_queue(server.port)
        empty = await make_queue(server.port, "empty")
        locker = await server.connect()
        await senders[0].call("SendMessage", QueueUrl=url, MessageBody="first")
        transaction = locker.transaction()
        await transaction.start()
        # Sends count what they sent; receives do not.
        await locker.execute("LOCK TABLE queue_deltas IN SHARE MODE")
        for number, client in enumerate(senders):
            members = {"QueueUrl": url, "MessageBody": str(number)}
            await client.send(make_request("SendMessage", members))
        poll = {"QueueUrl": empty, "WaitTimeSeconds": 20}
        await poller.send(make_request("ReceiveMessage", poll))
        await server.until_metric("http_connections_active", len(senders) + 1)
        await server.until_metric("queuegate_parked_receives")
        server.gateway.process.send_signal(signal.SIGTERM)
        # The poll ends because the gateway drains; the sends wait for their commit.
        status, body = await poller.read()
        assert (status, json.loads(body)) == (200, {})
        await transaction.rollback()
        await locker.close()
        answers = await asyncio.gather(*(client.read() for client in senders))
        assert [status for status, _ in answers] == [200] * len(senders)
        sent = {json.loads(body)["MessageId"] for _, body in answers}
        assert await asyncio.to_thread(server.gateway.process.wait, 30) == 0
        await server.close()
        await server.start()
        assert sent <= await _message_ids(server, url)


async def _message_ids(server: Server, url: str) -> set[str]:
    found: set[str] = set()
    async with clients(server.port, 1) as [client]:
        while True:
            answer: dict[str, Any] = await client.call(
                "ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10
            )
            if not answer.get("Messages"):
                return found
            found |= {message["MessageId"] for message in answer["Messages"]}


async def test_kill_of_one_worker_loses_nothing(data: Path) -> None:
    async with serving(data, "--workers", "2") as server, loaded(server.port) as loads:
        for _ in times(2):
            await loads.more(400)
            before = await asyncio.to_thread(
                until,
                partial(children, server.gateway.process.pid),
                lambda found: len(found) == 2,
            )
            watch = Watch(before[0])
            os.kill(before[0], signal.SIGKILL)
            assert await asyncio.to_thread(watch.wait)
            await loads.more(200)
        await loads.end_and_check()


async def test_a_client_that_leaves_takes_no_message_with_it(data: Path) -> None:
    """Waits for visibility timeouts."""
    async with serving(data) as server, clients(server.port, 2) as (leaving, staying):
        url = await make_queue(server.port)
        for round_number in range(8):
            poll = {"QueueUrl": url, "WaitTimeSeconds": 20, "MaxNumberOfMessages": 10}
            await leaving.send(make_request("ReceiveMessage", poll))
            await server.until_metric("queuegate_parked_receives")
            # The answer to the poll and the end of its connection cross each other.
            sending = asyncio.create_task(
                staying.call("SendMessage", QueueUrl=url, MessageBody=str(round_number))
            )
            if round_number % 2:
                await yield_turns()
            else:
                await sending
            leaving.close()
            await sending
            answer = await staying.call(
                "ReceiveMessage", QueueUrl=url, WaitTimeSeconds=1, VisibilityTimeout=60
            )
            # Unless it was written to the connection before that ended, it comes at once.
            for message in answer.get("Messages", []):
                assert message["Body"] == str(round_number)
                handle = message["ReceiptHandle"]
                await staying.call("DeleteMessage", QueueUrl=url, ReceiptHandle=handle)


async def test_a_request_that_breaks_off_changes_nothing(data: Path) -> None:
    async with serving(data) as server:
        url = await make_queue(server.port)
        whole = make_request("SendMessage", {"QueueUrl": url, "MessageBody": "x" * 5000})
        async with clients(server.port, 1) as [client]:
            for length in (1, 20, 200, 400, 3000, len(whole) - 1):
                await client.send(whole[:length])
                client.close()
            await client.call("SendMessage", QueueUrl=url, MessageBody="whole")
            answer = await client.call("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10)
            assert [message["Body"] for message in answer["Messages"]] == ["whole"]

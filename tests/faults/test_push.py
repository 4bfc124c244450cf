"""A gateway, or its PostgreSQL, dies that pushes to many consumers."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.cli.processes import Watch, postmaster
from tests.faces.channels.client import Channels
from tests.faces.clients import authorization, new_account
from tests.faces.servers import Server
from tests.faults.consumers import Consumer, Records, connect
from tests.faults.gateways import serving
from tests.waiting import until_async, until_so

pytestmark = pytest.mark.timeout(120)

CONSUMERS = 1_000
MESSAGES = 6_000
AT_ONCE = 100
WINDOW_SECONDS = 6


async def test_each_message_is_finished_once_by_who_got_it_last(dsn: str) -> None:
    """It takes the window of what the one that dies had sent, and all that came before."""
    account = new_account()
    path = f"/v1/messages/socket?channel=alerts&credit=10&window={WINDOW_SECONDS}"
    records = Records()
    header = authorization(account, "us-east-1", "sqs")
    consumers = [Consumer(records, header, path) for _ in range(CONSUMERS)]
    there, here = consumers[: CONSUMERS // 2], consumers[CONSUMERS // 2 :]
    with Server(dsn=dsn) as stays, Channels(stays.url, account) as channels:
        with Server(dsn=dsn) as dies:
            await asyncio.gather(connect(there, dies.url), connect(here, stays.url))
            published = await _publish(channels, MESSAGES // 2)
            await until_so(lambda: len(records.finished) > MESSAGES // 4)
            records.are_held = True
            published |= await _publish(channels, MESSAGES // 2)
            await until_so(lambda: len(records.received) > MESSAGES // 2)
            for consumer in there[::2]:
                consumer.acknowledge()
            dies.process.send_signal(signal.SIGKILL)
            await asyncio.to_thread(dies.process.wait)
        lost = dict(records.unanswered)
        await connect(there, stays.url)
        records.are_held = False
        for consumer in consumers:
            consumer.acknowledge()
        # What the one that died had acknowledged, and could not say so, nobody finishes again.
        await until_async(lambda: asyncio.to_thread(_left, channels), lambda left: left == 0)
        await until_so(lambda: not (records.unanswered.keys() - lost.keys()))
        assert published <= records.finished.keys() | set(lost.values())
        _check(records)
        for consumer in consumers:
            consumer.close()


@pytest.mark.parametrize("more", [{}, {"priority": 3}])
async def test_a_kill_of_postgres_leaves_each_lease_with_one_consumer(
    data: Path, more: dict[str, int]
) -> None:
    """Waits for the windows of what was acknowledged while nothing answered."""
    account = new_account()
    path = f"/v1/messages/socket?channel=alerts&credit=70&window={WINDOW_SECONDS}"
    records = Records()
    records.are_held = True
    header = authorization(account, "us-east-1", "sqs")
    consumers = [Consumer(records, header, path) for _ in range(40)]
    async with serving(data) as server:
        with Channels(server.gateway.url, account) as channels:
            published = await _publish(channels, MESSAGES // 2, **more)
            # A backlog: what is sent while somebody waits is leased by the send.
            await connect(consumers, server.gateway.url)
            await until_so(lambda: len(records.received) > MESSAGES // 8)
            before = postmaster(data)
            watch = Watch(before)
            os.kill(before, signal.SIGKILL)
            assert await asyncio.to_thread(watch.wait)
            await server.until_ready()
            await until_so(lambda: len(records.received) > MESSAGES // 3)
            records.are_held = False
            for consumer in consumers:
                consumer.acknowledge()
            await until_async(lambda: asyncio.to_thread(_left, channels), lambda left: left == 0)
            await until_so(lambda: not records.unanswered)
    assert records.repeated == []
    assert records.finished.keys() == published
    _check(records)
    for consumer in consumers:
        consumer.close()


async def _publish(channels: Channels, count: int, **more: int) -> set[int]:
    """The ids of so many new messages."""
    found: set[int] = set()
    for start in range(0, count, AT_ONCE):
        some = [{"channel": "alerts", "payload": start + one, **more} for one in range(AT_ONCE)]
        results = await asyncio.to_thread(channels.bulk, *some)
        found |= {one["id"] for one in results}
    return found


def _check(records: Records) -> None:
    """Check that one consumer alone finished each message, and that it was the last receiver."""
    for number, finishers in records.finished.items():
        [finisher] = finishers
        received = records.received[number]
        assert received[max(received)] is finisher, (number, received)


def _left(channels: Channels) -> int:
    """Return the number of messages in the channel, in any state."""
    [found] = channels.call("GET", "/v1/metrics?channel=alerts")["channels"]
    return int(found["depth"] + found["in_flight"] + found["delayed"])

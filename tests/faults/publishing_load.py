"""Publishers that note what they were promised, and a look at what is there in the end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

from tests.faults.client import Client, Unanswered, clients
from tests.faults.gateways import Server
from tests.faults.load import promises

CLIENTS = 32
QUEUES = 3
_GROUPS = 8
_BATCH = 3
_HOOK = "http://127.0.0.1:9/nobody"
# One attempt, which is refused; the next one is after the test.
_PATIENT = '{"healthyRetryPolicy":{"minDelayTarget":3600,"maxDelayTarget":3600,"numRetries":5}}'
_RAW = {"RawMessageDelivery": "true"}

Id = tuple[str, str | None]
"""(message id, sequence number) as answered."""


class Publishers:
    """Clients of one topic that publish until they are stopped."""

    def __init__(self, server: Server, topic: str) -> None:
        self.server = server
        self.topic = topic
        self.is_fifo = topic.endswith(".fifo")
        self.promised: dict[str, Id] = {}
        self.unanswered: list[tuple[str, ...]] = []
        """What was asked for together, and may or may not be there."""
        self.up = asyncio.Event()
        self.up.set()
        self.stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._progress = asyncio.Condition()

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._publish(number)) for number in range(CLIENTS)]

    async def more(self, count: int) -> None:
        """Wait until so many more promises were made."""
        goal = len(self.promised) + promises(count)
        async with asyncio.timeout(60), self._progress:
            await self._progress.wait_for(
                lambda: len(self.promised) >= goal or any(task.done() for task in self._tasks)
            )

    async def end(self) -> None:
        self.stopping = True
        self.up.set()
        await asyncio.gather(*self._tasks)

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _publish(self, number: int) -> None:
        async with clients(self.server.port, 1, "sns") as [client]:
            for count in itertools.count(1):
                if self.stopping:
                    break
                in_batches = number % 4 == 0
                bodies = [
                    f"{number}.{count}.{place}" for place in range(_BATCH if in_batches else 1)
                ]
                # Messages of a FIFO topic are published until there is an answer.
                while not await self._once(client, number, bodies) and self.is_fifo:
                    if self.stopping:
                        self.unanswered.append(tuple(bodies))
                        break

    async def _once(self, client: Client, number: int, bodies: list[str]) -> bool:
        """Publish once and return True if there was an answer."""
        await self.up.wait()
        entries = [self._entry(number, body) for body in bodies]
        try:
            if len(entries) == 1:
                answer = await client.call("Publish", TopicArn=self.topic, **entries[0])
                answers = [answer]
            else:
                named = [{"Id": str(place), **entry} for place, entry in enumerate(entries)]
                members = {"TopicArn": self.topic, "PublishBatchRequestEntries": named}
                answer = await client.call("PublishBatch", **members)
                assert answer.get("Failed", []) == []
                answers = answer["Successful"]
        except Unanswered:
            if not self.is_fifo:
                self.unanswered.append(tuple(bodies))
            return False
        async with self._progress:
            for body, one in zip(bodies, answers, strict=True):
                self.promised[body] = (one["MessageId"], one.get("SequenceNumber"))
            self._progress.notify_all()
        return True

    def _entry(self, number: int, body: str) -> dict[str, Any]:
        entry: dict[str, Any] = {"Message": body}
        if self.is_fifo:
            entry |= {"MessageGroupId": str(number % _GROUPS), "MessageDeduplicationId": body}
        return entry


async def make_topic(server: Server, name: str, *, with_hook: bool = False) -> str:
    """A topic with three queues, named after it, and maybe a web hook that nobody answers."""
    suffix = ".fifo" if name.endswith(".fifo") else ""
    attributes = {"FifoTopic": "true"} if suffix else {}
    stem = name.removesuffix(".fifo")
    async with clients(server.port, 1, "sns") as [sns], clients(server.port, 1) as [sqs]:
        topic: str = (await sns.call("CreateTopic", Name=name, Attributes=attributes))["TopicArn"]
        for number in range(QUEUES):
            queue_name = f"{stem}-{number}{suffix}"
            fifo = {"FifoQueue": "true"} if suffix else {}
            await sqs.call("CreateQueue", QueueName=queue_name, Attributes=fifo)
            arn = topic.replace(":sns:", ":sqs:").rpartition(":")[0] + f":{queue_name}"
            raw = {} if suffix else {"Attributes": _RAW}
            await sns.call("Subscribe", TopicArn=topic, Protocol="sqs", Endpoint=arn, **raw)
        if with_hook:
            policy = {**_RAW, "DeliveryPolicy": _PATIENT}
            members = {"Protocol": "http", "Endpoint": _HOOK, "Attributes": policy}
            await sns.call("Subscribe", TopicArn=topic, **members)
            connection = await server.connect()
            token = await connection.fetchval(
                "SELECT token FROM subscriptions WHERE protocol='http'"
            )
            await connection.close()
            await sns.call("ConfirmSubscription", TopicArn=topic, Token=token)
    return topic


@contextlib.asynccontextmanager
async def publishing(server: Server, *topics: str) -> AsyncIterator[list[Publishers]]:
    """Publishers that run until the test ends them, or fails."""
    loads = [Publishers(server, topic) for topic in topics]
    for load in loads:
        load.start()
    try:
        yield loads
    except BaseException:
        for load in loads:
            load.cancel()
        raise


async def check_standard(load: Publishers, *, with_hook: bool = False) -> None:
    """Check that promised messages are in every queue once, and others in all queues or none."""
    connection = await load.server.connect()
    places: dict[str, list[str]] = defaultdict(list)
    stem = load.topic.rpartition(":")[2]
    for row in await connection.fetch(
        "SELECT body, queue_name FROM messages JOIN queues USING (queue_id)"
        " WHERE queue_name LIKE $1 || '-%'",
        stem,
    ):
        places[row["body"]].append(row["queue_name"])
    wanted = [f"{stem}-{number}" for number in range(QUEUES)]
    if with_hook:
        wanted.append("web hook")
        for row in await connection.fetch(
            "SELECT body FROM deliveries WHERE kind = 'Notification' AND topic_name = $1", stem
        ):
            places[row["body"]].append("web hook")
    await connection.close()
    missing = {body: places[body] for body in load.promised if sorted(places[body]) != wanted}
    assert missing == {}
    for bodies in load.unanswered:
        found = [sorted(places[body]) for body in bodies]
        assert found in ([[]] * len(bodies), [wanted] * len(bodies)), (bodies, found)
    known = load.promised.keys() | {body for bodies in load.unanswered for body in bodies}
    assert {body for body, names in places.items() if names} <= known


async def check_fifo(load: Publishers) -> None:
    """Every queue has the same messages with the same numbers, in their order in each group."""
    connection = await load.server.connect()
    rows = await connection.fetch(
        "SELECT queue_name, group_id, body FROM fifo_messages JOIN queues USING (queue_id)"
        " ORDER BY queue_name, group_id, sequence"
    )
    await connection.close()
    queues: dict[str, dict[str, list[tuple[str, Id]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        envelope = json.loads(row["body"])
        shown = (envelope["MessageId"], envelope["SequenceNumber"])
        queues[row["queue_name"]][row["group_id"]].append((envelope["Message"], shown))
    assert len(queues) == QUEUES
    first, *others = queues.values()
    for other in others:
        assert other == first
    all_of_them: dict[str, Id] = {}
    for group in first.values():
        numbers = [number for _, (_, number) in group]
        assert numbers == sorted(set(numbers), key=lambda number: number or "")
        for body, shown in group:
            assert body not in all_of_them
            all_of_them[body] = shown
        _assert_in_order([body for body, _ in group])
    assert {body: all_of_them.get(body) for body in load.promised} == load.promised
    for bodies in load.unanswered:
        assert {body in all_of_them for body in bodies} in ({True}, {False})
    assert len({number for _, number in all_of_them.values()}) == len(all_of_them)


def _assert_in_order(bodies: list[str]) -> None:
    """Each publisher's messages stand in the order of publishing, without a gap."""
    by_client: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for body in bodies:
        number, *rest = map(int, body.split("."))
        by_client[number].append(tuple(rest))
    for counts in by_client.values():
        assert counts == sorted(counts)
        assert [*dict.fromkeys(count for count, _ in counts)] == [
            *range(1, len({count for count, _ in counts}) + 1)
        ]

"""A subscription at a gateway that does what one does seldom, or not when a test wants it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from queuegate.log import (
    AsyncDelivery,
    Closed,
    LogClient,
    NotFound,
    Replaced,
    Subscription,
    Superseded,
    sync,
)
from tests.log_client.endpoints import Endpoint, hang_up, listening
from tests.waiting import until_so, yield_turns

VISIBLE_SECONDS = 30


class Group:
    """The endpoints that a subscriber asks. What it is asked is in `asked`, in order."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.given = 0
        self.partitions = [{"partition": 0, "key": "a"}]
        self.session = 7
        self.visible_seconds: float = VISIBLE_SECONDS
        self.asked: list[tuple[str, Any]] = []
        self.refusals: dict[str, int] = {}
        self.results: dict[str, str] = {}
        self.lost: list[str] = []
        """What is asked and not answered, once for each."""
        self.rebalance = False
        self.fenced = 0
        """A session that is over."""
        self.may_know = asyncio.Event()
        self.may_know.set()

    async def answer(self, request: web.Request) -> web.Response:
        what = request.path.rpartition("/")[2]
        what = request.method if "/subscribers/" + what in request.path else what
        body = json.loads(await request.read() or b"null")
        self.asked.append((what, request.query_string if what == "DELETE" else body))
        if what in self.lost:
            self.lost.remove(what)
            return await hang_up(request)
        refusal = 409 if what == "PUT" and body.get("session") == self.fenced else None
        if status := self.refusals.get(what, refusal):
            return web.json_response({"error": f"{what}: no"}, status=status)
        return web.json_response(await getattr(self, what)(body))

    async def PUT(self, _: Any) -> Any:  # noqa: N802 - its method
        return {
            "session": self.session,
            "heartbeat_seconds": 10,
            "visibility_timeout": self.visible_seconds,
            "share": 1,
            "partitions": self.partitions,
        }

    async def DELETE(self, _: Any) -> Any:  # noqa: N802 - its method
        return {}

    async def fetch(self, body: Any) -> Any:
        count = min(self.left, body["max"])
        if not count:
            await asyncio.Event().wait()
        self.left -= count
        offsets = range(self.given, self.given + count)
        self.given += count
        records: list[dict[str, Any]] = [
            {
                "partition": 0,
                "offset": offset,
                "key": "a",
                "id": None,
                "payload": str(offset),
                "metadata": {},
                "published_at": "2026-01-31T09:00:00Z",
                "attempt": 1,
                "receipt": f"r{offset}",
            }
            for offset in offsets
        ]
        return {"records": records, "rebalance": self.rebalance}

    async def deliveries(self, body: Any) -> Any:
        await self.may_know.wait()
        told = body["deliveries"]
        return {"results": [{"result": self.results.get(one["receipt"], "done")} for one in told]}

    def told(self, do: str = "") -> list[str]:
        """The receipts that somebody did this with, in order."""
        calls = [body["deliveries"] for what, body in self.asked if what == "deliveries"]
        return [one["receipt"] for call in calls for one in call if do in ("", one["do"])]

    def count(self, what: str) -> int:
        return sum(name == what for name, _ in self.asked)


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with listening() as found:
        yield found


@pytest.fixture
async def client(endpoint: Endpoint) -> AsyncIterator[LogClient]:
    found = LogClient(endpoint.url)
    yield found
    # Not for what a test still has in hand.
    await found.close(0)


@pytest.fixture
def group(endpoint: Endpoint) -> Group:
    found = Group(1_000)
    endpoint.answers = [found.answer]
    return found


def subscribe(client: LogClient, most: int = 10, **more: Any) -> Subscription:
    return client.subscribe("orders", "billing", subscriber="one", most_in_hand=most, **more)


async def taken(subscription: Subscription, count: int) -> list[AsyncDelivery]:
    return [await anext(subscription) for _ in range(count)]


async def test_it_never_has_more_than_it_may(client: LogClient, group: Group) -> None:
    subscription = subscribe(client, 4)
    first = await taken(subscription, 4)
    for _ in range(3):
        await asyncio.wait([asyncio.ensure_future(yield_turns(50))])
    assert [body["max"] for what, body in group.asked if what == "fetch"] == [4]
    await first[0].ack()
    # Nothing waits to be taken, so one that can be had is fetched.
    assert (await anext(subscription)).offset == 4
    assert [body["max"] for what, body in group.asked if what == "fetch"] == [4, 1]
    for delivery in first[1:]:
        await delivery.ack()


async def test_what_became_of_many_goes_in_few_requests(client: LogClient, group: Group) -> None:
    subscription = subscribe(client, 500)
    group.may_know.clear()
    outcomes = [delivery.ack() for delivery in await taken(subscription, 300)]
    await until_so(lambda: group.count("deliveries"))
    group.may_know.set()
    await asyncio.gather(*outcomes)
    assert group.count("deliveries") <= 2
    assert group.told("ack") == [f"r{offset}" for offset in range(300)]


async def test_who_asks_hears_that_it_was_too_late(client: LogClient, group: Group) -> None:
    group.results = {"r0": "superseded", "r1": "gone"}
    first, second, third = await taken(subscribe(client), 3)
    first.ack()
    with pytest.raises(Superseded, match="delivered again"):
        await second.ack()
    assert not first.is_mine
    assert third.is_mine
    await third.nack(5, "x" * 2_000)
    assert not third.is_mine
    assert third.nack() is third.nack()
    with pytest.raises(Superseded, match="settled: nack"):
        await third.ack()
    [told] = [body["deliveries"] for what, body in group.asked if what == "deliveries"][-1]
    assert told == {"receipt": "r2", "do": "nack", "delay": 5, "error": "x" * 1_000}


async def test_what_a_request_did_whose_answer_was_lost(client: LogClient, group: Group) -> None:
    first, second, third = await taken(subscribe(client), 3)
    group.results = {"r0": "gone", "r1": "superseded", "r2": "superseded"}
    group.lost = ["deliveries"]
    await asyncio.gather(first.ack(), second.nack())
    group.lost = ["deliveries"]
    with pytest.raises(Superseded):
        await third.ack()


async def test_a_gateway_that_is_away_is_asked_again(client: LogClient, group: Group) -> None:
    group.lost = ["PUT", "fetch", "fetch", "fetch", "deliveries"]
    async with subscribe(client, 1) as subscription:
        [first] = await taken(subscription, 1)
        await first.ack()
    assert not group.lost
    assert first.offset == 0


async def test_a_block_that_raises_gives_back(client: LogClient, group: Group) -> None:
    subscription = subscribe(client)
    first, second, third, fourth = await taken(subscription, 4)
    with first:
        pass
    with pytest.raises(KeyError), second:
        raise KeyError("no stock")
    with third:
        third.reject("never")
    with pytest.raises(KeyboardInterrupt), fourth:
        raise KeyboardInterrupt
    await subscription.close()
    told = [one for what, body in group.asked if what == "deliveries" for one in body["deliveries"]]
    assert told[:4] == [
        {"receipt": "r0", "do": "ack"},
        {"receipt": "r1", "do": "nack", "error": "KeyError: 'no stock'"},
        {"receipt": "r2", "do": "reject", "error": "never"},
        {"receipt": "r3", "do": "nack", "delay": 0},
    ]


async def test_a_function_gets_them(
    client: LogClient, group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    group.left = 20
    subscription = subscribe(client, 20)
    running = 0
    most = 0

    async def handle(delivery: AsyncDelivery) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await yield_turns()
        running -= 1
        if delivery.offset == 3:
            raise ValueError("three")
        if len(group.told()) + delivery.offset > 18:
            subscription.stop()

    await subscription.run(handle, concurrency=4)
    await subscription.close()
    assert most == 4
    assert group.told("nack") == ["r3"]
    assert sorted(group.told("ack")) == sorted(f"r{n}" for n in range(20) if n != 3)
    assert "record 3 of partition 0 of orders failed, attempt 1" in caplog.text


async def test_what_nobody_saw_is_given_back_with_its_partition(
    client: LogClient, group: Group
) -> None:
    subscription = subscribe(client, 4)
    [first] = await taken(subscription, 1)
    assert subscription.partitions == {0: "a"}
    group.partitions, group.rebalance = [], True
    await first.ack()
    [second] = await taken(subscription, 1)
    await second.ack()
    await until_so(lambda: not subscription.partitions)
    await until_so(lambda: group.told("release"))
    # The first is still this consumer's to finish.
    assert "r0" not in group.told("release")


async def test_the_order_of_shutdown(client: LogClient, group: Group) -> None:
    subscription = subscribe(client, 6)
    async with subscription:
        first, second, third = await taken(subscription, 3)
        first.ack()
        closing = asyncio.create_task(subscription.close())
        await yield_turns()
        with pytest.raises(StopAsyncIteration):
            await anext(subscription)
        await until_so(lambda: group.told("release"))
        assert not group.count("DELETE")
        second.ack()
        third.nack()
        await closing
    assert group.told("release") == ["r3", "r4", "r5"]
    assert group.told()[0] == "r0"
    assert [what for what, _ in group.asked][-2:] == ["deliveries", "DELETE"]
    assert group.asked[-1] == ("DELETE", "session=7&release=true")
    assert group.count("fetch") <= 2
    with pytest.raises(Closed):
        await subscription.start()


async def test_who_never_settles_does_not_hold_up_the_end(client: LogClient, group: Group) -> None:
    async with subscribe(client, 1, shutdown_seconds=0.05) as subscription:
        [held] = await taken(subscription, 1)
    # It stays hidden from others until its time is over.
    assert group.asked[-1] == ("DELETE", "session=7")
    with pytest.raises(Closed):
        await held.ack()


async def test_another_of_the_same_name_ends_it(client: LogClient, group: Group) -> None:
    subscription = subscribe(client, 2)
    first, second = await taken(subscription, 2)
    group.refusals = {"fetch": 409, "PUT": 409}
    await first.ack()
    with pytest.raises(Replaced, match="PUT: no"):
        await anext(subscription)
    # What it had can still be told to be done, as long as nobody else has got it.
    await second.ack()
    await subscription.close()
    assert not group.count("DELETE")


async def test_one_that_named_itself_joins_again(client: LogClient, group: Group) -> None:
    """The answer of its last heartbeat was lost, which had given it another session."""
    subscription = client.subscribe("orders", "billing", most_in_hand=1)
    [first] = await taken(subscription, 1)
    group.fenced, group.session = 7, 8
    group.refusals = {"fetch": 409}
    await first.ack()
    await until_so(lambda: [body for what, body in group.asked if body == {}][1:])
    group.refusals = {}
    assert (await anext(subscription)).offset == 1


async def test_who_was_silent_for_too_long_joins_again(client: LogClient, group: Group) -> None:
    subscription = subscribe(client, 1)
    [first] = await taken(subscription, 1)
    group.refusals, group.session = {"fetch": 409}, 8
    first.ack()
    await until_so(lambda: group.count("PUT") > 1)
    group.refusals = {}
    await anext(subscription)
    asked = [body for what, body in group.asked if what in ("PUT", "fetch")]
    assert asked[0] == {}
    assert {"session": 7} in asked
    assert asked[-1]["session"] == 8


async def test_a_log_that_is_deleted_ends_it(client: LogClient, group: Group) -> None:
    subscription = subscribe(client, 1)
    [first] = await taken(subscription, 1)
    group.refusals = {"fetch": 404, "PUT": 404, "deliveries": 404}
    with pytest.raises(NotFound):
        await first.ack()
    with pytest.raises(NotFound):
        await anext(subscription)


async def test_who_is_slow_keeps_what_it_has_not_seen(client: LogClient, group: Group) -> None:
    group.visible_seconds = 0.3
    subscription = subscribe(client, 3)
    [first] = await taken(subscription, 1)
    await until_so(lambda: "r2" in group.told("extend"))
    assert "r0" not in group.told("extend")
    await until_so(lambda: not first.is_mine)
    assert (await anext(subscription)).is_mine


async def test_what_a_consumer_works_on_is_extended_if_it_wants_that(
    client: LogClient, group: Group
) -> None:
    group.visible_seconds = 0.2
    [first] = await taken(subscribe(client, 1, auto_extend=True), 1)
    await until_so(lambda: group.told("extend").count("r0") > 2)
    assert first.is_mine
    await first.ack()


async def test_what_is_over_is_not_handed_out(client: LogClient, group: Group) -> None:
    group.visible_seconds = 0.2
    group.results = {f"r{offset}": "superseded" for offset in (1, 2)}
    subscription = subscribe(client, 3)
    [first] = await taken(subscription, 1)
    await until_so(lambda: not first.is_mine)
    await until_so(lambda: len(group.told("extend")) >= 2)
    assert (await anext(subscription)).offset == 3


async def test_threads_have_the_same(endpoint: Endpoint, group: Group) -> None:
    group.left = 5
    group.results = {"r1": "superseded"}

    def consume() -> list[bytes]:
        with sync.LogClient(endpoint.url) as client:
            found = []
            subscription = client.subscribe("orders", "billing", subscriber="one")
            for delivery in subscription:
                found.append(delivery.payload)
                if delivery.offset == 1:
                    with pytest.raises(Superseded):
                        delivery.ack().result()
                with delivery:
                    assert subscription.partitions == {0: "a"}
                if delivery.offset == 4:
                    subscription.stop()
            subscription.close()
            return found

    assert await asyncio.to_thread(consume) == [b"0", b"1", b"2", b"3", b"4"]
    assert group.told("ack") == ["r0", "r1", "r2", "r3", "r4"]
    assert group.asked[-1][0] == "DELETE"

"""Queues of a size: a hard limit for every face, over several gateways, in its own words."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.faces.clients import Refused, Sqs
from tests.faces.rest.client import Rest
from tests.faces.servers import Server
from tests.faces.simple.client import Simple
from tests.faces.sns_client import Sns
from tests.faces.test_publish import RAW


@pytest.fixture(scope="module")
def second_server(server: Server) -> Iterator[Server]:
    """Another gateway on the same database."""
    with Server(dsn=server.dsn) as running:
        yield running


@pytest.fixture
def rest(server: Server, sqs: Sqs) -> Iterator[Rest]:
    """The native API, in the account of ``sqs``."""
    with Rest(server.url, sqs.account) as client:
        yield client


def create(rest: Rest, sqs: Sqs, name: str, size: int) -> str:
    rest.create(name, max_messages=size)
    return sqs.url_of(name)


def test_a_full_queue_in_the_words_of_each_face(sqs: Sqs, rest: Rest) -> None:
    url = create(rest, sqs, "jobs", 1)
    sqs.send(url)
    refused = sqs.refusal("SendMessage", QueueUrl=url, MessageBody="x")
    assert (refused.status, refused.code) == (403, "OverLimit")
    assert refused.text.startswith("Queue 'jobs' is full: its size is 1.")
    answer = rest.ask("POST", "/v1/queues/jobs/messages", {"message": "x"})
    assert (answer.status, answer.headers["retry-after"]) == (429, "1")
    assert json.loads(answer.body)["error"] == refused.text
    [message] = sqs.receive(url)
    sqs.delete(url, message)
    rest.send("jobs", "again")
    assert rest.call("GET", "/v1/queues/jobs")["queue_length"] == 1


def test_a_batch_is_taken_as_far_as_it_fits(sqs: Sqs, rest: Rest) -> None:
    for name in ("jobs", "jobs.fifo"):
        url = create(rest, sqs, name, 3)
        group = {"MessageGroupId": "g"} if name.endswith(".fifo") else {}
        entries = [
            {"Id": str(n), "MessageBody": str(n)}
            | ({**group, "MessageDeduplicationId": str(n)} if group else {})
            for n in range(5)
        ]
        entries[1] |= {"MessageBody": "\x00"}
        answer = sqs.call("SendMessageBatch", QueueUrl=url, Entries=entries)
        failed = {one["Id"]: one["Code"] for one in answer["Failed"]}
        if group:
            expected = ["0"]
            assert failed == {"1": "InvalidMessageContents"} | dict.fromkeys(
                "234", "PriorRequestNotComplete"
            )
        else:
            expected = ["0", "2", "3"]
            assert failed == {"1": "InvalidMessageContents", "4": "OverLimit"}
            assert all(one["SenderFault"] for one in answer["Failed"])
        assert [one["Id"] for one in answer["Successful"]] == expected
        assert sqs.bodies(url) == expected
        rest.call("DELETE", f"/v1/queues/{name}", status=204)


def test_an_array_of_the_native_api_is_all_or_none(sqs: Sqs, rest: Rest) -> None:
    url = create(rest, sqs, "jobs", 3)
    path = "/v1/queues/jobs/messages"
    rest.refusal("POST", path, [{"message": n} for n in range(4)], status=429)
    assert sqs.counts(url) == (0, 0, 0)
    assert rest.call("POST", path, [{"message": n} for n in range(3)], status=201)


def test_the_size_is_shown_and_cannot_be_changed(sqs: Sqs, rest: Rest) -> None:
    create(rest, sqs, "jobs", 2_147_483_647)
    assert rest.call("GET", "/v1/queues/jobs")["max_messages"] == 2_147_483_647
    assert [one["max_messages"] for one in rest.call("GET", "/v1/queues")] == [2_147_483_647]
    rest.create("jobs", max_messages=2_147_483_647)
    rest.refusal("POST", "/v1/queues", {"name": "jobs", "max_messages": 5}, status=409)
    for size in (0, -1, 2_147_483_648, 1.5, "many"):
        rest.refusal("POST", "/v1/queues", {"name": "more", "max_messages": size})
    rest.create("plain", max_messages=None)
    assert "max_messages" not in rest.call("GET", "/v1/queues/plain")


def is_sent(client: Sqs, url: str, body: str, **members: str) -> bool:
    """Send a message and return False if the queue is full."""
    try:
        client.send(url, body, **members)
    except Refused as refused:
        if refused.code != "OverLimit":
            raise
        return False
    return True


@pytest.mark.parametrize("name", ["jobs", "jobs.fifo"])
def test_200_producers_leave_exactly_the_size(
    server: Server, second_server: Server, name: str
) -> None:
    with ExitStack() as stack:
        rest = stack.enter_context(Rest(server.url))
        sqs = stack.enter_context(Sqs("json", server.url, rest.account))
        url = create(rest, sqs, name, 100)
        clients: list[Rest | Sqs] = [
            rest,
            sqs,
            stack.enter_context(Rest(second_server.url, rest.account)),
            stack.enter_context(Sqs("query", second_server.url, rest.account)),
        ]

        def refused() -> float:
            # After many other tests a new queue has no series of its own. A sum over all queues
            # falls when the series of a deleted one goes.
            full, own = "queuegate_queue_full_total", f'account="{rest.account}",queue="{name}"'
            return sum(
                one.metric(f"{full}{{{labels}}}")
                for one in (server, second_server)
                for labels in (own, 'queue="_other"')
            )

        before = refused()

        def produce(number: int) -> bool:
            client = clients[number % 4]
            if isinstance(client, Rest):
                members = {"group_id": f"g{number % 7}"} if name.endswith(".fifo") else {}
                path = f"/v1/queues/{name}/messages"
                return client.ask("POST", path, {"message": number} | members).status == 201
            members = {}
            if name.endswith(".fifo"):
                members = {"MessageGroupId": "g", "MessageDeduplicationId": str(number)}
            return is_sent(client, url, str(number), **members)

        with ThreadPoolExecutor(50) as pool:
            assert Counter(pool.map(produce, range(200))) == {True: 100, False: 100}
        assert sum(sqs.counts(url)) == 100
        assert refused() - before == 100


def test_producers_of_three_faces_meet_one_size(server: Server, second_server: Server) -> None:
    with ExitStack() as stack:
        simple = stack.enter_context(Simple(server.url))
        rest = stack.enter_context(Rest(second_server.url, simple.account))
        sqs = stack.enter_context(Sqs("json", second_server.url, simple.account))
        queue_id = simple.create("jobs", queue_size=30)
        url = sqs.url_of("jobs")

        def produce(number: int) -> bool:
            if number % 3 == 0:
                body = {"data": str(number)}
                return simple.ask("POST", f"/api/queues/{queue_id}/messages", body).status < 300
            if number % 3 == 1:
                body = {"message": str(number)}
                return rest.ask("POST", "/v1/queues/jobs/messages", body).status == 201
            return is_sent(sqs, url, str(number))

        with ThreadPoolExecutor(30) as pool:
            assert Counter(pool.map(produce, range(90))) == {True: 30, False: 60}
        assert sum(sqs.counts(url)) == 30


def test_sends_that_race_deletes_never_exceed_the_size(
    server: Server, second_server: Server
) -> None:
    with Sqs("json", server.url) as first, Sqs("json", second_server.url, first.account) as second:
        with Rest(server.url, first.account) as rest:
            url = create(rest, first, "jobs", 10)
        accepted = Counter[bool]()
        deleted = Counter[bool]()

        def produce(client: Sqs) -> None:
            for number in range(60):
                accepted[is_sent(client, url, str(number))] += 1

        def consume(client: Sqs) -> None:
            for _ in range(60):
                for message in client.receive(url, 1):
                    client.delete(url, message)
                    deleted[True] += 1

        def watch(client: Sqs) -> int:
            return max(sum(client.counts(url)) for _ in range(40))

        with ThreadPoolExecutor(7) as pool:
            most = pool.submit(watch, first)
            for client in (first, second):
                pool.submit(produce, client)
                pool.submit(consume, client)
                pool.submit(produce, client)
            assert most.result() <= 10
        left = sum(first.counts(url))
        assert left == accepted[True] - deleted[True] <= 10


def test_an_event_for_a_full_queue_waits_and_arrives(server: Server, second_server: Server) -> None:
    """Published through one gateway, waited for through the other, sent by the worker of either."""
    with Rest(server.url) as rest, Rest(second_server.url, rest.account) as other:
        rest.create("jobs", max_messages=1)
        path = "/v1/events/orders.*/subscriptions"
        rest.call("POST", path, {"queue_name": "jobs"}, status=201)
        for number in range(3):
            rest.call("POST", "/v1/events/orders.new", {"message": number}, status=201)
        for number in range(3):
            [found] = other.receive("jobs", wait=20)
            assert found["message"] == number
            other.call("DELETE", f"/v1/queues/jobs/messages/{found['id']}", status=204)
        assert other.receive("jobs") == []


def test_publishes_through_two_gateways_do_not_wait_in_a_circle(
    server: Server, second_server: Server
) -> None:
    """To two queues, in one order by one topic and in the other by another, beside sends."""
    with ExitStack() as stack:
        rest = stack.enter_context(Rest(server.url))
        gateways = [
            stack.enter_context(Sns("query", one.url, rest.account))
            for one in (server, second_server)
        ]
        senders = [
            stack.enter_context(Sqs("json", one.url, rest.account))
            for one in (server, second_server)
        ]
        names = ("one.fifo", "two.fifo")
        urls = [create(rest, senders[0], name, 20) for name in names]
        arns = [senders[0].arn(url) for url in urls]
        topics = []
        for name, order in (("a.fifo", arns), ("b.fifo", arns[::-1])):
            topics.append(gateways[0].create_fifo(name))
            for arn in order:
                gateways[0].subscribe(topics[-1], "sqs", arn, **RAW)

        def publish(number: int) -> None:
            gateways[number % 2].publish(
                topics[number // 2 % 2],
                str(number),
                MessageGroupId=f"g{number % 3}",
                MessageDeduplicationId=str(number),
            )

        def send(number: int) -> bool:
            ids = {"MessageGroupId": f"g{number % 3}", "MessageDeduplicationId": f"own{number}"}
            return is_sent(senders[number % 2], urls[number // 2 % 2], str(number), **ids)

        with ThreadPoolExecutor(16) as pool:
            sends = pool.map(send, range(60))
            assert len([*pool.map(publish, range(60))]) == 60
            assert sum(sends) < 60
        assert [sum(senders[0].counts(url)) for url in urls] == [20, 20]

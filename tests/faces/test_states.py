"""`/_admin/states` and `queuegate save`: clients at work, several gateways, and crashes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import asyncpg
import pytest

from tests.cli.calling import call
from tests.cli.processes import Gateway
from tests.databases import Databases
from tests.faces.clients import Sqs, new_account
from tests.faces.rest.client import Rest
from tests.faces.servers import Background, Server
from tests.waiting import until, until_async

_PATH = "/_admin/states"
_BLOCK_INSERTS = """\
CREATE FUNCTION queuegate.block() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_advisory_xact_lock(4242); RETURN NEW; END $$;
CREATE TRIGGER blocked BEFORE INSERT ON queuegate.queues
FOR EACH ROW EXECUTE FUNCTION queuegate.block();
"""
_COUNTS = ("Messages", "MessagesNotVisible", "MessagesDelayed")


def depths(sqs: Sqs, url: str) -> list[int]:
    """Visible, in flight and delayed messages."""
    found = sqs.call("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])["Attributes"]
    return [int(found[f"ApproximateNumberOf{name}"]) for name in _COUNTS]


@pytest.fixture
def account(server: Server) -> Iterator[tuple[Rest, Sqs]]:
    name = new_account()
    with Rest(server.url, name) as rest, Sqs("json", server.url, name) as sqs:
        yield rest, sqs


def test_a_load_brings_back_messages_and_leases(server: Server, account: tuple[Rest, Sqs]) -> None:
    rest, sqs = account
    url, fifo = sqs.create("q"), sqs.create("q.fifo", FifoQueue="true")
    group = {"MessageGroupId": "g", "MessageDeduplicationId": "one"}
    sqs.call("SendMessage", QueueUrl=url, MessageBody="leased")
    sqs.call("SendMessage", QueueUrl=fifo, MessageBody="first", **group)
    [leased] = sqs.call("ReceiveMessage", QueueUrl=url, VisibilityTimeout=100)["Messages"]
    sqs.call("SendMessage", QueueUrl=url, MessageBody="late", DelaySeconds=50)
    sqs.call("SendMessage", QueueUrl=url, MessageBody="now")
    rest.call("PUT", f"{_PATH}/three.messages")
    sqs.call("DeleteMessage", QueueUrl=url, ReceiptHandle=leased["ReceiptHandle"])
    for one in (url, fifo):
        sqs.call("DeleteQueue", QueueUrl=one)
    sqs.create("not-saved")
    found = rest.call("POST", f"{_PATH}/three.messages")
    assert (found["account"], found["rows"]["messages"]) == (sqs.account, 3)
    assert depths(sqs, url) == [1, 1, 1]
    # The same deduplication id: the message is there.
    sqs.call("SendMessage", QueueUrl=fifo, MessageBody="again", **group)
    assert depths(sqs, fifo) == [1, 0, 0]
    sqs.call("DeleteMessage", QueueUrl=url, ReceiptHandle=leased["ReceiptHandle"])
    assert depths(sqs, url) == [1, 0, 1]
    assert sorted(sqs.call("ListQueues")["QueueUrls"]) == [url, fifo]
    assert sqs.refusal("GetQueueUrl", QueueName="not-saved").status == 400


def test_the_command_saves_loads_lists_and_deletes(server: Server) -> None:
    where = ("--url", server.url, "--account", new_account())
    assert "no state a" in call("load", "a", *where).stderr
    for name in ("", "a/b"):
        assert f"'{name}' is no name" in call("save", name, *where).stderr
    assert call("save", "a", *where).stdout == "Saved a: 0 messages, 0 queues, 0 topics, 0 logs.\n"
    assert call("load", "a", *where).stdout.startswith("Loaded a: ")
    assert call("states", *where).stdout.splitlines()[1].startswith("a ")
    assert '"name": "a"' in call("states", "--json", *where).stdout
    assert call("states", "--delete", "a", *where).stdout == "Deleted the state a.\n"
    missing = call("states", "--delete", "a", *where)
    assert (missing.returncode, "Its states: none" in missing.stderr) == (1, True)


@pytest.mark.parametrize("name", [".x", "x" * 81, "a%20b", "%00", "a%2Fb", "%C3%BC", "a'b"])
@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
def test_wrong_names_are_refused(account: tuple[Rest, Sqs], method: str, name: str) -> None:
    answer = account[0].ask(method, f"{_PATH}/{name}")
    assert answer.status == 400, answer.text


def test_a_wrong_account_is_refused(account: tuple[Rest, Sqs]) -> None:
    for query in ("account=1", "account=", "acount=111122223333", "account=1&account=2"):
        account[0].refusal("PUT", f"{_PATH}/x?{query}")


@pytest.fixture
def pair(databases: Databases) -> Iterator[tuple[Gateway, Gateway, str]]:
    """Two gateways on one database."""
    settings = {"DATABASE_URL": databases.copy(), "QUEUEGATE_LOG_LEVEL": "error"}
    with Gateway(**settings) as one, Gateway(**settings) as other:
        yield one, other, settings["DATABASE_URL"]


def test_a_receive_at_another_gateway_gets_a_loaded_message(
    pair: tuple[Gateway, Gateway, str],
) -> None:
    one, other, _ = pair
    name = new_account()
    with Rest(one.url, name) as rest, Sqs("json", one.url, name) as sqs:
        url = sqs.create("q")
        sqs.call("SendMessage", QueueUrl=url, MessageBody="saved")
        rest.call("PUT", f"{_PATH}/x")
        with Sqs("json", other.url, name) as elsewhere:
            # It has seen everything that was sent, so its watermarks are beyond the message.
            [found] = elsewhere.call("ReceiveMessage", QueueUrl=url)["Messages"]
            handle = found["ReceiptHandle"]
            elsewhere.call("DeleteMessage", QueueUrl=url, ReceiptHandle=handle)
            wanted = {"QueueUrl": url, "WaitTimeSeconds": 20}
            waiting = Background(elsewhere.call, "ReceiveMessage", **wanted)
            rest.call("POST", f"{_PATH}/x")
            assert waiting.result()["Messages"][0]["Body"] == "saved"


def test_loads_while_clients_send_and_receive_keep_counts_exact(
    pair: tuple[Gateway, Gateway, str],
) -> None:
    name, rounds = new_account(), 6

    def work(url: str, queue: str, more: dict[str, str]) -> None:
        with Sqs("json", url, name) as sqs:
            for number in range(8 * rounds):
                if more:
                    more = {
                        "MessageGroupId": f"g{number % 3}",
                        "MessageDeduplicationId": f"{id(sqs)}{number}",
                    }
                sqs.call("SendMessage", QueueUrl=queue, MessageBody="m", **more)
                for one in sqs.call("ReceiveMessage", QueueUrl=queue).get("Messages", []):
                    handle = one["ReceiptHandle"]
                    sqs.call("DeleteMessage", QueueUrl=queue, ReceiptHandle=handle)

    def load(url: str) -> list[int]:
        with Rest(url, name) as rest:
            return [rest.ask("POST", f"{_PATH}/x").status for _ in range(rounds)]

    with Rest(pair[0].url, name) as rest, Sqs("json", pair[0].url, name) as sqs:
        queues = [(sqs.create("q"), {}), (sqs.create("q.fifo", FifoQueue="true"), {"a": "b"})]
        for number in range(20):
            sqs.call("SendMessage", QueueUrl=queues[0][0], MessageBody=str(number))
        rest.call("PUT", f"{_PATH}/x")
        with ThreadPoolExecutor(6) as pool:
            work_done = [
                pool.submit(work, gateway.url, queue, dict(more))
                for gateway in pair[:2]
                for queue, more in queues
            ]
            loads = [pool.submit(load, gateway.url) for gateway in pair[:2]]
            assert [one.result(60) for one in loads] == [[200] * rounds] * 2
            for one in work_done:
                one.result(60)
    # The totals that were counted are those of the rows.
    counted = (
        "SELECT (SELECT sum(delta) FROM queuegate.queue_deltas)::int,"
        " (SELECT count(*) FROM queuegate.messages)::int"
        " + (SELECT count(*) FROM queuegate.fifo_messages)::int"
    )
    [[total, rows]] = asyncio.run(_fetch(pair[2], counted))
    assert total == rows


async def _fetch(dsn: str, statement: str) -> Any:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetch(statement)
    finally:
        await connection.close()


def test_a_gateway_killed_while_it_loads_has_changed_nothing(
    pair: tuple[Gateway, Gateway, str],
) -> None:
    one, other, dsn = pair
    name = new_account()
    with Rest(one.url, name) as rest, Sqs("json", other.url, name) as sqs:
        url = sqs.create("q")
        rest.call("PUT", f"{_PATH}/empty")
        sqs.call("SendMessage", QueueUrl=url, MessageBody="kept")

        async def kill_in_the_middle() -> None:
            connection = await asyncpg.connect(dsn)
            # The load has deleted all rows when it comes to the first insert.
            await connection.execute(_BLOCK_INSERTS)
            await connection.execute("SELECT pg_advisory_lock(4242)")
            Background(rest.ask, "POST", f"{_PATH}/empty")
            waits = "SELECT FROM pg_locks WHERE objid = 4242 AND NOT granted"
            await until_async(lambda: connection.fetch(waits))
            one.process.send_signal(signal.SIGKILL)
            await connection.close()

        asyncio.run(kill_in_the_middle())
        one.process.wait()
        until(lambda: depths(sqs, url), lambda found: found == [1, 0, 0])
        [found] = sqs.call("ReceiveMessage", QueueUrl=url)["Messages"]
        assert found["Body"] == "kept"

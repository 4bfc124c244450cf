"""`queuegate slow` beside a gateway with one slow and one bounded queue."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

from tests.cli.calling import call
from tests.faces.clients import Sqs
from tests.faces.rest.client import Rest
from tests.faces.servers import Server
from tests.faces.signing import Verifying
from tests.waiting import until


def slow(server: Server, *arguments: str) -> list[dict[str, object]]:
    """Run the command and return its lines."""
    done = call("slow", "--url", server.url, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_slow_and_the_refused_are_shown() -> None:
    """May take more than 5 s: two processes start."""
    with (
        Server("--workers", "2") as server,
        Sqs("json", server.url) as sqs,
        Rest(server.url, sqs.account) as rest,
    ):
        url = sqs.create("orders")
        for number in range(3):
            sqs.send(url, str(number))
        sqs.delete(url, *sqs.receive(url, 10))
        rest.create("bounded", max_messages=1)
        rest.send("bounded")
        assert rest.ask("POST", "/v1/queues/bounded/messages", {"message": "x"}).status == 429
        none = ("set", sqs.account, "--queues", "0")
        assert call("quotas", *none, DATABASE_URL=server.dsn).returncode == 0
        # A queue that was made before the quota was known could be created again.
        names = (f"no-{number}" for number in itertools.count())
        until(
            lambda: sqs.ask("CreateQueue", {"QueueName": next(names)}).status,
            lambda code: code != 200,
        )
        *queues, quota, full = sorted(slow(server), key=lambda one: str(one.get("reason", "")))
        found = {one["queue"]: one for one in queues}
        assert found["orders"]["account"] == sqs.account
        for verb in ("send", "receive", "delete", "age"):
            taken = found["orders"][verb]
            assert isinstance(taken, float)
            assert taken > 0
        assert found["bounded"]["delete"] is None
        assert (full["subject"], full["reason"]) == ("bounded", "queue is full")
        assert (quota["subject"], quota["account"]) == ("queues", sqs.account)
        assert slow(server, "--seconds", "1") == []
        done = call("slow", "--url", server.url, "--seconds", "1")
        assert done.stdout == "No queue had requests.\n\nNothing was refused.\n"
        assert len(slow(server, "--limit", "1")) == 2
        done = call("slow", "--url", server.url)
        heads, *_ = lines = done.stdout.splitlines()
        assert heads.split("  ")[-1].strip() == "AGE MS"
        assert any(line.startswith("bounded ") and " - " in line for line in lines)


def test_strangers_are_told_why_they_see_nothing(tmp_path: Path) -> None:
    """Totals only; an administrator's key shows all."""
    with Verifying(tmp_path) as server:
        queue = server.first.sqs("CreateQueue", QueueName="orders")
        assert queue.status == 200
        sent = json.loads(queue.body)["QueueUrl"]
        assert server.first.sqs("SendMessage", QueueUrl=sent, MessageBody="x").status == 200
        done = call("slow", "--url", server.url)
        assert done.returncode == 1
        assert "totals only" in done.stderr
        keys = {
            "AWS_ACCESS_KEY_ID": server.first.access_key,
            "AWS_SECRET_ACCESS_KEY": server.first.secret,
        }
        done = call("slow", "--url", server.url, **keys)
        assert "orders" in done.stdout


def test_an_address_without_a_gateway_is_named() -> None:
    done = call("slow", "--url", "nowhere")
    assert done.returncode == 1
    assert "not an http URL" in done.stderr

"""`queuegate queues`, `topics` and `schedules`, at a running gateway."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from queuegate.gateway.cli import main
from tests.faces.clients import Sqs, new_account
from tests.faces.rest.client import Rest
from tests.faces.servers import Server

Command = Callable[..., str]
HOSTILE = "red \u001b]0;title\u0007 csi \u009b31m turned \u202e line\n"


@pytest.fixture
def rest(server: Server) -> Iterator[Rest]:
    with Rest(server.url, new_account()) as client:
        yield client


@pytest.fixture
def command(rest: Rest, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run `queuegate` for the account; return what it printed. ``code``: the exit code."""

    def run(*arguments: str, code: int = 0) -> str:
        place = ("--url", rest.url, "--account", rest.account)
        try:
            found = main([*arguments, *place])
        except SystemExit as left:
            found = int(str(left.code))
        out, err = capsys.readouterr()
        assert found == code, err
        return out + err

    return run


def of(printed: str) -> Any:
    return json.loads(printed)


def test_queues_are_listed_with_what_they_hold(command: Command, rest: Rest) -> None:
    assert command("queues", "list") == "There are no queues.\n"
    command("queues", "create", "orders-dead")
    zero = ("--attribute", "VisibilityTimeout=0")
    command(
        "queues", "create", "orders", "--dead-letters", "orders-dead", "--max-receives", "1", *zero
    )
    for text in ("dead", "flies", "waits"):
        command("queues", "send", "orders", text)
    command("queues", "send", "orders", "later", "--delay", "5m")
    command("queues", "receive", "orders")
    # The first message was received once, and moves.
    command("queues", "receive", "orders", "--max", "2", "--visibility", "1m")
    command("queues", "pause", "orders")
    heads, *rows = [" ".join(line.split()) for line in command("queues", "list").splitlines()]
    assert heads == "QUEUE DEPTH IN FLIGHT DELAYED OLDEST DEAD LETTERS PAUSED"
    ages = [re.sub(r"\b\d+s\b", "0s", row) for row in rows]
    assert ages == ["orders 3 1 1 0s 1 in orders-dead paused", "orders-dead 1 0 0 0s -"]
    [first, _] = of(command("queues", "list", "--json"))
    assert (first["dead_letter_queue"], first["dead_letters"]) == ("orders-dead", 1)
    # A prefix leaves the dead-letter queue out of the list, and its depth in.
    rest.create("a-dead")
    command("queues", "create", "z-orders", "--dead-letters", "a-dead")
    [only] = of(command("queues", "list", "--prefix", "z", "--json"))
    assert only["dead_letters"] == 0
    shown = of(command("queues", "show", "orders", "--json"))
    assert shown["queue_length"] == 3
    assert shown["attributes"]["VisibilityTimeout"] == "0"
    assert "VisibilityTimeout " in command("queues", "show", "orders")


def test_a_list_of_queues_is_one_request_a_hundred(
    command: Command, rest: Rest, server: Server
) -> None:
    for number in range(101):
        rest.create(f"q{number:03}")
    labels = 'http_requests_total{method="GET",path="/v1/queues%s"}'
    counted = [server.metric(labels % end) for end in ("", "/{name}")]
    assert len(of(command("queues", "list", "--json"))) == 101
    # The last one is empty.
    assert [server.metric(labels % end) for end in ("", "/{name}")] == [counted[0] + 3, counted[1]]


@pytest.mark.parametrize("kind", ["", ".fifo"])
def test_a_message_comes_as_it_was_sent(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    name = f"jobs{kind}"
    fifo = ("--group", "g", "--deduplication-id") if kind else ()
    command("queues", "create", name)
    file = tmp_path / "body"
    file.write_bytes(b' { "a":1 }\r\n')
    piped = "grüße\n".encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(piped)))
    for number, given in enumerate((["plain"], ["--file", str(file)], ["-"])):
        unique = (*fifo, str(number)) if kind else ()
        sent = of(
            command("queues", "send", name, *given, *unique, "--attribute", "a=b=c", "--json")
        )
        assert sent["MessageId"]
    expected = ["plain", ' { "a":1 }\r\n', "grüße\n"]
    peeked = of(command("queues", "peek", name, "--json"))
    assert [one["body"] for one in peeked] == expected
    assert [one["state"] for one in peeked] == ["visible"] * 3
    found = of(command("queues", "receive", name, "--max", "10", "--delete", "--json"))
    assert [one["Body"] for one in found] == expected
    assert found[0]["MessageAttributes"]["a"]["StringValue"] == "b=c"
    assert command("queues", "peek", name) == f"No messages in {name}.\n"


def test_bodies_do_not_reach_the_terminal_unescaped(
    command: Command, rest: Rest, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    # XML allows no escape character, so only JSON texts and C1 controls can hold one.
    body = HOSTILE.replace("\u001b", "").replace("\u0007", "")
    with Sqs("json", server.url, rest.account) as sqs:
        url = sqs.call("CreateQueue", QueueName="jobs")["QueueUrl"]
        sqs.call("SendMessage", QueueUrl=url, MessageBody=body)
    assert command("queues", "receive", "jobs", "--visibility", "0", "--bodies") == body + "\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    for action in (["peek"], ["receive", "--visibility", "0"]):
        for form in ([], ["--bodies"], ["--json"]):
            printed = command("queues", action[0], "jobs", *action[1:], *form)
            assert "u202e" in printed
            assert not {letter for letter in printed if not letter.isprintable()} - {"\n"}


def test_what_deletes_asks_before(command: Command, rest: Rest, monkeypatch: Any) -> None:
    rest.create("jobs")
    rest.send("jobs")
    monkeypatch.setattr(sys, "stdin", io.StringIO("no\n"))
    assert command("queues", "purge", "jobs", code=1).startswith("Delete 1 message of jobs")
    assert "Nothing was changed." in command("queues", "delete", "jobs", code=1)
    assert of(command("queues", "purge", "jobs", "--yes", "--json")) == {"deleted": 1}
    assert command("queues", "delete", "jobs", "--yes") == "jobs is deleted.\n"
    assert "'jobs' does not exist" in command("queues", "delete", "jobs", "--yes", code=1)


def test_dead_letters_go_back(command: Command, rest: Rest) -> None:
    command("queues", "create", "dead")
    attributes = ("--attribute", "VisibilityTimeout=0", "--dead-letters", "dead")
    command("queues", "create", "jobs", *attributes, "--max-receives", "1")
    rest.send("jobs")
    rest.receive("jobs")
    rest.receive("jobs")
    assert of(command("queues", "redrive", "dead", "--all", "--json"))["moved"] == 1
    assert "name the messages" in command("queues", "redrive", "dead", code=2)


def test_topics(command: Command, rest: Rest) -> None:
    assert command("topics", "list") == "There are no topics.\n"
    for name in ("orders", "orders.fifo"):
        assert f"{name} exists: arn:aws:sns:" in command("topics", "create", name)
    rest.create("jobs")
    rest.call("POST", "/v1/events/orders/subscriptions", {"queue_name": "jobs"}, status=201)
    assert "is published." in command("topics", "publish", "orders", "as it is", "--subject", "S")
    assert rest.bodies("jobs") == ["as it is"]
    fifo = ("--group", "g", "--deduplication-id", "d")
    assert "SequenceNumber" in command("topics", "publish", "orders.fifo", "x", *fifo, "--json")
    [orders, _] = of(command("topics", "list", "--json"))
    assert orders["subscriptions_confirmed"] == 1
    assert command("topics", "list", "--prefix", "orders.").count("\n") == 2
    assert (
        of(command("topics", "show", "orders", "--json"))["subscriptions"][0]["Protocol"] == "sqs"
    )
    assert ":jobs" in command("topics", "show", "orders")
    assert command("topics", "pause", "orders") == "The topic orders is paused.\n"
    assert rest.call("GET", "/v1/topics/orders")["paused_at"]
    assert command("topics", "delete", "orders", "--yes") == "orders is deleted.\n"
    assert "does not exist" in command("topics", "show", "orders", code=1)


def test_schedules(command: Command, rest: Rest) -> None:
    rest.create("jobs")
    target = ("--queue", "jobs", '{"a": 1}')
    made = command("schedules", "create", "report", "--every", "15m", *target)
    assert made.startswith("report: Every 15 minutes. Next: ")
    command("schedules", "create", "check", "--cron", "0 9 * * 1-5", "--event", "orders.check", "1")
    assert [one["name"] for one in of(command("schedules", "list", "--json"))] == [
        "check",
        "report",
    ]
    assert command("schedules", "run", "report") == "report: 1 message sent.\n"
    assert rest.bodies("jobs") == ['{"a": 1}']
    command("schedules", "pause", "report")
    assert of(command("schedules", "show", "report", "--json"))["status"] == "paused"
    command("schedules", "resume", "report")
    assert "active" in command("schedules", "list", "--prefix", "rep")
    assert command("schedules", "delete", "report", "--yes") == "report is deleted.\n"


def test_watch_ends_with_ctrl_c(
    command: Command, rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            raise KeyboardInterrupt
        rest.create("jobs")

    monkeypatch.setattr("queuegate.gateway.command.resource_commands.time.sleep", pause)
    printed = command("queues", "list", "--watch", "7", "--json")
    before, after = map(json.loads, printed.splitlines())
    assert (before, [one["name"] for one in after], waits) == ([], ["jobs"], [7, 7])
    waits[:] = [0.0]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert command("queues", "list", "--watch").startswith("\x1b[H\x1b[2JQUEUE")
    assert waits[1] == 2


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("queues send jobs", "one of the arguments BODY --file is required"),
        ("queues send jobs x --file /dev/null", "not allowed with argument"),
        ("queues send jobs --file /nowhere", "No such file"),
        ("queues send jobs --file /", "directory"),
        ("queues send jobs x --attribute a", "'a' is not NAME=VALUE"),
        ("queues send jobs x --delay soon", "not a duration"),
        ("queues receive jobs --max 0", "not a whole number"),
        ("queues list --watch 0", "not a whole number"),
        ("queues sned jobs", "Did you mean send?"),
        ("schedules create s --every 1m --queue jobs {", "'{' is not JSON"),
        ("schedules create s --queue jobs 1", "one of the arguments --every"),
        ("topics pause", "required: TOPIC"),
    ],
)
def test_wrong_arguments_are_refused(command: Command, given: str, reason: str) -> None:
    assert reason in command(*given.split(), code=2)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("queues show nobody", "'nobody' does not exist"),
        ("queues show ../../livez", "does not exist"),
        ("queues show \udcff", "does not exist"),
        ("queues create \udcff", "not valid JSON"),
        ("queues create no:name", "Can only include alphanumeric"),
        ("queues create jobs --max-receives 3", "needs --dead-letters"),
        ("queues create jobs --dead-letters nobody", "does not exist"),
        ("queues create jobs --attribute No=1", "No"),
        ("queues send nobody x", "does not exist"),
        ("queues receive nobody --wait 5m", "wait"),
        ("queues peek nobody --state flying", "state"),
        ("topics publish nobody x", "does not exist"),
        ("topics create no:name", "Name"),
        ("schedules show nobody", "'nobody' does not exist"),
        ("schedules create s --every 1m 1", "needs --queue or --event"),
        ("schedules create s --every soon --event a 1", "soon"),
    ],
)
def test_refusals_of_the_gateway_are_one_line(command: Command, given: str, reason: str) -> None:
    printed = command(*given.split(), code=1)
    assert reason in printed
    assert printed.startswith("queuegate: ")
    assert printed.count("\n") == 1


def test_a_key_signs_and_shows(rest: Rest, command: Command, monkeypatch: Any, capsys: Any) -> None:
    """Keys of the account reach SQS, SNS and the native API."""
    key = rest.call("POST", "/v1/keys", {"name": "operator"}, status=201)["key"]
    for arguments in (["queues", "create", "jobs"], ["topics", "create", "news"]):
        assert main([*arguments, "--url", rest.url, "--key", key]) == 0
    assert f":{rest.account}:news" in capsys.readouterr().out
    assert rest.call("GET", "/v1/queues/jobs")

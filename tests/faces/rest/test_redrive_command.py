"""`queuegate redrive`, at a running gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from queuegate.gateway.cli import main
from tests.faces.clients import Sqs, new_account
from tests.faces.rest.client import Rest
from tests.faces.rest.test_redrives import drain
from tests.faces.servers import Server


@pytest.fixture
def account() -> str:
    return new_account()


@pytest.fixture
def rest(server: Server, account: str) -> Iterator[Rest]:
    """A client of an account with the queues orders and dead, and five dead letters."""
    with Rest(server.url, account) as client, Sqs("json", server.url, account) as sqs:
        dead = sqs.call("CreateQueue", QueueName="dead")["QueueUrl"]
        found = sqs.call("GetQueueAttributes", QueueUrl=dead, AttributeNames=["QueueArn"])
        arn = found["Attributes"]["QueueArn"]
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
        attributes = {"VisibilityTimeout": "0", "RedrivePolicy": policy}
        orders = sqs.call("CreateQueue", QueueName="orders", Attributes=attributes)["QueueUrl"]
        for number in range(5):
            code = {"DataType": "String", "StringValue": "Timeout" if number < 3 else "Refused"}
            sqs.call(
                "SendMessage",
                QueueUrl=orders,
                MessageBody=f"body {number}",
                MessageAttributes={"ErrorCode": code},
            )
        drain(sqs, orders)
        yield client


def redrive(rest: Rest, *arguments: str) -> int:
    place = ("--url", rest.url, "--account", rest.account)
    return main(["redrive", "dead", *arguments, *place])


def result(rest: Rest, capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert redrive(rest, *arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_all_of_them(rest: Rest, capsys: pytest.CaptureFixture[str]) -> None:
    assert redrive(rest, "--all", "--dry-run") == 0
    assert capsys.readouterr().out == "5 dead letters found.\n"
    assert len(rest.bodies("dead")) == 5
    # Pages of two, at a rate.
    assert redrive(rest, "--all", "--rate", "1000") == 0
    assert capsys.readouterr().out == "5 dead letters found, 5 moved.\n"
    assert len(rest.bodies("orders")) == 5


def test_those_that_match(rest: Rest, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    given = ("--attribute", "ErrorCode=Time*", "--limit", "2")
    assert result(rest, capsys, *given)["moved"] == 2
    assert rest.bodies("orders") == ["body 0", "body 1"]
    [first, *_] = rest.call("GET", "/v1/queues/dead/browse")["messages"]
    file = tmp_path / "ids"
    file.write_text(first["message_id"] + "\n")
    assert result(rest, capsys, "--ids", str(file))["moved"] == 1
    assert rest.bodies("dead") == ["body 3", "body 4"]
    assert result(rest, capsys, "--text", "body 4", "--older-than", "1h")["matched"] == 0
    assert result(rest, capsys, "--text", "body 4", "--source", "orders")["moved"] == 1
    file.write_text("")
    assert result(rest, capsys, "--ids", str(file))["matched"] == 0


def test_what_stays_is_told(rest: Rest, capsys: pytest.CaptureFixture[str]) -> None:
    rest.send("dead", "sent here")
    assert rest.call("GET", "/v1/queues/dead/messages?max=1&vt=60")
    assert redrive(rest, "--all") == 0
    assert capsys.readouterr().out.splitlines() == [
        "6 dead letters found, 4 moved.",
        "1 stay: the source queue is unknown or deleted. --to names another one.",
        "1 stay: they are in flight, or the destination is full.",
    ]


def test_what_is_asked_wrong(rest: Rest, capsys: pytest.CaptureFixture[str]) -> None:
    assert redrive(rest) == 2
    assert redrive(rest, "--all", "--text", "body") == 2
    assert "--all, or conditions" in capsys.readouterr().err
    assert redrive(rest, "--all", "--to", "nobody") == 1
    assert "'nobody' does not exist" in capsys.readouterr().err
    for bad in (["--older-than", "soon"], ["--attribute", "x"], ["--limit", "0"], ["--ids", "/"]):
        with pytest.raises(SystemExit):
            redrive(rest, *bad)


def test_a_key_names_the_account(rest: Rest, capsys: pytest.CaptureFixture[str]) -> None:
    key = rest.call("POST", "/v1/keys", {"name": "operator"}, status=201)["key"]
    assert main(["redrive", "dead", "--all", "--url", rest.url, "--key", key]) == 0
    assert capsys.readouterr().out == "5 dead letters found, 5 moved.\n"


def test_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["redrive", "dead", "--all", "--url", "ftp://nowhere"]) == 1
    assert "ftp://nowhere" in capsys.readouterr().err

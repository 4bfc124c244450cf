"""The pipelines take a log wherever they take a queue."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from spark_connectors.examples import dead_letter_report
from spark_connectors.pipelines.pipeline_commands import main
from tests.spark.logs import ask, batch_rows, new_name, publish
from tests.spark.queues import client_of

KEYS = 3
COUNT = 30


def run(
    capsys: pytest.CaptureFixture[str],
    endpoint: str,
    *argv: str,
    command: Callable[[Sequence[str]], int] = main,
) -> dict[str, Any]:
    """The result of a command."""
    end = ["--endpoint-url", endpoint, "--region", "us-east-1", "--json", "-", "--quiet"]
    assert command([*argv, *end]) == 0, capsys.readouterr().err
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def orders(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Values by key, in their order."""
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row["key"].decode(), []).append(row["value"].decode())
    return found


@pytest.fixture
def log(gateway: str) -> str:
    found = new_name()
    records = [(f"k{number % KEYS}", f"value {number:02}") for number in range(COUNT)]
    publish(gateway, found, records, metadata={"tenant": "acme", "empty": ""})
    return found


@pytest.mark.soak
@pytest.mark.usefixtures("spark")
def test_a_log_is_archived_and_sent_to_logs_and_queues(
    gateway: str,
    log: str,
    make_queue: Callable[..., str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = str(tmp_path / "archive")
    archive = ("archive", "--queue", f"log:{log}", "--archive", root, "--format", "parquet")
    assert run(capsys, gateway, *archive)["rows"] == COUNT
    copy = new_name()
    to_copy = ("replay", "--archive", root, "--to", f"log:{copy}", "--replay-id", "one")
    assert run(capsys, gateway, *to_copy)["sent"] == COUNT
    # It sends them again, and the log knows them.
    again = run(capsys, gateway, *to_copy, "--rate", "10000")
    assert (again["sent"], again["sent_before"]) == (COUNT, None)
    assert not (tmp_path / "archive/replays").exists()
    rows = batch_rows(gateway, subscribe=copy, includeHeaders="true")
    assert orders(rows) == orders(batch_rows(gateway, subscribe=log))
    headers = {one["key"]: one["value"].decode() for one in rows[0]["headers"]}
    assert headers["tenant"] == "acme"
    assert headers["replayed_from"].startswith(f"one/{log}/")

    queue = make_queue(gateway, fifo=True)
    some = ("--group", "k1", "--limit", "5")
    assert run(capsys, gateway, "replay", "--archive", root, "--to", queue, *some)["sent"] == 5
    got = client_of("sqs", gateway).receive_message(
        QueueUrl=queue, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
    )["Messages"]
    assert [one["Body"] for one in got] == [f"value {1 + KEYS * one:02}" for one in range(5)]
    assert got[0]["MessageAttributes"]["tenant"]["StringValue"] == "acme"


@pytest.mark.usefixtures("spark")
def test_a_dead_letter_log_is_reported(
    gateway: str, log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"/{log}/groups/workers"
    session = ask(gateway, "PUT", f"{place}/subscribers/one", {})["session"]
    fetched = ask(
        gateway, "POST", f"{place}/subscribers/one/fetch", {"session": session, "max": COUNT}
    )
    said = [
        {"receipt": one["receipt"], "do": "reject", "error": f"no such item {number}"}
        for number, one in enumerate(fetched["records"])
    ]
    ask(gateway, "POST", f"{place}/deliveries", {"deliveries": said})
    report = run(capsys, gateway, "--queue", f"log:{log}_dlq", command=dead_letter_report.main)
    assert report["messages"] == len(said)
    [found] = report["error_classes"]
    assert (found["error_class"], found["messages"]) == ("no such item <n>", len(said))
    assert {one["source"] for one in report["sources"]} == {log}
    keys = {one["key"] for one in fetched["records"]}
    assert {one["group"] for one in report["groups"]} == keys

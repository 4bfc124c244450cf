"""`queuegate log`, at a running gateway."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from queuegate.gateway.cli import main
from tests.faces.logs.client import Logs, record
from tests.faces.logs.conftest import Run
from tests.waiting import until


def lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def given(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_a_first_record(run: Run, logs: Logs) -> None:
    first = ("publish", "orders", "one", "--partition-key", "a")
    assert run(*first, "--id", "1", "--metadata", "x=y") == "Partition 0, offset 0.\n"
    assert run(*first, "--id", "1") == "Partition 0, offset 0, where it was already.\n"
    assert lines(run(*first, "--json"))[0]["offset"] == 1
    [shown] = lines(run("record", "orders", "0", "0", "--json"))
    assert (shown["payload"], shown["metadata"]) == ("one", {"x": "y"})
    shown = run("record", "orders", "0", "0")
    assert '{"x": "y"}\n' in shown
    assert shown.endswith("\n\none\n")
    assert "Partition 0 has no record at offset 9" in run("record", "orders", "0", "9", code=1)


def test_lines_of_standard_input(run: Run, logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, b"one\n\xff\n" + b"x\n" * 2_000)
    assert run("publish", "lines", "-") == "2,002 records published.\n"
    assert logs.payloads(log="lines", max=2) == ["one", "/w=="]
    assert len(lines(run("records", "lines", "--limit", "3000", "--json"))) == 2_002
    # As other commands take it.
    listed = run("records", "lines", "--from", "1500", "--limit", "1").splitlines()
    assert listed[1].split()[:2] == ["0", "1500"]
    given(monkeypatch, ("é" * 3_000 + "\n").encode() * 1_000)
    assert run("publish", "umlauts", "-", "--metadata", "a=b") == "1,000 records published.\n"
    assert "--id names one record" in run("publish", "lines", "-", "--id", "1", code=1)


def test_logs_and_their_records(run: Run, logs: Logs) -> None:
    assert run("list") == "There are no logs.\n"
    created = run("create", "clicks", "--partitions", "2", "--retain-consumed", "none", "--json")
    assert lines(created)[0]["retain_consumed"] is None
    logs.publish(record("1", key="a"), record("2", key="b"), record("3", key="a"))
    heads, row = run("list", "--prefix", "or").splitlines()
    assert heads.split()[:3] == ["LOG", "RECORDS", "BYTES"]
    assert row.split()[:2] == ["orders", "3"]
    listed = run("records", "orders", "--limit", "2").splitlines()
    assert [line.split()[-1] for line in listed[1:3]] == ["1", "3"]
    assert listed[3].startswith("There are more:")
    found = run("records", "orders", "--partition", "0", "--from", "1", "--json")
    assert [one["payload"] for one in lines(found)] == ["3"]
    assert run("records", "clicks") == "No records.\n"


def test_tail_goes_on_until_it_is_stopped(
    run: Run, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs.publish(record("1", key="a"), record("2", key="b"))
    pauses = 0

    def pause(_: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses % 2 == 0:
            raise KeyboardInterrupt
        logs.publish(record(f"new {pauses}", key="c"))

    monkeypatch.setattr("queuegate.gateway.command.log_command.time.sleep", pause)
    printed = run("tail", "orders", "--from-start", code=130)
    assert printed == "0:0 a  1\n1:0 b  2\n2:0 c  new 1\n"
    found = run("tail", "orders", "--partition", "2", "--json", code=130)
    assert [one["payload"] for one in lines(found)] == ["new 3"]


def test_what_deletes_asks_before(run: Run, logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    logs.publish(record("1"), record("2"), record("3"))
    given(monkeypatch, b"no\nyes\n")
    asked = "Delete all 3 records of orders permanently? (yes/no) "
    assert run("purge", "orders", code=1) == asked + "Nothing was changed.\n"
    assert "Record 0:0 is deleted." in run("delete-record", "orders", "0", "0")
    # Whoever is not there to answer did not agree.
    assert run("delete", "orders", code=1).endswith("Nothing was changed.\n")
    assert lines(run("purge", "orders", "--yes", "--json")) == [{"records": 2}]
    assert run("delete", "orders", "--yes") == "orders is deleted.\n"
    assert "no log 'orders'" in run("show", "orders", code=1)


def test_what_is_asked_wrong(run: Run, logs: Logs) -> None:
    for bad in (
        ["records", "orders", "--partition", "x"],
        ["create", "orders", "--max-age", "soon"],
        ["seek", "orders", "billing"],
        ["seek", "orders", "billing", "--offset", "3"],
        ["dead-letters", "requeue", "orders", "3=4"],
        [],
    ):
        with pytest.raises(SystemExit):
            run(*bad)
    assert "cannot be called '..'" in run("publish", "..", "x", code=1)
    assert main(["log", "list", "--url", "ftp://nowhere"]) == 1


def test_who_consumes_leaves_when_told_to_end(logs: Logs) -> None:
    """By Ctrl-C or by a supervisor: others have its partitions at once."""
    logs.publish(record("1"))
    group = "/v1/logs/orders/groups/billing"
    place = ("--url", logs.url, "--account", logs.account)
    command = (sys.executable, "-m", "queuegate", "log", "consume", "orders", "billing", *place)
    for number in (signal.SIGINT, signal.SIGTERM):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            until(lambda: logs.ask("GET", group).status == 200)
            until(lambda: logs.call("GET", group)["subscribers"])
            process.send_signal(number)
            assert process.wait(30) == 130
        assert logs.call("GET", group)["subscribers"] == []


def test_nobody_answers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuegate.gateway.command.gateway_client.time.sleep", lambda _: None)
    monkeypatch.setenv("QUEUEGATE_PORT", "1")
    assert main(["log", "list"]) == 1
    assert capsys.readouterr().err.endswith("is a gateway running there? --url names another one\n")


def test_progress_is_for_terminals(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr("queuegate.gateway.command.command_line.PROGRESS_SECONDS", 0)
    given(monkeypatch, b"x\n" * 1_001)
    assert "\r1,001 published\n1,001 records published.\n" in run("publish", "lines", "-")

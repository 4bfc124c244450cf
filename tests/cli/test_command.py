from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from queuegate.gateway.cli import main
from queuegate.gateway.operations.telemetry import database_health
from tests.cli.calling import call
from tests.cli.processes import run
from tests.databases import Databases
from tests.faces.servers import Server

COMMANDS = ["serve", "migrate", "worker", "doctor", "health", "config"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command_has_an_example(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    printed = capsys.readouterr().out
    assert f"queuegate {command}" in printed.partition("example")[2]
    assert max(len(line) for line in printed.splitlines()) <= 100


def test_help_lists_the_commands() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert all(f"    {command} " in done.stdout for command in COMMANDS)


def test_help_and_health_import_nothing_heavy() -> None:
    script = (
        "import sys, queuegate.gateway.cli, queuegate.gateway.command.gateway_client\n"
        "print({'asyncio', 'asyncpg', 'uvicorn', 'starlette', 'ctypes'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


def test_windows_is_told_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(SystemExit) as left:
        main(["serve"])
    assert left.value.code == 2
    assert "WSL" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "guess"),
    [
        ("srve", "serve"),
        ("keys creat shop", "create"),
        ("serve --ephmeral", "--ephemeral"),
        ("log tail orders --from-strat", "--from-start"),
    ],
)
def test_a_misspelt_word_is_guessed(
    given: str, guess: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(given.split())
    assert left.value.code == 2
    assert capsys.readouterr().err.endswith(f". Did you mean {guess}?\n")


def test_what_nothing_is_like_is_not_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--qqqq"])
    assert capsys.readouterr().err.endswith("unrecognized arguments: --qqqq\n")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("serve --ephemeral --data /tmp/x", "--data and --ephemeral exclude each other"),
        ("keys list --data /tmp/x --database-url postgresql://h/d", "--data and DATABASE_URL"),
        ("health --port 9 --url http://h", "leave --host and --port out"),
        ("log list --key k --account 111122223333", "not allowed with argument --key"),
    ],
)
def test_flags_that_cancel_each_other_are_refused(
    given: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(given.split())
    assert left.value.code == 2
    assert reason in capsys.readouterr().err


def test_health_asks_a_port() -> None:
    """An address of operators is not asked then."""
    with Server() as gateway:
        place = {"QUEUEGATE_OPERATIONS_ADDRESS": "127.0.0.1:9"}
        assert call("health", "--port", gateway.port, **place).returncode == 0
        assert call("health", **place).returncode == 1


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out.startswith("queuegate 0.")


def test_a_bad_value_is_one_line_and_exit_code_2() -> None:
    done = run("serve", QUEUEGATE_PORT="many")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("queuegate: QUEUEGATE_PORT='many': allowed is")
    assert done.stderr.count("\n") == 1


def test_config_prints_effective_values_and_warnings() -> None:
    done = run("config", QUEUE_LINGER_MS="3", DATABASE_URL="postgresql://u:secret@h/d", OTLP_X="1")
    assert "QUEUEGATE_LINGER_MS=3\n" in done.stdout
    assert "secret" not in done.stdout + done.stderr
    assert done.stderr.startswith("queuegate: warning: OTLP_X")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql://u:p@127.0.0.1:1/d", "no PostgreSQL answers at 127.0.0.1:1/d"),
        ("postgresql://u@/d?host=/nowhere", "no PostgreSQL answers at /nowhere/d"),
        ("postgresql://u@127.0.0.1:port/d", "DATABASE_URL cannot be used"),
        ("postgresql://u@[::1/d", "DATABASE_URL cannot be used"),
    ],
)
def test_a_database_that_is_away_is_one_line(url: str, reason: str) -> None:
    done = run("serve", "--port", "0", DATABASE_URL=url)
    assert done.returncode == 1
    assert done.stderr.startswith(f"queuegate: {reason}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("password", ["secret/1", "12/secret", "12?secret", "secret#1", "secret"])
@pytest.mark.parametrize("name", ["DATABASE_URL", "QUEUEGATE_DIRECT_DATABASE_URL"])
def test_no_part_of_a_password_is_printed(name: str, password: str) -> None:
    """Neither if it is not percent-encoded, nor if the host is forgotten."""
    host = "" if password == "secret" else "@127.0.0.1:1"
    places = {"DATABASE_URL": "postgresql://127.0.0.1:1/d"}
    done = run("serve", "--port", "0", **{**places, name: f"postgresql://u:{password}{host}/d"})
    assert done.returncode in (1, 2)
    assert "secret" not in done.stdout + done.stderr


def test_a_taken_port_is_one_line_and_starts_nothing(data: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        for workers in ("1", "2"):
            done = run("serve", "--port", str(port), "--data", str(data), "--workers", workers)
            assert done.returncode == 1
            assert done.stderr.startswith(f"queuegate: port {port} on 127.0.0.1 is taken")
            assert done.stderr.count("\n") == 1
    assert not data.exists()


def test_an_address_of_another_machine_is_one_line() -> None:
    done = run("serve", "--host", "192.0.2.1")
    assert done.returncode == 1
    assert "192.0.2.1 is not an address of this machine" in done.stderr


def test_worker_needs_a_database_url() -> None:
    done = run("worker")
    assert done.returncode == 2
    assert "DATABASE_URL" in done.stderr


def test_migrate_says_what_it_applied(data: Path) -> None:
    first = run("migrate", "--data", str(data))
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("applied 0000_bookkeeping\n")
    assert run("migrate", "--data", str(data)).stdout.startswith("nothing to do")


def test_doctor_finds_nothing_wrong_and_changes_nothing(data: Path) -> None:
    done = run("doctor", "--port", "0", "--data", str(data))
    assert done.returncode == 0, done.stdout
    assert not data.exists()


def test_doctor_finds_a_missing_database() -> None:
    done = run("doctor", "--port", "0", "--database-url", "postgresql://u@127.0.0.1:1/d")
    assert done.returncode == 1
    assert "FAIL  database: no PostgreSQL answers" in done.stdout


def test_doctor_names_the_session_of_the_oldest_transaction(
    databases: Databases, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And never what it asked."""
    dsn = databases.copy()
    monkeypatch.setenv("DATABASE_URL", dsn)
    monkeypatch.setattr(database_health, "LONG_TRANSACTION_SECONDS", 0.0)
    with asyncio.Runner() as runner:
        settings = {"application_name": "nightly report"}
        holder = runner.run(asyncpg.connect(dsn, server_settings=settings))
        pid = holder.get_server_pid()
        try:
            runner.run(holder.execute("BEGIN; SELECT txid_current() WHERE 'a secret' <> ''"))
            assert main(["doctor", "--port", "0"]) == 1
        finally:
            runner.run(holder.close())
    printed = capsys.readouterr().out
    [line] = [line for line in printed.splitlines() if "FAIL" in line]
    assert line.startswith("FAIL  transactions: the oldest has been open for ")
    assert f"(pid {pid}, application 'nightly report', user " in line
    assert line.endswith("idle_in_transaction_session_timeout ends such sessions")
    assert "secret" not in printed
    for name in ("vacuum", "replication", "rights"):
        assert f"ok    {name}: " in printed
    assert main(["doctor", "--port", "0"]) == 0


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/readyz", "ftp://x", "nonsense"])
def test_health_of_nothing_is_1(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "--url", url]) == 1
    assert capsys.readouterr().err.startswith(f"queuegate: {url}")

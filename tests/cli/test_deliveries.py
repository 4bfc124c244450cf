"""`queuegate deliveries`, beside a running gateway and without one."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from queuegate.storage.embedded.embedded_server import running_dsn
from queuegate.storage.model import NewDelivery
from queuegate.storage.topics import web_hook_deliveries
from tests import clusters
from tests.cli.calling import call
from tests.cli.processes import Gateway, environment, run

Command = Callable[..., subprocess.CompletedProcess[str]]
ACCOUNT = "000000000000"
ORDERS = f"arn:aws:sns:us-east-1:{ACCOUNT}:orders"


def dsn_of(data: Path) -> str:
    dsn = running_dsn(data)
    assert dsn is not None
    return dsn


async def add(dsn: str, *states: tuple[str, str, str]) -> list[int]:
    """Deliveries of (topic, endpoint, state); their ids. None of them is due today."""
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "queuegate"})
    rows = [
        NewDelivery(
            str(uuid4()),
            "SubscriptionConfirmation",
            False,
            str(uuid4()),
            ACCOUNT,
            "us-east-1",
            topic,
            endpoint,
            '{\n  "Type" : "SubscriptionConfirmation"\n}',
        )
        for topic, endpoint, _ in states
    ]
    async with connection.transaction():
        await connection.execute("DELETE FROM deliveries")
        await web_hook_deliveries.insert(connection, None, rows)
        ids = [
            row[0]
            for row in await connection.fetch("SELECT delivery_id FROM deliveries ORDER BY 1")
        ]
        await connection.execute("UPDATE deliveries SET due_at = now() + interval '1 day'")
        for number, (_, _, state) in zip(ids, states, strict=True):
            if state == "exhausted":
                await connection.execute(
                    "UPDATE deliveries SET state = 'exhausted', attempt_count = 4, lost_count = 1,"
                    " last_status = 500, last_error = 'HTTP 500', attempted_at = now()"
                    " WHERE delivery_id = $1",
                    number,
                )
            if state == "stuck":
                await connection.execute(
                    "UPDATE deliveries SET attempt_count = 1, last_error = 'no answer'"
                    " WHERE delivery_id = $1",
                    number,
                )
    await connection.close()
    return ids


async def count(dsn: str, state: str) -> int:
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "queuegate"})
    found: int = await connection.fetchval(
        "SELECT count(*) FROM deliveries WHERE state = $1", state
    )
    await connection.close()
    return found


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Path, str]]:
    """(data directory, DSN) of a gateway that runs and delivers nothing."""
    parent = Path(tempfile.mkdtemp(prefix="queuegate-test-"))
    parent.chmod(0o755)
    data = parent / "data"
    clusters.copy(data)
    with Gateway("--data", str(data), QUEUE_HTTP_DELIVERY_ENABLED="false"):
        yield data, dsn_of(data)
    shutil.rmtree(parent, ignore_errors=True)


def ask(data: Path, *arguments: str, command: Command = call) -> str:
    done = command("deliveries", *arguments, "--data", str(data))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def fill(dsn: str) -> list[int]:
    return asyncio.run(
        add(
            dsn,
            ("orders", "http://a/", "exhausted"),
            ("orders", "http://a/", "pending"),
            ("orders", "http://b/", "stuck"),
            ("other", "http://b/", "exhausted"),
        )
    )


def listed(data: Path, *arguments: str, command: Command = call) -> list[int]:
    lines = ask(data, "list", "--json", *arguments, command=command).splitlines()
    return [json.loads(line)["delivery_id"] for line in lines]


def test_nothing_there_is_said(served: tuple[Path, str]) -> None:
    data, dsn = served
    asyncio.run(add(dsn))
    assert ask(data, "list") == "No deliveries.\n"
    assert ask(data, "list", "--exhausted") == "No exhausted deliveries.\n"
    assert ask(data, "list", "--stuck") == "No stuck deliveries.\n"
    assert ask(data, "list", "--json") == ""
    assert ask(data, "summary") == "No deliveries are pending or exhausted.\n"
    assert ask(data, "redrive", "--all") == "0 deliveries redriven.\n"


def test_lists_can_be_narrowed(served: tuple[Path, str]) -> None:
    data, dsn = served
    first, second, third, fourth = fill(dsn)
    assert listed(data) == [first, second, third, fourth]
    assert listed(data, "--exhausted") == [first, fourth]
    assert listed(data, "--pending") == [second, third]
    assert listed(data, "--stuck") == [third]
    assert listed(data, "--topic", ORDERS) == [first, second, third]
    assert listed(data, "--endpoint", "http://b/") == [third, fourth]
    assert listed(data, "--limit", "2") == [first, second]


def test_table_is_for_people(served: tuple[Path, str]) -> None:
    data, dsn = served
    first, *_ = fill(dsn)
    head, row, *_, last = ask(data, "list", "--limit", "3").splitlines()
    assert head.split() == ["ID", "STATE", "ATTEMPTS", "LOST", "AGE", "ENDPOINT", "LAST", "ERROR"]
    assert row.split()[:4] == [str(first), "exhausted", "4", "1"]
    assert row.endswith("HTTP 500")
    assert last.startswith("There are more")
    text = ask(data, "summary")
    assert [line.split()[0] for line in text.splitlines()] == ["PENDING", "1", "1"]
    objects = [json.loads(line) for line in ask(data, "summary", "--json").splitlines()]
    facts = [(row["endpoint"], row["pending"], row["exhausted"], row["lost"]) for row in objects]
    assert facts == [("http://a/", 1, 1, 1), ("http://b/", 1, 1, 1)]


def test_show_tells_everything(served: tuple[Path, str]) -> None:
    data, dsn = served
    first, *_ = fill(dsn)
    text = ask(data, "show", str(first))
    assert '"Type" : "SubscriptionConfirmation"' in text
    assert ORDERS in text
    facts = json.loads(ask(data, "show", str(first), "--json"))
    assert facts["last_error"] == "HTTP 500"
    assert facts["subscription_arn"].startswith(ORDERS + ":")
    missing = call("deliveries", "show", "999999999", "--data", str(data))
    assert missing.returncode == 1
    assert "there is no delivery 999999999" in missing.stderr


def test_redrive_and_delete(served: tuple[Path, str]) -> None:
    data, dsn = served
    first, second, _, fourth = fill(dsn)
    assert ask(data, "redrive", "--all", "--topic", ORDERS) == "1 delivery redriven.\n"
    facts = json.loads(ask(data, "show", str(first), "--json"))
    assert (facts["state"], facts["attempt_count"], facts["lost_count"]) == ("pending", 0, 0)
    some = call("deliveries", "redrive", str(second), str(fourth), "--data", str(data))
    assert (some.returncode, some.stdout) == (1, "1 delivery redriven.\n")

    fill(dsn)
    assert ask(data, "delete", "--all", "--yes") == "2 deliveries deleted.\n"
    assert asyncio.run(count(dsn, "pending")) == 2
    ids = fill(dsn)
    assert ask(data, "delete", str(ids[1]), "--yes") == "1 delivery deleted.\n"
    assert listed(data) == [ids[0], ids[2], ids[3]]


@pytest.mark.parametrize(("answer", "code", "left"), [("yes\n", 0, 0), ("y\n", 1, 2), ("", 1, 2)])
def test_delete_asks_first(served: tuple[Path, str], answer: str, code: int, left: int) -> None:
    data, dsn = served
    fill(dsn)
    done = subprocess.run(
        [sys.executable, "-m", "queuegate", "deliveries", "delete", "--all", "--data", str(data)],
        env=environment(),
        input=answer,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert done.stdout.startswith("Delete all exhausted deliveries permanently? Type yes: ")
    assert asyncio.run(count(dsn, "exhausted")) == left


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("redrive",), 2, "one of the arguments --all ID is required"),
        (("redrive", "--all", "7"), 2, "not allowed with"),
        (("show", "x"), 2, "not a whole number"),
        (("show", "0"), 2, "not a whole number"),
        (("list", "--limit", "-1"), 2, "not a whole number"),
        (("list", "--topic", "orders"), 1, "not the ARN of a topic"),
        (("list", "--data", "/nowhere"), 1, "there is no data in /nowhere"),
        ((), 2, "required: action"),
    ],
)
def test_mistakes_are_explained(
    served: tuple[Path, str], arguments: tuple[str, ...], code: int, text: str
) -> None:
    data, _ = served
    more = () if "--data" in arguments or not arguments else ("--data", str(data))
    done = call("deliveries", *arguments, *more)
    assert done.returncode == code
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_a_database_without_our_tables_is_refused(served: tuple[Path, str]) -> None:
    _, dsn = served
    early = call("deliveries", "list", DATABASE_URL=dsn.replace("/postgres?", "/template1?"))
    assert early.returncode == 1
    assert "queuegate migrate" in early.stderr


def test_a_stopped_gateway_leaves_its_data_to_look_at(used_data: Path) -> None:
    """A gateway with its PostgreSQL, and commands that start that PostgreSQL again."""
    with Gateway("--data", str(used_data), QUEUE_HTTP_DELIVERY_ENABLED="false") as gateway:
        fill(dsn_of(used_data))
        gateway.stop(signal.SIGTERM)
    assert len(listed(used_data, command=run)) == 4
    assert ask(used_data, "redrive", "--all", command=run) == "2 deliveries redriven.\n"


@pytest.mark.parametrize(("content", "text"), [(None, "cannot be read"), ("x", "no certificate")])
def test_certificates_that_cannot_be_used_are_refused_at_start(
    tmp_path: Path, content: str | None, text: str
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    done = run("doctor", QUEUEGATE_WEBHOOK_CA_FILE=str(file))
    assert done.returncode == 2
    assert f"QUEUEGATE_WEBHOOK_CA_FILE='{file}': " in done.stderr
    assert text in done.stderr


def test_passwords_of_endpoints_are_not_shown(served: tuple[Path, str]) -> None:
    data, dsn = served
    [number] = asyncio.run(add(dsn, ("orders", "http://me:secret@a/", "exhausted")))
    for command in ("list", "summary"):
        for form in ((), ("--json",)):
            told = ask(data, command, *form)
            assert "http://me:****@a/" in told
            assert "secret" not in told
    told = ask(data, "show", str(number))
    assert "http://me:****@a/" in told
    assert "secret" not in told

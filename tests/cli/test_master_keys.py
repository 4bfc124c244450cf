"""Secrets of access keys go over to another master key while gateways serve."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from tests import databases
from tests.cli.calling import call
from tests.cli.processes import environment
from tests.faces.signing import MASTER_KEY, Signer, Verifying
from tests.waiting import until_async

NEXT = "ab" * 32
BOTH = f"{MASTER_KEY}\n{NEXT}\n"
GATE = 77
"""The advisory lock at which the secrets wait, encrypted anew, before they are committed."""


@pytest.fixture
def dsn() -> Iterator[str]:
    made = databases.of_this_process().copy()
    yield made
    databases.of_this_process().drop(made)


def moved(dsn: str, keys: str) -> subprocess.CompletedProcess[str]:
    return call("keys", "rotate-master", DATABASE_URL=dsn, QUEUEGATE_MASTER_KEY=keys)


def starts(folder: Path, dsn: str, keys: str) -> bool:
    try:
        with Verifying(folder, dsn=dsn, QUEUEGATE_MASTER_KEY=keys) as gateway:
            return works(gateway.first)
    except AssertionError:
        return False


def works(signer: Signer) -> bool:
    return signer.sqs("ListQueues").status == 200


def test_no_gateway_fails_while_secrets_go_over(tmp_path: Path, dsn: str) -> None:
    """Also where the command is killed between its statement and its commit. Seconds are those of
    five starts."""
    with Verifying(tmp_path, dsn=dsn, QUEUEGATE_MASTER_KEY=BOTH) as gateway:
        one = gateway.signer("111122223333")
        asyncio.run(killed_in_between(dsn))
        assert works(one)
        assert starts(tmp_path, dsn, MASTER_KEY)
        assert not starts(tmp_path, dsn, NEXT)
        done = moved(dsn, BOTH)
        assert done.stdout.startswith("2 of 2 access keys were encrypted again.")
        assert moved(dsn, BOTH).stdout.startswith("0 of 2 ")
        assert works(one)
        more = gateway.keys("create", "more", "--access")
        assert more.startswith("AWS_ACCESS_KEY_ID=")
    assert not starts(tmp_path, dsn, MASTER_KEY)
    assert starts(tmp_path, dsn, NEXT)


async def killed_in_between(dsn: str) -> None:
    keeper = await asyncpg.connect(dsn)
    await keeper.execute(
        "CREATE FUNCTION wait_at_gate() RETURNS trigger LANGUAGE plpgsql AS $$"
        f" BEGIN PERFORM pg_advisory_xact_lock_shared({GATE}); RETURN NULL; END $$;"
        " CREATE TRIGGER gate AFTER UPDATE OF secret ON keys"
        " FOR EACH STATEMENT EXECUTE FUNCTION wait_at_gate();"
        f" SELECT pg_advisory_lock({GATE})"
    )
    command = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "queuegate", "keys", "rotate-master"),
        env=environment(DATABASE_URL=dsn, QUEUEGATE_MASTER_KEY=BOTH),
    )

    async def there(condition: str) -> int:
        found: int = await keeper.fetchval(
            "SELECT count(*)::int FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
            f" WHERE d.datname = current_database() AND {condition}"
        )
        return found

    at_gate = f"l.locktype = 'advisory' AND l.objid = {GATE} AND NOT l.granted"
    await until_async(lambda: there(at_gate), lambda count: count == 1)
    command.kill()
    await command.wait()
    await keeper.execute("SELECT pg_advisory_unlock_all()")
    holds = "l.locktype = 'relation' AND l.mode = 'ExclusiveLock'"
    await until_async(lambda: there(holds), lambda count: count == 0)
    await keeper.execute("DROP TRIGGER gate ON keys; DROP FUNCTION wait_at_gate()")
    await keeper.close()


def test_what_it_needs(dsn: str) -> None:
    made = call("keys", "create", "a", "--access", DATABASE_URL=dsn, QUEUEGATE_MASTER_KEY=NEXT)
    assert made.returncode == 0
    for keys, text in (
        (NEXT, "no second master key"),
        (f"{MASTER_KEY} {'cd' * 32}", "neither of these"),
        (f"{BOTH}{NEXT}", "QUEUEGATE_MASTER_KEY"),
    ):
        done = moved(dsn, keys)
        assert (done.returncode in (1, 2), text in done.stderr, done.stdout) == (True, True, "")
        assert NEXT not in done.stderr

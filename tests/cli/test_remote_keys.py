"""`queuegate keys` and `quotas` beside a gateway whose data is ephemeral."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.calling import call
from tests.cli.processes import Gateway
from tests.faces.signing import Verifying

ACCOUNT = "111122223333"


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with Gateway("--ephemeral", QUEUEGATE_LOG_LEVEL="error") as running:
        yield running


def ask(gateway: Gateway, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command, which must succeed."""
    done = call(*arguments, "--url", gateway.url)
    assert done.returncode == 0, done.stderr
    return done


def test_a_key_from_its_making_to_its_end(gateway: Gateway, tmp_path: Path) -> None:
    """The gateway has no database that another process could name."""
    assert ask(gateway, "keys", "list", "--account", ACCOUNT).stdout == "No keys.\n"
    made = ask(gateway, "keys", "create", "shop", "--account", ACCOUNT, "--rate", "100/m")
    assert made.stdout.startswith("qg_")
    assert made.stderr.endswith(f"\nGateway: {gateway.url}\n")
    number = made.stdout.split("_")[1]
    policy = tmp_path / "policy.json"
    statement = {"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}
    policy.write_text(json.dumps({"Version": "2012-10-17", "Statement": [statement]}))
    who = ("--key", made.stdout.strip())
    assert "shop  100/60s" in ask(gateway, "keys", "list", *who).stdout
    for arguments, told in [
        (["policy", number, "--set", str(policy)], f"Key {number} may do what its policy says.\n"),
        (["policy", number, "--remove"], f"Key {number} may do all in its account.\n"),
        (["disable", number], "1 key disabled.\n"),
        (["enable", number], "1 key enabled.\n"),
        (["delete", number], "1 key deleted.\n"),
    ]:
        assert ask(gateway, "keys", *arguments, "--account", ACCOUNT).stdout == told
    assert ask(gateway, "keys", "list", "--account", ACCOUNT).stdout == "No keys.\n"
    assert "REVOKED" in ask(gateway, "keys", "list", "--account", ACCOUNT, "--all").stdout


def test_quotas(gateway: Gateway) -> None:
    done = ask(gateway, "quotas", "set", ACCOUNT, "--requests", "500/s", "--queues", "any")
    assert done.stdout == f"The quota of {ACCOUNT} is set.\n"
    assert done.stderr == f"Gateway: {gateway.url}\n"
    row = ask(gateway, "quotas", "list").stdout.splitlines()[1].split()
    assert row == [ACCOUNT, "500/1s", "any", "-", "-", "-", "-"]
    assert ask(gateway, "quotas", "remove", ACCOUNT).stdout == "1 quota removed.\n"
    assert call("quotas", "remove", ACCOUNT, "--url", gateway.url).returncode == 1


def test_a_gateway_is_found_by_its_settings(gateway: Gateway) -> None:
    """Ephemeral data is never in the directory that is the default."""
    done = call("quotas", "list", QUEUEGATE_EPHEMERAL="1", QUEUEGATE_PORT=gateway.port)
    assert (done.returncode, done.stdout) == (
        0,
        "No quotas: the settings apply to all accounts and keys.\n",
    )


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("keys", "rotate-master"), "name the database"),
        (("keys", "list", "--data", "/tmp/x"), "leave --data and --database-url out"),
        (("keys", "create", "no spaces"), "`name`"),
        (("keys", "disable", "999"), "999"),
    ],
)
def test_what_is_refused_is_one_line(
    gateway: Gateway, arguments: tuple[str, ...], reason: str
) -> None:
    done = call(*arguments, "--url", gateway.url)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert reason in done.stderr


def test_an_administrator_signs_where_signatures_are_verified(tmp_path: Path) -> None:
    """With the key of the environment, as AWS's tools do; another key signs nothing."""
    with Verifying(tmp_path) as gateway:
        first = {
            "AWS_ACCESS_KEY_ID": gateway.first.access_key,
            "AWS_SECRET_ACCESS_KEY": gateway.first.secret,
        }
        for arguments, told in [
            (("keys", "create", "a key", "--account", ACCOUNT), "`name`"),
            (("keys", "create", "shop", "--access", "--account", ACCOUNT), "AWS_ACCESS_KEY_ID="),
            (("keys", "list", "--account", ACCOUNT), "shop"),
            (("keys", "disable", "2"), "1 key disabled"),
            (("quotas", "set", ACCOUNT, "--requests", "500/s"), "is set"),
            (("quotas", "list"), "500/1s"),
            (("pause", "queue", "none there"), "none there"),
            (("log", "list"), "no logs"),
        ]:
            done = call(*arguments, "--url", gateway.url, **first)
            assert told in done.stdout + done.stderr, done
        for more in (
            {},
            first | {"AWS_SECRET_ACCESS_KEY": "wrong"},
            {"AWS_ACCESS_KEY_ID": "AKIA1"},
        ):
            done = call("quotas", "list", "--url", gateway.url, **more)
            assert (done.returncode, done.stderr.count("\n")) == (1, 1)
            assert "signature" in done.stderr

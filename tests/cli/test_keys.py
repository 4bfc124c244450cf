"""`queuegate keys`, beside a running gateway."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.cli.calling import call
from tests.faces.connections import Answer, Connection, request_bytes
from tests.faces.servers import Server
from tests.waiting import until

ACCOUNT = "111122223333"


@pytest.fixture(scope="module")
def gateway() -> Iterator[Server]:
    with Server() as running:
        yield running


def keys(gateway: Server, *arguments: str) -> subprocess.CompletedProcess[str]:
    return call("keys", *arguments, DATABASE_URL=gateway.dsn)


def queues(gateway: Server, key: str) -> Answer:
    with Connection(gateway.url) as connection:
        headers = {"Host": connection.host, "Authorization": f"Bearer {key}"}
        connection.send(request_bytes("GET", "/v1/queues", headers))
        return connection.answer()


def test_a_key_from_its_making_to_its_end(gateway: Server) -> None:
    assert keys(gateway, "list", "--account", ACCOUNT).stdout == "No keys.\n"
    made = keys(gateway, "create", "shop", "--account", ACCOUNT, "--rate", "100/m")
    key = made.stdout.strip()
    number = key.split("_")[1]
    assert made.returncode == 0
    told, place = made.stderr.splitlines()
    assert told == f"This is key {number} of account {ACCOUNT}. Its secret is shown only once."
    assert place.endswith("/" + gateway.dsn.split("?")[0].rpartition("/")[2])
    until(lambda: queues(gateway, key).status, lambda status: status == 200)
    heads, row = keys(gateway, "list", "--account", ACCOUNT).stdout.splitlines()
    assert heads.split() == ["ID", "ACCOUNT", "NAME", "RATE", "CREATED", "EXPIRES", "REVOKED"]
    assert row.split()[:4] == [number, ACCOUNT, "shop", "100/60s"]
    assert keys(gateway, "revoke", number).stdout == "1 key revoked.\n"
    until(lambda: queues(gateway, key).status, lambda status: status == 403)
    assert keys(gateway, "list", "--account", ACCOUNT).stdout == "No keys.\n"
    assert key not in keys(gateway, "list", "--all", "--json").stdout


def test_as_json(gateway: Server) -> None:
    made = json.loads(keys(gateway, "create", "json", "--expires", "2190-01-01", "--json").stdout)
    assert made["key"].startswith(f"qg_{made['id']}_")
    assert made["expires_at"] == "2190-01-01T00:00:00+00:00"
    assert made["account_id"] == "000000000000"
    shown = {name: value for name, value in made.items() if name != "key"}
    listed = keys(gateway, "list", "--account", "000000000000", "--json").stdout
    # Other tests make keys of this account, too.
    assert shown in [json.loads(line) for line in listed.splitlines()]
    revoked = json.loads(keys(gateway, "revoke", str(made["id"]), "--json").stdout)
    assert revoked["revoked_at"] is not None


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("create", "a b"), "A key cannot be called 'a b'."),
        (("create", "x", "--rate", "fast"), "'fast' is not a rate: it is requests/time"),
        (("create", "x", "--rate", "1/90000s"), "'1/90000s' is not a rate: up to"),
        (("create", "x", "--expires", "soon"), "'soon' is not an instant"),
        (("create", "x", "--expires", "2001-01-01"), "expired already"),
        (("create", "x", "--account", "me"), "'me' is not an account: it has 12 digits"),
        (("revoke", "9999999"), "there is no key 9999999"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    gateway: Server, arguments: tuple[str, ...], text: str
) -> None:
    refused = keys(gateway, *arguments)
    assert refused.returncode == 1
    assert refused.stderr.startswith("queuegate: ")
    assert text in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_two_of_one_name(gateway: Server) -> None:
    assert keys(gateway, "create", "twice").returncode == 0
    refused = keys(gateway, "create", "twice")
    assert (refused.returncode, "'twice'" in refused.stderr) == (1, True)


def test_numbers_of_keys_are_numbers(gateway: Server) -> None:
    assert keys(gateway, "revoke", "qg_1").returncode == 2

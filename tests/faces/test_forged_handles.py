"""Receipt handles that nobody gave out, and those that were given out before there was a secret."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from queuegate.storage.database import Database
from tests.cli.processes import Gateway
from tests.faces.clients import Sqs, new_account
from tests.faces.handles import fields_of, impossible, old_handle

KINDS = ["standard", "fifo"]
HOUR = 3600
ACTIONS: dict[str, Callable[[str], dict[str, Any]]] = {
    "DeleteMessage": lambda handle: {"ReceiptHandle": handle},
    "ChangeMessageVisibility": lambda handle: {"ReceiptHandle": handle, "VisibilityTimeout": 7},
    "DeleteMessageBatch": lambda handle: {"Entries": [{"Id": "a", "ReceiptHandle": handle}]},
    "ChangeMessageVisibilityBatch": lambda handle: {
        "Entries": [{"Id": "a", "ReceiptHandle": handle, "VisibilityTimeout": 7}]
    },
}


class Leased:
    """A queue with two messages, of which the first was received."""

    def __init__(self, sqs: Sqs, kind: str) -> None:
        self.sqs = sqs
        self.url = sqs.create_fifo() if kind == "fifo" else sqs.create()
        self.handles: list[str] = []
        for number in "12":
            more = {"MessageGroupId": number} if kind == "fifo" else {}
            sqs.send(self.url, number, **more)
        self.receive()

    def receive(self) -> str:
        [message] = self.sqs.receive(self.url, 1, VisibilityTimeout=43_200)
        self.handles.append(message["ReceiptHandle"])
        return self.handles[-1]

    def assert_refused(self, action: str, handle: str) -> None:
        """404 on its own, a failed entry of a batch; nothing has changed."""
        members = {"QueueUrl": self.url, **ACTIONS[action](handle)}
        before = self.sqs.counts(self.url)
        if action.endswith("Batch"):
            answer = self.sqs.call(action, **members)
            assert [entry["Code"] for entry in answer["Failed"]] == ["ReceiptHandleIsInvalid"]
            assert not answer.get("Successful")
        else:
            refused = self.sqs.refusal(action, **members)
            assert (refused.status, refused.code) == (404, "ReceiptHandleIsInvalid")
        assert self.sqs.counts(self.url) == before


@pytest.fixture(params=KINDS)
def leased(request: pytest.FixtureRequest, sqs: Sqs) -> Leased:
    return Leased(sqs, request.param)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_handle_with_values_that_no_message_has(leased: Leased, action: str) -> None:
    for fields in impossible(fields_of(leased.handles[0])):
        leased.assert_refused(action, old_handle(fields))


@pytest.mark.parametrize("action", ACTIONS)
def test_a_handle_that_was_computed_for_a_message(leased: Leased, action: str) -> None:
    leased.assert_refused(action, old_handle(fields_of(leased.handles[0])))


def test_a_message_that_nobody_received_cannot_be_deleted_by_its_number(sqs: Sqs) -> None:
    leased = Leased(sqs, "standard")
    fields = fields_of(leased.handles[0])
    for sequence in range(fields.sequence + 1, fields.sequence + 50):
        leased.assert_refused("DeleteMessage", old_handle(fields._replace(sequence=sequence)))
    [message] = sqs.receive(leased.url)
    assert message["Body"] == "2"


def test_a_tag_holds_for_its_handle_alone(leased: Leased) -> None:
    """Neither the other message's tag nor any other field: each bit of a handle counts."""
    first, second = leased.handles[0], leased.receive()
    middle = len(first) // 2
    for mixed in (first[:middle] + second[middle:], second[:middle] + first[middle:]):
        if mixed not in leased.handles:
            leased.assert_refused("DeleteMessage", mixed)


# Upgrades: queues that are there before the secret.


class Upgraded:
    """A database with queues of gateways that knew no secret, and what became of it since."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.account = new_account()

    def gateway(self) -> Gateway:
        return Gateway(DATABASE_URL=self.database.dsn)

    def client(self, gateway: Gateway) -> Sqs:
        return Sqs("json", gateway.url, self.account)

    async def forget_secret(self) -> None:
        async with self.database.transaction() as tx:
            await tx.execute("DELETE FROM settings WHERE setting_name = 'receipt_secret'")

    async def let_pass(self, hours: int) -> None:
        """So long ago was the upgrade."""
        async with self.database.transaction() as tx:
            await tx.execute(
                "UPDATE settings SET value = jsonb_set(value, '{made_at}', to_jsonb("
                " (value ->> 'made_at')::bigint - $1::int))"
                " WHERE setting_name = 'receipt_secret'",
                hours * HOUR,
            )


@pytest.fixture
async def upgraded(database: Database) -> Upgraded:
    """The queues are there, with a message in each; the secret comes with the next gateway."""
    upgraded = Upgraded(database)
    with upgraded.gateway() as gateway, upgraded.client(gateway) as sqs:
        for kind in KINDS:
            Leased(sqs, kind)
    await upgraded.forget_secret()
    return upgraded


def _urls(sqs: Sqs) -> list[str]:
    urls: list[str] = sqs.call("ListQueues")["QueueUrls"]
    assert len(urls) == len(KINDS)
    return urls


async def test_the_first_hour_gives_out_handles_that_older_gateways_read(
    upgraded: Upgraded,
) -> None:
    with upgraded.gateway() as gateway, upgraded.client(gateway) as sqs:
        for url in _urls(sqs):
            [message] = sqs.receive(url)
            handle = message["ReceiptHandle"]
            assert old_handle(fields_of(handle)) == handle
            sqs.delete(url, message)
            assert sqs.counts(url) == (0, 1, 0)


async def test_old_handles_hold_for_twelve_hours_more_than_they_are_given_out(
    upgraded: Upgraded,
) -> None:
    """Three starts of a gateway."""
    handles: dict[str, str] = {}
    with upgraded.gateway() as gateway, upgraded.client(gateway) as sqs:
        for url in _urls(sqs):
            handles[url] = sqs.receive(url)[0]["ReceiptHandle"]
            sqs.send(url, "3", **({"MessageGroupId": "3"} if ".fifo" in url else {}))
    await upgraded.let_pass(2)
    with upgraded.gateway() as gateway, upgraded.client(gateway) as sqs:
        for url in _urls(sqs):
            [message] = sqs.receive(url)
            new = message["ReceiptHandle"]
            assert old_handle(fields_of(new)) != new
            path = url.rpartition("/")[2]
            [old] = [handle for known, handle in handles.items() if known.endswith(path)]
            sqs.call("DeleteMessage", QueueUrl=url, ReceiptHandle=old)
            assert sqs.counts(url) == (0, 2, 0)
            # What they say is looked at even while anybody can make them.
            for fields in impossible(fields_of(old)):
                refused = sqs.refusal(
                    "DeleteMessage", QueueUrl=url, ReceiptHandle=old_handle(fields)
                )
                assert (refused.status, refused.code) == (404, "ReceiptHandleIsInvalid")
    await upgraded.let_pass(11)
    with upgraded.gateway() as gateway, upgraded.client(gateway) as sqs:
        for url in _urls(sqs):
            sqs.send(url, "4", **({"MessageGroupId": "4"} if ".fifo" in url else {}))
            [message] = sqs.receive(url)
            old = old_handle(fields_of(message["ReceiptHandle"]))
            refused = sqs.refusal("DeleteMessage", QueueUrl=url, ReceiptHandle=old)
            assert refused.code == "ReceiptHandleIsInvalid"
            sqs.delete(url, message)


async def test_processes_and_restarts_share_one_secret(database: Database) -> None:
    account = new_account()
    settings = {"DATABASE_URL": database.dsn}
    with (
        Gateway(**settings) as one,
        Gateway(**settings) as other,
        Sqs("json", one.url, account) as here,
        Sqs("json", other.url, account) as there,
    ):
        url = here.create()
        for body in "12":
            here.send(url, body)
        message, later = here.receive(url)
        there.delete(url, message)
    with Gateway(**settings) as one, Sqs("json", one.url, account) as here:
        here.delete(here.create(), later)
        assert here.counts(here.create()) == (0, 0, 0)
    async with database.transaction() as tx:
        stored = await tx.fetchval("SELECT value FROM settings WHERE value ? 'secret'")
    assert len(json.loads(stored)["secret"]) == 64

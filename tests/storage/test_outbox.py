"""The outbox: written in order, read in pages, cleared by filter."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from queuegate.storage.database import Database
from queuegate.storage.model import NewOutboxMessage
from queuegate.storage.topics import stored_outbox
from queuegate.storage.topics.stored_outbox import OutboxFilter, OutboxPage

NOON = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
ACCOUNT = "111122223333"
OTHER = "444455556666"
MANY_BYTES = 1 << 30
EVERYTHING = OutboxFilter(ACCOUNT)


def make_message(body: str = "body", **changes: str | None) -> NewOutboxMessage:
    message = NewOutboxMessage(
        account_id=ACCOUNT,
        region="eu-west-1",
        protocol="sms",
        destination="+15550100",
        kind="Notification",
        topic_arn=None,
        subscription_arn=None,
        message_id=str(uuid4()),
        subject=None,
        body=body,
        attributes=None,
    )
    return message._replace(**changes)  # type: ignore[arg-type]


async def test_messages_are_written_in_order(database: Database) -> None:
    rows = [make_message(str(number), subject=None if number % 2 else "s") for number in range(50)]
    async with database.transaction() as tx:
        await stored_outbox.insert(tx, NOON, rows)
        await stored_outbox.insert(tx, None, [])
        found = await tx.fetch("SELECT body, subject, created_at FROM outbox ORDER BY outbox_id")
    assert [row["body"] for row in found] == [str(number) for number in range(50)]
    assert [row["subject"] for row in found[:2]] == ["s", None]
    assert found[0]["created_at"] == NOON


async def write(database: Database, *rows: NewOutboxMessage) -> None:
    async with database.transaction() as tx:
        await stored_outbox.insert(tx, NOON, list(rows))


async def look(
    database: Database,
    wanted: OutboxFilter = EVERYTHING,
    *,
    after_id: int = 0,
    limit: int = 100,
    most_bytes: int = MANY_BYTES,
) -> OutboxPage:
    async with database.transaction() as tx:
        return await stored_outbox.page(
            tx, wanted, after_id=after_id, limit=limit, most_bytes=most_bytes
        )


def bodies(page: OutboxPage) -> list[str]:
    return [message.written.body for message in page.messages]


async def test_page_of_large_messages_is_short_but_never_empty(database: Database) -> None:
    await write(database, *(make_message(letter * 100) for letter in "abc"))
    page = await look(database, most_bytes=200)
    assert ([body[0] for body in bodies(page)], page.is_last) == (["a", "b"], False)
    page = await look(database, most_bytes=1)
    assert ([body[0] for body in bodies(page)], page.is_last) == (["a"], False)
    page = await look(database, most_bytes=300)
    assert (len(page.messages), page.is_last) == (3, True)
    page = await look(database, most_bytes=300, limit=2)
    assert (len(page.messages), page.is_last) == (2, False)


async def test_attributes_are_part_of_the_size(database: Database) -> None:
    attributes = json.dumps({"a": "x" * 100})
    await write(database, *(make_message(letter, attributes=attributes) for letter in "abc"))
    page = await look(database, most_bytes=250)
    assert (bodies(page), page.is_last) == (["a", "b"], False)


FILTERS = {
    "region": "us-east-1",
    "protocol": "email",
    "destination": "a@example.com",
    "topic_arn": "arn:aws:sns:us-east-1:111122223333:news",
    "kind": "VerificationCode",
}


@pytest.mark.parametrize("name", FILTERS)
async def test_each_filter_chooses(database: Database, name: str) -> None:
    await write(database, make_message("a"), make_message("b", **{name: FILTERS[name]}))
    wanted = OutboxFilter(ACCOUNT)._replace(**{name: FILTERS[name]})
    assert bodies(await look(database, wanted)) == ["b"]
    async with database.transaction() as tx:
        last_id = await stored_outbox.last_id(tx, ACCOUNT)
        deleted, _ = await stored_outbox.clear(tx, wanted, after_id=0, last_id=last_id, limit=10)
    assert deleted == 1
    assert bodies(await look(database)) == ["a"]


async def test_clearing_goes_on_where_it_stopped(database: Database) -> None:
    await write(database, *(make_message(str(number)) for number in range(5)))
    await write(database, make_message("not ours", account_id=OTHER))
    wanted = OutboxFilter(ACCOUNT)
    async with database.transaction() as tx:
        last_id = await stored_outbox.last_id(tx, ACCOUNT)
    await write(database, make_message("later"))
    steps = []
    after_id: int | None = 0
    while after_id is not None:
        async with database.transaction() as tx:
            deleted, after_id = await stored_outbox.clear(
                tx, wanted, after_id=after_id, last_id=last_id, limit=2
            )
        steps.append(deleted)
    assert steps == [2, 2, 1, 0]
    assert bodies(await look(database)) == ["later"]
    assert bodies(await look(database, OutboxFilter(OTHER))) == ["not ours"]


async def test_an_account_without_messages_has_no_last_id(database: Database) -> None:
    async with database.transaction() as tx:
        assert await stored_outbox.last_id(tx, ACCOUNT) == 0
        assert await stored_outbox.find(tx, ACCOUNT, 1) is None

"""`queuegate deliveries`: what is pending or exhausted, shown, redriven and deleted."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from queuegate.gateway.command.stored import (
    Refused,
    note_change,
    opened,
    plain,
    print_lines,
    print_table,
    with_database,
)
from queuegate.gateway.configuration.settings import Settings
from queuegate.protocol import arns
from queuegate.protocol.endpoint_urls import without_password
from queuegate.protocol.malformed import Malformed
from queuegate.storage.database import Database
from queuegate.storage.deliveries import delivery_inspection
from queuegate.storage.deliveries.delivery_inspection import (
    Delivery,
    EndpointSummary,
    Filter,
    TopicName,
)

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

_PER_TRANSACTION = 1_000


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Do what was asked; 0, or 1 when it could not be done."""
    return with_database(settings, lambda dsn: _act(dsn, options))


async def _act(dsn: str, options: argparse.Namespace) -> int:
    topic = _topic(getattr(options, "topic", None))
    async with opened(dsn, "deliveries", None if topic is None else topic[0]) as (database, now):
        if options.action == "list":
            return await _list(database, now, topic, options)
        if options.action == "summary":
            return await _summarise(database, now, topic, options)
        if options.action == "show":
            return await _show(database, options)
        if options.action == "redrive":
            return await _redrive(database, now, topic, options)
        return await _delete(database, topic, options)


def _topic(arn: str | None) -> TopicName | None:
    if arn is None:
        return None
    try:
        found = arns.parse_topic(arn)
    except Malformed:
        raise Refused(
            f"{arn!r} is not the ARN of a topic, such as arn:aws:sns:us-east-1:000000000000:orders"
        ) from None
    return found.account_id, found.region, found.resource


async def _list(
    database: Database,
    now: datetime | None,
    topic: TopicName | None,
    options: argparse.Namespace,
) -> int:
    state = "exhausted" if options.exhausted else "pending" if options.pending else None
    wanted = Filter(state, options.stuck, topic, options.endpoint)
    async with database.transaction() as tx:
        found = await delivery_inspection.list_some(tx, now, wanted, limit=options.limit + 1)
    shown = found[: options.limit]
    if options.json:
        print_lines(_as_object(delivery) for delivery in shown)
        return 0
    if not shown:
        kind = "stuck" if options.stuck else state
        print(f"No {kind} deliveries." if kind else "No deliveries.")
        return 0
    heads = ("ID", "STATE", "ATTEMPTS", "LOST", "AGE", "ENDPOINT", "LAST ERROR")
    present = now or datetime.now(UTC)
    print_table(heads, [_cells(delivery, present) for delivery in shown])
    if len(found) > options.limit:
        print(f"There are more: --limit shows them, `summary` counts them ({options.limit} shown).")
    return 0


def _cells(delivery: Delivery, present: datetime) -> tuple[str, ...]:
    return (
        str(delivery.delivery_id),
        "in flight" if delivery.is_leased else delivery.state,
        str(delivery.attempt_count),
        str(delivery.lost_count),
        _span((present - delivery.created_at).total_seconds()),
        without_password(delivery.endpoint),
        delivery.last_error or "",
    )


async def _summarise(
    database: Database,
    now: datetime | None,
    topic: TopicName | None,
    options: argparse.Namespace,
) -> int:
    async with database.transaction() as tx:
        found = await delivery_inspection.summarise(tx, now, topic, limit=options.limit)
    if options.json:
        print_lines(
            row._replace(endpoint=without_password(row.endpoint))._asdict() for row in found
        )
    elif not found:
        print("No deliveries are pending or exhausted.")
    else:
        heads = ("PENDING", "OLDEST", "EXHAUSTED", "LOST", "ENDPOINT", "LAST ERROR")
        print_table(heads, [_summary_cells(row) for row in found])
    return 0


def _summary_cells(row: EndpointSummary) -> tuple[str, ...]:
    oldest = _span(row.oldest_pending_seconds) if row.pending else "-"
    numbers = (str(row.pending), oldest, str(row.exhausted), str(row.lost))
    return (*numbers, without_password(row.endpoint), row.last_error or "")


async def _show(database: Database, options: argparse.Namespace) -> int:
    async with database.transaction() as tx:
        delivery = await delivery_inspection.find(tx, options.id)
    if delivery is None:
        raise Refused(f"there is no delivery {options.id}: it may have been made meanwhile")
    facts = _as_object(delivery)
    if options.json:
        print_lines([facts])
        return 0
    body = facts.pop("body")
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name:{width}}  {'-' if value is None else plain(str(value))}")
    print(f"\n{body}")
    return 0


async def _redrive(
    database: Database,
    now: datetime | None,
    topic: TopicName | None,
    options: argparse.Namespace,
) -> int:
    ids = None if options.all else options.ids

    async def some(tx: Transaction, after: int) -> list[int]:
        return await delivery_inspection.redrive(
            tx, now, ids, after=after, topic=topic, limit=_PER_TRANSACTION
        )

    return _told("redriven", await _all(database, some), options)


async def _delete(database: Database, topic: TopicName | None, options: argparse.Namespace) -> int:
    ids = None if options.all else options.ids
    if not options.yes and not _agreed(options):
        print("Nothing was deleted.")
        return 1

    async def some(tx: Transaction, after: int) -> list[int]:
        return await delivery_inspection.delete_some(
            tx, ids, after=after, topic=topic, limit=_PER_TRANSACTION
        )

    return _told("deleted", await _all(database, some), options)


async def _all(database: Database, some: Callable[[Transaction, int], Awaitable[list[int]]]) -> int:
    """How many there were, some in each transaction."""
    count = after = 0
    while True:
        async with database.transaction() as tx:
            found = await some(tx, after)
        count += len(found)
        if len(found) < _PER_TRANSACTION:
            return count
        after = found[-1]


def _agreed(options: argparse.Namespace) -> bool:
    what = "all exhausted deliveries" if options.all else f"{len(options.ids)} deliveries"
    where = f" of {options.topic}" if options.topic else ""
    print(f"Delete {what}{where} for good? Type yes: ", end="", flush=True)
    return sys.stdin.readline().strip() == "yes"


def _told(done: str, count: int, options: argparse.Namespace) -> int:
    """Say how many; 1 when some of those that were named are missing."""
    note_change(f"deliveries {options.action}", None, f"{count} of {options.topic or 'all topics'}")
    print(f"{count} {'delivery' if count == 1 else 'deliveries'} {done}.")
    if not options.all and count < len(set(options.ids)):
        state = " exhausted and" if done == "redriven" else ""
        print(f"queuegate: the others are not{state} here, or of another topic", file=sys.stderr)
        return 1
    return 0


def _as_object(delivery: Delivery) -> dict[str, Any]:
    facts = delivery._replace(endpoint=without_password(delivery.endpoint))._asdict()
    account_id, region = facts.pop("account_id"), facts.pop("region")
    topic_arn = arns.topic_arn(region, account_id, facts.pop("topic_name"))
    facts["topic_arn"] = topic_arn
    facts["subscription_arn"] = arns.subscription_arn(topic_arn, facts.pop("subscription_id"))
    body = facts.pop("body")
    if body is not None:
        facts["body"] = body
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in facts.items()
    }


def _span(seconds: float) -> str:
    whole = max(0, int(seconds))
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if whole >= 2 * size:
            return f"{whole // size}{unit}"
    return f"{whole}s"

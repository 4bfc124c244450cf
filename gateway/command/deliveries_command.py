"""`queuegate deliveries`: list, show, redrive and delete deliveries to web hooks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from queuegate.gateway.command.command_line import (
    CommandRefused,
    actions_of,
    add_database,
    add_json,
    add_limit,
    add_options,
    print_facts,
    print_lines,
    print_table,
    span,
    whole_number,
)
from queuegate.gateway.command.database_session import note_change, opened, with_database
from queuegate.gateway.configuration.settings import Settings
from queuegate.protocol import arns
from queuegate.protocol.malformed import Malformed
from queuegate.protocol.urls import without_password

if TYPE_CHECKING:
    from queuegate.storage.database import Database, Transaction
    from queuegate.storage.topics.web_hook_deliveries import (
        EndpointSummary,
        StoredDelivery,
        TopicName,
    )


_DESCRIPTION = """\
List deliveries to web hooks, and redrive exhausted ones. The command works with or without a
running gateway. A delivery is pending until its web hook accepts it. After the last attempt the
delivery moves to the dead-letter queue of its subscription. Without such a queue it is exhausted.

examples:
  queuegate deliveries summary
  queuegate deliveries list --stuck
  queuegate deliveries show 4711
  queuegate deliveries redrive --all --topic arn:aws:sns:us-east-1:000000000000:orders
  queuegate deliveries delete 4711 4712
"""

_LIST = """\
List deliveries, the oldest first. A pending delivery is stuck if an attempt failed or has an
unknown outcome, or if its first attempt is a minute late.
"""
_SHOW = "Show all attributes of one delivery, and its body."
_SUMMARISE = """\
Print a line for each endpoint: pending deliveries, the age of the oldest, exhausted deliveries and
lost attempts. A lost attempt has no known outcome and was repeated: the endpoint may have received
the message twice.
"""
_REDRIVE = "Redrive exhausted deliveries: they start at once, with their first attempt."
_DELETE = """\
Delete deliveries permanently. --all deletes exhausted deliveries only; an ID deletes a delivery in
any state.
"""


_STATES = """\
--pending    list only pending deliveries
--exhausted  list only exhausted deliveries
--stuck      list only stuck deliveries
"""
_CHOICE = """\
--all         all exhausted deliveries
[ids] ID ...  only these deliveries
"""
_TOPIC = "--topic ARN  only deliveries of this topic"


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the actions of `queuegate deliveries`."""
    command.description = _DESCRIPTION
    add = actions_of(command, add_database)
    listing = add("list", "list deliveries", _LIST)
    add_options(listing.add_mutually_exclusive_group(), _STATES)
    add_options(listing, _TOPIC)
    add_options(listing, "--endpoint URL  list only deliveries to this URL")
    summary = add("summary", "count deliveries by endpoint", _SUMMARISE)
    add_options(summary, _TOPIC)
    for action in (listing, summary):
        add_limit(action)
        add_json(action)
    show = add("show", "show one delivery", _SHOW)
    add_options(show, "id ID  as `list` shows it\n--json  print a JSON object", id=whole_number)
    redrive = add("redrive", "redrive exhausted deliveries", _REDRIVE)
    delete = add("delete", "delete deliveries permanently", _DELETE)
    for action in (redrive, delete):
        which = action.add_mutually_exclusive_group(required=True)
        add_options(which, _CHOICE, ids=whole_number)
        add_options(action, _TOPIC)
    add_options(delete, "--yes  do not ask for confirmation")


_PER_TRANSACTION = 1_000


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Run the action; return 0, or 1 if it was refused."""
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
        raise CommandRefused(
            f"{arn!r} is not the ARN of a topic, such as arn:aws:sns:us-east-1:000000000000:orders"
        ) from None
    return found.account_id, found.region, found.resource


async def _list(
    database: Database, now: datetime | None, topic: TopicName | None, options: argparse.Namespace
) -> int:
    from queuegate.storage.topics import web_hook_deliveries

    state = "exhausted" if options.exhausted else "pending" if options.pending else None
    wanted = web_hook_deliveries.DeliveryFilter(state, options.stuck, topic, options.endpoint)
    async with database.transaction() as tx:
        found = await web_hook_deliveries.list_some(tx, now, wanted, limit=options.limit + 1)
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
        print(f"There are more: raise --limit, or use `summary` ({options.limit} shown).")
    return 0


def _cells(delivery: StoredDelivery, present: datetime) -> tuple[str, ...]:
    return (
        str(delivery.delivery_id),
        "in flight" if delivery.is_leased else delivery.state,
        str(delivery.attempt_count),
        str(delivery.lost_count),
        span((present - delivery.created_at).total_seconds()),
        without_password(delivery.endpoint),
        delivery.last_error or "",
    )


async def _summarise(
    database: Database, now: datetime | None, topic: TopicName | None, options: argparse.Namespace
) -> int:
    from queuegate.storage.topics import web_hook_deliveries

    async with database.transaction() as tx:
        found = await web_hook_deliveries.summarise(tx, now, topic, limit=options.limit)
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
    oldest = span(row.oldest_pending_seconds) if row.pending else "-"
    numbers = (str(row.pending), oldest, str(row.exhausted), str(row.lost))
    return (*numbers, without_password(row.endpoint), row.last_error or "")


async def _show(database: Database, options: argparse.Namespace) -> int:
    from queuegate.storage.topics import web_hook_deliveries

    async with database.transaction() as tx:
        delivery = await web_hook_deliveries.find_delivery(tx, options.id)
    if delivery is None:
        raise CommandRefused(f"there is no delivery {options.id}: it may be complete")
    facts = _as_object(delivery)
    if options.json:
        print_lines([facts])
        return 0
    body = facts.pop("body")
    print_facts({name: "-" if value is None else str(value) for name, value in facts.items()})
    print(f"\n{body}")
    return 0


async def _redrive(
    database: Database, now: datetime | None, topic: TopicName | None, options: argparse.Namespace
) -> int:
    from queuegate.storage.topics import web_hook_deliveries

    ids = None if options.all else options.ids

    async def some(tx: Transaction, after: int) -> list[int]:
        return await web_hook_deliveries.redrive(
            tx, now, ids, after=after, topic=topic, limit=_PER_TRANSACTION
        )

    return _report("redriven", await _all(database, some), options)


async def _delete(database: Database, topic: TopicName | None, options: argparse.Namespace) -> int:
    from queuegate.storage.topics import web_hook_deliveries

    ids = None if options.all else options.ids
    if not options.yes and not _agreed(options):
        print("Nothing was deleted.")
        return 1

    async def some(tx: Transaction, after: int) -> list[int]:
        return await web_hook_deliveries.delete_some(
            tx, ids, after=after, topic=topic, limit=_PER_TRANSACTION
        )

    return _report("deleted", await _all(database, some), options)


async def _all(database: Database, some: Callable[[Transaction, int], Awaitable[list[int]]]) -> int:
    """Apply ``some`` until nothing is left, in bounded transactions; return the count."""
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
    print(f"Delete {what}{where} permanently? Type yes: ", end="", flush=True)
    return sys.stdin.readline().strip() == "yes"


def _report(done: str, count: int, options: argparse.Namespace) -> int:
    """Audit and print the count; return 1 if a given ID was not found."""
    note_change(f"deliveries {options.action}", None, f"{count} of {options.topic or 'all topics'}")
    print(f"{count} {'delivery' if count == 1 else 'deliveries'} {done}.")
    if not options.all and count < len(set(options.ids)):
        state = " exhausted and" if done == "redriven" else ""
        print(
            f"queuegate: the other IDs are not{state} here, or belong to another topic",
            file=sys.stderr,
        )
        return 1
    return 0


def _as_object(delivery: StoredDelivery) -> dict[str, Any]:
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

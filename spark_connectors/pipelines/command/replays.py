"""replay"""

from __future__ import annotations

import argparse

from spark_connectors.pipelines.command import arguments
from spark_connectors.pipelines.command.archives import format_of
from spark_connectors.pipelines.command.sessions import spark_session
from spark_connectors.pipelines.telling import Summary, Teller


def add_replay_command(parser: argparse.ArgumentParser) -> None:
    """Arguments of replay."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--archive", metavar="DIR", help="the archive to send from")
    source.add_argument("--parquet", metavar="DIR", help="or any Parquet with an archive's columns")
    parser.add_argument(
        "--to",
        required=True,
        metavar="URL|NAME|ARN|log:NAME",
        help="a queue, the ARN of a topic, or a log",
    )
    parser.add_argument(
        "--since",
        type=arguments.instant,
        metavar="TIME",
        help="sent at or after: 2026-11-21, 2026-11-21T10:30:00Z (UTC), or an age such as 6h",
    )
    parser.add_argument("--until", type=arguments.instant, metavar="TIME", help="sent before")
    parser.add_argument(
        "--group", action="append", default=[], metavar="ID", help="message group, may be repeated"
    )
    parser.add_argument("--where", metavar="SQL", help="condition over the columns")
    parser.add_argument("--limit", type=arguments.positive, metavar="N", help="the first N of them")
    parser.add_argument(
        "--rate",
        type=arguments.positive,
        metavar="N",
        help="messages a second (one task sends)",
    )
    parser.add_argument(
        "--replay-id",
        metavar="ID",
        help="of a run to go on with: what it sent is not sent again (default: a new one)",
    )
    parser.add_argument(
        "--ledger",
        type=arguments.place,
        metavar="DIR",
        help="where it is written what was sent (default: replays/ID in the archive)",
    )
    parser.add_argument(
        "--chunk",
        type=arguments.positive,
        default=500,
        metavar="N",
        help="messages between two writes of the ledger; so many for each task may be sent twice "
        "after a crash (default: 500)",
    )
    parser.add_argument("--dry-run", action="store_true", help="count only")
    arguments.add_environment(parser)


def run_replay(args: argparse.Namespace, teller: Teller) -> Summary:
    """An archive to a queue, topic or log."""
    from spark_connectors.pipelines.archiving.reading import read_archive
    from spark_connectors.pipelines.replaying.replay import (
        ReplayPlan,
        ledger_in,
        new_replay_id,
        replay,
    )
    from spark_connectors.pipelines.replaying.selection import Selection

    replay_id = args.replay_id or new_replay_id()
    if args.ledger is None and args.archive is None:
        raise arguments.BadUsage("--parquet needs --ledger DIR, where it is written what was sent")
    plan = ReplayPlan(
        to=args.to,
        options=arguments.options_of(args),
        ledger=args.ledger or ledger_in(args.archive, replay_id),
        replay_id=replay_id,
        selection=Selection(args.since, args.until, tuple(args.group), args.where, args.limit),
        rate=args.rate,
        chunk=args.chunk,
    )
    teller.say(f"replay id {replay_id}")
    is_delta = args.archive is not None and format_of(args.archive) == "delta"
    with spark_session(args, delta=is_delta) as spark:
        if args.archive:
            rows = read_archive(spark, args.archive)
        else:
            rows = spark.read.parquet(args.parquet)
        return replay(rows, plan, teller, dry_run=args.dry_run)

"""archive"""

from __future__ import annotations

import argparse

from spark_connectors.pipelines.command import arguments
from spark_connectors.pipelines.command.sessions import spark_session
from spark_connectors.pipelines.telling import Summary, Teller


def add_archive_command(parser: argparse.ArgumentParser) -> None:
    """Arguments of archive."""
    arguments.add_queue(parser, "the queue to archive, or the log")
    parser.add_argument(
        "--archive",
        required=True,
        metavar="DIR",
        help="the archive: a local directory or s3a://...",
    )
    parser.add_argument(
        "--format",
        choices=("delta", "parquet"),
        help="delta, or parquet, whose small files nothing compacts (default: the archive's, of a "
        "new one delta)",
    )
    parser.add_argument(
        "--spool",
        type=arguments.place,
        metavar="DIR",
        help="the source's spoolPath (default: in DIR)",
    )
    parser.add_argument(
        "--continuous",
        action="store_true",
        help="go on until interrupted; otherwise it ends when the queue is empty",
    )
    parser.add_argument(
        "--trigger",
        type=arguments.seconds,
        default=10.0,
        metavar="TIME",
        help="with --continuous: how often a batch is written (default: 10s)",
    )
    arguments.add_environment(parser)


def run_archive(args: argparse.Namespace, teller: Teller) -> Summary:
    """A queue or a log into an archive."""
    from spark_connectors.pipelines.archiving.archive import ArchivePlan, archive

    given = args.format or format_of(args.archive) or "delta"
    plan = ArchivePlan(
        options={**arguments.options_of(args), **arguments.queue_option(args.queue)},
        format=given,
        spool=args.spool,
        trigger=f"{args.trigger:g} seconds" if args.continuous else None,
    )
    with spark_session(args, delta=given == "delta") as spark:
        summary = archive(spark, args.archive, plan, teller)
    if summary.is_interrupted and not args.continuous:
        for line in summary.lines():
            teller.say(line)
        raise KeyboardInterrupt
    return summary


def format_of(archive: str) -> str | None:
    """Of an archive that there is: delta or parquet."""
    from spark_connectors.pipelines.archiving.places import ArchivePlace, about

    found = about(ArchivePlace(archive))
    return None if found is None else found.format

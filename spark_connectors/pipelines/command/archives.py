"""archive and compact."""

from __future__ import annotations

import argparse

from spark_connectors.pipelines.command import arguments
from spark_connectors.pipelines.command.sessions import spark_session
from spark_connectors.pipelines.telling import Summary, Teller


def add_archive_command(parser: argparse.ArgumentParser) -> None:
    """Arguments of archive."""
    arguments.add_queue(parser, "the queue to archive")
    arguments.add_archive(parser)
    parser.add_argument(
        "--format", choices=("parquet", "delta"), default="parquet", help="default: parquet"
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
    """A queue into an archive."""
    from spark_connectors.pipelines.archiving.archive import ArchivePlan, archive

    plan = ArchivePlan(
        options={**arguments.options_of(args), **arguments.queue_option(args.queue)},
        format=args.format,
        spool=args.spool,
        trigger=f"{args.trigger:g} seconds" if args.continuous else None,
    )
    with spark_session(args, delta=args.format == "delta") as spark:
        summary = archive(spark, args.archive, plan, teller)
    if summary.is_interrupted and not args.continuous:
        for line in summary.lines():
            teller.say(line)
        raise KeyboardInterrupt
    return summary


def add_compact_command(parser: argparse.ArgumentParser) -> None:
    """Arguments of compact."""
    arguments.add_archive(parser)
    parser.add_argument(
        "--before",
        type=arguments.day,
        metavar="DATE",
        help="only days before this one (default: today, in UTC)",
    )
    parser.add_argument(
        "--target-mib",
        type=arguments.positive,
        default=128,
        metavar="N",
        help="size of a compacted file (default: 128)",
    )
    parser.add_argument(
        "--vacuum",
        action="store_true",
        help="remove files that were replaced by a compaction, instead of compacting",
    )
    parser.add_argument(
        "--older-than",
        type=arguments.seconds,
        default=86_400.0,
        metavar="AGE",
        help="with --vacuum: only if that was this long ago, longer than any reader takes "
        "(default: 24h)",
    )
    arguments.add_environment(parser, has_service=False)


def run_compact(args: argparse.Namespace, teller: Teller) -> Summary:
    """Small files into few, or replaced ones removed."""
    from spark_connectors.pipelines.archiving import delta
    from spark_connectors.pipelines.archiving.compact import CompactPlan, compact, vacuum
    from spark_connectors.pipelines.archiving.places import ArchivePlace, about

    found = about(ArchivePlace(args.archive))
    if found is not None and found.format == "delta":
        with spark_session(args, delta=True) as spark:
            age = args.older_than if args.vacuum else None
            return delta.maintain(spark, args.archive, age)
    if args.vacuum:
        return vacuum(args.archive, args.older_than)
    plan = CompactPlan(before=args.before, target_bytes=args.target_mib << 20)
    with spark_session(args) as spark:
        return compact(spark, args.archive, plan, teller)

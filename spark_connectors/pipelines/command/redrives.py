"""redrive"""

from __future__ import annotations

import argparse
from contextlib import closing

from spark_connectors.options.connecting import QueuePlace
from spark_connectors.pipelines.command import arguments
from spark_connectors.pipelines.command.sessions import spark_session
from spark_connectors.pipelines.telling import Summary, Teller
from spark_connectors.transport.aws import Transport, open_transport


def add_redrive_command(parser: argparse.ArgumentParser) -> None:
    """Arguments of redrive."""
    arguments.add_queue(parser, "the dead-letter queue")
    parser.add_argument(
        "--yes", action="store_true", help="do it; without, it is only counted what would be moved"
    )
    which = parser.add_argument_group(
        "which messages", "Either --all, or those for which everything given holds."
    )
    which.add_argument(
        "--all", action="store_true", help="all, moved by the service (StartMessageMoveTask)"
    )
    which.add_argument(
        "--error-class",
        metavar="TEXT",
        help="as dlq-report shows it; a * at its end stands for anything",
    )
    arguments.add_groups(which)
    which.add_argument("--source", metavar="NAME|ARN", help="the queue that gave it up")
    which.add_argument(
        "--older-than",
        type=arguments.seconds,
        metavar="AGE",
        help="first sent at least this long ago: 90s, 15m, 6h, 2d",
    )
    arguments.add_where(which, " (starts Spark)")
    which.add_argument("--limit", type=arguments.positive, metavar="N", help="at most N")
    arguments.add_classifier(parser)
    parser.add_argument(
        "--destination",
        metavar="URL|NAME",
        help="one queue for all, instead of the queue that each came from",
    )
    arguments.add_rate(parser)
    parser.add_argument(
        "--visibility",
        type=arguments.seconds,
        default=300.0,
        metavar="TIME",
        help="how long a message that is held stays invisible if this dies (default: 5m)",
    )
    arguments.add_environment(parser)


def run_redrive(args: argparse.Namespace, teller: Teller) -> Summary:
    """Dead letters back to their queues."""
    from spark_connectors.pipelines.redriving.conditions import sql_condition
    from spark_connectors.pipelines.redriving.filters import Filters
    from spark_connectors.pipelines.redriving.move_task import MovePlan, move_all
    from spark_connectors.pipelines.redriving.redrive import RedrivePlan, redrive

    filters = Filters(
        error_class=args.error_class,
        classifier=arguments.classifier_of(args),
        groups=tuple(args.group),
        source=args.source,
        older_than_seconds=args.older_than,
    )
    is_filtered = not filters.are_none or args.where is not None or args.limit is not None
    if args.all == is_filtered:
        raise arguments.BadUsage("say which: --all, or at least one of the filters, and not both")
    with closing(open_transport(arguments.connection_from(args))) as transport:
        url = _url(args.queue, transport)
        destination = _url(args.destination, transport) if args.destination else None
        if args.all:
            return move_all(transport, MovePlan(url, args.yes, destination, args.rate), teller)
        plan = RedrivePlan(
            queue_url=url,
            filters=filters,
            apply=args.yes,
            destination=destination,
            limit=args.limit,
            rate=args.rate,
            visibility_seconds=max(1, int(args.visibility)),
        )
        if args.where is None:
            return redrive(transport, plan, teller)
        with spark_session(args) as spark:
            name = url.rstrip("/").rpartition("/")[2]
            condition = sql_condition(spark, args.where, name)
            plan = plan._replace(filters=filters._replace(condition=condition))
            return redrive(transport, plan, teller)


def _url(queue: str, transport: Transport) -> str:
    given = {"queueUrl": None, "queueName": None, "queueOwnerAWSAccountId": None}
    return QueuePlace({**given, **arguments.queue_option(queue)}).url(transport)

"""dlq-report"""

from __future__ import annotations

import argparse

from spark_connectors.pipelines.command import arguments
from spark_connectors.pipelines.command.sessions import spark_session
from spark_connectors.pipelines.telling import Summary, Teller


def add_dead_letter_command(parser: argparse.ArgumentParser) -> None:
    """Arguments of dlq-report."""
    source = parser.add_mutually_exclusive_group(required=True)
    arguments.add_queue(source, "the dead-letter queue, or log", required=False)
    source.add_argument("--parquet", metavar="DIR", help="or rows of one that were saved")
    arguments.add_classifier(parser)
    parser.add_argument(
        "--top", type=arguments.positive, default=25, metavar="N", help="rows of a table"
    )
    parser.add_argument(
        "--samples", type=int, default=3, metavar="N", help="bodies of each class (default: 3)"
    )
    arguments.add_environment(parser)


def run_dead_letters(args: argparse.Namespace, teller: Teller) -> Summary:
    """What is in a dead-letter queue; it stays there."""
    from spark_connectors.pipelines.reports.dead_letters import DeadLetterPlan, report_dead_letters

    plan = DeadLetterPlan(arguments.classifier_of(args), args.top, max(0, args.samples))
    with spark_session(args) as spark:
        if args.parquet:
            rows = spark.read.parquet(args.parquet)
        else:
            options = {**arguments.options_of(args), **arguments.queue_option(args.queue)}
            if is_log := "subscribe" in options:
                options["includeHeaders"] = "true"
            rows = spark.read.format("queuegate-log" if is_log else "sqs").options(**options).load()
        return report_dead_letters(rows, plan, teller)

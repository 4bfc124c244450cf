"""Arguments that several commands have, and what their texts mean."""

from __future__ import annotations

import argparse
import datetime
import os
import re
import time
from typing import TYPE_CHECKING

from spark_connectors.errors import ConnectorError
from spark_connectors.options.connecting import CONNECTING, connection_of
from spark_connectors.options.declaring import read_options
from spark_connectors.pipelines.redriving.filters import duration
from spark_connectors.pipelines.reports.error_classes import Classifier
from spark_connectors.transport.aws import Connection

if TYPE_CHECKING:
    # A parser, or a group in it.
    Arguments = argparse.ArgumentParser | argparse._ArgumentGroup

_MICROS = 1_000_000
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_CONNECTION = (
    ("endpointUrl", "URL", "where the service is (default: as botocore finds it, then AWS)"),
    ("region", "NAME", "region to sign for"),
    ("profile", "NAME", "profile of the AWS configuration files"),
    ("roleArn", "ARN", "role to assume"),
    ("transport", "KIND", "auto, lean or boto3"),
)


class BadUsage(ConnectorError):
    """Arguments that do not go together."""


def add_environment(
    parser: argparse.ArgumentParser, *, has_service: bool = True, has_page: bool = False
) -> None:
    """What every command has: the service, unless it needs none, Spark, and the result."""
    if has_service:
        _add_service(parser)
    _add_spark(parser)
    _add_result(parser, has_page=has_page)


def _add_service(parser: argparse.ArgumentParser) -> None:
    """Where the service is, and options of the source or sink that have no argument."""
    group = parser.add_argument_group("service")
    for name, metavar, meaning in _CONNECTION:
        flag = "--" + "".join(f"-{one.lower()}" if one.isupper() else one for one in name)
        group.add_argument(flag, metavar=metavar, dest=name, help=meaning)
    group.add_argument(
        "--option",
        action="append",
        default=[],
        type=_assignment,
        metavar="NAME=VALUE",
        help="an option of the connector, such as maxOffsetsPerTrigger=50000; may be repeated",
    )


def _add_spark(parser: argparse.ArgumentParser) -> None:
    """The Spark session."""
    group = parser.add_argument_group("Spark")
    group.add_argument("--master", help="master (default: spark-submit's, else local[*])")
    group.add_argument(
        "--conf",
        action="append",
        default=[],
        type=_assignment,
        metavar="NAME=VALUE",
        help="a setting of Spark, may be repeated",
    )


def _add_result(parser: argparse.ArgumentParser, *, has_page: bool) -> None:
    """Where the result goes beside standard output."""
    group = parser.add_argument_group("result")
    group.add_argument(
        "--json",
        type=output,
        metavar="FILE",
        help="write it as JSON too; - writes it to standard output instead of text",
    )
    if has_page:
        group.add_argument(
            "--html",
            type=output,
            metavar="FILE",
            help="write it as one HTML file with charts",
        )
    group.add_argument("--quiet", action="store_true", help="no progress on standard error")


def add_archive(parser: argparse.ArgumentParser) -> None:
    """Which archive."""
    parser.add_argument(
        "--archive",
        required=True,
        metavar="DIR",
        help="the archive: a local directory or s3a://...",
    )


def add_archive_or_parquet(parser: argparse.ArgumentParser, archive: str) -> None:
    """Where rows come from; ``archive``: what the archive is for."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--archive", metavar="DIR", help=archive)
    source.add_argument("--parquet", metavar="DIR", help="or any Parquet with an archive's columns")


def add_queue(to: Arguments, queue: str, *, required: bool = True) -> None:
    """Which queue; ``queue``: what it is for."""
    to.add_argument("--queue", required=required, metavar="URL|NAME", help=queue)


def add_groups(to: Arguments) -> None:
    """Of which message groups."""
    to.add_argument(
        "--group", action="append", default=[], metavar="ID", help="message group, may be repeated"
    )


def add_where(to: Arguments, remark: str = "") -> None:
    """For which rows."""
    to.add_argument("--where", metavar="SQL", help=f"condition over the columns{remark}")


def add_rate(to: Arguments, remark: str = "") -> None:
    """How fast to send."""
    to.add_argument("--rate", type=positive, metavar="N", help=f"messages a second{remark}")


def add_time_span(parser: argparse.ArgumentParser) -> None:
    """Messages sent within a time."""
    parser.add_argument(
        "--since",
        type=instant,
        metavar="TIME",
        help="sent at or after: 2026-11-21, 2026-11-21T10:30:00Z (UTC), or an age such as 6h",
    )
    parser.add_argument("--until", type=instant, metavar="TIME", help="sent before")


def add_classifier(parser: argparse.ArgumentParser) -> None:
    """How errors are told apart."""
    parser.add_argument(
        "--error-attribute",
        action="append",
        default=[],
        metavar="NAME",
        help="message attribute that says what went wrong; may be repeated, the first that a "
        "message has counts (default: names such as ErrorCode, errorType, exception)",
    )
    parser.add_argument(
        "--error-json-path",
        metavar="PATH",
        help="where in a JSON body that is, such as $.error.code, if no attribute says it; "
        "otherwise the shape of the body is taken",
    )


def classifier_of(args: argparse.Namespace) -> Classifier:
    """Raises BadPath."""
    return Classifier(tuple(args.error_attribute), args.error_json_path).check()


def options_of(args: argparse.Namespace) -> dict[str, str]:
    """The connector's options among the arguments."""
    named = {name: getattr(args, name) for name, _, _ in _CONNECTION}
    return {**{name: value for name, value in named.items() if value}, **dict(args.option)}


def connection_from(args: argparse.Namespace) -> Connection:
    """For a command that calls the service itself. Raises BadOption."""
    return connection_of(read_options(CONNECTING, options_of(args)))


def queue_option(queue: str) -> dict[str, str]:
    """A queue by URL or by name."""
    return {"queueUrl" if "://" in queue else "queueName": queue}


def instant(text: str) -> int:
    """Microseconds since the epoch."""
    try:
        return int((time.time() - duration(text)) * _MICROS)
    except ValueError:
        pass
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{text}' is neither a time such as 2026-11-21T10:30:00Z nor an age such as 6h"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return int(moment.timestamp() * _MICROS)


def seconds(text: str) -> float:
    """A duration."""
    try:
        return duration(text)
    except ValueError as bad:
        raise argparse.ArgumentTypeError(str(bad)) from None


def place(text: str) -> str:
    """A directory of this machine, made absolute as an archive's is, or a URL."""
    return text if _SCHEME.match(text) else os.path.abspath(text)


def positive(text: str) -> int:
    """A whole number above 0."""
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number above 0")
    return int(text)


def day(text: str) -> datetime.date:
    """A date."""
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no date such as 2026-11-21") from None


def output(text: str) -> str:
    """A file that can be written when the work is done: found out before it begins."""
    directory = os.path.dirname(text) or "."
    if not os.path.isdir(directory) or os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"'{text}' cannot be a file: is {directory} a directory?")
    return text


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=VALUE")
    return name, value

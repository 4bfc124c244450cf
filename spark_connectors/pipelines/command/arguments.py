"""Arguments that several commands have, and what their texts mean."""

from __future__ import annotations

import argparse
import datetime
import os
import re
import time
from typing import TYPE_CHECKING

from spark_connectors.errors import ConnectorError
from spark_connectors.pipelines.reports.error_classes import Classifier

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


def add_environment(parser: argparse.ArgumentParser) -> None:
    """What every command has: where the service is, with options of the source or sink that have no
    argument, Spark's session, and where the result goes."""
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
    group = parser.add_argument_group("result")
    group.add_argument(
        "--json",
        type=output,
        metavar="FILE",
        help="write it as JSON too; - writes it to standard output instead of text",
    )
    group.add_argument("--quiet", action="store_true", help="no progress on standard error")


def add_queue(to: Arguments, queue: str, *, required: bool = True) -> None:
    """Which queue; ``queue``: what it is for."""
    to.add_argument("--queue", required=required, metavar="URL|NAME|log:NAME", help=queue)


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


def queue_option(queue: str) -> dict[str, str]:
    """A queue by URL or by name, or a log."""
    from spark_connectors.pipelines.logs import log_of

    if (log := log_of(queue)) is not None:
        return {"subscribe": log}
    return {"queueUrl" if "://" in queue else "queueName": queue}


def instant(text: str) -> int:
    """Microseconds since the epoch."""
    try:
        return int((time.time() - _duration(text)) * _MICROS)
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
        return _duration(text)
    except ValueError as bad:
        raise argparse.ArgumentTypeError(str(bad)) from None


def _duration(text: str) -> float:
    """Seconds of ``90s``, ``15m``, ``6h``, ``2d`` or a plain number. Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if match is None:
        raise ValueError(f"'{text}' is no duration such as 90s, 15m, 6h or 2d")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}[match[2]]


def place(text: str) -> str:
    """A directory of this machine, made absolute as an archive's is, or a URL."""
    return text if _SCHEME.match(text) else os.path.abspath(text)


def positive(text: str) -> int:
    """A whole number above 0."""
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number above 0")
    return int(text)


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

"""``python -m spark_connectors.pipelines``: the commands, their arguments and exit codes."""

from __future__ import annotations

import argparse
import datetime
import json
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import spark_connectors
from spark_connectors.errors import ConnectorError
from spark_connectors.options import SECONDS, number_of
from spark_connectors.pipelines import archive_replay, queue_archive
from spark_connectors.pipelines.queue_archive import SILENT, ProgressPrinter, Summary

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
_OPTIONS = """
--option NAME=VALUE... assignment | an option of the connector, such as maxOffsetsPerTrigger=50000;
  may be repeated
"""
_SESSION = """
--master MASTER | master (default: spark-submit's, else local[*])
--conf NAME=VALUE... assignment | a setting of Spark, may be repeated
"""
_RESULT = """
--json FILE output | write it as JSON too; - writes it to standard output instead of text
--quiet | no progress on standard error
"""


class BadUsage(ConnectorError):
    """Arguments that contradict each other."""


def add_arguments(to: Arguments, table: str) -> None:
    """Add the arguments of a table: ``--flag METAVAR kind default | help``. A flag alone is a
    switch; ``!`` marks a required flag, ``...`` one that may be repeated; a kind may be choices."""
    for line in table.strip().replace("\n  ", " ").splitlines():
        named, _, meaning = line.partition(" | ")
        flag, *rest = named.split()
        if not rest:
            to.add_argument(flag, action="store_true", help=meaning)
            continue
        metavar, kind, default = (*rest, "", "")[:3]
        to.add_argument(
            flag.rstrip("!"),
            required=flag.endswith("!"),
            metavar=metavar.rstrip("."),
            type=_KINDS.get(kind, str),
            choices=kind.split("|") if "|" in kind else None,
            action="append" if metavar.endswith("...") else "store",
            default=[] if metavar.endswith("...") else default or None,
            help=meaning,
        )


def add_command(parser: argparse.ArgumentParser, table: str, *, either: str = "") -> None:
    """Add the arguments of a command, one of which is required in ``either``, and those of every
    command: service, further options of the source or sink, Spark's session, and the output of the
    result."""
    if either:
        add_arguments(parser.add_mutually_exclusive_group(required=True), either)
    add_arguments(parser, table)
    group = parser.add_argument_group("service")
    for name, metavar, meaning in _CONNECTION:
        flag = "--" + "".join(f"-{one.lower()}" if one.isupper() else one for one in name)
        group.add_argument(flag, metavar=metavar, dest=name, help=meaning)
    add_arguments(group, _OPTIONS)
    add_arguments(parser.add_argument_group("Spark"), _SESSION)
    add_arguments(parser.add_argument_group("result"), _RESULT)


def options_of(args: argparse.Namespace) -> dict[str, str]:
    """Return the connector's options among the arguments."""
    named = {name: getattr(args, name) for name, _, _ in _CONNECTION}
    return {**{name: value for name, value in named.items() if value}, **dict(args.option)}


def queue_option(queue: str) -> dict[str, str]:
    """Return the option for a queue by URL or by name, or for a log."""
    if (log := queue_archive.log_of(queue)) is not None:
        return {"subscribe": log}
    return {"queueUrl" if "://" in queue else "queueName": queue}


def instant(text: str) -> int:
    """Parse a time or an age. Returns microseconds since the epoch."""
    if (age := number_of(text, float, SECONDS)) >= 0:
        return int((time.time() - age) * _MICROS)
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
    """Parse a duration."""
    found = number_of(text, float, SECONDS)
    if not found >= 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no duration such as 90s, 15m, 6h or 2d")
    return found


def place(text: str) -> str:
    """Return a local directory as an absolute path; URLs unchanged."""
    return text if _SCHEME.match(text) else os.path.abspath(text)


def positive(text: str) -> int:
    """Parse a whole number above 0."""
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number above 0")
    return int(text)


def output(text: str) -> str:
    """Check before the work that the file of the result can be written."""
    directory = os.path.dirname(text) or "."
    if not os.path.isdir(directory) or os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"'{text}' cannot be a file: is {directory} a directory?")
    return text


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=VALUE")
    return name, value


_KINDS: dict[str, Callable[[str], Any]] = {
    "assignment": _assignment,
    "instant": instant,
    "int": int,
    "output": output,
    "place": place,
    "positive": positive,
    "seconds": seconds,
}


@contextmanager
def spark_session(args: argparse.Namespace, *, delta: bool = False) -> Iterator[SparkSession]:
    """Yield a session with the connectors registered. Stops it at the end, if it started it. With
    ``delta`` it requests the package too; below spark-submit that is its --packages. Raises
    BadArchive if there is none for this Spark."""
    if delta:
        # Before Spark starts: with a Delta Lake of another version it would not.
        queue_archive.check_version(pyspark.__version__)
    builder = SparkSession.builder.appName(f"queuegate {args.command}")
    if args.master:
        builder = builder.master(args.master)
    # Spark's bar would overwrite the progress lines.
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    # After a kill during its very first offset, Spark 4.3 would refuse its own leftover.
    builder = builder.config("spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart", "false")
    if delta:
        builder = builder.config("spark.jars.packages", queue_archive.PACKAGE)
        for name, value in queue_archive.SETTINGS.items():
            builder = builder.config(name, value)
    for name, value in args.conf:
        builder = builder.config(name, value)
    was_there = SparkSession.getActiveSession() is not None
    spark = builder.getOrCreate()
    handler = signal.signal(signal.SIGINT, _interrupted)
    try:
        spark_connectors.register(spark)
        yield spark
    finally:
        signal.signal(signal.SIGINT, handler)
        if not was_there:
            spark.stop()


def _interrupted(signum: int, frame: FrameType | None) -> NoReturn:
    """Interrupt without PySpark's handler, which calls the JVM from within a call to it. That call
    is cut off here, and py4j would log tracebacks. The session is stopped, and its jobs with it."""
    logging.disable(logging.CRITICAL)
    raise KeyboardInterrupt


_ARCHIVING = """
--queue! URL|NAME|log:NAME | the queue to archive, or the log
--archive! DIR | the archive: a local directory or s3a://...
--format FORMAT delta|parquet | delta, or parquet, whose small files nothing compacts (default: the
  archive's, of a new one delta)
--spool DIR place | the source's spoolPath (default: in DIR)
--continuous | go on until interrupted; otherwise it ends when the queue is empty
--trigger TIME seconds 10 | with --continuous: how often a batch is written (default: 10s)
"""


def run_archive(args: argparse.Namespace, printer: ProgressPrinter) -> Summary:
    """Archive a queue or a log."""
    given = args.format or format_of(args.archive) or "delta"
    plan = queue_archive.ArchivePlan(
        options={**options_of(args), **queue_option(args.queue)},
        format=given,
        spool=args.spool,
        trigger=f"{args.trigger:g} seconds" if args.continuous else None,
    )
    with spark_session(args, delta=given == "delta") as spark:
        summary = queue_archive.archive(spark, args.archive, plan, printer)
    if summary.is_interrupted and not args.continuous:
        for line in summary.lines():
            printer.say(line)
        raise KeyboardInterrupt
    return summary


def format_of(archive: str) -> str | None:
    """Return the format of an existing archive: delta or parquet."""
    found = queue_archive.about(queue_archive.ArchivePlace(archive))
    return None if found is None else found.format


_REPLAYED = """
--archive DIR | the archive to send from
--parquet DIR | or any Parquet with an archive's columns
"""
_REPLAYING = """
--to! URL|NAME|ARN|log:NAME | a queue, the ARN of a topic, or a log
--since TIME instant | sent at or after: 2026-11-21, 2026-11-21T10:30:00Z (UTC), or an age such as
  6h
--until TIME instant | sent before
--group ID... | message group, may be repeated
--where SQL | condition over the columns
--limit N positive | the first N of them
--rate N positive | messages a second (one task sends)
--replay-id ID | of a run to go on with: what it sent is not sent again (default: a new one)
--ledger DIR place | where it is written what was sent (default: replays/ID in the archive; a log
  needs none, it knows what it has)
--chunk N positive 500 | messages between two writes of the ledger; so many for each task may be
  sent twice after a crash (default: 500)
--dry-run | count only
"""


def run_replay(args: argparse.Namespace, printer: ProgressPrinter) -> Summary:
    """Send an archive to a queue, topic or log."""
    replay_id = args.replay_id or archive_replay.new_replay_id()
    ledger = args.ledger
    if queue_archive.log_of(args.to) is not None:
        ledger = ""
    elif ledger is None and args.archive is None:
        raise BadUsage("--parquet needs --ledger DIR, where it is written what was sent")
    elif ledger is None:
        ledger = archive_replay.ledger_in(args.archive, replay_id)
    plan = archive_replay.ReplayPlan(
        to=args.to,
        options=options_of(args),
        ledger=ledger,
        replay_id=replay_id,
        selection=archive_replay.ReplaySelection(
            args.since, args.until, tuple(args.group), args.where, args.limit
        ),
        rate=args.rate,
        chunk=args.chunk,
    )
    printer.say(f"replay id {replay_id}")
    is_delta = args.archive is not None and format_of(args.archive) == "delta"
    with spark_session(args, delta=is_delta) as spark:
        if args.archive:
            rows = queue_archive.read_archive(spark, args.archive)
        else:
            rows = spark.read.parquet(args.parquet)
        return archive_replay.replay(rows, plan, printer, dry_run=args.dry_run)


_LONGEST_SENTENCE = 600
# The last line of a Python traceback that Spark passed on from one of its workers.
_OURS = re.compile(r"^(?:.*\s)?spark_connectors\.[\w.]+: (.+)$", re.MULTILINE)


class _Command(NamedTuple):
    run: Callable[[argparse.Namespace, ProgressPrinter], Summary]
    help: str
    table: str
    either: str = ""


COMMANDS = {
    "archive": _Command(
        run_archive, "a queue or log into a Delta table, or Parquet, exactly once", _ARCHIVING
    ),
    "replay": _Command(
        run_replay,
        "send an archive's messages to a queue, topic or log, each once",
        _REPLAYING,
        _REPLAYED,
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. Returns the exit code, as ``finish``."""
    args = _parser().parse_args(argv)
    return finish(args, COMMANDS[args.command].run)


def finish(
    args: argparse.Namespace, run: Callable[[argparse.Namespace, ProgressPrinter], Summary]
) -> int:
    """Run a command with its arguments. Returns 0: done; 1: failed, with a sentence on standard
    error; 2: bad usage; 130: interrupted."""
    printer = SILENT if args.quiet else ProgressPrinter(sys.stderr)
    # SIGTERM has the effect of an interrupt at the keyboard.
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        _show(run(args, printer), args)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BadUsage as bad:
        print(f"{args.command}: {bad}", file=sys.stderr)
        return 2
    except (ConnectorError, OSError) as failed:
        print(f"{args.command}: {failed}", file=sys.stderr)
        return 1
    except (PySparkException, Py4JError) as failed:
        print(f"{args.command}: {sentence(str(failed))}", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m spark_connectors.pipelines",
        description="Whole jobs around queues of SQS and logs, on Spark.",
        epilog="On a cluster: spark-submit --py-files spark_connectors.zip submit.py COMMAND ..., "
        "where submit.py is spark_connectors/pipelines/submit.py.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        described = command.help[0].upper() + command.help[1:] + "."
        parsed = commands.add_parser(name, help=command.help, description=described)
        add_command(parsed, command.table, either=command.either)
    return parser


def _show(summary: Summary, args: argparse.Namespace) -> None:
    found = None if args.json is None else json.dumps(summary.as_json(), indent=2)
    # First, so that a full disk does not lose the result.
    print(found if args.json == "-" else "\n".join(summary.lines()), flush=True)
    if found is not None and args.json != "-":
        Path(args.json).write_text(f"{found}\n", encoding="utf-8")


def sentence(text: str) -> str:
    """Return the sentence of a failure in Spark: the connectors' own if there is one, else its
    first line."""
    ours = _OURS.findall(text)
    found = ours[-1] if ours else next((line for line in text.splitlines() if line.strip()), text)
    return found if len(found) <= _LONGEST_SENTENCE else found[: _LONGEST_SENTENCE - 1] + "…"

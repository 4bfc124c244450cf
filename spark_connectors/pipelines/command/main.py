"""python -m spark_connectors.pipelines: which command, its result, and the exit code."""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from spark_connectors.errors import ConnectorError
from spark_connectors.pipelines.command import archives, replays, reporting
from spark_connectors.pipelines.command.arguments import BadUsage
from spark_connectors.pipelines.telling import SILENT, Summary, Teller, on_stderr

_PROGRAM = "python -m spark_connectors.pipelines"
_LONGEST_SENTENCE = 600
# The last line of a Python traceback that Spark carried here from one of its workers.
_OURS = re.compile(r"^(?:.*\s)?spark_connectors\.[\w.]+: (.+)$", re.MULTILINE)


class _Command(NamedTuple):
    help: str
    add: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace, Teller], Summary]


COMMANDS = {
    "archive": _Command(
        "a queue or log into a Delta table, or Parquet, exactly once",
        archives.add_archive_command,
        archives.run_archive,
    ),
    "replay": _Command(
        "send an archive's messages to a queue, topic or log, each once",
        replays.add_replay_command,
        replays.run_replay,
    ),
    "dlq-report": _Command(
        "what is in a dead-letter queue or log and why, without consuming it",
        reporting.add_dead_letter_command,
        reporting.run_dead_letters,
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command. 0: done; 1: failed, with a sentence on standard error; 2: not understood; 130:
    interrupted."""
    args = _parser().parse_args(argv)
    teller = SILENT if args.quiet else on_stderr()
    # Whoever stops a job politely gets what an interrupt at the keyboard gets.
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        _show(COMMANDS[args.command].run(args, teller), args)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BadUsage as bad:
        print(f"{args.command}: {bad}", file=sys.stderr)
        return 2
    except (ConnectorError, OSError) as failed:
        print(f"{args.command}: {failed}", file=sys.stderr)
        return 1
    except _spark_failures() as failed:
        print(f"{args.command}: {sentence(str(failed))}", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_PROGRAM,
        description="Whole jobs around queues of SQS and logs, on Spark.",
        epilog="On a cluster: spark-submit --py-files spark_connectors.zip submit.py COMMAND ..., "
        "where submit.py is spark_connectors/pipelines/submit.py.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        described = command.help[0].upper() + command.help[1:] + "."
        command.add(commands.add_parser(name, help=command.help, description=described))
    return parser


def _show(summary: Summary, args: argparse.Namespace) -> None:
    found = None if args.json is None else json.dumps(summary.as_json(), indent=2) + "\n"
    # First, so that the work of an hour is not lost to a full disk.
    sys.stdout.write(found if found is not None and args.json == "-" else _text(summary))
    sys.stdout.flush()
    if found is not None and args.json != "-":
        Path(args.json).write_text(found, encoding="utf-8")


def _text(summary: Summary) -> str:
    return "\n".join(summary.lines()) + "\n"


def _spark_failures() -> tuple[type[BaseException], ...]:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JError)


def sentence(text: str) -> str:
    """What to tell of a failure in Spark: our own words if they are in it, else its first line."""
    ours = _OURS.findall(text)
    found = ours[-1] if ours else next((line for line in text.splitlines() if line.strip()), text)
    return found if len(found) <= _LONGEST_SENTENCE else found[: _LONGEST_SENTENCE - 1] + "…"

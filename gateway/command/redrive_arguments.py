"""The arguments of `queuegate redrive`: light, for every start of the command reads them."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from uuid import UUID

from queuegate.gateway.command.actions import add_gateway, age, assignment

SUMMARY = "move dead letters back to where they came from, all or those that match"
DESCRIPTION = """\
Ask a running gateway to move dead letters back to the queues that gave them up, or to another
queue, page by page. Each page moves in one transaction: interrupted, the rest is still there, and
the same command goes on. Moved messages are new ones that nobody has received; what somebody has at
the moment stays. All that is given has to hold of a message.

examples:
  queuegate redrive orders-dead --all --dry-run
  queuegate redrive orders-dead --all --rate 100
  queuegate redrive orders-dead --attribute ErrorCode=Timeout* --older-than 15m
  queuegate redrive orders-dead --text "connection refused" --to orders-again
  queuegate redrive orders-dead --ids ids.txt
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add what `queuegate redrive` takes."""
    command.add_argument("queue", metavar="QUEUE", help="the dead-letter queue, by its name")
    which = command.add_argument_group("which messages")
    which.add_argument("--all", action="store_true", help="all of them")
    which.add_argument("--source", metavar="NAME|ARN", help="from the queue that gave them up")
    which.add_argument(
        "--group", action="append", default=[], metavar="ID", help="of this group; may be repeated"
    )
    which.add_argument(
        "--attribute",
        action="append",
        default=[],
        type=assignment,
        metavar="NAME=VALUE",
        help="with this message attribute, where a * at the end is any rest; may be repeated",
    )
    which.add_argument("--text", metavar="TEXT", help="with this somewhere in the body")
    which.add_argument(
        "--older-than", type=age, metavar="AGE", help="here for so long: 90s, 15m, 6h, 2d"
    )
    which.add_argument(
        "--min-receives", type=_count, metavar="N", help="received so often, or more often"
    )
    which.add_argument(
        "--ids",
        type=_ids,
        metavar="FILE",
        help="with the message ids in this file, one on each line; - is standard input",
    )
    which.add_argument("--limit", type=_count, metavar="N", help="at most N")
    command.add_argument("--to", metavar="QUEUE", help="one queue for all of them")
    command.add_argument("--rate", type=_count, metavar="N", help="at most N a second")
    command.add_argument("--dry-run", action="store_true", help="only count")
    add_gateway(command)
    command.add_argument("--json", action="store_true", help="the result as a JSON object")
    command.add_argument("--quiet", action="store_true", help="no progress on standard error")


def _count(text: str) -> int:
    number = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0
    if not number:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return number


def _ids(text: str) -> list[str]:
    """The ids in a file, each once."""
    try:
        found = sys.stdin.read() if text == "-" else Path(text).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    lines = found.split()
    for line in lines:
        try:
            UUID(line)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{line[:60]!r} is no message id") from None
    return list(dict.fromkeys(lines))

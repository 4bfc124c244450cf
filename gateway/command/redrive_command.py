"""`queuegate redrive`: dead letters, moved page by page by a running gateway."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

from queuegate.gateway.command.command_line import (
    CommandRefused,
    add_gateway,
    add_options,
    age,
    assignment,
    counted,
    plain,
    whole_number,
)
from queuegate.gateway.command.gateway_client import GatewayClient
from queuegate.gateway.configuration.settings import Settings
from queuegate.protocol.malformed import refusing

_DESCRIPTION = """\
Move dead letters back to their source queues, or to another queue. A running gateway moves them
page by page, each page in one transaction. After an interruption, the same command continues with
the rest. Moved messages are new messages with a receive count of 0. Messages in flight stay. If
several conditions are given, a message has to match all of them.

examples:
  queuegate redrive orders-dead --all --dry-run
  queuegate redrive orders-dead --all --rate 100
  queuegate redrive orders-dead --attribute ErrorCode=Timeout* --older-than 15m
  queuegate redrive orders-dead --text "connection refused" --to orders-again
  queuegate redrive orders-dead --ids ids.txt
"""
_WHICH = """\
--all                       all messages
--source NAME|ARN           messages that this source queue dead-lettered
--group ID ...              messages of this group; may be repeated
--attribute NAME=VALUE ...  messages with this attribute; a * at the end matches any rest; may be
                            repeated
--text TEXT                 messages with this text in the body
--older-than AGE            messages at least as old as 90s, 15m, 6h or 2d
--min-receives N            messages with at least N receives
--ids FILE                  messages with the ids in this file, one a line; - is standard input
--limit N                   at most N messages
"""
_OPTIONS = """\
--to QUEUE  destination queue (default: the source queues)
--rate N    at most N messages a second
--dry-run   count messages without moving them
"""
_QUIET = "--quiet  print no progress on standard error"
OPTIONS = f"{_WHICH}{_OPTIONS}{_QUIET}"
"""The options of `queuegate queues redrive`."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the arguments of `queuegate redrive`."""
    command.description = _DESCRIPTION
    add_options(command, "name QUEUE  name of the dead-letter queue")
    add_options(command.add_argument_group("which messages"), _WHICH, **PARSERS)
    add_options(command, _OPTIONS, **PARSERS)
    add_gateway(command)
    add_options(command, f"--json   print the result as a JSON object\n{_QUIET}")


def _ids(text: str) -> list[str]:
    """Read the distinct ids of a file."""
    with refusing(argparse.ArgumentTypeError, OSError, ValueError):
        found = sys.stdin.read() if text == "-" else Path(text).read_text(encoding="utf-8")
    lines = found.split()
    for line in lines:
        with refusing(argparse.ArgumentTypeError(f"{line[:60]!r} is no message id"), ValueError):
            UUID(line)
    return list(dict.fromkeys(lines))


PARSERS: Mapping[str, Callable[[str], object]] = {
    "attribute": assignment,
    "older_than": age,
    "min_receives": whole_number,
    "ids": _ids,
    "limit": whole_number,
    "rate": whole_number,
}
"""Parsers of options, by name."""
_PAGE_MESSAGES = 1_000
_PAGE_IDS = 1_000
_PROGRESS_SECONDS = 2.0


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Move dead letters; return the exit code."""
    return redrive(GatewayClient(settings, options, "redrive"), options)


def redrive(gateway: GatewayClient, options: argparse.Namespace) -> int:
    """Move dead letters; return 0, 1 if the gateway refuses, or 2 if the arguments are wrong."""
    selection = _selection(options)
    if bool(selection or options.limit) == options.all:
        print("queuegate: name the messages: --all, or conditions that they match", file=sys.stderr)
        return 2
    counts: Counter[str] = Counter(matched=0, moved=0, without_source=0)
    moves = _Redrive(gateway, options, counts)
    outcome = 0
    try:
        for part in _parts(selection):
            moves.move(part)
    except KeyboardInterrupt:
        outcome = 130
    except CommandRefused as refusal:
        print(f"queuegate: {plain(str(refusal))}", file=sys.stderr)
        outcome = 1
    if outcome != 1 or counts["matched"]:
        print(json.dumps(counts) if options.json else _summary(counts, options))
    return outcome


def _selection(options: argparse.Namespace) -> dict[str, Any]:
    """Return the members of the request that select messages."""
    until = None
    if options.older_than is not None:
        until = (datetime.now(UTC) - timedelta(seconds=options.older_than)).isoformat()
    given = {
        "source": options.source,
        "group_ids": options.group,
        "attributes": dict(options.attribute),
        "text": options.text,
        "sent_until": until,
        "min_receives": options.min_receives,
    }
    found = {name: value for name, value in given.items() if value}
    # A file without ids selects no message; an absent member would select all.
    return found if options.ids is None else {**found, "message_ids": options.ids}


def _parts(selection: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Split a selection into requests of at most 1,000 ids, each a pass over the queue."""
    ids = selection.get("message_ids")
    if ids is None:
        yield selection
        return
    for start in range(0, len(ids), _PAGE_IDS):
        yield {**selection, "message_ids": ids[start : start + _PAGE_IDS]}


class _Redrive:
    """Requests page after page, and counts messages."""

    def __init__(
        self, gateway: GatewayClient, options: argparse.Namespace, counts: Counter[str]
    ) -> None:
        self._gateway = gateway
        self._path = f"/v1/queues/{quote(options.name, safe='')}/redrives"
        self._options = options
        self._counts = counts
        self._began = self._printed_at = time.monotonic()

    def move(self, selection: dict[str, Any]) -> None:
        """Move all pages of a selection, up to the limit. Raises CommandRefused."""
        body = {**selection, "dry_run": self._options.dry_run}
        if self._options.to:
            body["to"] = self._options.to
        while most := self._most():
            # A retry finds nothing left of a page that was moved before its response was lost.
            found = self._gateway.call("POST", self._path, {**body, "limit": most})
            self._counts.update({name: found[name] for name in self._counts})
            if found["next"] is None:
                return
            body |= {"after": found["next"], "as_of": found["as_of"]}
            self._print_progress()
            self._pace()

    def _most(self) -> int:
        """Return the size of the next page."""
        rate: int | None = self._options.rate
        limit: int | None = self._options.limit
        left = _PAGE_MESSAGES if limit is None else limit - self._counts["matched"]
        return min(_PAGE_MESSAGES, rate or _PAGE_MESSAGES, left)

    def _print_progress(self) -> None:
        if self._options.quiet or time.monotonic() - self._printed_at < _PROGRESS_SECONDS:
            return
        self._printed_at = time.monotonic()
        print(
            f"{self._counts['matched']:,} match, {self._counts['moved']:,} moved", file=sys.stderr
        )

    def _pace(self) -> None:
        if self._options.rate:
            due = self._began + self._counts["moved"] / self._options.rate
            time.sleep(max(0.0, due - time.monotonic()))


def _summary(counts: Counter[str], options: argparse.Namespace) -> str:
    found = f"{counted(counts['matched'], 'dead letter')} found"
    if not options.dry_run:
        found += f", {counts['moved']:,} moved"
    lines = [found + "."]
    orphans = counts["without_source"]
    if orphans:
        lines.append(
            f"{orphans:,} stay: the source queue is unknown or deleted. --to names another one."
        )
    held = counts["matched"] - counts["moved"] - orphans
    if held and not options.dry_run:
        lines.append(f"{held:,} stay: they are in flight, or the destination is full.")
    return "\n".join(lines)

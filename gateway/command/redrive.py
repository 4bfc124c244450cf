"""`queuegate redrive`: pages of dead letters, moved by a running gateway one after the other."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from queuegate.gateway.command.asking import Gateway, NoAnswer, Refused
from queuegate.gateway.command.stored import plain
from queuegate.gateway.configuration.settings import Settings

_AT_ONCE = 1_000
_IDS_AT_ONCE = 1_000
_PROGRESS_SECONDS = 2.0


def run(settings: Settings, options: argparse.Namespace) -> int:
    """Do what was asked; 0, 1 when it could not be done, or 2 when it was asked wrong."""
    wanted = _wanted(options)
    if bool(wanted or options.limit) == options.all:
        print("queuegate: say which: --all, or what they have in common", file=sys.stderr)
        return 2
    counts: Counter[str] = Counter(matched=0, moved=0, without_source=0)
    redrive = _Redrive(Gateway(settings, options, "redrive"), options, counts)
    outcome = 0
    try:
        for part in _parts(wanted):
            redrive.move(part)
    except KeyboardInterrupt:
        outcome = 130
    except (NoAnswer, Refused) as refusal:
        print(f"queuegate: {plain(str(refusal))}", file=sys.stderr)
        outcome = 1
    if outcome != 1 or counts["matched"]:
        print(json.dumps(counts) if options.json else _told(counts, options))
    return outcome


def _wanted(options: argparse.Namespace) -> dict[str, Any]:
    """The members of the request that say which messages."""
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
    # A file without ids asks for no message, which is not the same as for any.
    return found if options.ids is None else {**found, "message_ids": options.ids}


def _parts(wanted: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The same in as many requests as its ids need, each a pass over the queue."""
    ids = wanted.get("message_ids")
    if ids is None:
        yield wanted
        return
    for start in range(0, len(ids), _IDS_AT_ONCE):
        yield {**wanted, "message_ids": ids[start : start + _IDS_AT_ONCE]}


class _Redrive:
    """Asks for page after page, and keeps count."""

    def __init__(self, gateway: Gateway, options: argparse.Namespace, counts: Counter[str]) -> None:
        self._gateway = gateway
        self._path = f"/v1/queues/{quote(options.queue, safe='')}/redrives"
        self._options = options
        self._counts = counts
        self._began = self._told = time.monotonic()

    def move(self, wanted: dict[str, Any]) -> None:
        """All pages of what is wanted, or as many as the limit wants. Raises NoAnswer."""
        body = {**wanted, "dry_run": self._options.dry_run}
        if self._options.to:
            body["to"] = self._options.to
        while most := self._most():
            # A page that was moved although nobody heard of it is not there any more.
            found = self._gateway.call("POST", self._path, {**body, "limit": most})
            self._counts.update({name: found[name] for name in self._counts})
            if found["next"] is None:
                return
            body |= {"after": found["next"], "as_of": found["as_of"]}
            self._tell()
            self._pace()

    def _most(self) -> int:
        """Of the next page."""
        rate: int | None = self._options.rate
        limit: int | None = self._options.limit
        left = _AT_ONCE if limit is None else limit - self._counts["matched"]
        return min(_AT_ONCE, rate or _AT_ONCE, left)

    def _tell(self) -> None:
        if self._options.quiet or time.monotonic() - self._told < _PROGRESS_SECONDS:
            return
        self._told = time.monotonic()
        print(
            f"{self._counts['matched']:,} match, {self._counts['moved']:,} moved", file=sys.stderr
        )

    def _pace(self) -> None:
        if self._options.rate:
            due = self._began + self._counts["moved"] / self._options.rate
            time.sleep(max(0.0, due - time.monotonic()))


def _told(counts: Counter[str], options: argparse.Namespace) -> str:
    found = f"{_messages(counts['matched'])} found"
    if not options.dry_run:
        found += f", {counts['moved']:,} moved"
    lines = [found + "."]
    homeless = counts["without_source"]
    if homeless:
        lines.append(
            f"{homeless:,} stay: where they came from is unknown or gone. --to names a queue."
        )
    held = counts["matched"] - counts["moved"] - homeless
    if held and not options.dry_run:
        lines.append(f"{held:,} stay: somebody has them, or there is no room where they go.")
    return "\n".join(lines)


def _messages(count: int) -> str:
    return f"{count:,} dead {'letter' if count == 1 else 'letters'}"

"""What actions of `queuegate log` share: whom they ask, and how they show what they hear."""

from __future__ import annotations

import argparse
import base64
import json
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, urlencode

from queuegate.gateway.command.asking import Gateway
from queuegate.gateway.command.stored import print_lines, print_table

_PER_PAGE = 1_000
_PLACES = ("partition", "offset", "watermark", "end")
PROGRESS_SECONDS = 1.0
"""Between two counts."""


class NotAgreed(Exception):
    """Somebody was asked, and said no."""


class Progress:
    """A count that grows on a terminal, once a second."""

    def __init__(self) -> None:
        self._told_at = time.monotonic()
        self._told = False

    def tell(self, count: int, what: str) -> None:
        if sys.stderr.isatty() and time.monotonic() - self._told_at >= PROGRESS_SECONDS:
            self._told_at = time.monotonic()
            self._told = True
            print(f"\r{count:,} {what}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._told:
            print(file=sys.stderr)
            self._told = False


class Asked:
    """What was asked, of which log, and of whom."""

    def __init__(self, gateway: Gateway, options: argparse.Namespace) -> None:
        self._gateway = gateway
        self.options = options
        self.progress = Progress()

    @property
    def log(self) -> str:
        """The log, as it was given."""
        return str(self.options.log)

    def call(
        self, method: str, *parts: object, body: object = None, **query: object
    ) -> dict[str, Any]:
        """What is answered about the log; ``parts`` of the path come after its name."""
        return self.call_all(method, self.log, *parts, body=body, **query)

    def call_all(
        self, method: str, *parts: object, body: object = None, **query: object
    ) -> dict[str, Any]:
        """What is answered below /v1/logs."""
        path = "".join(f"/{quote(str(part), safe='')}" for part in parts)
        given = {name: value for name, value in query.items() if value is not None}
        question = f"?{urlencode(given)}" if given else ""
        answer: dict[str, Any] = self._gateway.call(method, f"/v1/logs{path}{question}", body) or {}
        return answer

    def agree(self, question: str) -> None:
        """Ask before something is lost. Raises NotAgreed."""
        if self.options.yes:
            return
        try:
            answer = input(f"{question} (yes/no) ")
        except EOFError:
            print()
            answer = ""
        if answer.strip().lower() not in {"y", "yes"}:
            raise NotAgreed

    def pages(self, *parts: object) -> Iterator[dict[str, Any]]:
        """What is listed by partition."""
        after: int | None = None
        while True:
            page = self.call("GET", *parts, after=after, max=_PER_PAGE)["partitions"]
            yield from page
            if len(page) < _PER_PAGE:
                return
            after = page[-1]["partition"]

    def show(self, objects: Iterable[dict[str, Any]], columns: Iterable[str], none: str) -> None:
        """A table with these members, or all of them as JSON."""
        found = list(objects)
        if self.options.json:
            print_lines(found)
        elif not found:
            print(none)
        else:
            heads = list(columns)
            titles = [head.replace("_", " ").upper() for head in heads]
            print_table(titles, [[cell(head, one.get(head)) for head in heads] for one in found])

    def done(self, text: str, **facts: object) -> None:
        """Say what was done."""
        if self.options.json:
            print_lines([facts])
        else:
            print(text)


def cell(head: str, value: object) -> str:
    """A value in a table."""
    if value is None:
        return "-"
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float):
        return f"{value:,.1f}"
    # What names a place is given to other commands as it stands here.
    is_amount = isinstance(value, int) and head not in _PLACES
    return f"{value:,}" if is_amount else str(value)


def text_of(record: dict[str, Any]) -> str:
    """The payload for a terminal."""
    payload = str(record["payload"])
    if record.get("encoding") != "base64":
        return payload
    return base64.b64decode(payload).decode("utf-8", "backslashreplace")


def counted(count: int, what: str) -> str:
    """So many of these, in words."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"

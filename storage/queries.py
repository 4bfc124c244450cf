"""Named SQL statements, read once from the file beside their module; the account filter.

A statement starts with ``-- name: <name>`` and ``-- params: <name of $1>, <name of $2>, ...``;
prose follows as comments, then the text. A line ``-- include: <name>`` stands for the text of the
file's ``-- part: <name>``, which ends at an empty line. Every statement that needs the time takes
``now``; NULL means the clock of the database.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from importlib import resources
from typing import NamedTuple

_PART = re.compile(r"^-- part: (\w+)\n(.*?)\n\n", re.MULTILINE | re.DOTALL)
_INCLUDE = re.compile(r"^-- include: (\w+)$", re.MULTILINE)
_HEADER = re.compile(r"^-- name: (\w+)\n-- params:(.*)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Query:
    """One statement. ``params`` are the names of $1, $2, ... in order."""

    name: str
    params: tuple[str, ...]
    text: str


def load(module: str) -> dict[str, Query]:
    """Return the statements of a file by name. ``module`` is its path below ``storage/``, without
    the suffix: ``queues/standard``."""
    source = resources.files("queuegate.storage").joinpath(f"{module}.sql").read_text("utf-8")
    parts = dict(_PART.findall(source))
    source = _INCLUDE.sub(lambda found: parts[found[1]], _PART.sub("", source))
    headers = list(_HEADER.finditer(source))
    queries = {}
    for header, following in zip(headers, [*headers[1:], None], strict=True):
        text = source[header.end() : following.start() if following else len(source)]
        params = tuple(word.strip() for word in header[2].split(",") if word.strip())
        queries[header[1]] = Query(header[1], params, text.strip())
    return queries


class AccountFilter(NamedTuple):
    """Rows of these accounts, or of all but these, as the last two parameters of a statement."""

    account_ids: Collection[str] = ()
    are_chosen: bool = False


ALL_ACCOUNTS = AccountFilter()

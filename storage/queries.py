"""Named SQL statements, read once from the file beside their module; the account filter.

A statement starts with ``-- name: <name>`` and ``-- params: <name of $1>, <name of $2>, ...``;
prose follows as comments, then the text. A line ``-- include: <name>`` stands for the text of the
file's ``-- part: <name>``, which ends at an empty line; ``<file>.<name>`` is a part of another
file. Every statement that needs the time takes ``now``; NULL means the clock of the database.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    import asyncpg

    # As `storage.database.Transaction`, which imports this module.
    _Session: TypeAlias = (
        asyncpg.Connection[asyncpg.Record] | asyncpg.pool.PoolConnectionProxy[asyncpg.Record]
    )

T = TypeVar("T")

_PART = re.compile(r"^-- part: (\w+)\n(.*?)\n\n", re.MULTILINE | re.DOTALL)
_INCLUDE = re.compile(r"^-- include: (?:([\w/]+)\.)?(\w+)$", re.MULTILINE)
_HEADER = re.compile(r"^-- name: (\w+)\n-- params:(.*)\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Query:
    """One statement, and ways to run it off the hot path. ``params`` are the names of $1, $2, ...
    in order. ``make`` gets each row as a sequence."""

    name: str
    params: tuple[str, ...]
    text: str
    is_by_key: bool = False

    @property
    def by_key(self) -> Query:
        """Return the statement preceded by ``probe_by_key``: index plans until the transaction
        ends, regardless of statistics."""
        return replace(self, is_by_key=True)

    async def _prepare(self, tx: _Session) -> str:
        if self.is_by_key:
            await tx.execute(PROBE_BY_KEY)
        return self.text

    async def run(self, tx: _Session, *arguments: object) -> None:
        """Execute the statement and ignore its rows."""
        await tx.execute(await self._prepare(tx), *arguments)

    async def value(self, tx: _Session, *arguments: object) -> T:
        """Return the first column of the first row, of the type that the caller expects; None
        without a row."""
        found: T = await tx.fetchval(await self._prepare(tx), *arguments)
        return found

    async def row(self, tx: _Session, *arguments: object) -> asyncpg.Record | None:
        """Return the first row, if any."""
        return await tx.fetchrow(await self._prepare(tx), *arguments)

    async def rows(self, tx: _Session, *arguments: object) -> list[asyncpg.Record]:
        """Return all rows."""
        return await tx.fetch(await self._prepare(tx), *arguments)

    async def first(self, tx: _Session, make: Callable[[Any], T], *arguments: object) -> T | None:
        """Return the first row, made; None without a row."""
        row = await self.row(tx, *arguments)
        return None if row is None else make(row)

    async def only(self, tx: _Session, make: Callable[[Any], T], *arguments: object) -> T:
        """Return the only row, made."""
        [row] = await self.rows(tx, *arguments)
        return make(row)

    async def scan(
        self,
        make: Callable[..., T],
        tx: _Session,
        now: datetime | None,
        after: int,
        limit: int,
        *others: object,
    ) -> tuple[list[T], int | None]:
        """Examine at most ``limit`` things behind number ``after``, for sweeps. Return what was
        found, made of one element of each array, and the last number examined; None: no more.

        ``others`` end with the account filter, by default all. The only row has the last number,
        the count and the arrays.
        """
        [(last, looked_at, *arrays)] = await self.rows(
            tx, now, after, limit, *(others or ALL_ACCOUNTS)
        )
        found = [make(*values) for values in zip(*arrays, strict=True)]
        return found, last if looked_at == limit else None

    async def all(self, tx: _Session, make: Callable[[Any], T], *arguments: object) -> list[T]:
        """Return all rows, made."""
        return [make(row) for row in await self.rows(tx, *arguments)]


def load(module: str) -> dict[str, Query]:
    """Return the statements of a file by name. ``module`` is its path below ``storage/``, without
    the suffix: ``queues/standard``."""

    def included(found: re.Match[str]) -> str:
        parts = dict(_PART.findall(_source(found[1] or module)))
        return str(parts[found[2]])

    source = _INCLUDE.sub(included, _PART.sub("", _source(module)))
    headers = list(_HEADER.finditer(source))
    queries = {}
    for header, following in zip(headers, [*headers[1:], None], strict=True):
        text = source[header.end() : following.start() if following else len(source)]
        params = tuple(word.strip() for word in header[2].split(",") if word.strip())
        queries[header[1]] = Query(header[1], params, text.strip())
    return queries


@cache
def _source(module: str) -> str:
    return resources.files("queuegate.storage").joinpath(f"{module}.sql").read_text("utf-8")


PROBE_BY_KEY = load("database")["probe_by_key"].text
ALONE = load("database")["alone"].text


class AccountFilter(NamedTuple):
    """Rows of these accounts, or of all but these, as the last two parameters of a statement."""

    account_ids: Collection[str] = ()
    are_chosen: bool = False


ALL_ACCOUNTS = AccountFilter()

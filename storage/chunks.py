"""Rows in chunks: a lazy sequence need not be in memory as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

_CHUNK_BYTES = 4 << 20
_CHUNK_ROWS = 2_000

R = TypeVar("R")


def chunked(rows: Iterable[R], size_of: Callable[[R], int]) -> Iterator[list[R]]:
    """Yield the rows in order, in chunks of about 4 MB."""
    chunk: list[R] = []
    size = 0
    for row in rows:
        chunk.append(row)
        size += size_of(row)
        if size >= _CHUNK_BYTES or len(chunk) >= _CHUNK_ROWS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk

"""Arrow columns from lists of Python values that came from outside."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from spark_connectors.rows.schema import ATTRIBUTE, ATTRIBUTES, BINARY, INTEGER, TEXT

_LONGEST_NUMBER = 18  # digits that fit 64 bits whatever they are


class Attribute(NamedTuple):
    """A message attribute: a text, or bytes."""

    name: str
    data_type: str | None
    text: str | None
    binary: bytes | None


def texts(values: Sequence[str | None]) -> pa.Array:
    """A column of texts.

    Half a surrogate pair, which JSON can carry and UTF-8 cannot, becomes U+FFFD.
    """
    try:
        return pa.array(values, TEXT)
    except UnicodeEncodeError:
        return pa.array([None if v is None else _without_surrogates(v) for v in values], TEXT)


def _without_surrogates(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def numbers(values: Sequence[str | None]) -> list[int | None]:
    """The numbers that texts of digits stand for; anything else is None."""
    return [
        int(v) if v is not None and v.isdecimal() and len(v) <= _LONGEST_NUMBER else None
        for v in values
    ]


def counts(values: Sequence[str | None]) -> pa.Array:
    """A column of 32-bit integers from texts; one that does not fit is null."""
    return pa.array([n if n is None or n < 2**31 else None for n in numbers(values)], INTEGER)


def milliseconds(values: Sequence[str | None], of: pa.DataType) -> pa.Array:
    """A column of instants from texts of milliseconds since the epoch."""
    # More than 16 digits would overflow as microseconds; so would a clock that says so.
    limit = 10**15
    found = [None if n is None or n > limit else n * 1000 for n in numbers(values)]
    return pa.array(found, pa.int64()).cast(of)


def attribute_maps(rows: Sequence[Sequence[Attribute]]) -> pa.Array:
    """A column of maps by name: empty, never null, for a message without attributes."""
    offsets = [0]
    for row in rows:
        offsets.append(offsets[-1] + len(row))
    found = [attribute for row in rows for attribute in row]
    values = pa.StructArray.from_arrays(
        [
            texts([a.data_type for a in found]),
            texts([a.text for a in found]),
            pa.array([a.binary for a in found], BINARY),
        ],
        fields=list(ATTRIBUTE),
    )
    keys = texts([a.name for a in found])
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, values, type=ATTRIBUTES)


def attributes_of(maps: pa.Array) -> list[list[Attribute]]:
    """The attributes of each row of such a column, in their order there."""
    offsets = maps.offsets.to_pylist() or [0]
    first, last = offsets[0], offsets[-1]
    if first == last:
        return [[] for _ in range(len(maps))]
    fields = [maps.items.field(n).slice(first, last - first).to_pylist() for n in range(3)]
    names = maps.keys.slice(first, last - first).to_pylist()
    found = list(map(Attribute, names, *fields))
    return [found[start - first : end - first] for start, end in itertools.pairwise(offsets)]

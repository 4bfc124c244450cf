"""What a segment has between its last record batch and Arrow's footer, where readers do not look.

A table: where each slot ends, with its checksum, so that a task reads its own slot and no other.
Behind it the seal: a checksum of all other bytes of the file. Versions of before wrote no table;
they read a file that has one, for the seal, which they look at alone, holds for it as well.
"""

from __future__ import annotations

import itertools
import mmap
import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from spark_connectors.spool.stores import Store

_ARROW_MAGIC = b"ARROW1"
_TAIL = struct.Struct("<i6s")  # how an Arrow file ends: size of the footer, magic
# Sizes are multiples of 8, because Arrow wants the footer aligned.
_SEAL = struct.Struct("<4sI")
_SEAL_MAGIC = b"QGS1"
_ENTRY = struct.Struct("<QQ")  # where a slot ends, its checksum
_TABLE_END = struct.Struct("<4sIQ")  # magic, checksum of entries and footer, number of entries
_TABLE_MAGIC = b"QGT1"
# The tables of a thousand slots, Arrow's and ours, are less; so is a segment that is worth one call
# and not two.
_END_BYTES = 64 << 10


def sealed(file: memoryview, ends: Sequence[int]) -> bytes:
    """The Arrow file with table and seal. ``ends``: where each slot's record batch ends."""
    footer_at = len(file) - _TAIL.size - _TAIL.unpack(file[-_TAIL.size :])[0]
    content, footer = file[:footer_at], file[footer_at:]
    # Before the first slot is the schema, behind the last one Arrow's mark of the end.
    cuts = itertools.pairwise((0, *ends, footer_at))
    entries = b"".join(_ENTRY.pack(end, zlib.crc32(content[start:end])) for start, end in cuts)
    checksum = zlib.crc32(footer, zlib.crc32(entries))
    table = entries + _TABLE_END.pack(_TABLE_MAGIC, checksum, len(ends) + 1)
    seal = _SEAL.pack(_SEAL_MAGIC, zlib.crc32(footer, zlib.crc32(table, zlib.crc32(content))))
    return b"".join((content, table, seal, footer))


def why_damaged(file: memoryview) -> str | None:
    """What is wrong with the bytes of a file, or None."""
    if len(file) < _TAIL.size:
        return f"it has {len(file)} bytes"
    footer_size, magic = _TAIL.unpack(file[-_TAIL.size :])
    footer_at = len(file) - _TAIL.size - footer_size
    seal_at = footer_at - _SEAL.size
    if magic != _ARROW_MAGIC or footer_size < 0 or seal_at < 0:
        return "its end is missing"
    seal_magic, checksum = _SEAL.unpack(file[seal_at:footer_at])
    if seal_magic != _SEAL_MAGIC:
        return "it has no checksum"
    if zlib.crc32(file[footer_at:], zlib.crc32(file[:seal_at])) != checksum:
        return "its checksum is another"
    return None


class _Table(NamedTuple):
    """``entries``: end and checksum of each slot, and of what is behind them. ``end``: the file
    from there on."""

    entries: list[tuple[int, int]]
    end: memoryview


def slot_in_place(store: Store, name: str, number: int) -> mmap.mmap | bytes:
    """A file whose end and that slot have been read and are as they were written; elsewhere it is
    zeros, which take no memory. The whole file, of which nothing is checked, where it is small, has
    no table, or where anything is strange, for ``why_damaged`` to say what. Raises Missing."""
    end = store.part(name, -_END_BYTES)
    if len(end) < _END_BYTES:
        return end
    table = _table(memoryview(end))
    if table is None or number >= len(table.entries) - 1:
        return store.get(name)
    start = table.entries[number - 1][0] if number else 0
    stop, checksum = table.entries[number]
    slot = store.part(name, start, stop)
    if zlib.crc32(slot) != checksum:
        return store.get(name)
    end_at = table.entries[-1][0]
    file = mmap.mmap(-1, end_at + len(table.end))
    file[start:stop] = slot
    file[end_at:] = table.end
    return file


def _table(end: memoryview) -> _Table | None:
    """The table in the end of a file; None: there is none, or it is damaged."""
    footer_size, magic = _TAIL.unpack(end[-_TAIL.size :])
    footer_at = len(end) - _TAIL.size - footer_size
    stop = footer_at - _SEAL.size - _TABLE_END.size
    if magic != _ARROW_MAGIC or footer_size < 0 or stop < 0:
        return None
    table_magic, checksum, count = _TABLE_END.unpack_from(end, stop)
    start = stop - count * _ENTRY.size
    if table_magic != _TABLE_MAGIC or start < 0:
        return None
    if zlib.crc32(end[footer_at:], zlib.crc32(end[start:stop])) != checksum:
        return None
    return _Table(list(_ENTRY.iter_unpack(end[start:stop])), end[start:])

"""DECISIONS.md: an index that has every entry, and entries that know of each other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.tidy.pages import slug_of
from tests.tidy.source import ROOT

_ENTRY = re.compile(r"^## (\d{4}-\d\d-\d\d .+)$", re.MULTILINE)
_INDEXED = re.compile(r"\[([^]]+)\]\(#([^)]+)\)")
_AMENDED = re.compile(r"^(Amends|Amended by) \[[^]]+\]\(#([^)]+)\)", re.MULTILINE)


def parts(text: str) -> tuple[str, dict[str, tuple[str, str]]]:
    """What stands before the entries; and the entries by anchor: heading and text."""
    before, *pairs = _ENTRY.split(text)
    entries = zip(pairs[::2], pairs[1::2], strict=True)
    return before, {slug_of(heading): (heading, body) for heading, body in entries}


def wrong_in_index(text: str) -> Iterator[str]:
    before, entries = parts(text)
    listed = {anchor: title for title, anchor in _INDEXED.findall(before)}
    for anchor, (heading, _) in entries.items():
        title = heading.partition(" ")[2]
        if listed.get(anchor) != title:
            yield f"the index has no [{title}](#{anchor})"
    yield from (f"the index leads to #{anchor}" for anchor in listed if anchor not in entries)


def one_sided(text: str) -> Iterator[str]:
    """Entries that say that they amend another one, or are amended, while that says nothing."""
    _, entries = parts(text)
    said = {
        (anchor, how, other)
        for anchor, (_, body) in entries.items()
        for how, other in _AMENDED.findall(body)
    }
    order = [*entries]
    for anchor, how, other in sorted(said):
        back = "Amended by" if how == "Amends" else "Amends"
        if (other, back, anchor) not in said:
            yield f"#{anchor}: {how} #{other}, which does not say so"
        elif how == "Amends" and order.index(other) > order.index(anchor):
            yield f"#{anchor} amends #{other}, which is the later one"


def decisions() -> str:
    return (ROOT / "DECISIONS.md").read_text("utf-8")


def test_the_index_has_every_entry() -> None:
    assert [*wrong_in_index(decisions())] == []


def test_what_is_amended_is_said_in_both_entries() -> None:
    assert [*one_sided(decisions())] == []


def test_the_checks_can_fail() -> None:
    index = "[One](#2026-11-21-one); [Two, too](#2026-11-22-two-too)\n\n"
    first, second = "## 2026-11-21 One\n\n", "## 2026-11-22 Two, too\n\n"
    assert [*wrong_in_index(index + first + second)] == []
    assert [*wrong_in_index(index + first)]
    assert [*wrong_in_index(index + first + second + "## 2026-11-23 Three\n")]
    assert [*wrong_in_index(index.replace("Two, too", "Two") + first + second)]
    later, earlier = (
        "Amended by [Two, too](#2026-11-22-two-too): x\n",
        "Amends [One](#2026-11-21-one)",
    )
    assert [*one_sided(first + later + second + earlier)] == []
    assert [*one_sided(first + later + second)]
    assert [*one_sided(first + second + earlier)]
    assert [*one_sided(second + earlier + "\n" + first + later)]

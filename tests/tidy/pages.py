"""Headings of Markdown pages: sections that code cites, and anchors that links lead to."""

from __future__ import annotations

import re
from functools import cache

from tests.tidy.source import ROOT

SECTION = re.compile(r"\d+\.\d+")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


@cache
def headings(path: str) -> tuple[str, ...]:
    """The headings of a page, without what is between its code fences."""
    return tuple(_HEADING.findall(_FENCED.sub("", (ROOT / path).read_text("utf-8"))))


def sections(path: str) -> set[str]:
    """The numbers of a page's sections."""
    return {found.group() for text in headings(path) if (found := SECTION.match(text))}


@cache
def anchors(path: str) -> frozenset[str]:
    """Return the ends of links to the headings of a page."""
    made: list[str] = []
    for text in headings(path):
        slug = slug_of(text)
        count = sum(re.fullmatch(re.escape(slug) + r"(-\d+)?", one) is not None for one in made)
        made.append(f"{slug}-{count}" if count else slug)
    return frozenset("#" + one for one in made)


def slug_of(heading: str) -> str:
    """The anchor of a heading that is the first with its text: GitHub's rule."""
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")

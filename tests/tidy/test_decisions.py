"""docs/adr: decision records have one form, an index and a limit; citations lead to a record."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tests.tidy.source import ROOT
from tests.tidy.test_citations import texts

FOLDER = ROOT / "docs" / "adr"
MOST_LINES = 40
MOST_WORDS = 10_000
_FORM = re.compile(
    r"# (?P<number>\d{4}): (?P<title>.+)\n\n"
    r"Status: (accepted|superseded by \d{4}), \d{4}-\d\d-\d\d(; amends \d{4})?\n\n"
    r"## Context\n\n.+\n\n## Decision\n\n.+\n\n## Consequences\n\n.+\n\nFigure: .+\n",
    re.DOTALL,
)
_CITED = re.compile(r"\bADRs? (\d{4})\b")


def pages() -> dict[str, str]:
    """Return every page of the folder by its name."""
    return {file.name: file.read_text("utf-8") for file in sorted(FOLDER.glob("*.md"))}


def records(found: Mapping[str, str]) -> dict[str, str]:
    """Return the records among the pages: those with a number."""
    return {name: text for name, text in found.items() if name[:4].isdigit()}


def faults(found: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with the records, and with their index."""
    for expected, (name, text) in enumerate(records(found).items(), 1):
        form = _FORM.fullmatch(text)
        if form is None:
            yield f"{name} has another form than template.md"
            continue
        number, title = form["number"], form["title"].partition("\n")[0]
        if not number == name[:4] == f"{expected:04}":
            yield f"{name} has the number {number}; the next one is {expected:04}"
        if f"[{number}: {title}]({name})" not in found["README.md"]:
            yield f"README.md has no [{number}: {title}]({name})"
        if text.count("\n") > MOST_LINES:
            yield f"{name} has more than {MOST_LINES} lines"
    words = sum(len(text.split()) for text in found.values())
    if words > MOST_WORDS:
        yield f"the records have {words} words; {MOST_WORDS} is the limit"


def test_records_have_one_form_and_an_index() -> None:
    assert [*faults(pages())] == []


def test_cited_records_exist() -> None:
    known = {name[:4] for name in records(pages())}
    cited = {(path, number) for path, text in texts() for number in _CITED.findall(text)}
    assert cited
    assert sorted((path, number) for path, number in cited if number not in known) == []


def test_the_checks_can_fail() -> None:
    record = (
        "# 0001: One\n\nStatus: accepted, 2026-11-21\n\n## Context\n\nA.\n\n## Decision\n\nB.\n\n"
        "## Consequences\n\n- C.\n\nFigure: 1 ms.\n"
    )
    index = "- [0001: One](0001-one.md)\n"
    assert [*faults({"0001-one.md": record, "README.md": index})] == []
    assert [*faults({"0002-one.md": record, "README.md": index})]
    assert [*faults({"0001-one.md": record, "README.md": ""})]
    assert [*faults({"0001-one.md": record.replace("Figure", "Number"), "README.md": index})]
    assert [*faults({"0001-one.md": record.replace("A.", "A.\n" * 40), "README.md": index})]
    assert [*faults({"0001-one.md": record, "README.md": index + "word " * MOST_WORDS})]

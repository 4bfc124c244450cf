"""The README and the pages in docs/ repeat the code's facts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from queuegate.gateway.configuration import settings_table as config_table
from tests.tidy.source import ROOT

KINDS = ("tutorials", "how-to", "reference", "explanation")
PAGES = [
    ROOT / "README.md",
    *(ROOT / "docs").glob("*.md"),
    *(page for kind in KINDS for page in sorted((ROOT / "docs" / kind).glob("*.md"))),
]
MOST_LINES_OF_THE_README = 120
MOST_COLUMNS = 110
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def test_the_configuration_table_is_current() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text("utf-8")
    assert config_table.markdown_table() in page, "paste the output of `queuegate config --table`"


def test_every_setting_has_a_purpose() -> None:
    titles = [variable.title for variable, _ in config_table.table()]
    assert titles[0]
    named = [title for title in titles if title]
    assert len(set(named)) == len(named) == config_table.markdown_table().count("### ")


def test_the_readme_is_two_screens() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert "make serve" in readme
    assert "make test" in readme
    assert readme.count("\n") <= MOST_LINES_OF_THE_README


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_fit_a_screen_and_lead_somewhere(page: Path) -> None:
    text = page.read_text("utf-8")
    # Rows of tables are shown as tables.
    long = [line for line in text.splitlines() if len(line) > MOST_COLUMNS and line[:1] != "|"]
    assert not long
    for link in LINK.findall(text):
        assert (page.parent / link).exists(), link

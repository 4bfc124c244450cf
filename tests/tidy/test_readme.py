"""What the README repeats is what the code says."""

from __future__ import annotations

from gateway import config_table
from tests.tidy.source import ROOT


def test_the_configuration_table_is_current() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert config_table.markdown_table() in readme, "paste the output of `queuegate config --table`"


def test_the_two_commands_are_there() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert "make serve" in readme
    assert "make test" in readme

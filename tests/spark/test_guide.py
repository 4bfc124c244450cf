"""The guide says what is so: its tables are ours, its quick start runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from spark_connectors.formats import COMMON, FORMATS, TABLES, options_of
from spark_connectors.options import table
from tests.spark.conftest import ROOT

GUIDE = ROOT / "spark_connectors" / "README.md"
TUTORIAL = ROOT / "docs" / "tutorials" / "first-lake.md"


@pytest.mark.parametrize("of", [COMMON, *sorted(TABLES)])
def test_its_options_are_those_that_are_read(of: str) -> None:
    page = GUIDE if of == COMMON else GUIDE.with_name("OPTIONS.md")
    assert "\n".join(table(options_of(of))) in page.read_text()


def test_each_option_stands_once_where_it_is_the_same() -> None:
    """Those of every format are in one table, and nothing of it is left out of another by name."""
    connection = {option.name for option in options_of("connection")}
    for of in TABLES.keys() - {"connection"}:
        assert connection.isdisjoint(option.name for option in options_of(of))


def test_it_names_each_format() -> None:
    guide = GUIDE.read_text()
    assert [one.name for one in FORMATS if f"`{one.name}`" not in guide] == []
    assert [one.alias for one in FORMATS if one.alias and f"`{one.alias}`" not in guide] == []


@pytest.mark.every_version
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("quick_spark")
def test_its_quick_start_runs(gateway: str, tmp_path: Path) -> None:
    found = re.search(r"```python\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)
    assert found is not None
    script = found[1].replace("http://localhost:9324", gateway)
    job = tmp_path / "quick_start.py"
    job.write_text(script)
    ran = subprocess.run(
        [sys.executable, str(job)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=tmp_path,
        env=os.environ
        | {
            "HOME": str(tmp_path),
            "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false pyspark-shell",
        },
    )
    assert ran.returncode == 0, ran.stderr[-2_000:]
    assert ran.stdout.rstrip().endswith("100 orders")
    assert "only showing top 3 rows" in ran.stdout
    assert "replaced a previously registered" not in ran.stderr
    assert {path.name for path in (tmp_path / "lake").iterdir()} == {"checkpoint", "orders"}

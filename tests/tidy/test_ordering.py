"""The random order of tests, and the report of many runs."""

from __future__ import annotations

import itertools
import random
import sys
from pathlib import Path

import pytest

from tests.often import outcome, run_often
from tests.ordering import place

IDS = [
    f"tests/{folder}test_{module}.py::test_{number}[a/b::c]"
    for folder in ("", "x/", "x/y/", "z/")
    for module in range(4)
    for number in range(5)
]


def ordered(seed: int, ids: list[str]) -> list[str]:
    return sorted(ids, key=lambda one: place(seed, one))


def test_an_order_is_that_of_its_seed_however_tests_were_collected() -> None:
    mixed = random.Random(1).sample(IDS, len(IDS))
    assert ordered(1, mixed) == ordered(1, IDS)
    assert ordered(1, IDS) != ordered(2, IDS)
    assert ordered(1, IDS) != IDS


def test_a_part_keeps_the_order_that_it_has_among_all() -> None:
    part = IDS[::3]
    assert ordered(7, part) == [one for one in ordered(7, IDS) if one in part]


def test_modules_and_folders_stay_together() -> None:
    found = ordered(3, IDS)
    modules = [one for one, _ in itertools.groupby(found, lambda one: one.partition("::")[0])]
    assert len(modules) == len({*modules}) == 16
    inner = [one.startswith("tests/x/") for one in modules]
    assert [key for key, _ in itertools.groupby(inner)].count(True) == 1


LOG = """\
order of tests: --order-seed 17
FAILED tests/a/test_b.py::test_c[x y] - AssertionError: a - b
ERROR tests/a/test_b.py::test_d
=========== 1 failed, 3 passed, 1 error in 170.12s (0:02:50) ===========
"""


def test_a_run_is_read() -> None:
    failed = ["tests/a/test_b.py::test_c[x y]", "tests/a/test_b.py::test_d"]
    summary = "1 failed, 3 passed, 1 error in 170.12s (0:02:50)"
    assert outcome(LOG, 1) == (failed, "17", summary)
    assert outcome("Killed", 137) == (["no test: see the log"], "none", "no summary")
    assert outcome("", 0)[0] == []


def test_failures_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    command = [sys.executable, "-c", f"print({LOG!r}); raise SystemExit(1)"]
    assert run_often(command, 2) == 1
    printed = capsys.readouterr().out
    assert "    2  tests/a/test_b.py::test_d  (--order-seed 17, 17)" in printed
    assert run_often([sys.executable, "-c", "pass"], 2) == 0
    assert "2 runs: no failure" in capsys.readouterr().out

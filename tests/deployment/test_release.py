"""The checks of deploy/release.py can fail; `make release-dry` runs them on real builds."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

_RELEASE = runpy.run_path(str(Path(__file__).parents[2] / "deploy/release.py"))
compare, copied, packed = (_RELEASE[name] for name in ("compare", "copied", "packed"))


def test_builds_that_differ_are_named() -> None:
    compare({"a": b"1"}, {"a": b"1"})
    with pytest.raises(SystemExit, match="two builds differ: a, c"):
        compare({"a": b"1", "b": b"2"}, {"a": b"9", "b": b"2", "c": b"3"})


def test_an_archive_is_the_same_whatever_the_order_and_the_umask() -> None:
    one = packed({"a": (0o644, b"1"), "b": (0o755, b"2")}, 1)
    assert one == packed({"b": (0o700, b"2"), "a": (0o600, b"1")}, 1)
    assert one != packed({"a": (0o644, b"1"), "b": (0o644, b"2")}, 1)


def test_the_image_context_has_all_that_the_dockerfile_copies() -> None:
    assert copied("COPY a b \\\n  c \\\n  d e/\nRUN f\nCOPY --from=g h i\nCOPY j j\n") == [*"abcdj"]

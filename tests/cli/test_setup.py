"""Steps of `make` that come before the environment exists."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def _setup(tmp_path: Path, python: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / ".ci" / "setup", str(tmp_path / "venv"), "requirements/run.txt"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "PYTHON": python},
        capture_output=True,
        text=True,
        check=False,
    )


def test_no_suitable_python_is_one_line(tmp_path: Path) -> None:
    done = _setup(tmp_path, "/bin/false")
    assert done.returncode == 1
    assert done.stderr == "queuegate: PYTHON=/bin/false is not a Python 3.11 or newer\n"


def test_a_python_without_venv_is_one_line(tmp_path: Path) -> None:
    # Like Debian's: runs, is new enough, and has no ensurepip.
    python = tmp_path / "python3"
    python.write_text('#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; esac\n')
    python.chmod(0o755)
    done = _setup(tmp_path, str(python))
    assert done.returncode == 1
    assert done.stderr == (
        f"queuegate: {python} lacks venv: on Debian and Ubuntu, apt-get install python3-venv\n"
    )


def test_make_lists_its_targets() -> None:
    printed = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    targets = {line.split()[1] for line in printed.splitlines()}
    assert {"serve", "test", "check", "bench", "conformance", "simulate", "faults"} <= targets


def test_lock_files_name_no_index() -> None:
    for lock in (ROOT / "requirements").glob("*.txt"):
        text = lock.read_text()
        assert "://" not in text, lock
        assert "--index" not in text, lock
        assert text.count("--hash=sha256:") > text.count("==") - 1, lock


def test_the_lock_file_of_node_names_no_registry() -> None:
    text = (ROOT / "conformance" / "sns_validator" / "package-lock.json").read_text()
    assert "://" not in text
    assert text.count('"integrity": "sha512-') == text.count('"node_modules/')

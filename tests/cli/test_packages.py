"""The sdist and the wheel: what is in them, and what they say of themselves."""

from __future__ import annotations

import email
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("gateway", "protocol", "scheduler", "storage")
BESIDE = (".ci", "conformance", "deploy", "docs", "requirements", "spark_connectors", "tests")
MADE = shutil.ignore_patterns("__pycache__", "node_modules", "report", "*.egg-info")

# They are made once.
pytestmark = pytest.mark.xdist_group("packages")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that the sdist of this tree was unpacked into."""
    tree = tmp_path_factory.mktemp("tree")
    for file in (file for file in ROOT.iterdir() if file.is_file()):
        shutil.copy(file, tree)
    for folder in (*PACKAGES, *BESIDE):
        shutil.copytree(ROOT / folder, tree / folder, ignore=MADE)
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(built("sdist", tree, tmp_path_factory.mktemp("sdist"))) as found:
        found.extractall(unpacked, filter="data")
    [directory] = unpacked.iterdir()
    return directory


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel that comes of the sdist."""
    return zipfile.ZipFile(built("wheel", sdist, tmp_path_factory.mktemp("wheel")))


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return email.message_from_string(wheel.read(name).decode())


def built(kind: str, tree: Path, directory: Path) -> Path:
    """What setuptools makes of a tree, without network."""
    building = (
        "import sys; from setuptools import build_meta;"
        "getattr(build_meta, 'build_' + sys.argv[1])(sys.argv[2])"
    )
    command = [sys.executable, "-c", building, kind, str(directory)]
    subprocess.run(command, check=True, cwd=tree, capture_output=True)
    [made] = directory.iterdir()
    return made


def files(top: Path, folders: tuple[str, ...]) -> set[str]:
    """All of ours below these folders, from the top on."""
    found = (file for folder in folders for file in (top / folder).rglob("*") if file.is_file())
    names = {str(file.relative_to(top)) for file in found}
    made = ("/__pycache__/", ".egg-info/", "/node_modules/", "/report/")
    return {name for name in names if not any(part in name for part in made)}


def test_the_sdist_has_tests_changelog_and_whatever_else_a_build_needs(sdist: Path) -> None:
    everything = (*PACKAGES, *BESIDE)
    assert files(sdist, everything) == files(ROOT, everything)
    top = {file.name for file in sdist.iterdir()}
    assert {"CHANGELOG.md", "LICENSE", "README.md", "Makefile", "Dockerfile"} <= top


def test_the_wheel_has_every_module_and_statement_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    expected = files(ROOT, PACKAGES)
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == expected


def test_each_top_package_is_typed(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    for package in {name.partition("/")[0] for name in names if ".dist-info/" not in name}:
        assert f"{package}/py.typed" in names


def test_what_only_traces_need_is_an_extra(metadata: Message) -> None:
    needed = metadata.get_all("Requires-Dist") or []
    traces = [line for line in needed if line.startswith("opentelemetry")]
    assert len(traces) == 3
    assert all(line.endswith('; extra == "otlp"') for line in traces)


def test_uvloop_is_for_where_it_runs(metadata: Message) -> None:
    [line] = [line for line in metadata.get_all("Requires-Dist") or [] if "uvloop" in line]
    assert "platform_system" in line


def test_the_metadata_says_what_it_runs_on(metadata: Message) -> None:
    classifiers = set(metadata.get_all("Classifier") or [])
    assert {
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.13",
        "Typing :: Typed",
    } <= classifiers
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"

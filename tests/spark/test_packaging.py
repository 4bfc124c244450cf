"""The zip for ``--py-files`` and the wheel: what is in them, and what Spark finds in them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

import pytest

from spark_connectors.formats import FORMATS
from tests.spark import cluster

# Its zip and its wheel are made once.
pytestmark = pytest.mark.xdist_group("packaging")

PACKAGE = cluster.ROOT / "spark_connectors"
DISCOVERY = PACKAGE / "discovery"
LOOK_UP = """
from pkgutil import iter_modules

for info in iter_modules():
    if info.name.startswith("pyspark_"):
        source = __import__(info.name).DefaultSource
        print(source.name(), source.__module__.partition(".")[0])
"""
REGISTER = """
from pyspark.sql import SparkSession
from spark_connectors import register

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
for name in ("sqs", "queuegate-sqs"):
    print(spark.read.format(name).option("queueUrl", "http://127.0.0.1:9/1/q").load().columns[0])
"""
FOUND = sorted(f"{one.name} spark_connectors" for one in FORMATS)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cluster.make_zip(tmp_path_factory.mktemp("zip"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that comes of the sdist of a copy of the folder, built without network."""
    tree = tmp_path_factory.mktemp("tree") / "spark_connectors"
    shutil.copytree(PACKAGE, tree, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(built("sdist", tree, tmp_path_factory.mktemp("sdist"))) as found:
        found.extractall(unpacked, filter="data")
    [sdist] = unpacked.iterdir()
    return built("wheel", sdist, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that the wheel was unpacked into."""
    target = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as found:
        found.extractall(target)
    return target


def built(kind: str, tree: Path, directory: Path) -> Path:
    """Build a tree with setuptools, without network."""
    building = (
        "import sys; from setuptools import build_meta;"
        "getattr(build_meta, 'build_' + sys.argv[1])(sys.argv[2])"
    )
    command = [sys.executable, "-P", "-c", building, kind, str(directory)]
    subprocess.run(command, check=True, cwd=tree, capture_output=True)
    [made] = directory.iterdir()
    return made


def formats_found(path: Path) -> list[str]:
    """Return what Spark's own search finds with only this on the path."""
    return sorted(run_python(LOOK_UP, path).stdout.splitlines())


def run_python(code: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Run this code with only that on the path."""
    return subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        cwd="/",
        env=cluster.bare_environment(PYTHONPATH=str(path)),
        capture_output=True,
        text=True,
    )


def modules(top: Path, names: Iterator[Path]) -> set[str]:
    return {str(name.relative_to(top)) for name in names if "__pycache__" not in name.parts}


def expected() -> set[str]:
    """Every module of the connectors, with what is for discovery at the top."""
    found = modules(cluster.ROOT, PACKAGE.rglob("*.py"))
    below = modules(DISCOVERY, DISCOVERY.rglob("*.py"))
    return {name for name in found if not name.startswith("spark_connectors/discovery/")} | below


def test_the_zip_has_every_module_and_nothing_else(archive: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        names = set(opened.namelist())
    assert {name for name in names if ".dist-info/" not in name} == expected()


def test_the_same_sources_give_the_same_zip(archive: Path, tmp_path: Path) -> None:
    again = cluster.make_zip(tmp_path)
    assert again.name == archive.name
    assert again.read_bytes() == archive.read_bytes()


def test_the_zip_knows_its_version(archive: Path) -> None:
    with (PACKAGE / "pyproject.toml").open("rb") as file:
        version = tomllib.load(file)["project"]["version"]
    ask = "from importlib.metadata import version; print(version('queuegate-spark'))"
    assert run_python(ask, archive).stdout.strip() == version
    assert archive.name == f"queuegate-spark-connectors-{version}.zip"


def test_spark_finds_the_formats_in_the_zip(archive: Path) -> None:
    assert formats_found(archive) == FOUND


def test_spark_finds_the_formats_in_the_source_tree(tmp_path: Path) -> None:
    # Discovery needs both directories on the path, as this path file puts them there.
    (tmp_path / "here.pth").write_text(f"{cluster.ROOT}\n{DISCOVERY}\n")
    start = f"import site; site.addsitedir({str(tmp_path)!r})"
    (tmp_path / "sitecustomize.py").write_text(start)
    assert formats_found(tmp_path) == FOUND


def test_the_wheel_has_every_module_and_no_gateway(installed: Path) -> None:
    assert modules(installed, installed.rglob("*.py")) == expected()


def test_the_wheel_is_typed_and_needs_no_gateway(installed: Path) -> None:
    for package in (*[one.package for one in FORMATS], "spark_connectors"):
        assert (installed / package / "py.typed").exists()
    [about] = distributions(path=[str(installed)])
    assert about.name == "queuegate-spark"
    assert {re.split(r"[<>=]", line)[0] for line in about.requires or []} == {
        *("boto3", "orjson", "pandas", "pyarrow", "pyspark")
    }


def test_spark_finds_the_formats_after_an_installation(installed: Path) -> None:
    assert formats_found(installed) == FOUND


def test_what_spark_has_found_is_not_registered_again(installed: Path) -> None:
    job = run_python(REGISTER, installed)
    assert job.stdout.split() == ["queue", "queue"]
    assert "replaced" not in job.stderr


@pytest.mark.parametrize("version", ["3.5.9", "4.1.4"])
def test_an_older_spark_is_told_so_in_one_sentence(tmp_path: Path, version: str) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text(f"__version__ = {version!r}")
    job = subprocess.run(
        [sys.executable, "-c", "import spark_connectors; spark_connectors.register(iter(()))"],
        env={"PYTHONPATH": f"{tmp_path}:{cluster.ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = job.stderr.splitlines()[-1]
    assert "TooOld: these formats need PySpark 4.2 or newer" in said
    assert version in said

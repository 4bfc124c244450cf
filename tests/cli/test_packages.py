"""The sdist and the wheel: their files, their metadata, and imports beside packages of others.

Names such as `gateway` and `storage` are also those of others' packages. So the wheel is installed
beside such packages, and its command starts in a folder that has them, too.
"""

from __future__ import annotations

import email
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from tests.cli.processes import Gateway, children
from tests.tracing.collector import Collector

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("gateway", "protocol", "scheduler", "storage")
PACKAGES = ("queuegate", *FOLDERS)
PLUGIN = "queuegate/pytest_plugin"
BESIDE = (".ci", "conformance", "deploy", "docs", "requirements", "spark_connectors", "tests")
MADE = shutil.ignore_patterns("__pycache__", "node_modules", "report", "*.egg-info")
COMMANDS = (["bin/queuegate"], ["bin/python", "-m", "queuegate"])

# They are made once.
pytestmark = pytest.mark.xdist_group("packages")


class Installed(Gateway):
    """A gateway by this command, started in this folder."""

    def __init__(self, words: list[str], folder: Path, *arguments: str, **more: str) -> None:
        self._words = words
        self.folder = folder
        super().__init__(*arguments, **more)

    def command(self) -> list[str]:
        return [*self._words, "serve"]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this tree, for what a build leaves there."""
    tree = tmp_path_factory.mktemp("tree")
    for file in (file for file in ROOT.iterdir() if file.is_file()):
        shutil.copy(file, tree)
    for folder in (*PACKAGES, *BESIDE):
        shutil.copytree(ROOT / folder, tree / folder, symlinks=True, ignore=MADE)
    return tree


@pytest.fixture(scope="module")
def sdist(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that the sdist of this tree was unpacked into."""
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
def environment(wheel: zipfile.ZipFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of somebody who has packages of the same names, with the wheel."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, symlinks=True, with_pip=True)
    pip = [str(home / "bin/python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    what = ["install", "--no-deps", "--no-index", str(wheel.filename)]
    subprocess.run([*pip, *what], check=True)
    make_packages_of_somebody_else(site_packages(home))
    # What it needs, but not this checkout: lines of path files in there do not count.
    (site_packages(home) / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with such packages, too."""
    make_packages_of_somebody_else(tmp_path)
    return tmp_path


def make_packages_of_somebody_else(place: Path) -> None:
    for name in FOLDERS:
        (place / name).mkdir(parents=True)
        (place / name / "__init__.py").touch()


def site_packages(environment: Path) -> Path:
    [found] = environment.glob("lib/python*/site-packages")
    return found


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return email.message_from_string(wheel.read(name).decode())


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


def files(top: Path, folders: tuple[str, ...]) -> set[str]:
    """Return the paths of our files below these folders and below the folders linked there."""
    walked = (at for folder in folders for at in os.walk(top / folder, followlinks=True))
    names = {str((Path(at) / name).relative_to(top)) for at, _, files in walked for name in files}
    made = ("/__pycache__/", ".egg-info/", "/node_modules/", "/report/")
    return {name for name in names if not any(part in name for part in made)}


def test_the_sdist_has_tests_changelog_and_whatever_else_a_build_needs(sdist: Path) -> None:
    everything = ("queuegate", *BESIDE)
    assert files(sdist, everything) == files(ROOT, everything)
    top = {file.name for file in sdist.iterdir()}
    assert {"CHANGELOG.md", "LICENSE", "README.md", "Makefile", "Dockerfile"} <= top


def test_the_tree_gives_the_same_wheel_as_its_sdist(
    tree: Path, wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    with zipfile.ZipFile(built("wheel", tree, tmp_path)) as direct:
        [record] = [name for name in direct.namelist() if name.endswith(".dist-info/RECORD")]
        # With a hash of each file.
        assert sorted(direct.read(record).split()) == sorted(wheel.read(record).split())


def test_the_wheel_has_every_module_and_statement_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    expected = {name for name in files(ROOT, ("queuegate",)) if not name.startswith(PLUGIN)}
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == expected


def test_the_pytest_plugin_has_a_wheel_of_its_own(tree: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(built("wheel", tree / PLUGIN, tmp_path)) as found:
        modules = {name for name in found.namelist() if ".dist-info/" not in name}
        [points] = [name for name in found.namelist() if name.endswith("entry_points.txt")]
        assert b"queuegate = queuegate_pytest.plugin" in found.read(points)
    there = files(ROOT / PLUGIN, ("queuegate_pytest",))
    assert modules == there


def test_the_wheel_is_typed(wheel: zipfile.ZipFile) -> None:
    folders = ("queuegate", *(f"queuegate/{name}" for name in FOLDERS))
    assert {f"{folder}/py.typed" for folder in folders} <= {*wheel.namelist()}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("workers", [1, 2])
def test_it_serves_among_packages_of_the_same_names(
    environment: Path, folder: Path, command: list[str], workers: int
) -> None:
    """Spans leave every few seconds."""
    words = [str(environment / command[0]), *command[1:]]
    options = ("--ephemeral", "--auth", "none", "--workers", str(workers))
    with (
        Collector() as collector,
        Installed(words, folder, *options, **collector.settings) as gateway,
    ):
        queue = "/000000000000/plain"
        assert gateway.get("/?Action=CreateQueue&QueueName=plain")[0] == 200
        assert gateway.get(f"{queue}?Action=SendMessage&MessageBody=m")[0] == 200
        answer = gateway.get(f"{queue}?Action=ReceiveMessage&WaitTimeSeconds=20")
        assert "<Body>m</Body>" in answer[1]
        assert len(children(gateway.process.pid)) == (workers if workers > 1 else 0)
        collector.until(lambda it: any("SendMessage" in span.name for span in it.spans))


def test_somebody_elses_program_keeps_its_path_and_its_packages(
    environment: Path, folder: Path
) -> None:
    program = """
import json, sys
before = [*sys.path]
import queuegate.gateway.cli, gateway, protocol, scheduler, storage
theirs = [package.__file__ for package in (gateway, protocol, scheduler, storage)]
print(json.dumps([before == sys.path, *theirs]))
"""
    # As a script, not of the working folder.
    (folder / "bin").mkdir()
    script = folder / "bin" / "program.py"
    script.write_text(program)
    done = subprocess.run(
        [environment / "bin/python", script], cwd=folder, capture_output=True, check=True
    )
    theirs = [str(site_packages(environment) / name / "__init__.py") for name in FOLDERS]
    assert json.loads(done.stdout) == [True, *theirs]


@pytest.mark.parametrize("installed", ["wheel", "editable"])
def test_mypy_reads_its_types_in_a_project_of_somebody_else(
    request: pytest.FixtureRequest, tmp_path: Path, installed: str
) -> None:
    home = Path(sys.prefix)
    if installed == "wheel":
        home = request.getfixturevalue("environment")
    program = tmp_path / "program.py"
    program.write_text(
        "from queuegate.protocol.arns import queue_arn\nnumber: int = queue_arn('r', 'a', 'n')\n"
    )
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(
        [*command, "--python-executable", str(home / "bin/python"), str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "Found 1 error" in done.stdout, done.stdout + done.stderr
    assert '"str", variable has type "int"' in done.stdout


def test_the_command_of_a_checkout_runs_the_checkout(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "queuegate", "--help"],
        cwd=folder,
        capture_output=True,
        check=True,
    )
    assert done.stdout.startswith(b"usage: queuegate")


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

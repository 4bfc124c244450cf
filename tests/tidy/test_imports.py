"""Imports point one way and name one package, `protocol` is pure, and no module is a drawer."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator

import pytest

from tests.tidy.source import PACKAGES, ROOT, Source, planted, product, suite

# Folder -> what it may import of ours, longest folder first; a trailing dot means "and below".
OURS = {
    "queuegate/log": ("queuegate.log.",),
    "queuegate": ("queuegate.gateway.cli",),
    "gateway/operations": (
        "queuegate.gateway.operations.",
        "queuegate.protocol.",
        "queuegate.storage.",
    ),
    "gateway/faces": (
        "queuegate.gateway.faces.",
        "queuegate.gateway.operations.",
        "queuegate.protocol.",
        "queuegate.storage.model",
        "queuegate.storage.queue_model",
        "queuegate.storage.storage_errors",
    ),
    "gateway/command": (
        "queuegate.gateway.",
        "queuegate.log.",
        "queuegate.protocol.",
        "queuegate.storage.",
    ),
    "gateway": ("queuegate.gateway.", "queuegate.protocol.", "queuegate.storage."),
    "scheduler": ("queuegate.scheduler.", "queuegate.storage.", "queuegate.protocol."),
    "storage": ("queuegate.storage.", "queuegate.protocol."),
    "protocol": ("queuegate.protocol.",),
    "spark_connectors": ("spark_connectors.",),
}
OLD_NAMES = ("gateway", "protocol", "scheduler", "storage")
LINKED = tuple(f"queuegate/{name}" for name in OLD_NAMES)
# It puts the workers together, for the gateway's process and for processes of their own.
MAY_IMPORT_SCHEDULER = "gateway/process/background.py"
# Folder -> the only packages of others that it may import.
OTHERS = {
    # Others install it beside what they have.
    "queuegate/log": {"aiohttp"},
    "storage": {"asyncpg"},
    "protocol": {"orjson", "xmltodict", "cryptography", "websockets"},
    "spark_connectors": {"py4j", "pyspark", "pyarrow", "boto3", "botocore", "orjson"},
}
NO_WEB_FRAMEWORK = ("gateway/operations", "scheduler", "protocol")
PURE = ("protocol/",)
WEB_FRAMEWORKS = {"starlette", "uvicorn", "httptools"}
DRAWERS = {"utils", "util", "common", "helpers", "helper", "types", "misc"}
IMPURE = {"asyncio", "logging", "os", "random", "secrets", "socket", "subprocess", "threading"}
IMPURE_CALLS = {
    "now",
    "utcnow",
    "today",
    "uuid1",
    "uuid4",
    "time",
    "time_ns",
    "open",
    "perf_counter",
}


def folder_of(source: Source) -> str:
    """The folder whose rules apply."""
    return next(name for name in OURS if str(source).startswith(name + "/"))


def wrong_arrows(source: Source) -> Iterator[str]:
    allowed = OURS[folder_of(source)]
    if str(source) == MAY_IMPORT_SCHEDULER:
        allowed += ("queuegate.scheduler.",)
    for line, module in source.imports:
        if module.startswith("."):
            yield f"{source}:{line} imports {module}: imports are absolute"
        elif module.partition(".")[0] in PACKAGES and not _allows(allowed, module):
            yield f"{source}:{line} imports {module}"


def _allows(allowed: tuple[str, ...], module: str) -> bool:
    for name in allowed:
        below = name.endswith(".") and module.startswith(name)
        if below or module == name.rstrip(".") or module.startswith(name.rstrip(".") + "."):
            return True
    # `from queuegate.storage import model`: the package alone says nothing; its module comes next.
    return any(name.rstrip(".").startswith(module + ".") for name in allowed)


def table() -> str:
    """OURS as ARCHITECTURE.md has it."""
    rows = ["| Folder | What it may import of ours |", "| --- | --- |"]
    for folder, allowed in OURS.items():
        names = [_folder(name) for name in allowed]
        shown = [f"`{name}`" for name in names if name != folder]
        if any(other.startswith(folder + "/") for other in OURS):
            shown.insert(0, "all below it")
        others = ", ".join(shown) or "nothing"
        if MAY_IMPORT_SCHEDULER.startswith(folder + "/"):
            others += f"; `{MAY_IMPORT_SCHEDULER}` also `scheduler`"
        rows.append(f"| `{folder}` | {others} |")
    return "\n".join(rows)


def _folder(module: str) -> str:
    """Return the path of a module's source: the four packages lie at the root."""
    path = module.rstrip(".").replace(".", "/")
    linked = path.startswith(LINKED)
    return path.removeprefix("queuegate/") if linked else path


def unused(folder: str, sources: Iterable[Source]) -> Iterator[str]:
    """Yield the imports that the folder may have and does not."""
    imported = {module for source in sources for _, module in source.imports}
    for name in OURS[folder]:
        bare = name.rstrip(".")
        if not any(module == bare or module.startswith(bare + ".") for module in imported):
            yield f"{folder} imports nothing of {name}"


def wrong_packages(source: Source) -> Iterator[str]:
    folder = folder_of(source)
    for line, module in source.imports:
        top = module.partition(".")[0]
        if folder in NO_WEB_FRAMEWORK and top in WEB_FRAMEWORKS:
            yield f"{source}:{line} imports {top}"
        if folder not in OTHERS or not top or top in sys.stdlib_module_names or top in PACKAGES:
            continue
        if top not in OTHERS[folder]:
            yield f"{source}:{line} imports {top}"


def old_names(source: Source) -> Iterator[str]:
    """Yield imports of the four folders as packages of their own."""
    for line, module in source.imports:
        if module.partition(".")[0] in OLD_NAMES:
            yield f"{source}:{line} imports {module}, not queuegate.{module}"


def impurities(source: Source) -> Iterator[str]:
    for line, module in source.imports:
        if module.partition(".")[0] in IMPURE:
            yield f"{source}:{line} imports {module}"
    for node in source.nodes:
        if isinstance(node, ast.AsyncFunctionDef | ast.Await):
            yield f"{source}:{node.lineno} awaits"
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in IMPURE_CALLS:
                yield f"{source}:{node.lineno} calls {name}()"


def is_drawer(source: Source) -> bool:
    return source.path.stem in DRAWERS or source.path.stem.endswith(
        ("_utils", "_helpers", "_types")
    )


def test_arrows_point_one_way() -> None:
    assert [line for source in product() for line in wrong_arrows(source)] == []


@pytest.mark.parametrize("folder", OURS)
def test_each_folder_needs_what_it_may_import(folder: str) -> None:
    own = [source for source in product() if folder_of(source) == folder]
    assert [*unused(folder, own)] == []


def test_the_table_of_arrows_is_current() -> None:
    assert table() in (ROOT / "ARCHITECTURE.md").read_text("utf-8")


def test_nothing_is_imported_by_an_old_name() -> None:
    found = [line for source in (*product(), *suite()) for line in old_names(source)]
    assert found == []


def test_each_module_is_loaded_once() -> None:
    """Also those that are read by need: nothing is loaded twice under two names."""
    modules = [*modules_of("queuegate/log"), *(name for at in LINKED for name in modules_of(at))]
    loading = (
        "import importlib, json, os, sys\n"
        "for name in json.load(sys.stdin): importlib.import_module(name)\n"
        "files = [getattr(module, '__file__', None) for module in sys.modules.values()]\n"
        "ours = [os.path.realpath(at) for at in files if (at or '').startswith(os.getcwd())]\n"
        "print(json.dumps([len(ours), len({*ours}), sorted({*sys.modules} & {*sys.argv})]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", loading, *OLD_NAMES],
        cwd=ROOT,
        input=json.dumps(modules),
        capture_output=True,
        text=True,
        check=True,
    )
    loaded, files, old = json.loads(done.stdout)
    assert (loaded, old) == (files, [])
    assert loaded > len(modules) / 2


def modules_of(folder: str) -> list[str]:
    """Return the dotted names of a folder's modules."""
    source = ROOT / folder.removeprefix("queuegate/") if folder in LINKED else ROOT / folder
    files = [file.relative_to(source).with_suffix("") for file in source.rglob("*.py")]
    dotted = [".".join((*folder.split("/"), *file.parts)) for file in files]
    return [name.removesuffix(".__init__") for name in dotted]


def test_each_folder_imports_only_the_packages_it_may() -> None:
    assert [line for source in product() for line in wrong_packages(source)] == []


def test_what_is_pure_stays_so() -> None:
    sources = [source for source in product() if str(source).startswith(PURE)]
    assert [line for source in sources for line in impurities(source)] == []


def test_the_client_of_logs_loads_nothing_of_the_gateway() -> None:
    loading = "import sys, queuegate.log, queuegate.log.sync; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", loading], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = {name for name in done.stdout.split() if name.partition(".")[0] in PACKAGES}
    assert "queuegate.log.subscriber" in found
    assert {name for name in found if not name.startswith("queuegate.log.")} <= {
        "queuegate",
        "queuegate.log",
    }


def test_no_module_is_a_drawer() -> None:
    assert [str(source) for source in (*product(), *suite()) if is_drawer(source)] == []


def test_the_checks_can_fail() -> None:
    faces, operations = "gateway/faces/planted.py", "gateway/operations/planted.py"
    assert [*wrong_arrows(planted("import queuegate.gateway.operations", "storage/planted.py"))]
    assert [*wrong_arrows(planted("from queuegate.storage.queues import standard_lanes", faces))]
    assert not [*wrong_arrows(planted("from queuegate.storage import model", faces))]
    assert [*wrong_arrows(planted("from queuegate.gateway.faces import aws", operations))]
    assert [
        *wrong_arrows(planted("from queuegate.gateway.configuration import settings", operations))
    ]
    assert [*wrong_arrows(planted("import queuegate.scheduler.worker"))]
    assert [*wrong_arrows(planted("from queuegate.scheduler import worker", operations))]
    assert not [*wrong_arrows(planted("import queuegate.scheduler.worker", MAY_IMPORT_SCHEDULER))]
    assert [*unused("gateway/faces", [planted("from queuegate.storage import model", faces)])]
    assert [*wrong_arrows(planted("import queuegate.storage", "protocol/planted.py"))]
    assert [*wrong_arrows(planted("from . import config"))]
    assert [*wrong_packages(planted("import starlette.requests", operations))]
    assert [*wrong_packages(planted("import requests", "protocol/planted.py"))]
    assert [*old_names(planted("from storage.queues import fifo"))]
    for text in ("import os", "async def f(): ...", "now = datetime.now()", "open('x')"):
        assert [*impurities(planted(text, "protocol/planted.py"))]
    assert is_drawer(planted("", "gateway/utils.py"))
    assert is_drawer(planted("", "gateway/queue_helpers.py"))

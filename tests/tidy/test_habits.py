"""Habits: who reads the environment, who catches everything, where SQL is, and how tests wait."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.tidy.source import Source, planted, product, suite

READS_THE_ENVIRONMENT = {
    # PGHOST and others, which asyncpg reads for whatever the URL does not say.
    "storage/database_hosts.py",
    "spark_connectors/signed_service.py",
    "gateway/configuration/settings.py",
    # A distribution of its own, which starts a gateway for tests with their variables.
    "queuegate/testing.py",
    "queuegate/pytest_plugin/queuegate_pytest/accounts.py",
    "queuegate/pytest_plugin/queuegate_pytest/container.py",
    "queuegate/pytest_plugin/queuegate_pytest/without_pytest.py",
    "queuegate/pytest_plugin/queuegate_pytest/plugin.py",
    "queuegate/pytest_plugin/queuegate_pytest/running_gateway.py",
    "queuegate/pytest_plugin/queuegate_pytest/web_hooks.py",
    # Sets what a worker of Spark goes by when it ends.
    "spark_connectors/errors.py",
}
# The outermost handlers: here a bug becomes a 500, or fails its entry, or waits for the next round.
CATCHES_EVERYTHING = {
    # What a consumer's function raises gives its record back.
    "queuegate/log/subscriber.py",
    "gateway/faces/aws/aws_face.py",
    "gateway/faces/json/json_face.py",
    "gateway/http/fast_path.py",
    "gateway/http/hot_routes.py",
    "gateway/pages/operator_pages.py",
    "gateway/pages/swap_in_pages.py",
    # The report of a failed test, also where its gateway is gone.
    "queuegate/pytest_plugin/queuegate_pytest/accounts.py",
    # A receive goes on in a task of its own once it has to wait for an ordinary transaction.
    "gateway/operations/queues/receives.py",
    # So does a publish that has to look something up first.
    "gateway/operations/topics/topic_publishing.py",
    # Loops that must not end: long polls, or workers, would no longer be woken.
    "gateway/operations/runtime/wakeups.py",
    # Attempts to deliver, and the loop around them.
    "scheduler/webhook_worker.py",
    # Loops that feed queues and fire schedules; one schedule among many that are fired together.
    "scheduler/schedule_rounds.py",
    "scheduler/worker.py",
    # Threads beside a stream: what ends one is told by the next call of the reader.
    "spark_connectors/source/collector.py",
    "spark_connectors/source/deleter.py",
    "storage/lanes.py",
}
# Where tests wait for what tells nobody.
WAITS = {"tests/waiting.py"}
_OPENS_SOCKETS = {"create_server", "socket"}
_ONLY_PICKS = {"bind", "getsockname", "int", "setsockopt", "str"}
SQL = re.compile(
    r"\s*(SELECT\s|INSERT\s+INTO\s|UPDATE\s+\w+\s+SET\s|DELETE\s+FROM\s|WITH\s+\w+\s+AS\s|LISTEN\s"
    r"|NOTIFY\s|TRUNCATE\s|COPY\s|(CREATE|ALTER|DROP)\s+[A-Z]+\s|BEGIN\b|COMMIT\b|SET\s+[a-z])"
)


def environment_reads(source: Source) -> Iterator[str]:
    for node in source.nodes:
        name = getattr(node, "attr", None) or getattr(node, "id", None)
        if name in {"environ", "getenv", "environb"} and isinstance(node, ast.Attribute):
            yield f"{source}:{node.lineno} reads the environment"
    for line, module in source.imports:
        if module in {"os.environ", "os.getenv"}:
            yield f"{source}:{line} reads the environment"


def broad_handlers(source: Source) -> Iterator[str]:
    for node in source.nodes:
        if isinstance(node, ast.ExceptHandler):
            caught = ast.unparse(node.type) if node.type is not None else "everything"
            reraises = any(isinstance(inner, ast.Raise) and not inner.exc for inner in node.body)
            if caught in {"Exception", "BaseException", "everything"} and not reraises:
                yield f"{source}:{node.lineno} catches {caught}"


def sql_in_python(source: Source) -> Iterator[str]:
    for node in source.strings:
        if SQL.match(str(node.value)):
            yield f"{source}:{node.lineno} has SQL: {str(node.value)[:40]!r}"


def waits(source: Source) -> Iterator[str]:
    """Calls of `sleep`, and loops that look again and again without a pause."""
    for node in source.nodes:
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
            if name == "sleep":
                yield f"{source}:{node.lineno} sleeps"
        if isinstance(node, ast.While) and all(isinstance(part, ast.Pass) for part in node.body):
            yield f"{source}:{node.lineno} spins"


def picked_ports(source: Source) -> Iterator[str]:
    """Sockets that are closed again as soon as their port is known: another process takes it."""
    for node in source.nodes:
        if not isinstance(node, ast.With):
            continue
        opened = {_called(item.context_expr) for item in node.items}
        inside = [inner for part in node.body for inner in ast.walk(part)]
        called = {_called(inner) for inner in inside} - {""}
        is_held = any(isinstance(inner, ast.Yield) for inner in inside)
        picks = "getsockname" in called and called <= _ONLY_PICKS and not is_held
        if picks and opened & _OPENS_SOCKETS:
            yield f"{source}:{node.lineno} picks a port and lets it go"


def _called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    name: str = getattr(node.func, "attr", None) or getattr(node.func, "id", None) or "?"
    return name


def missing_docstring(source: Source) -> Iterator[str]:
    if source.text.strip() and ast.get_docstring(source.tree) is None:
        yield f"{source} does not say what it is for"


def test_only_config_reads_the_environment() -> None:
    others = [source for source in product() if str(source) not in READS_THE_ENVIRONMENT]
    assert [line for source in others for line in environment_reads(source)] == []


def test_only_outermost_handlers_catch_everything() -> None:
    others = [source for source in product() if str(source) not in CATCHES_EVERYTHING]
    assert [line for source in others for line in broad_handlers(source)] == []


def test_the_list_of_outermost_handlers_is_current() -> None:
    catching = {str(source) for source in product() if [*broad_handlers(source)]}
    assert catching == CATCHES_EVERYTHING


def test_sql_is_in_sql_files() -> None:
    assert [line for source in product() for line in sql_in_python(source)] == []


def test_tests_wait_in_one_way() -> None:
    # The bench and the run of failovers are no tests: they wait for a load to pass.
    loads = {("tests", "bench"), ("tests", "failover")}
    sources = [source for source in suite() if source.path.parts[:2] not in loads]
    found = [source for source in sources if str(source) not in WAITS]
    assert [line for source in found for line in waits(source)] == []


def test_no_test_picks_a_port_before_it_binds_it() -> None:
    """Gateways print the port that they bound; `tests.ports.reserved_port` holds one for others."""
    assert [line for source in suite() for line in picked_ports(source)] == []


def test_each_module_says_what_it_is_for() -> None:
    assert [line for source in product() for line in missing_docstring(source)] == []


def test_the_checks_can_fail() -> None:
    assert [*environment_reads(planted("import os\nos.environ['A']"))]
    assert [*environment_reads(planted("from os import getenv"))]
    assert [*broad_handlers(planted("try: ...\nexcept Exception: ..."))]
    assert [*broad_handlers(planted("try: ...\nexcept: ..."))]
    assert not [*broad_handlers(planted("try: ...\nexcept BaseException:\n    x\n    raise"))]
    assert [*sql_in_python(planted("x = 'SELECT 1 FROM t'"))]
    assert [*sql_in_python(planted("x = f'DELETE FROM {t}'"))]
    assert not [*sql_in_python(planted('def f():\n    """SELECT x FROM t"""'))]
    assert [*waits(planted("import time\ntime.sleep(1)"))]
    assert [*waits(planted("await asyncio.sleep(0)"))]
    assert [*waits(planted("while not done():\n    pass"))]
    assert not [*waits(planted("while not done():\n    work()"))]
    picking = "with socket.create_server(('', 0)) as s:\n    p = s.getsockname()[1]"
    assert [*picked_ports(planted(picking))]
    assert [*picked_ports(planted("with socket() as s:\n    s.bind(x)\n    p = s.getsockname()"))]
    assert not [*picked_ports(planted(f"{picking}\n    serve(s)"))]
    assert not [*picked_ports(planted(f"{picking}\n    yield p"))]
    assert [*missing_docstring(planted("import os"))]

"""Tasks that die, run twice, or come late; drivers and queries that share what they must not."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.spark import cluster
from tests.spark.clocks import Clock
from tests.spark.crash.jobs import Running
from tests.spark.crash.points import Plan
from tests.spark.crash.scenario import (
    MODEL,
    SPARK,
    VISIBILITY_SECONDS,
    Runner,
    Scenario,
    compared,
)
from tests.spark.waiting import wait_for

# The default is less than what a single run may take.
pytestmark = pytest.mark.timeout(900)

modes = pytest.mark.parametrize("mode", ["driver", "executor"])
Make = Callable[..., Scenario]
# A batch that takes longer than the visibility timeout.
SLOW = VISIBILITY_SECONDS + 5
# Every task may fail four times.
WITH_RETRIES = "local[2,4]"
# A second attempt as soon as one task of a stage is done and another is not.
EAGER_SPECULATION = (
    ("spark.speculation", "true"),
    ("spark.speculation.quantile", "0.1"),
    ("spark.speculation.multiplier", "1.1"),
    ("spark.speculation.minTaskRuntime", "100ms"),
    ("spark.speculation.interval", "100ms"),
    ("spark.executor.memory", "512m"),
)


@pytest.fixture
def make(gateway: str, make_queue: Callable[..., str], clock: Clock, tmp_path: Path) -> Make:
    """A scenario with a queue of its own, of the name of a directory."""

    def scenario(runner: Runner, mode: str, name: str = "scenario", **options: object) -> Scenario:
        given = {"receiveMode": mode, **options}
        url = str(given.pop("queueUrl", "")) or make_queue(gateway)
        return Scenario(gateway, url, tmp_path / name, runner=runner, clock=clock, **given)

    return scenario


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("mode", "point"),
    [("driver", "read"), ("executor", "received"), ("executor", "after segments")],
)
def test_a_worker_is_killed_in_a_task(make: Make, mode: str, point: str) -> None:
    """Spark runs the task again; the query does not notice."""
    scenario = make(SPARK, mode)
    scenario.send(100)
    job = scenario.job._replace(master=WITH_RETRIES)
    scenario.start(Plan(point, 2, action="fall"), job).ends_well()
    scenario.drain()


@contextlib.contextmanager
def two_machines(directory: Path) -> Iterator[str]:
    """A cluster whose workers have addresses of their own, as Spark runs no second attempt on the
    machine of the first; gives the master's URL."""
    launch = [str(cluster.SPARK_HOME / "bin/spark-class")]
    deploy = "org.apache.spark.deploy"
    with contextlib.ExitStack() as stack:

        def run(what: str, host: str, ready: str, *more: str) -> str:
            ports = ["--host", host, "--port", "0", "--webui-port", "0"]
            bare = cluster.bare_environment(SPARK_DAEMON_MEMORY="256m")
            matched = stack.enter_context(
                cluster.running(
                    [*launch, f"{deploy}.{what}", *ports, *more],
                    directory / f"{what}-{host}.log",
                    ready=ready,
                    environment={**bare, "SPARK_LOCAL_IP": host},
                )
            )
            return matched[matched.lastindex or 0]

        master = run("master.Master", "127.0.0.1", r"Starting Spark master at (spark://\S+)")
        for number in (2, 3):
            where = str(directory / f"work-{number}")
            registered = "Successfully registered with master"
            work = ["--cores", "1", "--memory", "600m", "--work-dir", where, master]
            run("worker.Worker", f"127.0.0.{number}", registered, *work)
        yield master


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("point", ["received", "before segments", "after segments"])
def test_the_second_attempt_of_a_task_is_faster(make: Make, tmp_path: Path, point: str) -> None:
    """The first has received messages and hangs; when it goes on, its slot may be filled."""
    scenario = make(SPARK, "executor", visibilityTimeout=20)
    scenario.send(100)
    plan = Plan(point, 1, action="hang")
    (tmp_path / "cluster").mkdir()
    with two_machines(tmp_path / "cluster") as master:
        settings = (*EAGER_SPECULATION, *plan_for_executors(scenario.directory / "run-0/plan"))
        job = scenario.job._replace(master=master, settings=settings, is_available_now=False)
        running = scenario.start(plan, job)
        # The first batch is committed although one attempt hangs: there was another.
        wait_for((scenario.checkpoint / "commits/0").exists, 240)
        (running.plan_directory / "go").touch()
        wait_for(lambda: len(scenario.rows()) >= 100, 120)
        running.kill()
    scenario.drain()


def plan_for_executors(plan: Path) -> list[tuple[str, str]]:
    """Executors of a cluster get their variables by name."""
    from tests.spark.crash.points import VARIABLE

    variables = {
        **cluster.credentials("http://127.0.0.1"),
        "PYTHONPATH": str(cluster.ROOT),
        VARIABLE: str(plan),
    }
    return [(f"spark.executorEnv.{name}", value) for name, value in variables.items()]


@modes
def test_two_drivers_of_one_checkpoint(make: Make, mode: str) -> None:
    """One at least ends, and says why; what they did together is right."""
    both_run(make(MODEL, mode))


@pytest.mark.soak
@pytest.mark.timeout(900)
@modes
def test_two_drivers_of_one_checkpoint_in_spark(make: Make, mode: str) -> None:
    both_run(make(SPARK, mode))


def both_run(scenario: Scenario) -> None:
    scenario.send(20)
    scenario.start().ends_well()
    job = scenario.job._replace(is_available_now=False)
    end_of_one(scenario, [scenario.start(job=job), scenario.start(job=job)])
    scenario.wait_visible()
    scenario.drain()


def end_of_one(scenario: Scenario, jobs: list[Running]) -> None:
    """Send until one of these jobs ends, and says why."""
    pause = threading.Event()
    rounds = 0
    while not any(one.has_ended for one in jobs):
        scenario.send(20)
        pause.wait(0.2)
        rounds += 1
        assert rounds < 600, "both go on"
    for one in jobs:
        if one.has_ended:
            assert says_why(one), one.log[-4000:]
        one.kill()


@modes
def test_a_driver_that_was_thought_dead_comes_back(make: Make, mode: str) -> None:
    """It was only held up, with messages in its hands; meanwhile another one went on."""
    scenario = make(MODEL, mode)
    job = scenario.job._replace(is_available_now=False)
    old = scenario.start(job=job)
    scenario.send(100)
    wait_for(lambda: len(scenario.rows()) >= 40)
    scenario.send(60)
    old.signal(signal.SIGSTOP)
    scenario.wait_visible()
    new = scenario.start(job=job)
    wait_for(lambda: len(scenario.rows()) >= 160)
    scenario.send(40)
    old.signal(signal.SIGCONT)
    # Whatever each of them does now: one at least has to end.
    end_of_one(scenario, [old, new])
    scenario.wait_visible()
    scenario.drain()


def says_why(job: Running) -> bool:
    """Return True if the log tells its reader that there are two."""
    clear = (
        "SpoolTaken",
        "SpoolMismatch",
        "FileExistsError",
        "CONCURRENT_STREAM_LOG_UPDATE",
        "concurrently",
    )
    return any(word in job.log for word in clear)


@modes
def test_two_queries_of_one_spool(make: Make, mode: str) -> None:
    """The second, with a checkpoint of its own, is refused as long as the first has not failed."""
    first = make(MODEL, mode)
    first.send(50)
    first.start().ends_well()
    second = make(MODEL, mode, "second", queueUrl=first.url, spoolPath=first.spool)
    running = second.start()
    assert running.wait() == 1
    assert "SpoolMismatch" in running.log
    first.drain()
    other = make(MODEL, mode, "other", spoolPath=first.spool)
    running = other.start()
    assert running.wait() == 1
    assert "SpoolMismatch" in running.log


def test_two_queries_that_begin_at_once(make: Make) -> None:
    """None has committed anything yet: what one has written ends the other."""
    first = make(MODEL, "driver")
    second = make(MODEL, "driver", "second", queueUrl=first.url, spoolPath=first.spool)
    both = (first, second)
    end_of_one(first, [one.start(job=one.job._replace(is_available_now=False)) for one in both])


@modes
def test_a_batch_longer_than_the_visibility_timeout(make: Make, mode: str) -> None:
    scenario = make(MODEL, mode)
    scenario.send(120)
    slow = scenario.job._replace(is_available_now=False, batch_seconds=SLOW)
    running = scenario.start(job=slow)
    wait_for(lambda: len(scenario.rows()) >= 120, 120)
    running.kill()
    scenario.drain()


@modes
@pytest.mark.parametrize("delete_mode", ["commit", "spool"])
def test_a_slow_batch_and_a_restart(make: Make, mode: str, delete_mode: str) -> None:
    """A delete with an expired receipt is answered well and does nothing: the ids remain."""
    scenario = make(MODEL, mode, deleteMode=delete_mode, spoolRetentionBatches=0)
    scenario.send(80)
    slow = scenario.job._replace(batch_seconds=SLOW)
    scenario.start(Plan("deleted", 2), slow).dies()
    scenario.wait_visible()
    scenario.start(Plan("committed", 1), slow).dies()
    scenario.drain()
    rows = [body for body, _, _ in scenario.rows()]
    assert compared(scenario.sent, rows) == ([], [])


def test_ids_are_kept_as_long_as_they_were_asked_for(make: Make, clock: Clock) -> None:
    scenario = make(MODEL, "driver", dedupeWindow=3, spoolRetentionBatches=0)
    scenario.send(10)
    scenario.start().ends_well()
    first = scenario.contents().ids
    assert first
    until = max(kept.forget_at for kept in first.values())
    assert until <= time.time() + 4
    clock.advance(until - time.time() + 1)
    # The next batch that is done takes them away.
    scenario.send(10)
    scenario.drain()
    assert not first.keys() & scenario.contents().ids.keys()

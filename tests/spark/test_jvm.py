"""JVM code in Spark with the AWS SDK for Java: three ways to name the gateway as its endpoint.

The SDK comes from Maven's repository. Where that cannot be reached there is nothing to test.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark import cluster
from tests.spark.queues import client_of

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]

HERE = Path(__file__).parent / "jvm"
SDK = "2.51.3"
PACKAGES = [
    *("--packages", f"software.amazon.awssdk:sqs:{SDK},software.amazon.awssdk:sns:{SDK}"),
    # Spark has its own.
    *("--exclude-packages", "org.slf4j:slf4j-api"),
    *("--conf", f"spark.jars.ivy={cluster.IVY}"),
]
COUNT = 60
PARTITIONS = 4


def variables_for(way: str, gateway: str) -> dict[str, str]:
    """Variables for driver and executors; only one way has the endpoint in them."""
    variables = cluster.credentials(gateway)
    if way == "environment":
        return variables
    return {name: variables[name] for name in variables if "ENDPOINT" not in name}


def settings_for(way: str, gateway: str) -> list[str]:
    """Return the settings of `spark-submit`; a cluster does not pass the driver's variables on."""
    variables = variables_for(way, gateway)
    settings = [f"spark.executorEnv.{name}={variables[name]}" for name in variables]
    if way == "property":
        options = f"-Daws.endpointUrlSqs={gateway} -Daws.endpointUrlSns={gateway}"
        settings.append(f"spark.driver.extraJavaOptions={options}")
        settings.append(f"spark.executor.extraJavaOptions={options}")
    return [word for setting in settings for word in ("--conf", setting)]


@pytest.fixture(scope="module")
def sdk(gateway: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Return the results of PySpark's driver with the SDK, with the endpoint in code.

    Skips every test here when the SDK cannot be downloaded.
    """
    created = client_of("sqs", gateway).create_queue(QueueName=f"spark-jvm-{os.getpid()}")
    job = [str(HERE / "driver.py"), gateway, created["QueueUrl"], "5"]
    try:
        printed = cluster.submit(
            ["--master", "local[2]", *PACKAGES, *job],
            tmp_path_factory.mktemp("sdk"),
            environment=cluster.bare_environment(**variables_for("code", gateway)),
        )
    except AssertionError as failure:
        missing = re.search(r"unresolved dependency: \S+", str(failure))
        if missing is None:
            raise
        pytest.skip(f"Maven's repository cannot be reached: {missing[0]}")
    return cluster.result_of(printed)


@pytest.fixture(scope="module")
def job(sdk: dict[str, object], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """QueueJob.java, compiled against Spark's jars and the SDK."""
    directory = tmp_path_factory.mktemp("job")
    assert isinstance(sdk["jars"], list)
    jars = [name.removeprefix("file://") for name in sdk["jars"]]
    classes = directory / "classes"
    compiler = ["javac", "-Xlint:all,-path", "-Werror", "-d", str(classes)]
    path = os.pathsep.join([f"{cluster.SPARK_HOME}/jars/*", *jars])
    subprocess.run([*compiler, "-cp", path, str(HERE / "QueueJob.java")], check=True)
    jar = directory / "job.jar"
    subprocess.run(["jar", "--create", "--file", str(jar), "-C", str(classes), "."], check=True)
    return jar


@pytest.fixture(scope="module")
def master(sdk: dict[str, object], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster.standalone(tmp_path_factory.mktemp("cluster")) as url:
        yield url


def test_pyspark_reaches_the_sdk_through_the_jvm(sdk: dict[str, object]) -> None:
    assert sdk["bodies"] == [f"driver {number}" for number in range(5)]


@pytest.mark.parametrize("way", ["environment", "property", "code"])
def test_a_java_job_uses_queues_and_topics_on_driver_and_executors(
    way: str, *, job: Path, master: str, gateway: str, tmp_path: Path
) -> None:
    sqs, sns = client_of("sqs", gateway), client_of("sns", gateway)
    name = f"spark-java-{way}-{os.getpid()}"
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    heard = sqs.create_queue(QueueName=f"{name}-heard")["QueueUrl"]
    topic = sns.create_topic(Name=name)["TopicArn"]
    listener = topic.replace(":sns:", ":sqs:") + "-heard"
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=listener)

    arguments = [name, topic, str(COUNT), *([gateway] if way == "code" else [])]
    options = ["--master", master, *PACKAGES, *settings_for(way, gateway)]
    printed = cluster.submit(
        [*options, "--class", "QueueJob", str(job), *arguments],
        tmp_path,
        environment=cluster.bare_environment(**variables_for(way, gateway)),
    )

    expected = {"received": COUNT + 1, "distinct": COUNT + 1, "from_driver": True}
    assert cluster.result_of(printed) == expected
    assert cluster.depth(client_of("sqs", gateway), url) == 0
    assert cluster.depth(client_of("sqs", gateway), heard) == 1 + PARTITIONS


def test_a_scala_shell_uses_queues(sdk: dict[str, object], gateway: str, tmp_path: Path) -> None:
    name = f"spark-scala-{os.getpid()}"
    url = client_of("sqs", gateway).create_queue(QueueName=name)["QueueUrl"]
    variables = {**variables_for("environment", gateway), "QUEUE_NAME": name}
    printed = cluster.run(
        [
            str(cluster.SPARK_HOME / "bin/spark-shell"),
            *("--master", "local[2]", "--driver-memory", "1g"),
            *("--conf", "spark.ui.enabled=false", *PACKAGES),
            *("-i", str(HERE / "shell.scala")),
        ],
        tmp_path,
        environment=cluster.bare_environment(**variables),
    )
    assert cluster.result_of(printed) == {"received": 20, "distinct": 20}
    assert cluster.depth(client_of("sqs", gateway), url) == 0

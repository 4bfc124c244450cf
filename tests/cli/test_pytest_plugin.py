"""queuegate-pytest in sessions of pytest, and `python -m queuegate.testing`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import Gateway, environment
from tests.faces.connections import Closed, fetch
from tests.waiting import until

_PLUGIN = Path(__file__).parents[2] / "queuegate" / "pytest_plugin"

_SUITE = """
import boto3
import pytest


def test_time_passes_at_once(queues, clock):
    orders = queues.create("orders", dead_letters_after=2)
    orders.send("order 42")
    for _ in range(3):
        orders.receive()
        clock.advance("31s")
    assert [one.body for one in orders.dead_letters.peek()] == ["order 42"]
    clock.put_back()


def test_fifo_queues_and_json(queues, peek):
    orders = queues.create("orders", fifo=True, VisibilityTimeout=7)
    orders.send({"order": 42}, MessageGroupId="a")
    assert [one.json() for one in peek("orders.fifo")] == [{"order": 42}]
    assert [one.json() for one in orders.receive(delete=True)] == [{"order": 42}]
    assert peek("orders.fifo") == []


def test_code_under_test_finds_the_account(aws, outbox):
    boto3.client("sns").publish(PhoneNumber="+15550100", Message="hello")
    assert [one["body"] for one in outbox.all(protocol="sms")] == ["hello"]
    outbox.clear()
    assert outbox.all() == []
    assert boto3.client("sts").get_caller_identity()["Account"] == aws.account_id


def test_a_web_hook_is_confirmed_and_retried(aws, clock, hooks, wait_for):
    topic = aws.sns.create_topic(Name="news")["TopicArn"]
    aws.sns.subscribe(TopicArn=topic, Protocol="http", Endpoint=hooks.url)

    def arn():
        [found] = aws.sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]
        return found["SubscriptionArn"].startswith("arn:")

    wait_for(arn)
    hooks.statuses = [500]
    aws.sns.publish(TopicArn=topic, Message="hello")
    wait_for(lambda: not hooks.statuses)
    clock.advance("30s")
    assert [one.message for one in hooks.wait()] == ["hello"]


@pytest.mark.queuegate(policies=True)
def test_policies_are_enforced(aws, queues):
    orders = queues.create("orders")
    topic = aws.sns.create_topic(Name="news")["TopicArn"]
    aws.sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=orders.arn)
    aws.sns.publish(TopicArn=topic, Message="hello")
    assert orders.peek() == []


@pytest.mark.parametrize("number", range(4))
def test_all_workers_use_one_gateway(queuegate, number, tmp_path_factory):
    with open(%r, "a") as urls:
        print(queuegate.url, file=urls)


def test_one_fails(queues):
    queues.create("orders").send("shown in the report")
    assert not "this fails"
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = ["-p", "queuegate_pytest.plugin", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *words, *arguments, str(folder)],
        env=environment(PYTHONPATH=str(_PLUGIN)),
        capture_output=True,
        text=True,
        check=False,
    )


def is_gone(url: str) -> bool:
    try:
        return fetch(url, "/livez").status != 200
    except (OSError, Closed):
        return True


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_suite_has_one_gateway_that_ends_with_it(tmp_path: Path, workers: str) -> None:
    urls = tmp_path / "urls"
    (tmp_path / "test_orders.py").write_text(_SUITE % str(urls))
    done = run_pytest(tmp_path, "-n", workers)
    assert "1 failed, 9 passed" in done.stdout, done.stdout + done.stderr
    assert "orders: 1 messages" in done.stdout
    assert "visible, received 0 times: 'shown in the report'" in done.stdout
    [url] = {*urls.read_text().split()}
    until(lambda: is_gone(url), bool)


def test_an_unknown_argument_of_the_marker_is_refused(tmp_path: Path) -> None:
    suite = "import pytest\n@pytest.mark.queuegate(cooldown=True)\ndef test_it(aws): ...\n"
    (tmp_path / "test_it.py").write_text(suite)
    done = run_pytest(tmp_path)
    assert "queuegate(cooldown=…): its arguments are policies and cooldowns" in done.stdout


def test_a_gateway_ends_with_its_parent_and_not_before() -> None:
    words = [sys.executable, "-m", "queuegate.testing", "--parent"]
    with subprocess.Popen(["sleep", "3600"]) as parent:
        try:
            with subprocess.Popen(
                [*words, str(parent.pid)],
                env=environment(QUEUEGATE_REGION="eu-west-1"),
                stdout=subprocess.PIPE,
                text=True,
            ) as gateway:
                assert gateway.stdout is not None
                printed = json.loads(gateway.stdout.readline())
                assert printed.keys() == {"url", "pid"}
                assert fetch(printed["url"], "/readyz").status == 200
                assert printed["pid"] == gateway.pid
                parent.kill()
                parent.wait()
                assert gateway.wait(60) == 0
        finally:
            parent.kill()


def run_program(program: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env=environment(PYTHONPATH=str(_PLUGIN), **more),
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_account_needs_no_pytest() -> None:
    done = run_program(
        "from queuegate_pytest import Account, running\n"
        "with running() as gateway, Account(gateway.url) as aws:\n"
        "    print(aws.sqs.create_queue(QueueName='orders')['QueueUrl'] == "
        "f'{gateway.url}/{aws.account_id}/orders')\n"
    )
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


def test_a_gateway_that_keeps_its_data_says_so(data: Path) -> None:
    with Gateway("--data", str(data)) as gateway:
        done = run_program(
            "from queuegate_pytest import Account, running\n"
            "with running() as gateway, Account(gateway.url) as aws: pass\n",
            QUEUEGATE_URL=gateway.url,
        )
    assert "POST" in done.stderr
    assert "403" in done.stderr
    assert "start with --ephemeral" in done.stderr

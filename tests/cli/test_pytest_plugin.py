"""queuegate-pytest in sessions of pytest, and `python -m queuegate.testing`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import Gateway, environment
from tests.faces.connections import Closed, fetch
from tests.waiting import until

_PLUGIN = Path(__file__).parents[2] / "queuegate" / "pytest_plugin"

_SUITE = """
import threading

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


@pytest.mark.parametrize("number", range(2))
def test_code_under_test_finds_the_account_of_each_test(aws, outbox, number):
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


def test_what_happens_is_waited_for(queues, wait_for):
    orders = queues.create("orders")

    def consume():
        while len(orders.receive(wait=20, delete=True)) == 0:
            pass

    consumers = [threading.Thread(target=consume) for _ in range(2)]
    for one in consumers:
        one.start()
    sent = [orders.send(text) for text in ("order 42", "order 43")]
    deleted = wait_for("deleted", queue="orders", count=2)
    assert {one["message_id"] for one in deleted} == {*sent}
    assert wait_for("sent,received", message_id=sent[0], count=2)[1]["kind"] == "received"
    for one in consumers:
        one.join()
    with pytest.raises(AssertionError, match="after 0.5 s it still was"):
        wait_for("expired", timeout=0.5)
    with pytest.raises(AssertionError, match="after 0.5 s it still was 0"):
        wait_for(lambda: 0, timeout=0.5)


ADDED = []


def test_requests_fail_so_often(aws, queues, faults):
    orders = queues.create("orders")
    rule = faults.add(operation="SendMessage", error="ThrottlingException", count=2)
    sdk = boto3.Session().client("sqs")
    assert sdk.send_message(QueueUrl=orders.url, MessageBody="x")["MessageId"]
    assert faults.fired(rule) == 2
    ADDED.append(faults.add(operation="SendMessage", error="RequestThrottled"))
    with pytest.raises(aws.sqs.exceptions.RequestThrottled):
        orders.send("x")


def test_faults_of_a_test_are_gone(aws, queues, faults):
    queues.create("orders").send("x")
    left = aws.admin("GET", "/_admin/faults")["faults"]
    assert not {one["id"] for one in left} & {*ADDED}


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

_SUITE_OF_MOTO = """
import os
import unittest

import boto3
import pytest
from queuegate_pytest import mock_aws

os.environ["AWS_DEFAULT_REGION"] = "eu-west-1"

def place(order):
    sqs = boto3.client("sqs")
    url = sqs.get_queue_url(QueueName="orders")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody=order)

@pytest.fixture
def orders():
    with mock_aws():
        yield boto3.resource("sqs").create_queue(QueueName="orders")

def test_fixture(orders):
    place("42")
    [m] = orders.receive_messages()
    assert m.body == "42"
    assert orders.attributes["QueueArn"] == "arn:aws:sqs:eu-west-1:123456789012:orders"

@mock_aws
def test_bare():
    assert "QueueUrls" not in boto3.client("sqs").list_queues()
    boto3.client("sqs").create_queue(QueueName="orders")
    with mock_aws():
        assert "QueueUrls" in boto3.client("sqs").list_queues()
    assert "QueueUrls" in boto3.client("sqs").list_queues()

@mock_aws()
def test_called():
    assert "QueueUrls" not in boto3.client("sqs").list_queues()

@mock_aws
class TestPlain:
    def test_a(self):
        boto3.client("sqs").create_queue(QueueName="a")
        assert len(boto3.client("sqs").list_queues()["QueueUrls"]) == 1
    def test_b(self):
        boto3.client("sqs").create_queue(QueueName="b")
        assert len(boto3.client("sqs").list_queues()["QueueUrls"]) == 1

@mock_aws
class Case(unittest.TestCase):
    def setUp(self):
        self.sqs = boto3.client("sqs")
        self.sqs.create_queue(QueueName="a")
    def test_a(self):
        assert len(self.sqs.list_queues()["QueueUrls"]) == 1
    def test_b(self):
        assert len(self.sqs.list_queues()["QueueUrls"]) == 1

def test_environment_is_back():
    assert "AWS_ENDPOINT_URL" not in os.environ
"""


def run_pytest(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    words = ["-p", "queuegate_pytest.plugin", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *words, *arguments, str(folder)],
        env=environment(PYTHONPATH=str(_PLUGIN), **more),
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
    assert "1 failed, 13 passed" in done.stdout, done.stdout + done.stderr
    assert "orders: 1 messages" in done.stdout
    assert "visible, received 0 times: 'shown in the report'" in done.stdout
    [url] = {*urls.read_text().split()}
    until(lambda: is_gone(url), bool)


def test_a_suite_of_moto_needs_another_import_and_nothing_else(tmp_path: Path) -> None:
    """Starts a gateway and a pytest with boto3."""
    (tmp_path / "test_orders.py").write_text(_SUITE_OF_MOTO)
    done = run_pytest(tmp_path)
    assert "8 passed" in done.stdout, done.stdout + done.stderr


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


_CASES = """
import os
import unittest

import boto3

from queuegate_pytest import with_queuegate


@with_queuegate
class OrderTest(unittest.TestCase):
    def setUp(self):
        self.orders = self.aws.queues.create("orders", dead_letters_after=1)

    def test_time_passes_at_once(self):
        boto3.client("sqs").send_message(QueueUrl=self.orders.url, MessageBody="order 42")
        for _ in range(2):
            self.orders.receive()
            self.aws.clock.advance("31s")
        self.assertEqual([one.body for one in self.orders.dead_letters.peek()], ["order 42"])

    def test_each_test_has_an_account(self):
        self.assertEqual(self.orders.peek(), [])

    @unittest.skip("not today")
    def test_nothing(self):
        raise AssertionError

    def test_one_fails(self):
        self.orders.send("shown in a note")
        self.fail("this fails")


class FunctionTest(unittest.IsolatedAsyncioTestCase):
    @with_queuegate(policies=True)
    def test_policies_are_enforced(self, aws):
        orders = aws.queues.create("orders")
        topic = aws.sns.create_topic(Name="news")["TopicArn"]
        aws.sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=orders.arn)
        aws.sns.publish(TopicArn=topic, Message="hello")
        self.assertEqual(orders.peek(), [])

    @with_queuegate
    async def test_coroutines(self, aws):
        self.assertEqual(aws.queues.create("orders").peek(), [])

    @with_queuegate
    async def test_skips(self, aws):
        self.skipTest("not here")


class BlockTest(unittest.TestCase):
    def test_the_environment_is_put_back(self):
        before = dict(os.environ, AWS_PROFILE="theirs")
        os.environ["AWS_PROFILE"] = "theirs"
        with with_queuegate() as outer, with_queuegate() as aws:
            self.assertNotIn("AWS_PROFILE", os.environ)
            os.environ["SOMETHING_ELSE"] = before["SOMETHING_ELSE"] = "kept"
            queue = boto3.client("sqs").create_queue(QueueName="orders")["QueueUrl"]
            self.assertEqual(queue, f"{aws.url}/{aws.account_id}/orders")
            self.assertNotEqual(outer.account_id, aws.account_id)
        self.assertEqual(dict(os.environ), before)

    def test_mistakes_are_named(self):
        with self.assertRaisesRegex(TypeError, "cooldown=.*: its arguments are policies"):
            with_queuegate(cooldown=True)
        with self.assertRaisesRegex(TypeError, "takes a TestCase or a function"):
            with_queuegate(dict)


if __name__ == "__main__":
    unittest.main()
"""


@pytest.mark.parametrize("runner", ["unittest", "pytest"])
def test_cases_of_unittest_have_accounts_and_one_gateway(tmp_path: Path, runner: str) -> None:
    (tmp_path / "test_cases.py").write_text(_CASES)
    if runner == "pytest":
        done = run_pytest(tmp_path)
        assert "1 failed, 6 passed, 2 skipped" in done.stdout, done.stdout + done.stderr
        assert "visible, received 0 times: 'shown in a note'" in done.stdout
        return
    done = run_program((tmp_path / "test_cases.py").read_text())
    assert "FAILED (failures=1, skipped=2)" in done.stderr, done.stderr
    assert "Ran 9 tests" in done.stderr
    assert "visible, received 0 times: 'shown in a note'" in done.stderr


_ENGINE = """#!{python}
# Stands for docker: runs the entrypoint of the checkout, with what `docker run` was told.
import os, re, signal, sys
from pathlib import Path

folder = Path({folder!r})
with (folder / "calls").open("a") as calls:
    print(*sys.argv[1:], file=calls)
if sys.argv[1] == "rm":
    os.kill(int((folder / sys.argv[-1]).read_text()), signal.SIGTERM)
    sys.exit()
words = sys.argv[2:]
if "missing" in words:
    sys.exit("Unable to find image 'missing:latest' locally")
name = words[words.index("--name") + 1]
published = words[words.index("--publish") + 1]
address, port, inside = re.fullmatch(r"([0-9.]+):([0-9]+):([0-9]+)", published).groups()
environ = {{"PATH": {path!r}, "QUEUEGATE_DATA_DIR": "/var/lib/queuegate"}}
environ |= dict(one.split("=", 1) for before, one in zip(words, words[1:]) if before == "--env")
(folder / name).write_text(str(os.getpid()))
arguments = words[words.index("queuegate:test") + 1:]
assert arguments[-1] == inside, arguments
os.execve("/bin/sh", ["sh", {entrypoint!r}, *arguments[:-1], port], environ)
"""


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """A folder with a program `docker`, and with a line in `calls` for each call of it."""
    text = _ENGINE.format(
        python=sys.executable,
        folder=str(tmp_path),
        path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        entrypoint=str(_PLUGIN.parents[1] / "deploy" / "docker-entrypoint.sh"),
    )
    (tmp_path / "docker").write_text(text)
    (tmp_path / "docker").chmod(0o755)
    return tmp_path


_IN_A_CONTAINER = """
from queuegate_pytest import Account, running
with running(QUEUEGATE_POLICIES="enforce") as gateway, Account(gateway.url) as aws:
    print(aws.sqs.create_queue(QueueName="orders")["QueueUrl"], aws.account_id)
    aws.clock.advance("1h")
"""


def test_a_container_is_a_gateway(engine: Path) -> None:
    path = f"{engine}{os.pathsep}{os.environ['PATH']}"
    done = run_program(_IN_A_CONTAINER, PATH=path, QUEUEGATE_IMAGE="queuegate:test")
    assert done.returncode == 0, done.stderr
    url, account = done.stdout.split()
    started, removed = (engine / "calls").read_text().splitlines()
    port = url.split(":")[2].partition("/")[0]
    assert url == f"http://127.0.0.1:{port}/{account}/orders"
    assert (
        f"--publish 127.0.0.1:{port}:9324 --add-host host.docker.internal:host-gateway" in started
    )
    assert "--env QUEUEGATE_POLICIES=enforce" in started
    assert started.endswith(" queuegate:test serve --ephemeral --port 9324")
    name = started.partition("--name ")[2].split()[0]
    assert removed == f"rm --force {name}"
    until(lambda: is_gone(f"http://127.0.0.1:{port}"), bool)


def test_one_container_serves_a_session_and_ends_with_it(tmp_path: Path, engine: Path) -> None:
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "test_it.py").write_text(
        "import pytest\n"
        "@pytest.mark.parametrize('number', range(4))\n"
        "def test_it(aws, queues, hooks, number):\n"
        "    assert queues.create('orders').peek() == []\n"
        "    assert hooks.url.startswith('http://host.docker.internal:')\n"
    )
    path = f"{engine}{os.pathsep}{os.environ['PATH']}"
    done = run_pytest(suite, "-n", "2", PATH=path, QUEUEGATE_IMAGE="queuegate:test")
    assert "4 passed" in done.stdout, done.stdout + done.stderr
    calls = (engine / "calls").read_text
    until(lambda: calls().count("\nrm --force ") == 1, bool)
    assert calls().count("run --rm ") == 1


@pytest.mark.parametrize(
    ("image", "has_engine", "text"),
    [
        ("queuegate:test", False, "QUEUEGATE_IMAGE=queuegate:test needs docker or podman"),
        ("missing", True, "Unable to find image 'missing:latest' locally"),
    ],
)
def test_a_container_that_cannot_start_says_why(
    engine: Path, image: str, text: str, *, has_engine: bool
) -> None:
    path = str(engine) if has_engine else str(engine / "nowhere")
    done = run_program(_IN_A_CONTAINER, PATH=path, QUEUEGATE_IMAGE=image)
    assert done.returncode == 1
    assert text in done.stderr
    assert "CannotStart" in done.stderr

"""An upgrade from the last release to the wheel in dist/packages, and the way back.

`make release-dry` runs it. Before the first release the last one is the commit 0ee7c60.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Self

import boto3  # type: ignore[import-untyped]
import pytest

from tests.cli.processes import Gateway, environment

ROOT = Path(__file__).resolve().parents[2]
WHEELS = os.environ.get("QUEUEGATE_TEST_WHEELS")
UV = ROOT / ".venvs/uv/bin/uv"
FIRST = "0ee7c60"

pytestmark = [
    pytest.mark.skipif(WHEELS is None, reason="make release-dry has the wheels for this"),
    pytest.mark.timeout(600),
]


def _run(*words: str | Path, cwd: Path = ROOT, given: bytes | None = None) -> bytes:
    return subprocess.run(words, cwd=cwd, input=given, check=True, stdout=subprocess.PIPE).stdout


def _last_release() -> str:
    tags = _run("git", "tag", "--list", "v*", "--sort=-v:refname", "--no-contains", "HEAD").split()
    return tags[0].decode() if tags else FIRST


def _installed(home: Path, wheel: Path, lock: Path) -> Path:
    """Install a wheel with the packages of its lock file; return the command."""
    _run(UV, "venv", "--quiet", "--python", ROOT / ".venv/bin/python", home)
    pip = (UV, "pip", "install", "--quiet", "--python", home / "bin/python")
    _run(*pip, "--require-hashes", "-r", lock)
    _run(*pip, "--no-deps", wheel)
    return home / "bin/queuegate"


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of the last release, of a wheel that is built here."""
    release = _last_release()
    place = tmp_path_factory.mktemp("before")
    archive = subprocess.run(["git", "archive", release], cwd=ROOT, stdout=subprocess.PIPE)
    if archive.returncode:
        pytest.skip(f"git has no {release} here: it is a clone without history")
    _run("tar", "-x", "-C", place, given=archive.stdout)
    pinned = ("--build-constraints", "requirements/build.txt", "--require-hashes")
    _run(UV, "build", "--quiet", "--wheel", *pinned, "--out-dir", place / "dist", ".", cwd=place)
    [wheel] = (place / "dist").glob("*.whl")
    return _installed(place / "venv", wheel, place / "requirements/run.txt")


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of the wheel that is to be released."""
    assert WHEELS is not None
    [wheel] = Path(WHEELS).glob("queuegate-*.whl")
    home = tmp_path_factory.mktemp("after")
    return _installed(home, wheel, ROOT / "requirements/run.txt")


class Release(Gateway):
    """A gateway of an installed command on this data."""

    def __init__(self, command: Path, data: Path) -> None:
        self._command = command
        super().__init__("--data", str(data), "--workers", "1")

    def command(self) -> list[str]:
        return [str(self._command), "serve"]

    def __enter__(self) -> Self:
        return self

    def ask(self, path: str, content: Any = None, method: str | None = None) -> Any:
        """Return the JSON of an answer, or its text; None if it is empty."""
        body = content.encode() if isinstance(content, str) else content
        if isinstance(content, dict):
            body = json.dumps(content).encode()
        headers = {"Authorization": "any", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, body, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read().decode()
            self.headers = answer.headers
        return json.loads(text) if text[:1] in ("{", "[") else text or None


class Faces:
    """A message on each of several faces of a gateway, sent and received."""

    def __init__(self, gateway: Release) -> None:
        self.gateway = gateway
        options = {
            "endpoint_url": gateway.url,
            "region_name": "us-east-1",
            "aws_access_key_id": "any",
            "aws_secret_access_key": "any",
        }
        self.sqs, self.sns, self.scheduler = (
            boto3.client(name, **options) for name in ("sqs", "sns", "scheduler")
        )

    def create(self) -> None:
        for name in ("plain", "audience", "native"):
            self.sqs.create_queue(QueueName=name)
        self.sqs.create_queue(QueueName="strict.fifo", Attributes={"FifoQueue": "true"})
        arn = self.sns.create_topic(Name="news")["TopicArn"]
        self.sns.subscribe(
            TopicArn=arn,
            Protocol="sqs",
            Endpoint="arn:aws:sqs:us-east-1:000000000000:audience",
            Attributes={"RawMessageDelivery": "true"},
        )
        self.gateway.ask("/api/queues", {"queue_name": "simple"})

    def send(self, text: str) -> None:
        sqs, ask = self.sqs, self.gateway.ask
        sqs.send_message(QueueUrl=self._url("plain"), MessageBody=text)
        for number in range(3):
            sqs.send_message(
                QueueUrl=self._url("strict.fifo"),
                MessageBody=f"{text}-{number}",
                MessageGroupId="group",
                MessageDeduplicationId=f"{text}-{number}",
            )
        [topic] = self.sns.list_topics()["Topics"]
        self.sns.publish(TopicArn=topic["TopicArn"], Message=text)
        ask("/v1/queues/native/messages", {"message": {"text": text}})
        ask("/v1/messages", {"channel": "channel", "payload": text, "priority": 3})
        ask(f"/api/queues/{self._simple()}/messages", {"data": text})
        ask(f"/queue?group-id=g&deduplication-id={text}", text)
        ask("/v1/logs/log/records", {"records": [{"key": "k", "payload": text}]})
        self.scheduler.create_schedule(
            Name=text,
            ScheduleExpression="at(2099-01-01T00:00:00)",
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={"Arn": "arn:aws:sqs:us-east-1:000000000000:plain", "RoleArn": _ROLE},
        )

    def take(self) -> dict[str, list[str]]:
        """Receive and delete one message of every face; logs and schedules are read."""
        ask = self.gateway.ask
        strict = [self._of_queue("strict.fifo") for _ in range(3)]
        native = ask("/v1/queues/native/messages?wait=5")
        for one in native:
            ask(f"/v1/queues/native/messages/{one['id']}", method="DELETE")
        channel = ask("/v1/messages/poll?channel=channel&wait=5")["messages"]
        ask("/v1/messages/ack", {"channel": "channel", "acks": [one["ack"] for one in channel]})
        simple = ask(f"/api/queues/{self._simple()}/messages")
        simple = simple.get("message", simple)
        ask(f"/api/queues/{self._simple()}/messages/{simple['message_id']}", method="DELETE")
        text = ask("/queue?wait=5")
        receipt = urllib.parse.quote(self.gateway.headers["Message-Receipt-Id"])
        ask(f"/queue?receipt-id={receipt}", method="DELETE")
        records = ask("/v1/logs/log/records?partition=0&from=0&max=10")["records"]
        return {
            "plain": self._of_queue("plain"),
            "strict": list(itertools.chain(*strict)),
            "topic": self._of_queue("audience"),
            "native": [one["message"]["text"] for one in native],
            "channel": [one["payload"] for one in channel],
            "simple": [simple["data"]],
            "text": [text],
            "log": [one["payload"] for one in records],
            "schedules": [one["Name"] for one in self.scheduler.list_schedules()["Schedules"]],
        }

    def _of_queue(self, name: str) -> list[str]:
        url = self._url(name)
        found = self.sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5).get("Messages", [])
        for one in found:
            self.sqs.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])
        return [one["Body"] for one in found]

    def _url(self, name: str) -> str:
        return f"{self.gateway.url}/000000000000/{name}"

    def _simple(self) -> str:
        queues = self.gateway.ask("/api/queues")["queues"]
        [simple] = [one["queue_id"] for one in queues if one["queue_name"] == "simple"]
        return str(simple)


_ROLE = "arn:aws:iam::000000000000:role/scheduler"


def _expected(text: str, *, so_far: list[str]) -> dict[str, list[str]]:
    once = ("plain", "topic", "native", "channel", "simple", "text")
    return {
        **{name: [text] for name in once},
        "strict": [f"{text}-{number}" for number in range(3)],
        "log": so_far,
        "schedules": sorted(so_far),
    }


def test_an_upgrade_keeps_all_messages_and_so_does_the_way_back(before: Path, after: Path) -> None:
    """It starts four gateways, each with its PostgreSQL."""
    with tempfile.TemporaryDirectory() as directory:
        # PostgreSQL's account has to reach its data.
        Path(directory).chmod(0o755)
        data, backup = Path(directory, "data"), Path(directory, "backup")
        with Release(before, data) as gateway:
            Faces(gateway).create()
            Faces(gateway).send("old")
            assert gateway.stop(signal.SIGTERM) == 0
        _run("cp", "-a", data, backup)
        with Release(after, data) as gateway:
            assert Faces(gateway).take() == _expected("old", so_far=["old"])
            Faces(gateway).send("new")
        # docs/how-to/upgrade.md, "Go back": migrations since have only added.
        with Release(before, data) as gateway:
            assert Faces(gateway).take() == _expected("new", so_far=["old", "new"])
        # The backup of before the upgrade, with the older version.
        with Release(before, backup) as gateway:
            assert Faces(gateway).take() == _expected("old", so_far=["old"])
        done = subprocess.run(
            [after, "doctor", "--data", str(data)],
            env=environment(),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr

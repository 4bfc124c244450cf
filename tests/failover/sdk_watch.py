"""boto3 with its default retries beside the loads: which errors its callers see."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import boto3  # type: ignore[import-untyped]
import botocore.config  # type: ignore[import-untyped]
import botocore.exceptions  # type: ignore[import-untyped]

MODES = ("legacy", "standard")
_PACE_SECONDS = 0.2


@dataclass
class Seen:
    """One call of boto3: when it began, how long it took, and the error that its caller got."""

    mode: str
    operation: str
    began: float
    seconds: float
    error: str = ""


@dataclass
class SdkWatch:
    """One thread for each retry mode. Calls that took no longer than a second are counted only."""

    ports: list[int]
    calls: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MODES, 0))
    seen: list[Seen] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(mode, self.ports[number % len(self.ports)]))
            for number, mode in enumerate(MODES)
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    def end(self) -> None:
        """Finish what is under way."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def between(self, since: float, until: float, mode: str) -> list[Seen]:
        """Return the slow and failed calls that began in this interval."""
        return [one for one in self.seen if one.mode == mode and since <= one.began < until]

    def _work(self, mode: str, port: int) -> None:
        client = boto3.session.Session().client(
            "sqs",
            endpoint_url=f"http://127.0.0.1:{port}",
            region_name="us-east-1",
            aws_access_key_id="any",
            aws_secret_access_key="any",
            config=botocore.config.Config(retries={"mode": mode}),
        )
        url = client.create_queue(QueueName=f"sdk-{mode}")["QueueUrl"]
        number = 0
        while not self._ended.wait(_PACE_SECONDS):
            number += 1
            with self._watching(mode, "SendMessage"):
                client.send_message(QueueUrl=url, MessageBody=str(number))
            answer = {}
            with self._watching(mode, "ReceiveMessage"):
                answer = client.receive_message(QueueUrl=url, MaxNumberOfMessages=10)
            for message in answer.get("Messages", []):
                with self._watching(mode, "DeleteMessage"):
                    client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    @contextlib.contextmanager
    def _watching(self, mode: str, operation: str) -> Iterator[None]:
        began, error = time.time(), ""
        try:
            yield
        except botocore.exceptions.ClientError as found:
            error = found.response["Error"]["Code"]
        except botocore.exceptions.BotoCoreError as found:
            error = type(found).__name__
        self.calls[mode] += 1
        seconds = time.time() - began
        if error or seconds > 1:
            self.seen.append(Seen(mode, operation, began, seconds, error))

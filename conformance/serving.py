"""A gateway of our own for the clients, on a free port and without a trace afterwards."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botocore.auth import SigV4Auth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.credentials import Credentials  # type: ignore[import-untyped]

_STOP_SECONDS = 30


class DidNotStart(Exception):
    """The gateway ended instead of serving; it has said why itself."""


@contextlib.contextmanager
def gateway(environ: Mapping[str, str], **settings: str) -> Iterator[str]:
    """The endpoint of a gateway with these settings that runs as long as the context."""
    ours = re.compile(r"QUEUE_|QUEUEGATE_|DATABASE_URL$")
    process = subprocess.Popen(
        [sys.executable, "-m", "queuegate", "serve", "--ephemeral", "--port", "0"],
        env={n: value for n, value in environ.items() if not ours.match(n)} | settings,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        found = None
        while found is None:
            line = process.stdout.readline()
            if not line:
                raise DidNotStart(f"the gateway ended with {process.wait()}")
            found = re.search(r"ready: (\S+)", line)
        yield found[1]
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(_STOP_SECONDS)
        process.stdout.close()


@dataclass(frozen=True)
class Endpoint:
    """The address of a gateway and its first key; the default accepts any key."""

    url: str
    administrator: Credentials | None = None

    def account(self) -> tuple[str, str]:
        """An access key of a new account, and its secret."""
        account = f"{secrets.randbelow(10**12):012}"
        if self.administrator is None:
            return account, "any"
        made = self.new_key(name="of-a-client", kind="access", account_id=account)
        return made["access_key_id"], made["secret_access_key"]

    def new_key(self, **members: str) -> dict[str, str]:
        """A key of the gateway, as it is shown to who makes it."""
        found: dict[str, str] = self.ask("POST", "/v1/keys", members)
        return found

    def ask(self, method: str, path: str, content: object = None) -> Any:
        """The JSON of the gateway's answer to its first key."""
        data = None if content is None else json.dumps(content).encode()
        request = AWSRequest(method, self.url + path, data=data)
        if self.administrator is not None:
            SigV4Auth(self.administrator, "sqs", "us-east-1").add_auth(request)
        headers = dict(request.headers.items())
        signed = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(signed, timeout=_STOP_SECONDS) as answer:
            return json.load(answer)


@contextlib.contextmanager
def verifying(environ: Mapping[str, str], **settings: str) -> Iterator[Endpoint]:
    """The endpoint of a gateway that verifies signatures."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "administrator"
        signs = {
            "QUEUEGATE_AUTH": "sigv4",
            "QUEUEGATE_MASTER_KEY": base64.b64encode(secrets.token_bytes(32)).decode(),
            "QUEUEGATE_ADMINISTRATOR_KEY_FILE": str(file),
        }
        with gateway(environ, **signs, **settings) as url:
            lines = dict(line.split("=", 1) for line in file.read_text().splitlines())
            first = Credentials(lines["AWS_ACCESS_KEY_ID"], lines["AWS_SECRET_ACCESS_KEY"])
            yield Endpoint(url, first)

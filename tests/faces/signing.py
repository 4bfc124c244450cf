"""Requests with signatures, and gateways that verify them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote, urlencode

from queuegate.protocol import sigv4
from queuegate.protocol.sigv4 import Credential, SignedRequest
from tests.cli.calling import call
from tests.faces.connections import Answer, Connection, request_bytes
from tests.faces.servers import Server

MASTER_KEY = base64.b64encode(b"m" * 32).decode()
JSON = {"Content-Type": "application/x-amz-json-1.0"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class Verifying(Server):
    """A gateway that verifies signatures. ``first`` is its first administrator's key."""

    def __init__(self, folder: Path, *arguments: str, **more: str) -> None:
        file = folder / "administrator"
        settings = {
            "QUEUEGATE_AUTH": "sigv4",
            "QUEUEGATE_MASTER_KEY": MASTER_KEY,
            # Tests of refusals send hundreds of wrong signatures.
            "QUEUEGATE_SIGNATURE_DELAY_MS": "0",
            "QUEUEGATE_ADMINISTRATOR_KEY_FILE": str(file),
        }
        self.master = more.get("QUEUEGATE_MASTER_KEY", MASTER_KEY)
        super().__init__(*arguments, **settings | more)
        lines = dict(line.split("=", 1) for line in file.read_text().splitlines())
        self.first = Signer(
            self.url, lines["AWS_ACCESS_KEY_ID"], lines["AWS_SECRET_ACCESS_KEY"], "000000000000"
        )

    def keys(self, *arguments: str) -> str:
        """Run `queuegate keys` and return its output."""
        done = call("keys", *arguments, DATABASE_URL=self.dsn, QUEUEGATE_MASTER_KEY=self.master)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def signer(self, account: str, *more: str, name: str = "") -> Signer:
        """Somebody with a new key of this account."""
        name = name or f"of-{account}"
        text = self.keys("create", name, "--access", "--account", account, "--json", *more)
        made = json.loads(text)
        signer = Signer(self.url, made["access_key_id"], made["secret_access_key"], account)
        signer.key_id = made["id"]
        return signer


@dataclass
class Signer:
    """Signs requests with a key."""

    url: str
    access_key: str
    secret: str
    account: str
    region: str = "us-east-1"
    service: str = "sqs"
    key_id: int = 1
    late_seconds: float = 0.0
    signs_for: str = ""
    """Another region than the scope says."""

    def other(self, **changes: object) -> Signer:
        """The same with some changes."""
        return replace(self, **changes)  # type: ignore[arg-type]  # of fields

    def _now(self) -> str:
        return f"{datetime.now(UTC) - timedelta(seconds=self.late_seconds):%Y%m%dT%H%M%SZ}"

    def _signature(self, request: SignedRequest, claim: Credential, at: str) -> str:
        to_sign = sigv4.string_to_sign(sigv4.canonical_request(request, claim), at, claim.scope)
        region = self.signs_for or self.region
        return sigv4.sign(sigv4.signing_key(self.secret, at[:8], region, self.service), to_sign)

    def sign(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        *,
        leaves: tuple[str, ...] = (),
    ) -> dict[str, str]:
        """The headers with a signature that covers all of them, but those that it leaves."""
        at = self._now()
        sent = {"Host": self.url.partition("://")[2], **headers, "X-Amz-Date": at}
        lower = {name.lower(): value for name, value in sent.items()}
        names = ";".join(sorted(set(lower) - {*leaves}))
        path, _, query = target.partition("?")
        claim = Credential(self.access_key, at[:8], self.region, self.service, names, "")
        request = SignedRequest(method, path, query, lower, body)
        signature = self._signature(request, claim, at)
        sent["Authorization"] = (
            f"{sigv4.ALGORITHM} Credential={self.access_key}/{claim.scope}, "
            f"SignedHeaders={names}, Signature={signature}"
        )
        return sent

    def presign(
        self, method: str, target: str, body: bytes = b"", *, expires: int = 60, token: str = ""
    ) -> str:
        """The target with a signature in its query."""
        at = self._now()
        path, _, query = target.partition("?")
        claim = Credential(self.access_key, at[:8], self.region, self.service, "host", "", expires)
        more = {
            "X-Amz-Algorithm": sigv4.ALGORITHM,
            "X-Amz-Credential": f"{self.access_key}/{claim.scope}",
            "X-Amz-Date": at,
            "X-Amz-Expires": str(expires),
            "X-Amz-SignedHeaders": "host",
        } | ({"X-Amz-Security-Token": token} if token else {})
        query = f"{query}&{urlencode(more, quote_via=quote)}"
        host = {"host": self.url.partition("://")[2]}
        signature = self._signature(SignedRequest(method, path, query, host, body), claim, at)
        return f"{path}?{query}&X-Amz-Signature={signature}"

    def ask(
        self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        """The answer to a signed request."""
        return send(self.url, method, target, self.sign(method, target, headers or {}, body), body)

    def sqs(self, action: str, **members: object) -> Answer:
        """The answer to an action of SQS in JSON."""
        headers = {**JSON, "X-Amz-Target": f"AmazonSQS.{action}"}
        return self.ask("POST", "/", headers, json.dumps(members).encode())

    def form(self, service: str, **params: str) -> Answer:
        """The answer to an action in a form."""
        return self.other(service=service).ask("POST", "/", FORM, urlencode(params).encode())


def send(
    url: str, method: str, target: str, headers: Mapping[str, str], body: bytes = b""
) -> Answer:
    """One request as it is."""
    with Connection(url) as connection:
        connection.send(request_bytes(method, target, {"Host": connection.host, **headers}, body))
        return connection.answer()

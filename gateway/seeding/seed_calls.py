"""Calls of the API within this process, for the accounts of a seed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from secrets import token_hex
from typing import Any

from queuegate.gateway.faces.aws.aws_bindings import BINDINGS
from queuegate.gateway.faces.aws.aws_face import AwsFace
from queuegate.gateway.faces.channels.channels_face import channels_face
from queuegate.gateway.faces.interface import CallerAuthenticator, Face, Request
from queuegate.gateway.faces.logs.logs_face import logs_face
from queuegate.gateway.faces.rest.rest_face import rest_face
from queuegate.gateway.http.authentication import Authenticator
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage.storage_errors import Unavailable

_TARGETS = {"sqs": "AmazonSQS", "sns": "AmazonSNS"}


class CallRefused(Exception):
    """A face refused a call; the text is its own."""

    def __init__(self, found: Mapping[str, Any]) -> None:
        text = found.get("message") or found.get("Message") or found.get("error") or found
        super().__init__(str(text).rstrip("."))


class _SeedCallers(Authenticator):
    """Gives all callers the rights of who applies a seed."""

    is_administrator = True

    def caller(self, request: Request, *arguments: Any, **options: Any) -> Caller:
        found = super().caller(request, *arguments, **options)
        # Faults on purpose are for clients: they meet requests whose caller is noted.
        request.caller = None
        return replace(found, is_administrator=self.is_administrator)


class SeedCalls:
    """The API as one account and region sees it, and then another (``act_as``). Administrators may
    also make access keys and administrators' keys."""

    def __init__(self, engine: Engine, links_url: str, *, is_administrator: bool) -> None:
        self.engine = engine
        self._callers = _SeedCallers(mode="none", accounts={}, account_id="", region="")
        self._callers.is_administrator = is_administrator
        self._links_url = links_url
        self.where = "", ""
        self._faces: dict[str, Face] = {}
        self.listed: dict[str, dict[tuple[str, str], str]] = {}
        """ARNs of subscriptions that were listed, by topic, and by protocol and endpoint."""

    def act_as(self, account_id: str, region: str) -> None:
        """Call for this account and region from now on."""
        self.where = account_id, region

    def forget(self) -> None:
        """Drop what was cached of changes that are undone."""
        self.listed.clear()
        self.engine.queues.clear()
        self.engine.topics.clear()
        self.engine.logs.changed(None)

    def _face(self, path: str) -> Face:
        makers: dict[str, Callable[[Engine, CallerAuthenticator], Face]] = {
            "/v1/channels": channels_face,
            "/v1/logs": logs_face,
            "/v1/": rest_face,
            "/": lambda engine, callers: AwsFace(engine, callers, BINDINGS),
        }
        prefix = next(prefix for prefix in makers if path.startswith(prefix))
        if prefix not in self._faces:
            self._faces[prefix] = makers[prefix](self.engine, self._callers)
        return self._faces[prefix]

    async def _send(
        self, service: str, method: str, target: str, headers: Mapping[str, str], content: Any
    ) -> Any:
        path, _, query = target.partition("?")
        account_id, region = self.where
        signed = f"Credential={account_id}/20300101/{region}/{service}/aws4_request"
        request = Request(
            method,
            path,
            query.encode(),
            {
                **headers,
                "authorization": f"AWS4-HMAC-SHA256 {signed}, SignedHeaders=host, Signature=0",
            },
            b"" if content is None else json.dumps(content).encode(),
            self._links_url,
            self._links_url,
            token_hex(16),
            raw_path=path,
        )
        response = await self._face(path).answer(request)
        assert isinstance(response.body, bytes)
        if response.status >= 500:
            raise request.refusal or Unavailable("A seed cannot be applied at the moment.")
        if response.status >= 300:
            raise CallRefused(json.loads(response.body))
        return json.loads(response.body) if response.body else {}

    async def aws(self, service: str, action: str, /, **members: Any) -> Any:
        """Call an action of SQS or SNS. Raises CallRefused."""
        target = f"{_TARGETS[service]}.{action}"
        headers = {"x-amz-target": target, "content-type": "application/x-amz-json-1.0"}
        return await self._send(service, "POST", "/", headers, members)

    async def rest(self, method: str, path: str, content: Any = None, service: str = "sqs") -> Any:
        """Call Scheduler or one of Queuegate's own APIs. Raises CallRefused."""
        return await self._send(
            service, method, path, {"content-type": "application/json"}, content
        )

    async def all_of(
        self, service: str, action: str, member: str, /, **members: Any
    ) -> AsyncIterator[Any]:
        """Yield the entries of all pages of a list."""
        while True:
            page = await self.aws(service, action, **members)
            for entry in page.get(member) or ():
                yield entry
            if not page.get("NextToken"):
                return
            members["NextToken"] = page["NextToken"]

    async def all_after(self, path: str, member: str, name: str) -> AsyncIterator[Any]:
        """Yield the entries of all pages of a list of a JSON face."""
        after = ""
        while found := await self.rest("GET", path + after):
            entries = found[member] if member else found
            for entry in entries:
                yield entry
            if not entries:
                return
            after = f"?after={entries[-1][name]}"

    def queue_url(self, name: str) -> str:
        """Return a QueueUrl of the account. Only its path counts."""
        return f"http://localhost/{self.where[0]}/{name}"

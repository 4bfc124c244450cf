"""Calls of the API within this process, for the accounts of a seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from secrets import token_hex
from typing import Any

from queuegate.gateway.faces.aws.aws_bindings import BINDINGS
from queuegate.gateway.faces.aws.aws_face import AwsFace
from queuegate.gateway.faces.aws.aws_rules import AttributeFault
from queuegate.gateway.faces.channels.channels_face import channels_face
from queuegate.gateway.faces.interface import CallerAuthenticator, Face, Request
from queuegate.gateway.faces.logs.logs_face import logs_face
from queuegate.gateway.faces.rest.rest_face import rest_face
from queuegate.gateway.http.authentication import Authenticator
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage.storage_errors import Unavailable

_TARGETS = {"sqs": "AmazonSQS", "sns": "AmazonSNS"}
_FACES: Mapping[str, Callable[[Engine, CallerAuthenticator], Face]] = {
    "/v1/channels": channels_face,
    "/v1/logs": logs_face,
    "/v1/": rest_face,
    "/": lambda engine, callers: AwsFace(engine, callers, BINDINGS),
}
"""By prefix of their paths."""


class CallRefused(Exception):
    """A face refused a call; the text is its own, and what is allowed."""

    def __init__(self, found: Mapping[str, Any], cause: BaseException | None = None) -> None:
        text = found.get("message") or found.get("Message") or found.get("error") or found
        allowed = cause.allowed if isinstance(cause, AttributeFault) else ""
        super().__init__(str(text).rstrip(".") + (f": allowed are {allowed}" * bool(allowed)))


class SeedCalls(Authenticator):
    """The API as one account and region sees it, and then another (``act_as``). Administrators may
    also make access keys and administrators' keys."""

    def __init__(self, engine: Engine, links_url: str, *, is_administrator: bool) -> None:
        super().__init__(mode="none", accounts={}, account_id="", region="")
        self.engine = engine
        self.who = Caller("", "", "", is_administrator=is_administrator)
        self._links_url = links_url
        self._faces: dict[str, Face] = {}

    @property
    def where(self) -> tuple[str, str]:
        """Return account and region of the caller."""
        return self.who.account_id, self.who.region

    def act_as(self, account_id: str, region: str) -> None:
        """Call for this account and region from now on."""
        rights = self.who.is_administrator
        self.who = Caller(account_id, region, account_id, is_administrator=rights)

    def caller(self, *_: Any, **__: Any) -> Caller:
        """Return the caller. The request does not note it: faults on purpose are for clients."""
        return self.who

    def forget(self) -> None:
        """Drop what was cached of changes that are undone."""
        self.engine.queues.clear()
        self.engine.topics.clear()
        self.engine.logs.changed(None)

    async def _send(self, method: str, target: str, headers: Mapping[str, str], body: Any) -> Any:
        path, _, query = target.partition("?")
        prefix = next(prefix for prefix in _FACES if path.startswith(prefix))
        if prefix not in self._faces:
            self._faces[prefix] = _FACES[prefix](self.engine, self)
        content = b"" if body is None else json.dumps(body).encode()
        urls = self._links_url, self._links_url
        request = Request(
            method, path, query.encode(), headers, content, *urls, token_hex(16), raw_path=path
        )
        response = await self._faces[prefix].answer(request)
        assert isinstance(response.body, bytes)
        if response.status >= 500:
            raise request.refusal or Unavailable("A seed cannot be applied at the moment.")
        if response.status >= 300:
            cause = request.refusal and request.refusal.__cause__
            raise CallRefused(json.loads(response.body), cause)
        return json.loads(response.body) if response.body else {}

    async def aws(self, service: str, action: str, /, **members: Any) -> Any:
        """Call an action of SQS or SNS. Raises CallRefused."""
        target = f"{_TARGETS[service]}.{action}"
        headers = {"x-amz-target": target, "content-type": "application/x-amz-json-1.0"}
        return await self._send("POST", "/", headers, members)

    async def rest(self, method: str, path: str, content: Any = None) -> Any:
        """Call Scheduler or one of Queuegate's own APIs. Raises CallRefused."""
        return await self._send(method, path, {"content-type": "application/json"}, content)

    def queue_url(self, name: str) -> str:
        """Return a QueueUrl of the account. Only its path counts."""
        return f"http://localhost/{self.who.account_id}/{name}"

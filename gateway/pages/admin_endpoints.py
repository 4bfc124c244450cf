"""Endpoints below /_admin, declared as those of JSON faces: their requests, and their answers.

Pages of /_admin that are about the contents of an account need credentials like the API itself.
They show the caller's account unless the request names another one. ``OPEN_TAGS`` need none.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from queuegate.gateway.configuration.settings import Settings
from queuegate.gateway.faces.interface import Request, Response
from queuegate.gateway.faces.json import decoding
from queuegate.gateway.faces.json.json_endpoints import (
    Answer,
    Call,
    Endpoint,
    allowed,
    endpoint_for,
    status_of,
)
from queuegate.protocol.routing import RouteMatch, Router
from queuegate.storage.storage_errors import (
    AccessDenied,
    Locked,
    MalformedInput,
    Rejected,
    Unavailable,
)

if TYPE_CHECKING:
    from queuegate.gateway.faces.interface import CallerAuthenticator
    from queuegate.gateway.metrics.scraping import MetricsPage
    from queuegate.gateway.operations.runtime.engine import Engine


OPEN_TAGS = ("health", "audit", "clock", "reset", "faults", "about")
_PRESIGNED = b"x-amz-"
_SIGN_IN = (
    "This page shows messages and needs credentials, any that the API takes: for example curl "
    "--aws-sigv4 aws:amz:us-east-1:sns --user ACCESSKEY:SECRET, or the Authorization header of any "
    "signed request."
)
AccountId = Annotated[
    str,
    Meta(
        pattern="^[0-9]{12}$", max_length=12, description="An account.", examples=["111122223333"]
    ),
]
Text = Annotated[str, Meta(pattern=r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]+$")]
"""Characters that names and messages can have."""


class AdminQuery(Struct, forbid_unknown_fields=True):
    """The account of a page."""

    account: AccountId | UnsetType = UNSET


@dataclass(slots=True)
class AdminCall(Call):
    """A decoded request to a page. The caller is None for ``OPEN_TAGS``."""

    settings: Settings
    metrics: MetricsPage | None

    @property
    def account_id(self) -> str:
        """Return the account that the request is about."""
        named: str | UnsetType = self.query.account
        return self.caller.account_id if named is UNSET else named


class AdminPages:
    """The declared endpoints of a gateway."""

    def __init__(
        self,
        engine: Engine,
        callers: CallerAuthenticator,
        settings: Settings,
        endpoints: Iterable[Endpoint],
        metrics: MetricsPage | None = None,
    ) -> None:
        self._engine = engine
        self._callers = callers
        self._settings = settings
        self._metrics = metrics
        self._router = Router((one.method, one.path, one) for one in endpoints)

    async def answer(self, request: Request) -> Response | None:
        """Return the response of an endpoint, or a refusal; None: no endpoint has the path."""
        found = self._router.find(request.raw_path)
        if found is None:
            return None
        endpoint = endpoint_for(request.method, found)
        if endpoint is None:
            allow = allowed(found.place)
            if request.method == "OPTIONS":
                return Response(204, [(b"allow", allow.encode())], b"")
            return _refused(405, f"Allowed are {allow}.", ("allow", allow))
        try:
            call = self._call(request, found, endpoint)
            takes, handler = endpoint.takes, endpoint.handler
            answering = handler(call, getattr(call, takes)) if takes else handler(call)
            return _written(await answering)
        except Rejected as refusal:
            request.refusal = refusal
            text = _SIGN_IN if isinstance(refusal, AccessDenied) else str(refusal)
            return _refused(status_of(refusal), text)
        except Locked as error:
            # No reason to try again at once.
            return _refused(409, str(error))
        except Unavailable as error:
            return _refused(503, str(error), ("retry-after", "1"))

    def _call(self, request: Request, found: RouteMatch[Endpoint], endpoint: Endpoint) -> AdminCall:
        caller: Any = None
        if endpoint.tag not in OPEN_TAGS:
            params = dict(parse_qsl(request.query.decode("latin-1"), keep_blank_values=True))
            caller = self._callers.caller(request, params)
        parts = request.query.split(b"&")
        query = b"&".join(part for part in parts if not part.lower().startswith(_PRESIGNED))
        kind = endpoint.path_params
        return AdminCall(
            self._engine,
            caller,
            request,
            decoding.decode_path(kind, found.values) if kind is not None else None,
            decoding.decode_query(endpoint.query, query),
            self._body(request.body, endpoint),
            endpoint.right,
            self._settings,
            self._metrics,
        )

    def _body(self, body: bytes, endpoint: Endpoint) -> Any:
        if endpoint.takes != "body" or (endpoint.body_is_optional and not body):
            return None
        return decode(body, endpoint.body)


def decode(body: bytes, kind: Any) -> Any:
    """Decode the JSON of a body of at most 64 KiB. Raises MalformedInput."""
    try:
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.ValidationError as error:
            if not decoding.needs_whole_numbers(error):
                raise
            return msgspec.json.decode(decoding.with_whole_numbers(kind, body), type=kind)
    except msgspec.ValidationError as error:
        raise MalformedInput(decoding.explained(error, kind)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedInput(f"The body is not JSON: {error}.") from None


def _written(answer: Answer[Any]) -> Response:
    content = answer.content
    headers = {"content-type": "application/json", **(answer.headers or {})}
    if not isinstance(content, AsyncGenerator):
        # The last line break is for terminals.
        content = msgspec.json.encode(content) + b"\n"
    return Response(answer.status, [(n.encode(), v.encode()) for n, v in headers.items()], content)


def _refused(status: int, text: str, *headers: tuple[str, str]) -> Response:
    return _written(Answer(status, {"error": text}, dict(headers)))

"""The native API: finds the endpoint, decodes what it is asked, and writes what it answers.

Imported when the first request for it comes: what it needs is not loaded at the start.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import msgspec

from gateway.faces.aws.face import Callers, wrong_service
from gateway.faces.requests import Headers, Request, Response
from gateway.faces.rest import (
    archives,
    browsing,
    events,
    messages,
    previews,
    queues,
    refusals,
    schedules,
    whole_numbers,
)
from gateway.faces.rest.counting import check_parts
from gateway.faces.rest.documenting import openapi_document
from gateway.faces.rest.endpoints import Answer, Answered, Call, Endpoint
from gateway.faces.rest.explaining import explained
from gateway.faces.rest.parameters import decode_path, decode_query, unquoted
from gateway.faces.rest.routing import Place, Router
from gateway.operations.engine import Engine
from gateway.operations.limits import LIMITS
from gateway.operations.turns import in_turns
from protocol import other_services
from protocol.errors import Malformed
from storage.errors import (
    AccessDenied,
    MalformedInput,
    QueueDoesNotExist,
    Rejected,
    RequestTooLarge,
    Unavailable,
)

_log = logging.getLogger("queuegate.rest")

ENDPOINTS: tuple[Endpoint, ...] = (
    *queues.ENDPOINTS,
    *messages.ENDPOINTS,
    *browsing.ENDPOINTS,
    *events.ENDPOINTS,
    *archives.ENDPOINTS,
    *schedules.ENDPOINTS,
    *previews.ENDPOINTS,
)
"""Every endpoint but the document that describes them."""

UNKNOWN = "/v1"
"""The label of paths that are none of ours."""

_DOCUMENT_PATH = "/v1/openapi.json"
_JSON: tuple[bytes, bytes] = (b"content-type", b"application/json")


class RestFace:
    """Answers every request below ``/v1``."""

    def __init__(self, engine: Engine, callers: Callers) -> None:
        self._engine = engine
        self._callers = callers
        self._router = Router((*ENDPOINTS, self._description()))
        self._decoders: dict[str, msgspec.json.Decoder[Any]] = {
            endpoint.name: msgspec.json.Decoder(endpoint.body)
            for endpoint in ENDPOINTS
            if endpoint.body is not None
        }
        self._encoder = msgspec.json.Encoder()

    def most_bytes(self, _: Request) -> None:
        """Any: endpoints without messages refuse long bodies after the credentials."""

    def may_wait(self, request: Request) -> bool:
        """Whether the request may be a long poll: watching its client costs two tasks."""
        found = self._router.find(request.raw_path)
        endpoint = found[0].methods.get(request.method) if found else None
        return endpoint is not None and endpoint.may_wait

    async def answer(self, request: Request) -> Response:
        """The response to any request; its ``route`` is the template of the path."""
        found = self._router.find(request.raw_path)
        place, raw = found or (None, {})
        try:
            response = await self._answer(request, place, raw)
        except Rejected as refusal:
            if isinstance(refusal, QueueDoesNotExist) and refusal.queue_name is None:
                # It was there a moment ago, under the name in the path.
                refusal.queue_name = _queue_asked(place, raw)
            response = _refused(refusals.status_of(refusal), refusals.text_of(refusal))
        except Unavailable as error:
            _log.log(error.log_level, "%s %s: %s", request.request_id, request.raw_path, error)
            response = _unavailable(error)
        except Exception:  # noqa: BLE001 - the outermost handler: bugs become a 500 without detail
            _log.exception("%s %s %s failed", request.request_id, request.method, request.raw_path)
            response = _refused(500, "We encountered an internal error. Please try again.")
        response.headers.append((b"x-request-id", request.request_id.encode()))
        response.route = place.template if place is not None else UNKNOWN
        return response

    def turned_away(self, request: Request, refusal: Rejected | Unavailable) -> Response:
        """The refusal of a request whose body was not read to its end."""
        found = self._router.find(request.raw_path)
        if isinstance(refusal, Unavailable):
            response = _unavailable(refusal)
        else:
            response = _refused(refusals.status_of(refusal), refusals.text_of(refusal))
        if isinstance(refusal, RequestTooLarge | Unavailable):
            # What the client still sends is dropped: the connection cannot be used again.
            response.headers.append((b"connection", b"close"))
        response.headers.append((b"x-request-id", request.request_id.encode()))
        response.route = found[0].template if found else UNKNOWN
        return response

    async def _answer(
        self, request: Request, place: Place | None, raw: Mapping[str, str]
    ) -> Response:
        method = request.method
        if place is not None and method == "OPTIONS":
            return Response(204, [(b"allow", place.allow.encode())], b"")
        endpoint = place.methods.get(method) if place is not None else None
        if endpoint is None and place is not None and method == "HEAD":
            endpoint = place.methods.get("GET")
            if endpoint is not None and not endpoint.is_safe:
                endpoint = None
        caller = self._caller(request, is_public=endpoint is not None and endpoint.public)
        if place is None:
            name = other_services.signed_for(request.headers, request.query)
            if name is not None:
                return wrong_service(request, name)
            return _refused(404, f"There is nothing at {request.raw_path}. See {_DOCUMENT_PATH}.")
        if endpoint is None:
            text = f"{method} is not possible here; {place.allow} are."
            response = _refused(405, text)
            response.headers.append((b"allow", place.allow.encode()))
            return response
        call = Call(
            self._engine,
            caller,
            request.base_url,
            request.links_url,
            decode_path(endpoint.path_params, raw) if endpoint.path_params else None,
            decode_query(endpoint.query, request.query),
            await self._body(endpoint, request.body),
            request.headers,
            request.request_id,
        )
        return self._written(await endpoint.handler(call))

    def _caller(self, request: Request, *, is_public: bool) -> Any:
        authorization = request.headers.get("authorization", "")
        try:
            return self._callers.caller(authorization, {}, may_be_anonymous=is_public)
        except AccessDenied:
            raise AccessDenied(
                "Credentials are missing: send the header Authorization. Its signature is not "
                "looked at; an access key of twelve digits in it names the account."
            ) from None

    async def _body(self, endpoint: Endpoint, body: bytes) -> Any:
        if endpoint.body is None or (endpoint.body_is_optional and not body):
            return None
        if not body:
            raise MalformedInput("The request has no body: JSON is expected.")
        _check_length(endpoint, body)
        decoder = self._decoders[endpoint.name]
        try:
            await in_turns(check_parts(body))
            # The decoder takes over texts that nobody looks into as they are.
            body.decode()
            try:
                return decoder.decode(body)
            except msgspec.ValidationError as error:
                if not whole_numbers.was_the_fault(error):
                    raise
                return decoder.decode(whole_numbers.rewritten(endpoint.body, body))
        except Malformed as error:
            raise MalformedInput(str(error)) from None
        except UnicodeDecodeError as error:
            raise MalformedInput(f"The body is not UTF-8: byte {error.start}.") from None
        except msgspec.ValidationError as error:
            raise MalformedInput(explained(error, endpoint.body)) from None
        except msgspec.DecodeError as error:
            reason = str(error).removeprefix("JSON is malformed: ")
            raise MalformedInput(f"The body is not JSON: {reason}.") from None
        except RecursionError:
            raise MalformedInput("The body is nested too deeply.") from None

    def _written(self, answer: Answer) -> Response:
        headers: Headers = []
        body = b""
        if answer.content is not None:
            # A line of its own in a terminal, and in a file of many answers.
            body = self._encoder.encode(answer.content) + b"\n"
            headers.append(_JSON)
        for name, value in (answer.headers or {}).items():
            headers.append((name.lower().encode("latin-1"), value.encode("latin-1")))
        return Response(answer.status, headers, body)

    def _description(self) -> Endpoint:
        return Endpoint(
            "GET",
            _DOCUMENT_PATH,
            "getOpenApi",
            "This document",
            "Describes every endpoint below `/v1` in OpenAPI 3.1; takes no credentials.",
            "about",
            self._get_document,
            (Answered(200, dict[str, Any], "The document."),),
            public=True,
        )

    async def _get_document(self, call: Call) -> Answer:
        # Made at the first request for it, which takes a while.
        document = await asyncio.to_thread(lambda: self._document)
        return Answer(200, document | {"servers": [{"url": call.base_url}]})

    @cached_property
    def _document(self) -> dict[str, Any]:
        return openapi_document((*ENDPOINTS, self._description()))


def _refused(status: int, text: str) -> Response:
    return Response(status, [_JSON], msgspec.json.encode({"error": text}) + b"\n")


def _check_length(endpoint: Endpoint, body: bytes) -> None:
    most = LIMITS.request_bytes
    if len(body) > most and not endpoint.carries_messages:
        raise RequestTooLarge(
            f"The request body is larger than the {most} bytes that this endpoint takes."
        )


def _unavailable(error: Unavailable) -> Response:
    response = _refused(503, f"{error} Try again in a moment.")
    response.headers.append((b"retry-after", b"1"))
    return response


def _queue_asked(place: Place | None, raw: Mapping[str, str]) -> str | None:
    """The queue that the path names."""
    is_of_queue = place is not None and place.template.startswith("/v1/queues/")
    return unquoted(raw["name"]) if is_of_queue else None

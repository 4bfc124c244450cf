"""A JSON face: routes a request to its endpoint, decodes the request, and encodes the answer.

A face consists of endpoints, the prefix of their paths, and a configuration.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct, structs

from queuegate.gateway.faces.interface import (
    DOCUMENT,
    CallerAuthenticator,
    ConnectionHandler,
    CredentialRule,
    Face,
    Headers,
    Request,
    RequestedOperation,
    Response,
    Work,
)
from queuegate.gateway.faces.json import decoding
from queuegate.gateway.faces.json.json_endpoints import (
    Answer,
    Call,
    Endpoint,
    Error,
    PreparedCall,
    allowed,
    endpoint_for,
)
from queuegate.gateway.faces.json.json_openapi import FaceDescription, with_document
from queuegate.gateway.faces.request_facts import facts_of, log_unavailable
from queuegate.gateway.operations.access.authorization import check_right, own_arn
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.background_tasks import run_at_once, run_in_steps
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.runtime.replies import Client
from queuegate.protocol import json_wire
from queuegate.protocol.malformed import Malformed
from queuegate.protocol.routing import RouteMatch, Router
from queuegate.storage import storage_errors

_HUGE = 1_048_576
_JSON: tuple[bytes, bytes] = (b"content-type", b"application/json")


@dataclass(frozen=True, kw_only=True, slots=True)
class JsonFaceConfiguration:
    """The differences between JSON faces beside their endpoints."""

    name: str
    """The name in the log."""
    prefix: str
    """The prefix of all paths, without a slash at the end, and the label of unknown paths."""
    about: FaceDescription
    refused: Callable[[storage_errors.Rejected, RouteMatch[Endpoint] | None], tuple[int, str]]
    """Return status and text of a refusal. The match is None for an unknown path."""
    worded: Callable[[int, str], Struct | str] = lambda _, text: Error(text)
    """Make the body, of type ``about.error``, of a status and a text."""
    sign_in: str = (
        "Credentials are missing: send the header Authorization with an AWS signature or a key of "
        "`queuegate keys`. A gateway that does not verify signatures accepts any value, and an "
        "access key of twelve digits selects the account."
    )
    """The text of a refusal for missing credentials."""
    wants: CredentialRule = CredentialRule.CREDENTIALS
    parameters: Callable[[Request], Mapping[str, str]] = lambda _: {}
    """Return credentials of a request that are not in its headers."""
    check_body: Callable[[bytes], Generator[None, None, None]] = json_wire.count_values
    """Check the size of a body before objects are made of it, in steps. Raises Rejected or
    Malformed."""
    elsewhere: Callable[[Request], Response | None] = lambda _: None
    """Return the answer for an unknown path, if it is not the usual 404."""


class JsonFace(Face):
    """Answers every request below a prefix."""

    def __init__(
        self,
        engine: Engine,
        callers: CallerAuthenticator,
        endpoints: tuple[Endpoint, ...],
        configuration: JsonFaceConfiguration,
    ) -> None:
        self._engine = engine
        self._callers = callers
        self._configuration = configuration
        self._log = logging.getLogger(f"queuegate.{configuration.name}")
        self._document_path = configuration.prefix + DOCUMENT
        all_endpoints = with_document(endpoints, configuration.prefix, configuration.about)
        self._router = Router((one.method, one.path, one) for one in all_endpoints)
        self._decoders: dict[str, msgspec.json.Decoder[Any]] = {
            endpoint.name: msgspec.json.Decoder(endpoint.body)
            for endpoint in endpoints
            if endpoint.body is not None
        }
        for endpoint in endpoints:
            for kind in (endpoint.path_params, endpoint.query):
                if kind is not None:
                    # msgspec caches the fields of the type here, in the lock of ``Mount``.
                    msgspec.json.Decoder(kind)
        self._encoder = msgspec.json.Encoder()

    def claimed(self, request: Request) -> str | None:
        """Return the account of the credentials in the head. Empty: the endpoint is public."""
        endpoint = endpoint_for(request.method, self._found(request))
        if request.method == "OPTIONS" or (endpoint is not None and endpoint.public):
            return ""
        configuration = self._configuration
        return self._callers.claimed(
            request, configuration.parameters(request), configuration.wants
        )

    def may_wait(self, request: Request) -> bool:
        """Return True if the endpoint is a long poll."""
        found = self._found(request)
        endpoint = found.place.methods.get(request.method) if found else None
        return endpoint is not None and endpoint.may_wait

    def _found(self, request: Request) -> RouteMatch[Endpoint] | None:
        if request.found is None:
            request.found = self._router.find(request.raw_path)
        found: RouteMatch[Endpoint] | None = request.found
        return found

    async def answer(self, request: Request) -> Response:
        """Return the response to any request. Its ``route`` is the path template."""
        found = self._found(request)
        try:
            response = await self._answer(request, found)
        except Exception as error:  # noqa: BLE001 - the outermost handler
            response = self._failed(error, request, found)
        return self._signed(response, request, found)

    def try_start(self, request: Request, done: Callable[[Response], None]) -> Work | bool:
        """Answer without a task, if the endpoint can prepare the call."""
        found = self._found(request)
        endpoint = found.place.methods.get(request.method) if found else None
        if (
            found is None
            or endpoint is None
            or endpoint.prepare is None
            or len(request.body) > decoding.SHORT
        ):
            return False
        if self._engine.quotas.asks() or self._engine.faults is not None:
            # The answer may have to wait: for quotas in the database, or by a fault on purpose.
            return False
        inline = _InlineCall(self, request, found, done)
        try:
            request.asked = self._asked(endpoint)
            call = self._call(request, found, endpoint, self._caller(request, is_public=False))
            call.body = run_at_once(self._body(endpoint, request.body))
            prepared = endpoint.prepare(call)
            if prepared is None:
                return False
            return inline.start(prepared)
        except Exception as error:  # noqa: BLE001 - the outermost handler
            inline.failed(error)
            return True

    def _failed(
        self, error: BaseException, request: Request, found: RouteMatch[Endpoint] | None
    ) -> Response:
        """Return the response to an error. Bugs become a 500 without detail."""
        request.refusal = error
        if isinstance(error, storage_errors.Rejected):
            return self._rejected(error, found)
        if isinstance(error, storage_errors.Unavailable):
            said = request.request_id, request.raw_path
            log_unavailable(self._log, self._engine, error, said, partial(facts_of, request))
            return self._unavailable(error)
        asked = request.request_id, request.method, request.raw_path
        self._log.error("%s %s %s failed", *asked, exc_info=error, extra=facts_of(request))
        return self._refused(500, "We encountered an internal error. Please try again.")

    def turned_away(
        self, request: Request, refusal: storage_errors.Rejected | storage_errors.Unavailable
    ) -> Response:
        """Return the refusal of a request whose body was not read to its end."""
        found = self._found(request)
        if isinstance(refusal, storage_errors.Unavailable):
            response = self._unavailable(refusal)
        else:
            response = self._rejected(refusal, found)
        return self._signed(response, request, found)

    def _signed(
        self, response: Response, request: Request, found: RouteMatch[Endpoint] | None
    ) -> Response:
        response.headers.append((b"x-request-id", request.request_id.encode()))
        response.route = found.place.template if found is not None else self._configuration.prefix
        return response

    async def _answer(self, request: Request, found: RouteMatch[Endpoint] | None) -> Response:
        if found is not None and request.method == "OPTIONS":
            return Response(204, [(b"allow", allowed(found.place).encode())], b"")
        endpoint = endpoint_for(request.method, found)
        if endpoint is not None:
            request.asked = self._asked(endpoint)
        is_public = endpoint is not None and endpoint.public
        caller = self._caller(request, is_public=is_public)
        if self._engine.quotas.asks() and not is_public:
            await self._engine.quotas.admit(caller, len(request.body))
        if found is None:
            text = f"The path {request.raw_path} does not exist. See {self._document_path}."
            return self._configuration.elsewhere(request) or self._refused(404, text)
        if endpoint is None:
            allow = allowed(found.place)
            text = f"{request.method} is not allowed here. Allowed are {allow}."
            response = self._refused(405, text)
            response.headers.append((b"allow", allow.encode()))
            return response
        call = self._call(request, found, endpoint, caller)
        reading = self._body(endpoint, request.body)
        if len(request.body) > _HUGE:
            # One long text takes long, too, and cannot be decoded in steps.
            call.body = await asyncio.to_thread(run_at_once, reading)
        else:
            call.body = await run_in_steps(reading)
        request.asked = self._asked(endpoint, call)
        if endpoint.resource:
            # The body names a new resource.
            names = call.body if call.path is None else call.path
            named = structs.asdict(names) if isinstance(names, Struct) else {}
            arn = own_arn(caller, endpoint.right, endpoint.resource.format(**named))
            check_right(self._engine, caller, endpoint.right, arn)
        if self._engine.faults is not None:
            from queuegate.gateway.faces.injected_faults import meet

            await meet(self._engine, request, self._configuration.name, endpoint.right, call)
        takes, handler = endpoint.takes, endpoint.handler
        answering = handler(call, getattr(call, takes)) if takes else handler(call)
        return self._written(await answering)

    def _call(
        self, request: Request, found: RouteMatch[Endpoint], endpoint: Endpoint, caller: Caller
    ) -> Call:
        """Make the call without its body."""
        return Call(
            self._engine,
            caller,
            request,
            decoding.decode_path(endpoint.path_params, found.values)
            if endpoint.path_params
            else None,
            decoding.decode_query(endpoint.query, request.query),
            None,
            endpoint.right,
        )

    def _asked(self, endpoint: Endpoint, call: Call | None = None) -> RequestedOperation:
        operation = f"{self._configuration.name}:{endpoint.name}"
        return RequestedOperation(operation, endpoint.right, call, endpoint.effect)

    def _caller(self, request: Request, *, is_public: bool) -> Caller:
        try:
            configuration = self._configuration
            return self._callers.caller(
                request,
                configuration.parameters(request),
                may_be_anonymous=is_public,
                wants=configuration.wants,
            )
        except storage_errors.AccessDenied:
            raise storage_errors.AccessDenied(self._configuration.sign_in) from None

    def _body(self, endpoint: Endpoint, body: bytes) -> Generator[None, None, Any]:
        if endpoint.body is None or (endpoint.body_is_optional and not body):
            return None
        if not body:
            raise storage_errors.MalformedInput("The request has no body: send JSON.")
        _check_length(endpoint, body)
        decoder = self._decoders[endpoint.name]
        try:
            yield from self._configuration.check_body(body)
            # The decoder copies raw texts without validating UTF-8.
            body.decode()
            try:
                return decoder.decode(body)
            except msgspec.ValidationError as error:
                if not decoding.needs_whole_numbers(error):
                    raise
                return decoder.decode(decoding.with_whole_numbers(endpoint.body, body))
        except Malformed as error:
            raise storage_errors.MalformedInput(str(error)) from None
        except UnicodeDecodeError as error:
            raise storage_errors.MalformedInput(
                f"The body is not UTF-8: byte {error.start}."
            ) from None
        except msgspec.ValidationError as error:
            raise storage_errors.MalformedInput(decoding.explained(error, endpoint.body)) from None
        except msgspec.DecodeError as error:
            reason = str(error).removeprefix("JSON is malformed: ")
            raise storage_errors.MalformedInput(f"The body is not JSON: {reason}.") from None
        except RecursionError:
            raise storage_errors.MalformedInput("The body is nested too deeply.") from None

    def _written(self, answer: Answer[Any]) -> Response:
        headers: Headers = []
        body: bytes | ConnectionHandler = b""
        if isinstance(answer.content, ConnectionHandler):
            body = answer.content
        elif answer.content is not None:
            # Ends the line in a terminal and in a file of many answers.
            body = self._encoder.encode(answer.content) + b"\n"
            headers.append(_JSON)
        for name, value in (answer.headers or {}).items():
            headers.append((name.lower().encode("latin-1"), value.encode("latin-1")))
        return Response(answer.status, headers, body)

    def _rejected(
        self, refusal: storage_errors.Rejected, found: RouteMatch[Endpoint] | None
    ) -> Response:
        words = self._configuration.refused(refusal, found)
        if isinstance(refusal, storage_errors.InjectedFault):
            words = refusal.status or 503, str(refusal)
        response = self._refused(*words)
        seconds = refusal.retry_after_seconds
        if seconds is not None:
            response.headers.append((b"retry-after", str(seconds).encode()))
        return response

    def _refused(self, status: int, text: str) -> Response:
        body = self._encoder.encode(self._configuration.worded(status, text)) + b"\n"
        return Response(status, [_JSON], body)

    def _unavailable(self, error: storage_errors.Unavailable) -> Response:
        response = self._refused(503, f"{error} Try again in a moment.")
        response.headers.append((b"retry-after", b"1"))
        return response


class _InlineCall:
    """Receives the reply to a call that runs without a task."""

    __slots__ = ("_done", "_face", "_found", "_prepared", "_request", "_work")

    def __init__(
        self,
        face: JsonFace,
        request: Request,
        found: RouteMatch[Endpoint],
        done: Callable[[Response], None],
    ) -> None:
        self._face = face
        self._request = request
        self._found = found
        self._done = done
        self._prepared: PreparedCall | None = None
        self._work: Work | None = None

    def start(self, prepared: PreparedCall) -> Work | bool:
        """Start the call. Returns itself for cancellation if the call may wait."""
        self._prepared = prepared
        self._work = prepared.start(self)
        return True if self._work is None else self

    def cancel(self) -> None:
        """Cancel the call."""
        if self._work is not None:
            self._work.cancel()

    def client(self) -> Client:
        """Return the client, for the list of waiting receivers."""
        return self._request.caller, self._request.origin

    def done(self, result: Any) -> None:
        """Answer with the result."""
        assert self._prepared is not None
        try:
            made = self._prepared.answer(result)
            if isinstance(made, Answer):
                self._write(self._face._written(made))
            else:
                self._work = asyncio.get_running_loop().create_task(self._later(made))
        except Exception as error:  # noqa: BLE001 - the outermost handler
            self.failed(error)

    async def _later(self, made: Awaitable[Answer[Any]]) -> None:
        try:
            response = self._face._written(await made)
        except Exception as error:  # noqa: BLE001 - the outermost handler
            self.failed(error)
        else:
            self._write(response)

    def failed(self, error: BaseException) -> None:
        """Answer with the error."""
        self._write(self._face._failed(error, self._request, self._found))

    def _write(self, response: Response) -> None:
        self._done(self._face._signed(response, self._request, self._found))


def _check_length(endpoint: Endpoint, body: bytes) -> None:
    most = LIMITS.request_bytes
    if len(body) > most and not endpoint.carries_messages:
        raise storage_errors.RequestTooLarge(most)

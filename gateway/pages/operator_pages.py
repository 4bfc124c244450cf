"""Pages for operators and testers: liveness, readiness, metrics, the clock and the outbox.

With ``sigv4``, pages that show or change data need an administrator's key. Otherwise they are open
to the local machine. Ephemeral gateways open them to all clients, because their data is temporary.

/_admin/outbox, /_admin/states and /_admin/sms/opted-out are about messages, so they need
credentials like the API itself. They show the caller's account unless the request names another
account.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from datetime import UTC
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router

from queuegate.gateway.faces.aws.sns.sns_sms import checked_number
from queuegate.gateway.faces.interface import Face
from queuegate.gateway.faces.interface import Request as FaceRequest
from queuegate.gateway.faces.interface import Response as FaceResponse
from queuegate.gateway.faces.json.json_openapi import openapi_document, with_document
from queuegate.gateway.http.admission import Origins
from queuegate.gateway.metrics.scraping import Scrape
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime import account_contents, clock_moves
from queuegate.gateway.operations.runtime.clock_moves import BadMove
from queuegate.gateway.operations.topics import mobile
from queuegate.gateway.pages import page_paths
from queuegate.gateway.pages.admin_openapi import (
    ABOUT,
    ADMIN_KINDS,
    ADMIN_PROTOCOLS,
    DEFAULT_OUTBOX_MESSAGES,
    ENDPOINTS,
    MOST_OUTBOX_MESSAGES,
    ResetWish,
)
from queuegate.gateway.pages.console_pages import console_routes
from queuegate.gateway.pages.fault_pages import fault_routes
from queuegate.gateway.pages.public_pages import (
    REQUEST,
    certificate_routes,
    documentation_routes,
    front_route,
)
from queuegate.gateway.pages.seed_pages import seed_route
from queuegate.protocol.names import invalid_characters
from queuegate.storage import account_states
from queuegate.storage import stored_clocks as stored_settings
from queuegate.storage.account_states import SavedState, StateRefused, StateUnknown
from queuegate.storage.storage_errors import (
    AccessDenied,
    AuthorizationError,
    Denied,
    Rejected,
    RequestTooLarge,
    Unavailable,
    UnrecognizedClient,
)
from queuegate.storage.topics.stored_outbox import OutboxFilter, OutboxMessage

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings
    from queuegate.gateway.faces.interface import CallerAuthenticator
    from queuegate.gateway.metrics.scraping import MetricsPage
    from queuegate.gateway.operations.runtime.account_clocks import Clock
    from queuegate.gateway.operations.runtime.engine import Engine


_READY_SECONDS = 2.0
_STUCK_SECONDS = 5.0

_log = logging.getLogger("queuegate.pages")

_MOST_BODY_BYTES = 65_536
_CLOCK = "/_admin/clock"
_NOT_YOURS = "This page takes the key of an administrator: sign the request with it, or show it."
_NOT_HERE = (
    "This page is for the gateway's own machine: ask it there at 127.0.0.1, directly, or start the "
    "gateway with --ephemeral, or with QUEUEGATE_AUTH=sigv4 and ask with an administrator's key."
)

_MOST_MOVE_BYTES = 4096
_MOST_SEED_BYTES = 16_777_216
_OFF = "Moving the clock is off: start with --ephemeral or QUEUEGATE_ADMIN_CLOCK=true."

_KEEPS_DATA = "Only an ephemeral gateway forgets its data: start with --ephemeral."
_RESET_USAGE = (
    'Send {"account": "111122223333"} to delete everything of an account, or no body for all.'
)
_TWELVE_DIGITS = re.compile(r"[0-9]{12}")
_WHOLE_NUMBER = re.compile(r"[0-9]{1,18}")
_FILTERS = ("account", "region", "protocol", "destination", "topic_arn", "kind")
_PAGING = ("after_id", "limit")
_CHOICES = {"kind": ADMIN_KINDS, "protocol": ADMIN_PROTOCOLS}
_PRESIGNED = "x-amz-"
_STATE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", re.ASCII).fullmatch
_STATE_NAMES = (
    "The path ends in the name of a state: 1 to {} letters, digits, dots, hyphens and underscores, "
    "no dot at the start."
)
_SIGN_IN = (
    "This page shows messages and needs credentials, any that the API takes: for example curl "
    "--aws-sigv4 aws:amz:us-east-1:sns --user ACCESSKEY:SECRET, or the Authorization header of any "
    "signed request."
)


class _Pages:
    def __init__(
        self, engine: Engine, metrics: MetricsPage, shows_all: Callable[[FaceRequest], bool]
    ) -> None:
        self._engine = engine
        self._shows_all = shows_all
        self._metrics = metrics
        self._version = version("queuegate")
        self._asking: asyncio.Task[str] | None = None

    def routes(self) -> list[Route]:
        """Return the routes for monitoring."""
        return [Route(path, getattr(self, path[1:])) for path in page_paths.PROBES]

    async def livez(self, _: Request) -> Response:
        """Answer 200 while the process runs. The database is not asked."""
        return json_answer({"status": "ok", "version": self._version})

    async def readyz(self, _: Request) -> Response:
        """Answer 200 if the gateway can serve requests, otherwise 503 with the reason."""
        if self._engine.stopping:
            return json_answer(
                {"status": "degraded", "reason": "The gateway is shutting down."}, 503
            )
        reason = self._stuck_lanes() or await self._database_trouble()
        if reason:
            return json_answer({"status": "degraded", "reason": reason}, 503)
        if self._engine.faults is not None:
            count = len(self._engine.faults)
            warning = f"Faults are on: rules of /_admin/faults ({count}) make requests fail."
            return json_answer({"status": "ok", "warning": warning})
        if self._engine.refuses_sends:
            # Receives and deletes free capacity, so the gateway must stay in the load balancer.
            return json_answer({"status": "ok", "warning": self._engine.refuses_sends})
        return json_answer({"status": "ok"})

    def _stuck_lanes(self) -> str:
        """Return a text about lanes whose flush lasts too long; empty: there are none."""
        now = time.monotonic()
        lanes = self._engine.lanes
        stuck = [lane.name for lane in lanes if lane.stuck_seconds(now) > _STUCK_SECONDS]
        if not stuck:
            return ""
        return f"The database has not answered for {_STUCK_SECONDS:g} s: {', '.join(stuck)}."

    async def _database_trouble(self) -> str:
        """Run a query and return what is wrong with the database; empty: nothing."""
        asking = self._asking
        if asking is None or asking.done():
            asking = self._asking = asyncio.create_task(self._ask_database())
        # Do not cancel the query after the time limit: cancelling takes as long as the answer.
        done, _ = await asyncio.wait([asking], timeout=_READY_SECONDS)
        if not done:
            return f"The database did not answer in {_READY_SECONDS:g} s."
        return asking.result()

    async def _ask_database(self) -> str:
        database = self._engine.database
        try:
            async with database.transaction() as tx:
                await stored_settings.read_clock(tx)
        except Unavailable as error:
            return str(error)
        reason = await database.refusal()
        return reason and f"The database refuses the connections of lanes: {reason}"

    async def metrics(self, request: Request) -> Response:
        """Answer with the Prometheus metrics of all processes of this gateway."""
        names = frozenset(request.query_params.getlist("name[]"))
        is_packed = _takes_gzip(request.headers.get("accept-encoding", ""))
        in_total = not self._shows_all(request.scope[REQUEST])
        page = await self._metrics.render(Scrape(names, in_total, is_packed))
        headers = {"vary": "accept-encoding, authorization"}
        if is_packed:
            headers["content-encoding"] = "gzip"
        return Response(page, headers=headers, media_type="text/plain; version=0.0.4")


def _takes_gzip(accepted: str) -> bool:
    """Return True if the client accepts gzip."""
    for one in accepted.lower().split(","):
        name, _, weight = one.replace(" ", "").partition(";")
        if name == "gzip":
            return weight not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


async def _elsewhere(_: Request) -> Response:
    return json_answer({"error": "This is at QUEUEGATE_OPERATIONS_ADDRESS, and not here."}, 404)


_MOVED = [Route(path, _elsewhere) for path in page_paths.PROBES]


def probes(engine: Engine, metrics: MetricsPage) -> PageFace:
    """Return the face at QUEUEGATE_OPERATIONS_ADDRESS."""
    handlers = _Pages(engine, metrics, lambda _: True)
    return PageFace(handlers.routes())


def pages(
    engine: Engine,
    metrics: MetricsPage,
    settings: Settings,
    callers: CallerAuthenticator,
    more: Sequence[Route] = (),
) -> PageFace:
    """Return the face of all pages. Pages with messages authenticate by ``callers``. ``more``:
    routes of other modules."""

    def shows_all(asked: FaceRequest) -> bool:
        # Metrics by account would reveal accounts to strangers.
        return settings.auth != "sigv4" or is_administrator(callers, asked)

    handlers = _Pages(engine, metrics, shows_all)
    return PageFace(
        [
            *(handlers.routes() if settings.operations_address is None else _MOVED),
            clock_route(engine, settings),
            reset_route(engine, settings),
            document_route(),
            seed_route(engine, settings, callers),
            *fault_routes(engine, json_answer),
            front_route(settings),
            *documentation_routes(),
            *certificate_routes(engine.signer),
            *account_routes(engine, callers),
            *more,
            *(console_routes(engine, settings, callers) if settings.console != "off" else ()),
        ],
        restriction(settings, callers),
    )


def _admits(settings: Settings) -> Callable[[FaceRequest], bool] | None:
    """Return the check for requests that need no key on restricted pages; None: all need one."""
    if settings.auth == "sigv4":
        return None
    if settings.ephemeral:
        # Test data needs no protection.
        return lambda _: True
    origins = Origins(settings.trusted_proxies)
    return lambda request: origins.is_local(request.peer, request.raw_headers)


def json_answer(
    content: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Return a JSON response that ends with a newline, for terminals."""
    text = orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)
    return Response(text, status, headers, media_type="application/json")


class PageFace(Face):
    """Serves routes of Starlette."""

    def __init__(
        self,
        routes: Sequence[BaseRoute],
        restriction: Callable[[FaceRequest], str | None] = lambda _: None,
    ) -> None:
        """``restriction`` returns the refusal of a caller; None: the page may answer."""
        self._router = Router(routes)
        self._restriction = restriction

    def most_bytes(self, request: FaceRequest) -> int:
        """Return the limit of a move of the clock, of a seed, or of bodies that pages ignore."""
        limits = {_CLOCK: _MOST_MOVE_BYTES, page_paths.SEED: _MOST_SEED_BYTES}
        return limits.get(request.path, _MOST_BODY_BYTES)

    def may_wait(self, request: FaceRequest) -> bool:
        """Return True for the page that waits for events."""
        return request.path == page_paths.EVENTS

    async def answer(self, request: FaceRequest) -> FaceResponse:
        """Return the response of a page."""
        head: MutableMapping[str, Any] = {}
        parts: list[bytes] = []

        async def receive() -> NoReturn:
            # Pages take the body of REQUEST. Responses wait here for a disconnect.
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: MutableMapping[str, Any]) -> None:
            head.update(message)
            parts.append(message.get("body", b""))

        scope = {
            "type": "http",
            # The server leaves out the body, and sends its length.
            "method": "GET" if request.method == "HEAD" else request.method,
            "scheme": request.origin.scheme,
            "path": request.path,
            "raw_path": request.raw_path.encode("latin-1"),
            "query_string": request.query,
            "root_path": "",
            "headers": request.raw_headers,
            REQUEST: request,
        }
        refusal = self._restriction(request)
        try:
            page = self._router if refusal is None else _refusal(403, refusal)
            await page(scope, receive, send)
        except Exception:  # noqa: BLE001 - the outermost handler: bugs become a 500 without detail
            _log.exception("%s %s failed", request.request_id, request.raw_path)
            return FaceResponse(500, [], b"Internal Server Error")
        headers = [header for header in head["headers"] if header[0] != b"content-length"]
        return FaceResponse(head["status"], headers, request.found or b"".join(parts))

    def turned_away(self, _: FaceRequest, refusal: Rejected | Unavailable) -> FaceResponse:
        """Return the refusal of a request whose body was not read to its end."""
        headers = [(b"content-type", b"application/json")]
        status = 403
        if isinstance(refusal, RequestTooLarge | Unavailable):
            status = 413 if isinstance(refusal, RequestTooLarge) else 503
            # The rest of the body is dropped, so the connection cannot be reused.
            headers.append((b"connection", b"close"))
        return FaceResponse(status, headers, json.dumps({"error": str(refusal)}).encode() + b"\n")


def restriction(
    settings: Settings, callers: CallerAuthenticator
) -> Callable[[FaceRequest], str | None]:
    """Return the check of callers of pages that show or change data. It returns the text of the
    refusal; None: the page may answer."""
    admits = _admits(settings)

    def refusal_of(request: FaceRequest) -> str | None:
        if page_paths.is_public(request.raw_path.encode("latin-1")):
            return None
        if admits is not None and admits(request):
            return None
        try:
            caller = callers.caller(request, {}, request.path)
            if not caller.is_administrator:
                raise AuthorizationError(_NOT_YOURS)
        except Rejected as refusal:
            request.refusal = refusal
            if admits is not None:
                refusal.denied = Denied("origin")
            return str(refusal) if admits is None else _NOT_HERE
        return None

    return refusal_of


def is_administrator(callers: CallerAuthenticator, request: FaceRequest) -> bool:
    """Return True if a request for a public page has the key of an administrator."""
    try:
        return callers.caller(request, {}, request.path).is_administrator
    except Rejected:
        return False


class _Refused(Exception):
    """A request that is refused, with a status and a text that names valid input."""


def _refusal(status: int, text: str) -> Response:
    return json_answer({"error": text}, status)


def document_route() -> Route:
    """Return the route of the OpenAPI document of these pages."""

    @cache
    def document() -> dict[str, Any]:
        return openapi_document(with_document(ENDPOINTS, "/_admin", ABOUT), ABOUT)

    async def answer(request: Request) -> Response:
        # A thread keeps the loop free, as with documents of faces.
        made = await asyncio.to_thread(document)
        return json_answer(made | {"servers": [{"url": request.scope[REQUEST].base_url}]})

    return Route(page_paths.ADMIN_DOCUMENT, answer)


def reset_route(engine: Engine, settings: Settings) -> Route:
    """Return the route that deletes everything of an ephemeral gateway, or of an account."""

    async def answer(request: Request) -> Response:
        if not settings.ephemeral:
            return _refusal(403, _KEEPS_DATA)
        try:
            await account_contents.reset(engine, read_reset(request.scope[REQUEST].body))
        except _Refused as refusal:
            return _refusal(*refusal.args)
        except Unavailable as error:
            return _refusal(503, str(error))
        return json_answer({"status": "ok"})

    return Route("/_admin/reset", answer, methods=["POST"])


def read_reset(body: bytes) -> str | None:
    """Return the account to reset; None: all."""
    try:
        return msgspec.json.decode(body or b"{}", type=ResetWish).account
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise _Refused(400, _RESET_USAGE) from None


def clock_route(engine: Engine, settings: Settings) -> Route:
    """Return the route: GET shows the clocks, POST moves one (``clock_moves.USAGE``)."""
    page = _ClockPage(engine, settings)
    return Route(_CLOCK, page.answer, methods=["GET", "POST"])


class _ClockPage:
    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self._settings = settings

    async def answer(self, request: Request) -> Response:
        try:
            account_id = await self._account_to_show(request)
        except BadMove as refusal:
            return _refusal(400, str(refusal))
        except _Refused as refusal:
            return _refusal(*refusal.args)
        return json_answer(self._standing(account_id))

    async def _account_to_show(self, request: Request) -> str | None:
        """Move a clock if asked to; return the account whose clock to show; None: all."""
        if request.method != "POST":
            shown = request.query_params.get("account")
            return None if shown is None else clock_moves.read_account(shown)
        if not self._settings.admin_clock:
            raise _Refused(403, _OFF)
        wanted = clock_moves.read_move(_read_json(request.scope[REQUEST].body))
        await clock_moves.move(self._engine, wanted)
        return wanted.account_id

    def _standing(self, account_id: str | None) -> dict[str, Any]:
        common = self._engine.clock
        if account_id is not None:
            clock = common.of(account_id)
            ahead = 0.0 if clock is common else clock.ahead_seconds
            return {"account": account_id, **_shown(clock), "ahead_seconds": ahead}
        accounts = {name: _shown(clock) for name, clock in sorted(common.accounts.items())}
        return {**_shown(common), "accounts": accounts}


def _shown(clock: Clock) -> dict[str, Any]:
    now = clock.instant().isoformat(timespec="milliseconds")
    return {"ahead_seconds": clock.ahead_seconds, "now": now, "frozen": clock.is_frozen}


def _read_json(body: bytes) -> object:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        raise BadMove(f"The body is not JSON. {clock_moves.USAGE}") from None


_Handler = Callable[[Request, Caller], Awaitable[Response]]


class CallerPages:
    """Pages that need credentials like the API itself."""

    def __init__(self, engine: Engine, callers: CallerAuthenticator) -> None:
        self.engine = engine
        self._callers = callers

    def page(self, handler: _Handler) -> Callable[[Request], Awaitable[Response]]:
        """Wrap the handler: authenticate the caller, and turn errors into responses."""

        async def answer(request: Request) -> Response:
            try:
                params = dict(request.query_params)
                caller = self._callers.caller(request.scope[REQUEST], params)
                return await handler(request, caller)
            except AccessDenied as refusal:
                request.scope[REQUEST].refusal = refusal
                return _refusal(403, _SIGN_IN)
            except UnrecognizedClient as refusal:
                request.scope[REQUEST].refusal = refusal
                return _refusal(403, str(refusal))
            except _Refused as bad:
                return _refusal(*bad.args)
            except Rejected as bad:
                return _refusal(400, str(bad))
            except Unavailable as error:
                response = _refusal(503, str(error))
                response.headers["retry-after"] = "1"
                return response

        return answer


class _AccountPages(CallerPages):
    async def show(self, request: Request, caller: Caller) -> Response:
        """Answer GET /_admin/outbox."""
        params = read_params(request, (*_FILTERS, *_PAGING))
        after_id = read_number(params, "after_id", 0, (0, 10**18 - 1))
        limit = read_number(params, "limit", DEFAULT_OUTBOX_MESSAGES, (1, MOST_OUTBOX_MESSAGES))
        wanted = _filter(params, caller)
        found, next_id = await mobile.list_outbox(
            self.engine, wanted, after_id=after_id, limit=limit
        )
        return json_answer({"messages": [_message(one) for one in found], "next": next_id})

    async def clear(self, request: Request, caller: Caller) -> Response:
        """Answer DELETE /_admin/outbox."""
        wanted = _filter(read_params(request, _FILTERS), caller)
        return json_answer({"deleted": await mobile.clear_outbox(self.engine, wanted)})

    async def list_or_clear(self, request: Request, caller: Caller) -> Response:
        """Answer /_admin/outbox by method."""
        answer = self.clear if request.method == "DELETE" else self.show
        return await answer(request, caller)

    async def find(self, request: Request, caller: Caller) -> Response:
        """Answer GET /_admin/outbox/<id>."""
        text = request.path_params["outbox_id"]
        if _WHOLE_NUMBER.fullmatch(text) is None:
            raise _Refused(400, "The path ends in the id of a message, a whole number.")
        account_id = _filter(read_params(request, ("account",)), caller).account_id
        message = await mobile.find_in_outbox(self.engine, account_id, int(text))
        if message is None:
            raise _Refused(404, f"The outbox of account {account_id} has no message of this id.")
        return json_answer(_message(message))

    async def opted_out(self, request: Request, caller: Caller) -> Response:
        """Answer PUT and DELETE /_admin/sms/opted-out/<number> for the caller's account."""
        read_params(request, ())
        number = checked_number(request.path_params["number"])
        is_opted_out = request.method == "PUT"
        change = mobile.opt_out if is_opted_out else mobile.opt_in
        await change(self.engine, caller, number)
        return json_answer(
            {
                "account": caller.account_id,
                "region": caller.region,
                "phone_number": number,
                "opted_out": is_opted_out,
            }
        )

    async def states(self, request: Request, caller: Caller) -> Response:
        """Answer GET /_admin/states."""
        account_id = _filter(read_params(request, ("account",)), caller).account_id
        async with self.engine.database.transaction() as tx:
            found = await account_states.list_states(tx, account_id)
        return json_answer({"account": account_id, "states": [_state(one) for one in found]})

    async def change_state(self, request: Request, caller: Caller) -> Response:
        """Answer PUT (save), POST (load) and DELETE /_admin/states/<name>."""
        account_id = _filter(read_params(request, ("account",)), caller).account_id
        name = request.path_params["name"]
        if _STATE_NAME(name) is None or len(name) > self.engine.limits.state_name_length:
            raise _Refused(400, _STATE_NAMES.format(self.engine.limits.state_name_length))
        try:
            if request.method == "DELETE":
                await account_contents.delete_state(self.engine, account_id, name)
                return json_answer({"account": account_id, "deleted": name})
            act = account_contents.save if request.method == "PUT" else account_contents.load
            state = await act(self.engine, account_id, name)
        except StateRefused as refusal:
            status = 404 if isinstance(refusal, StateUnknown) else 409
            raise _Refused(status, str(refusal)) from None
        return json_answer({"account": account_id, **_state(state)})


def _state(state: SavedState) -> dict[str, Any]:
    saved_at = state.saved_at.astimezone(UTC).isoformat(timespec="milliseconds")
    return {"name": state.name, "saved_at": saved_at, "rows": state.counts}


def read_params(request: Request, allowed: tuple[str, ...]) -> dict[str, str]:
    """Return the parameters except those of a signature. Refuse unknown and repeated ones."""
    params: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name.lower().startswith(_PRESIGNED):
            continue
        if name not in allowed:
            names = ", ".join(allowed) or "none"
            raise _Refused(400, f"A parameter is not known here. Those that are: {names}.")
        if name in params:
            raise _Refused(400, f"{name} is given twice.")
        if not value or invalid_characters(value):
            raise _Refused(400, f"{name} is empty or has characters that no message has there.")
        params[name] = value
    return params


def read_number(params: dict[str, str], name: str, default: int, bounds: tuple[int, int]) -> int:
    text = params.pop(name, None)
    if text is None:
        return default
    low, high = bounds
    if _WHOLE_NUMBER.fullmatch(text) is None or not low <= int(text) <= high:
        raise _Refused(400, f"{name} is a whole number from {low} to {high}.")
    return int(text)


def _filter(params: dict[str, str], caller: Caller) -> OutboxFilter:
    account_id = params.get("account", caller.account_id)
    if _TWELVE_DIGITS.fullmatch(account_id) is None:
        raise _Refused(400, "account is the 12 digits of an account.")
    for name, choices in _CHOICES.items():
        if name in params and params[name] not in choices:
            raise _Refused(400, f"{name} is one of {', '.join(choices)}.")
    return OutboxFilter(account_id, *(params.get(name) for name in _FILTERS[1:]))


def _message(message: OutboxMessage) -> dict[str, Any]:
    written = message.written._asdict()
    account_id, attributes = written.pop("account_id"), written["attributes"]
    return {
        "id": message.outbox_id,
        "account": account_id,
        **written,
        "attributes": None if attributes is None else orjson.loads(attributes),
        "created_at": message.created_at.astimezone(UTC).isoformat(timespec="milliseconds"),
    }


def account_routes(engine: Engine, callers: CallerAuthenticator) -> list[Route]:
    """Return the routes of pages that show or change one account: its outbox and its states."""
    pages = _AccountPages(engine, callers)
    listing, one, number, states, state = (
        pages.page(handler)
        for handler in (
            pages.list_or_clear,
            pages.find,
            pages.opted_out,
            pages.states,
            pages.change_state,
        )
    )
    return [
        Route("/_admin/states", states, methods=["GET"]),
        Route("/_admin/states/{name}", state, methods=["PUT", "POST", "DELETE"]),
        Route("/_admin/outbox", listing, methods=["GET", "DELETE"]),
        Route("/_admin/outbox/{outbox_id}", one, methods=["GET"]),
        Route("/_admin/sms/opted-out/{number}", number, methods=["PUT", "DELETE"]),
    ]

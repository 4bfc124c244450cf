"""Pages of LocalStack, ElasticMQ and moto, for tools that look for these servers (QUEUEGATE_LIKE).

Messages of a queue are shown as ReceiveMessage answers them, on the wire that the request uses.
"""

from __future__ import annotations

import logging
import platform
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urlencode
from xml.etree import ElementTree

import orjson

from queuegate.gateway.faces.aws.aws_face import AwsCall, AwsFace, Binding, Members
from queuegate.gateway.faces.aws.sns.sns_sms import checked_number
from queuegate.gateway.faces.aws.sqs.sqs_messages import ReceiveSelection, received_members
from queuegate.gateway.faces.interface import Face, Request, Response
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.queues import queues
from queuegate.gateway.operations.queues.stored_messages import Browse, browse
from queuegate.gateway.operations.runtime import account_contents
from queuegate.gateway.operations.topics import mobile, topic_subscriptions
from queuegate.gateway.operations.topics.topics import list_names as topic_names
from queuegate.gateway.pages.operator_pages import restriction
from queuegate.protocol import query_wire
from queuegate.protocol.malformed import Malformed
from queuegate.protocol.names import printable
from queuegate.storage.model import NewOutboxMessage
from queuegate.storage.queue_model import MessageState
from queuegate.storage.storage_errors import Rejected, RequestTooLarge, Unavailable
from queuegate.storage.topics.stored_outbox import OutboxFilter, OutboxMessage

if TYPE_CHECKING:
    from queuegate.gateway.configuration.settings import Settings
    from queuegate.gateway.faces.interface import CallerAuthenticator
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.gateway.process.init_scripts import InitScripts


_log = logging.getLogger("queuegate.http")

_SERVICES = ("scheduler", "sns", "sqs", "sts")
_QUEUES = "/_aws/sqs/messages"
_MOST_MESSAGES = 10_000
_MOST_BODY_BYTES = 65_536
_EVERYTHING = ReceiveSelection(("All",), ("All",))
_HIDDEN: dict[str, MessageState] = {"Invisible": "in_flight", "Delayed": "delayed"}
"""States of messages that are shown on demand, by the names of LocalStack's parameters."""
_NOTIFICATION = "Notification"
_BACK_DOOR = "SQS/BACKDOOR/ACCESS"
_ACCOUNT = re.compile(r"[0-9]{12}")

Page = Callable[[Request, dict[str, str]], Awaitable[Response]]


class BadPageRequest(Rejected):
    """A request that a page of another server does not understand."""


class SwapInPages(Face):
    """LocalStack's `/_localstack` and `/_aws` pages, moto's `/moto-api`, ElasticMQ's `/health`."""

    def __init__(
        self,
        engine: Engine,
        callers: CallerAuthenticator,
        settings: Settings,
        scripts: InitScripts | None,
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._scripts = scripts
        self._restriction = restriction(settings, callers)
        self._started = monotonic()
        self._session = str(uuid.uuid4())
        # ReceiveMessage in all its forms, with messages that were not received.
        self._messages = AwsFace(engine, callers, {"sqs": _BINDINGS})
        self._pages: dict[str, Page] = {
            "GET /_localstack/health": self._health,
            "GET /_localstack/info": self._info,
            "GET /_localstack/init": self._init,
            "GET /_aws/sns/sms-messages": self._sms,
            "DELETE /_aws/sns/sms-messages": self._sms,
            "GET /_aws/sns/platform-endpoint-messages": self._pushes,
            "DELETE /_aws/sns/platform-endpoint-messages": self._pushes,
            "POST /_aws/sns/phone-opt-outs": self._opt_out,
            "POST /_localstack/state/reset": self._reset,
            **{
                f"{method} /_localstack/chaos/{name}": partial(self._chaos, name)
                for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
                for name in ("faults", "effects")
            },
            "POST /moto-api/reset": self._reset,
            "POST /moto-api/seed": self._seed,
            "GET /moto-api": self._data,
            "GET /moto-api/data.json": self._data,
            "GET /health": self._alive,
        }

    def most_bytes(self, request: Request) -> int | None:
        """Return 64 KiB."""
        return _MOST_BODY_BYTES

    def turned_away(self, request: Request, refusal: Rejected | Unavailable) -> Response:
        """Return the refusal of a request whose body was not read."""
        status = 503 if isinstance(refusal, Unavailable) else 403
        if isinstance(refusal, RequestTooLarge):
            status = 413
        return _json({"error": str(refusal)}, status)

    async def answer(self, request: Request) -> Response:
        """Answer any request, with LocalStack's forms."""
        method = "GET" if request.method == "HEAD" else request.method
        path = request.path.rstrip("/")
        try:
            params = query_wire.parse_form(request.query)
            if path == _QUEUES or path.startswith(f"{_QUEUES}/"):
                return await self._queue(request, path.removeprefix(_QUEUES), params)
            if method == "GET" and path.startswith("/_localstack/init/"):
                return self._init_of_stage(path.rpartition("/")[2])
            if method == "GET" and path.startswith("/_aws/sns/subscription-tokens/"):
                return await self._token(path.removeprefix("/_aws/sns/subscription-tokens/"))
            page = self._pages.get(f"{method} {path}")
            if page is None:
                return _json({"error": f"There is no page {request.method} {request.path}."}, 404)
            return await page(request, params)
        except Unavailable as error:
            return _json({"error": str(error)}, 503)
        except Malformed as error:
            return _json({"error": str(error)}, 400)
        except Rejected as refusal:
            request.refusal = refusal
            return _json({"error": str(refusal)}, 400)
        except Exception as error:  # noqa: BLE001 - the outermost handler: bugs become a 500 without detail
            request.refusal = error
            _log.exception("%s %s failed", request.method, path)
            return _json({"error": "The page failed."}, 500)

    async def _health(self, _: Request, __: dict[str, str]) -> Response:
        services = dict.fromkeys(_SERVICES, "running")
        return _json(
            {"services": services, "edition": "community", "version": version("queuegate")}
        )

    async def _alive(self, _: Request, __: dict[str, str]) -> Response:
        return Response(200, [(b"content-type", b"text/plain; charset=UTF-8")], b"OK")

    async def _info(self, _: Request, __: dict[str, str]) -> Response:
        return _json(
            {
                "version": version("queuegate"),
                "edition": "community",
                "is_license_activated": False,
                "session_id": self._session,
                "machine_id": platform.node(),
                "system": platform.system().lower(),
                "is_docker": False,
                "server_time_utc": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S"),
                "uptime": int(monotonic() - self._started),
            }
        )

    async def _init(self, _: Request, __: dict[str, str]) -> Response:
        return self._init_of_stage(None)

    def _init_of_stage(self, stage: str | None) -> Response:
        from queuegate.gateway.process.init_scripts import Stage

        if self._scripts is None:
            return _json({"completed": True, "scripts": []})
        if stage is None:
            return _json(self._scripts.shown())
        if stage.upper() not in set(Stage):
            names = ", ".join(one.lower() for one in Stage)
            raise BadPageRequest(f"There is no stage {printable(stage)}. The stages are {names}.")
        return _json(self._scripts.shown(Stage(stage.upper())))

    async def _queue(self, request: Request, place: str, params: dict[str, str]) -> Response:
        """List or delete the messages of a queue, which the path or QueueUrl names."""
        if place:
            parts = place.split("/")
            if len(parts) != 4:
                raise BadPageRequest(f"The path is {_QUEUES}/<region>/<account>/<queue>.")
            params = {**params, "QueueUrl": f"{request.base_url}/queue{place}"}
        elif request.method == "POST" and "x-amz-target" in request.headers:
            return await self._messages.answer(replace(request, path="/"))
        elif request.method == "POST":
            params = {**query_wire.parse_form(request.body), **params}
        params["Action"] = "PurgeQueue" if request.method == "DELETE" else "ReceiveMessage"
        query = urlencode(params).encode()
        headers = {name: text for name, text in request.headers.items() if name != "accept"}
        asked = replace(request, method="GET", path="/", query=query, headers=headers, body=b"")
        response = await self._messages.answer(asked)
        if "application/json" not in request.headers.get("accept", ""):
            return response
        return _json(await _as_json(response), response.status)

    async def _sms(self, request: Request, params: dict[str, str]) -> Response:
        """Answer or delete text messages by number."""
        destination = params.get("phoneNumber")
        return await self._sent(request, params, "sms", destination)

    async def _pushes(self, request: Request, params: dict[str, str]) -> Response:
        """Answer or delete messages to mobile apps by endpoint."""
        destination = params.get("endpointArn")
        return await self._sent(request, params, "application", destination)

    async def _sent(
        self, request: Request, params: dict[str, str], protocol: str, destination: str | None
    ) -> Response:
        caller = self._caller(params)
        account_id, region = caller.account_id, caller.region
        wanted = OutboxFilter(account_id, region, protocol, destination, kind=_NOTIFICATION)
        if request.method == "DELETE":
            await mobile.clear_outbox(self._engine, wanted)
            return Response(204, [], b"")
        found: list[OutboxMessage] = []
        after_id: int | None = 0
        while after_id is not None and len(found) < _MOST_MESSAGES:
            page, after_id = await mobile.list_outbox(
                self._engine, wanted, after_id=after_id, limit=1_000
            )
            found += page
        messages: dict[str, list[Members]] = {} if destination is None else {destination: []}
        for one in found:
            mine = messages.setdefault(one.written.destination, [])
            mine.append(_outgoing(one.written))
        name = "sms_messages" if protocol == "sms" else "platform_endpoint_messages"
        return _json({name: messages, "region": region})

    async def _token(self, arn: str) -> Response:
        """Answer the token that confirms a pending subscription."""
        token = await topic_subscriptions.pending_token(self._engine, arn)
        return _json({"subscription_token": token, "subscription_arn": arn})

    async def _opt_out(self, request: Request, _: dict[str, str]) -> Response:
        """Note that the owner of a number answered STOP."""
        try:
            members = orjson.loads(request.body)
        except orjson.JSONDecodeError:
            members = None
        if not isinstance(members, dict) or not isinstance(members.get("phoneNumber"), str):
            raise BadPageRequest('Send {"phoneNumber": "+15550100"}, and accountId, region.')
        texts = {name: value for name, value in members.items() if isinstance(value, str)}
        caller = self._caller(texts)
        await mobile.opt_out(self._engine, caller, checked_number(texts["phoneNumber"]))
        return _json({})

    async def _seed(self, _: Request, __: dict[str, str]) -> Response:
        """Accept a seed: ids here do not come from moto's generator."""
        return _json({"status": "ok"})

    async def _reset(self, _: Request, __: dict[str, str]) -> Response:
        """Delete everything, unless data is kept."""
        if not self._settings.ephemeral:
            raise BadPageRequest("The data of this gateway is kept: it is not ephemeral.")
        await account_contents.reset(self._engine, None)
        return _json({"status": "ok"})

    async def _chaos(self, name: str, request: Request, _: dict[str, str]) -> Response:
        """Show or change rules for faults, for callers of /_admin/faults."""
        from queuegate.gateway.pages import fault_pages

        refusal = self._restriction(request)
        if refusal is not None:
            return _json({"error": refusal}, 403)
        page = fault_pages.answer_chaos if name == "faults" else fault_pages.answer_effects
        method = "GET" if request.method == "HEAD" else request.method
        return _json(await page(self._engine, method, request.body))

    async def _data(self, __: Request, params: dict[str, str]) -> Response:
        """Answer the names of queues and topics of an account, by moto's names of services."""
        caller = self._caller(params)
        listed, _ = await queues.list_names(
            self._engine, caller, prefix="", after="", limit=_MOST_MESSAGES
        )
        topics = await topic_names(self._engine, caller, after_name="", limit=_MOST_MESSAGES)
        return _json(
            {
                "sqs": {"Queue": [{"name": name} for name in listed]},
                "sns": {"Topic": [{"name": name} for name in topics]},
            }
        )

    def _caller(self, params: dict[str, str]) -> Caller:
        account_id = params.get("accountId", self._settings.account_id)
        if _ACCOUNT.fullmatch(account_id) is None:
            raise BadPageRequest("accountId is the 12 digits of an account.")
        return Caller(account_id, params.get("region", self._settings.region), account_id)


def _outgoing(message: NewOutboxMessage) -> Members:
    """Return a message that SNS would have sent, as LocalStack shows it."""
    is_text = message.protocol == "sms"
    attributes = message.attributes
    return {
        "PhoneNumber" if is_text else "TargetArn": message.destination,
        **({"SubscriptionArn": message.subscription_arn} if is_text else {}),
        "TopicArn": message.topic_arn,
        "MessageId": str(message.message_id),
        "Message": message.body,
        "MessageAttributes": None if attributes is None else orjson.loads(attributes),
        "MessageStructure": None,
        "Subject": message.subject,
    }


async def _stored_messages(call: AwsCall) -> Members:
    """Return the messages of a queue as ReceiveMessage does, without receiving them."""
    queue = await call.queue()
    params = query_wire.parse_form(call.request.query)
    hidden = [name for name in _HIDDEN if params.get(f"Show{name}", "").lower() == "true"]
    states = {"visible", *(_HIDDEN[name] for name in hidden)}
    messages: list[Members] = []
    after = as_of = None
    while len(messages) < _MOST_MESSAGES:
        page = await browse(call.engine, call.caller, queue, Browse(after=after, as_of=as_of))
        for one in page.messages:
            if one.state in states:
                members = received_members(one.message, _EVERYTHING, _BACK_DOOR)
                if "Invisible" in hidden:
                    members["Attributes"]["IsVisible"] = str(one.state == "visible").lower()
                if "Delayed" in hidden:
                    members["Attributes"]["IsDelayed"] = str(one.state == "delayed").lower()
                messages.append(members)
        after, as_of = page.next, page.as_of
        if after is None:
            break
    return {"Messages": messages} if messages else {}


async def _purge(call: AwsCall) -> None:
    """Delete the messages of a queue at once."""
    await queues.purge_queue(call.engine, call.caller, await call.queue())


async def _as_json(response: Response) -> object:
    """Return an answer in XML as LocalStack writes it in JSON: an element that occurs once is no
    list."""
    body = response.body
    if not isinstance(body, bytes):
        assert isinstance(body, AsyncIterator)
        body = b"".join([part async for part in body])
    root = ElementTree.fromstring(body)
    return {_name(root): _content(root)}


def _content(element: ElementTree.Element) -> object:
    if not len(element):
        return element.text
    members: dict[str, list[object]] = {}
    for child in element:
        members.setdefault(_name(child), []).append(_content(child))
    return {name: found if len(found) > 1 else found[0] for name, found in members.items()}


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _json(content: object, status: int = 200) -> Response:
    body = orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)
    return Response(status, [(b"content-type", b"application/json")], body)


_BINDINGS: Mapping[str, Binding] = {"ReceiveMessage": _stored_messages, "PurgeQueue": _purge}

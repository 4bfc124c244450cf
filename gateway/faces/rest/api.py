"""The native API: its endpoints, below ``/v1``, and its words.

Imported in the background, after the start or for its first request.
"""

from __future__ import annotations

from queuegate.gateway.faces.aws.aws_face import wrong_service
from queuegate.gateway.faces.callers import Callers
from queuegate.gateway.faces.json.counting import check_parts
from queuegate.gateway.faces.json.documenting import About
from queuegate.gateway.faces.json.endpoints import Endpoint
from queuegate.gateway.faces.json.face import JsonFace, Manner
from queuegate.gateway.faces.json.parameters import unquoted
from queuegate.gateway.faces.json.refusals import Error, status_of
from queuegate.gateway.faces.requests import Request, Response
from queuegate.gateway.faces.rest import (
    archives,
    browsing,
    events,
    keys,
    messages,
    pauses,
    previews,
    queues,
    quotas,
    receipts,
    redrives,
    refusals,
    schedules,
    topics,
)
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.protocol import service_detection
from queuegate.protocol.routing import RouteMatch
from queuegate.storage.errors import QueueDoesNotExist, Rejected

ENDPOINTS: tuple[Endpoint, ...] = (
    *queues.ENDPOINTS,
    *messages.ENDPOINTS,
    *browsing.ENDPOINTS,
    *redrives.ENDPOINTS,
    *receipts.ENDPOINTS,
    *events.ENDPOINTS,
    *topics.ENDPOINTS,
    *pauses.ENDPOINTS,
    *archives.ENDPOINTS,
    *schedules.ENDPOINTS,
    *previews.ENDPOINTS,
    *keys.ENDPOINTS,
    *quotas.ENDPOINTS,
)
"""Every endpoint but the document that describes them."""

ABOUT = About(
    "Queuegate",
    "Queues, messages, events and schedules over plain HTTP and JSON. What is sent here can be "
    "received over SQS, and the other way round.\n\n"
    'Every refusal is `{"error": "..."}` with a text that says what to change. Times are UTC.',
    {
        "queues": "Queues hold messages until their receivers delete them.",
        "messages": "Send, receive, delete.",
        "receipts": "Many messages at once, as SQS gives them.",
        "archives": "Messages that receivers deleted, of queues that keep them.",
        "events": "Messages by routing key, to all whose patterns match.",
        "topics": "Topics of SNS: list, look at, publish.",
        "schedules": "Messages and events at their time.",
        "keys": "What clients show to say who they are, on every API.",
        "about": "This API.",
    },
    "Any value. A signature of AWS (version 4) names account and region by its credential scope; "
    "without one they are the gateway's.",
    Error,
)


def rest_face(engine: Engine, callers: Callers) -> JsonFace:
    """The face."""
    manner = Manner(
        name="rest",
        prefix="/v1",
        about=ABOUT,
        refused=_refused,
        worded=lambda _, text: Error(text),
        sign_in="Credentials are missing: send the header Authorization, with a signature of AWS "
        "or a key of `queuegate keys`. Where signatures are not verified anything will do, and an "
        "access key of twelve digits names the account.",
        check_body=check_parts,
        elsewhere=_elsewhere,
    )
    return JsonFace(engine, callers, ENDPOINTS, manner)


def _refused(refusal: Rejected, found: RouteMatch[Endpoint] | None) -> tuple[int, str]:
    if isinstance(refusal, QueueDoesNotExist) and refusal.queue_name is None:
        # It was there a moment ago, under the name in the path.
        refusal.queue_name = _queue_asked(found)
    return status_of(refusal), refusals.text_of(refusal)


def _queue_asked(found: RouteMatch[Endpoint] | None) -> str | None:
    """The queue that the path names."""
    if found is None or not found.place.template.startswith("/v1/queues/"):
        return None
    return unquoted(found.values["name"])


def _elsewhere(request: Request) -> Response | None:
    """What whoever signed for another service of AWS is told."""
    name = service_detection.signed_for(request.headers, request.query)
    return None if name is None else wrong_service(request, name)

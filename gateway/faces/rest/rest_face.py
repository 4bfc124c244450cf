"""The native API: its configuration and refusals, below ``/v1``.

Imported in the background, after the start or at its first request.
"""

from __future__ import annotations

from queuegate.gateway.faces.aws.aws_face import wrong_service
from queuegate.gateway.faces.interface import CallerAuthenticator, Request, Response
from queuegate.gateway.faces.json.decoding import check_parts, unquoted
from queuegate.gateway.faces.json.json_endpoints import Endpoint, Error, status_of
from queuegate.gateway.faces.json.json_face import JsonFace, JsonFaceConfiguration
from queuegate.gateway.faces.json.json_openapi import FaceDescription
from queuegate.gateway.faces.rest import (
    browse_endpoints,
    event_endpoints,
    key_endpoints,
    message_endpoints,
    queue_endpoints,
    schedule_endpoints,
)
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.protocol import service_detection
from queuegate.protocol.routing import RouteMatch
from queuegate.storage.storage_errors import (
    QueueDoesNotExist,
    Rejected,
    ScheduleDoesNotExist,
    ScheduleExists,
)


def text_of(refusal: Rejected) -> str:
    """Return the text of a refusal, with the name of a missing queue or schedule."""
    if isinstance(refusal, QueueDoesNotExist) and refusal.queue_name is not None:
        return f"Queue '{refusal.queue_name}' does not exist"
    if isinstance(refusal, ScheduleDoesNotExist):
        return f"Schedule '{refusal.name}' does not exist"
    if isinstance(refusal, ScheduleExists):
        name = refusal.name
        return f"Schedule '{name}' exists. PUT /v1/schedules/{name} replaces it."
    return str(refusal)


ENDPOINTS: tuple[Endpoint, ...] = (
    *queue_endpoints.endpoint,
    *message_endpoints.endpoint,
    *message_endpoints.receipts,
    *browse_endpoints.endpoint,
    *event_endpoints.endpoint,
    *event_endpoints.topic_endpoint,
    *browse_endpoints.archives,
    *schedule_endpoints.endpoint,
    *key_endpoints.endpoint,
)
"""Every endpoint but the document that describes them."""

ABOUT = FaceDescription(
    "Queuegate",
    "Queues, messages, events and schedules over plain HTTP and JSON. Messages can be sent and "
    "received over SQS, too.\n\n"
    'Every refusal is `{"error": "..."}` with the necessary change. Times are UTC.',
    {
        "queues": "Queues store messages until their receivers delete them.",
        "messages": "Send, receive and delete messages.",
        "receipts": "Many messages at once, in the form of SQS.",
        "archives": "Deleted messages of queues with an archive.",
        "events": "Messages by routing key, for subscriptions with matching patterns.",
        "topics": "List, get and publish to topics of SNS.",
        "schedules": "Messages and events at set times.",
        "keys": "Keys that authenticate clients on every API.",
        "about": "This API.",
    },
    "Any value. The credential scope of an AWS signature (version 4) selects account and region. "
    "Without a signature, those of the gateway apply.",
    Error,
)


def rest_face(engine: Engine, callers: CallerAuthenticator) -> JsonFace:
    """Make the face."""
    configuration = JsonFaceConfiguration(
        name="rest",
        prefix="/v1",
        about=ABOUT,
        refused=_refused,
        check_body=check_parts,
        elsewhere=_elsewhere,
    )
    return JsonFace(engine, callers, ENDPOINTS, configuration)


def _refused(refusal: Rejected, found: RouteMatch[Endpoint] | None) -> tuple[int, str]:
    if isinstance(refusal, QueueDoesNotExist) and refusal.queue_name is None:
        # The queue in the path was deleted during the request.
        refusal.queue_name = _queue_asked(found)
    return status_of(refusal), text_of(refusal)


def _queue_asked(found: RouteMatch[Endpoint] | None) -> str | None:
    """Return the name of the queue in the path."""
    if found is None or not found.place.template.startswith("/v1/queues/"):
        return None
    return unquoted(found.values["name"])


def _elsewhere(request: Request) -> Response | None:
    """Return the answer to a request that is signed for another AWS service."""
    name = service_detection.signed_for(request.headers, request.query)
    return None if name is None else wrong_service(request, name)

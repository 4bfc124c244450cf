"""The simple queue: its endpoints, below ``/api/queues``, and its words.

Imported in the background, after the start or for its first request.
"""

from __future__ import annotations

from http import HTTPStatus

from msgspec import Struct

from queuegate.gateway.faces.callers import Callers, Wants
from queuegate.gateway.faces.json.documenting import About
from queuegate.gateway.faces.json.endpoints import Endpoint
from queuegate.gateway.faces.json.face import JsonFace, Manner
from queuegate.gateway.faces.json.parameters import unquoted
from queuegate.gateway.faces.json.refusals import status_of
from queuegate.gateway.faces.simple import messages, queues
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.protocol.routing import RouteMatch
from queuegate.storage.errors import QueueDoesNotExist, Rejected

ENDPOINTS: tuple[Endpoint, ...] = (*queues.ENDPOINTS, *messages.ENDPOINTS)
"""Every endpoint but the document that describes them."""


class Refusal(Struct):
    """Why a request was refused."""

    status: int
    error: str
    """What HTTP calls that status."""
    message: str
    """What is wrong, and what to change."""


ABOUT = About(
    "Queuegate simple queue",
    "Queues with an id, a size and dead letters of their own, over plain HTTP and JSON. Any queue "
    "of the account has an id here, and what is sent here can be received over SQS and the native "
    "API, and the other way round. Times are UTC.",
    {
        "queues": "Create, look at, delete.",
        "messages": "Enqueue, dequeue, acknowledge, requeue.",
        "about": "This API.",
    },
    "Not needed, unless the gateway has a key: `Bearer` and that key, which may also come in "
    "`X-Api-Key`. A signature of AWS (version 4) names account and region by its credential scope; "
    "without one they are the gateway's.",
    Refusal,
    needs_credentials=False,
)


def simple_face(engine: Engine, callers: Callers) -> JsonFace:
    """The face."""
    manner = Manner(
        name="simple",
        prefix="/api",
        about=ABOUT,
        refused=_refused,
        worded=lambda status, text: Refusal(status, HTTPStatus(status).phrase, text),
        sign_in="This gateway wants its key: send it in the header X-Api-Key.",
        wants=Wants.KEY,
    )
    return JsonFace(engine, callers, ENDPOINTS, manner)


def _refused(refusal: Rejected, found: RouteMatch[Endpoint] | None) -> tuple[int, str]:
    if isinstance(refusal, QueueDoesNotExist) and found is not None:
        asked = unquoted(found.values["queue_id"])
        return 404, f"There is no queue with the id '{asked[:_MOST_SHOWN]}'."
    return status_of(refusal), str(refusal)


_MOST_SHOWN = 60

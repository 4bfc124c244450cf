"""The face of channels: its endpoints, which share `/v1` with the native API, and its words."""

from __future__ import annotations

from queuegate.gateway.faces.callers import Callers, Wants
from queuegate.gateway.faces.channels import (
    consuming,
    dead_letters,
    metrics,
    publishing,
    settings,
    sockets,
    streams,
)
from queuegate.gateway.faces.channels.pushing import key_parameters
from queuegate.gateway.faces.channels.refusals import status_of, text_of
from queuegate.gateway.faces.json.counting import check_parts
from queuegate.gateway.faces.json.documenting import About
from queuegate.gateway.faces.json.endpoints import Endpoint
from queuegate.gateway.faces.json.face import JsonFace, Manner
from queuegate.gateway.faces.json.refusals import Error
from queuegate.gateway.operations.runtime.engine import Engine

ENDPOINTS: tuple[Endpoint, ...] = (
    *publishing.ENDPOINTS,
    *consuming.ENDPOINTS,
    *dead_letters.ENDPOINTS,
    *settings.ENDPOINTS,
    *metrics.ENDPOINTS,
    *streams.ENDPOINTS,
    *sockets.ENDPOINTS,
)
"""Every endpoint but the document that describes them."""

ABOUT = About(
    "Queuegate channels",
    "Messages with priorities, which expire, over plain HTTP and JSON. A channel is a queue: what "
    "is published here can be received over SQS, and the other way round.\n\n"
    'Every refusal is `{"error": "..."}` with a text that says what to change. Times are UTC.',
    {
        "publish": "Put messages into channels.",
        "consume": "Get them, acknowledge them, give them back.",
        "dead letters": "What was never acknowledged.",
        "channels": "Their settings, their numbers.",
        "push": "Get them as they are published.",
        "about": "This API.",
    },
    "Not needed; whatever is there names the producer, whose rate may be limited. A signature of "
    "AWS (version 4) names account and region by its credential scope; without one they are the "
    "gateway's.",
    Error,
    needs_credentials=False,
)


def channels_face(engine: Engine, callers: Callers) -> JsonFace:
    """The face."""
    manner = Manner(
        name="channels",
        prefix="/v1/channels",
        about=ABOUT,
        refused=lambda refusal, _: (status_of(refusal), text_of(refusal)),
        worded=lambda _, text: Error(text),
        sign_in="This gateway wants a key of its own: send it in the header X-Api-Key.",
        wants=Wants.NAME,
        parameters=key_parameters,
        check_body=check_parts,
    )
    return JsonFace(engine, callers, ENDPOINTS, manner)

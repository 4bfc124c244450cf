"""The face of logs: its endpoints, below ``/v1/logs``, and its words."""

from __future__ import annotations

from queuegate.gateway.faces.callers import Callers
from queuegate.gateway.faces.json.documenting import About
from queuegate.gateway.faces.json.endpoints import Endpoint
from queuegate.gateway.faces.json.face import JsonFace, Manner
from queuegate.gateway.faces.json.refusals import Error, status_of
from queuegate.gateway.faces.logs import (
    consuming,
    dead_letters,
    groups,
    publishing,
    reading,
    settings,
)
from queuegate.gateway.operations.runtime.engine import Engine

ENDPOINTS: tuple[Endpoint, ...] = (
    *settings.ENDPOINTS,
    *publishing.ENDPOINTS,
    *reading.ENDPOINTS,
    *groups.ENDPOINTS,
    *consuming.ENDPOINTS,
    *dead_letters.ENDPOINTS,
)
"""Every endpoint but the document that describes them."""

ABOUT = About(
    "Queuegate logs",
    "Logs keep records, which never change, in partitions by their keys. Any number of groups read "
    "them, each at its own place.\n\n"
    'Every refusal is `{"error": "..."}` with a text that says what to change. Times are UTC, '
    "durations seconds.",
    {
        "logs": "What they keep, what they hold.",
        "records": "Publish them, read them by offset.",
        "groups": "Readers that share records out, where they are, where they go on.",
        "subscribers": "Join a group, fetch records, acknowledge them or give them back.",
        "dead letters": "What groups have given up.",
        "about": "This API.",
    },
    "Any value. A signature of AWS (version 4) names account and region by its credential scope; "
    "without one they are the gateway's.",
    Error,
)


def logs_face(engine: Engine, callers: Callers) -> JsonFace:
    """The face."""
    manner = Manner(
        name="logs",
        prefix="/v1/logs",
        about=ABOUT,
        refused=lambda refusal, _: (status_of(refusal), str(refusal)),
        worded=lambda _, text: Error(text),
        sign_in="Credentials are missing: send the header Authorization, with a signature of AWS "
        "or a key of `queuegate keys`. Where signatures are not verified anything will do, and an "
        "access key of twelve digits names the account.",
    )
    return JsonFace(engine, callers, ENDPOINTS, manner)

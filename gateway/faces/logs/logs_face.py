"""The logs face: its configuration, below ``/v1/logs``."""

from __future__ import annotations

from queuegate.gateway.faces.interface import CallerAuthenticator
from queuegate.gateway.faces.json.json_endpoints import Endpoint, Error, status_of
from queuegate.gateway.faces.json.json_face import JsonFace, JsonFaceConfiguration
from queuegate.gateway.faces.json.json_openapi import FaceDescription
from queuegate.gateway.faces.logs import (
    group_endpoints,
    log_endpoints,
    record_endpoints,
    subscriber_endpoints,
)
from queuegate.gateway.operations.runtime.engine import Engine

ENDPOINTS: tuple[Endpoint, ...] = (
    *log_endpoints.endpoint,
    *record_endpoints.endpoint,
    *group_endpoints.endpoint,
    *subscriber_endpoints.endpoint,
    *record_endpoints.dead_letters,
)
"""Every endpoint but the document that describes them."""

ABOUT = FaceDescription(
    "Queuegate logs",
    "Logs store immutable records in partitions by their keys. Any number of groups read them, "
    "each at its own position.\n\n"
    'Every refusal is `{"error": "..."}` with the necessary change. Times are UTC, durations '
    "seconds.",
    {
        "logs": "Settings and partitions of logs.",
        "records": "Publish records, read them by offset.",
        "groups": "Consumer groups and their positions.",
        "subscribers": "Join a group, fetch and settle records.",
        "dead letters": "Records that groups have dead-lettered.",
        "about": "This API.",
    },
    "Any value. The credential scope of an AWS signature (version 4) selects account and region. "
    "Without a signature, those of the gateway apply.",
    Error,
)


def logs_face(engine: Engine, callers: CallerAuthenticator) -> JsonFace:
    """Make the face."""
    configuration = JsonFaceConfiguration(
        name="logs",
        prefix="/v1/logs",
        about=ABOUT,
        refused=lambda refusal, _: (status_of(refusal), str(refusal)),
    )
    return JsonFace(engine, callers, ENDPOINTS, configuration)

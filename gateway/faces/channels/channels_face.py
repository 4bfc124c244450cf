"""The channels face: its configuration. Its paths share `/v1` with the native API."""

from __future__ import annotations

from queuegate.gateway.faces.channels import channel_endpoints, channel_messages, channel_push
from queuegate.gateway.faces.channels.channel_endpoints import text_of
from queuegate.gateway.faces.channels.channel_push import key_parameters
from queuegate.gateway.faces.interface import CallerAuthenticator, CredentialRule
from queuegate.gateway.faces.json.decoding import check_parts
from queuegate.gateway.faces.json.json_endpoints import Endpoint, Error, status_of
from queuegate.gateway.faces.json.json_face import JsonFace, JsonFaceConfiguration
from queuegate.gateway.faces.json.json_openapi import FaceDescription
from queuegate.gateway.operations.runtime.engine import Engine

ENDPOINTS: tuple[Endpoint, ...] = (
    *channel_messages.publishing,
    *channel_messages.consuming,
    *channel_endpoints.channels,
    *channel_endpoints.dead_letters,
    *channel_push.endpoint,
)
"""Every endpoint but the document that describes them."""

ABOUT = FaceDescription(
    "Queuegate channels",
    "Messages with priorities and expiry over plain HTTP and JSON. A channel is a queue: messages "
    "can be sent and received over SQS, too.\n\n"
    'Every refusal is `{"error": "..."}` with the necessary change. Times are UTC.',
    {
        "publish": "Publish messages to channels.",
        "consume": "Poll, acknowledge and return messages.",
        "dead letters": "Messages that were never acknowledged.",
        "channels": "Settings and metrics of channels.",
        "push": "Receive messages as they are published.",
        "about": "This API.",
    },
    "Not needed. Any value names the producer for rate limits. The credential scope of an AWS "
    "signature (version 4) selects account and region. Without a signature, those of the gateway "
    "apply.",
    Error,
    needs_credentials=False,
)


def channels_face(engine: Engine, callers: CallerAuthenticator) -> JsonFace:
    """Make the face."""
    configuration = JsonFaceConfiguration(
        name="channels",
        prefix="/v1/channels",
        about=ABOUT,
        refused=lambda refusal, _: (status_of(refusal), text_of(refusal)),
        sign_in="This gateway requires a Queuegate key: send it in the header X-Api-Key.",
        wants=CredentialRule.NAME,
        parameters=key_parameters,
        check_body=check_parts,
    )
    return JsonFace(engine, callers, ENDPOINTS, configuration)

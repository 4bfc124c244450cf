"""The endpoints below ``/_admin``, and the description of their OpenAPI document."""

from __future__ import annotations

from queuegate.gateway.faces.json.json_endpoints import Endpoint, Error
from queuegate.gateway.faces.json.json_openapi import FaceDescription
from queuegate.gateway.pages import account_pages, event_pages, fault_pages

ABOUT = FaceDescription(
    "Queuegate for testers",
    "The clock, the reset, the outbox, events, seeds, states and faults. Pages below `/_admin` are "
    "for the gateway's own machine; an ephemeral gateway shows them to everybody, and one that "
    "verifies signatures to administrators.\n\n"
    'Every refusal is `{"error": "..."}` with the necessary change.',
    {
        "clock": "Time that passes at once.",
        "reset": "Back to nothing.",
        "outbox": "Messages that the gateway does not send: SMS, e-mail, push, invocations.",
        "events": "What happens to the messages of an account, as it happens.",
        "seed": "Resources that a seed file names.",
        "states": "What an account has, saved under a name.",
        "faults": "Requests and deliveries that fail on purpose.",
        "about": "This API.",
    },
    "An AWS signature, whose access key is an account, or any value.",
    Error,
    needs_credentials=False,
)
ENDPOINTS: tuple[Endpoint, ...] = (
    *account_pages.of_clock,
    *account_pages.of_reset,
    *account_pages.of_states,
    *account_pages.of_outbox,
    *account_pages.of_seeds,
    *event_pages.endpoint,
    *fault_pages.endpoint,
)
"""Every endpoint but the document itself."""

"""The endpoints below ``/_admin``: the health of the gateway, the list of all of them, and the
description of their OpenAPI document."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Struct

from queuegate.gateway import audit_lines
from queuegate.gateway.faces.json.json_endpoints import Answer, Endpoint, Endpoints, Error
from queuegate.gateway.faces.json.json_fields import about, example
from queuegate.gateway.faces.json.json_openapi import FaceDescription
from queuegate.gateway.operations.telemetry.database_health import DatabaseReport
from queuegate.gateway.pages import account_pages, event_pages, fault_pages
from queuegate.gateway.pages.admin_endpoints import AdminCall

ABOUT = FaceDescription(
    "Queuegate for testers",
    "Health, the clock, the reset, the outbox, events, seeds, states and faults. Pages below "
    "`/_admin` are for the gateway's own machine; an ephemeral gateway shows them to everybody, "
    "and one that verifies signatures to administrators.\n\n"
    'Every refusal is `{"error": "..."}` with the necessary change.',
    {
        "health": "What an operator should know, and what to do.",
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
_HEALTH = {"database": msgspec.to_builtins(DatabaseReport(is_up=True, read_at=1_795_867_000.5))}
of_health = Endpoints("health")


class GatewayHealth(Struct):
    """The database with findings, each with its remedy, and the gateway."""

    database: DatabaseReport
    processes: Annotated[int, example(2)]
    audit: Annotated[str, about("Where the audit is written.", "stderr")]


@of_health("GET /_admin/health", "", refusals=(), shows={200: _HEALTH})
async def get_health(call: AdminCall) -> Answer[GatewayHealth]:
    """Show the health. Returns 200: Statistics of the database, and findings."""
    metrics = call.metrics
    assert metrics is not None
    report, audit = await metrics.health.report(), audit_lines.destination(call.settings)
    return Answer(200, GatewayHealth(report, metrics.process_count(), audit))


ENDPOINTS: tuple[Endpoint, ...] = (
    *of_health,
    *account_pages.of_clock,
    *account_pages.of_reset,
    *account_pages.of_states,
    *account_pages.of_outbox,
    *account_pages.of_seeds,
    *event_pages.endpoint,
    *fault_pages.endpoint,
)
"""Every endpoint but the document itself."""

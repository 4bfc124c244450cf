"""The endpoints below ``/_admin``: the health of the gateway, the list of all of them, and the
description of their OpenAPI document."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec
import orjson
from msgspec import UNSET, Raw, Struct, UnsetType

from queuegate.gateway import audit_lines
from queuegate.gateway.faces.json.json_endpoints import Answer, Endpoint, Endpoints, Error
from queuegate.gateway.faces.json.json_fields import Instant, about, example
from queuegate.gateway.faces.json.json_openapi import FaceDescription
from queuegate.gateway.operations.telemetry.database_health import DatabaseReport
from queuegate.gateway.pages import account_pages, event_pages, fault_pages
from queuegate.gateway.pages.admin_endpoints import AccountId, AdminCall, AdminQuery

ABOUT = FaceDescription(
    "Queuegate for testers",
    "Health, the clock, the reset, the outbox, events, seeds, states and faults. Pages below "
    "`/_admin` are for the gateway's own machine; an ephemeral gateway shows them to everybody, "
    "and one that verifies signatures to administrators.\n\n"
    'Every refusal is `{"error": "..."}` with the necessary change.',
    {
        "health": "What an operator should know, and what to do.",
        "audit": "Who changed what, and who was refused.",
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


class AuditQuery(AdminQuery, forbid_unknown_fields=True):
    """The newest lines, of an account or of all."""

    limit: Annotated[int, about("Maximum number of lines.", ge=1, le=audit_lines.MOST_KEPT)] = 100


class AuditLine(Struct):
    """A change or a refused call. Members without a value are absent."""

    at: Annotated[Instant, about("By the real clock.")]
    event: Literal["changed", "refused"]
    account: AccountId | UnsetType = UNSET
    access_key: str | UnsetType = UNSET
    key: Annotated[str | UnsetType, about("Number of the key.", "7")] = UNSET
    is_anonymous: bool | UnsetType = UNSET
    claimed_access_key: Annotated[
        str | UnsetType, about("Of a caller whose credentials were wrong, as is `claimed_key`.")
    ] = UNSET
    claimed_key: str | UnsetType = UNSET
    operation: Annotated[str | UnsetType, example("sqs:CreateQueue")] = UNSET
    resource: Annotated[str | UnsetType, example("orders")] = UNSET
    address: Annotated[str | UnsetType, example("203.0.113.7")] = UNSET
    reason: Annotated[
        str | UnsetType, about("Why the call was refused: a right, a policy, a quota …", "policy")
    ] = UNSET
    statement: Annotated[str | UnsetType, about("The denying statement of a policy.")] = UNSET
    status: Annotated[int | UnsetType, example(403)] = UNSET
    count: Annotated[int | UnsetType, about("Equal refusals since the line before.")] = UNSET
    request_id: str | UnsetType = UNSET


class AuditTail(Struct):
    """The newest lines of the audit."""

    destination: Annotated[str, about("Where the audit is written. `off`: nowhere.", "stderr")]
    processes: Annotated[int, about("Processes of the gateway that have answered.", 2)]
    lines: Annotated[list[AuditLine], about("The newest first.")]


of_audit = Endpoints("audit")


@of_audit("GET /_admin/audit", "", refusals=())
async def read_audit(call: AdminCall, query: AuditQuery) -> Answer[AuditTail]:
    """Read the newest lines of the audit. Each process of the gateway keeps its last 1,000 in
    memory since its start. Lines of other gateways and of commands are only where the audit is
    written. Returns 200: The lines."""
    number = audit_lines.MOST_KEPT if query.account else query.limit
    answers = await call.engine.siblings.all(audit_lines.NEWEST, number)
    found = [
        one for answer in answers for one in answer if query.account in (UNSET, one.get("account"))
    ]
    found.sort(key=lambda one: one["at"], reverse=True)
    for one in found[: query.limit]:
        one["at"] = datetime.fromtimestamp(one["at"], UTC).isoformat(timespec="milliseconds")
    shown = {
        "destination": audit_lines.destination(call.settings),
        "processes": len(answers),
        "lines": found[: query.limit],
    }
    return Answer(200, Raw(orjson.dumps(shown)))


ENDPOINTS: tuple[Endpoint, ...] = (
    *of_health,
    *of_audit,
    *account_pages.of_clock,
    *account_pages.of_reset,
    *account_pages.of_states,
    *account_pages.of_outbox,
    *account_pages.of_seeds,
    *event_pages.endpoint,
    *fault_pages.endpoint,
)
"""Every endpoint but the document itself."""

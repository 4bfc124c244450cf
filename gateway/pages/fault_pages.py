"""/_admin/faults: rules for faults on purpose; and the same rules in LocalStack's form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct, structs

from queuegate.gateway.faces.json.json_endpoints import Answer, Endpoints
from queuegate.gateway.faces.json.json_fields import example
from queuegate.gateway.operations.runtime import faults
from queuegate.gateway.operations.runtime.faults import ActiveFault, FaultError, FaultRule
from queuegate.gateway.pages.admin_endpoints import AdminCall, decode
from queuegate.storage.storage_errors import MalformedInput, NotFound

if TYPE_CHECKING:
    from queuegate.gateway.operations.runtime.engine import Engine

Rules = FaultRule | list[FaultRule]
_EXAMPLE = {"operation": "SendMessage", "queue": "orders", "error": "ThrottlingException"}
_EXAMPLES = {"one": _EXAMPLE | {"count": 2}, "several": [_EXAMPLE, {"kind": "drop", "seed": 7}]}


class ShownFaults(Struct):
    """Rules, in the order in which they are tried."""

    faults: list[ActiveFault]


class RemovedFaults(Struct):
    """Rules were removed."""

    removed: Annotated[int, example(1)]


endpoint = Endpoints(
    "faults",
    fault_id=Annotated[str, Meta(extra_json_schema={"pattern": "^[0-9]{1,18}$"}, examples=["1"])],
)


@endpoint("GET /_admin/faults", "", refusals=())
async def list_faults(call: AdminCall) -> Answer[ShownFaults]:
    """List rules. Shows how often each matched and fired. Returns 200: The rules."""
    return Answer(200, ShownFaults((await faults.find_all(call.engine)).rules))


@endpoint("POST /_admin/faults", "", refusals=(), example={"examples": _EXAMPLES})
async def add_faults(call: AdminCall, body: Rules) -> Answer[ShownFaults]:
    """Add rules. When it is answered, every process uses the rules. Returns 200: The added
    rules."""
    added, _ = await faults.change(call.engine, _checked(body))
    return Answer(200, ShownFaults(added))


@endpoint("PUT /_admin/faults", "", refusals=(), example={"examples": _EXAMPLES})
async def replace_faults(call: AdminCall, body: Rules) -> Answer[ShownFaults]:
    """Replace all rules. When it is answered, every process uses the rules. Returns 200: The added
    rules."""
    added, _ = await faults.change(call.engine, _checked(body), lambda _: True)
    return Answer(200, ShownFaults(added))


@endpoint("DELETE /_admin/faults", "", refusals=())
async def remove_faults(call: AdminCall) -> Answer[RemovedFaults]:
    """Remove all rules. When it is answered, no process uses them. Returns 200: Their number."""
    _, removed = await faults.change(call.engine, removes=lambda _: True)
    return Answer(200, RemovedFaults(removed))


@endpoint("DELETE /_admin/faults/{fault_id}", "")
async def remove_fault(call: AdminCall) -> Answer[RemovedFaults]:
    """Remove a rule. When it is answered, no process uses the rule. Returns 200: One was
    removed."""
    text = call.path.fault_id
    _, removed = await faults.change(call.engine, removes=lambda one: str(one.id) == text)
    if not removed:
        raise NotFound("No rule has this id: GET /_admin/faults lists them.")
    return Answer(200, RemovedFaults(removed))


def _checked(body: Rules) -> list[FaultRule]:
    """Return the rules with their defaults. Raises MalformedInput, with the number of a rule in a
    list."""
    rules = []
    for number, one in enumerate(body if isinstance(body, list) else [body], 1):
        try:
            rules.append(faults.checked(one))
        except MalformedInput as refusal:
            where = f"Rule {number}: " if isinstance(body, list) else ""
            raise MalformedInput(where + str(refusal)) from None
    return rules


async def answer_chaos(engine: Engine, method: str, body: bytes) -> list[dict[str, Any]]:
    """Answer /_localstack/chaos/faults: POST and PUT replace the rules, PATCH adds some, DELETE
    removes equal ones, or all. Returns the rules afterwards. Raises MalformedInput."""
    if method != "GET":
        is_removing = method == "DELETE"
        given: Rules = decode(body, Rules) if body or not is_removing else []
        listed = given if isinstance(given, list) else [given]
        rules = _checked([structs.replace(one, error=one.error or _CHAOS) for one in listed])
        equal = [_in_chaos(one) for one in rules]

        def removes(one: ActiveFault) -> bool:
            is_one = not (is_removing and body) or _in_chaos(one) in equal
            return is_one and method != "PATCH" and not _is_effect(one)

        await faults.change(engine, () if is_removing else rules, removes)
    found = await faults.find_all(engine)
    return [_in_chaos(one) for one in found.rules if not _is_effect(one)]


_CHAOS = FaultError(status=503)
"""The error of a rule without one, in LocalStack's form."""


def _in_chaos(rule: FaultRule) -> dict[str, Any]:
    """Return a rule without what LocalStack's rules lack, and with what is always there."""
    shown = {"probability": 1.0, **msgspec.to_builtins(rule)}
    for name in ("id", "matched", "fired", "until", "seed"):
        shown.pop(name, None)
    if shown["kind"] == "error":
        del shown["kind"]
        shown["error"] = {"code": "ServiceUnavailable", **shown["error"]}
    return shown


def _is_effect(rule: ActiveFault) -> bool:
    """Return True for a latency of every request."""
    plain = {"probability": 1.0, "kind": "latency", "latency_ms": rule.latency_ms}
    return _in_chaos(rule) == plain


async def answer_effects(engine: Engine, method: str, body: bytes) -> dict[str, int]:
    """Answer /_localstack/chaos/effects: a latency of every request. Raises MalformedInput."""
    if method != "GET":
        latency = 0 if method == "DELETE" else decode(body, _Effects).latency
        adds = [faults.checked(FaultRule(latency_ms=latency))] if latency else []
        await faults.change(engine, adds, _is_effect)
    found = await faults.find_all(engine)
    return {"latency": sum(one.latency_ms for one in found.rules if _is_effect(one))}


class _Effects(Struct, forbid_unknown_fields=True):
    """LocalStack's effects on every request."""

    latency: Annotated[int, Meta(ge=0, le=60_000)]

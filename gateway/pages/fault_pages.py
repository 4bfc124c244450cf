"""/_admin/faults: rules for faults on purpose; and the same rules in LocalStack's form."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
import orjson
from starlette.routing import Route

from queuegate.gateway.faces.json.decoding import explained
from queuegate.gateway.operations.runtime import faults
from queuegate.gateway.operations.runtime.faults import COUNTS, BadFault, FaultRule
from queuegate.gateway.pages.public_pages import REQUEST
from queuegate.storage import stored_faults
from queuegate.storage.storage_errors import Unavailable

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from queuegate.gateway.operations.runtime.engine import Engine

_USAGE = (
    'Send a rule, such as {"operation": "SendMessage", "error": "ThrottlingException", "count": 2},'
    " or a list of rules."
)
_EFFECTS_USAGE = 'Send {"latency": 500}, in milliseconds, at most 60000.'

Rule = dict[str, Any]


def fault_routes(engine: Engine, answered: Callable[..., Response]) -> list[Route]:
    """Return the routes of /_admin/faults. ``answered`` makes a JSON response."""

    def page(handler: Callable[[Request], Awaitable[Any]]) -> Any:
        async def answer(request: Request) -> Response:
            try:
                return answered(await handler(request))
            except BadFault as refusal:
                return answered({"error": str(refusal)}, refusal.status)
            except Unavailable as error:
                return answered({"error": str(error)}, 503, {"retry-after": "1"})

        return answer

    async def show(request: Request) -> Rule:
        if request.method == "DELETE":
            _, removed = await faults.change(engine, removes=lambda _: True)
            return {"removed": removed}
        if request.method == "GET":
            return {"faults": await _find_all(engine)}
        rules = read_rules(request.scope[REQUEST].body)
        added, _ = await faults.change(engine, rules, lambda _: request.method == "PUT")
        return {"faults": added}

    async def remove(request: Request) -> Rule:
        text = request.path_params["fault_id"]
        _, removed = await faults.change(engine, removes=lambda one: str(one["id"]) == text)
        if not removed:
            raise BadFault("No rule has this id: GET /_admin/faults lists them.", 404)
        return {"removed": removed}

    return [
        Route("/_admin/faults", page(show), methods=["GET", "POST", "PUT", "DELETE"]),
        Route("/_admin/faults/{fault_id}", page(remove), methods=["DELETE"]),
    ]


async def _find_all(engine: Engine) -> list[Rule]:
    async with engine.database.transaction() as tx:
        return (await stored_faults.read(tx)).rules


def read_rules(body: bytes, **defaults: Any) -> list[FaultRule]:
    """Return the rules in a body, with defaults. Raises BadFault, with the number of a rule in a
    list."""
    found = _read_json(body, _USAGE)
    listed = found if isinstance(found, list) else [found]
    rules = []
    for number, one in enumerate(listed, 1):
        where = f"Rule {number}: " if isinstance(found, list) else ""
        if not isinstance(one, dict):
            raise BadFault(_USAGE)
        try:
            rules.append(faults.checked(msgspec.convert({**defaults, **one}, FaultRule)))
        except msgspec.ValidationError as error:
            raise BadFault(where + explained(error, FaultRule, "member")) from None
        except BadFault as refusal:
            raise BadFault(where + str(refusal)) from None
    return rules


def _read_json(body: bytes, usage: str) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        raise BadFault(f"The body is not JSON. {usage}") from None


async def answer_chaos(engine: Engine, method: str, body: bytes) -> list[Rule]:
    """Answer /_localstack/chaos/faults: POST and PUT replace the rules, PATCH adds some, DELETE
    removes equal ones, or all. Returns the rules afterwards. Raises BadFault."""
    if method != "GET":
        is_removing = method == "DELETE"
        rules = read_rules(body, error={"statusCode": 503}) if body or not is_removing else []
        equal = [_in_chaos(msgspec.to_builtins(one)) for one in rules]

        def removes(one: Rule) -> bool:
            is_one = not (is_removing and body) or _in_chaos(one) in equal
            return is_one and method != "PATCH" and not _is_effect(one)

        await faults.change(engine, () if is_removing else rules, removes)
    return [_in_chaos(one) for one in await _find_all(engine) if not _is_effect(one)]


def _in_chaos(rule: Rule) -> Rule:
    """Return a rule without what LocalStack's rules lack, and with what is always there."""
    shown = {name: value for name, value in rule.items() if name not in (*COUNTS, "seed")}
    if shown["kind"] == "error":
        del shown["kind"]
        shown["error"] = {"code": "ServiceUnavailable", **shown["error"]}
    return {"probability": 1.0, **shown}


def _is_effect(rule: Rule) -> bool:
    """Return True for a latency of every request."""
    return rule.keys() <= {*COUNTS, "kind", "seed", "latency_ms"}


async def answer_effects(engine: Engine, method: str, body: bytes) -> dict[str, int]:
    """Answer /_localstack/chaos/effects: a latency of every request. Raises BadFault."""
    if method != "GET":
        members = {"latency": 0} if method == "DELETE" else _read_json(body, _EFFECTS_USAGE)
        latency = members.get("latency") if isinstance(members, dict) else None
        if type(latency) is not int or not 0 <= latency <= 60_000 or len(members) > 1:
            raise BadFault(_EFFECTS_USAGE)
        adds = [faults.checked(FaultRule(latency_ms=latency))] if latency else []
        await faults.change(engine, adds, _is_effect)
    return {"latency": sum(one["latency_ms"] for one in await _find_all(engine) if _is_effect(one))}

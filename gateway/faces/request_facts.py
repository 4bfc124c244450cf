"""Facts of a request, which all of its log lines carry: who asked for what, and the error."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

from queuegate.gateway.faces.aws import aws_refusals
from queuegate.gateway.faces.injected_faults import names_in
from queuegate.gateway.faces.interface import Request
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.protocol.routing import RouteMatch
from queuegate.storage.storage_errors import Overloaded, Unavailable

_LONGEST_NAME: Final = 256
"""Characters of a name that are logged: a client may send any text."""


def facts_of(request: Request) -> dict[str, object]:
    """Return the facts that are known so far; unknown ones are empty."""
    asked, refusal = request.asked, request.refusal
    service, _, action = asked.operation.partition(":") if asked is not None else ("", "", "")
    account_id = "" if request.caller is None else request.caller.account_id
    error = "" if refusal is None else code_of(service, refusal)
    face = "aws" if service in aws_refusals.ERRORS else service
    name = next(_names(request), "")
    return facts(request.request_id, account_id, name, face, action) | {"error": error}


def _names(request: Request) -> Iterator[str]:
    """Yield the names in the decoded request; in the path if the rest was not decoded."""
    if request.asked is not None and request.asked.about is not None:
        yield from names_in(request.asked.about)
    elif isinstance(request.found, RouteMatch):
        yield from request.found.values.values()


def facts(request_id: str, account_id: str, name: str, face: str, action: str) -> dict[str, object]:
    """Return the facts of a request without an error. ``name`` is that of a queue, topic or log."""
    return {
        "request_id": request_id,
        "account": account_id,
        "queue": name[:_LONGEST_NAME],
        "face": face,
        "action": action,
        "error": "",
    }


def code_of(service: str, error: BaseException) -> str:
    """Return the error code that AWS's clients see. Other faces have none: the kind of error."""
    if service not in aws_refusals.ERRORS:
        return type(error).__name__
    return aws_refusals.what_to_say(service, error)[0].query_code


def log_unavailable(
    log: logging.Logger,
    engine: Engine,
    error: Unavailable,
    said: tuple[str, str | None],
    facts: Callable[[], dict[str, object]],
) -> None:
    """Log a request that cannot be answered now: its id and action, and its facts. Overload is
    counted, and logged once a minute: a line for each request would be a load of its own."""
    if isinstance(error, Overloaded):
        engine.series.traffic.refused(str(error))
    else:
        log.log(error.log_level, "%s %s: %s", *said, error, extra=facts())

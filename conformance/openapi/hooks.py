"""Rules that the descriptions cannot express: longest waits, and members by kind of queue."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote

import schemathesis  # type: ignore[import-not-found]  # only in .venvs/openapi

_PRIORITIES = range(11)
_WAITS = (*range(21), None)
_MOVES: dict[str, Any] = {"advance": "1s", "to": "2030-01-01T00:00:00Z"}
_WAYS = (*_MOVES, "advance_seconds", "ahead_seconds")


@schemathesis.hook  # type: ignore[untyped-decorator]
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Let polls without a wait end at once, and make sends fit their queue."""
    operation = case.operation.definition.raw.get("operationId")
    if operation == "pollMessages":
        case.query = {"wait": 0} | (case.query or {})
    elif operation == "receiveReceipts":
        _wait_for_nothing(case.body)
    elif operation == "sendText":
        case.query = {"group-id": "g"} | (case.query or {})
    elif operation == "moveClock":
        _fit_move(case.body)
    elif operation == "sendMessages":
        _fit_sends(case)


def _fit_move(body: Any) -> None:
    """Clocks move one way at a time, and stay within a century."""
    if not isinstance(body, dict):
        return
    ways = [way for way in _WAYS if way in body]
    for way in ways[1:]:
        del body[way]
    for way in ways[:1]:
        if isinstance(body[way], str if way in ("advance", "to") else int | float):
            body[way] = _MOVES.get(way, 1)
    if ways[:1] in (["to"], ["ahead_seconds"]) and body.get("back", False) is False:
        body["back"] = True
    if not ways and "freeze" not in body:
        body["freeze"] = False


def _wait_for_nothing(body: Any) -> None:
    if isinstance(body, dict) and body.get("wait", 0) in _WAITS:
        body["wait"] = 0


def _fit_sends(case: Any) -> None:
    """FIFO queues need a group and take neither delay nor priority, others know no deduplication.
    Values that break the description stay: they must be refused."""
    is_fifo = _is_fifo(case.operation.base_url, (case.path_parameters or {}).get("name"))
    messages = case.body if isinstance(case.body, list) else [case.body]
    for message in messages:
        if isinstance(message, dict):
            _fit(message, is_fifo=is_fifo)


def _is_fifo(base_url: str, name: object) -> bool:
    """Ask the gateway: a FIFO queue is found without its suffix, too."""
    url = base_url.rstrip("/") + "/v1/queues/" + quote(str(name), safe="")
    request = urllib.request.Request(url, headers={"authorization": "Bearer of any value"})
    try:
        with urllib.request.urlopen(request) as answer:
            return bool(json.load(answer)["fifo"])
    except urllib.error.HTTPError as error:
        error.close()
        return False


def _fit(message: dict[str, Any], *, is_fifo: bool) -> None:
    if not is_fifo:
        if isinstance(message.get("deduplication_id"), str):
            message["deduplication_id"] = None
        return
    if message.get("group_id") is None:
        message["group_id"] = "g"
    if message.get("priority") in _PRIORITIES and not isinstance(message["priority"], bool):
        message["priority"] = None
    delay = message.get("delay")
    if isinstance(delay, int | float) and 0 < delay <= 900:
        message["delay"] = 0

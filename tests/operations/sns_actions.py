"""Actions of SNS without a wire: members in, members out."""

from __future__ import annotations

from typing import Any

from gateway.faces.aws.face import Call
from gateway.faces.aws.sns.bindings import BINDINGS
from gateway.faces.requests import Request
from gateway.operations.caller import Caller
from gateway.operations.engine import Engine
from protocol.detect import Detected

BASE_URL = "http://gateway.example:9324"


async def ask(engine: Engine, caller: Caller, action: str, **members: Any) -> dict[str, Any]:
    """What the action answers; None is a member that is not there."""
    given = {name: value for name, value in members.items() if value is not None}
    request = Request("POST", "/", b"", {}, b"", BASE_URL, BASE_URL, "id")
    call = Call(engine, caller, given, request, Detected("sns", "query", action))
    return await BINDINGS[action](call) or {}

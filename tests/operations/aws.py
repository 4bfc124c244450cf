"""Actions of AWS, for tests of its rules: what its face does with a decoded request.

Refusals come as the classes and with the texts that the wire has for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from queuegate.gateway.faces.aws.aws_bindings import BINDINGS
from queuegate.gateway.faces.aws.aws_face import AwsCall, Members
from queuegate.gateway.faces.aws.aws_refusals import WORDS, shape_of, text_of
from queuegate.gateway.faces.interface import Request
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.protocol.service_detection import Detected
from queuegate.storage import storage_errors
from queuegate.storage.queue_model import Queue
from queuegate.storage.storage_errors import Rejected

_BY_SHAPE: Mapping[str, type[Rejected]] = {
    "InvalidParameterValueException": storage_errors.InvalidParameterValue,
    "ResourceNotFoundException": storage_errors.ResourceNotFound,
}


@dataclass(slots=True)
class _Asked(AwsCall):
    """A call about a queue that was found before."""

    found: Queue | None = None

    async def queue(self) -> Queue:
        assert self.found is not None
        return self.found


async def ask(
    engine: Engine,
    caller: Caller,
    service: str,
    action: str,
    queue: Queue | None = None,
    **members: Any,
) -> Members:
    """The members of the answer."""
    request = Request("POST", "/", b"", {}, b"", "http://gateway", "http://gateway", "id")
    detected = Detected(service, "json", action)
    try:
        call = _Asked(engine, caller, members, request, detected, queue)
        return await BINDINGS[service][action](call) or {}
    except Rejected as refusal:
        as_called = _BY_SHAPE.get(shape_of(service, type(refusal)))
        if as_called is None or type(refusal) not in WORDS:
            raise
        raise as_called(text_of(refusal, is_query=False)) from refusal

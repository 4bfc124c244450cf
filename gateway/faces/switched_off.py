"""The 404 of faces that QUEUEGATE_FACES does not name."""

from __future__ import annotations

import re

from queuegate.gateway.faces.aws.aws_face import AwsFace
from queuegate.gateway.faces.interface import Face, Request, Response
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol import sigv4
from queuegate.storage.storage_errors import Rejected, Unavailable, UnknownAction

_NAMES_AN_ACTION = re.compile(rb"(?:^|&)(?:Action|X-Amz-Algorithm)=")


class SwitchedOff(Face):
    """A face that answers every request with 404."""

    def __init__(self, name: str, aws: AwsFace) -> None:
        self._text = f"The face '{name}' of this gateway is off: QUEUEGATE_FACES does not name it."
        self._aws = aws

    def most_bytes(self, _: Request) -> int:
        """Return the limit of all faces, so that no client is cut off."""
        return LIMITS.request_bytes

    async def answer(self, request: Request) -> Response:
        """Return 404, for AWS clients in a form that they show."""
        return self._refused(request)

    def turned_away(self, request: Request, _: Rejected | Unavailable) -> Response:
        """Return the same 404, whatever the refusal."""
        return self._refused(request)

    def _refused(self, request: Request) -> Response:
        if _is_of_aws(request):
            response = self._aws.turned_away(request, UnknownAction(self._text))
            response.status = 404
            return response
        headers = [(b"content-type", b"text/plain; charset=utf-8")]
        return Response(404, headers, f"{self._text}\n".encode())


def _is_of_aws(request: Request) -> bool:
    return (
        "x-amz-target" in request.headers
        or request.headers.get("authorization", "").startswith(sigv4.ALGORITHM)
        or _NAMES_AN_ACTION.search(request.query) is not None
    )

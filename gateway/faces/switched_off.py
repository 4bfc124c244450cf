"""What is answered where a face would be, if it were not switched off."""

from __future__ import annotations

import re

from queuegate.gateway.faces.aws.aws_face import AwsFace
from queuegate.gateway.faces.face import Face
from queuegate.gateway.faces.requests import Request, Response
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol import sigv4
from queuegate.storage.errors import Rejected, Unavailable, UnknownAction

_NAMES_AN_ACTION = re.compile(rb"(?:^|&)(?:Action|X-Amz-Algorithm)=")


class SwitchedOff(Face):
    """A face that tells everybody that there is none: 404."""

    def __init__(self, name: str, aws: AwsFace) -> None:
        self._text = f"The face '{name}' of this gateway is off: QUEUEGATE_FACES does not name it."
        self._aws = aws

    def most_bytes(self, _: Request) -> int:
        """What no client of any face has to be cut off for."""
        return LIMITS.request_bytes

    def may_wait(self, _: Request) -> bool:
        """Never."""
        return False

    async def answer(self, request: Request) -> Response:
        """404, for AWS's clients in a form that they show."""
        return self._refused(request)

    def turned_away(self, request: Request, _: Rejected | Unavailable) -> Response:
        """The same, whatever else there were to say."""
        response = self._refused(request)
        # What the client still sends is dropped: the connection cannot be used again.
        response.headers.append((b"connection", b"close"))
        return response

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
